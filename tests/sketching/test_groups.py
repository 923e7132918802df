"""One sketch a group: bitwise that of its rows only, for any threads and chunks."""

import pickle

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch import reference
from fastsketch._frame.model import about_of
from fastsketch.data.files import _state as files
from fastsketch.data.sources import _source
from tests.helpers import stream, tol

L = 6


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 13 * 8 * 300)


def rows_and_keys(n=2500, d=13, *, dtype=np.float64, seed=0, offset=0.0):
    """Interleaved rows of 20 large groups and 100 of a few rows."""
    rng = np.random.default_rng(seed)
    rows = (stream("signal", rng, n, d) + offset).astype(dtype)
    large = rng.integers(0, 20, n - 200)
    keys = np.concatenate([large, rng.integers(20, 120, 200)])
    rng.shuffle(keys)
    return rows, keys


def alone(rows, **parameters):
    return fs.FrequentDirections(L, solver="gram", **parameters).update(rows)


def named(sketch, groups):
    """The same sketch with the names of the groups' columns, which rows of an array do not have."""
    sketch._feature_names = groups.feature_names
    return sketch


def assert_bits(groups, rows, keys, **parameters):
    assert list(groups) == list(dict.fromkeys(keys.tolist()))  # in the order of first rows
    for key, found in groups.items():
        assert found.to_bytes() == named(alone(rows[keys == key], **parameters), groups).to_bytes(), key


# -- what a group's sketch is ----------------------------------------------------------------------------------------
def test_reference():
    rows, keys = rows_and_keys(600)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L)
    for key, (b, alpha, delta) in reference.group_sketches(rows, keys.tolist(), m=L).items():
        found = groups[key]
        mine = found.gram()
        if len(b) > L:  # the algorithm's buffer, as it is before the last shrink
            theirs = rows[keys == key].T @ rows[keys == key]
            bound = found.error_bound + tol(np.float64, np.trace(theirs))
            assert np.linalg.norm(mine - theirs, 2) <= bound
            continue
        assert np.allclose(mine, b.T @ b + alpha * np.eye(13), atol=tol(np.float64, np.trace(mine)) * 10)
        assert abs(found.shrinkage - delta) <= tol(np.float64, np.trace(mine))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"method": "pfd", "beta": 0.3}, {"center": True}, {"method": "isvd", "buffer_size": 9}],
    ids=["rfd", "pfd", "center", "isvd"],
)
def test_the_bits_of_a_sketch_of_the_rows_alone(dtype, parameters):
    rows, keys = rows_and_keys(dtype=dtype, offset=3.0 if "center" in parameters else 0.0)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L, **parameters)
    assert_bits(groups, rows, keys, **parameters)


@pytest.mark.parametrize("buffer_size", [0, 1])
def test_buffers_without_room(buffer_size):
    rows, keys = rows_and_keys(400)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L, buffer_size=buffer_size)
    assert_bits(groups, rows, keys, buffer_size=buffer_size)


