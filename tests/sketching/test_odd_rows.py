"""Rows that are all alike, one row of very many entries, and interrupts where merges and read-outs are at work."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.helpers import DTYPES, interrupted, same_state, tol

FORMS = {
    "gram": (np.asarray, {"solver": "gram"}),
    "svd": (np.asarray, {"solver": "svd"}),
    "exact": (np.asarray, {"solver": "exact"}),
    "sparse": (sparse.csr_array, {"solver": "gram"}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_all_equal_are_one_direction(form, dtype):
    made, parameters = FORMS[form]
    row = np.linspace(-1, 2, 40).astype(dtype)
    rows = made(np.tile(row, (300, 1)))
    sketch = fs.FrequentDirections(6, **parameters).update(rows[:7]).update(rows[7:])
    total = 300 * np.outer(row, row).astype(np.float64)
    for one, times in ((sketch, 1), (sketch.copy().merge(sketch), 2), (fs.merge([sketch] * 70), 70)):
        b = one.sketch().astype(np.float64)
        size = times * np.trace(total)
        assert np.abs(b.T @ b - times * total).max() <= tol(dtype, size)
        assert one.n_rows == 300 * times
        assert one.error_bound <= 60 * tol(dtype, size)  # what is allowed for the rounding of as many shrinks
    resumed = fs.from_bytes(sketch.to_bytes())
    assert same_state(resumed.update(rows[:20]), sketch.update(rows[:20]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_row_of_very_many_entries(dtype, amount):
    d = amount(100_000, 10_000_000)
    entries = np.random.default_rng(0).standard_normal(d).astype(dtype)
    row = sparse.csr_array((entries, np.arange(d), [0, d]), shape=(1, d))
    sketch = fs.FrequentDirections(3).update(row)
    held = sketch.sketch(sparse=True)
    assert held.shape == (1, d)
    assert np.abs(np.abs(held.toarray()[0]) - np.abs(entries)).max() <= tol(dtype, 5)
    few = sparse.csr_array((np.ones(4, dtype), [0, 5, 9, d - 1], [0, 2, 4]), shape=(2, d))
    before = sketch.to_bytes()
    bad = few.copy()
    bad.data[1] = np.nan
    with pytest.raises(ValueError, match="row 0 holds a NaN"):
        sketch.update(bad)
    assert sketch.to_bytes() == before
    resumed = fs.from_bytes(before)
    assert same_state(sketch.update(few), resumed.update(few))
    assert sketch.error_bound <= 2.0 + tol(dtype, float(sketch.squared_norm))  # never more than the two short rows hold


@pytest.mark.parametrize("solver", ["gram", "auto"])
def test_a_merge_of_many_that_is_interrupted_or_refused_leaves_them(solver):
    rng = np.random.default_rng(0)
    many = [fs.FrequentDirections(8, solver=solver).update(rng.standard_normal((20, 30))) for _ in range(200)]
    before = [one.to_bytes() for one in many]
    whole = fs.merge(many)
    for delay in (1e-4, 1e-3, 4e-3):
        interrupted(lambda: fs.merge(many), delay)
    for odd in (fs.FrequentDirections(8, solver=solver).update(np.eye(31)), fs.SketchHash(4)):
        with pytest.raises((TypeError, ValueError)):
            fs.merge([*many[:150], odd, *many[150:]])
    assert [one.to_bytes() for one in many] == before
    assert same_state(fs.merge(many), whole)


@pytest.mark.parametrize("form", FORMS)
def test_a_read_out_that_is_interrupted_leaves_the_sketch(form):
    made, parameters = FORMS[form]
    rows = made(np.random.default_rng(0).standard_normal((500, 300)))
    sketch = fs.FrequentDirections(40, **parameters).update(rows)
    before = sketch.to_bytes()
    for delay in (1e-4, 1e-3, 3e-3):
        interrupted(sketch.sketch, delay)
    assert sketch.to_bytes() == before
    resumed = fs.from_bytes(before)
    assert np.array_equal(sketch.sketch(), resumed.sketch())
    assert same_state(sketch.update(rows[:90]), resumed.update(rows[:90]))
