"""Damaged inputs: the error has one type, names the file and where, and costs no memory that the file does not have."""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data import SourceError, open_rows
from fastsketch.data.files._input import InputFile, iterate_whole_lines
from tests.data.sources.helpers import labelled

ROWS = np.random.default_rng(0).standard_normal((60, 8))
TEXT = "".join(f"{1 - 2 * (k % 2)} 1:{row[0]!r} 5:{row[1]!r}\n" for k, row in enumerate(ROWS.tolist())).encode()
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def read_all(path):
    parts = [
        rows.toarray() if sparse.issparse(rows) else rows.copy() for rows, _ in open_rows(path, n_features=8).chunks()
    ]
    return np.vstack(parts)


# -- compressed text ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", PACK)
def test_every_truncation_is_seen(tmp_path, suffix):
    path, content = tmp_path / f"a.svm{suffix}", PACK[suffix](TEXT)
    for stop in [*range(1, 40), *range(40, len(content), 97), *range(len(content) - 12, len(content))]:
        path.write_bytes(content[:stop])
        with pytest.raises(SourceError, match=f"a.svm{suffix} is (cut short|damaged), near byte"):
            labelled(path)
        with pytest.raises(SourceError, match=f"a.svm{suffix} is (cut short|damaged)"):
            fs.FrequentDirections(4).update(path)


@pytest.mark.parametrize("suffix", PACK)
def test_several_streams_are_one_text(tmp_path, suffix):
    path = tmp_path / f"a.svm{suffix}"
    path.write_bytes(b"".join(PACK[suffix](part) for part in (TEXT[:700], b"", TEXT[700:])))
    assert labelled(path)[0].shape == (60, 5)


@pytest.mark.parametrize("suffix", PACK)
def test_a_damaged_second_stream_is_no_end(tmp_path, suffix):
    """The standard library's readers of .bz2 and .xz stop there without a word, and half of the rows is gone."""
    path, first, second = tmp_path / f"a.svm{suffix}", PACK[suffix](TEXT), PACK[suffix](TEXT)
    for damaged in (b"x" + second[1:], second[:30] + bytes(10) + second[40:], b"garbage", second[:20]):
        path.write_bytes(first + damaged)
        with pytest.raises(SourceError, match="is (cut short|damaged), near byte"):
            labelled(path)
    path.write_bytes(first + bytes(8))  # padding, as tapes and xz have it
    if suffix == ".bz2":
        with pytest.raises(SourceError):
            labelled(path)
    else:
        assert labelled(path)[0].shape == (60, 5)


def test_a_huge_dictionary_is_refused(tmp_path):
    """A header of twelve bytes may ask for 4 GiB of memory."""
    path = tmp_path / "a.xz"
    content = bytearray(lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    path.write_bytes(content)
    assert labelled(path)[0].shape == (60, 5)
    # block header: size, flags, filter id, size of properties, dictionary size, padding, checksum
    assert content[12:16] == b"\x02\x00\x21\x01"
    content[16] = 38  # 2 GiB
    content[20:24] = zlib.crc32(content[12:20]).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(SourceError, match="a.xz is damaged.*[Mm]emory"):
        labelled(path)


def test_as_many_bytes_as_are_asked_for_wherever_a_stream_ends(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"abc") + gzip.compress(b"defghij"))
    with InputFile(path) as file:
        assert [file.read(4) for _ in range(4)] == [b"abcd", b"efgh", b"ij", b""]


def test_pieces_of_whole_lines(tmp_path):
    path = tmp_path / "a.txt"
    lines = [b"x" * n for n in (3, 70, 5, 0, 64, 1, 300, 2, 7)]
    path.write_bytes(b"\n".join(lines))
    for block_bytes, ahead in ((1, 0), (4, 2), (64, 6), (1000, 100)):
        with InputFile(path) as file:
            file.head(ahead)
            pieces = list(iterate_whole_lines(file, block_bytes, 1000))
        assert b"".join(pieces) == b"\n".join(lines) + b"\n"
        assert all(text.endswith(b"\n") for text in pieces)
        assert all(len(text) <= max(block_bytes, 300 + 2 * 300) for text in pieces)


# -- .npy --------------------------------------------------------------------------------------------------------------
def npy(header, content=b"", version=1):
    text = header.encode() if isinstance(header, str) else header
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + content


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 8), }"


