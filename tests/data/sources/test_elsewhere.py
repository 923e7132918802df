"""HDF5 and Zarr whose rows would be those of another file, or of none: what a file may not ask for."""

import contextlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import SourceError

h5py = pytest.importorskip("h5py")

N, D = 20, 3


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((N, D))


@contextlib.contextmanager
def no_waiting():
    """A test that waits for a pipe fails."""

    def fail(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outside(file, name, shape, folder, kind="u1"):
    """A data set whose entries are bytes of another file of the machine."""
    (folder / "secret").write_bytes(bytes(range(256)) * 40)
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return file.create_dataset(name, shape, kind, external=[(str(folder / "secret"), 0, size)])


def virtual(file, name, sources, shape, kind="f8"):
    """A data set made of others: [(file, its data set)], one under the other."""
    layout = h5py.VirtualLayout((shape[0] * len(sources), *shape[1:]), kind)
    for k, (home, key) in enumerate(sources):
        layout[k * shape[0] : (k + 1) * shape[0]] = h5py.VirtualSource(home, key, shape)
    file.create_virtual_dataset(name, layout)


def numbered(file, name, sources, shape, home=b"."):
    """A data set made of as many others as there are, the k-th of which is called by its number."""
    endless = h5py.h5s.UNLIMITED
    space = h5py.h5s.create_simple(shape, (endless, shape[1]))
    space.select_hyperslab((0, 0), (endless, 1), (shape[0], 1), shape)
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_virtual(space, home, sources, h5py.h5s.create_simple(shape))
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, space, made)


def rows_of(x, **options):
    return np.concatenate([np.array(rows) for rows in fs.open_rows(x, **options)])


def made(folder, x):
    """x.h5 with a data set of each kind, other.h5 beside it."""
    with h5py.File(folder / "other.h5", "w") as file:
        file["y"] = x
        outside(file, "bytes", (N, D), folder)
        file["group/y"] = x
    with h5py.File(folder / "x.h5", "w") as file:
        file["y"] = x
        outside(file, "bytes", (N, D), folder)
        file["link"] = h5py.ExternalLink("other.h5", "/y")
        file["far"] = h5py.ExternalLink("other.h5", "/group")
        file["soft"] = h5py.SoftLink("/link")
        file["circle"] = h5py.SoftLink("/circle")
        file["near/by"] = h5py.SoftLink("/y")
        virtual(file, "of other", [("other.h5", "y")], x.shape)
        virtual(file, "of bytes of other", [("other.h5", "bytes")], x.shape, "u1")
        virtual(file, "of bytes", [(".", "y"), (".", "bytes")], x.shape)
        virtual(file, "of a link", [(".", "soft")], x.shape)
        virtual(file, "of itself", [(".", "of itself")], x.shape)
        virtual(file, "one", [(".", "two")], x.shape)
        virtual(file, "two", [("x.h5", "one")], x.shape)
        virtual(file, "of none", [(".", "none")], x.shape)
        outside(file, "y0", (N, D), folder, "f8")
        numbered(file, "of numbered ones", b"y%b", x.shape)
        virtual(file, "of gone", [("gone.h5", "y")], x.shape)
        virtual(file, "own", [(".", "y"), ("x.h5", "near/by")], x.shape)
    return folder / "x.h5"


REFUSED = {
    "link": r"in another file: open other\.h5, key='/y'",
    "far/y": r"in another file: open other\.h5, key='/group'",
    "soft": r"in another file: open other\.h5",
    "circle": "more than 16 times",
    "bytes": "/bytes has its rows as bytes of other files",
    "of other": r"/of other has rows of another file: open other\.h5, key='y'",
    "of bytes of other": r"has rows of another file: open other\.h5, key='bytes'",
    "of bytes": "/bytes has its rows as bytes of other files",
    "of a link": r"in another file: open other\.h5",
    "of itself": "'of itself', which must be a data set that has them itself",
    "one": "'two', which must be a data set that has them itself",
    "two": "'one', which must be a data set that has them itself",
    "of none": "'none', which must be",
    "of numbered ones": "'y%b', which must be",
    "of gone": r"rows of another file: open gone\.h5",
}


@pytest.mark.parametrize("key", REFUSED)
def test_rows_of_other_files_are_refused_by_name(key, x, tmp_path):
    path = made(tmp_path, x)
    with pytest.raises(SourceError, match=rf"x\.h5.*{REFUSED[key]}"):
        rows_of(path, key=key)


