"""Forgetting: what came before counts decay^age in H, against the algorithms with an explicit H and against none."""

import io

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch import reference
from fastsketch._kernels.online.numbers import ALPHA, FADED, FLOOR
from tests.helpers import papers, same_state
from tests.online.test_newton import stream

METHODS = ("rfd", "fd", "pfd")


def newton(decay=1.0, **parameters):
    return papers.SketchedNewton(**{"sketch_size": 5, "alpha0": 1.0, "loss": "logistic", **parameters}, decay=decay)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", ["current", "next", "both", None])
@pytest.mark.parametrize("decay", [0.999, 0.97, 0.5])
def test_newton_against_an_explicit_h(method, constraint, decay):
    rows, y = stream(400)
    given = {"method": method, "alpha0": 2.0, "loss": "logistic", "constraint": constraint, "decay": decay}
    w, _, scores = reference.fast_online_newton(rows, y, sketch_size=5, **given)
    for x in (rows, sparse.csr_array(rows)):
        model = newton(**given).update(x, y)
        # M is changed by every row until the next shrink, where the reference inverts H
        assert np.allclose(model.last_scores, scores, rtol=0, atol=1e-8 * max(1, np.abs(scores).max()))
        assert np.allclose(model.coef, w, rtol=0, atol=1e-8 * max(1, np.abs(w).max()))


def test_alpha_is_put_back():
    rows, y = stream(400)
    model = newton(0.5, method="fd", alpha0=2.0)
    seen = []
    for x, t in zip(rows, y, strict=True):
        model.update(x, t)
        seen.append(model.alpha)
        assert 0 < model._learned.scalar[FADED] <= 1 and model._learned.scalar[FLOOR] == 2.0
    assert min(seen) >= 1.0 and max(seen) == 2.0 and len(set(seen)) > 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alpha0", [None, 3.0])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_any_batches_give_the_same_bits(method, alpha0, as_sparse):
    if alpha0 is None and method != "rfd":
        pytest.skip("needs alpha0")
    rows, y = stream(300)
    rows[:7] = 0  # they fade nothing: there is nothing before them
    x = sparse.csr_array(rows) if as_sparse else rows
    given = {"method": method, "alpha0": alpha0}
    whole = newton(0.98, **given).update(x, y)
    for size in (1, 13, 64):
        some = newton(0.98, **given)
        if as_sparse and size < 13:
            some.update(x[:13], y[:13])
        for i in range(some.n_rows, 300, size):
            some.update(x[i : i + size], y[i : i + size])
        same_state(whole, some)


def test_a_long_silence_is_as_a_new_beginning():
    """Rows without a gradient fade H down to alpha0, and no further: the next step is no longer than the first was."""
    rows, y = stream(600)
    model = fs.SketchedNewton(5, loss="squared_hinge", alpha0=1.0, constraint=None, decay=0.9)
    model.update(rows[:300], y[:300])
    still = np.zeros((5000, rows.shape[1]))
    model.update(still, np.ones(5000))
    assert 0.5 <= model.alpha <= 1.0 and np.abs(model._learned.space.small).max() < 1e-100
    model.update(rows[300:], y[300:])
    assert np.isfinite(model.coef).all() and model.alpha >= 0.5


def test_saved_in_the_middle():
    rows, y = stream(500)
    model = newton(0.99).update(rows[:237], y[:237])
    file = io.BytesIO(model.to_bytes())
    other = fs.load(file)
    assert other.decay == 0.99
    same_state(model.update(rows[237:], y[237:]), other.update(rows[237:], y[237:]))


def test_what_is_no_state_is_refused():
    rows, y = stream(100)
    model = newton(0.99).update(rows, y)
    state, arrays = model._state()
    for entry, value in ((FADED, 0.0), (FADED, 1.5), (FADED, np.nan), (FLOOR, -1.0), (FLOOR, 1e9), (FLOOR, np.inf)):
        broken = {**arrays, "0.scalar": arrays["0.scalar"].copy()}
        broken["0.scalar"][entry] = value
        with pytest.raises(ValueError):
            newton(0.99)._validate(state, broken)
    without = {name: array for name, array in arrays.items() if name != "0.scalar"}
    with pytest.raises(ValueError, match="'scalar' is missing"):
        newton(0.99)._validate(state, without)


def test_newton_models_that_cannot_forget():
    with pytest.raises(ValueError, match="decay must be 1"):
        newton(0.9, alpha0=0.0)
    with pytest.raises(ValueError, match="fade"):
        newton(alpha0=0.0).fade(0.9)


@pytest.mark.parametrize("make", [fs.SketchedNewton, fs.AdaptiveSubgradient])
@pytest.mark.parametrize("k", [2, 3])
def test_fade_is_decay_by_hand_of_learners_as_they_come(make, k):
    """Fade models with the diagonal learner beside them, and the read-out."""
    rows, _ = stream(200)
    labels = np.arange(200) * 7 % k
    by_itself, by_hand = make(5, decay=0.97).update(rows, labels), make(5)
    for i in range(200):
        by_hand.fade(0.97).update(rows[i], labels[i])
    assert np.allclose(by_itself.coef, by_hand.coef, rtol=1e-8, atol=1e-8)


