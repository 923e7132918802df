"""Tables as rows: Parquet, Arrow IPC, dataframes of pandas, polars and pyarrow."""

import decimal
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import SourceError
from fastsketch.data.sources import _frame_source, _source, open_rows
from fastsketch.data.sources._frames import FileFrames

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

NAMES = tuple("abcdefg")
WIDE = 41


def matrix(n=1000, d=7, dtype=np.float32):
    return np.random.default_rng(n + d).standard_normal((n, d)).astype(dtype)


def table(rows, names=NAMES):
    return pa.table({name: np.ascontiguousarray(rows[:, k]) for k, name in enumerate(names)})


def whole(source, start_row=0):
    chunks = [np.array(rows) for rows, _ in source.chunks(start_row)]
    return np.concatenate(chunks) if chunks else np.empty((0, source.n_features), source.dtype)


def as_parquet(t, folder):
    pq.write_table(t, folder / "x.parquet", row_group_size=130)
    return folder / "x.parquet"


def as_feather(t, folder):
    feather.write_feather(t, folder / "x.feather", chunksize=170)
    return folder / "x.feather"


def as_stream(t, folder):
    with pa.OSFile(str(folder / "x.arrows"), "wb") as file, pa.ipc.new_stream(file, t.schema) as writer:
        writer.write_table(t, max_chunksize=170)
    return folder / "x.arrows"


def as_reader(t, folder):
    return t.to_reader(max_chunksize=170)


def as_polars(t, folder):
    return pytest.importorskip("polars").from_arrow(t)


def as_pandas(t, folder):
    pytest.importorskip("pandas")
    return t.to_pandas()


FORMS = [as_parquet, as_feather, as_stream, as_reader, as_polars, as_pandas, lambda t, folder: t]
AGAIN = [form for form in FORMS if form is not as_reader]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 4 * len(NAMES) * 97)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_a_table(form, tmp_path):
    x = matrix()
    source = open_rows(form(table(x), tmp_path))
    assert (source.n_features, source.feature_names, source.dtype) == (7, NAMES, np.float32)
    assert source.n_rows in (1000, None)
    out = whole(source)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("form", AGAIN)
def test_columns_parts_and_starts(form, tmp_path):
    x, t = matrix(), form(table(matrix()), tmp_path)
    np.testing.assert_array_equal(whole(open_rows(t, columns=["c", 0, -1])), x[:, [2, 0, 6]])
    np.testing.assert_array_equal(whole(open_rows(t, columns="e")), x[:, [4]])
    assert open_rows(t, columns=["c", "a"]).feature_names == ("c", "a")
    np.testing.assert_array_equal(whole(open_rows(open_rows(t), columns=["g", "a"])), x[:, [6, 0]])
    assert whole(open_rows(t, dtype=np.float64)).dtype == np.float64
    for start in (1, 130, 131, 999, 1000):
        np.testing.assert_array_equal(whole(open_rows(t), start), x[start:])
    for multiple in (1, 16):
        parts = open_rows(t).parts(4 * 7 * 150, multiple=multiple)
        assert parts[0].n_rows is None or len(parts) > 2
        assert all(part.n_rows % multiple == 0 for part in parts[:-1])
        parts = [pickle.loads(pickle.dumps(part)) for part in parts]
        np.testing.assert_array_equal(np.concatenate([whole(part) for part in parts]), x)
        if len(parts) > 1:
            assert parts[1].first_row == parts[0].n_rows
            assert parts[0].identity() != parts[1].identity()


@pytest.mark.parametrize("form", [form for form in AGAIN if form is not as_stream])
def test_the_position_after_a_chunk_is_where_to_go_on(form, tmp_path):
    x, source = matrix(), open_rows(form(table(matrix()), tmp_path))
    for done in (0, 131):
        for rows, position in source.chunks(done):
            done += len(rows)
            np.testing.assert_array_equal(whole(source, position), x[done:])
        assert done == 1000


@pytest.mark.parametrize("form", FORMS)
def test_what_is_missing_is_named_or_filled(form, tmp_path):
    x = matrix(dtype=np.float64)
    x[613, 3] = np.nan
    # of both kinds: a NaN, and a null
    columns = {name: pa.array(x[:, k]) for k, name in enumerate(NAMES)}
    columns["b"] = pa.array(x[:, 1], mask=np.arange(1000) == 700)
    t = pa.table(columns)
    with pytest.raises(SourceError, match=r"row 613.*'d'"):
        whole(open_rows(form(t, tmp_path)))
    with pytest.raises(SourceError, match=r"row 700.*'b'"):
        whole(open_rows(form(t.drop_columns(["d"]), tmp_path)))
    out = whole(open_rows(form(t, tmp_path), fill=7.5))
    x[613, 3] = x[700, 1] = 7.5
    np.testing.assert_array_equal(out, x)


