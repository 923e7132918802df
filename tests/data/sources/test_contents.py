"""The inside of a file decides what it is, not its name; files of object stores are read in pieces."""

import bz2
import gzip
import io
import lzma
import pickle

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import SourceError, TableRows
from fastsketch.data.sources import _source
from tests.data.sources.helpers import all_rows

pl = pytest.importorskip("polars")
ROWS = np.random.default_rng(3).random((200, 3)).round(5)


def text(rows=ROWS):
    return "a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text_of_any_name(tmp_path, pack):
    path = tmp_path / "a.csv"
    path.write_bytes(pack(text().encode()))
    assert np.array_equal(all_rows(fs.open_rows(path)), ROWS) and len(fs.open_rows(path).parts(100)) == 1
    assert len(next(TableRows(path).chunks())[0]) == 200


def test_tables_and_arrays_of_any_name(tmp_path):
    frame = pl.DataFrame(ROWS, schema=["a", "b", "c"])
    frame.write_parquet(tmp_path / "p.csv")
    frame.write_ipc(tmp_path / "i.parquet")
    with (tmp_path / "n.csv").open("wb") as file:
        np.save(file, ROWS)
    for name in ("p.csv", "i.parquet", "n.csv"):
        assert np.array_equal(all_rows(fs.open_rows(tmp_path / name)), ROWS), name
    assert next(TableRows(tmp_path / "p.csv").chunks())[0][0] == dict(zip("abc", ROWS[0].tolist(), strict=True))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"\x28\xb5\x2f\xfd rest", "compressed by zstd, .*: zstd -d"),
        (pickle.dumps(ROWS), "it is a pickle"),
        (b"MATLAB 5.0 MAT-file, Platform", "scipy.io.loadmat"),
        (b"SQLite format 3\x00", "SQLite"),
        (b"\xd0\xcf\x11\xe0 rest", "old Excel workbook"),
        (b"<!DOCTYPE html>", "a web page"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a", "a.svm"])
def test_foreign_formats_are_named(tmp_path, start, message, name):
    (tmp_path / name).write_bytes(start)
    with pytest.raises(SourceError, match=rf"{name}.*{message}"):
        fs.open_rows(tmp_path / name)


def test_hive_partitions_are_columns(tmp_path):
    for shop, year in ((1, 2023), (2, 2024)):
        folder = tmp_path / f"shop={shop}" / f"year={year}"
        folder.mkdir(parents=True)
        pl.DataFrame(ROWS[shop : shop + 2], schema=["a", "b", "c"]).write_parquet(folder / "p.parquet")
    source = fs.open_rows(tmp_path)
    assert source.feature_names == ("a", "b", "c", "shop", "year")
    assert all_rows(source)[:, 3:].tolist() == [[1, 2023]] * 2 + [[2, 2024]] * 2
    one = TableRows(tmp_path / "shop=1" / "year=2023" / "p.parquet")
    assert one.schema["columns"]["year"] == "numeric"


@pytest.fixture
def store():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/1.csv", text(ROWS[:150]).encode())
    memory.pipe("/bucket/2.csv", text(ROWS[150:, [2, 0, 1]]).replace("a,b,c", "c,a,b", 1).encode())
    memory.pipe("/other/x.csv.gz", gzip.compress(text().encode()))
    parquet = io.BytesIO()
    pl.DataFrame(ROWS, schema=["a", "b", "c"]).write_parquet(parquet)
    memory.pipe("/other/x.parquet", parquet.getvalue())
    memory.pipe("/other/x.npy", b"\x93NUMPY rest")
    yield memory
    memory.rm("/bucket", recursive=True)
    memory.rm("/other", recursive=True)


def test_files_of_object_stores(store, monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 1000)
    for name in ("memory://bucket/*.csv", "memory://bucket", ["memory://bucket/1.csv", "memory://bucket/2.csv"]):
        assert np.array_equal(all_rows(fs.open_rows(name)), ROWS), name
    for name in ("memory://other/x.csv.gz", "memory://other/x.parquet"):
        assert np.array_equal(all_rows(fs.open_rows(name)), ROWS), name
    source = fs.open_rows("memory://bucket/1.csv")
    parts = [pickle.loads(pickle.dumps(part)) for part in source.parts(700)]
    assert len(parts) > 3 and np.array_equal(np.concatenate([all_rows(part) for part in parts]), ROWS[:150])
    assert source.where(3) == "memory://bucket/1.csv, line 5, row 3"
    store.pipe("/bucket/1.csv", b"a,b,c\n1,2,x\n")
    with pytest.raises(SourceError, match="memory://bucket/1.csv has changed since it was opened"):
        all_rows(source)
    with pytest.raises(SourceError, match=r"1.csv, line 2: column 3 \('c'\): 'x' is no finite"):
        all_rows(fs.open_rows("memory://bucket/1.csv"))
    with pytest.raises(SourceError, match="memory://bucket/none.csv cannot be read"):
        fs.open_rows("memory://bucket/none.csv")
    with pytest.raises(SourceError, match=r"no file matches memory://bucket/\*.tsv"):
        fs.open_rows("memory://bucket/*.tsv")
    with pytest.raises(SourceError, match="x.npy: of files by a protocol only csv, Parquet and Arrow are read"):
        fs.open_rows("memory://other/x.npy")