@pytest.mark.parametrize(
    "header",
    [
        GOOD,
        GOOD + " " * 40 + "\n",
        "{'shape': (60, 8), 'descr': '<f8', 'fortran_order': False}",
        '{"descr": "<f8", "fortran_order": False, "shape": (60L, 8L,)}',
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:.*created on Python 2")
def test_headers_that_others_write(tmp_path, header, version):
    (tmp_path / "a.npy").write_bytes(npy(header, ROWS.tobytes(), version))
    assert np.array_equal(read_all(tmp_path / "a.npy"), ROWS)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 8",  # tokenize.TokenError
        "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 8)} )",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-60, -8), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (60 8), }",
        "{'descr': '<f8', 'fortran_order': 0, 'shape': (60, 8), }",
        "{'descr': '<f8', 'fortran_order': False}",
        "{'descr': False, 'fortran_order': '<f8', 'shape': (60, 8), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 8), 'x': 1}",
        "{'descr': '<q7', 'fortran_order': False, 'shape': (60, 8), }",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (60, 8), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (60, 8), }",
        "{'descr': '<c16', 'fortran_order': False, 'shape': (60, 8), }",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (60, 8), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807, 2), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (480,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 7), }",  # numpy reads 60 x 7 of these bytes
        "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 9), }",
        "(" * 5000,
        b"{'descr': '<f8\xff', 'fortran_order': False, 'shape': (60, 8), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1" * 9000,
        "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 8), }" + " " * 20_000,
    ],
)
def test_damaged_headers(tmp_path, header):
    (tmp_path / "a.npy").write_bytes(npy(header, ROWS.tobytes()))
    with pytest.raises(SourceError, match="a.npy"):
        open_rows(tmp_path / "a.npy")


def test_no_rows_of_endless_width_are_no_rows(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy(GOOD.replace("60, 8", f"0, {2**62}")))
    assert list(open_rows(tmp_path / "a.npy").chunks()) == []


@pytest.mark.parametrize("content", [b"\x93NUMPY", b"\x93NUMPY\x04\0", b"\x93NUMPY\x01\x07v\0", b"\x94NUMPY\x01\0"])
def test_no_header(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(SourceError, match="a.npy is no .npy file"):
        open_rows(tmp_path / "a.npy")


# -- .npz --------------------------------------------------------------------------------------------------------------
def npz_members(matrix, compressed=False):
    file = io.BytesIO()
    sparse.save_npz(file, matrix, compressed=compressed)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_npz(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def array(value):
    file = io.BytesIO()
    np.save(file, value, allow_pickle=True)
    return file.getvalue()


MATRIX = sparse.csr_array(ROWS * (np.abs(ROWS) > 1))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_formats_of_scipy(tmp_path, form, compressed, old):
    matrix = MATRIX.asformat(form)
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_matrix(matrix).asformat(form) if old else matrix, compressed)
    assert np.array_equal(read_all(tmp_path / "a.npz"), MATRIX.toarray())


def test_a_format_that_is_not_read_is_named(tmp_path):
    sparse.save_npz(tmp_path / "a.npz", sparse.dia_array(np.eye(3)))
    with pytest.raises(SourceError, match="in the format 'dia': save it as CSR"):
        open_rows(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indptr": None}, "'indptr' is missing"),
        ({"format": np.array(b"csx")}, "format 'csx'"),
        ({"format": np.array(7)}, "'format' is int64"),
        ({"shape": np.array([60.0, 8.0])}, "'shape' is float64"),
        ({"shape": np.array([60, 8, 1])}, r"the matrix has the shape \(60, 8, 1\)"),
        ({"shape": np.array([-60, 8])}, r"the matrix has the shape \(-60, 8\)"),
        ({"shape": np.array([60, 2**62])}, r"the matrix has the shape \(60, 4611686018427387904\)"),
        ({"shape": np.array([60, 0])}, "column"),
        ({"shape": np.array([10**12, 8])}, "index"),
        ({"shape": np.array([60, 2])}, "column ind"),
        ({"data": np.array(["a"] * 60)}, "'data' is <U1"),
        ({"data": np.array([None, 1], object)}, "Python objects"),
        ({"data": MATRIX.data[:-1]}, ""),
        ({"data": MATRIX.data[:, None]}, "'data' is float64 with shape"),
        ({"data": MATRIX.data * 1j}, "'data' is complex128"),
        ({"indices": MATRIX.indices + 0.5}, "'indices' is float64"),
        ({"indices": MATRIX.indices - 8}, ""),
        ({"indices": MATRIX.indices + 8}, ""),
        ({"indptr": MATRIX.indptr[:-1]}, ""),
        ({"indptr": MATRIX.indptr + 1}, ""),
    ],
)
def test_arrays_that_are_no_matrix(tmp_path, changed, message):
    members = npz_members(MATRIX)
    for name, value in changed.items():
        if value is None:
            del members[f"{name}.npy"]
        else:
            members[f"{name}.npy"] = array(value)
    write_npz(tmp_path / "a.npz", members)
    with pytest.raises(SourceError, match=f"a.npz.*{message}"):
        open_rows(tmp_path / "a.npz")