KINDS = {
    "bool": (pa.bool_(), [True, False, True], float),
    "int8": (pa.int8(), [-3, 0, 127], float),
    "uint8": (pa.uint8(), [3, 0, 255], float),
    "int16": (pa.int16(), [-3, 0, 12700], float),
    "uint16": (pa.uint16(), [3, 0, 65535], float),
    "int32": (pa.int32(), [-3, 0, 2**31 - 1], float),
    "uint32": (pa.uint32(), [3, 0, 2**32 - 1], float),
    "int64": (pa.int64(), [-3, 0, 2**53], float),
    "uint64": (pa.uint64(), [3, 0, 2**63], float),
    "float16": (pa.float16(), [np.float16(v) for v in (-1.5, 6e-8, 65504.0)], float),
    "float": (pa.float32(), [-1.5, 0.25, 3e38], float),
    "decimal": (
        pa.decimal128(20, 3),
        [decimal.Decimal(v) for v in ("-1.500", "0.125", "12345678901234567.250")],
        float,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_number(kind):
    """Of a slice that does not begin at a byte of the bits, with and without nulls, beside a column of floats."""
    of, values, to = KINDS[kind]
    for lacking in (False, True):
        long = pa.array([*values, *values, None if lacking else values[0], *values] * 5, of)
        t = pa.table({"x": long, "y": pa.array(np.arange(len(long)), pa.float64())}).slice(3)
        wanted = np.array([-9.0 if v is None else to(v) for v in long.to_pylist()])[3:]
        out = whole(open_rows(t, fill=-9.0))
        np.testing.assert_array_equal(out[:, 0], wanted)
        np.testing.assert_array_equal(out[:, 1], np.arange(3, len(long)))
        narrow = whole(open_rows(t, fill=-9.0, dtype=np.float32, columns=["x"]))
        np.testing.assert_array_equal(narrow[:, 0], wanted.astype(np.float32))


def test_every_half_float():
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = bits[~np.isnan(bits)]
    out = whole(open_rows(pa.table({"x": pa.array(finite)})))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out[:, 0], finite.astype(np.float32))


def test_a_table_is_as_narrow_as_its_columns():
    one = pa.array([1.0], pa.float32())
    assert open_rows(pa.table({"x": one, "y": pa.array([np.float16(1)], pa.float16())})).dtype == np.float32
    assert open_rows(pa.table({"x": one, "y": pa.array([1], pa.int8())})).dtype == np.float64
    assert open_rows(pa.table({"x": pa.nulls(1)}), fill=0.0).dtype == np.float64
    np.testing.assert_array_equal(whole(open_rows(pa.table({"x": pa.nulls(3)}), fill=2.0)), [[2.0]] * 3)


def embeddings(x, kind):
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
    return pa.array(x.tolist(), (pa.list_ if kind == "list" else pa.large_list)(pa.from_numpy_dtype(x.dtype)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
def test_a_column_of_lists_is_a_matrix(form, kind, tmp_path):
    x = matrix(300, 5)
    t = pa.table({"id": [str(k) for k in range(300)], "embedding": embeddings(x, kind)})
    source = open_rows(form(t, tmp_path), columns="embedding")
    assert (source.n_features, source.feature_names, source.dtype) == (5, None, np.float32)
    np.testing.assert_array_equal(whole(source), x)
    both = open_rows(form(t.append_column("y", pa.array(x[:, 0])), tmp_path), columns=["y", "embedding"])
    assert both.feature_names[:2] == ("y", "embedding[0]")
    np.testing.assert_array_equal(whole(both), np.hstack([x[:, :1], x]))
    if form is not as_reader:
        np.testing.assert_array_equal(
            whole(open_rows(open_rows(form(t, tmp_path), columns="embedding"), columns=[3])), x[:, [3]]
        )


def test_lists_with_nulls_and_other_lengths(tmp_path):
    lists = [[1.0, 2.0], None, [3.0, None], [4.0, 5.0]]
    for of in (pa.list_(pa.float64()), pa.list_(pa.float64(), 2), pa.large_list(pa.float32())):
        t = pa.table({"e": pa.array(lists, of)})
        assert whole(open_rows(t, fill=0.0)).tolist() == [[1, 2], [0, 0], [3, 0], [4, 5]]
        assert whole(open_rows(t.slice(2), fill=0.0)).tolist() == [[3, 0], [4, 5]]
        with pytest.raises(SourceError, match="row 1"):
            whole(open_rows(t))
    rows = [[1.0, 2.0]] * 400 + [[1.0]] + [[1.0, 2.0]] * 100
    t = pa.table({"e": pa.array(rows), "y": np.arange(501.0)})
    for form in (as_parquet, as_feather, lambda t, folder: t):
        with pytest.raises(SourceError, match=r"row 400: column 'e' has 1 entries, in the rows before it has 2"):
            whole(open_rows(form(t, tmp_path), columns=["y", "e"]))
    with pytest.raises(SourceError, match="'e' holds lists without entries"):
        open_rows(pa.table({"e": pa.array([[], []], pa.list_(pa.float32()))}))


OTHERS = {
    "strings": pa.array(["x", "y"]),
    "dates": pa.array([1, 2], pa.date32()),
    "times": pa.array([1, 2], pa.timestamp("us")),
    "durations": pa.array([1, 2], pa.duration("s")),
    "categories": pa.array(["x", "y"]).dictionary_encode(),
    "bytes": pa.array([b"x", b"y"]),
    "structures": pa.array([{"x": 1}, {"x": 2}]),
    "lists of strings": pa.array([["x"], ["y"]]),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("form", [as_parquet, as_feather, as_reader, as_polars, lambda t, folder: t])
def test_what_holds_no_numbers_is_named(kind, form, tmp_path):
    t = pa.table({"a": [1.0, 2.0], "odd": OTHERS[kind], "b": [3.0, 4.0]})
    with pytest.raises(
        SourceError, match=r"column 'odd' holds .*, not numbers: columns='numeric' .--columns numeric. leaves them out"
    ):
        open_rows(form(t, tmp_path))
    with pytest.raises(SourceError, match="column 'odd' holds"):
        open_rows(form(t, tmp_path), columns=["odd"])
    assert whole(open_rows(form(t, tmp_path), columns=["b", "a"])).tolist() == [[3, 1], [4, 2]]


@pytest.mark.parametrize("form", [as_parquet, as_feather, as_pandas, lambda t, folder: t])
def test_columns_named_by_years(form, tmp_path):
    years = form(pa.table({"2019": [1.0], "2020": [2.0]}), tmp_path)
    assert whole(open_rows(years, columns=[2020])).tolist() == [[2.0]]


def test_columns_that_there_are_not(tmp_path):
    for form in (as_parquet, as_feather, as_pandas, lambda t, folder: t):
        t = form(table(matrix(10)), tmp_path)
        with pytest.raises(ValueError, match="no column 'z': it has 'a', 'b'"):
            open_rows(t, columns=["z"])
        with pytest.raises(ValueError, match="7 columns, got position 7"):
            open_rows(t, columns=[7])
        with pytest.raises(ValueError, match="twice"):
            open_rows(t, columns=["a", 0])
    twice = pa.table([pa.array([1.0])] * 2, names=["a", "a"])
    with pytest.raises(SourceError, match="'a' has more than one occurrence"):
        open_rows(as_parquet(twice, tmp_path))


def test_the_index_of_a_pandas_table_is_no_column(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}, index=pd.Index([7, 8]))
    frame.to_parquet(tmp_path / "x.parquet")
    assert whole(open_rows(tmp_path / "x.parquet")).tolist() == [[1, 3], [2, 4]]
    frame.rename_axis("user").to_parquet(tmp_path / "y.parquet")
    assert open_rows(tmp_path / "y.parquet").feature_names == ("x", "y")
    assert whole(open_rows(tmp_path / "y.parquet", columns=["user", "x"])).tolist() == [[7, 1], [8, 2]]
    assert open_rows(frame).feature_names == ("x", "y")
    held = pa.Table.from_pandas(frame.rename_axis("user").iloc[[1, 0]])
    for table in (held, held.to_batches()[0], held.to_reader()):
        assert whole(open_rows(table)).tolist() == [[2, 4], [1, 3]]
    assert whole(open_rows(held, columns=["user"])).tolist() == [[8], [7]]


def test_frames_of_pandas_with_types_of_its_own():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": pd.array([1, None, 3], "Int64"), "y": [True, False, True]})
    with pytest.raises(SourceError, match=r"row 1.*'x'"):
        whole(open_rows(frame))
    assert whole(open_rows(frame, fill=0)).tolist() == [[1, 1], [0, 0], [3, 1]]
    with pytest.raises(SourceError, match=r"column 's' holds \w+, not numbers"):
        open_rows(frame.assign(s=["a", "b", "c"]))
    with pytest.raises(SourceError, match="column 'd' holds times"):
        open_rows(frame.assign(d=pd.to_datetime(["2020-01-01"] * 3)))


def test_sparse_frames_of_pandas():
    pd = pytest.importorskip("pandas")
    rows = np.eye(5)[:, :3]
    frame = pd.DataFrame(rows, columns=list("abc")).astype(pd.SparseDtype("float64", 0.0))
    assert whole(open_rows(frame)).tolist() == rows.tolist()
    assert fs.FrequentDirections(3).update(frame).gram().tolist() == np.eye(3).tolist()


def test_what_only_stands_for_rows_is_named_at_every_door(tmp_path):
    """It ended in "setting an array element with a sequence"."""
    x = pytest.importorskip("pyarrow.dataset").dataset(as_parquet(table(matrix(10)), tmp_path))
    sklearn = pytest.importorskip("fastsketch.sklearn")
    for door in (
        open_rows,
        fs.FrequentDirections(4).update,
        lambda x: fs.SketchedNewton(4).update(x, [0, 1]),
        fs.SketchedEASE(4).update,
        sklearn.SketchedPCA(1).fit,
        fs.data.Triples.of,
        fs.data.TableRows,
    ):
        with pytest.raises(TypeError, match="to_table"):
            door(x)


def test_lazy_frames():
    pl = pytest.importorskip("polars")
    x = matrix(50)
    lazy = pl.from_arrow(table(x)).lazy().filter(pl.col("a") > 0)
    np.testing.assert_array_equal(whole(open_rows(lazy)), x[x[:, 0] > 0])
    events = pl.LazyFrame({"user": ["ann", "bob"], "item": [1, 2]})
    assert list(fs.data.Triples.of(events).user_ids) == ["ann", "bob"]


def test_all_columns_of_numbers(tmp_path):
    t = pa.table({"a": [1.0, 2.0], "odd": ["x", "y"], "b": [3, 4]})
    for form in (as_parquet, as_feather, as_pandas, as_polars, as_reader, lambda t, folder: t):
        source = open_rows(form(t, tmp_path), columns="numeric")
        assert source.feature_names == ("a", "b")
        assert whole(source).tolist() == [[1, 3], [2, 4]]
    with pytest.raises(SourceError, match="has no columns of numbers"):
        open_rows(t.select(["odd"]), columns="numeric")


@pytest.mark.parametrize("form", [as_parquet, as_feather, as_stream, as_polars, as_pandas, lambda t, folder: t])
def test_a_column_beside_the_rows(form, tmp_path):
    x = matrix()
    keys = [None if k == 5 else f"k{k % 7}" for k in range(1000)]
    t = table(x).add_column(3, "key", pa.array(keys))
    source = open_rows(form(t, tmp_path), beside="key")
    assert source.feature_names == NAMES
    found = [(np.array(rows), list(values)) for rows, values, _ in source.chunks_beside()]
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in found]), x)
    # what is missing is None or, where the type of a column knows no None, NaN
    assert [None if value != value else value for _, values in found for value in values] == keys
    part = source.parts(4 * 7 * 300)[-1]
    found = [None if value != value else value for _, values, _ in part.chunks_beside() for value in values]
    assert found == keys[part.first_row :]
    with pytest.raises(ValueError, match=r"beside: .* no column 'z'"):
        open_rows(form(t, tmp_path), beside="z")


