"""Real targets: adaptive steps in units of residuals, and scores blended with those of a diagonal learner."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastsketch as fs
from fastsketch._kernels.online.numbers import RESIDUALS
from fastsketch._kernels.online.readout import blend_numbers

METHODS = ("ada_ffd", "ada_fd", "ada_full", "ada_diag", "fd_son", "ftfsl", "ogd", "adam")
BOTH = (fs.AdaptiveSubgradient, fs.SketchedNewton)


def stream(n=300, d=8, seed=0):
    """Draw (rows, targets): features of unlike scales, a linear target with an offset and noise."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-1, 1, d)
    x, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    return x * sizes, 20 + 3 * x @ w + rng.standard_normal(n)


def alone(loss, method, **parameters):
    form = "dual_averaging" if method == "ftfsl" else "mirror_descent"
    return fs.AdaptiveSubgradient(4, loss=loss, method=method, form=form, blend=False, **parameters)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", ["square", "absolute"])
def test_a_model_of_c_y_is_c_times_that_of_y(loss, method):
    x, y = stream(120)
    one = alone(loss, method).update(x, y)
    for c in (2.0**-30, 2.0**30):
        other = alone(loss, method).update(x, c * y)
        np.testing.assert_allclose(other.coef, c * one.coef, rtol=1e-9, atol=1e-9 * c * np.abs(one.coef).max())
        np.testing.assert_allclose(other.last_scores, c * one.last_scores, rtol=1e-9, atol=1e-9 * c)


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("c", [1e-6, 1.0, 1e6])
def test_as_it_comes_it_finds_targets_of_any_scale(cls, c):
    x, y = stream(2000)
    model = cls(loss="square").update(x, c * y)
    late = (model.last_scores / c - y)[1000:]
    assert np.sqrt(np.mean(late**2)) < 0.2 * y.std()


def test_a_learning_rate_that_is_given_keeps_its_meaning():
    x, y = stream(1)
    plain = {"method": "ogd", "scale": None, "fit_intercept": False, "loss": "square"}
    model = fs.AdaptiveSubgradient(learning_rate=0.5, **plain).update(x, y)
    np.testing.assert_allclose(model.coef, 0.5 * y[0] * x[0], rtol=1e-12)
    assert model._model_state.states.readout is None and not model._learned.setting.in_units


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("sparse", [False, True])
def test_any_split_of_the_stream_gives_the_same_bits(cls, sparse, tmp_path):
    x, y = stream(90)
    x = csr_array(x * (np.random.default_rng(1).random(x.shape) < 0.25)) if sparse else x
    whole, parts, scores = cls(4, loss="square").update(x, y), cls(4, loss="square"), []
    for first, stop in ((0, 1), (1, 2), (2, 40), (40, 90)):
        scores.append(parts.update(x[first:stop], y[first:stop]).last_scores)
        parts.save(tmp_path / "m.fsk")
        parts = fs.load(tmp_path / "m.fsk")
    assert np.array_equal(np.concatenate(scores), whole.last_scores)
    assert np.array_equal(parts.coef, whole.coef) and parts.progress == whole.progress


@pytest.mark.parametrize("cls", BOTH)
def test_the_blend_is_a_share_of_least_squares(cls):
    x, y = stream(200)
    first = cls(4, loss="square", blend=False).update(x, y)
    second = fs.AdaptiveSubgradient(loss="square", method="ada_diag").update(x, y)
    gap, share, expected = second.last_scores - first.last_scores, 0.0, []
    for t in range(200):
        expected.append(first.last_scores[t] + share * gap[t])
        seen = slice(0, t + 1)
        square = gap[seen] @ gap[seen]  # of the first row, before which both know nothing, 0
        share = np.clip(gap[seen] @ (y - first.last_scores)[seen] / square, 0, 1) if square else 0.0
    model = cls(4, loss="square").update(x, y)
    np.testing.assert_allclose(model.last_scores, expected, rtol=1e-9)
    np.testing.assert_allclose(model.coef, first.coef + share * (second.coef - first.coef), rtol=1e-9)
    np.testing.assert_allclose(model.predict(x), x @ model.coef + model.intercept, rtol=1e-9)
    assert model.progress["n_rows"] == 200


def test_blends_only_where_steps_know_the_scale():
    def blends(model):
        return model.update(*stream(5))._model_state.states.readout is not None

    assert blends(fs.SketchedNewton(loss="square")) and blends(fs.AdaptiveSubgradient(loss="square"))
    assert blends(fs.SketchedNewton(loss="square", alpha0=1.0, blend=True))
    for given in ({"alpha0": 1.0}, {"curvature": "gradient"}, {"calibrate": False}, {"blend": False}):
        assert not blends(fs.SketchedNewton(loss="square", **given))
    for given in ({"learning_rate": 0.1}, {"method": "ada_diag"}, {"calibrate": False}):
        assert not blends(fs.AdaptiveSubgradient(loss="square", **given))
    for loss in ("absolute", "huber"):
        assert not blends(fs.SketchedNewton(loss=loss)) and not blends(fs.AdaptiveSubgradient(loss=loss))


def test_rows_without_weight_and_targets_that_are_met_change_nothing():
    x, y = stream(40)
    for cls in BOTH:
        some = cls(4, loss="square", scale=None).update(x, y)
        coef = some.coef
        assert np.array_equal(some.update(x[:5], y[:5] + 99, sample_weight=0.0).coef, coef)
        zeros = cls(4, loss="square").update(x, np.zeros(40))
        assert not zeros.coef.any() and not zeros.last_scores.any()


def test_sums_that_leave_the_range_of_numbers_stay_as_they_were():
    sums, scores = np.array([1.0, 2.0]), np.empty(2)
    blend_numbers(np.array([[0.0, 1.0], [1e300, 3.0]]), np.array([1e300, 2.0]), np.ones(2), sums, scores)
    assert sums.tolist() == [3.0, 6.0] and scores[1] == 2.0


def test_what_a_file_holds_is_checked():
    x, y = stream(30)
    for name, entry, message in (("blend_sums", 1, "blend_sums"), ("0.scalar", RESIDUALS, "squared residuals")):
        model = fs.AdaptiveSubgradient(4, loss="square").update(x, y)
        state, arrays = model._state()
        arrays[name] = arrays[name].copy()
        arrays[name][entry] = -1.0
        with pytest.raises(ValueError, match=message):
            model._validate(state, arrays)