def test_fade_is_decay_by_hand():
    """fade(g) before every row is decay=g, and after a batch it is the decay of that batch."""
    rows, y = stream(200)
    by_itself, by_hand = newton(0.97), newton()
    by_itself.update(rows, y)
    for i in range(200):
        by_hand.fade(0.97).update(rows[i], y[i])
    assert np.allclose(by_itself.coef, by_hand.coef, rtol=1e-12, atol=1e-12)
    assert np.isclose(by_hand.alpha, by_itself.alpha)
    for factor in (1e-300, 1.0):
        before = by_hand.coef
        assert (by_hand.fade(factor).coef == before).all()
    assert by_hand.alpha == by_hand._learned.scalar[ALPHA] == 1.0
    by_hand.update(rows, y)
    assert np.isfinite(by_hand.coef).all()


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, np.nan, "a", None])
def test_factors_that_are_none(factor):
    with pytest.raises((TypeError, ValueError), match="factor"):
        newton().fade(factor)
    with pytest.raises((TypeError, ValueError), match="decay"):
        newton(factor)


def test_faded_models_follow_a_truth_that_moves():
    """A stream whose truth is exchanged for its opposite: after it, decay is right far sooner."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((24000, 20))
    y = np.sign(rows @ rng.standard_normal(20) + 3 * rng.standard_normal(24000))
    y[20000:] *= -1
    late = {}
    for decay in (1.0, 0.99):
        model = fs.SketchedNewton(5, decay=decay).update(rows[:20500], y[:20500])
        scores = model.update(rows[20500:21500], y[20500:21500]).last_scores
        late[decay] = np.mean(np.sign(scores) == y[20500:21500])
    assert late[0.99] > 0.78 and late[1.0] < 0.7, late


# -- adaptive subgradients ---------------------------------------------------------------------------------------------
REFERENCES = {
    "ada_fd": reference.adaptive_frequent_directions,
    "ada_ffd": reference.adaptive_fast_frequent_directions,
    "fd_son": reference.sketched_newton_subgradient,
    "ada_full": reference.adaptive_full,
    "ada_diag": reference.adaptive_diagonal,
}


def adaptive(method, decay=1.0, **parameters):
    given = {"loss": "logistic", "learning_rate": 0.5, "delta": 0.1, **parameters}
    return papers.AdaptiveSubgradient(5, method=method, decay=decay, **given)


@pytest.mark.parametrize("method", [name for name in REFERENCES if name != "fd_son"])  # its weights 1 / sqrt(t) differ
@pytest.mark.parametrize("decay", [0.999, 0.9, 0.5])
def test_adaptive_against_an_explicit_h(method, decay):
    rows, y = stream(300)
    rows[100:130] = 0  # they fade as well

    def subgradient(t, w):
        x = rows[t - 1]
        z = float(w @ x)
        return np.logaddexp(0, -y[t - 1] * z), -y[t - 1] / (1 + np.exp(y[t - 1] * z)) * x

    sizes = {} if method in ("ada_full", "ada_diag") else {"sketch_size": 5}
    given = {"learning_rate": 0.5, "delta": 0.1, "decay": decay, **sizes}
    w, _ = REFERENCES[method](rows.shape[1], len(rows), subgradient=subgradient, **given)
    for x in (rows, sparse.csr_array(rows)):
        model = adaptive(method, decay).update(x, y)
        assert np.allclose(model.coef, w, rtol=1e-7, atol=1e-7 * np.abs(w).max())


@pytest.mark.parametrize("method", REFERENCES)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_adaptive_any_batches_give_the_same_bits(method, as_sparse):
    rows, y = stream(300)
    rows = sparse.csr_array(rows) if as_sparse else rows
    whole = adaptive(method, 0.5).update(rows, y)
    for size in (1, 13):
        some = adaptive(method, 0.5)
        for i in range(0, 300, size):
            some.update(rows[i : i + size], y[i : i + size])
        same_state(whole, some)
    assert np.isfinite(whole.coef).all()


def test_adaptive_models_that_cannot_forget():
    for given in (
        {"method": "ogd"},
        {"method": "adam"},
        {"method": "ada_ffd", "form": "dual_averaging"},
        {"method": "ada_diag", "penalty": "l2", "penalty_strength": 0.1},
    ):
        with pytest.raises(ValueError, match="decay must be 1"):
            adaptive(decay=0.9, **given)
        with pytest.raises(ValueError, match="fade"):
            adaptive(**given).fade(0.9)


@pytest.mark.parametrize("method", REFERENCES)
def test_adaptive_fade_is_decay_by_hand(method):
    rows, y = stream(200)
    by_itself, by_hand = adaptive(method, 0.9).update(rows, y), adaptive(method)
    for i in range(200):
        by_hand.fade(0.9).update(rows[i], y[i])
    assert np.allclose(by_itself.coef, by_hand.coef, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["rfd", "fd", "pfd"])
@pytest.mark.parametrize("factor", [0.9, 0.5])
def test_a_model_that_has_faded_by_hand_is_kept(method, factor):
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((60, 5)), rng.integers(0, 2, 60)
    options = {} if method != "pfd" else {"beta": 0.2}
    model = fs.SketchedNewton(5, alpha0=3.0, method=method, **options).update(rows[:5], labels[:5])
    model.fade(factor).update(rows, labels)
    assert fs.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
