"""Sources of rows: every format gives the rows it holds, in constant memory, and names what is wrong with a file."""

import bz2
import gzip
import lzma
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data import SourceError, open_rows
from fastsketch.data.sources import _source as sources
from tests.broken import BROKEN
from tests.data.sources.helpers import labelled

ROWS = np.random.default_rng(0).standard_normal((500, 40)) * (np.random.default_rng(1).random((500, 40)) < 0.2)


def text_of(rows, zero_based=False):
    lines = []
    for k, row in enumerate(rows):
        pairs = " ".join(f"{j + (not zero_based)}:{row[j]!r}" for j in np.flatnonzero(row))
        lines.append(f"{k % 3 - 1} {pairs}")
    return "\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n"


def write(tmp_path, name):
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(
            path,
            np.asfortranarray(ROWS)
            if "fortran" in name
            else ROWS.astype(np.float32)
            if "float32" in name
            else ROWS.astype(">f8")
            if "big" in name
            else ROWS,
        )
    elif name.endswith(".npz"):
        sparse.save_npz(path, sparse.csc_matrix(ROWS) if "csc" in name else sparse.csr_array(ROWS))
    else:
        opener = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}.get(name.rsplit(".", 1)[-1], open)
        with opener(path, "wb") as file:
            file.write(text_of(ROWS).encode())
    return path


NAMES = [
    "a.npy",
    "fortran.npy",
    "float32.npy",
    "big.npy",
    "csr.npz",
    "csc.npz",
    "a.svm",
    "a.txt",
    "a.svm.gz",
    "a.bz2",
    "a.xz",
]


@pytest.mark.parametrize("chunk", [1, 4096, 8 << 20])
@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_its_rows(tmp_path, monkeypatch, name, chunk):
    monkeypatch.setattr(sources, "CHUNK_BYTES", chunk)
    source = open_rows(write(tmp_path, name))
    assert source.n_features == 40
    expected = ROWS.astype(np.float32) if "float32" in name else ROWS
    for start in (0, 1, 250, 499, 500):
        parts = [
            (rows.toarray() if sparse.issparse(rows) else rows.copy(), position)
            for rows, position in source.chunks(start)
        ]
        got = np.vstack([rows for rows, _ in parts]) if parts else np.empty((0, 40))
        assert np.array_equal(got, expected[start:])
        if parts and chunk == 1:
            assert parts[-1][1] == source.size
    assert fs.FrequentDirections(8).update(write(tmp_path, name)).n_rows == 500


def test_several_files_are_one_source(tmp_path):
    paths = [write(tmp_path, "a.npy"), write(tmp_path, "b.svm")]
    assert fs.FrequentDirections(8).update(open_rows(paths, n_features=40)).n_rows == 1000


@pytest.mark.parametrize("name", ["a9a/a9a.gz", "mushrooms/mushrooms.gz"])
def test_chunks_of_svmlight_text_are_the_file_that_scikit_learn_loads_whole(dataset, name, monkeypatch):
    datasets = pytest.importorskip("sklearn.datasets")
    monkeypatch.setattr(sources, "CHUNK_BYTES", 100_000)
    path = dataset(name)
    expected, expected_labels = datasets.load_svmlight_file(str(path))
    rows, labels = labelled(path)
    assert np.array_equal(labels, expected_labels)
    assert rows.shape == expected.shape
    assert (rows != sparse.csr_array(expected)).nnz == 0


def test_svmlight_needs_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"reading svmlight text needs sklearn.*pip install 'fastsketch\[sklearn\]'"):
        open_rows(write(tmp_path, "a.svm"))


def test_what_svmlight_allows(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"# a comment\n\n+1 qid:7 2:1.5\t4:-2 # tail\r\n   \n-1\r\n3   1:1   \n2 7:1")
    rows, labels = labelled(path)
    assert labels.tolist() == [1, -1, 3, 2]
    assert rows.toarray().tolist() == [[0, 1.5, 0, -2, 0, 0, 0], [0] * 7, [1] + [0] * 6, [0] * 6 + [1]]
    zero, _ = labelled(path, zero_based=True, n_features=9)
    assert zero.shape == (4, 9)


