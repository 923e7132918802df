"""SketchedCovariance against dense formulas, scikit-learn's estimators, and the law that its rows came from."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import chi2

pytest.importorskip("sklearn")
from sklearn.covariance import OAS, EmpiricalCovariance, LedoitWolf, log_likelihood  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch import reference  # noqa: E402
from fastsketch.covariance._gaussian import DenseCovariance, SpikedCovariance  # noqa: E402
from fastsketch.sklearn import SketchedCovariance, SketchedPCA  # noqa: E402
from tests.helpers import KINDS, stream, tol  # noqa: E402

X = stream("signal", np.random.default_rng(0), 400, 30) + np.linspace(0, 5, 30)
THEIRS = {None: EmpiricalCovariance, "ledoit-wolf": LedoitWolf, "oas": OAS}


def batches(estimator, rows, size=33, weights=None):
    for start in range(0, rows.shape[0], size):
        part = slice(start, start + size)
        estimator.partial_fit(rows[part], sample_weight=None if weights is None else weights[part])
    return estimator


def standardised(rows, *, center=True):
    """Return (function that brings rows to standard units, deviations) by the moments of `rows`."""
    mean = rows.mean(axis=0) if center else np.zeros(rows.shape[1])
    scale = np.sqrt(np.mean((rows - mean) ** 2, axis=0))
    scale[scale <= 1e-12 * np.abs(mean)] = np.inf
    return lambda x: (x - mean) / scale, np.where(np.isfinite(scale), scale, 0.0)


def near(one, two, scale=1e3):
    """Compare but for rounding that grows with the condition of the matrices here."""
    return np.allclose(one, two, rtol=tol(np.float64, scale), atol=tol(np.float64, scale) * np.abs(two).max())


# -- the exact matrix --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("assume_centered", [False, True])
@pytest.mark.parametrize("shrinkage", THEIRS)
@pytest.mark.parametrize("n", [12, 400])
def test_the_exact_path_is_that_of_scikit_learn_on_standardised_columns(shrinkage, assume_centered, n):
    rows = X[:n]
    to_standard, scale = standardised(rows, center=not assume_centered)
    theirs = THEIRS[shrinkage](assume_centered=assume_centered).fit(to_standard(rows))
    location = np.zeros(30) if assume_centered else rows.mean(axis=0)
    first = SketchedCovariance(8, shrinkage=shrinkage, assume_centered=assume_centered)
    for ours in (first.fit(rows), batches(SketchedCovariance(**first.get_params()), rows, 5)):
        assert ours.sketch_.resolved["solver"] == "exact"
        assert near(ours.scale_, scale)
        assert near(ours.covariance_, theirs.covariance_ * np.outer(scale, scale))
        assert near(ours.location_, location)
        assert near(ours.precision_, theirs.precision_ / np.outer(scale, scale), 1e8)
        assert near(ours.mahalanobis(X), theirs.mahalanobis(to_standard(X)), 1e8)
        assert ours.error_norm(ours.covariance_.copy()) < 1e-20
        assert abs(ours.shrinkage_ - getattr(theirs, "shrinkage_", 0.0)) < 1e-12
        if n > 30 or shrinkage:
            assert np.isclose(ours.score(X), theirs.score(to_standard(X)) - np.log(scale).sum(), rtol=1e-10)
        else:  # fewer rows than columns have no density
            assert ours.score(X) == -np.inf


def test_few_rows_are_exact_too():
    """gram() of an accumulating sketch gave B'B + alpha I until its first block was full."""
    for n in (9, 20, 100):
        moved = X[:n] - X[:n].mean(axis=0)
        for method in ("rfd", "tfd"):
            sketch = fs.FrequentDirections(8, method=method, solver="exact", center=True).update(X[:n])
            assert near(sketch.gram(), moved.T @ moved)


