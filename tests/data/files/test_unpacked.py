"""What is held in memory as a whole unpacks to no more than is stated, unless somebody says that it may."""

import bz2
import gzip
import io
import lzma
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import fastsketch as fs
from fastsketch.data.files import SourceError, _input
from fastsketch.data.files._input import InputFile
from fastsketch.data.files._table import Dialect
from fastsketch.data.names import _events
from fastsketch.data.names._events import read_events
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._streams import of_stream

PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
N = 60_000
MATRIX = b"%%%%MatrixMarket matrix coordinate pattern general\n3 3 %d\n" % N + b"1 1\n" * N
DENSE = b"%%%%MatrixMarket matrix array integer general\n%d 1\n" % N + b"0\n" * N
READERS = {
    "a.mtx": (MATRIX, fs.open_rows),
    "dense.mtx": (DENSE, fs.open_rows),
    "e.csv": (b"user,item\n" + b"a,b\n" * N, lambda path: read_events(path, Dialect(header=True))),
    "f.csv": (
        b"user,item\n" + b"a,b\n" * N,
        lambda path: _events.read_events(path, Dialect(header=True)),
    ),
}


@pytest.fixture
def strict(monkeypatch):
    """Nothing is free, and nothing may grow: as if these small files were large."""
    monkeypatch.setattr(_input, "FREE_BYTES", 1000)
    monkeypatch.setattr(_input, "GROWTH", 1)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("suffix", PACK)
def test_compressed_text_that_is_held_is_bounded(name, suffix, strict, tmp_path):
    text, read = READERS[name]
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(PACK[suffix](text))
    with pytest.raises(SourceError, match=rf"{name}.* unpacks to more than [0-9,]+ bytes"):
        read(path)
    (tmp_path / name).write_bytes(text)  # the remedy
    read(tmp_path / name)


@pytest.mark.parametrize("name", READERS)
def test_text_as_people_have_it_is_read(name, tmp_path):
    text, read = READERS[name]
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(text))
    read(path)


def test_matrices_may_be_given_more(strict, tmp_path):
    path = tmp_path / "a.mtx.gz"
    path.write_bytes(gzip.compress(MATRIX))
    source = fs.open_rows(path, max_unpacked=len(MATRIX))
    assert next(iter(source)).sum() == N
    with pytest.raises(SourceError, match=f"more than {len(MATRIX) - 1:,} bytes"):
        (tmp_path / "b.mtx.gz").write_bytes(path.read_bytes())
        fs.open_rows(tmp_path / "b.mtx.gz", max_unpacked=len(MATRIX) - 1)
    with pytest.raises(ValueError, match="max_unpacked must be at least 1"):
        fs.open_rows(path, max_unpacked=0)


def test_streams_are_bounded_too(strict):
    def opened(**options):
        return of_stream(InputFile(Path("-"), io.BytesIO(gzip.compress(MATRIX))), Options(**options))

    with pytest.raises(SourceError, match="unpacks to more than"):
        opened()
    assert next(iter(opened(max_unpacked=1 << 20))).sum() == N


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_arrays_of_a_matrix_are_bounded_before_they_are_read(form, strict, tmp_path):
    path, rows = tmp_path / "a.npz", sp.csr_array((np.zeros(N), np.zeros(N, np.int32), [0, N]), shape=(1, 3))
    sp.save_npz(path, rows.asformat(form))
    with pytest.raises(SourceError, match=r"a\.npz.* unpacks to more than"):
        fs.open_rows(path)
    assert fs.open_rows(path, max_unpacked=1 << 21).n_rows == 1
    sp.save_npz(tmp_path / "b.npz", rows.asformat(form), compressed=False)
    fs.open_rows(tmp_path / "b.npz")


def test_files_made_to_unpack_take_little_memory(tmp_path):
    """100 kB that would take gigabytes."""
    with gzip.open(tmp_path / "a.mtx.gz", "wb") as file:
        file.write(MATRIX.replace(b"60000", b"18000000"))
        for _ in range(299):
            file.write(b"1 1\n" * N)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        n = 12_000_000
        arrays = {"format": np.array("csr"), "shape": np.array([1, 3]), "indptr": np.array([0, n])}
        for name, array in {**arrays, "data": np.zeros(n, np.int8), "indices": np.zeros(n, np.int32)}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, array)
    for name in ("a.mtx.gz", "a.npz"):
        assert (tmp_path / name).stat().st_size < 150_000
        tracemalloc.start()
        with pytest.raises(SourceError, match="unpacks to more than"):
            fs.open_rows(tmp_path / name)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 150e6


def test_rows_of_compressed_text_are_read_in_pieces(tmp_path):
    """60 kB that are 24 MB of text and 64 MB of rows."""
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(b"10,20,30,40\n" * 2_000_000)
    assert (tmp_path / "a.csv.gz").stat().st_size < 250_000
    tracemalloc.start()
    rows = sum(len(chunk) for chunk in fs.open_rows(tmp_path / "a.csv.gz"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 2_000_000 and peak < 40e6
