"""State files: the same bits after a resume, whole or not at all, and a clear error for everything else."""

import io
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data import StateError, read_header
from fastsketch.data.files import _state as files
from fastsketch.data.files._state import SCHEMA
from tests.helpers import SOLVERS, stream


def make(kind, n=60):
    rows = stream("signal", np.random.default_rng(1), n, 20)
    if kind == "sparse":
        rows = sparse.csr_array(rows * (np.abs(rows) > 3.0))
    solver = kind if kind in SOLVERS else "gram"
    sketch = fs.RobustFrequentDirections(6, 0.5, solver=solver, center=True, decay=0.995).update(rows)
    assert sketch._engine.kind == ("sparse" if kind == "sparse" else "dense")
    return sketch


# Continues from state files in a new process: one process for all cut points of a configuration.
CONTINUE = """
import sys
import numpy as np
from scipy import sparse
import fastsketch as fs
folder, n = sys.argv[1], int(sys.argv[2])
rows = np.load(f"{folder}/rows.npy")
if sys.argv[3] == "sparse":
    rows = sparse.csr_array(rows)
for cut in map(int, sys.argv[4:]):
    s = fs.load(f"{folder}/{cut}.fsk")
    assert s.n_rows == cut
    s.update(rows[cut:]).save(f"{folder}/{cut}.done")
"""


@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", ["gram", "svd", "exact", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_hundred_cut_points_resume_to_the_same_bits(tmp_path, kind, dtype, amount):
    rng = np.random.default_rng(0)
    n = 800 if kind == "exact" else 300
    rows = stream("signal", rng, n, 30).astype(dtype)
    rows *= rng.random(rows.shape) < (0.05 if kind == "sparse" else 1)
    np.save(tmp_path / "rows.npy", rows)
    batch = sparse.csr_array(rows) if kind == "sparse" else rows
    solver = kind if kind in SOLVERS else "gram"
    options = {"solver": solver, "center": dtype == np.float64, "method": "rfd"}
    whole = fs.FrequentDirections(6, **options).update(batch).to_bytes()
    cuts = sorted({0, n, *rng.integers(0, n, amount(10, 98)).tolist()})
    for cut in cuts:
        fs.FrequentDirections(6, **options).update(batch[:cut]).save(tmp_path / f"{cut}.fsk")
    subprocess.run([sys.executable, "-c", CONTINUE, str(tmp_path), str(n), kind, *map(str, cuts)], check=True)
    for cut in cuts:
        assert (tmp_path / f"{cut}.done").read_bytes() == whole, f"resumed at {cut}"


@pytest.mark.parametrize("kind", ["gram", "svd", "exact", "sparse"])
def test_round_trip(tmp_path, kind):
    s = make(kind)
    s.notes = {"from": "somewhere", "n": [1, 2]}
    s.save(tmp_path / "s.fsk")
    back = fs.load(tmp_path / "s.fsk")
    assert type(back) is fs.RobustFrequentDirections
    assert back.notes == s.notes
    assert back.to_bytes() == s.to_bytes() == (tmp_path / "s.fsk").read_bytes()
    assert np.array_equal(back.sketch(), s.sketch())
    assert (back.alpha, back.error_bound, back.n_rows) == (s.alpha, s.error_bound, s.n_rows)


def test_an_empty_sketch_is_kept_too(tmp_path):
    s = fs.FrequentDirections(7, method="pfd", beta=0.3)
    s.save(tmp_path / "s.fsk")
    assert fs.load(tmp_path / "s.fsk").update([[1.0, 2.0]]).beta == 0.3


def test_numpy_alone_reads_the_arrays(tmp_path):
    make("gram").save(tmp_path / "s.fsk")
    with np.load(tmp_path / "s.fsk", allow_pickle=False) as arrays:
        header = json.loads(arrays["header"].tobytes())
        assert header["kind"] == "RobustFrequentDirections"
        for name, about in header["arrays"].items():
            assert list(arrays[name].shape) == about["shape"]
            assert arrays[name].dtype.str == about["dtype"]
    assert read_header(tmp_path / "s.fsk")["schema"] == SCHEMA


