"""Slots of columns: what a model of wide sparse rows keeps, and the bits that must not depend on it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import fastsketch as fs
from fastsketch._kernels.features.columns import INTERCEPT, ColumnMap, row_scores
from fastsketch._kernels.online.numbers import OLD, ROWS
from fastsketch.online import _row_inputs
from tests.helpers import papers

WIDE = 2**31 - 1
MODELS = {
    "rfd": lambda **more: papers.SketchedNewton(3, **more),
    "papers": lambda **more: papers.SketchedNewton(3, loss="square", loss_scale=2.0, alpha0=0.0, **more),
    "pfd-next": lambda **more: papers.SketchedNewton(3, method="pfd", alpha0=1.0, constraint="next", **more),
    "ffd": lambda **more: papers.AdaptiveSubgradient(3, **more),
    "ffd-dual-l2": lambda **more: papers.AdaptiveSubgradient(
        3, form="dual_averaging", penalty="l2", penalty_strength=0.01, **more
    ),
    "fd": lambda **more: papers.AdaptiveSubgradient(3, method="ada_fd", **more),
    "fd-son": lambda **more: papers.AdaptiveSubgradient(3, method="fd_son", **more),
    "diag": lambda **more: papers.AdaptiveSubgradient(method="ada_diag", **more),
    "diag-l1": lambda **more: papers.AdaptiveSubgradient(
        method="ada_diag", penalty="l1", penalty_strength=0.01, **more
    ),
    "adam": lambda **more: papers.AdaptiveSubgradient(method="adam", **more),
}


def stream(d=1000, n=150, active=300, seed=0):
    """Draw rows of 4 of `active` columns of d, popular ones more often, and labels."""
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.choice(d, active, replace=False))
    some = np.array([rng.choice(active, 4, replace=False) for _ in range(n)])
    some = np.unique(np.minimum(some, rng.integers(0, active, some.shape) // 2 + 3), axis=1)
    rows = sparse.coo_array((rng.standard_normal(some.size), (np.repeat(np.arange(n), some.shape[1]), some.ravel())))
    rows = sparse.csr_array(rows.tocsr() if rows.shape[1] == active else sparse.csr_array(rows, shape=(n, active)))
    wide = sparse.csr_array((rows.data, columns[rows.indices], rows.indptr), (n, d))
    return wide, np.where(rows @ rng.standard_normal(active) > 0, 1.0, -1.0)


def learned(model, rows, y, *ends):
    for first, end in zip((0, *ends), (*ends, rows.shape[0]), strict=True):
        model.update(rows[first:end], y[first:end])
    return model


def arrays_of(model):
    """Return {name: bytes} of a model, less the room after the rows that it keeps, which follows the batches."""
    arrays = dict(model._state()[1])
    if "0.kept_indptr" in arrays:
        held = model._learned.count[ROWS] - (0 if isinstance(model, fs.SketchedNewton) else model._learned.count[OLD])
        arrays["0.kept_indptr"] = arrays["0.kept_indptr"][: held + 1]
        for name in ("0.kept_data", "0.kept_indices"):
            arrays[name] = arrays[name][: arrays["0.kept_indptr"][-1]]
    return {name: array.tobytes() for name, array in arrays.items()}


# -- the map -----------------------------------------------------------------------------------------------------------
@given(st.lists(st.lists(st.integers(0, 50) | st.integers(0, INTERCEPT), max_size=200), max_size=6), st.data())
def test_map_is_a_dict_in_order_of_appearance(batches, data):
    slots, expected = ColumnMap(), {}
    for batch in batches:
        kind = data.draw(st.sampled_from([np.int32, np.int64]))
        out = slots.add(np.array(batch, kind))
        assert out.dtype == np.int32
        assert out.tolist() == [expected.setdefault(column, len(expected)) for column in batch]
        assert slots.array().tolist() == list(expected)
        known = data.draw(st.integers(0, len(expected)))
        asked = np.array([*batch, *range(60)], kind)
        wanted = [expected[c] if expected.get(c, known) < known else known for c in asked.tolist()]
        assert slots.find(asked, known).tolist() == wanted
        if data.draw(st.booleans()):
            slots.forget(known)
            expected = {column: slot for column, slot in expected.items() if slot < known}
            assert slots.array().tolist() == list(expected)
    again = ColumnMap(slots.array())
    assert again.array().tolist() == list(expected)


def test_a_column_twice_is_refused():
    with pytest.raises(ValueError, match="column 7 has two slots, 1 and 2"):
        ColumnMap(np.array([3, 7, 7]))


def test_scores_of_rows_leave_unknown_columns_out():
    out = row_scores(
        np.array([1.0, 2.0, 3.0]), np.array([0, 2, 1], np.int32), np.array([0, 2, 2, 3]), np.array([5.0, 7.0])
    )
    assert out.tolist() == [5.0, 0.0, 21.0]


# -- the same bits -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_bits_depend_neither_on_room_nor_on_batches(name, monkeypatch):
    rows, y = stream()
    whole = arrays_of(learned(MODELS[name](), rows, y))
    for room, ends in ((1, (1, 2, 3, 50)), (7, tuple(range(1, 150))), (1000, (149,))):
        monkeypatch.setattr(_row_inputs, "MAX_INITIAL_SLOTS", room)
        assert arrays_of(learned(MODELS[name](), rows, y, *ends)) == whole


@pytest.mark.parametrize("name", MODELS)
def test_bits_are_those_of_the_renumbered_stream(name):
    """A wide stream, and the same with the columns that occur numbered from 0 on."""
    rows, y = stream(WIDE)
    columns, places = np.unique(rows.indices, return_inverse=True)
    narrow = sparse.csr_array((rows.data, places, rows.indptr), (rows.shape[0], len(columns)))
    wide_model, model = MODELS[name]().update(rows, y), MODELS[name]().update(narrow, y)
    assert wide_model.last_scores.tobytes() == model.last_scores.tobytes()
    assert wide_model.decision_function(rows).tobytes() == model.decision_function(narrow).tobytes()
    wide_state, state = arrays_of(wide_model), arrays_of(model)
    by_slot = np.frombuffer(state.pop("columns"), np.int64)
    assert np.array_equal(np.frombuffer(wide_state.pop("columns"), np.int64), columns[by_slot])
    assert wide_state == state


@pytest.mark.parametrize("name", MODELS)
def test_a_resume_has_the_bits_of_an_uninterrupted_stream(name):
    rows, y = stream()
    model = learned(MODELS[name](), rows[:70], y[:70])
    again = fs.from_bytes(model.to_bytes())
    assert again.update(rows[70:], y[70:]).to_bytes() == model.update(rows[70:], y[70:]).to_bytes()


# -- cost --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_the_widest_rows_cost_what_occurs(name):
    """2**31 - 1 columns: nothing may be made for all of them, but coef."""
    rows, y = stream(WIDE)
    model = MODELS[name]().update(rows, y)
    assert model.n_features == WIDE
    assert len(model.to_bytes()) < 3e5
    assert np.mean(model.decision_function(rows) * y > 0) > 0.5
    again = fs.from_bytes(model.copy().to_bytes())
    other, _ = stream(WIDE, seed=1)  # columns that it has not seen
    assert again.decision_function(other).tobytes() == model.decision_function(other).tobytes()


# -- nothing is left of what was refused -------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 20])
@pytest.mark.parametrize("name", MODELS)
def test_refused_rows_leave_no_columns(name, n):
    rows, y = stream()
    model, plain = learned(MODELS[name](), rows[:70], y[:70]), learned(MODELS[name](), rows[:70], y[:70])
    bad = rows[70 : 70 + n].copy()
    bad.indices[-1], bad.data[-1] = 999, 1e300
    with pytest.raises(FloatingPointError):
        model.update(bad, y[70 : 70 + n])
    assert model.to_bytes() == plain.to_bytes()
    assert model.update(rows[70:], y[70:]).to_bytes() == plain.update(rows[70:], y[70:]).to_bytes()


@pytest.mark.parametrize("name", ["rfd", "ffd", "diag"])
def test_an_interrupted_batch_leaves_no_columns(name, monkeypatch):
    rows, y = stream()
    model, plain = learned(MODELS[name](), rows[:70], y[:70]), learned(MODELS[name](), rows[:70], y[:70])
    strange, _ = stream(seed=5)
    cls = type(model._learned)

    def stopped(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cls, "learn", stopped)
        with pytest.raises(KeyboardInterrupt):
            model.update(strange, y)
    assert model.decision_function(strange).tobytes() == plain.decision_function(strange).tobytes()
    assert model.to_bytes() == plain.to_bytes()
    assert model.update(rows[70:], y[70:]).to_bytes() == plain.update(rows[70:], y[70:]).to_bytes()


# -- open vocabularies -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_open_columns(name):
    """Rows of any width from batch to batch, with the bits of rows as wide as the widest."""
    rows, y = stream()
    model, fixed = MODELS[name](open_columns=True), MODELS[name]()
    for first in range(0, 150, 10):
        some = rows[first : first + 10]
        narrow = sparse.csr_array((some.data, some.indices, some.indptr), (10, int(some.indices.max()) + 1))
        model.update(narrow, y[first : first + 10])
        fixed.update(some, y[first : first + 10])
        assert model.last_scores.tobytes() == fixed.last_scores.tobytes()
    assert model.n_features is None
    assert len(model.coef) == rows.indices.max() + 1
    assert np.array_equal(model.coef, fixed.coef[: len(model.coef)])
    assert model.decision_function(rows).tobytes() == fixed.decision_function(rows).tobytes()
    assert np.allclose(model.decision_function(rows[:, :30].toarray()), rows[:, :30] @ model.coef[:30])
    again = fs.from_bytes(model.to_bytes())
    assert again.n_features is None
    assert arrays_of(again) == arrays_of(model)
    assert again.update(rows, y).to_bytes() == model.update(rows, y).to_bytes()


def test_open_columns_need_a_form_for_sparse_rows():
    for make in (
        lambda: papers.AdaptiveSubgradient(method="ada_full", open_columns=True),
        lambda: papers.AdaptiveSubgradient(penalty="l1", penalty_strength=0.1, open_columns=True),
    ):
        with pytest.raises(ValueError, match="open_columns needs a form for sparse rows"):
            make()


def test_columns_beyond_the_width_are_named():
    rows, y = stream()
    model = papers.SketchedNewton(3).update(rows, y)
    wider = sparse.csr_array(([1.0], ([0], [1003])), (1, 1004))
    with pytest.raises(ValueError, match=r"must have 1000 columns.*got 1004.*open_columns=True"):
        model.update(wider, [1.0])
    with pytest.raises(ValueError, match="must have 1000 columns"):
        model.predict(wider)


# -- files -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (lambda c: c[:-1], "entries for"),
        (lambda c: np.concatenate([c[:-1], c[:1]]), "must not hold a column twice"),
        (lambda c: np.concatenate([c[:-1], [1000]]), r"must lie in \[0, 1000\)"),
        (lambda c: np.concatenate([c[:-1], [-1]]), r"must lie in \[0, 1000\)"),
        (lambda c: c.astype(np.int32), "int32"),
    ],
)
def test_broken_columns_are_refused(columns, message):
    rows, y = stream()
    model = papers.SketchedNewton(3).update(rows, y)
    state, arrays = model._state()
    with pytest.raises(ValueError, match=message):
        papers.SketchedNewton(3)._validate(state, {**arrays, "columns": columns(arrays["columns"])})
