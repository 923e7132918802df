"""Answers do not depend on the unit of a column, in every model and estimator that promises it (docs/reliability.md).

Columns are multiplied by 1e-9 to 1e9, each by a factor of its own. Where a sketch fixes scales by powers of two, so are
the factors.
"""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")

import fastsketch as fs  # noqa: E402
from fastsketch import sklearn as estimators  # noqa: E402
from fastsketch.sklearn import SketchedCovariance  # noqa: E402

N, D = 600, 12


def rows_and_targets():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((2 * N, 4)) @ rng.standard_normal((4, D)) + rng.standard_normal((2 * N, D))
    rows += rng.uniform(-2, 2, D)
    return rows[:N], rows[:N] @ rng.standard_normal(D) + 0.5 * rng.standard_normal(N), rows[N:]


X, TARGETS, NEW = rows_and_targets()
LABELS = (TARGETS - np.median(TARGETS) > 0).astype(int)
WEIGHTS = np.random.default_rng(5).integers(0, 4, N).astype(float)


def units_of(seed, *, powers_of_two=False):
    """Return factors (d,) from 1e-9 to 1e9, both ends among them."""
    exponents = np.random.default_rng(seed).uniform(-9, 9, D)
    exponents[:2] = -9, 9
    return 2.0 ** np.round(exponents / np.log10(2)) if powers_of_two else 10.0**exponents


def same(one, two, rtol):
    one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
    assert one.shape == two.shape
    assert np.abs(one - two).max(initial=0.0) <= rtol * np.abs(one).max(initial=0.0), np.abs(one - two).max()


# -- SketchedCovariance: everything that it answers --------------------------------------------------------------------
def answers(model, new, unit, form=np.asarray):
    """Return everything that is read of a model, whose columns are in these units, in those of the columns before."""
    rows = form(new * unit)
    out = {name: getattr(model, name)(rows) for name in ("mahalanobis", "leverage", "projection_distance")}
    if model._kept_rows is not None:
        out |= {name: getattr(model, name)(rows) for name in ("score_samples", "decision_function", "predict")}
        out |= {"offset": [model.offset_], "interval": model.alarm_interval_}
    directions = model._learned().leading[1]
    return {
        **out,
        "score": [model.score(rows) + np.log(unit[model.scale_ > 0]).sum()],
        "shrinkage": [model.shrinkage_],
        "eigenvalues": model.eigenvalues_,
        "noise": [model.noise_variance_],
        "directions": directions[:3] * np.sign(directions[:3, :1]),
        "covariance": model.covariance_ / np.outer(unit, unit),
        "precision": model.precision_ * np.outer(unit, unit),
        "location": model.location_ / unit,
        "scale": model.scale_ / unit,
    }


def fitted(rows, **options):
    return SketchedCovariance(8, contamination=0.05, **options).fit(rows)


def in_batches(rows, **options):
    model = SketchedCovariance(8, contamination=0.05, **options)
    for start in range(0, rows.shape[0], 70):
        model.partial_fit(rows[start : start + 70])
    return model


def weighted(rows, **options):
    return SketchedCovariance(8, contamination=0.05, **options).fit(rows, sample_weight=WEIGHTS)


def merged(rows, **options):
    return fitted(rows[:350], **options).merge(fitted(rows[350:], **options))


def read_from_a_source(rows, **options):
    return fitted(fs.open_rows(rows), **options)


def of_a_job(rows, **options):
    return fs.run(SketchedCovariance(8, **options), rows)


def of_a_decayed_sketch(rows, **options):
    sketch = fs.FrequentDirections(8, method="tfd", solver="exact", center=True, decay=0.99).update(rows)
    return SketchedCovariance.from_model(sketch, **options)


def of_a_window(rows, **options):
    window = fs.Window(fs.FrequentDirections(8, method="tfd", solver="exact", center=True), blocks=3, every=150)
    return SketchedCovariance.from_model(window.update(rows).model, **options)


WAYS = (fitted, in_batches, weighted, merged, read_from_a_source, of_a_job, of_a_decayed_sketch, of_a_window)


def check(learn, unit, rtol, form=np.asarray, rows=X, new=NEW, **options):
    ours = answers(learn(form(rows), **options), new, np.ones(D), form)
    theirs = answers(learn(form(rows * unit), **options), new, unit, form)
    for name, answer in ours.items():
        try:
            same(answer, theirs[name], rtol)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("learn", WAYS)
def test_covariances_exact(learn, form, amount):
    for seed in range(amount(2, 20)):
        check(learn, units_of(seed), 1e-8, form)


@pytest.mark.parametrize("assume_centered", [False, True])
@pytest.mark.parametrize("shrinkage", ["auto", "ledoit-wolf", "oas", 0.1, None])
def test_every_shrinkage(shrinkage, assume_centered):
    check(fitted, units_of(0), 1e-8, shrinkage=shrinkage, assume_centered=assume_centered)
    check(fitted, units_of(0), 1e-8, shrinkage=shrinkage, assume_centered=assume_centered, alpha0=3.0)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("shrinkage", ["auto", "oas", 0.1])