@pytest.mark.parametrize(
    "text, message",
    [
        ("1 1:1\nx 1:1\n", "line 2.*label"),
        ("1 1:1\n\n1 a:1\n", "line 3.*index:value"),
        ("1 1\n", "line 1.*index:value"),
        ("1 1:\n", "line 1.*value"),
        ("1 1:abc\n", "line 1.*value.*abc"),
        ("1 1:1.2.3\n", "line 1.*value"),
        ("1 2:1 1:1\n", "line 1.*increase"),
        ("1 2:1 2:1\n", "line 1.*increase"),
        ("1 0:1\n", "line 1.*zero_based"),
        ("1 1:1_0\n", "line 1.*value"),
        ("1_0 1:1\n", "line 1.*label"),
        ("1 99999999999:1\n", "line 1.*index"),
        ("1 1:1e\n", "line 1.*value"),
        ("1 -1:2\n", "line 1.*index"),
        ("0x10 1:1\n", "line 1.*label"),
        ("1 1:1\nnan 1:1\n", "line 2.*label is not a finite"),
        ("1 1:inf\n", "line 1.*value is not a finite.*inf"),
        ("1 1:-NaN\n", "line 1.*value is not a finite"),
        ("1 1:1e999\n", "line 1.*value is beyond the range.*1e999"),
        ("1" + "0" * 400 + " 1:1\n", "line 1.*label is beyond the range"),
        ("1 1:\n", "line 1.*value"),
        ("1 1:- 2:1\n", "line 1.*value"),
        # a file with the line ends of another time was one row, or nothing at all after a comment
        ("1 1:1\r-1 1:2\r", "line 1.*carriage return"),
        ("1\r1:1\n", "line 1.*carriage return"),
        ("1 1:1 # first\r-1 1:2\n", "line 1.*carriage return"),
        ("1 +1:2\n", "line 1.*index:value"),
        ("1 qid: 1:1\n", "line 1: qid: needs an integer"),
        ("1 qid:a:1 1:1\n", "line 1: qid: needs an integer"),
        ("1 qidx:7 1:1\n", "line 1.*index:value"),
        ("1 1:1\n2e-_4 1:1\n", "line 2: the label is not a finite decimal number"),
        ("1 qid:1.5 1:1\n", "line 1: qid: needs an integer"),
        ("1 1:1\x0b2:1\n", "line 1: the value is not"),
        ("1 1:1 qid:1\n", "line 1.*index:value"),
        ("1 qid:1 qid:2 1:1\n", "line 1.*index:value"),
        ("1 2147483648:1\n", "line 1.*exceeds"),
    ],
)
def test_bad_svmlight(tmp_path, text, message):
    path = tmp_path / "a.svm"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        labelled(path)
    with pytest.raises(ValueError, match=f"a.svm: {message}"):
        fs.FrequentDirections(4).update(path)


def test_lines_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr("fastsketch.data.sources._svmlight_source.BLOCK_BYTES", 16)
    path = tmp_path / "a.svm"
    path.write_text("1 " + " ".join(f"{j}:{j}" for j in range(1, 300)) + "\n2 5:1")
    rows, labels = labelled(path)
    assert rows.shape == (2, 299)
    assert labels.tolist() == [1, 2]