def test_ledoit_wolf_far_from_the_first_batch():
    rows = X - X.mean(axis=0)
    rows[:5] += 3.0  # the first batch lies apart
    ours, standard = batches(SketchedCovariance(shrinkage="ledoit-wolf"), rows, 5), standardised(rows)[0](rows)
    assert np.isclose(ours.shrinkage_, LedoitWolf().fit(standard).shrinkage_, rtol=1e-12)
    assert np.isclose(ours.shrinkage_, reference.ledoit_wolf_shrinkage(standard), rtol=1e-10)


def test_ledoit_wolf_of_more_rows_than_are_kept_and_without_alarms():
    """Fourth moments are those of a sample of 4,000 rows; it is kept for them where there are no alarms."""
    rows = stream("signal", np.random.default_rng(0), 9000, 30)
    exact = LedoitWolf().fit(standardised(rows)[0](rows)).shrinkage_
    without = SketchedCovariance(shrinkage="ledoit-wolf", contamination=None).fit(rows)
    assert exact > 0 and np.isclose(without.shrinkage_, exact, rtol=0.05)
    with pytest.raises(ValueError, match="contamination is None: set it; rows are kept"):
        without.predict(rows)
    none = SketchedCovariance(contamination=None).fit(rows).set_params(shrinkage="ledoit-wolf")
    with pytest.raises(ValueError, match="'ledoit-wolf' needs fourth moments of rows kept aside, .*contamination=None"):
        none.mahalanobis(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_shrinkage_of_every_kind_of_stream(kind):
    rows = stream(kind, np.random.default_rng(3), 90, 20)
    ours = batches(SketchedCovariance(shrinkage="ledoit-wolf"), rows, 7)
    assert 0.0 <= ours.shrinkage_ <= 1.0
    if kind != "zeros":
        standard = standardised(rows)[0](rows)
        assert np.isclose(ours.shrinkage_, reference.ledoit_wolf_shrinkage(standard), rtol=1e-8)
    assert SketchedCovariance(shrinkage="oas").fit(rows).shrinkage_ <= 1.0


def test_one_column_and_one_row():
    assert SketchedCovariance().fit(X[:, :1]).shrinkage_ == 0.0
    assert np.isclose(SketchedCovariance().fit(X[:, :1]).covariance_, X[:, 0].var())
    one = SketchedCovariance().fit(X[:1])
    assert np.all(one.covariance_ == 0)
    for read in (one.mahalanobis, one.leverage):
        match = "covariance is zero, and so is every distance: n_samples_seen_=1 rows"
        with pytest.warns(UserWarning, match=match) as warned:
            assert np.all(read(X) == 0)  # nothing is known of any direction
        assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="covariance is zero"):
        assert one.score(X) == -np.inf
    assert np.all(SketchedCovariance(alpha0=1.0).fit(X[:1]).mahalanobis(X[1:]) > 0)


