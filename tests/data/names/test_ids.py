"""Ids of any type: places, columns of data frames, files."""

import copy
import pickle
import subprocess
import sys
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsketch.data import IdMap
from fastsketch.data.names._id_map import id_arrays, ids_at, no_ids, read_ids, trusted_ids

TEXTS = ["Alien", "Heat", "Solaris", "", "Ä", "日本"]
OWN = (TEXTS, [7, -1, 2**62, 0], [7, "7", b"7", uuid.UUID(int=7), (7, ("7", b""))])


def back(ids):
    return read_ids(id_arrays(ids, "x"), "x", ids.kind)


@pytest.mark.parametrize("values", OWN)
def test_places(values):
    ids = IdMap(values)
    assert list(ids) == values
    assert ids.places(values[::-1]).tolist() == list(range(len(values)))[::-1]
    assert [ids[k] for k in range(-len(values), len(values))] == values * 2
    assert values[0] in ids
    assert object() not in ids
    for other in (back(ids), trusted_ids(id_arrays(ids, "x"), "x", ids.kind), IdMap(ids)):
        assert other == ids
        assert other.places([values[1]]).tolist() == [1]
        assert len(other) == len(values)
    assert ids != IdMap(values[::-1])
    assert pickle.loads(pickle.dumps(ids)) == ids
    assert copy.deepcopy(ids) is copy.copy(ids) is ids


@given(st.lists(st.lists(st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)), max_size=30), max_size=5))
def test_integers_are_those_of_a_dict(batches):
    ids, known = no_ids(), {}
    for batch in batches:
        ids, places = ids.extended(np.array(batch, np.int64))
        assert places.tolist() == [known.setdefault(value, len(known)) for value in batch]
    assert list(ids) == list(known)


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=30), max_size=5))
def test_strings_are_those_of_a_dict(batches):
    ids, known = no_ids(), {}
    for batch in batches:
        ids, places = ids.extended(batch)
        assert places.tolist() == [known.setdefault(value, len(known)) for value in batch]
    assert list(ids) == list(known)
    assert list(back(ids)) == list(known)
    assert [ids.ascending()[0][k] for k in range(len(ids))] == sorted(known)


def test_many_ids_and_no_place_depends_on_the_process():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 30_000, 100_000)
    first = list(dict.fromkeys(numbers.tolist()))
    place = {value: k for k, value in enumerate(first)}
    expected = [place[value] for value in numbers.tolist()]
    ids, places = no_ids().extended(numbers)
    texts, same = no_ids().extended([f"id {value}" for value in numbers.tolist()])
    assert places.tolist() == same.tolist() == expected
    assert ids.ids.tolist() == first
    assert texts.places("id 30000").tolist() == [-1]
    code = "from fastsketch.data import IdMap; print(list(IdMap([f'{7 * k % 1009}' for k in range(1009)])))"
    seen = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(seen) == 1


def test_a_map_does_not_change():
    ids = IdMap(["a", "b"])
    more, places = ids.extended(["c", "a", "c"])
    assert (list(ids), list(more), places.tolist()) == (["a", "b"], ["a", "b", "c"], [2, 0, 2])
    assert ids.extended(["b"])[0] is ids
    with pytest.raises(TypeError, match="items must be strings, as the ids of the model are, got 3"):
        ids.extended([3], "items")
    assert len(ids) == 2
    assert (more[:2], more[::-2], more[-1], IdMap([7, 8])[1:]) == (["a", "b"], ["c", "a"], "c", [8])