@pytest.mark.parametrize("slice_bytes", [1, 9000, 1 << 30])
def test_parquet_in_slices_of_any_size(slice_bytes, tmp_path, monkeypatch):
    """However much is decoded at a time, rows are the same: small and large groups, lists among columns."""
    monkeypatch.setattr(_frame_source, "SLICE_BYTES", slice_bytes)
    x = matrix(700, WIDE, np.float64)
    columns = {f"c.{k}": x[:, k].copy() for k in range(WIDE)} | {"e": embeddings(x[:, :3], "list"), "c": x[:, 0]}
    path = tmp_path / "x.parquet"
    writer = pq.ParquetWriter(path, pa.table(columns).schema)
    t, row = pa.table(columns), 0
    for n in (300, 0, 5, 5, 90, 300):
        writer.write_table(t.slice(row, n), row_group_size=max(n, 1))
        row += n
    writer.close()
    wanted = np.hstack([x, x[:, :3], x[:, :1]])
    np.testing.assert_array_equal(whole(open_rows(path)), wanted)
    for part in open_rows(path).parts(8 * 45 * 100):
        stop = part.first_row + part.n_rows
        np.testing.assert_array_equal(whole(part), wanted[part.first_row : stop])
    order = ["c.7", "c", "c.1", "e"]
    np.testing.assert_array_equal(whole(open_rows(path, columns=order)), np.hstack([x[:, [7, 0, 1]], x[:, :3]]))


