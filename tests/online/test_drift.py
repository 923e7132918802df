"""Drift: ADWIN on errors as they come, and models that begin anew where it finds that they err more than they did."""

import io

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.online._class_states import PAST_MISTAKES, PAST_ROWS
from fastsketch.online._errors import CHECK, start_watch
from tests.helpers import same_state

ROWS = 20000


def alarms(rates, seed):
    """Return the rows after which a rise was certain, of 0/1 errors at these rates."""
    errors = (np.random.default_rng(seed).random(len(rates)) < rates).astype(float)
    watch, found = start_watch(), []
    for i in range(0, len(errors) - CHECK + 1, CHECK):
        watch.add(errors[i : i + CHECK], None, None)
        if watch.look()[1]:
            found.append(i + CHECK)
    return found


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.5])
def test_no_change_no_alarm(rate):
    assert sum(len(alarms(np.full(50000, rate), seed)) for seed in range(2)) == 0


@pytest.mark.parametrize(("before", "after", "delay"), [(0.1, 0.5, 128), (0.1, 0.3, 320), (0.1, 0.2, 1000)])
def test_a_rise_is_found_soon(before, after, delay):
    rates = np.r_[np.full(ROWS, before), np.full(5000, after)]
    for seed in range(3):
        found = alarms(rates, seed)
        assert found and ROWS < found[0] <= ROWS + delay


def test_a_slow_rise_is_found_before_it_ends():
    rates = np.r_[np.full(ROWS, 0.1), np.linspace(0.1, 0.4, 10000)]
    for seed in range(3):
        assert ROWS < alarms(rates, seed)[0] < ROWS + 5000


def test_a_model_that_learns_is_no_drift():
    """Errors that fall are a change, of which the window forgets what was before; nothing begins anew."""
    for seed in range(3):
        assert not alarms(0.1 + 0.3 * np.exp(-np.arange(ROWS) / 1000), seed)


# -- models ------------------------------------------------------------------------------------------------------------
def changing(n=12000, d=20, k=2, seed=0, real=False):
    """Draw rows whose truth is exchanged for another in the middle."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.2)
    truths = rng.standard_normal((2, max(k, 2), d))
    scores = np.concatenate([rows[: n // 2] @ truths[0].T, rows[n // 2 :] @ truths[1].T])
    scores += 0.3 * rng.standard_normal(scores.shape)
    return rows, scores[:, 0] if real else scores.argmax(axis=1)


def model(kind="newton", **parameters):
    if kind == "newton":
        return fs.SketchedNewton(**{"sketch_size": 5, "drift": "restart", **parameters})
    return fs.AdaptiveSubgradient(**{"sketch_size": 5, "method": kind, "drift": "restart", **parameters})


@pytest.mark.parametrize("kind", ["newton", "ada_ffd", "ada_diag"])
@pytest.mark.parametrize("k", [2, 4])
def test_begins_anew_after_a_change_and_only_then(kind, k):
    rows, y = changing(k=k)
    watched = model(kind).update(rows, y)
    plain = model(kind, drift=None).update(rows, y)
    assert 1 <= len(watched.restarts) <= 2 and 6000 < watched.restarts[0] < 7000, watched.restarts
    assert watched.n_rows == len(rows) and plain.restarts.size == 0
    assert watched.progress["error_rate"] < plain.progress["error_rate"]
    assert watched.facts()["restarts"] == watched.restarts.tolist() and "restarts" not in plain.facts()
    still = model(kind).update(rows[:6000], y[:6000])
    assert still.restarts.size == 0
    assert (still.coef == model(kind, drift=None).update(rows[:6000], y[:6000]).coef).all()


def test_cumulative_figures_are_of_all_rows():
    rows, y = changing()
    watched = model(loss="squared_hinge", calibrate=False).update(rows, y)
    z, t = watched.last_scores, np.where(y == 1, 1.0, -1.0)
    losses = np.maximum(0, 1 - t * z) ** 2
    progress = watched.progress
    assert len(watched.restarts) and np.isclose(progress["cumulative_loss"], losses.sum(), rtol=1e-9)
    assert np.isclose(progress["error_rate"], np.mean(t * z <= 0)) and progress["n_rows"] == len(y)
    assert np.isclose(progress["accuracy"], 1 - progress["error_rate"])


def test_real_targets():
    rows, y = changing(real=True)
    watched = model(loss="square", constraint=None).update(rows, y)
    plain = model(loss="square", constraint=None, drift=None).update(rows, y)
    assert 1 <= len(watched.restarts) <= 2 and 6000 < watched.restarts[0] < 7000
    assert watched.progress["mean_absolute_error"] < plain.progress["mean_absolute_error"]


@pytest.mark.parametrize("kind", ["newton", "ada_ffd", "ada_diag"])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_any_batches_and_any_resume_have_the_same_bits(kind, as_sparse, k):
    rows, y = changing(n=2400, k=k)
    rows = sparse.csr_array(rows) if as_sparse else rows
    whole = model(kind).update(rows, y)
    assert len(whole.restarts)
    for size in (7, 100):
        some = model(kind)
        for i in range(0, len(y), size):
            some.update(rows[i : i + size], y[i : i + size])
            if i % 350 == 0:
                some = fs.load(io.BytesIO(some.to_bytes()))
        same_state(whole, some)
        assert (whole.restarts == some.restarts).all()


def test_states_of_strangers_are_refused():
    rows, y = changing(n=2400)
    watched = model().update(rows[:1290], y[:1290])
    state, arrays = watched._state()
    model()._validate(state, arrays)
    with pytest.raises(ValueError, match="drift"):
        model(drift=None)._validate(state, arrays)
    for name, entry, value in (
        ("drift_buckets", 0, -1.0),
        ("drift_buckets", 0, np.nan),
        ("drift_used", 0, 6),
        ("drift_used", 0, -1),
        ("drift_counts", 0, 32),
        ("drift_counts", 1, -1),
        ("drift_counts", 3, 1 << 60),
        ("drift_sums", 0, -1.0),
        ("tally", PAST_ROWS, -1.0),
        ("tally", PAST_ROWS, np.nan),
        ("tally", PAST_MISTAKES, np.inf),
    ):
        broken = {**arrays, name: arrays[name].copy()}
        broken[name].reshape(-1)[entry] = value
        with pytest.raises((ValueError, OverflowError)):
            model()._validate(state, broken)
    with pytest.raises(ValueError):
        model()._validate(state, {**arrays, "drift_rows": np.array([5, 5])})