def test_a_member_that_claims_more_than_it_holds_is_refused_before_it_is_allocated(tmp_path):
    members = npz_members(MATRIX)
    shape = f"({10**12},)"
    members["data.npy"] = npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}", MATRIX.data.tobytes())
    write_npz(tmp_path / "a.npz", members)
    with pytest.raises(SourceError, match="its header states 8000000000"):
        open_rows(tmp_path / "a.npz")
    # a directory that agrees with the header
    members["data.npy"] = array(MATRIX.data)
    write_npz(tmp_path / "a.npz", members)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    at = content.rindex(b"PK\x01\x02", 0, content.index(b"data.npy", content.index(b"PK\x01\x02")))
    content[at + 24 : at + 28] = (2**32 - 2).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(SourceError, match="a.npz.*'data' claims 4294967294 bytes, but takes"):
        open_rows(tmp_path / "a.npz")


@pytest.mark.parametrize("form", ["csc", "coo"])
def test_rows_that_no_array_has_are_bounded(tmp_path, form):
    members = npz_members(MATRIX.asformat(form))
    members["shape.npy"] = array(np.array([10**12, 8]))
    write_npz(tmp_path / "a.npz", members)
    with pytest.raises(SourceError, match="claims 1000000000000 rows"):
        open_rows(tmp_path / "a.npz")


def test_other_compressions_are_not_read(tmp_path):
    write_npz(tmp_path / "a.npz", npz_members(MATRIX), zipfile.ZIP_LZMA)
    with pytest.raises(SourceError, match="compressed in a way that is not read"):
        open_rows(tmp_path / "a.npz")


@pytest.mark.parametrize("compressed", [False, True])
def test_every_damaged_byte_of_an_npz(tmp_path, compressed):
    """Refused, or the matrix: most bytes of an archive are under a checksum, the others are dates and the like."""
    path = tmp_path / "a.npz"
    sparse.save_npz(path, MATRIX, compressed)
    content = path.read_bytes()
    refused = 0
    for at in range(0, len(content), 3):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            assert np.array_equal(read_all(path), MATRIX.toarray()), at
        except SourceError:
            refused += 1
    assert refused > len(content) // 3 * 0.7


# -- in the middle -----------------------------------------------------------------------------------------------------
def test_a_source_that_fails_in_the_middle_leaves_the_model_as_it_was_after_the_last_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr("fastsketch.data.sources._source.CHUNK_BYTES", 500)
    path = tmp_path / "a.svm"
    path.write_bytes(TEXT + b"1 3:x\n")
    sketch, expected = fs.FrequentDirections(4), fs.FrequentDirections(4)
    with pytest.raises(SourceError, match="a.svm: line 61: the value is not"):
        for rows, _ in open_rows(path, n_features=8).chunks():
            sketch.update(rows)
    assert 0 < sketch.n_rows < 60
    path.write_bytes(TEXT)
    for rows, _ in open_rows(path, n_features=8).chunks():
        if expected.n_rows < sketch.n_rows:
            expected.update(rows)
    assert expected.to_bytes() == sketch.to_bytes()


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("fastsketch.data.sources._source.CHUNK_BYTES", 640)
    path = tmp_path / "a.npy"
    for rows in (ROWS, np.asfortranarray(ROWS)):
        np.save(path, rows)
        chunks = open_rows(path).chunks()
        next(chunks)
        path.write_bytes(path.read_bytes()[:700])
        with pytest.raises(SourceError, match="a.npy has (been cut short|changed since it was opened: it had)"):
            list(chunks)
