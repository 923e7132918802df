"""The state behind a SketchHash: copies, the sample, and states that are not consistent."""

import tracemalloc

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._core.random import Key, raw_numbers
from fastsketch.neighbours.summaries._reservoir import Reservoir
from tests.helpers import DTYPES, sparse_rows

ROWS = np.random.default_rng(0).standard_normal((900, 30)) * np.linspace(2, 0.2, 30) + 1


def fresh(**options):
    return fs.SketchHash(8, **{"block_rows": 100, "seed": 3, "reservoir_size": 70, **options})


@pytest.mark.parametrize("method", ["srht", "fd", "exact", "gaussian"])
def test_a_few_rows_go_in_place(method):
    model = fresh(method=method).update(ROWS[:110])
    leaf = model._summary._current.leaf
    model.update(ROWS[110:113]).update(ROWS[113:115])
    assert model._summary._current.leaf is leaf and leaf.n_rows == 15
    model.update(ROWS[115:300])
    assert model._summary._current.leaf is not leaf and leaf.n_rows == 15


def test_a_read_leaves_the_sample_alone():
    """Two threads that save one model at once mixed up its rows."""
    model = fresh().update(ROWS[:300]).update(ROWS[300:])
    reservoir = model._summary._current.reservoir
    pieces = list(reservoir._pieces)
    assert len(pieces) > 1
    model.to_bytes()
    model.projection  # noqa: B018
    assert len(reservoir._pieces) == len(pieces)
    assert all(one is two for one, two in zip(reservoir._pieces, pieces, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_another_kind_are_converted_a_few_at_a_time(dtype):
    """A block of the exact sum holds 64,000 rows: a batch that fits it is not expanded as a whole."""
    rows = sparse_rows(np.random.default_rng(0), 40_000, 1000, 1e-4, dtype)
    model = fs.SketchHash(8, method="exact", rotation="random", dtype="float64").update(rows[:1])
    tracemalloc.start()
    model.update(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6 < rows.shape[0] * rows.shape[1] * 8
    assert model.n_rows == 40_001


@pytest.mark.parametrize("sizes", [[900], [1] * 300 + [600], [7] * 128 + [4], [0, 500, 0, 400]])
@pytest.mark.parametrize("size", [1, 70, 899, 900, 5000])
def test_the_sample_is_the_rows_of_least_priority(size, sizes):
    priority = np.concatenate([raw_numbers(3, Key.RESERVOIR, block, 0, 100) for block in range(9)])
    expected = ROWS[np.argsort(priority)[:size]]
    model, done = fresh(reservoir_size=size), 0
    for n in sizes:
        model.update(ROWS[done : done + n])
        done += n
    assert np.array_equal(model._summary.sample(), expected)
    parts = [fresh(reservoir_size=size, first_block=b).update(ROWS[100 * b : 100 * b + 100]) for b in range(9)]
    assert np.array_equal(fs.merge(parts)._summary.sample(), expected)


def test_single_rows_lie_in_few_pieces():
    """Each update copies the list of pieces."""
    one, rows = Reservoir(600, 30, dtype=np.dtype(float), seed=1), ROWS[:500]
    for i, row in enumerate(rows):
        one.add_rows(row[np.newaxis], block=0, first_row=i, block_rows=900)
    assert len(one._pieces) < 60 and one._n_stored == 500
    whole = Reservoir(600, 30, dtype=np.dtype(float), seed=1)
    whole.add_rows(rows, block=0, first_row=0, block_rows=900)
    for mine, theirs in zip(one.sorted_sample(), whole.sorted_sample(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("first", [0, 1, 3, 4, 17, 95])
def test_numbers_from_the_middle_of_a_sequence(first):
    whole = raw_numbers(3, Key.RESERVOIR, 5, 2, 100)
    np.testing.assert_array_equal(raw_numbers(3, Key.RESERVOIR, 5, 2, 5, start=first), whole[first : first + 5])


def test_reservoirs_share_rows_but_nothing_that_changes():
    one = Reservoir(50, 30, dtype=np.dtype(float), seed=1)
    one.add_rows(ROWS[:200], block=0, first_row=0, block_rows=900)
    two = one.copy()
    before = one.sorted_sample()[0].copy()
    two.add_rows(ROWS[200:], block=0, first_row=200, block_rows=900)
    assert np.array_equal(one.sorted_sample()[0], before)
    assert not np.array_equal(two.sorted_sample()[0], before)
    for rows, priority in [
        (ROWS[:5, :4], np.zeros(5, np.uint64)),
        (ROWS[:5], np.zeros(4, np.uint64)),
        (ROWS[:5], np.zeros(5)),
        (ROWS[0], np.zeros(30, np.uint64)),
    ]:
        with pytest.raises(ValueError, match="reservoir"):
            one.validate(rows, priority, n_rows=200)


def change_node(name, value):
    def change(state, arrays):
        state["nodes"][0][name] = value

    return change


def change_array(name, make):
    def change(state, arrays):
        arrays[name] = make(arrays[name])

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (change_node("start", -1), "start must be at least 0"),
        (change_node("start", 1), "cannot begin with block 1"),
        (change_node("level", 65), "level must be below"),
        (change_node("n_rows", 0), "n_rows must be at least 1"),
        (change_node("n_rows", 1.5), "n_rows must be an integer"),
        (change_node("shrinkage", float("nan")), "shrinkage"),
        (change_array("rows_0", lambda a: a[:, :5]), "rows_0"),
        (change_array("rows_0", lambda a: np.vstack([a] * 3)), "rows of node 0"),
        (change_array("mean_0", lambda a: a[:5]), "mean_0"),
        (change_array("mean_0", lambda a: a * np.nan), "finite"),
        (change_array("rows_0", lambda a: a * np.inf), "finite"),
        (change_array("rows_0", lambda a: a.astype(int)), "rows_0"),
        (change_array("leaf_out", lambda a: a[:, :5]), "array 'out'"),
        (change_array("reservoir_rows", lambda a: a[:, :5]), "reservoir"),
        (lambda state, arrays: state.update(index=-1), "index"),
        (lambda state, arrays: state.update(n_features=29), "29"),
        (lambda state, arrays: state.update(n_features=7), "at most the 7 features"),
        (lambda state, arrays: state.update(dtype="int8"), "dtype"),
        (lambda state, arrays: arrays.update(anchor=np.ones((29, 8))), "anchor must have 30 rows"),
        (lambda state, arrays: arrays.update(anchor=np.ones((30, 7))), "shape"),
        (lambda state, arrays: arrays.update(anchor=np.full((30, 8), np.nan)), "finite"),
        (lambda state, arrays: arrays.pop("rows_0"), "rows_0"),
    ],
)
def test_states_that_are_not_consistent_are_refused(change, match, monkeypatch):
    model = fresh().update(ROWS)
    state, arrays = model._state()
    change(state, arrays)
    monkeypatch.setattr(model, "_state", lambda: (state, arrays))
    with pytest.raises(fs.StateError, match=match):
        fs.from_bytes(model.to_bytes())