# -- the sketch --------------------------------------------------------------------------------------------------------
SETTINGS = [
    {"sketch_size": 8},
    {"sketch_size": 8, "shrinkage": None},
    {"sketch_size": 8, "shrinkage": 0.3, "alpha0": 5.0},
    {"sketch_size": 40},
    {"sketch_size": 8, "method": "fd", "shrinkage": "oas"},
    {"sketch_size": 8, "method": "rfd"},
    {"sketch_size": 8, "method": "cfd"},
    {"sketch_size": 3, "method": "cfd"},
    {"sketch_size": 8, "method": "pfd", "beta": 0.3},
    {"sketch_size": 8, "solver": "exact", "alpha0": 5.0},
    {"sketch_size": 8, "assume_centered": True},
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_everything_agrees_with_the_dense_matrix(setting, dtype):
    rows = X.astype(dtype)
    ours = SketchedCovariance(**{"solver": "gram", **setting}).fit(rows)
    covariance, moved = ours.covariance_, rows - ours.location_
    precision = np.linalg.inv(covariance)
    assert covariance.dtype == ours.mahalanobis(rows).dtype == np.float64
    assert near(ours.precision_, precision, 1e8)
    distances = np.einsum("ij,jk,ik->i", moved, precision, moved)
    assert near(ours.mahalanobis(rows), distances, 1e6)
    assert near(ours.mahalanobis(sparse.csr_array(rows)), distances, 1e8)
    logdet = np.linalg.slogdet(covariance)[1]
    assert near(ours.score(rows), np.mean(-0.5 * (distances + logdet + 30 * np.log(2 * np.pi))), 1e6)
    assert np.isclose(ours.score(rows), log_likelihood(moved.T @ moved / len(rows), precision), rtol=1e-9)
    exact = np.cov(X.T, bias=True) if not ours.assume_centered else X.T @ X / len(X)
    scale = ours.scale_
    target = exact + ours.alpha0 / len(X) * np.diag(scale**2)
    slack = tol(dtype, np.trace(exact))
    assert np.linalg.norm(covariance - target, 2) <= ours.error_bound_ + slack
    assert abs(np.trace(covariance / np.outer(scale, scale)) - np.trace(target / np.outer(scale, scale))) <= slack
    assert ours.error_norm(exact) == pytest.approx(np.sum((covariance - exact) ** 2) / 30, rel=1e-6)
    values = np.linalg.eigvalsh(covariance / np.outer(scale, scale))[::-1]
    k = len(ours.eigenvalues_)
    assert near(ours.eigenvalues_, values[:k], 1e4 if dtype == np.float64 else 1e9)
    assert k == 30 or np.isclose(ours.noise_variance_, values[k:].mean(), rtol=1e-4)


@pytest.mark.parametrize(("solver", "unit"), [("exact", 1e-12), ("exact", 1e12), ("gram", 2.0**-40), ("gram", 2.0**40)])
def test_scores_do_not_depend_on_the_unit_of_the_rows(solver, unit):
    ours, scaled = (SketchedCovariance(8, solver=solver).fit(rows) for rows in (X, unit * X))
    assert ours.leverage(X).min() > 0 and np.allclose(scaled.leverage(unit * X), ours.leverage(X), rtol=1e-6)
    assert np.allclose(scaled.mahalanobis(unit * X), ours.mahalanobis(X), rtol=1e-6)
    assert np.allclose(scaled.projection_distance(unit * X), ours.projection_distance(X), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if "solver" not in setting], ids=str)
def test_the_bound_is_shrinkage_and_what_a_sketch_does_not_know(setting):
    ours = SketchedCovariance(solver="gram", **setting).fit(X)
    sketch, n = ours.sketch_, len(X)
    rows, lost = sketch.singular_values[:, np.newaxis] * sketch.components, sketch.shrinkage / n
    standard = ours.covariance_ / np.outer(ours.scale_, ours.scale_)
    left = np.linalg.eigvalsh(rows.T @ rows / n + ours.alpha0 / n * np.eye(30) - standard)
    # all of the loss is above B'B, of Compensative FD half is below
    below = lost - left[0] if sketch.method == "cfd" else -left[0]
    assert np.isclose(ours.error_bound_, max(below, left[-1] + lost) * ours.scale_.max() ** 2, rtol=1e-6)


@pytest.mark.parametrize(
    "rows", [X, stream("heavy", np.random.default_rng(0), 300, 30), stream("noise", np.random.default_rng(1), 40, 30)]
)
def test_the_bound_of_the_exact_matrix_is_shrinkage_alone(rows):
    correlation, scale = np.corrcoef(rows.T), rows.std(axis=0)
    ours = SketchedCovariance(8, solver="exact", shrinkage=0.3, alpha0=5.0).fit(rows)
    change = 0.3 * (np.eye(30) - correlation) * np.outer(scale, scale)
    assert np.isclose(ours.error_bound_, np.linalg.norm(change, 2), rtol=1e-6)
    ours.shrinkage = None
    assert ours.error_bound_ < 1e-12 * np.linalg.norm(np.cov(rows.T, bias=True), 2)


