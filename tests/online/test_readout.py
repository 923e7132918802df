"""The read-out against a plain statement of its rounds."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax

import fastsketch as fs
from fastsketch.online import _class_states
from tests.helpers import same_state


def plain(members, numbers, sample_weight, decay=1.0):
    """Make whole Newton steps on the log loss, one row after the other."""
    p, k, n = members.shape
    q = p + (k == 1)
    w, h = np.zeros(q), np.eye(q)
    w[:p] = 1 / p
    out = np.empty((k, n))
    for i in range(n):
        if k == 1:
            u = np.append(members[:, 0, i], 1.0)
            out[0, i] = w @ u
            chance = expit(w @ u)
            g = (chance - numbers[i]) * u
            expected = chance * (1 - chance) * np.outer(u, u)
        else:
            u = members[:, :, i]
            out[:, i] = w @ u
            chances = softmax(w @ u)
            g = u @ chances - u[:, numbers[i]]
            spread = u - (u @ chances)[:, None]
            expected = spread * chances @ spread.T
        h = np.eye(q) + decay * (h - np.eye(q))
        h += 0.5 * sample_weight[i] * (expected + np.outer(g, g))
        w -= np.linalg.solve(h, sample_weight[i] * g)
    return w, h, out


def stream(k, n=400, p=2, seed=0):
    """Draw scores that are too sure of themselves, and of unlike worth."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.standard_normal((k, n))
    if k == 1:
        numbers = (rng.random(n) < expit(truth[0] - 0.5)).astype(np.int64)
    else:
        numbers = np.array([rng.choice(k, p=softmax(column)) for column in truth.T])
    noise = rng.standard_normal((p, k, n)) * (1 + np.arange(p))[:, None, None]
    return 3 * truth + noise, numbers, rng.uniform(0.5, 2, n)


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("decay", [1.0, 0.99, 0.3])
def test_rounds_as_stated(k, p, decay):
    members, numbers, sample_weight = stream(k, p=p)
    sample_weight[5:9] = 0.0  # they fade what came before as all others do
    readout = _class_states.start_calibration(p, k, decay=decay)
    scores = readout.learn(members, numbers, sample_weight)
    w, h, expected = plain(members, numbers, sample_weight, decay)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(readout.readout_weights, w, rtol=1e-9)
    np.testing.assert_allclose(readout.readout_information, h, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", [1, 4])
def test_same_bits_for_any_split(k):
    members, numbers, sample_weight = stream(k)
    whole, parts = _class_states.start_calibration(2, k), _class_states.start_calibration(2, k)
    scores = whole.learn(members, numbers, sample_weight)
    cuts = [0, 1, 2, 50, 51, 399, 400]
    pieces = [
        parts.learn(members[:, :, a:b], numbers[a:b], sample_weight[a:b])
        for a, b in zip(cuts[:-1], cuts[1:], strict=True)
    ]
    assert (np.concatenate(pieces, axis=1) == scores).all()
    assert (parts.readout_weights == whole.readout_weights).all()
    assert (parts.readout_information == whole.readout_information).all()


@pytest.mark.parametrize("k", [1, 4])
def test_log_loss_of_scores_that_are_too_sure(k):
    members, numbers, sample_weight = stream(k, n=2000)
    scores = _class_states.start_calibration(2, k).learn(members, numbers, np.ones_like(sample_weight))

    def log_loss(z):
        if k == 1:
            return np.mean(np.logaddexp(0, np.where(numbers > 0, -z[0], z[0])))
        return -np.mean(np.log(softmax(z, axis=0)[numbers, np.arange(len(numbers))]))

    assert log_loss(scores) < 0.8 * min(log_loss(members[0]), log_loss(members[1]))


def test_a_row_without_weight_changes_nothing():
    members, numbers, _ = stream(3)
    readout = _class_states.start_calibration(2, 3)
    readout.learn(members, numbers, np.zeros(len(numbers)))
    assert (readout.readout_weights == 0.5).all()
    assert (readout.readout_information == np.eye(2)).all()


@pytest.mark.parametrize("k", [1, 3])
def test_weights_of_any_size_leave_it_finite(k):
    members, numbers, _ = stream(k)
    for size in (1e150, 1e300, 1.7e308):
        readout = _class_states.start_calibration(2, k)
        readout.learn(members * 1e3, numbers, np.full(len(numbers), size))
        assert np.isfinite(readout.readout_weights).all()
        assert np.isfinite(readout.readout_information).all()


@pytest.mark.parametrize("k", [1, 3])
def test_scores_of_any_size_leave_it_finite(k):
    members, numbers, sample_weight = stream(k)
    members = members * np.logspace(-300, 300, members.shape[2])
    readout = _class_states.start_calibration(2, k)
    scores = readout.learn(members, numbers, sample_weight)
    assert np.isfinite(scores).all()
    assert np.isfinite(readout.readout_weights).all()
    np.linalg.cholesky(readout.readout_information)


@pytest.mark.parametrize("k", [1, 3])
def test_members_that_are_the_same(k):
    members, numbers, sample_weight = stream(k, p=1)
    readout = _class_states.start_calibration(2, k)
    readout.learn(np.concatenate([members, members]), numbers, sample_weight)
    alone = _class_states.start_calibration(1, k)
    alone.learn(members, numbers, sample_weight)
    assert readout.readout_weights[0] == pytest.approx(readout.readout_weights[1])
    # the prior of the sum is wider than that of one
    assert readout.readout_weights[:2].sum() == pytest.approx(alone.readout_weights[0], rel=0.05)


def test_probabilities():
    assert _class_states.probabilities(np.array([0.0, 1000.0])).tolist() == [0.5, 1.0]
    of_three = _class_states.probabilities(np.array([[1000.0, 0.0, -1000.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(of_three.sum(axis=1), 1)


def test_arrays_that_no_rounds_make():
    readout = _class_states.start_calibration(2, 3)
    outline = _class_states.start_calibration(2, 3)
    arrays = {name: array.copy() for name, array in readout.saved(0).items()}
    assert outline.validate_all(arrays) == set(arrays)
    arrays["readout_information"][0, 1] = 0.5
    with pytest.raises(ValueError, match="readout_information"):
        outline.validate_all(arrays)
    arrays["readout_information"] = 0.5 * np.eye(2)
    with pytest.raises(ValueError, match="readout_information"):
        outline.validate_all(arrays)


MODELS = {
    "newton": lambda **more: fs.SketchedNewton(3, **more),
    "ada-ffd": lambda **more: fs.AdaptiveSubgradient(3, **more),
    "ada-diag": lambda **more: fs.AdaptiveSubgradient(method="ada_diag", **more),
}


def labelled(form, k, n=300):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 30)) * (rng.random((n, 30)) < (0.15 if form == "sparse" else 1))
    scores = rows @ rng.standard_normal((30, k)) + rng.standard_normal((n, k))
    return sparse.csr_array(rows) if form == "sparse" else rows, scores.argmax(axis=1)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("kind", MODELS)
def test_models_row_by_row(kind, form, k):
    rows, y = labelled(form, k)
    whole = MODELS[kind]().update(rows, y)
    single = MODELS[kind]()
    for i in range(len(y)):
        single.update(rows[[i]], y[i : i + 1])
    assert (single.coef == whole.coef).all() and np.array_equal(single.intercept, whole.intercept)
    assert single.progress == whole.progress
    proba = whole.predict_proba(rows)
    assert np.array_equal(proba, single.predict_proba(rows))
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert (proba.argmax(axis=1) == whole.predict(rows)).all()
    kept = fs.from_bytes(whole.to_bytes())
    assert kept.update(rows, y).to_bytes() == whole.copy().update(rows, y).to_bytes()


def test_a_refused_row_puts_all_learners_back():
    rows, y = labelled("dense", 2)
    model = fs.SketchedNewton(3, scale=None).update(rows, y)
    before = model.to_bytes()
    with pytest.raises(FloatingPointError):
        model.update(np.full((1, 30), 1e200), y[:1])
    assert model.to_bytes() == before


def test_blend_needs_calibrate():
    with pytest.raises(ValueError, match="blend needs calibrate"):
        fs.SketchedNewton(calibrate=False, blend=True)
    with pytest.raises(ValueError, match="ada_diag"):
        fs.AdaptiveSubgradient(method="ada_diag", blend=True)
    assert fs.SketchedNewton(3, blend=False).update(*labelled("dense", 2))._model_state.states.diagonal_learners == []


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_forgetting_has_the_same_bits_for_any_split(k, size):
    rng = np.random.default_rng(4)
    rows, labels = rng.standard_normal((150, 8)), rng.integers(0, k, 150)
    whole, some = (fs.SketchedNewton(3, decay=0.9) for _ in range(2))
    whole.update(rows, labels)
    for first in range(0, 150, size):
        some.update(rows[first : first + size], labels[first : first + size])
        if first == 70:
            some = fs.from_bytes(some.to_bytes())
    same_state(whole, some)


def test_a_read_out_that_forgets_follows_members_that_turn():
    """Exchange the members: the second is right at first, and wrong from the middle on."""
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 2, 8000)
    truth = 2.0 * numbers - 1
    late = np.arange(8000) >= 6000
    members = np.stack([truth + 3 * rng.standard_normal(8000), np.where(late, -truth, truth)])[:, None, :]
    losses = {}
    for decay in (1.0, 0.99):
        readout = _class_states.start_calibration(2, 1, decay=decay)
        scores = readout.learn(members, numbers, np.ones(8000))[0]
        losses[decay] = np.logaddexp(0, -truth * scores)[6200:].mean()
    assert losses[0.99] < 0.7 * losses[1.0], losses