def test_a_folder_of_tables(tmp_path):
    x = matrix(900)
    for k in range(3):
        folder = tmp_path / "set" / f"day={k}"
        folder.mkdir(parents=True)
        pq.write_table(table(x[300 * k : 300 * k + 300]), folder / "part-0.parquet", row_group_size=100)
    (tmp_path / "set" / "_SUCCESS").touch()
    for name in (tmp_path / "set", f"{tmp_path}/set/*/*.parquet", [tmp_path / "set" / f"day={k}" for k in range(3)]):
        source = open_rows(name, columns=["d", "a"])
        assert source.n_rows == 900
        np.testing.assert_array_equal(whole(source), x[:, [3, 0]])
    source = open_rows(tmp_path / "set")
    days = np.repeat(np.arange(3.0), 300)[:, None]
    assert source.feature_names == (*NAMES, "day")  # a Hive partition is a column
    np.testing.assert_array_equal(np.concatenate([whole(p) for p in source.parts(8 * 8 * 200)]), np.hstack([x, days]))
    np.save(tmp_path / "y.npy", x)
    both = open_rows([tmp_path / "y.npy", tmp_path / "set"], columns=[3, 0])
    np.testing.assert_array_equal(whole(both), np.vstack([x, x])[:, [3, 0]])


def test_mixed_schemas_name_the_file_and_the_column(tmp_path):
    x = matrix(50)
    pq.write_table(table(x), tmp_path / "1.parquet")
    pq.write_table(table(x, "abcdefz"), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"2\.parquet.*'z'.*'g'"):
        open_rows(tmp_path)
    pq.write_table(table(x[:, [1, 0, 2, 3, 4, 5, 6]], "bacdefg"), tmp_path / "2.parquet")
    np.testing.assert_array_equal(whole(open_rows(tmp_path)), np.vstack([x, x]))  # matched by name
    assert whole(open_rows(tmp_path, columns=["a", "b"])).shape == (100, 2)
    pq.write_table(table(x[:, :6], NAMES[:6]), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"2\.parquet"):
        open_rows(tmp_path)
    pq.write_table(table(x).set_column(2, "c", pa.array(["x"] * 50)), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"2\.parquet: column 'c' holds strings"):
        open_rows(tmp_path)
    # numbers of other kinds are numbers: rows are as wide as the widest
    pq.write_table(table(x.astype(np.int64)), tmp_path / "2.parquet")
    out = whole(open_rows(tmp_path))
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, np.vstack([x, x.astype(np.int64)]))


