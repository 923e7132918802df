"""alpha0 found from the first row that is not zero."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.helpers import papers


def stream(zeros=0, n=60, d=12, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (n, d)) * (rng.random((n, d)) < 0.25) * 1.0
    rows[zeros] = rows[zeros] + 1.0
    rows[:zeros] = 0.0
    return rows, np.where(rng.random(n) < 0.5, 1.0, -1.0)


@pytest.mark.parametrize("zeros", [0, 1, 5])
def test_it_is_a_share_of_the_first_row_that_is_not_zero(zeros):
    rows, y = stream(zeros)
    square = float((rows[zeros] ** 2).sum())
    for loss, curvature, share in (
        ("squared_hinge", "gradient", 0.01),
        ("square", "gradient", 3.0),
        ("square", "loss", 0.2),
        ("squared_hinge", "loss", 0.2),
    ):
        found = papers.SketchedNewton(3, loss=loss, curvature=curvature).update(rows, y)
        given = papers.SketchedNewton(3, loss=loss, curvature=curvature, alpha0=share * square).update(rows, y)
        assert np.array_equal(found.coef, given.coef) and found.alpha == given.alpha


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_any_split_and_any_resume_has_the_same_bits(form):
    rows, y = stream(zeros=4)
    x = form(np.hstack([rows, np.zeros((len(rows), 60))]))
    whole = papers.SketchedNewton(3).update(x, y)
    for cuts in ([2], [4], [5], [1, 2, 3, 4, 5, 6], range(1, 60)):
        model, first = papers.SketchedNewton(3), 0
        for stop in [*cuts, len(y)]:
            model = fs.from_bytes(model.update(x[first:stop], y[first:stop]).to_bytes())
            first = stop
        assert np.array_equal(model.coef, whole.coef)


def test_a_refused_batch_leaves_it_open():
    model = papers.SketchedNewton(3).update(np.zeros((2, 4)), [1.0, 1.0])
    assert model.alpha == 0.0 and model.n_rows == 2
    before = model.to_bytes()
    with pytest.raises(ValueError, match="row 1 holds a NaN"):
        model.update([[1.0, 1.0, 1.0, 1.0], [np.nan, 0.0, 0.0, 0.0]], [1.0, 1.0])
    with pytest.raises(ValueError, match="the label of row 0"):
        model.update(np.ones((1, 4)), [0.5])
    assert model.to_bytes() == before
    assert model.update(np.ones((1, 4)), [1.0]).alpha == pytest.approx(0.04)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_length_of_the_rows_changes_nothing_much(scale):
    rows, y = stream(n=400)
    y = np.where(rows[:, 0] >= rows[:, 1], 1.0, -1.0)
    model = papers.SketchedNewton(5).update(scale * rows, y)
    one = papers.SketchedNewton(5).update(rows, y)
    assert np.allclose(model.coef * scale, one.coef, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_named_by_row_and_column(form, bad):
    rows = np.ones((4, 3))
    rows[2, 1] = bad
    model = fs.SketchedNewton(2)
    with pytest.raises(ValueError, match="row 2 holds a NaN or an infinity in column 1$"):
        model.update(form(rows), [0, 1, 0, 1])
    assert model.n_rows == 0
