"""How a ridge is chosen: by log losses of labels, and anew where rows are read again."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import fastsketch as fs
from fastsketch.data.files._state import StateError
from fastsketch.ridge import _sketched_ridge as reading
from fastsketch.ridge._moments import Moments
from fastsketch.ridge._read_out import log_losses
from fastsketch.ridge._refining import LanczosIteration
from tests.helpers import same_state
from tests.ridge.test_sketched_ridge import D, Unscaled, apart, examples, ridge


def by_search(loss):
    """Return the least mean of losses (n,) at any factor."""
    found = minimize_scalar(lambda power: loss(10.0**power).mean(), bounds=(-4.0, 4.0), method="bounded")
    return loss(10.0**found.x).mean()


def one_label(rng, n, c):
    """Draw labels (n, c) with a single 1 in each row."""
    return np.where(rng.integers(0, c, n)[:, None] == np.arange(c), 1.0, -1.0)


# -- labels ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
def test_the_log_loss_is_that_of_the_best_factor(scale):
    rng = np.random.default_rng(0)
    several = np.where(rng.random((300, 4)) < 0.4, 1.0, -1.0)
    single = one_label(rng, 300, 4)
    for labels in (several, several[:, :1]):
        scores = labels * 0.4 + rng.standard_normal(labels.shape)
        best = by_search(lambda f, s=scores, y=labels: np.logaddexp(0, -f * s * y).mean(axis=1))
        assert log_losses(scores * scale, labels, np.ones(300)).mean() == pytest.approx(best, rel=1e-6)
    scores = single * 0.4 + rng.standard_normal(single.shape)
    best = by_search(lambda f: -log_softmax(f * scores, axis=1)[single > 0])
    assert log_losses(scores * scale, single, np.ones(300)).mean() == pytest.approx(best, rel=1e-6)


def test_log_losses_of_scores_that_tell_all_or_nothing():
    rng = np.random.default_rng(0)
    labels = one_label(rng, 100, 3)
    assert log_losses(labels, labels, np.ones(100)).max() < 1e-3
    for nothing in (0.0 * labels, -labels):
        assert np.allclose(log_losses(nothing, labels, np.ones(100)), np.log(3), rtol=0.01)
    heavy = np.where(np.arange(100) < 50, 1.0, 0.0)  # rows without weight choose no factor
    scores = labels * np.where(heavy > 0, 1.0, -1.0)[:, None]
    assert log_losses(scores, labels, heavy)[:50].max() < 1e-3


def test_labels_measure_residuals_at_the_ridge_in_use():
    """A log loss leaves the length of scores open, and residuals of another ridge would be of another length."""
    held = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((3000, D)) * np.linspace(2.0, 0.2, D)
        labels = np.where(x[:, 0] + rng.standard_normal(3000) > 0, 1.0, -1.0)
        model = Unscaled(6, scoring="log_loss", solver="gram", seed=seed).update(x[:1500], labels[:1500])
        choice = model._cached_fit().choice
        assert choice.residual_ridge == choice.ridge
        lower, upper = model.predict_interval(x[1500:])
        held.append(np.mean((lower <= labels[1500:]) & (labels[1500:] <= upper)))
    assert 0.87 < np.mean(held) < 0.93


# -- what products with X'X know of every ridge ------------------------------------------------------------------------
@pytest.mark.parametrize("scaled", [False, True])
def test_a_krylov_space_has_every_ridge(scaled):
    x, y, w = examples(offset=1.0)
    w = w + 0.5
    new = examples(50, seed=5)[0]
    moments = Moments.of(x, y, w, center=True)
    penalty = moments.variance if scaled else np.ones(D)
    h = ((x - moments.mean).T * w) @ (x - moments.mean)
    krylov = LanczosIteration(moments, penalty, new)
    for step in range(2 * D):  # rounding costs some steps
        krylov.step(h @ krylov.direction)
        if step == 5:
            path = krylov.solutions()
            for strength in (1.0, 1e3):  # as plain conjugate gradients in the units of the penalty
                left, known = residual_of_steps(h, moments.cross, penalty, strength, 6), path.residual(strength)
                assert known == pytest.approx(left, rel=1e-6)
    path = krylov.solutions()
    for strength in (0.1, 10.0, 1e4):
        coef, intercept = ridge(x, y, w, strength, penalty=penalty)
        assert np.allclose(path.predict(strength), new @ coef + intercept, rtol=1e-6, atol=1e-6)
        assert path.residual(strength) < 1e-6
    assert path.smallest_accurate_ridge(1.0) < 1e-10


def residual_of_steps(h, z, penalty, strength, steps):
    """Return |Z - (H + ridge) W| over |Z|, in units of the penalty, after steps of plain conjugate gradients."""
    root = penalty[:, None] ** -0.5
    system, right = root * h * root.T + strength * np.eye(len(h)), root * z
    w, r = np.zeros_like(right), right.copy()
    p = r.copy()
    for _ in range(steps):
        q, before = system @ p, (r * r).sum(0)
        alpha = before / (p * q).sum(0)
        w, r = w + alpha * p, r - alpha * q
        p = r + (r * r).sum(0) / before * p
    return (np.linalg.norm(r, axis=0) / np.linalg.norm(right, axis=0)).mean()


def wide(n=1500, *, seed=0, c=2, noise=8.0):
    """Draw rows of a spectrum that falls and targets with noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 120)) * 0.97 ** np.arange(120) + 1.0
    return x, x @ rng.standard_normal((120, c)) + noise * rng.standard_normal((n, c))