@pytest.mark.parametrize("form", [as_parquet, as_feather, as_stream])
def test_tables_without_rows(form, tmp_path):
    source = open_rows(form(table(matrix(0)), tmp_path))
    assert (source.n_rows or 0, source.n_features) == (0, 7)
    assert list(source) == []
    assert sum(len(whole(part)) for part in source.parts(100)) == 0
    with pytest.raises(SourceError, match="no columns"):
        open_rows(form(pa.table({}), tmp_path))
    lists = open_rows(form(pa.table({"e": pa.array([], pa.list_(pa.float32(), 3))}), tmp_path), columns="e")
    assert lists.n_features == 3


def test_zero_rows_among_files(tmp_path):
    x = matrix(30)
    for k, rows in enumerate((x[:0], x[:10], x[10:10], x[10:])):
        pq.write_table(table(rows), tmp_path / f"{k}.parquet")
    source = open_rows(tmp_path)
    np.testing.assert_array_equal(whole(source), x)
    np.testing.assert_array_equal(np.concatenate([whole(part) for part in source.parts(200)]), x)


@pytest.mark.parametrize("form", [as_parquet, as_feather, as_stream])
def test_damaged_files_are_source_errors(form, tmp_path):
    path = form(table(matrix(300)), tmp_path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for trial in range(120):
        bad = bytearray(good)
        if trial % 3 == 0:
            bad = bad[: rng.integers(1, len(bad))]
        else:
            for place in rng.integers(0, len(bad), 1 + trial % 5):
                bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        try:
            source = open_rows(path, fill=0.0)
            for rows in source:
                assert rows.shape[1] == source.n_features
        except SourceError as error:
            assert path.name in str(error)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="is empty"):
        open_rows(path)