@pytest.mark.parametrize("seed", range(5))
def test_pooling_against_the_reference(seed):
    rng = np.random.default_rng(seed)
    d, k = 12, 5
    vectors = np.linalg.qr(rng.standard_normal((d, k)))[0].T
    for trace in (20.0, 60.0, 400.0):
        values = np.sort(rng.random(k) * 8)[::-1]
        trace = max(trace, 1.01 * values.sum())
        ours = SpikedCovariance.pooled(values, vectors, certain=values, trace=trace, rounding=0.0)
        assert near(ours.matrix(), reference.pooled_covariance(values, vectors, trace=trace))
        assert np.all(ours.values >= ours.rest)
        assert np.isclose(ours.trace, trace)
        columns = np.array([1, 4, 11])
        for same in (ours, DenseCovariance(ours.matrix())):
            assert np.isclose(same.squares, np.sum(ours.matrix() ** 2) / trace**2)
            assert near(same.shrunk(0.3, 0.2).matrix(), 0.7 * ours.matrix() + 0.2 * np.eye(d))
            assert near(same.inverse_columns(columns), np.linalg.inv(ours.matrix())[:, columns])


def test_flat_noise_is_pooled_to_a_multiple_of_the_identity():
    rows = np.random.default_rng(0).standard_normal((4000, 60))
    found = SketchedCovariance(8, solver="gram", shrinkage=None).fit(rows)
    values = np.linalg.eigvalsh(found.covariance_)
    assert np.isclose(values.sum(), rows.var(axis=0).sum())
    assert values[0] > 0.9


@pytest.mark.parametrize("n", [3, 20])
def test_fewer_rows_than_the_sketch_has(n):
    """Nothing is known of other directions: the pseudo-inverse, as scikit-learn has it."""
    ours = SketchedCovariance(25, solver="gram", shrinkage=None).fit(X[:n])
    theirs = EmpiricalCovariance().fit(X[:n] / ours.scale_)
    outer = np.outer(ours.scale_, ours.scale_)
    assert near(ours.covariance_, theirs.covariance_ * outer)
    assert near(ours.precision_, theirs.precision_ / outer, 1e8)
    assert near(ours.mahalanobis(X[:n]), theirs.mahalanobis(X[:n] / ours.scale_), 1e8)
    assert ours.score(X) == -np.inf
    assert np.isfinite(SketchedCovariance(25, solver="gram").fit(X[:n]).score(X))


# -- calibration -------------------------------------------------------------------------------------------------------
def factor_rows(rng, n, loadings):
    return rng.standard_normal((n, len(loadings))) @ loadings + rng.standard_normal((n, loadings.shape[1]))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "options", [{"solver": "auto"}, {"solver": "gram"}, {"solver": "gram", "method": "fd"}], ids=str
)
@pytest.mark.parametrize("size", [32, 64, 128])
def test_the_share_of_normal_rows_beyond_a_threshold(options, size):
    """It was 100% (auto) and 0% (gram) at the 1% threshold."""
    rng, d = np.random.default_rng(size), 150
    loadings = np.linspace(5, 1, 10)[:, np.newaxis] * rng.standard_normal((10, d))
    model = SketchedCovariance(size, **options)
    for _ in range(10):
        model.partial_fit(factor_rows(rng, 3000, loadings))
    distances = model.mahalanobis(factor_rows(rng, 10_000, loadings))
    for level in (0.01, 0.05):
        assert level / 2 <= np.mean(distances > chi2.isf(level, d)) <= 2 * level