def test_columns_that_never_varied_and_few_rows(shrinkage, form):
    """A constant column has no unit: in any, a row that differs there is as far away."""
    rows, new = X.copy(), NEW.copy()
    rows[:, 3], rows[:, 5] = 0.0, 0.1
    new[:, 3], new[:, 5] = 0.0, 0.1
    new[:9, 3], new[5:15, 5] = 2.0, 0.3
    for part in (rows, rows[:60]):
        check(fitted, units_of(0), 1e-7, form, rows=part, new=new, shrinkage=shrinkage)
        model = fitted(form(part), shrinkage=shrinkage)
        assert np.all(model.scale_[[3, 5]] == 0) and not model.covariance_[[3, 5]].any()
        assert np.all(model.predict(form(new))[:15] == -1) and np.mean(model.predict(form(new))[15:]) > 0.5


def test_float32_rows():
    unit = units_of(0, powers_of_two=True)
    ours, theirs = (fitted((X * u).astype(np.float32)) for u in (np.ones(D), unit))
    same(ours.score_samples(NEW.astype(np.float32)), theirs.score_samples((NEW * unit).astype(np.float32)), 1e-9)


def test_sensors_in_units_of_their_own():
    """Where deviations of columns were 2e5 apart predict found none of 40 anomalies; the AUC of the score was .49."""
    rng = np.random.default_rng(0)
    n, bad = 10_000, 40
    rows = rng.standard_normal((n, 1)) @ rng.uniform(0.5, 1.5, (1, 6)) + 0.2 * rng.standard_normal((n, 6))
    rows[:bad, 2] += 1.5 * np.sign(rng.standard_normal(bad))
    for unit in (np.ones(6), np.array([9, 6e3, 0.03, 120, 4, 30.0])):
        model = SketchedCovariance(contamination=bad / n).fit(100 * unit + rows * unit)
        assert (model.predict(100 * unit + rows * unit)[:bad] == -1).all()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("learn", [fitted, in_batches, weighted, merged, read_from_a_source])
def test_covariances_on_a_sketch_by_powers_of_two(learn, solver, form):
    rows = X.copy()
    rows[:300, 3] = 0.0  # gets its scale late
    rows[:, 5] = 4.0
    check(learn, units_of(0, powers_of_two=True), 1e-12, form, rows=rows, solver=solver)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("scale_rows", [1, 30, 100, 4000])
def test_scales_of_a_sketch_do_not_depend_on_batches(scale_rows, form, tmp_path):
    rows = form(np.where(np.random.default_rng(0).random(X.shape) < 0.2, X, 0.0))
    options = {"solver": "gram", "scale_rows": scale_rows, "contamination": 0.05}
    whole = SketchedCovariance(4, **options).fit(rows)
    for size in (1, 7, 250):
        parts = SketchedCovariance(4, **options)
        for start in range(0, N, size):
            parts.partial_fit(rows[start : start + size])
            if size == 7 and start in (14, 210):
                parts.save(tmp_path / "model.fsk")
                parts = SketchedCovariance.load(tmp_path / "model.fsk")
        assert np.array_equal(parts.scale_, whole.scale_)
        assert np.array_equal(parts.score_samples(form(NEW)), whole.score_samples(form(NEW)))


def test_rows_of_weight_zero_fix_no_scale():
    weights = np.repeat([0.0, 1.0], [40, N - 40])
    rows = X.copy()
    rows[:40] *= 1e6
    ours = SketchedCovariance(4, solver="gram").fit(rows, sample_weight=weights)
    theirs = SketchedCovariance(4, solver="gram").fit(rows[40:], sample_weight=weights[40:])
    assert np.array_equal(ours.mahalanobis(NEW), theirs.mahalanobis(NEW))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("method", ["tfd", "rfd", "fd", "pfd", "cfd", "isvd"])
@pytest.mark.parametrize("cut", [30, 90, 300])
def test_certificates_hold_after_merges_of_other_scales(method, cut, form):
    """Parts of other spreads have other scales; with fewer than 100 rows they have none yet."""
    rows = X * np.where(np.arange(N)[:, np.newaxis] < cut, 1.0, np.geomspace(0.1, 30, D))
    options = {"solver": "gram", "method": method, "shrinkage": None}
    parts = [SketchedCovariance(5, **options).fit(form(part)) for part in (rows[:cut], rows[cut:])]
    before = parts[1].covariance_
    for first, second in (parts, parts[::-1]):
        model = SketchedCovariance(5, **options).merge(first).merge(second)
        assert model.n_samples_seen_ == N and np.array_equal(parts[1].covariance_, before)
        exact = np.cov(rows.T, bias=True)
        assert np.linalg.norm(model.covariance_ - exact, 2) <= model.error_bound_
        if method == "tfd":  # which alone knows the trace after that
            trace = np.trace(model.covariance_ / model.scale_**2)
            assert np.isclose(trace, np.sum(exact.diagonal() / model.scale_**2), rtol=1e-9)
        assert np.allclose(model.location_, rows.mean(axis=0))