def test_a_refinement_chooses_the_ridge_of_all_rows(monkeypatch):
    monkeypatch.setattr(fs.SketchedRidge, "_rows_if_all_held", lambda self: None)  # rows held out choose in both
    monkeypatch.setattr(fs.SketchedRidge, "_can_use_gcv", lambda self: False)
    ridges = []
    for seed in range(4):  # the ridge of the sketch alone may be that of all rows by chance
        x, y = wide(seed=seed)
        exact = Unscaled().update(x, y)
        sketch = Unscaled(16, max_memory=8 * 240).update(x, y)
        before = sketch.facts()["ridge"]
        assert sketch.refine(x, passes=60).converged
        after, wanted = sketch.facts()["ridge"], exact.facts()["ridge"]
        ridges.append((before, after, wanted))
        assert 10**-0.3 < after / wanted < 10**0.3
        assert np.allclose(sketch.coef(), exact.coef(ridge=after), atol=1e-4)
    before, after, wanted = np.log(ridges).T
    assert np.abs(after - wanted).mean() < np.abs(before - wanted).mean()


def test_a_ridge_that_is_given_stays():
    x, y = wide()
    model = Unscaled(16, ridge=3.0, max_memory=8 * 240).update(x, y)
    assert model.refine(x, passes=60).converged and model.facts()["ridge"] == 3.0
    assert np.allclose(model.coef(), Unscaled(ridge=3.0).update(x, y).coef(), atol=1e-5)