@pytest.mark.parametrize("law", ["identity", "factors"])
@pytest.mark.parametrize(("d", "n"), [(100, 20), (100, 50), (100, 500), (300, 60), (300, 400)])
def test_the_likelihood_of_new_rows_with_few_rows_a_column(law, d, n):
    """At most 1.2 times as far below the truth as the better of two estimators fitted to standardised columns."""
    rng = np.random.default_rng(0)
    loadings = np.linspace(5, 1, 8)[:, np.newaxis] * np.linalg.qr(rng.standard_normal((d, 8)))[0].T * d**0.25
    loadings *= law == "factors"
    rows, new = factor_rows(rng, n, loadings), factor_rows(rng, 400, loadings)
    truth = loadings.T @ loadings + np.eye(d)
    whitened = np.linalg.solve(np.linalg.cholesky(truth), new.T)
    best = -0.5 * (d * np.log(2 * np.pi) + np.linalg.slogdet(truth)[1] + np.mean(np.sum(whitened**2, axis=0)))
    to_standard, scale = standardised(rows)
    gaps = [
        best - (kind().fit(to_standard(rows)).score(to_standard(new)) - np.log(scale).sum())
        for kind in (OAS, LedoitWolf)
    ]
    assert best - SketchedCovariance().fit(rows).score(new) <= 1.2 * min(gaps)


def test_the_intensity_of_shrinkage_does_not_depend_on_a_common_factor_of_weights():
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 60)
    rows = X[:60]
    ours, theirs, equal = (
        SketchedCovariance().fit(rows, sample_weight=w) for w in (weights, 1e3 * weights, np.ones(60))
    )
    assert np.isclose(ours.shrinkage_, theirs.shrinkage_, rtol=1e-9)
    n = weights.sum() ** 2 / np.sum(weights**2)  # Kish
    mean = np.average(rows, axis=0, weights=weights)
    covariance = (rows - mean).T * weights @ (rows - mean) / weights.sum()
    correlation = covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    assert np.isclose(ours.shrinkage_, reference.oracle_approximating_shrinkage(correlation, n), rtol=1e-9)
    assert np.isclose(equal.shrinkage_, OAS().fit(standardised(rows)[0](rows)).shrinkage_, rtol=1e-9)
    assert np.allclose(ours.covariance_.diagonal(), covariance.diagonal())  # variances are not shrunk


# -- anomaly scores ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["gram", "exact"])
def test_leverage_and_projection_distance(solver):
    ours = SketchedCovariance(8, solver=solver, shrinkage=None).fit(X)
    moved = (X - ours.location_) / ours.scale_
    values, vectors = np.linalg.eigh(ours.covariance_ / np.outer(ours.scale_, ours.scale_))
    values, vectors = values[::-1], vectors[:, ::-1]
    for k in (1, 3, 6):
        inside = moved @ vectors[:, :k]
        expected = np.sum(inside**2 / values[:k], axis=1) / len(X)
        outside = np.linalg.norm(moved - inside @ vectors[:, :k].T, axis=1)
        for rows in (X, sparse.csr_array(X)):
            assert np.allclose(ours.leverage(rows, n_components=k), expected, rtol=1e-6)
            assert np.allclose(ours.projection_distance(rows, n_components=k), outside, rtol=1e-6)
    if solver == "gram":  # both together are the Mahalanobis distance
        whole = len(X) * ours.leverage(X) + ours.projection_distance(X) ** 2 / ours.noise_variance_
        assert near(whole, ours.mahalanobis(X), 1e6)
    exact = SketchedCovariance(40, solver="gram", shrinkage=None).fit(X)
    assert np.isclose(exact.leverage(X).sum(), 30)
    assert np.all(exact.leverage(X) <= 1)
    with pytest.raises(ValueError, match="n_components must be at most"):
        ours.leverage(X, n_components=31)


