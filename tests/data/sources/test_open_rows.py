"""open_rows: the same rows from every kind of source, whole, in parts, and from another process."""

import gzip
import os
import pickle
import zipfile

import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

import fastsketch as fs
from fastsketch.data import SourceError
from fastsketch.data.sources import _source, open_rows
from tests.data.sources.helpers import ROWS, all_rows, svmlight, table


class Sliced:
    """Has a shape and slices, and is no array."""

    shape = ROWS.shape

    def __getitem__(self, key):
        return ROWS[key]


def files(folder):
    """The rows in three files of a folder."""
    (folder / "parts").mkdir()
    for k, rows in enumerate(np.array_split(ROWS, 3)):
        np.save(folder / "parts" / f"{k}.npy", rows)
    return folder / "parts"


def of_kind(kind, folder):
    if kind in ("folder", "glob", "list of paths"):
        parts = files(folder)
        return {"folder": parts, "glob": str(parts / "*.npy"), "list of paths": sorted(parts.iterdir())}[kind]
    path = folder / kind
    match kind:
        case "c.npy":
            np.save(path, ROWS)
        case "fortran.npy":
            np.save(path, np.asfortranarray(ROWS))
        case "memory map":
            np.save(folder / "m.npy", ROWS)
            return np.load(folder / "m.npy", mmap_mode="r")
        case "a.npz":
            sparse.save_npz(path, sparse.csr_array(ROWS))
        case "a.mtx":
            scipy_io.mmwrite(path, sparse.coo_array(ROWS), precision=17)
        case "dense.mtx":
            scipy_io.mmwrite(path, ROWS, precision=17)
        case "a.svm" | "a.txt":
            path.write_bytes(svmlight(ROWS))
        case "a.csv" | "a.tsv":
            path.write_bytes(table(ROWS, "\t" if kind == "a.tsv" else ","))
        case "a.csv.gz":
            path.write_bytes(gzip.compress(table(ROWS)))
        case "array":
            return ROWS
        case "fortran array":
            return np.asfortranarray(ROWS)
        case "sparse":
            return sparse.csc_matrix(ROWS)
        case "lists":
            return ROWS.tolist()
        case "list of arrays":
            return [ROWS[:7], ROWS[7:]]
        case "slices":
            return Sliced()
        case "source":
            return open_rows(ROWS)
    return path


KINDS = [
    *("c.npy", "fortran.npy", "memory map", "a.npz", "a.mtx", "dense.mtx", "a.svm", "a.txt", "a.csv", "a.tsv"),
    *("a.csv.gz", "array", "fortran array", "sparse", "lists", "list of arrays", "slices", "source", "folder", "glob"),
    "list of paths",
]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_whole_and_in_parts(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 1000)
    source = open_rows(of_kind(kind, tmp_path))
    assert source.n_features == ROWS.shape[1]
    assert source.n_rows in (None, len(ROWS))
    assert source.dtype == np.float64
    assert np.array_equal(all_rows(source), ROWS)
    assert np.array_equal(all_rows(source, 33), ROWS[33:])
    for n_bytes, multiple in [(1, 1), (3000, 1), (3000, 16), (1 << 30, 1)]:
        parts = source.parts(n_bytes, multiple=multiple)
        again = [pickle.loads(pickle.dumps(part)) for part in parts] if kind != "slices" else parts
        assert np.array_equal(np.vstack([all_rows(part) for part in again]), ROWS)
        assert np.array_equal(np.vstack([all_rows(part) for part in parts]), ROWS)
        counts = [part.n_rows for part in parts]
        if source.n_rows is not None:
            assert not any(count % multiple for count in counts[:-1])
            assert len({tuple(p.n_rows for p in source.parts(n_bytes, multiple=multiple)) for _ in range(2)}) == 1
        if n_bytes == 1 << 30:
            assert len(parts) == 1
        identities = [str(part.identity()) for part in parts]
        assert len(set(identities)) == len(parts)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_and_dtype(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 1000)
    source = open_rows(of_kind(kind, tmp_path), columns=[4, -6, 2], dtype="float32")
    expected = ROWS[:, [4, -6, 2]].astype(np.float32)
    assert source.n_features == 3 and source.dtype == np.float32
    assert np.array_equal(all_rows(source), expected)
    assert all(rows.dtype == np.float32 for rows in source)
    assert np.array_equal(np.vstack([all_rows(part) for part in source.parts(2000)]), expected)