def test_columns_of_data_frames():
    pd = pytest.importorskip("pandas")
    columns = [
        np.array(["a", "b", "a"]),
        pd.Series(["a", "b", "a"]),
        pd.Series(["a", "b", "a"], dtype="string"),
        pd.Categorical(["a", "b", "a"]),
        [1, 2, 1],
        np.array([1, 2, 1], np.uint8),
        pd.Series([1.0, 2.0, 1.0]),
        pd.array([1, 2, 1], dtype="Int64"),
        pd.Series([1, 2, 1], dtype=object),
    ]
    for name, module in (("polars", "Series"), ("pyarrow", "array")):
        try:
            make = getattr(__import__(name), module)
        except ImportError:
            continue
        columns += [make(["a", "b", "a"]), make([1, 2, 1])]
    for column in columns:
        ids, places = no_ids().extended(column)
        assert places.tolist() == [0, 1, 0]
        assert list(ids) in (["a", "b"], [1, 2])
        assert type(ids[0]) in (str, int)


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        ([1, None], ValueError, "users must not be missing: entry 1 is None"),
        (["a", np.nan], ValueError, "missing: entry 1"),
        (np.array([1.0, np.nan]), ValueError, "missing: entry 1"),
        ([1, 2.5], TypeError, "entry 0 is"),
        ([True], TypeError, "entry 0 is True, of type bool"),
        (np.array([True]), TypeError, "dtype bool"),
        (np.array(["2020"], "M8[D]"), TypeError, "dtype datetime64.*astype"),
        (["a", "\ud800"], ValueError, "Unicode text: entry 1"),
        ([2**63], ValueError, "within 64 bits: entry 0 is 9223372036854775808"),
        (np.array([2**63], np.uint64), ValueError, "below 2..63"),
        (np.eye(2, dtype=int), ValueError, r"vector of ids, got shape \(2, 2\)"),
        ({"a": 1}, TypeError, "vector of ids, got dict"),
        (3.5, TypeError, "vector of ids, got float"),
        (np.ma.masked_array([1], [True]), TypeError, "masked"),
        ([("a", None)], ValueError, "missing"),
    ],
)
def test_what_is_no_id(values, error, match):
    with pytest.raises(error, match=match):
        no_ids().extended(values, "users")


def test_unknown_ids():
    ids = IdMap(["a", "b"])
    assert ids.places(["z", "b"]).tolist() == [-1, 1]
    with pytest.raises(KeyError, match="allow has ids that the model does not know: 'z', 'y'"):
        ids.known(["z", "a", "y", "z"], "allow")
    with pytest.raises(TypeError, match="rows must be strings, as the ids of the model are, got 3"):
        ids.places([3], "rows")
    assert ids_at(ids, np.array([[1, -1]])).tolist() == [["b", None]]
    assert ids_at(IdMap([5, 6]), np.array([1, -1])).tolist() == [6, -1]
    with pytest.raises(ValueError, match="ids must be different, got 'a' again as entry 2"):
        IdMap(["a", "b", "a"])


@pytest.mark.parametrize("values", OWN)
def test_files_of_strangers(values):
    ids = IdMap(values)
    good = id_arrays(ids, "x")
    assert back(ids) == ids
    damaged = [{}, {**good, "x": good["x"].astype(np.float64)}, {**good, "x": good["x"][:-1]}]
    if "x_ends" in good:
        ends = good["x_ends"]
        damaged += [{**good, "x_ends": wrong} for wrong in (ends[:-1], ends - 1, -ends, ends[::-1], ends.astype("i4"))]
        damaged += [{**good, "x": np.where(good["x"] > 0x7F, 0xFF, good["x"]).astype(np.uint8)}]
        damaged += [{**good, "x_ends": np.append(ends, ends[-1])}, {"x": good["x"]}]
        middle = np.flatnonzero((good["x"] & 0xC0) == 0x80)[0]  # within a character
        damaged += [{**good, "x_ends": np.sort(np.append(ends, middle))}]
    elif good["x"].dtype == np.uint8:
        for text in (
            b"3",
            b"[1, 1.0]",
            b'["a", "a"]',
            b"[true]",
            b"[null]",
            b'[{"bytes": 3}]',
            b"[[1]]",
            b"{",
            b"[1e400]",
        ):
            damaged.append({"x": np.frombuffer(text, np.uint8)})
    else:
        damaged = [*damaged[:2], {"x": np.append(good["x"], good["x"][0])}, {"x": good["x"][np.newaxis]}]
    for arrays in damaged:
        with pytest.raises((ValueError, TypeError, LookupError, ArithmeticError)):
            read_ids(arrays, "x", ids.kind)
    for kind in ("words", None, ["strings"]):
        with pytest.raises(ValueError, match="ids are integers, strings, mixed"):
            read_ids(good, "x", kind)