def test_large_and_small_numbers():
    rows, keys = rows_and_keys(1500, dtype=np.float32)
    rows[keys == 3] *= 1e-20
    rows[keys == 4] *= 1e18
    late = np.flatnonzero(keys == 5)
    rows[late[len(late) // 2 :]] *= 1e17  # the scale changes on the way
    rows[keys == 6] = 0
    assert_bits(fs.sketch_groups(rows, by=keys, sketch_size=L), rows, keys)


@pytest.mark.usefixtures("threaded_blas")
@pytest.mark.parametrize("chunk", [1, 700, 20_000])
def test_chunks_and_threads(monkeypatch, chunk):
    monkeypatch.setattr(_source, "CHUNK_BYTES", chunk * 13)
    rows, keys = rows_and_keys(1200)
    with fs.thread_limit(4):
        assert_bits(fs.sketch_groups(rows, by=keys, sketch_size=L), rows, keys)


@pytest.mark.parametrize("name", ["a.csv", "a.npy"])
def test_a_key_that_is_no_column_is_called_by(tmp_path, name):
    if name == "a.npy":
        np.save(tmp_path / name, np.ones((3, 2)))
    else:
        (tmp_path / name).write_text("shop,a\nx,1\n")
    with pytest.raises(ValueError, match=r"^by: .*a\.(csv has no column 'shp': it has 'shop', 'a'|npy has no names)"):
        fs.sketch_groups(tmp_path / name, by="shp")


@pytest.mark.usefixtures("threaded_blas")
def test_parts_of_a_batch_have_the_same_bits():
    rows, keys = rows_and_keys(20_000, 40)
    with fs.thread_limit(1):
        one = fs.sketch_groups(rows, by=keys, sketch_size=L).to_bytes()
    with fs.thread_limit(5):
        assert fs.sketch_groups(rows, by=keys, sketch_size=L).to_bytes() == one


def test_rows_of_one_column(tmp_path):
    rows, keys = rows_and_keys(300, 1)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L)
    groups.save(tmp_path / "g.fsk")
    assert_bits(fs.load(tmp_path / "g.fsk"), rows, keys)


def test_sparse_rows():
    rows, keys = rows_and_keys(900)
    rows[np.random.default_rng(1).random(rows.shape) < 0.8] = 0
    groups = fs.sketch_groups(sparse.csr_array(rows), by=keys, sketch_size=L)
    assert_bits(groups, rows, keys)


def test_rows_stay_as_they_are():
    rows, keys = rows_and_keys(500)
    before = rows.copy(), keys.copy()
    rows.setflags(write=False)
    keys.setflags(write=False)
    fs.sketch_groups(rows, by=keys, sketch_size=L)
    assert np.array_equal(rows, before[0]) and np.array_equal(keys, before[1])


# -- arrays, files, merges -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("center", [False, True])
def test_arrays_are_those_of_the_sketches(center):
    rows, keys = rows_and_keys(offset=1.0)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L, center=center)
    sketches = list(groups.values())
    assert groups.group_keys.tolist() == list(groups)
    assert groups.group_rows.tolist() == [one.n_rows for one in sketches] and groups.n_rows == len(rows)
    assert groups.shrinkages.tolist() == [one.shrinkage for one in sketches]
    assert groups.squared_norms.tolist() == [one.squared_norm for one in sketches]
    assert groups.facts()["n_groups"] == len(groups) == len(sketches) > 100


@pytest.mark.parametrize("names", [False, True])
def test_files(tmp_path, names):
    rows, keys = rows_and_keys()
    keys = np.array([f"né-{key}" for key in keys]) if names else keys - 2**62
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L)
    groups.notes = {"day": 3}
    groups.save(tmp_path / "groups.fsk")
    again = fs.load(tmp_path / "groups.fsk")
    assert (tmp_path / "groups.fsk").read_bytes() == groups.to_bytes() == again.to_bytes()
    assert again.notes == {"day": 3} and repr(again) == repr(groups)
    assert_bits(again, rows, keys)
    assert pickle.loads(pickle.dumps(groups)).to_bytes() == groups.to_bytes() == groups.copy().to_bytes()
    assert isinstance(fs.GroupSketches.load(tmp_path / "groups.fsk"), fs.GroupSketches)


def test_a_sketch_is_the_callers_own():
    rows, keys = rows_and_keys(600)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L)
    before = groups.to_bytes()
    groups[3].update(rows)
    assert groups.to_bytes() == before and groups[3].n_rows == (keys == 3).sum()
    with pytest.raises(KeyError):
        groups[1000]
    assert 3 in groups and "3" not in groups and groups.get("x") is None


@pytest.mark.parametrize("center", [False, True])
def test_merges(center):
    rows, keys = rows_and_keys()
    parts = [
        fs.sketch_groups(rows[part], by=keys[part], sketch_size=L, center=center)
        for part in (slice(0, 900), slice(900, None))
    ]
    both = fs.merge([part.copy() for part in parts])
    assert set(both) == set(keys.tolist()) and both.n_rows == len(rows)
    for key in both:
        mine = [part[key] for part in parts if key in part]
        assert both[key].to_bytes() == fs.merge(mine).to_bytes()
    assert fs.from_bytes(both.to_bytes()).to_bytes() == both.to_bytes()
    assert both.shrinkages.tolist() == [one.shrinkage for one in both.values()]


def test_what_does_not_merge():
    rows, keys = rows_and_keys(300)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L)
    with pytest.raises(ValueError, match="keys of type str, this model of int"):
        groups.merge(fs.sketch_groups(rows, by=keys.astype(str), sketch_size=L))
    with pytest.raises(ValueError, match="sketch_size=7"):
        groups.merge(fs.sketch_groups(rows, by=keys, sketch_size=7))
    with pytest.raises(ValueError, match="n_features=12"):
        groups.merge(fs.sketch_groups(rows[:, :12], by=keys, sketch_size=L))