def test_what_is_given_back_of_a_source_has_the_options(tmp_path):
    path = of_kind("a.csv", tmp_path)
    once = open_rows(path, columns=["c3", "c1"])
    again = open_rows(once, columns=["c1"], dtype="float32")
    assert once.feature_names == ("c3", "c1") and again.feature_names == ("c1",)
    assert np.array_equal(all_rows(again), ROWS[:, [1]].astype(np.float32))


def test_sketches_of_all_kinds_are_one(tmp_path):
    expected = fs.FrequentDirections(4).update(ROWS).to_bytes()
    for kind in ("c.npy", "a.csv", "folder"):
        assert fs.FrequentDirections(4).update(open_rows(of_kind(kind, tmp_path))).n_rows == len(ROWS)
        found = fs.FrequentDirections(4)
        for rows in open_rows(of_kind(kind, tmp_path) if kind != "folder" else tmp_path / "parts"):
            found.update(rows)
        if kind == "c.npy":
            assert found.to_bytes() == expected


# -- missing numbers ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["array", "sparse", "file", "csv", "joined"])
def test_a_missing_number_is_named_or_filled(tmp_path, kind):
    rows = ROWS.copy()
    rows[17, 2] = np.nan
    x, where = rows, r"the rows: rows must be finite: row 17 holds a NaN in column 2:"
    if kind == "sparse":
        x = sparse.csr_array(rows)
    elif kind == "file":
        np.save(x := tmp_path / "a.npy", rows)
        where = r"a\.npy: rows must be finite: row 17 holds a NaN in column 2:"
    elif kind == "csv":
        (x := tmp_path / "a.csv").write_bytes(table(rows).replace(b"nan", b""))
        where = r"a\.csv, line 19: rows must be finite: row 17 holds a NaN in column 2 \('c2'\):"
    elif kind == "joined":
        np.save(tmp_path / "a.npy", rows[:10])
        np.save(tmp_path / "b.npy", rows[10:])
        x = [tmp_path / "a.npy", tmp_path / "b.npy"]
        where = r"b\.npy: rows must be finite: row 7 holds a NaN"
    with pytest.raises(SourceError, match=where):
        all_rows(open_rows(x))
    for part in open_rows(x).parts(2000)[-1:]:
        all_rows(part)
    expected = np.nan_to_num(rows, nan=-2.5)
    assert np.array_equal(all_rows(open_rows(x, fill=-2.5)), expected)
    assert np.array_equal(all_rows(open_rows(x, fill=-2.5, dtype="float32")), expected.astype(np.float32))
    assert np.array_equal(all_rows(open_rows(x, columns=[0, 1])), rows[:, :2])
    assert np.isnan(rows[17, 2])


# -- arguments ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": []}, ValueError, "columns must name a column"),
        ({"columns": [1.5]}, TypeError, "columns must be an integer"),
        ({"columns": [7]}, ValueError, "has 7 columns, got position 7"),
        ({"columns": [1, -6]}, ValueError, "columns: -6 stands there twice"),
        ({"columns": ["x"]}, ValueError, "has no names of columns, got 'x': give positions"),
        ({"dtype": "int8"}, ValueError, "dtype must be float32 or float64"),
        ({"fill": "0"}, TypeError, "fill must be a real number"),
        ({"fill": float("nan")}, ValueError, "fill must lie in"),
        ({"n_features": 0}, ValueError, "n_features must be at least 1"),
        ({"zero_based": 1}, TypeError, "zero_based must be True or False"),
        ({"header": "yes"}, TypeError, "header must be True or False"),
    ],
)
def test_arguments(options, error, message):
    with pytest.raises(error, match=message):
        open_rows(ROWS, **options)