def test_sparse_rows_are_never_dense_as_a_whole(monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((700, 50)) * (rng.random((700, 50)) < 0.1)
    matrix = sparse.csr_array(rows)
    original = sparse.csr_array.toarray

    def small(self, *args, **kwargs):
        assert self.shape[0] <= 256
        return original(self, *args, **kwargs)

    monkeypatch.setattr(sparse.csr_array, "toarray", small)
    for solver in ("gram", "exact"):
        ours = SketchedCovariance(8, solver=solver, shrinkage="ledoit-wolf").fit(matrix)
        assert np.allclose(ours.mahalanobis(matrix), ours.mahalanobis(rows), rtol=1e-6)
        assert ours.leverage(matrix).shape == ours.projection_distance(matrix).shape == (700,)
        expected = LedoitWolf().fit(standardised(rows)[0](rows)).shrinkage_
        assert solver == "gram" or np.isclose(ours.shrinkage_, expected, rtol=1e-6)


# -- batches, weights, merging, files ----------------------------------------------------------------------------------
def test_one_thread_at_a_time():
    ours = SketchedCovariance().fit(X)

    class Rows:
        def __array__(self, *args, **kwargs):
            with pytest.raises(RuntimeError, match="one thread at a time"):
                ours.merge(ours)
            return X

    ours.partial_fit(Rows())
    assert ours.n_samples_seen_ == 800


def test_batches_are_one_fit():
    whole = SketchedCovariance(8, solver="gram").fit(X)
    parts = batches(SketchedCovariance(8, solver="gram"), X)
    assert np.allclose(parts.covariance_, whole.covariance_, rtol=1e-10)
    assert parts.n_samples_seen_ == 400


@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("assume_centered", [False, True])
def test_a_weight_is_a_repetition(assume_centered, matrix):
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    options = {"assume_centered": assume_centered, "shrinkage": 0.1}
    repeated = SketchedCovariance(**options).fit(np.repeat(X, weights, axis=0))
    weighted = batches(SketchedCovariance(**options), matrix(X), 50, weights)
    assert near(weighted.covariance_, repeated.covariance_, 1e5)
    at_once = SketchedCovariance(**options).fit(matrix(X), sample_weight=weights)
    assert near(at_once.covariance_, repeated.covariance_, 1e5)


def test_weights_of_zero():
    with pytest.raises(ValueError, match="sample_weight must not be zero for all rows"):
        SketchedCovariance().fit(X, sample_weight=np.zeros(400))
    begun = SketchedCovariance().partial_fit(X, sample_weight=0.0)
    with pytest.raises(NotFittedError):
        begun.mahalanobis(X)
    assert near(begun.partial_fit(X).covariance_, SketchedCovariance().fit(X).covariance_)


@pytest.mark.parametrize("solver", ["exact", "gram"])
@pytest.mark.parametrize("assume_centered", [False, True])
def test_merging(solver, assume_centered):
    options = {"sketch_size": 40, "solver": solver, "assume_centered": assume_centered, "shrinkage": "ledoit-wolf"}
    if solver == "gram":  # scales are those of other rows, and so is what shrinkage does
        options["shrinkage"] = None
    whole = SketchedCovariance(**options).fit(X)
    parts = [SketchedCovariance(**options).fit(X[part]) for part in (slice(50), slice(50, 90), slice(90, 400))]
    before = parts[1].covariance_
    merged = SketchedCovariance(**options)
    for part in parts:
        assert merged.merge(part) is merged
    assert near(merged.covariance_, whole.covariance_, 1e5)
    assert np.isclose(merged.shrinkage_, whole.shrinkage_, rtol=1e-9)
    assert merged.n_samples_seen_ == 400
    assert np.array_equal(parts[1].covariance_, before)
    twice = SketchedCovariance(**options).fit(X)
    twice.merge(twice)
    assert twice.n_samples_seen_ == 800
    assert twice.merge(parts[0]).partial_fit(X[:5]).n_samples_seen_ == 855


def test_what_cannot_be_merged():
    ours = SketchedCovariance(8).fit(X)
    for other, error, words in (
        (SketchedCovariance(9).fit(X), ValueError, "other has sketch_size=9, this estimator 8"),
        (SketchedCovariance(8).fit(X[:, :5]), ValueError, "other has 5 features, this estimator 30"),
        (SketchedCovariance(8), NotFittedError, "not fitted"),
        (SketchedPCA(2).fit(X), TypeError, "other must be a SketchedCovariance"),
    ):
        with pytest.raises(error, match=words):
            ours.merge(other)
    assert ours.n_samples_seen_ == 400


@pytest.mark.parametrize("options", [{}, {"solver": "gram", "sketch_size": 8, "shrinkage": 0.2, "alpha0": 1.0}])
def test_files_and_pickles_go_on(options, tmp_path):
    half = SketchedCovariance(**options).fit(X[:150])
    half.save(tmp_path / "half.fsk")
    loaded = SketchedCovariance.load(tmp_path / "half.fsk")
    with (tmp_path / "half.fsk").open("rb") as file:
        again = SketchedCovariance.load(file)
    half.mahalanobis(X)  # what is kept for reading is not sent
    sent = pickle.loads(pickle.dumps(half))
    half.partial_fit(X[150:])
    for other in (loaded, again, sent):
        assert other.get_params() == SketchedCovariance(**options).get_params()
        other.partial_fit(X[150:])
        assert np.array_equal(other.covariance_, half.covariance_)
        with pytest.raises(ValueError, match="sketch_size is 9"):
            other.set_params(sketch_size=9).partial_fit(X)


def test_feature_names_are_kept(tmp_path):
    named = SketchedCovariance().fit(X)
    named.feature_names_in_ = np.array([f"c{i}" for i in range(30)], dtype=object)  # as fit does with a data frame
    named.save(tmp_path / "s.fsk")
    again = SketchedCovariance.load(tmp_path / "s.fsk")
    assert again.feature_names_in_.dtype == object
    assert again.feature_names_in_.tolist() == named.feature_names_in_.tolist()
    again.feature_names_in_[3] = "x"
    with pytest.raises(ValueError, match="other feature names"):
        named.merge(again)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "s.fsk"
    fs.FrequentDirections(4).update(X).save(path)
    with pytest.raises(fs.StateError, match="holds a FrequentDirections, not a SketchedCovariance"):
        SketchedCovariance.load(path)
    with pytest.raises(NotFittedError):
        SketchedCovariance().save(path)
    from fastsketch.data.files import _state as files

    fitted = SketchedCovariance(8).fit(X)
    fitted.save(path)
    with pytest.raises(fs.StateError, match=r"estimator: read it with fastsketch\.sklearn\.SketchedCovariance\.load"):
        fs.load(path)
    about, arrays = files.read(path)
    about = {name: about[name] for name in ("kind", "home", "parameters", "notes", "state")}
    for change in (
        {"sketch": np.zeros(5, np.uint8)},
        {"sketch": np.frombuffer(fs.FrequentDirections(4).to_bytes(), np.uint8)},
    ):
        files.write(path, files.pack(about, {**arrays, **change}))
        with pytest.raises(fs.StateError):
            SketchedCovariance.load(path)
    for change in (
        {"parameters": {"x": 1}},
        {"state": {}},
        {"state": {"fixed": {}, "feature_names": ["a"]}},
        {"parameters": {**about["parameters"], "sketch_size": 9}},
    ):
        files.write(path, files.pack({**about, **change}, arrays))
        with pytest.raises(fs.StateError):
            SketchedCovariance.load(path)
    files.write(path, files.pack(about, arrays))
    assert np.array_equal(SketchedCovariance.load(path).covariance_, fitted.covariance_)


@pytest.mark.parametrize("method", ["tfd", "rfd", "fd", "pfd", "cfd", "isvd"])
@pytest.mark.parametrize("center", [False, True])
def test_from_a_sketch(method, center):
    same = SketchedCovariance(8, method=method, solver="gram", assume_centered=not center, shrinkage=None).fit(X)
    sketch = fs.FrequentDirections(8, method=method, solver="gram", center=center).update(X / same.scale_)
    ours = SketchedCovariance.from_model(sketch, shrinkage=None)
    assert np.array_equal(ours.covariance_ * np.outer(same.scale_, same.scale_), same.covariance_)
    assert np.array_equal(ours.mahalanobis(X / same.scale_), same.mahalanobis(X))
    assert ours.set_params(shrinkage="oas").shrinkage_ > 0
    with pytest.raises(ValueError, match="'ledoit-wolf' needs fourth moments of rows kept aside, .* from elsewhere"):
        _ = ours.set_params(shrinkage="ledoit-wolf").shrinkage_
    ours.set_params(shrinkage="auto").partial_fit(X)
    assert ours.n_samples_seen_ == 800
    assert sketch.n_rows == 400
    with pytest.raises(ValueError, match="one of the two has a sketch of rows as they are, made elsewhere"):
        same.set_params(shrinkage="auto").merge(ours)
    assert same.n_samples_seen_ == 400 and ours.merge(ours).n_samples_seen_ == 1600


def test_what_is_no_sketch_to_begin_from():
    with pytest.raises(TypeError, match="model must be a fastsketch.FrequentDirections, got int"):
        SketchedCovariance.from_model(3)
    with pytest.raises(ValueError, match="model must have seen rows"):
        SketchedCovariance.from_model(fs.FrequentDirections(3))
    with pytest.raises(ValueError, match="sketch_size=4 does not fit the sketch, which has sketch_size=3"):
        SketchedCovariance.from_model(fs.FrequentDirections(3).update(X), sketch_size=4)


# -- parameters --------------------------------------------------------------------------------------------------------
def test_shrinkage_may_change_after_the_pass():
    ours = SketchedCovariance(shrinkage=None).fit(X)
    to_standard, scale = standardised(X)
    for shrinkage, theirs in THEIRS.items():
        expected = theirs().fit(to_standard(X)).covariance_ * np.outer(scale, scale)
        assert near(ours.set_params(shrinkage=shrinkage).covariance_, expected)


def test_auto_takes_the_exact_matrix_where_it_fits():
    wide = np.random.default_rng(0).standard_normal((10, 1600))

    def chosen(**parameters):
        return SketchedCovariance(**parameters).fit(wide).sketch_.resolved["solver"]

    assert chosen() == "exact"
    assert chosen(max_memory=1e6) == "gram"  # 32 * 1600^2 bytes are 82 MB
    assert chosen(sketch_size=8) == "gram"  # 44 * 8 + 1200 columns are a fair bargain
    assert chosen(solver="gram") == "gram"
    assert chosen(solver="exact", max_memory=1e6) == "exact"


@pytest.mark.parametrize(
    "parameters",
    [
        {"sketch_size": 1},
        {"alpha0": -1.0},
        {"solver": "x"},
        {"method": "x"},
        {"shrinkage": "x"},
        {"shrinkage": 1.5},
        {"shrinkage": True},
        {"max_memory": "1 GB"},
        {"max_memory": -1},
        {"assume_centered": 2},
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters):
    with pytest.raises((TypeError, ValueError), match=next(iter(parameters))):
        SketchedCovariance(**parameters).fit(X)


def test_rows_whose_fourth_powers_leave_the_range_of_numbers():
    for shrinkage in THEIRS:
        large, ours = (SketchedCovariance(shrinkage=shrinkage).fit(rows) for rows in (X * 1e100, X))
        assert np.allclose(large.mahalanobis(X * 1e100), ours.mahalanobis(X), rtol=1e-6)


def test_the_trace_where_all_directions_are_kept():
    """l = d: what was lost before the last direction came in is along that one."""
    for n in (17, 26, 35):
        X = np.random.default_rng(0).standard_normal((n, 8))
        model = SketchedCovariance(8, solver="gram", shrinkage=None, assume_centered=True).fit(X)
        assert np.isclose(np.trace(model.covariance_ / model.scale_**2), (X**2 / model.scale_**2).sum() / n)
