"""Nothing in a file is unpickled, wherever it stands: an object that would leave a mark leaves none."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs


class Marks:
    """What is run where this is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def member(array):
    """The bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def rewritten(content, name, array):
    """A .npz file with another array of this name."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, member(array) if entry == f"{name}.npy" else old.read(entry))
    return file.getvalue()


def state():
    return fs.FrequentDirections(2).update(np.eye(4)).to_bytes()


def matrix():
    file = io.BytesIO()
    sparse.save_npz(file, sparse.eye_array(4).tocsr(), compressed=False)
    return file.getvalue()


FILES = {
    "a.fsk": lambda bad: pickle.dumps(bad[0]),
    "b.fsk": lambda bad: rewritten(state(), "header", bad),
    "g.fsk": lambda bad: rewritten(state(), "buffer", bad),
    "c.npy": member,
    "d.npz": lambda bad: rewritten(matrix(), "data", bad),
    "e.npz": lambda bad: rewritten(matrix(), "format", bad),
    "f.npz": lambda bad: rewritten(matrix(), "shape", bad),
}


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_unpickled(name, tmp_path):
    bad = np.empty(1, object)
    bad[0] = Marks(str(tmp_path / "mark"))
    path = tmp_path / name
    path.write_bytes(FILES[name](bad))
    with pytest.raises((fs.StateError, fs.data.SourceError), match=path.stem):
        fs.load(path) if name.endswith(".fsk") else fs.FrequentDirections(2).update(fs.open_rows(path))
    assert not (tmp_path / "mark").exists()
    np.load(io.BytesIO(member(bad)), allow_pickle=True)
    assert (tmp_path / "mark").exists()  # it would
