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


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_hive_partitions_are_columns(tmp_path, suffix):
    for shop, year in ((1, 2023), (2, 2024)):
        folder = tmp_path / f"shop={shop}" / f"year={year}"
        folder.mkdir(parents=True)
        frame = pl.DataFrame(ROWS[shop : shop + 2], schema=["a", "b", "c"])
        getattr(frame, f"write_{suffix}")(folder / f"p.{suffix}")
    source = fs.open_rows(tmp_path)
    assert source.feature_names == ("a", "b", "c", "shop", "year")
    assert all_rows(source)[:, 3:].tolist() == [[1, 2023]] * 2 + [[2, 2024]] * 2
    one = TableRows(tmp_path / "shop=1" / "year=2023" / f"p.{suffix}")
    assert one.schema["columns"]["year"] == "numeric"
    assert all_rows(fs.open_rows(tmp_path, columns=["year"])).tolist() == [[2023]] * 2 + [[2024]] * 2
    assert all_rows(fs.open_rows(tmp_path, beside="shop"))[:, 3].tolist() == [2023] * 2 + [2024] * 2


def test_folders_of_csv_files_may_be_words_or_missing(tmp_path):
    for folder in ("city=New%20York", "city=__HIVE_DEFAULT_PARTITION__", "b=3"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match=r"column 3 \('city'\): 'New York' is no finite decimal number"):
        all_rows(fs.open_rows(tmp_path / "city=New%20York"))
    (rows, _, _) = next(TableRows(tmp_path / "city=New%20York" / "p.csv").chunks())
    assert rows == [{"a": 1.0, "b": 2.0, "city": "New York"}]
    assert all_rows(fs.open_rows(tmp_path / "city=__HIVE_DEFAULT_PARTITION__", fill=0.5)).tolist() == [[1, 2, 0.5]]
    assert all_rows(fs.open_rows(tmp_path / "b=3")).tolist() == [[1, 2]]  # the file has a column of that name


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_folders_of_files_may_be_missing_or_called_like_a_column_or_like_each_other(tmp_path, suffix):
    frame = pl.DataFrame({"a": [1.0], "b": [2.0]})
    for folder in ("day=__HIVE_DEFAULT_PARTITION__", "day=2", "b=3", "day=4/day=5"):
        (tmp_path / folder).mkdir(parents=True)
        getattr(frame, "write_ipc" if suffix == "arrow" else f"write_{suffix}")(tmp_path / folder / f"p.{suffix}")
    days = [tmp_path / "day=2", tmp_path / "day=__HIVE_DEFAULT_PARTITION__"]
    assert all_rows(fs.open_rows(days, fill=0.5)).tolist() == [[1, 2, 2], [1, 2, 0.5]]
    with pytest.raises(SourceError, match="NaN|missing|empty"):
        all_rows(fs.open_rows(days))
    assert all_rows(fs.open_rows(tmp_path / "b=3")).tolist() == [[1, 2]]  # the file has a column of that name
    with pytest.raises(SourceError, match="two of its folders are called after one column"):
        fs.open_rows(tmp_path / "day=4")


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


PLAIN = "a,b\n1,2.5\n3,4\n"
MESSY = {
    "old line ends": (PLAIN.replace("\n", "\r"), {}, [[1, 2.5], [3, 4]]),
    "line ends of both kinds": (PLAIN + "5,6\r\n", {}, [[1, 2.5], [3, 4], [5, 6]]),
    "blank lines": ("\n\n" + PLAIN.replace("\n", "\n\n"), {}, [[1, 2.5], [3, 4]]),
    "blanks around quotes": ('a,b\n1,2.5\n"3", "4" \n', {}, [[1, 2.5], [3, 4]]),
    "no last line end": (PLAIN[:-1], {}, [[1, 2.5], [3, 4]]),
    "an empty name": (",a,b\n0,1,2\n1,3,4\n2,5,6\n", {}, [[0, 1, 2], [1, 3, 4], [2, 5, 6]]),
    "zeros in front": ("id,b\n0012,2\n0013,4\n", {}, [[12, 2], [13, 4]]),
    "a header only": ("a,b\n", {}, np.empty((0, 2))),
    "comments": ("# of Monday\n" + PLAIN, {}, "line 2: there are 2 columns.*--set comment=#"),
    "comments, skipped": ("# of Monday\n" + PLAIN, {"comment": "#"}, [[1, 2.5], [3, 4]]),
    "thousands": ("a;b\n1;2,000\n", {}, "line 2: column 2 .*--set thousands=,"),
    "thousands, read": ("a;b\n1;2,000\n", {"thousands": ",", "separator": ";"}, [[1, 2000]]),
    "another spelling": ("a,b\n1,-\n2,3\n", {"fill": 0}, "line 2: column 2 .*--set na_values=-"),
    "another spelling, read": ("a,b\n1,-\n2,3\n", {"fill": 0, "na_values": "-"}, [[1, 0], [2, 3]]),
    "truth values": ("a,b\n1,true\n", {}, r"line 2: column 2 \('b'\): 'true' is no finite decimal number"),
    "infinity": ("a,b\n1,inf\n", {"fill": 0}, r"line 2: column 2 \('b'\): 'inf' is no finite decimal number"),
    "text late in a column": ("a,b\n" + 3000 * "1,2\n" + "1,x\n", {}, r"line 3002: column 2 \('b'\): 'x' is no finite"),
    "a short row": (PLAIN + "5\n" + PLAIN[4:], {}, "line 4: there are 1 columns, in the first line 2"),
    "bytes of another encoding": (PLAIN.encode() + b"\xfc,1\n", {}, "line 4: column 1"),
    "a NUL": (PLAIN + "5,\0006\n", {}, "line 4: column 2"),
    "UTF-16 without a mark": (PLAIN.encode("utf-16-le"), {}, "iconv -f UTF-16LE -t UTF-8"),
    "UTF-16, the other order": (PLAIN.encode("utf-16-be"), {}, "iconv -f UTF-16BE -t UTF-8"),
    "a workbook": (b"PK\x03\x04 rest", {}, "an Excel workbook"),
    "nothing": ("", {}, "is empty"),
}


@pytest.mark.parametrize("name", MESSY)
def test_messy_files_are_right_or_refused_by_line(tmp_path, name):
    content, options, expected = MESSY[name]
    path = tmp_path / "a.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(expected, str):
        with pytest.raises(SourceError, match=rf"a\.csv.*{expected}"):
            list(fs.open_rows(path, **options))
    else:
        source = fs.open_rows(path, **options)
        assert np.array_equal(np.concatenate([np.empty((0, 2 + (name == "an empty name"))), *source]), expected)