CRAFTED = {
    "a negative ridge": lambda state, arrays: state.update(ridge=-1.0),
    "no ridge": lambda state, arrays: state.pop("apart"),
    "passes that are none": lambda state, arrays: state.update(to_choose=-1),
    "a path of two lengths": lambda state, arrays: arrays.update(errors=arrays["errors"][1:]),
    "errors that are none": lambda state, arrays: arrays.update(errors=arrays["errors"] * np.nan),
    "a path without rows": lambda state, arrays: state.pop("n_choosing"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_refinements_are_refused(name):
    x, y = wide()
    model = Unscaled(16, max_memory=8 * 240).update(x, y)
    model.refine(x, passes=10)
    state, arrays = model._state()
    model._validate(state, arrays)
    CRAFTED[name](state, arrays)
    with pytest.raises((ValueError, KeyError, TypeError, StateError)):
        model._validate(state, arrays)


# -- jobs --------------------------------------------------------------------------------------------------------------
def test_passes_of_a_job_have_the_same_bits_and_are_the_refinement(tmp_path, monkeypatch):
    for name in ("PART_BYTES", "LARGEST_PART"):
        monkeypatch.setattr(f"fastsketch.jobs._run.{name}", 200_000)
    x, y = wide(noise=1.0)  # all rows are better than the sketch
    np.save(tmp_path / "rows.npy", np.hstack([x, y]))
    model = Unscaled(16, max_memory=8 * 240)

    def job(workers, **more):
        how = {"target": [120, 121], "workers": workers, "engine": "threads", "passes": 60}
        return fs.run(model, tmp_path / "rows.npy", **how, **more)

    first, second = (job(k) for k in (1, 3))
    same_state(first, second)
    # at one ridge both end within the tolerance of the same equations
    kept = fs.run(Unscaled(16, ridge=3.0, max_memory=8 * 240), tmp_path / "rows.npy", target=[120, 121], passes=60)
    one = Unscaled(16, ridge=3.0, max_memory=8 * 240).update(x, y)
    one.refine(x, passes=60, tolerance=reading.TOLERANCE)
    assert np.allclose(kept.coef(), one.coef(), atol=0.02 * np.abs(one.coef()).max())
    assert first.facts()["passes"] > 5 and apart(first, *ridge(x, y, np.ones(1500), first.facts()["ridge"])) < 1e-2

    # stopped in the fifth pass, it goes on to the same bits
    def stop(report):
        if report["number"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job(1, checkpoint=tmp_path / "kept", progress=stop)
    same_state(job(1, checkpoint=tmp_path / "kept", resume=True), first)


def test_jobs_refuse_passes_that_say_nothing():
    x, y = wide(300)
    rows = np.hstack([x, y])
    with pytest.raises(ValueError, match="refine needs a model without decay"):
        fs.run(Unscaled(decay=0.9), rows, target=[120, 121], passes=3)
    exact = [fs.run(Unscaled(), rows, target=[120, 121], passes=k) for k in (1, 9)]
    same_state(*exact)
    with pytest.raises(ValueError, match="passes must be 1 or 2, got 3"):
        fs.run(fs.FrequentDirections(8), rows, passes=3)


# -- odd rows, read again ----------------------------------------------------------------------------------------------
ODD = {
    "a constant target": lambda x, y: (x, np.full(len(x), 7.0), None),
    "a target that is a feature": lambda x, y: (x, x[:, 3], None),
    "half the weights zero": lambda x, y: (x, y, np.arange(len(x)) % 2.0),
    "columns of zeros": lambda x, y: (x * (np.arange(120) % 2), y, None),
    "one row": lambda x, y: (x[:1], y[:1], None),
    "fewer rows than choose": lambda x, y: (x[:60], y[:60], None),
    "the same row": lambda x, y: (np.repeat(x[:1], 300, axis=0), np.repeat(y[:1], 300, axis=0), None),
    "large numbers": lambda x, y: (x * 1e120, y * 1e100, None),
    "small numbers": lambda x, y: (x * 1e-120, y * 1e-100, None),
}


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", ODD)
def test_odd_rows_are_refined_to_ridge_regression(name, form):
    x, y, w = ODD[name](*wide(400))
    weights = np.ones(len(x)) if w is None else w
    model = Unscaled(8, solver="gram").update(form(x), y, sample_weight=w)
    result = model.refine(form(x), sample_weight=w, passes=150)
    strength, coef = model.facts()["ridge"], model.coef()
    assert np.isfinite(coef).all() and np.isfinite(result.residual).all() and strength > 0
    exact = Unscaled(ridge=strength).update(x, y, sample_weight=weights).coef()
    level = np.abs(exact).max() if len(x) > 1 else 1.0
    assert np.abs(coef - exact).max() <= 1e-3 * level + 1e-12 * np.abs(y).max()


def test_sparse_rows_with_an_intercept_are_never_dense():
    rng = np.random.default_rng(0)
    x = sparse.random_array((1000, 100_000), density=1e-4, format="csr", rng=rng)
    y = x @ rng.standard_normal(100_000) + 3.0
    tracemalloc.start()
    model = Unscaled(4).update(x, y)
    model.refine(x, passes=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not model.is_exact and peak < 0.15 * 8 * x.shape[0] * x.shape[1]


# -- units, and rows that cannot settle --------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["exact", "gram"])
@pytest.mark.parametrize("unit", [1e3, 1e4, 1e7])
def test_a_column_in_large_units_does_not_hide_the_others(unit, solver):
    """A path that began at the sum of all variances would see nothing but the mean, and end there."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((800, 10))
    y = x @ rng.standard_normal(10) + 0.5 * rng.standard_normal(800)
    x[:, 0] *= unit
    model = Unscaled(32, solver=solver).update(x[:600], y[:600])
    left = np.mean((model.predict(x[600:]) - y[600:]) ** 2)
    assert left < 1.1 * 0.25 < 0.1 * np.var(y)


def fading(noise, seed=0):
    """Return fewer rows than columns, of variances that fall, with a linear target: of 300 to learn and 200 others."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((500, 900)) * 0.98 ** np.arange(900)
    y = x @ (rng.standard_normal(900) * (np.arange(900) < 60))
    y += noise * y.std() * rng.standard_normal(500)
    return (x[:300], y[:300]), (x[300:], y[300:])


def left_of(model, rows, targets):
    return np.mean((model.predict(rows) - targets) ** 2) / np.var(targets)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_ridges_far_below_what_a_sketch_has_lost_are_refined(noise):
    """The diagonal of the sketch misleads there as a preconditioner."""
    learned, others = fading(noise)
    model = Unscaled(16, solver="gram").update(*learned)
    of_sketch = left_of(model, *others)
    model._read_again(learned[0], None, passes=60, tolerance=reading.TOLERANCE, if_better=True)
    exact = Unscaled(ridge=model.facts()["ridge"], solver="exact").update(*learned)
    assert left_of(model, *others) < min(1.1 * left_of(exact, *others) + 1e-4, 0.6 * of_sketch)


@pytest.mark.parametrize("passes", [1, 2, 4, 8])
def test_few_passes_leave_no_worse_than_the_sketch(passes):
    """Coefficients that are not settled are kept if rows held out have a smaller error by them."""
    left = []
    for seed in range(8):
        learned, others = fading(0.3, seed)
        model = Unscaled(16, solver="gram").update(*learned)
        of_sketch = left_of(model, *others)
        model._read_again(learned[0], None, passes=passes, tolerance=reading.TOLERANCE, if_better=True)
        left.append((left_of(model, *others), of_sketch))
    refined, sketched = np.mean(left, axis=0)
    assert refined < 1.05 * sketched  # 30 rows tell that much


def test_what_a_sketch_has_lost_leads_out_of_no_space_of_rows():
    """By its diagonal, ten thousand times the ridge, this takes more than a hundred passes."""
    rng = np.random.default_rng(0)
    x = sparse.random_array((400, 3000), density=0.02, format="csr", rng=rng)
    y = x @ rng.standard_normal(3000) + 0.1 * rng.standard_normal(400)
    model = Unscaled(32, ridge=2e-4, solver="gram").update(x, y)
    assert model.refine(x, passes=25).converged
    centred = x.toarray() - x.mean(axis=0)
    of_rows = np.linalg.lstsq(centred.T, model.coef())[0]
    assert np.abs(centred.T @ of_rows - model.coef()).max() < 1e-8 * np.abs(model.coef()).max()


@pytest.mark.parametrize("spread", [2.0, 2.5])
def test_a_path_goes_on_below_where_a_few_long_rows_are_told_well(spread):
    """A ridge that is best among those known after a few products is not yet the best of all."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1500, 300)) * 0.97 ** np.arange(300)
    signal = x @ rng.standard_normal(300)
    y = np.where(signal + 0.3 * signal.std() * rng.standard_normal(1500) > 0, 1.0, -1.0)
    x *= rng.lognormal(0.0, spread, 1500)[:, np.newaxis]
    model = Unscaled(16, solver="gram", scoring="log_loss").update(x[:900], y[:900])

    def wrong():
        return np.mean(np.sign(model.predict(x[900:])) != y[900:])

    of_sketch = wrong()
    model.refine(x[:900])
    assert wrong() < 0.8 * of_sketch