def test_a_group_of_few_rows_takes_up_its_rows():
    n, d = 20_000, 64
    rows = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    keys = np.arange(n) % 4000
    groups = fs.sketch_groups(rows, by=keys, sketch_size=32)
    assert len(groups.to_bytes()) < 1.1 * rows.nbytes + 4000 * 120
    assert np.array_equal(groups[7].sketch().shape, (5, d)) and groups[7].error_bound < 1e-4
    assert not groups.shrinkages.any()


# -- keys ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_column_of_an_array(tmp_path, place):
    rows, keys = rows_and_keys(800)
    table = np.insert(rows, place if place >= 0 else 13, keys, axis=1)
    assert_bits(fs.sketch_groups(table, by=place, sketch_size=L), rows, keys)
    np.save(tmp_path / "t.npy", table)
    assert_bits(fs.sketch_groups(tmp_path / "t.npy", by=place, sketch_size=L), rows, keys)
    some = fs.sketch_groups(table, by=place, columns=[3, 1], sketch_size=2)
    assert some[5].to_bytes() == fs.FrequentDirections(2, solver="gram").update(rows[keys == 5][:, [3, 1]]).to_bytes()


def column_of_strings(folder, kind, rows, names, *, missing=None):
    """Rows with a column "shop" of strings, as whatever `kind` says; one may be missing."""
    names = [None if k == missing else str(name) for k, name in enumerate(names)]
    columns = {f"x{k}": rows[:, k] for k in range(3)} | {"shop": names} | {f"x{k}": rows[:, k] for k in range(3, 13)}
    if kind == "csv":
        lines = [",".join(columns)]
        for k in range(len(rows)):
            lines.append(",".join("" if value[k] is None else str(value[k]) for value in columns.values()))
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        return folder / "t.csv"
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(columns)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(columns)
    if kind == "table":
        return table
    if kind == "categories":
        shops = table["shop"].combine_chunks().dictionary_encode()
        table = table.set_column(3, "shop", shops)
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / "t.parquet", row_group_size=170)
    return folder / "t.parquet"


@pytest.mark.parametrize("kind", ["csv", "parquet", "categories", "table", "pandas", "polars"])
def test_a_column_of_strings(tmp_path, kind):
    rows, keys = rows_and_keys(500)
    names = np.array([f"shop {key}" for key in keys])
    source = column_of_strings(tmp_path, kind, rows, names)
    assert_bits(fs.sketch_groups(source, by="shop", sketch_size=L), rows, names)
    some = fs.sketch_groups(source, by="shop", columns=["x4", "x1"], sketch_size=2)
    mine = fs.FrequentDirections(2, solver="gram").update(rows[names == "shop 5"][:, [4, 1]])
    assert some.feature_names == ("x4", "x1") and some["shop 5"].to_bytes() == named(mine, some).to_bytes()
    missing = column_of_strings(tmp_path, kind, rows, names, missing=333)
    where = r"t\.csv, line 335" if kind == "csv" else ""
    with pytest.raises(ValueError, match=rf"{where}: the keys of groups must not be missing: row 333 is None"):
        fs.sketch_groups(missing, by="shop")
    with pytest.raises(ValueError, match="no column 'shops'"):
        fs.sketch_groups(source, by="shops")