@pytest.mark.parametrize("x", [5, None, object(), 3.0])
def test_what_has_no_rows(x):
    with pytest.raises(TypeError, match="rows must be a path, an array"):
        open_rows(x)


@pytest.mark.parametrize(
    ("package", "make", "advice"),
    [
        ("dask.dataframe", lambda dd, path: dd.from_dict({"a": [1.0]}, npartitions=1), "DataFrame .*to_dask_array"),
        ("h5py", lambda h5py, path: h5py.File(path / "a.h5", "w"), r"File .*a data set of it, x\[key\]"),
        ("zarr", lambda zarr, path: zarr.open_group(path / "a.zarr", mode="w"), r"Group .*an array of it, x\[key\]"),
    ],
)
def test_what_holds_rows_and_is_none_says_what_to_give(tmp_path, package, make, advice):
    x = make(pytest.importorskip(package), tmp_path)
    with pytest.raises(TypeError, match=advice):
        open_rows(x)


def test_how_a_source_shows_itself(tmp_path):
    assert repr(open_rows(of_kind("c.npy", tmp_path))).endswith(f"c.npy: {len(ROWS)} x {ROWS.shape[1]}, {ROWS.dtype}>")
    shown = repr(open_rows(np.zeros((4, 3), np.float32), columns=[2, 0]))
    assert shown == "<source of the rows: 4 x 2, float32>"


@pytest.mark.parametrize("kind", ["a.csv", "c.npy"])
def test_a_name_is_rows_to_learn_from(tmp_path, monkeypatch, kind):
    path = of_kind(kind, tmp_path)
    expected = fs.FrequentDirections(3).update(all_rows(open_rows(path)))
    assert np.array_equal(fs.FrequentDirections(3).update(path).sketch(), expected.sketch())
    assert np.array_equal(fs.FrequentDirections(3).update(str(path)).sketch(), expected.sketch())
    with pytest.raises(SourceError, match=r"none\.npy cannot be read"):
        fs.FrequentDirections(3).update("none.npy")


def test_names_that_there_are_not(tmp_path):
    path = of_kind("a.csv", tmp_path)
    with pytest.raises(ValueError, match=r"a\.csv has no column 'x': it has 'c0', 'c1'"):
        open_rows(path, columns=["x"])


# -- folders and several files -----------------------------------------------------------------------------------------
def test_folders_are_read_in_the_order_of_names_and_without_hidden_files(tmp_path):
    parts = files(tmp_path)
    (parts / "deep").mkdir()
    np.save(parts / "deep" / "9.npy", ROWS[:3])
    for name in (".hidden", "_SUCCESS", ".git/x"):
        (parts / name).parent.mkdir(exist_ok=True)
        (parts / name).write_text("no rows")
    source = open_rows(parts)
    assert [os.path.relpath(one.name, parts) for one in source.each()] == ["0.npy", "1.npy", "2.npy", "deep/9.npy"]
    assert source.n_rows == len(ROWS) + 3
    assert source.where(len(ROWS) + 1).endswith("9.npy, row 1")