# -- principal components of standardised columns ----------------------------------------------------------------------
def components(model, new, unit, form):
    rows = form(new * unit)
    coordinates = model.transform(rows)
    return {
        "transform": coordinates,
        "inverse": model.inverse_transform(coordinates) / unit,
        "variances": model.explained_variance_,
        "ratios": model.explained_variance_ratio_,
        "interval": model.explained_variance_interval_,
        "noise": [model.noise_variance_],
        "mean": model.mean_ / unit,
        "var": model.var_ / unit**2,
        "scale": model.scale_ / unit,
        "score": [model.score(rows) + np.log(unit).sum()],
        "covariance": model.get_covariance() / np.outer(unit, unit),
        "precision": model.get_precision() * np.outer(unit, unit),
    }


def fit_components(rows, **options):
    return estimators.SketchedPCA(3, scale=True, **options).fit(rows)


def fit_few_rows(rows, **options):
    return estimators.SketchedPCA(3, scale=True, **options).fit(rows[:9])


def fit_a_source(rows, **options):
    return estimators.SketchedPCA(3, scale=True, **options).fit(fs.open_rows(rows))


def components_in_batches(rows, **options):
    model = estimators.SketchedPCA(3, scale=True, **options)
    for start in range(0, N, 70):
        model.partial_fit(rows[start : start + 70])
    return model


def components_merged(rows, **options):
    return fit_components(rows[:250], **options).merge(fit_components(rows[250:], **options))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("options", [{}, {"solver": "exact"}, {"solver": "gram", "sketch_size": 5}, {"whiten": True}])
@pytest.mark.parametrize(
    "learn", [fit_components, fit_few_rows, fit_a_source, components_in_batches, components_merged]
)
def test_components_of_standardised_columns(learn, options, form):
    by_scales = options.get("solver") == "gram" and learn is components_in_batches
    unit = units_of(0, powers_of_two=by_scales)
    ours = components(learn(form(X), **options), NEW, np.ones(D), form)
    theirs = components(learn(form(X * unit), **options), NEW, unit, form)
    for name, answer in ours.items():
        try:
            same(answer, theirs[name], 1e-12 if by_scales else 1e-7)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


# -- learners and ridge regression -------------------------------------------------------------------------------------
ONLINE = [
    (kind, {"loss": loss})
    for kind in (estimators.SketchedNewtonRegressor, estimators.AdaptiveSubgradientRegressor)
    for loss in ("square", "huber", "absolute")
] + [(estimators.SketchedNewtonClassifier, {}), (estimators.AdaptiveSubgradientClassifier, {})]


def predictions(model, rows):
    return (model.decision_function if hasattr(model, "decision_function") else model.predict)(rows)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("kind", "options"), ONLINE, ids=lambda x: getattr(x, "__name__", str(x)))
def test_online_learners(kind, options, form):
    targets, unit = LABELS if "Classifier" in kind.__name__ else TARGETS, units_of(0)
    ours, theirs = (
        predictions(kind(random_state=0, **options).fit(form(X * u), targets), form(NEW * u))
        for u in (np.ones(D), unit)
    )
    same(ours, theirs, 1e-9)


@pytest.mark.parametrize("kind", [fs.SketchedNewton, fs.AdaptiveSubgradient])
def test_learners_of_rows_with_names(kind):
    def named(rows):
        return [{f"x{j}": float(value) for j, value in enumerate(row)} for row in rows]

    ours, theirs = (
        kind(4, loss="logistic").update(named(X[:200] * u), LABELS[:200]).decision_function(named(NEW[:50] * u))
        for u in (np.ones(D), units_of(0))
    )
    same(ours, theirs, 1e-9)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("ridge", [None, 3.0])
@pytest.mark.parametrize("kind", [estimators.SketchedRidge, estimators.SketchedRidgeClassifier])
def test_ridge_in_variances_of_columns(kind, ridge, form):
    targets, unit = LABELS if "Classifier" in kind.__name__ else TARGETS, units_of(0)
    ours, theirs = (
        predictions(kind(scale=True, ridge=ridge).fit(form(X * u), targets), form(NEW * u)) for u in (np.ones(D), unit)
    )
    same(ours, theirs, 1e-9)


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_tables_with_gaps(learn):
    gaps = np.random.default_rng(0).random(X.shape) < 0.2
    ours, theirs = (
        getattr(estimators.LowRankCompleter(), learn)(np.where(gaps, np.nan, X * u)).transform(
            np.where(gaps, np.nan, X * u)
        )
        / u
        for u in (units_of(0), np.ones(D))
    )
    same(ours, theirs, 1e-6)


def test_low_rank_completions_of_tables_with_gaps():
    gaps = np.random.default_rng(0).random(X.shape) < 0.2
    ours, theirs = (
        estimators.LowRankCompleter(3).fit_transform(np.where(gaps, np.nan, X * u)) / u
        for u in (units_of(0), np.ones(D))
    )
    same(ours, theirs, 1e-6)