@pytest.mark.parametrize("key", ["link", "bytes", "of other", "of bytes"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_and_so_are_those_of_objects(key, mode, x, tmp_path):
    with h5py.File(made(tmp_path, x), mode) as file:
        if key == "link":  # the file that it is in says what it is
            np.testing.assert_array_equal(rows_of(file[key]), x)
            return
        with pytest.raises(SourceError, match="other"):
            rows_of(file[key])


def test_rows_of_the_file_itself_are_read_by_any_way(x, tmp_path):
    path = made(tmp_path, x)
    np.testing.assert_array_equal(rows_of(path, key="own"), np.vstack([x, x]))
    np.testing.assert_array_equal(rows_of(path, key="/./near//by"), x)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_no_pipe_is_waited_for(x, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["link"] = h5py.ExternalLink("pipe", "/y")
        virtual(file, "virtual", [("pipe", "y")], x.shape)
        file["X"] = file["layers/link"] = h5py.ExternalLink("pipe", "/y")
        file["obs"] = 1
    (tmp_path / "x.h5ad").write_bytes((tmp_path / "x.h5").read_bytes())
    for name, key in (("x.h5", "link"), ("x.h5", "virtual"), ("x.h5ad", None), ("x.h5ad", "link")):
        with no_waiting(), pytest.raises(SourceError, match="in another file|rows of another file"):
            rows_of(tmp_path / name, key=key)
    with no_waiting(), pytest.raises(SourceError, match="there is no matrix 'none'"):
        rows_of(tmp_path / "x.h5ad", key="none")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("name", ["zarr.json", "c/0/0"])
def test_no_pipe_in_a_folder_is_waited_for(name, x, tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(str(tmp_path / "x.zarr"), data=x, chunks=x.shape)
    (tmp_path / "x.zarr" / name).unlink()
    os.mkfifo(tmp_path / "x.zarr" / name)
    with no_waiting(), pytest.raises(SourceError, match=r"x\.zarr.* is no regular file"):
        rows_of(tmp_path / "x.zarr")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("folder", ["x", "x/y"])
def test_no_pipe_in_a_folder_of_files_is_waited_for(folder, tmp_path):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "x/a.csv").write_text("1,2\n")
    os.mkfifo(tmp_path / folder / "b.csv")
    with no_waiting(), pytest.raises(SourceError, match=r"b\.csv is no regular file: move it out of the folder"):
        rows_of(tmp_path / "x")


def test_files_that_are_called_by_their_number(x, tmp_path):
    """A printf name of files leads to others where the file itself is called like that."""
    for name in ("v%b.h5", "v0.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["y"] = x
            if "%" in name:
                numbered(file, "of files", b"y", x.shape, home=name.encode())
    with pytest.raises(SourceError, match=r"v%b\.h5, /of files has rows of files called 'v%b\.h5': open each of them"):
        rows_of(tmp_path / "v%b.h5", key="of files")


def test_links_in_a_folder_of_zarr_are_refused(x, tmp_path):
    """A chunk that is one would be bytes of any file of the machine; folders that lead to folders take hours."""
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "x.zarr"
    zarr.create_array(str(path), data=x, chunks=x.shape, compressors=None)
    (path / "c/0/0").rename(tmp_path / "secret")
    (path / "c/0/0").symlink_to(tmp_path / "secret")
    for again in range(2):
        with pytest.raises(SourceError, match=r"x\.zarr/.* is a link: put what it leads to in its place"):
            rows_of(path)
        if not again:
            (path / "c/0/0").unlink()
            for k in range(30):
                (path / f"d{k}").mkdir()
                (path / f"d{k}/a").symlink_to(f"../d{k + 1}")
                (path / f"d{k}/b").symlink_to(f"../d{k + 1}")
            (path / "d30").mkdir()
    found = zarr.open(str(path))
    with pytest.raises(SourceError, match="is a link"):
        rows_of(found)
    (tmp_path / "y.zarr").symlink_to(path)  # who names a link means what it leads to
    for k in range(30):
        (path / f"d{k}/a").unlink()
        (path / f"d{k}/b").unlink()
    assert not rows_of(tmp_path / "y.zarr").any()


@pytest.mark.parametrize("name", ["x.h5", "x.zarr"])
def test_rows_that_nobody_has_written(name, tmp_path):
    """A file of 1 kB asked for 8 GB: a chunk that is not there has any length."""
    shape, chunks = (3, 10**9), (1, 1 << 20)
    if name == "x.h5":
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("X", shape, "f8", chunks=chunks)
    else:
        pytest.importorskip("zarr").create_array(str(tmp_path / name), shape=shape, chunks=chunks, dtype="f8")
    with pytest.raises(SourceError, match=r": a row would take 8,000,000,000 bytes of memory .* raise max_unpacked"):
        fs.open_rows(tmp_path / name)
    assert fs.open_rows(tmp_path / name, max_unpacked=8 * 10**9).n_features == 10**9


# -- AnnData -----------------------------------------------------------------------------------------------------------
def cells(path, change=None):
    """CSR rows as AnnData stores them."""
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [3, 4]})
        group["data"], group["indices"] = [1.0, 2.0, 3.0, 4.0], np.array([0, 2, 1, 3], np.int32)
        group["indptr"] = np.array([0, 2, 3, 4], np.int32)
        file["var/_index"] = list("abcd")
        if change is not None:
            change(file, group)
    return path


def replaced(name, entries):
    def change(file, group):
        del group[name]
        group[name] = entries

    return change


def elsewhere(name, by):
    def change(file, group):
        home = str(Path(file.filename).with_name("other.h5"))
        with h5py.File(home, "w") as other:
            other[name] = group[name][:]
        shape, kind = group[name].shape, group[name].dtype
        del group[name]
        if by == "link":
            group[name] = h5py.ExternalLink("other.h5", name)
        elif by == "virtual":
            virtual(group, name, [("other.h5", name)], shape, kind)
        else:
            group.create_dataset(name, shape, kind, external=[(home, 0, 1 << 20)])

    return change


def test_cells_as_they_are(tmp_path):
    (rows,) = [rows.toarray() for rows in fs.open_rows(cells(tmp_path / "x.h5ad"))]
    np.testing.assert_array_equal(rows, [[1, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 4]])


@pytest.mark.parametrize("part", ["data", "indices", "indptr"])
@pytest.mark.parametrize("by", ["link", "virtual", "bytes"])
def test_parts_of_cells_that_lie_elsewhere(part, by, tmp_path):
    with pytest.raises(SourceError, match=r"x\.h5ad.* other"):
        list(fs.open_rows(cells(tmp_path / "x.h5ad", elsewhere(part, by))))


def test_names_of_columns_that_lie_elsewhere(tmp_path):
    def change(file, group):
        del file["var/_index"]
        outside(file["var"], "_index", (4,), tmp_path)

    with pytest.raises(SourceError, match="_index has its rows as bytes of other files"):
        fs.open_rows(cells(tmp_path / "x.h5ad", change))


def empty(n_columns, n_entries):
    """One row of entries that nobody has written."""

    def change(file, group):
        for name, kind in (("indices", "i4"), ("data", "f8")):
            del group[name]
            group.create_dataset(name, (n_entries,), kind, chunks=(1 << 20,))
        replaced("indptr", np.array([0, n_entries]))(file, group)
        group.attrs["shape"] = [1, n_columns]

    return change


def without_names(file, group):
    del file["var/_index"]
    file.create_dataset("var/_index", (10**9,), "S20", chunks=(1 << 20,))
    group.attrs["shape"] = [3, 10**9]


WRONG = {
    "more entries than columns": (empty(10, 10**9), "row 0 has more entries than columns"),
    "entries that nobody has written": (empty(10**9, 10**9), "row 0 would take 12,000,000,000 bytes of memory"),
    "names that nobody has written": (without_names, "/var/_index would take 20,000,000,000 bytes of memory"),
    "indices of 0.7": (replaced("indices", [0.7, 3.2, 1.0, 3.0]), "indices must hold integers, got float64"),
    "indptr of 2.5": (replaced("indptr", [0.0, 2.5, 3.0, 4.0]), "indptr must hold integers"),
    "data of text": (replaced("data", list("abcd")), "data must hold real numbers"),
    "indices of 2^32 + 1": (replaced("indices", np.array([0, 2**32 + 1, 1, 3])), "beyond its columns"),
    "more columns than are counted": (
        lambda file, group: group.attrs.__setitem__("shape", [3, 2**33]),
        r"shape \(3, 8589934592\)",
    ),
    "half a column": (lambda file, group: group.attrs.__setitem__("shape", [3.0, 4.5]), "no shape"),
    "rows below zero": (lambda file, group: group.attrs.__setitem__("shape", [-1, 4]), r"shape \(-1, 4\)"),
    "entries before the first row": (replaced("indptr", np.array([1, 2, 3, 4])), "indptr"),
    "indices of two dimensions": (replaced("indices", np.zeros((4, 1), np.int32)), "shape (4, 1)"),
    "no indices": (lambda file, group: group.__delitem__("indices"), "'indices' is not there"),
}


@pytest.mark.parametrize("what", WRONG)
def test_cells_that_are_none(what, tmp_path):
    change, said = WRONG[what]
    with pytest.raises(SourceError) as refused:
        list(fs.open_rows(cells(tmp_path / "x.h5ad", change)))
    assert said.replace("\\", "") in str(refused.value)


def test_indices_that_no_int32_holds(tmp_path):
    def change(file, group):
        replaced("indices", np.array([0, 2**32 + 1, 1, 3]))(file, group)
        group.attrs["shape"] = [3, 2**33]

    with pytest.raises(SourceError, match="damaged"):
        list(fs.open_rows(cells(tmp_path / "x.h5ad", change)))