@pytest.mark.parametrize("block", [0, 1, 17, 31])
def test_a_large_file_that_was_written_to_is_another_whatever_its_time_says(tmp_path, block):
    """One block of each of 32 stretches is looked at."""
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((40_000, 10)))
    before, about = open_rows(path).identity(), path.stat()
    with path.open("r+b") as file:
        file.seek((about.st_size - (32 << 10)) * block // 31 + 1000)
        file.write(b"\1")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert open_rows(path).identity() != before


def test_rows_of_several_texts_are_placed_once_they_have_been_read(tmp_path):
    for name, n in (("a.csv", 3), ("b.csv", 4)):
        (tmp_path / name).write_text("x,y\n" + "1,2\n" * n)
    source = open_rows(tmp_path)
    assert sum(len(rows) for rows in source) == 7
    assert source.where(2).endswith("a.csv, line 4, row 2") and source.where(4).endswith("b.csv, line 3, row 1")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "no", "no cannot be read: No such file"),
        (lambda folder: folder / "*.npy", r"no file matches .*\*\.npy"),
        (lambda folder: folder, "is a folder without files"),
    ],
)
def test_nothing_to_read(tmp_path, make, message):
    with pytest.raises(SourceError, match=message):
        open_rows(make(tmp_path))


def test_files_that_differ_are_refused_with_file_and_column(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    np.save(tmp_path / "b.npy", ROWS[:, :3])
    with pytest.raises(SourceError, match=r"a\.npy has 7, .*b\.npy has 3"):
        open_rows(tmp_path)
    (tmp_path / "b.npy").unlink()
    (tmp_path / "a.npy").unlink()
    for name, header in [("a.csv", "x,y,z"), ("b.csv", "x,y,z"), ("c.csv", "x,z,y")]:
        (tmp_path / name).write_text(f"{header}\n1,2,3\n")
    (tmp_path / "c.csv").write_text("x,z,y\n1,3,2\n")  # the same columns in another order are matched by name
    assert np.array_equal(all_rows(open_rows(tmp_path)), [[1, 2, 3]] * 3)
    (tmp_path / "c.csv").write_text("x,y\n1,2\n")
    with pytest.raises(SourceError, match=r"c\.csv has 2 columns, .*a\.csv has 3: only .*a\.csv has 'z'"):
        open_rows(tmp_path)
    (tmp_path / "c.csv").write_text("4,5,6\n")
    assert open_rows(tmp_path).feature_names == ("x", "y", "z")
    assert np.array_equal(all_rows(open_rows(tmp_path)), [[1, 2, 3], [1, 2, 3], [4, 5, 6]])


def test_one_dtype_of_several_files(tmp_path):
    np.save(tmp_path / "a.npy", ROWS.astype(np.float32))
    np.save(tmp_path / "b.npy", ROWS)
    source = open_rows(tmp_path)
    assert source.dtype == np.float64
    assert {rows.dtype for rows in source} == {np.dtype(np.float64)}
    assert {rows.dtype for part in source.parts(500) for rows in part} == {np.dtype(np.float64)}


def test_zero_rows(tmp_path):
    np.save(tmp_path / "a.npy", ROWS[:0])
    np.save(tmp_path / "b.npy", ROWS[:5])
    source = open_rows(tmp_path)
    assert np.array_equal(all_rows(source), ROWS[:5])
    assert sum(part.n_rows for part in source.parts(1)) == 5
    for x in (ROWS[:0], tmp_path / "a.npy"):
        source = open_rows(x)
        assert source.n_rows == 0 and list(source) == []
        assert [part.n_rows for part in source.parts(1)] == [0]


# -- files that change -------------------------------------------------------------------------------------------------
def vanish(path):
    path.unlink()


def grow(path):
    path.write_bytes(path.read_bytes() + path.read_bytes()[-40:])


def rewrite(path):
    path.write_bytes(path.read_bytes())
    about = path.stat()
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1))


@pytest.mark.parametrize("kind", ["c.npy", "fortran.npy", "a.npz", "a.mtx", "a.svm", "a.csv"])
@pytest.mark.parametrize(
    ("change", "message"),
    [(vanish, "is gone"), (grow, "has changed since it was opened: it had"), (rewrite, "written")],
)
def test_a_file_that_changes_before_or_while_it_is_read(tmp_path, monkeypatch, kind, change, message):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 600)
    path = of_kind(kind, tmp_path)
    source = open_rows(path)
    chunks = source.read()
    next(chunks)
    change(path)
    with pytest.raises(SourceError, match=message):
        list(chunks)
    with pytest.raises(SourceError, match=message):
        list(source)
    with pytest.raises(SourceError, match=message):
        for part in source.parts(1000):
            list(part)
    with pytest.raises(SourceError, match=message):
        source.identity()