def test_a_column_of_integers_in_parquet(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows, keys = rows_and_keys(500)
    large = keys + 2**60  # no double has them
    for k, part in enumerate(np.array_split(np.arange(500), 3)):
        table = {"id": large[part], **{f"x{j}": rows[part, j] for j in range(13)}}
        parquet.write_table(pyarrow.table(table), tmp_path / f"{k}.parquet")
    assert_bits(fs.sketch_groups(tmp_path, by="id", sketch_size=L), rows, large)


def test_several_files(tmp_path):
    rows, keys = rows_and_keys(800)
    table = np.column_stack([keys, rows])
    for k, part in enumerate(np.array_split(table, 3)):
        np.save(tmp_path / f"{k}.npy", part)
    assert_bits(fs.sketch_groups(tmp_path / "*.npy", by=0, sketch_size=L), rows, keys)
    table[500, 0] = np.nan
    np.save(tmp_path / "1.npy", table[267:534])
    with pytest.raises(ValueError, match=r"1\.npy: the keys of groups must not be missing: row 233 is nan"):
        fs.sketch_groups(tmp_path / "*.npy", by=0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([1, None, 2], "the rows: the keys of groups must not be missing: row 1 is None"),
        (["a", "b", np.nan], "must not be missing: row 2 is nan"),
        ([1.0, np.nan, 2.0], "must not be missing: row 1 is nan"),
        ([1.0, 2.0, 2.5], r"must be integers or strings: row 2 is .*2\.5"),
        (["a", 1, "b"], "the keys of groups must be all integers or all strings: row 1 has 1"),
        ([b"a", "b", "b"], "the keys of groups must be all integers or all strings: row 0 has b'a'"),
        (np.array([1, 2, 2**63], np.uint64), r"below 2\*\*63, got 9223372036854775808"),
        ([1, -(2**70), 3], r"within 64 bits: row 1 is -1180591620717411303424"),
        ([True, False, True], "keys of groups must be integers or strings, got dtype bool"),
        ([1, 2], "by has 2 keys, the rows has 3 rows"),
        ([[1, 2, 3]], r"by must be a column, or the keys of the rows \(n,\), got shape \(1, 3\)"),
    ],
)
def test_keys_that_are_none(keys, message):
    if isinstance(keys, list) and len({type(key) for key in keys}) > 1:
        keys = np.array(keys, dtype=object)
    with pytest.raises(ValueError, match=message):
        fs.sketch_groups(np.eye(3), by=keys)


def test_keys_of_one_type(monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 1)
    by = np.array(["a", 1], dtype=object)
    with pytest.raises(ValueError, match="row 1: the key 1, after 'a': keys must be all integers or all strings"):
        fs.sketch_groups(np.eye(2), by=by)


def test_rows_that_cannot_be():
    for bad in (0, 2, 3):
        rows = np.eye(4)
        rows[bad, 1] = np.inf
        with pytest.raises(ValueError, match=f"the rows: rows must be finite: row {bad} holds"):
            fs.sketch_groups(rows, by=[1, 1, 2, 2])
    with pytest.raises(TypeError, match="by must be"):
        fs.sketch_groups(rows, by=None)
    with pytest.raises(ValueError, match="no names of columns"):
        fs.sketch_groups(np.eye(4), by="shop")
    with pytest.raises(ValueError, match="4 columns, got position 9"):
        fs.sketch_groups(np.eye(4), by=9)
    with pytest.raises(ValueError, match="method must be one of"):
        fs.sketch_groups(np.eye(4), by=0, method="tfd")
    with pytest.raises(ValueError, match="no column but 0"):
        fs.sketch_groups(np.ones((4, 1)), by=0)


def test_no_rows():
    groups = fs.sketch_groups(np.empty((0, 4)), by=0)
    assert len(groups) == 0 and not groups and groups.n_rows == 0 and groups.n_features is None
    assert fs.from_bytes(groups.to_bytes()).to_bytes() == groups.to_bytes()
    assert groups.group_rows.shape == groups.shrinkages.shape == (0,)


# -- a stranger's file -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("count", lambda a: a.__setitem__((0, 0), 99)),
        ("count", lambda a: a.__setitem__((0, 1), a[0, 0] + 1)),
        ("count", lambda a: a.__setitem__((0, 2), 17)),
        ("count", lambda a: a.__setitem__((0, 3), -1)),
        ("count", lambda a: a.__setitem__((0, 4), 3)),
        ("book", lambda a: a.__setitem__((0, 0), np.nan)),
        ("rows", lambda a: a.__setitem__((0, 0), np.nan)),
        ("tails", lambda a: a.__setitem__((0, 0), -1.0)),
        ("keys", lambda a: a.__setitem__(1, a[0])),
    ],
)
def test_what_no_groups_could_have(name, change):
    rows, keys = rows_and_keys(900)
    groups = fs.sketch_groups(rows, by=keys, sketch_size=L)
    state, arrays = groups._state()
    arrays = {key: array.copy() for key, array in arrays.items()}
    assert fs.from_bytes(files.pack(about_of(groups, state), arrays)).n_rows == 900  # as it was written
    change(arrays[name])
    about = about_of(groups, state)
    with pytest.raises(fs.StateError, match=r".+"):
        fs.from_bytes(files.pack(about, arrays))
