"""decay="auto": learners of three half-lives, weighed as the fixed share says, against it in NumPy."""

import io

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, log_softmax

import fastsketch as fs
from fastsketch.online._class_states import ScoreCalibration, start_calibration
from fastsketch.sklearn import SketchedNewtonClassifier
from tests.helpers import same_state

MODELS = (fs.SketchedNewton, fs.AdaptiveSubgradient)
DECAYS, SHARE = (1.0, 0.999, 0.98), 1e-3
FIRST_WEIGHTS = np.array([0.8, 0.1, 0.1])
FIRST_OF_LABELS = np.array([0.8, 0.1, 0.05, 0.05])
OTHERS = {"decay_rates": (0.999, 0.9), "decay_prior": 0.3, "decay_share": 0.02}


def moving(n=1200, d=6, n_classes=2, seed=0):
    """Draw rows and labels whose truth is another one in the second half."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    first, second = rng.standard_normal((2, d, n_classes))
    scores = np.where(np.arange(n)[:, None] < n // 2, rows @ first, rows @ second)
    return rows, scores.argmax(axis=1)


def scores_of(kind, x, y, n_classes, rates=DECAYS):
    """Return the scores (m, n, ...) of learners of each decay, and of the last by a read-out that forgets slowly."""
    heard, learn = [], ScoreCalibration.learn

    def noted(self, *given):
        heard.append([np.array(each) for each in given])
        return learn(self, *given)

    classes = list(range(n_classes))
    each = [kind(classes=classes, decay=g).update(x, y).last_scores for g in rates]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScoreCalibration, "learn", noted)
        kind(classes=classes, decay=rates[-1]).update(x, y)
    steady = start_calibration(len(heard[0][0]), 1 if n_classes == 2 else n_classes, decay=rates[-2])
    slowly = np.hstack([steady.learn(*given) for given in heard])
    return np.stack([*each, slowly[0] if n_classes == 2 else slowly.T])


def fixed_share(scores, losses_of, first=FIRST_WEIGHTS, share=SHARE):
    """Mix scores (g, n, ...) by weights that follow the losses losses_of(i, mixed score) (g,); return both."""
    weights, out = first.copy(), np.empty(scores.shape[1:])
    for i in range(scores.shape[1]):
        out[i] = np.tensordot(weights, scores[:, i], 1)
        losses = losses_of(i, out[i])
        if losses is not None:
            weights = weights * np.exp(losses.min() - losses)
            weights = (1 - share) * weights / weights.sum() + share * first
    return out, weights


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_labels_as_stated(kind, n_classes, as_sparse):
    rows, y = moving(n_classes=n_classes)
    x, classes = sparse.csr_array(rows) if as_sparse else rows, list(range(n_classes))
    scores = scores_of(kind, x, y, n_classes)

    def log_losses(i, _):
        if n_classes == 2:
            return np.logaddexp(0, np.where(y[i] == 1, -1, 1) * scores[:, i])
        return -log_softmax(scores[:, i], axis=1)[:, y[i]]

    expected, weights = fixed_share(scores, log_losses, FIRST_OF_LABELS)
    weights = np.append(weights[:2], weights[2:].sum())
    model = kind(classes=classes, decay="auto").update(x, y)
    np.testing.assert_allclose(model.last_scores, expected, rtol=0, atol=1e-9)
    drift = model.progress["drift"]
    half_lives = [None, *(np.log(0.5) / np.log(g) for g in DECAYS[1:])]
    assert drift["half_life"] == half_lives[weights.argmax()] and np.isclose(drift["weight"], weights.max())
    if not as_sparse:  # the mean is as linear as the learners
        w = np.atleast_2d(model.coef)
        shown = rows[:9] @ w.T + np.atleast_1d(model.intercept)
        assert np.allclose(np.squeeze(shown), model.decision_function(x[:9]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("loss", ["square", "huber", "absolute"])
def test_real_targets_as_stated(loss):
    rows, _ = moving()
    w = np.random.default_rng(1).standard_normal((2, rows.shape[1]))
    y = np.concatenate([rows[:600] @ w[0], 100 + rows[600:] @ w[1]])
    scores = np.stack([fs.SketchedNewton(loss=loss, decay=g).update(rows, y).last_scores for g in DECAYS])
    squares = [0.0, 0.0]  # mean of the last thousand, rows

    def losses(i, mixed):
        mean, count = squares
        squares[1] = min(count + 1, 1 / SHARE)
        squares[0] += ((y[i] - mixed) ** 2 - mean) / squares[1]
        return np.log1p((y[i] - scores[:, i]) ** 2 / mean) if mean else None

    expected, _ = fixed_share(scores, losses)
    model = fs.SketchedNewton(loss=loss, decay="auto").update(rows, y)
    np.testing.assert_allclose(model.last_scores, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_any_batches_and_files_give_the_same_bits(kind, as_sparse):
    rows, y = moving(500, n_classes=4)
    y[:200] %= 2  # the others come late
    x = sparse.csr_array(rows) if as_sparse else rows
    whole = kind(decay="auto").update(x, y)
    for size in (1, 64):
        some = kind(decay="auto")
        for i in range(0, 500, size):
            some.update(x[i : i + size], y[i : i + size])
            if i == 3 * size:
                some = fs.load(io.BytesIO(some.to_bytes()))
        assert same_state(whole, some)
        assert np.array_equal(whole.predict_proba(rows[:9]), some.predict_proba(rows[:9]))


def test_weights_of_rows():
    """A row of weight 0 changes no weight of a learner, a heavy one more than others; nothing overflows."""
    rows, y = moving(300)
    weights = np.where(np.arange(300) < 150, 1.0, 0.0)
    model = fs.SketchedNewton(decay="auto").update(rows, y, sample_weight=weights)
    before = model._model_state.states.mix.decay_weights.copy()
    model.update(rows[:5], y[:5], sample_weight=0.0)
    assert np.array_equal(before, model._model_state.states.mix.decay_weights)
    model.update(rows[:5], 1 - y[:5], sample_weight=1e6)
    after = model._model_state.states.mix.decay_weights
    assert np.isclose(after.sum(), 1) and after.min() >= SHARE * FIRST_OF_LABELS.min() * 0.999


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("n", [1, 40])
def test_refused_rows_leave_no_trace(kind, n):
    rows, y = moving(300)
    given = (
        {"loss": "square", "scale": None, "curvature": "gradient"}
        if kind is fs.SketchedNewton
        else {"loss": "square", "scale": None}
    )
    model = kind(decay="auto", **given).update(rows, y)
    before = model.to_bytes()
    wild = rows[:n].copy()
    wild[-1] = 1e200
    with pytest.raises((FloatingPointError, ValueError)):
        model.update(wild, np.full(n, 1e200))
    assert model.to_bytes() == before
    assert np.isfinite(model.update(rows, y).last_scores).all()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("moving", [True, False])
def test_follows_a_stream_that_moves_and_rests_where_it_does_not(kind, moving):
    """Its loss is within the bound of the fixed share of that of the best learner alone.

    Weights w, and losses l of the learners before a row: -log sum w exp(-l), added, is at most the loss of any learner
    alone, -log of its first weight, and -log(1 - SHARE) a row (Herbster and Warmuth 1998). The mean of the scores
    loses sum w l at most, as the log loss is convex, which is at most (max l - min l)^2 / 8 above (Hoeffding's lemma).
    """
    rng, n = np.random.default_rng(2), 6000
    rows = rng.standard_normal((n, 5))
    truth = np.repeat(rng.standard_normal((30, 5)) * 2, 200, axis=0)
    y = rng.random(n) < expit((rows * (truth if moving else truth[0])).sum(axis=1))
    model = kind(decay="auto").update(rows, y)
    each = scores_of(kind, rows, y.astype(int), 2)
    losses = np.logaddexp(0, np.where(y, -1, 1) * each)
    alone = losses.sum(axis=1)
    shared = alone - np.log(FIRST_OF_LABELS) - (n - 1) * np.log1p(-SHARE)
    bound = shared.min() + (np.ptp(losses, axis=0) ** 2).sum() / 8
    assert n * model.progress["log_loss"] <= bound
    assert (alone.argmin() > 0) == moving == (model.progress["drift"]["half_life"] is not None)
    assert kind().update(rows, y).progress["drift"] is None


@pytest.mark.parametrize("kind", MODELS)
def test_rates_prior_and_share_are_those_given(kind):
    rows, y = moving()
    scores = scores_of(kind, rows, y, 2, OTHERS["decay_rates"])
    first = np.array([0.3, 0.35, 0.35])

    def log_losses(i, _):
        return np.logaddexp(0, np.where(y[i] == 1, -1, 1) * scores[:, i])

    expected, weights = fixed_share(scores, log_losses, first, OTHERS["decay_share"])
    model = kind(classes=[0, 1], decay="auto", **OTHERS).update(rows, y)
    np.testing.assert_allclose(model.last_scores, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(model._model_state.states.mix.decay_weights, weights, rtol=0, atol=1e-9)
    assert same_state(fs.from_bytes(model.to_bytes()), model)
    real = kind(loss="square", decay="auto", **OTHERS).update(rows, rows[:, 0])
    assert len(real._model_state.states.mix.decay_weights) == 2 and real.progress["drift"]["half_life"] is not None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decay_rates": (0.9,)}, "decay_rates must be 2 to 7 different numbers, the largest first"),
        ({"decay_rates": (0.9, 0.99)}, "the largest first"),
        ({"decay_rates": tuple(1 - 0.1 * i for i in range(8))}, "2 to 7"),
        ({"decay_rates": (1.0, 0.0)}, "an entry of decay_rates must lie in"),
        ({"decay_rates": "fast"}, "decay_rates must be a sequence"),
        ({"decay_prior": 1.0}, "decay_prior must lie in"),
        ({"decay_share": 0.0}, "decay_share must lie in"),
        ({"decay": 0.99, "decay_share": 0.1}, "decay_share belongs to decay='auto', got decay=0.99"),
    ],
)
def test_rates_prior_and_share_that_are_none(given, message):
    for kind in MODELS:
        with pytest.raises((TypeError, ValueError), match=message):
            kind(**{"decay": "auto", **given})


def test_bad_parameters():
    for wrong in ("fast", "Auto"):
        with pytest.raises(ValueError, match=rf"decay must be a number in \(0, 1\] or 'auto', got '{wrong}'"):
            fs.SketchedNewton(decay=wrong)
    with pytest.raises(ValueError, match="decay='auto' needs calibrate"):
        fs.AdaptiveSubgradient(decay="auto", calibrate=False)
    with pytest.raises(ValueError, match="decay must be 1 with alpha0=0"):
        fs.SketchedNewton(decay="auto", alpha0=0.0)
    with pytest.raises(ValueError, match="decay must be 1 with method='adam'"):
        fs.AdaptiveSubgradient(decay="auto", method="adam")


def test_damaged_weights_are_refused():
    model = fs.SketchedNewton(decay="auto").update(*moving(50))
    for weights in ([0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]):
        other = model.copy()
        other._model_state.states.mix.decay_weights[:] = weights
        with pytest.raises(ValueError, match="decay_weights"):
            fs.load(io.BytesIO(other.to_bytes()))


def test_estimators_follow_the_order_of_rows():
    rows, y = moving()
    for decay in ("auto", 0.99):
        estimator = SketchedNewtonClassifier(decay=decay).fit(rows, y)
        assert same_state(estimator.model_, fs.SketchedNewton(classes=[0, 1], decay=decay).update(rows, y))