def test_every_truncation_is_refused(tmp_path):
    content = make("gram").to_bytes()
    for size in [*range(0, len(content), max(1, len(content) // 60)), len(content) - 1]:
        (tmp_path / "cut.fsk").write_bytes(content[:size])
        with pytest.raises(StateError, match="cut.fsk"):
            fs.load(tmp_path / "cut.fsk")


def test_flipped_bytes_are_refused_or_harmless(tmp_path):
    s = make("gram")
    content = bytearray(s.to_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for position in rng.integers(0, len(content), 300):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        try:
            back = fs.from_bytes(bytes(damaged))
        except StateError:
            refused += 1
        else:  # dates, flags and the like: bytes that say nothing about the sketch
            assert np.array_equal(back.sketch(), s.sketch())
    assert refused > 200


def rewrite(content, tmp_path, change):
    """The same file with another header."""
    source, target = tmp_path / "in.fsk", tmp_path / "out.fsk"
    source.write_bytes(content)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            with old.open(name) as member:
                array = np.lib.format.read_array(member)
            if name == "header.npy":
                header = json.loads(array.tobytes())
                change(header)
                array = np.frombuffer(json.dumps(header).encode(), np.uint8)
            with new.open(name, "w") as member:
                np.lib.format.write_array(member, array)
    return target


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda h: h.update(schema=99), "newer version"),
        (lambda h: h.update(schema=2), "out.fsk was written by a build before the first release.*make it anew"),
        (lambda h: h.update(schema=3), "before the first release"),
        (lambda h: h.update(params={"config": h.pop("parameters")}), "before the first release"),
        (lambda h: h.update(kind="Oracle"), "Oracle"),
        (lambda h: h.update(format="cake"), "not a fastsketch state"),
        (lambda h: h.update(schema="1"), "not a fastsketch state"),
        (lambda h: h.pop("parameters"), "not consistent"),
        (lambda h: h["parameters"].update(sketch_size=1), "not consistent"),
        (lambda h: h["parameters"].update(sketch_size=7), "not consistent"),
        (lambda h: h["state"]["engine"].update(n_features=21), "not consistent"),
        (lambda h: h["state"]["engine"].update(kind="quantum"), "not consistent"),
        (lambda h: h["state"]["engine"].update(buffer_size=10**6), "not consistent"),
        (lambda h: h["arrays"]["buffer"].update(shape=[10**9, 20]), "size"),
        (lambda h: h["arrays"]["buffer"].update(shape=[-1, 20]), "damaged"),
        (lambda h: h["arrays"]["buffer"].update(dtype="<f4"), "damaged"),
        (lambda h: h["arrays"]["buffer"].update(dtype="|O"), "damaged"),
        (lambda h: h["arrays"]["buffer"].update(crc32=1), "checksum"),
        (lambda h: h["arrays"].update(extra={"shape": [1], "dtype": "<f8", "crc32": 0}), "missing"),
    ],
)
def test_wrong_headers(tmp_path, change, message):
    path = rewrite(make("gram").to_bytes(), tmp_path, change)
    with pytest.raises(StateError, match=message):
        fs.load(path)


def with_array(content, name, values):
    """The same file with another array, checksum included."""
    about, arrays = files.read(io.BytesIO(content))
    kept = {key: about[key] for key in ("kind", "home", "parameters", "notes", "state")}
    return files.pack(kept, {**arrays, name: values(arrays[name])})


def put(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


FILL, KEPT, N_ROWS, EXPONENT = 0, 1, 3, 4


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("gram", "count", put(FILL, 10**6)),
        ("gram", "count", put(FILL, -1)),
        ("gram", "count", put(KEPT, 9)),
        ("gram", "count", put(N_ROWS, -1)),
        ("gram", "count", put(EXPONENT, 10**6)),
        ("gram", "count", lambda count: count[:-1]),
        ("gram", "count", lambda count: count + 0.5),
        ("gram", "book", lambda book: book[:3]),
        ("gram", "buffer", lambda buffer: buffer[1:]),
        ("gram", "buffer", lambda buffer: buffer[:, :7]),
        ("gram", "mean", lambda mean: mean[:7]),
        ("sparse", "indices", put(0, 10**6)),
        ("sparse", "indices", put(0, -1)),
        ("sparse", "indices", lambda indices: indices[1:]),
        ("sparse", "indptr", put(1, 10**6)),
        ("sparse", "indptr", put(-1, 10**6)),
        ("sparse", "indptr", lambda indptr: indptr[1:]),
        ("sparse", "z", lambda z: z[:, :1]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(kind, name, values):
    """A file with right checksums and a wrong content: no kernel meets it."""
    content = make(kind, 52).to_bytes()
    assert fs.from_bytes(with_array(content, name, lambda array: array)).to_bytes() == content
    with pytest.raises(StateError, match="not consistent"):
        fs.from_bytes(with_array(content, name, values))


def test_files_of_other_kinds(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    np.savez(tmp_path / "b.npz", x=np.ones(3))
    (tmp_path / "c").write_bytes(b"")
    (tmp_path / "d").write_text("not a state")
    for name, message in [
        ("a.npy", "not a fastsketch state"),
        ("b.npz", "not a fastsketch state"),
        ("c", "empty"),
        ("d", "not a fastsketch state"),
        ("missing", "cannot be read"),
        (".", "cannot be read"),
    ]:
        with pytest.raises(StateError, match=message):
            fs.load(tmp_path / name)
    with pytest.raises(TypeError, match="content"):
        fs.from_bytes("text")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "s.fsk"
    make("gram").save(path)
    old = path.read_bytes()

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        make("gram", 90).save(path)
    monkeypatch.undo()
    assert path.read_bytes() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.fsk"]


def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "s.fsk"
    make("gram").save(path)
    code = (
        f"import numpy as np, fastsketch as fs\ns = fs.FrequentDirections(32, solver='gram')\n"
        f"s.update(np.random.default_rng(0).standard_normal((100, 4000)))\nprint('go', flush=True)\n"
        f"while True: s.save({str(path)!r})"
    )
    for delay in (0.0, 0.005, 0.02):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        process.stdout.readline()
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        process.stdout.close()
        assert fs.load(path).n_rows in (60, 100)


def test_saving_into_a_directory_is_refused(tmp_path):
    with pytest.raises(OSError, match="directory"):
        make("gram").save(tmp_path)