def test_names_of_columns_that_are_not_utf8():
    content = io.BytesIO()
    with pa.ipc.new_stream(content, pa.schema([("length", pa.float64())])):
        pass
    x = pa.ipc.open_stream(content.getvalue().replace(b"length", b"l\xccngth")).read_all()
    with pytest.raises(SourceError, match="the Table is damaged or no table: 'utf-8' codec can't decode byte 0xcc"):
        open_rows(x)


@pytest.mark.parametrize("form", [as_parquet, as_feather, as_stream])
def test_files_that_change_while_they_are_read(form, tmp_path):
    path = form(table(matrix()), tmp_path)
    source = open_rows(path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(SourceError, match="is gone"):
        whole(source)
    form(table(matrix(1100)), tmp_path)
    with pytest.raises(SourceError, match="has changed since it was opened"):
        whole(source)
    source = open_rows(path)
    chunks = source.chunks()
    next(chunks)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SourceError, match="has changed since it was opened"):
        list(chunks)


def test_without_polars_the_error_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,b\n5,2\n")
    paths = [as_parquet(table(matrix(9)), tmp_path), as_feather(table(matrix(9)), tmp_path), tmp_path / "a.csv"]
    monkeypatch.setitem(sys.modules, "polars", None)
    for path in paths:
        with pytest.raises(ImportError, match=r"pip install 'fastsketch\[files\]'"):
            list(open_rows(path))
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(ImportError, match=r"pip install 'fastsketch\[files\]'"):
        open_rows(table(matrix(9)))


READ = """
import sys, fastsketch as fs
from fastsketch.data import SourceError
try:
    for rows, values, _ in fs.open_rows(sys.argv[1], beside="key").chunks_beside():
        print(sorted(map(str, values)))
except SourceError as error:
    print("refused")
"""


@pytest.mark.parametrize("end", [1 << 30, -5, 3])
@pytest.mark.parametrize("is_file", [False, True])
def test_strings_that_begin_beyond_their_text(is_file, end, tmp_path):
    """Offsets that were crafted to point elsewhere are refused: in a process of its own, which they may end."""
    keys = [f"key {k}" for k in range(5)]
    t = pa.table({"a": np.arange(5.0), "key": keys})
    path = tmp_path / "x.arrow"
    begin = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, begin(file, t.schema) as writer:
        writer.write_table(t)
    content, ends = path.read_bytes(), np.arange(0, 30, 5, dtype=np.int32)
    assert content.count(ends.tobytes()) == 1
    crafted = ends.copy()
    crafted[2] = end
    path.write_bytes(content.replace(ends.tobytes(), crafted.tobytes()))
    out = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    assert out.stdout == "refused\n"


def test_fewer_rows_than_a_file_states_are_an_error(tmp_path, monkeypatch):
    path, read = as_parquet(table(matrix(25)), tmp_path), FileFrames.rows
    short = lambda self, start, stop, columns: read(self, start, min(stop, 22), columns)  # noqa: E731
    monkeypatch.setattr(FileFrames, "rows", short)
    with pytest.raises(SourceError, match="is damaged: its rows end after 22, it states 25"):
        list(open_rows(path))


@pytest.mark.parametrize(
    "columns, beside, rows, values",
    [
        (["size", "age"], ["price"], [[1, 2], [2, 3]], [[3], [4]]),
        (["age"], ["price", "size"], [[2], [3]], [[3, 1], [4, 2]]),
        ([1], [3, 0], [[2], [3]], [[3, 1], [4, 2]]),
        ([1, 0], [3], [[2, 1], [3, 2]], [[3], [4]]),
    ],
)
def test_several_columns_beside_chosen_ones_leave_words_alone(tmp_path, columns, beside, rows, values):
    path = tmp_path / "houses.csv"
    path.write_text("size,age,city,price\n1,2,Oslo,3\n2,3,Rome,4\n")
    source = fs.open_rows(path, columns=columns, beside=beside)
    (chunk,) = source.read_beside()
    assert (chunk[0].tolist(), chunk[1].tolist()) == (rows, values)