def test_a_line_without_end(tmp_path, monkeypatch):
    """Time and memory are those of the bound: every block was added to the whole of the line before it."""
    monkeypatch.setattr("fastsketch.data.sources._svmlight_source.BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr("fastsketch.data.sources._svmlight_source.LONGEST_LINE", 1 << 20)
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 1:1\n1 " + b" " * (1 << 20) + b"1:1\n")
    with pytest.raises(ValueError, match="a.svm: a line is longer than 1,048,576 bytes, near byte"):
        labelled(path)
    path.write_bytes(b"1 1:1\n1 " + b" " * ((1 << 20) - 8) + b"1:1\n")
    assert labelled(path)[0].shape == (2, 1)


def test_arguments_are_checked(tmp_path):
    path = write(tmp_path, "a.svm")
    for arguments, error in [
        ({"n_features": 0}, ValueError),
        ({"n_features": 4.0}, TypeError),
        ({"n_features": 2**31 + 1}, ValueError),
        ({"zero_based": 1}, TypeError),
    ]:
        with pytest.raises(error, match=next(iter(arguments))):
            open_rows(path, **arguments)


def test_n_features_must_be_enough(tmp_path):
    path = write(tmp_path, "a.svm")
    with pytest.raises(ValueError, match="n_features is 10"):
        labelled(path, n_features=10)
    with pytest.raises(ValueError, match="n_features is 10"):
        fs.FrequentDirections(4).update(open_rows(path, n_features=10))
    path.write_text("1 1:1\n\n1 3:1\n1 2:1 7:1\n1 8:1\n1 8:2\n")
    with pytest.raises(ValueError, match="feature 8 in row 3"):
        fs.FrequentDirections(4).update(open_rows(path, n_features=6))


def bad_file(tmp_path, kind):
    path = tmp_path / (
        "bad.npz" if "npz" in kind else "bad.svm" if "text" in kind else "bad.svm.gz" if "gz" in kind else "bad.npy"
    )
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        np.save(path, ROWS)
        path.write_bytes(path.read_bytes()[:-5])
    elif kind == "cut in its header":
        np.save(path, ROWS)
        path.write_bytes(path.read_bytes()[:20])
    elif kind == "vector":
        np.save(path, ROWS[0])
    elif kind == "complex":
        np.save(path, ROWS * 1j)
    elif kind == "object":
        np.save(path, np.array([[None]]), allow_pickle=True)
    elif kind == "no columns":
        np.save(path, np.empty((4, 0)))
    elif kind == "npz of dense":
        np.savez(path, x=ROWS)
    elif kind == "cut npz":
        sparse.save_npz(path, sparse.csr_array(ROWS))
        path.write_bytes(path.read_bytes()[:-50])
    elif kind == "binary text":
        path.write_bytes(b"\x00\x01\x02" * 100)
    elif kind == "text without features":
        path.write_text("1\n2\n")
    elif kind == "cut gz":
        path.write_bytes(gzip.compress(text_of(ROWS).encode())[:-20])
    elif kind == "directory":
        path.mkdir()
    else:
        path = tmp_path / "missing.npy"
    return path


@pytest.mark.parametrize(
    "kind",
    [
        "empty",
        "cut",
        "cut in its header",
        "vector",
        "complex",
        "object",
        "no columns",
        "npz of dense",
        "cut npz",
        "binary text",
        "text without features",
        "cut gz",
        "directory",
        "missing",
    ],
)
def test_bad_files(tmp_path, kind):
    path = bad_file(tmp_path, kind)
    with pytest.raises(ValueError, match=path.name):
        fs.FrequentDirections(4).update(path)


def test_matrices_that_are_not_consistent_are_refused(tmp_path):
    """scipy writes and reads them without complaint."""
    path, tried = tmp_path / "bad.npz", 0
    for name, make in BROKEN.items():
        matrix = make()
        if matrix.format in ("lil", "dok") or name.endswith(("in floats", "in a list")):  # not what a file is
            continue
        try:
            sparse.save_npz(path, matrix)
            sparse.load_npz(path)
        except (ArithmeticError, AttributeError, TypeError, ValueError):
            continue
        reason = "not a consistent|outside|save it as CSR"
        with pytest.raises(SourceError, match=f"{re.escape(str(path))}.*({reason})"):
            open_rows(path)
        tried += 1
        if "32 indptr backwards" in name:
            with pytest.raises(ValueError, match="bad.npz"):
                fs.FrequentDirections(4).update(path)
    assert tried > 30


def test_memory_does_not_grow_with_the_file(tmp_path):
    """A 300 MB file in a process that may not grow by more than 60 MB."""
    path = tmp_path / "big.npy"
    block = np.random.default_rng(0).standard_normal((2500, 512)).astype(np.float32)
    header = np.lib.format.open_memmap(path, "w+", np.float32, (150_000, 512))
    for start in range(0, 150_000, 2500):
        header[start : start + 2500] = block
    del header
    code = (
        "import resource, sys, fastsketch as fs\n"
        "fs.FrequentDirections(4).update([[1.0, 2.0]]).sketch()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"fs.FrequentDirections(32, solver='gram').update({str(path)!r}).sketch()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    if sys.platform != "linux":
        pytest.skip("ru_maxrss is in kB on Linux only")
    grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert grown < 60_000
