"""Merges at every fill level of both sides, and what is said where an eigensolver is given numbers out of range."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.sketching._engines import DenseEngine, _dense_engine
from tests.helpers import DTYPES, METHODS, tol

D = 9
RNG = np.random.default_rng(0)
DENSE = 3.0 + RNG.standard_normal((30, D))
SCARCE = np.eye(D)[RNG.integers(D, size=30)] * RNG.standard_normal((30, 1))
# engine: rows and parameters; a buffer takes five rows or four, a block of a map four
ENGINES = {
    "gram": (DENSE, {"solver": "gram", "buffer_size": 2}),
    "svd": (DENSE, {"solver": "svd", "buffer_size": 2}),
    "exact": (DENSE, {"solver": "exact"}),
    "sparse": (SCARCE, {"solver": "gram", "buffer_size": 2}),
    "mapped": (DENSE, {"compressor": fs.Compressor("srht", rows_out=3, block_rows=4)}),
}
LEVELS = range(8)  # none, each of the first buffer, each after a shrink


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "parameters", [{}, {"method": "pfd"}, {"buffer_size": 2}, {"solver": "svd"}, {"solver": "exact"}]
)
def test_the_rows_of_a_sketch_pass_the_buffer_of_another_as_they_lie(monkeypatch, parameters, dtype):
    monkeypatch.setattr(_dense_engine, "EXACT_BLOCK", 7)
    parts = [2.0**n * RNG.standard_normal((n, D)) for n in (1, 2, 3, 5, 9, 16)]
    sketches = [fs.FrequentDirections(4, **{"solver": "gram", **parameters, "dtype": dtype}).update(x) for x in parts]
    before = [sketch.to_bytes() for sketch in sketches]
    exact = parameters.get("solver") == "exact"

    def total(sketch):
        b = sketch.sketch().astype(np.float64)
        return sketch.copy()._engine.gram() if exact else b.T @ b

    for one in sketches:
        for two in sketches:
            rows = two.copy()._engine.settled_rows()
            expected = total(one) + total(two) if exact else total(one.copy().update(rows))
            merged = one.copy().merge(two)
            assert np.abs(total(merged) - expected).max() <= tol(dtype, merged.squared_norm)
            assert merged.n_rows == one.n_rows + two.n_rows
            assert merged.squared_norm == pytest.approx(one.squared_norm + two.squared_norm, rel=1e-15)
    assert [sketch.to_bytes() for sketch in sketches] == before


def test_the_square_of_what_fading_has_left_need_not_be_a_number():
    rows = 1e90 * RNG.standard_normal((18, D))  # after which there has just been a shrink
    one = fs.FrequentDirections(4, solver="gram", method="fd").update(rows).fade(1e-322)
    b, twice = one.sketch(), one.copy().merge(one).sketch()
    assert np.abs(twice.T @ twice - 2 * b.T @ b).max() <= tol(np.float64, one.squared_norm)


@pytest.mark.covering(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_fill_level_of_both_sides(monkeypatch, engine, center, dtype, method):
    monkeypatch.setattr(_dense_engine, "EXACT_BLOCK", 5)
    rows, parameters = ENGINES[engine]

    def learned(some):
        given = sparse.csr_array(some) if engine == "sparse" else some
        return fs.FrequentDirections(3, method=method, center=center, dtype=dtype, **parameters).update(given)

    first = [learned(rows[:n]) for n in LEVELS]
    second = [learned(rows[20 : 20 + n]) for n in LEVELS]
    for n, one in zip(LEVELS, first, strict=True):
        for m, other in zip(LEVELS, second, strict=True):
            merged = one.copy().merge(other)
            assert merged.n_rows == n + m
            if engine == "mapped" or not n + m:  # of the rows behind a map nothing is certain
                continue
            a, b = np.vstack([rows[:n], rows[20 : 20 + m]]), merged.sketch().astype(np.float64)
            a = a - a.mean(axis=0) * center
            off = np.linalg.eigvalsh(a.T @ a - b.T @ b) - (merged.alpha - merged.alpha0)
            assert np.abs(off).max() <= merged.error_bound + tol(np.float64, np.sum(a * a))
    assert first[-1]._engine.kind == (engine if engine in ("sparse", "mapped") else "dense")


def test_the_block_of_an_exact_sum_that_has_room_for_one_row_more():
    a, b = (fs.FrequentDirections(7, center=True).update(RNG.standard_normal((n, D))) for n in (254, 10))
    assert a.copy().merge(b).n_rows == b.copy().merge(a).n_rows == 264


@pytest.mark.parametrize("engine", ["gram", "svd", "sparse"])
def test_a_status_of_our_own_is_not_said_to_be_of_lapack(engine):
    rows, parameters = ENGINES[engine]
    sketch = fs.FrequentDirections(3, center=True, **parameters)
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        for _ in range(4):
            sketch.update(sparse.csr_array(rows) if engine == "sparse" else rows, sample_weight=1e308)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_merge_is_undone(when, monkeypatch):
    """Merges into a dense buffer change it where it lies: wherever they end, all is as it was."""
    rows = np.random.default_rng(0).standard_normal((200, 30))
    one, other = (fs.FrequentDirections(6, solver="gram").update(part) for part in (rows[:103], rows[103:126]))
    one.spectrum()
    before, theirs, absorb_engine = one.to_bytes(), other.to_bytes(), DenseEngine.absorb_engine

    def interrupted(self, *args, **kwargs):
        if when == "after":
            absorb_engine(self, *args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DenseEngine, "absorb_engine", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.merge(other)
    assert (one.to_bytes(), other.to_bytes()) == (before, theirs)
    again = fs.from_bytes(before)
    assert one.merge(other).to_bytes() == again.merge(other).to_bytes()