# -- iterators ---------------------------------------------------------------------------------------------------------
def test_batches_are_read_once_and_belong_together():
    source = open_rows(ROWS[k : k + 9] for k in range(0, len(ROWS), 9))
    assert not source.repeatable and source.n_rows is None and source.n_features == 7
    assert len(source.parts(1)) == 1
    assert np.array_equal(all_rows(source), ROWS)
    with pytest.raises(SourceError, match="the generator has been read"):
        list(source)
    with pytest.raises(SourceError, match="once"):
        source.identity()
    mixed = open_rows(iter([ROWS[:4], sparse.csr_array(ROWS[4:8])]))
    assert np.array_equal(all_rows(mixed), ROWS[:8])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "gives no batches of rows"),
        ([ROWS, ROWS[:, :2]], "batch 1 has 2 columns, those before 7"),
        ([ROWS.astype(np.float32), ROWS], "batch 1 holds float64, those before float32: give the dtype of all"),
        ([(ROWS, ROWS)], "batch 0 is a tuple: give the rows alone"),
        ([ROWS, "x"], "batch 1"),
        ([ROWS * np.nan], "batch 0: rows must be finite: row 0 holds a NaN"),
    ],
)
def test_batches_that_do_not(batches, message):
    with pytest.raises(SourceError, match=message):
        list(open_rows(iter(batches)))


def test_batches_of_several_dtypes_with_the_dtype_of_all():
    source = open_rows(iter([ROWS.astype(np.float32), ROWS]), dtype="float32")
    assert {rows.dtype for rows in source} == {np.dtype(np.float32)}


# -- memory maps -------------------------------------------------------------------------------------------------------
def test_memory_maps_are_reopened_by_name(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    for view, by_name in [(mapped, True), (mapped[5:50], True), (mapped[:, 1:3], False), (mapped[::2], False)]:
        source = open_rows(view)
        assert np.array_equal(all_rows(source), view)
        assert (len(pickle.dumps(source)) < 1000) == by_name
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[3] = 1
    assert np.array_equal(all_rows(open_rows(private)), private)
    written = np.load(tmp_path / "a.npy", mmap_mode="r+")
    written[3] = 2
    assert np.array_equal(all_rows(open_rows(written)), written)


def test_slices_that_are_not_as_the_shape_says():
    class Short(Sliced):
        def __getitem__(self, key):
            return ROWS[key][:3]

    class Cube(Sliced):
        shape = (2, 2, 2)

    with pytest.raises(SourceError, match="the Short, row 0: 90 rows of 7 columns were asked for"):
        list(open_rows(Short()))
    with pytest.raises(SourceError, match="the Cube must be two-dimensional"):
        open_rows(Cube())


def test_an_empty_name_is_no_folder():
    with pytest.raises(SourceError, match="must not be empty"):
        open_rows("")


def test_a_folder_of_several_kinds_names_those_of_one(tmp_path):
    for k in range(2):
        (tmp_path / f"{k}.csv").write_text("1,2\n")
    (tmp_path / "README.txt").write_text("hello\n")
    with pytest.raises(SourceError, match=r"README.txt.* several kinds: '.*\*\.csv' names those of one"):
        open_rows(tmp_path)
    (tmp_path / "1.csv").write_text("1,2,3\n")
    with pytest.raises(SourceError) as error:
        open_rows(str(tmp_path / "*.csv"))
    assert "several kinds" not in str(error.value)


def test_a_workbook_by_its_own_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as book:
        book.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(SourceError, match="book.xlsx is not text: it is an Excel workbook .*: save the sheet as CSV"):
        open_rows(tmp_path / "book.xlsx")
