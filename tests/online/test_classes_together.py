"""The states of all classes learn together: each as it would alone, whatever the threads and the parts of a batch."""

import numpy as np
import pytest
from scipy import sparse

from fastsketch import AdaptiveSubgradient, SketchedNewton
from fastsketch._kernels import pool
from fastsketch.online import _model_state

CLASSES = 6  # more than diagonal learners walk side by side


def rows_of(form, n=330, d=240):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((n, d))
    y = (x[:, :CLASSES] + 0.5 * rng.standard_normal((n, CLASSES))).argmax(axis=1)
    y[:CLASSES] = np.arange(CLASSES)  # all are known when the first rows have come
    if form == "dense":
        return x, y
    return sparse.csr_array(np.where(rng.random((n, d)) < 0.1, x, 0.0)), y


MODELS = {
    "newton": lambda **more: SketchedNewton(5, **more),
    "bounded": lambda **more: SketchedNewton(5, constraint="current", loss="squared_hinge", **more),
    "adaptive": lambda **more: AdaptiveSubgradient(5, **more),
    "diagonal": lambda **more: AdaptiveSubgradient(method="ada_diag", **more),
}


def everything(model):
    return [model.coef, np.asarray(model.intercept), model.last_scores, np.array([model.progress["cumulative_loss"]])]


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("name", MODELS)
def test_a_class_learns_as_a_model_of_its_own(name, form):
    x, y = rows_of(form)
    plain = {"calibrate": False, "scale": None}
    model = MODELS[name](classes=range(CLASSES), **plain).update(x, y)
    for k in range(CLASSES):
        alone = MODELS[name](classes=(False, True), **plain).update(x, y == k)
        np.testing.assert_array_equal(model.coef[k], alone.coef)
        np.testing.assert_array_equal(model.last_scores[:, k], alone.last_scores)


@pytest.mark.usefixtures("threaded_blas")
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["newton", "adaptive"])
def test_bits_depend_on_neither_threads_nor_parts(monkeypatch, name, form):
    x, y = rows_of(form)
    expected = everything(MODELS[name]().update(x, y))
    before = pool.get()
    try:
        for threads, part in ((1, 1), (2, 7000), (3, 1 << 30)):
            pool.use(threads)
            monkeypatch.setattr(_model_state, "PART_BYTES", part)
            for wanted, found in zip(expected, everything(MODELS[name]().update(x, y)), strict=True):
                np.testing.assert_array_equal(found, wanted)
    finally:
        pool.use(before)


@pytest.mark.parametrize("part", [1, 1 << 20])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_refused_row_is_named_and_leaves_all_classes_as_they_were(monkeypatch, form, part):
    monkeypatch.setattr(_model_state, "PART_BYTES", part)
    x, y = rows_of(form)
    model = SketchedNewton(5, scale=None).update(x, y)
    before = everything(model)
    bad = x.copy() if form == "dense" else x.toarray()
    bad[40] *= 1e200
    with pytest.raises(FloatingPointError, match=f"row {model.n_rows + 41}"):
        model.update(bad if form == "dense" else sparse.csr_array(bad), y)
    for wanted, found in zip(before, everything(model), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_features_beyond_the_range_are_named_by_row_in_any_part(monkeypatch):
    monkeypatch.setattr(_model_state, "PART_BYTES", 1)
    x, y = rows_of("dense")
    x[33, 2] = 1e300
    with pytest.raises(FloatingPointError, match="features left the range of numbers in row 34"):
        SketchedNewton(5).update(x, y)


def test_no_rows_change_nothing():
    x, y = rows_of("dense")
    model = SketchedNewton(5).update(x, y)
    before = model.coef
    model.update(x[:0], y[:0])
    np.testing.assert_array_equal(model.coef, before)
    assert model.last_scores.shape == (0, CLASSES)
