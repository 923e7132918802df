"""LowRankCompleter's Gaussian: EM beside its reference, streams, merges, jobs, files, bad input, and how sure it is."""

import warnings

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.experimental import enable_iterative_imputer  # noqa: E402, F401
from sklearn.impute import IterativeImputer  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch import reference  # noqa: E402
from fastsketch.lowrank._gap_moments import SHRINKAGE_GRID, GapMoments, TableGaussian, nearest_correlation  # noqa: E402
from fastsketch.lowrank._gap_patterns import group_by_pattern  # noqa: E402
from fastsketch.sklearn import LowRankCompleter  # noqa: E402

D = 7


def table(n=300, d=D, share=0.2, seed=0):
    """(rows of two factors and noise, the same with gaps)."""
    rng = np.random.default_rng(seed)
    whole = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) + 0.5 * rng.standard_normal((n, d))
    whole = whole * np.geomspace(0.1, 10, d) + np.linspace(-5, 50, d)
    return whole, np.where(rng.random(whole.shape) < share, np.nan, whole)


def error(filled, whole, X):
    return np.sqrt(np.mean((((filled - whole) / whole.std(axis=0))[np.isnan(X)]) ** 2))


def learned_at_once(X, given=None):
    model = GapMoments() if given is None else GapMoments.for_e_step(given)
    return model.update(X)


# -- beside the reference ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_e_step_is_that_of_the_reference(share):
    """Both forms: with the inverse of the missing block, and of the observed one."""
    whole, X = table(share=share)
    covariance = np.cov(whole.T)
    scale = np.sqrt(covariance.diagonal())
    given = TableGaussian(whole.mean(axis=0), scale, covariance / np.outer(scale, scale))
    completed, uncertainty = reference.expectation_step(X, mean=whole.mean(axis=0), covariance=covariance)
    np.testing.assert_allclose(given.fill(X), completed, rtol=1e-9)
    found = given.complete(X, variances=True)
    np.testing.assert_allclose(found.uncertainty * np.outer(scale, scale), uncertainty, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.variances.sum(axis=0), found.uncertainty.diagonal(), rtol=1e-9)
    assert (found.variances[~np.isnan(X)] == 0).all()


def test_the_steps_of_em_are_those_of_the_reference():
    """The means, scales and correlations before they are shrunk; the reference shrinks by another share."""
    _, X = table()
    model = GapMoments().update(X)
    given = model.gaussian()
    for _ in range(5):
        correlation = given.correlation * np.outer(given.scale, given.scale)
        mean, scale, _ = reference.maximization_step(
            *reference.expectation_step(X, mean=given.location, covariance=correlation)
        )
        given = learned_at_once(X, given).gaussian()
        np.testing.assert_allclose(given.location, mean, rtol=1e-9)
        np.testing.assert_allclose(given.scale, scale, rtol=1e-9)


def test_the_share_of_shrinkage_has_the_largest_leave_one_out_likelihood():
    """Every row is left out in turn: its own covariance, shrunk, and its own determinant."""
    whole, _ = table(40)
    rows = (whole - whole.mean(axis=0)) / whole.std(axis=0)
    raw, n = rows.T @ rows / len(rows), len(rows)
    given = TableGaussian(whole.mean(axis=0), whole.std(axis=0), raw, raw, n)
    expected = []
    for share in SHRINKAGE_GRID:
        total = 0.0
        for row in rows:
            without = (1 - share) * (n * raw - np.outer(row, row)) / (n - 1) + share * np.eye(D)
            total += np.linalg.slogdet(without)[1] + row @ np.linalg.solve(without, row)
        expected.append(total)
    np.testing.assert_allclose(given.leave_one_out(given.complete(whole)), expected, rtol=1e-9)
    # of few rows more
    shares = [np.argmin(given.leave_one_out(given.complete(whole[:k]))) for k in (10, 40)]
    assert shares[0] >= shares[1]


def test_without_gaps_nothing_is_iterated():
    whole, _ = table()
    model = LowRankCompleter().fit(whole)
    assert model.n_iter_ == 1
    np.testing.assert_allclose(model.location_, whole.mean(axis=0))
    np.testing.assert_allclose(model.covariance_.diagonal(), whole.var(axis=0))
    assert np.array_equal(model.transform(whole), whole)


def test_many_rounds_of_iterative_imputer_fill_the_same():
    """The regressions of a Gaussian are those of Bayesian ridge within their sampling error, of some 1 / sqrt(n)."""
    whole, X = table(3000, share=0.15)
    theirs = IterativeImputer(max_iter=50, tol=1e-4, random_state=0).fit_transform(X)
    ours = LowRankCompleter(max_iter=50, tol=1e-6).fit_transform(X)
    difference = np.abs((ours - theirs) / whole.std(axis=0))[np.isnan(X)]
    assert np.sqrt(np.mean(difference**2)) < 2 / np.sqrt(3000)


# -- units, offsets, forms ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_units_and_offsets_change_nothing(learn):
    whole, X = table()
    units = 10.0 ** np.linspace(-9, 9, D)
    offsets = 1e6 * whole.std(axis=0) * [1, 0, -1, 0, 0, 1, 0]
    plain = getattr(LowRankCompleter(), learn)(X).transform(X)
    moved = X * units + offsets * units
    other = (getattr(LowRankCompleter(), learn)(moved).transform(moved) - offsets * units) / units
    # rounding of numbers a million deviations from zero: 1e6 * 1e-16, times the condition of the correlations
    assert np.abs((other - plain) / whole.std(axis=0)).max() < 1e-6


@pytest.mark.parametrize("power", [-250, 200])
def test_squares_may_leave_the_range_of_numbers(power):
    whole, X = table()
    factor = np.r_[10.0**power, np.ones(D - 1)]
    np.testing.assert_allclose(
        LowRankCompleter().fit_transform(X * factor) / factor, LowRankCompleter().fit_transform(X), rtol=1e-6
    )


def test_arrays_sparse_rows_masks_and_float32_are_one_table():
    whole, X = table()
    filled = LowRankCompleter().fit_transform(X)
    masked = np.ma.masked_invalid(np.where(np.isnan(X), 9e9, X))
    masked.mask = np.isnan(X)
    np.testing.assert_allclose(LowRankCompleter().fit_transform(masked), filled, rtol=1e-9)
    at = np.nonzero(~np.isnan(X))
    stored = sparse.csr_array((X[at], at), shape=X.shape)
    np.testing.assert_allclose(LowRankCompleter(method="gaussian").fit_transform(stored), filled, rtol=1e-9)
    narrow = LowRankCompleter().fit_transform(X.astype(np.float32))
    assert narrow.dtype == np.float32
    assert np.abs((narrow - filled) / whole.std(axis=0)).max() < 1e-3


def test_filled_entries_keep_to_a_range():
    _, X = table()
    filled = LowRankCompleter(clip=(0.0, 20.0)).fit_transform(X)
    gaps = np.isnan(X)
    assert filled[gaps].min() >= 0 and filled[gaps].max() <= 20 and np.array_equal(filled[~gaps], X[~gaps])


# -- streams, merges, sources, jobs, files -----------------------------------------------------------------------------
def test_batches_merges_and_jobs_sum_up_the_same_pairs():
    whole, X = table(share=0.3)
    one = LowRankCompleter().partial_fit(X)
    batches = LowRankCompleter()
    for rows in [X[:1], *np.array_split(X[1:], 9)]:
        batches.partial_fit(rows)
    merged = LowRankCompleter().partial_fit(X[:140]).merge(LowRankCompleter().partial_fit(X[140:]))
    job = fs.run(LowRankCompleter(), X, workers=1)
    for other in (batches, merged, job):
        np.testing.assert_allclose(other.transform(X), one.transform(X), rtol=1e-8)
        assert other.n_samples_seen_ == 300 and other.n_iter_ == 1
    assert error(one.transform(X), whole, X) < 0.8  # means have about 1


def test_a_column_may_be_first_seen_in_a_later_batch():
    _, X = table()
    X[:100, 2] = np.nan
    batches = LowRankCompleter()
    batches.partial_fit(X[:100])
    with pytest.raises(ValueError, match="column 2 has no observed entry"):
        batches.transform(X)
    for rows in (X[100:200], X[200:]):
        batches.partial_fit(rows)
    np.testing.assert_allclose(batches.transform(X), LowRankCompleter().partial_fit(X).transform(X), rtol=1e-8)


def test_sums_of_an_e_step_merge():
    _, X = table()
    given = GapMoments().update(X).gaussian()
    whole = learned_at_once(X, given)
    parts = learned_at_once(X[:100], given).merge(learned_at_once(X[100:], given))
    for name in ("location", "scale", "correlation"):
        np.testing.assert_allclose(getattr(parts.gaussian(), name), getattr(whole.gaussian(), name), atol=1e-9)


def test_a_source_and_the_passes_of_a_job_are_steps_of_em(tmp_path):
    whole, X = table()
    path = tmp_path / "rows.csv"
    names = [f"c{j}" for j in range(D)]
    lines = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in X]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    model = LowRankCompleter().fit(X)
    source = LowRankCompleter().fit(fs.open_rows(path))
    assert source.n_iter_ == model.n_iter_ > 2 and list(source.feature_names_in_) == names
    job = fs.run(LowRankCompleter(), path, passes=model.n_iter_, workers=1)
    assert job.n_iter_ == model.n_iter_
    for other in (source, job):
        np.testing.assert_allclose(other.location_, model.location_, rtol=1e-9)
        np.testing.assert_allclose(other.covariance_, model.covariance_, rtol=1e-7)


def test_partial_fit_after_fit_completes_new_rows():
    whole, X = table(600, share=0.3)
    model = LowRankCompleter().fit(X[:300])
    before = error(model.transform(X), whole, X)
    model.partial_fit(X[300:])
    assert model.n_samples_seen_ == 600
    assert error(model.transform(X), whole, X) < before + 0.01


def test_it_is_saved(tmp_path):
    _, X = table()
    for model in (LowRankCompleter().fit(X), LowRankCompleter().partial_fit(X)):
        model.save(tmp_path / "model.fsk")
        again = LowRankCompleter.load(tmp_path / "model.fsk")
        assert np.array_equal(again.transform(X), model.transform(X)) and again.n_iter_ == model.n_iter_
        assert np.array_equal(again.partial_fit(X).transform(X), model.partial_fit(X).transform(X))


# -- which model -------------------------------------------------------------------------------------------------------
def test_the_gaussian_is_for_more_rows_than_columns():
    whole, X = table()
    at = np.nonzero(~np.isnan(X))
    stored = sparse.csr_array((X[at], at), shape=X.shape)
    for given, kind, options in (
        (X, GapMoments, {}),
        (X, GapMoments, {"clip": (-100.0, 100.0), "random_state": 3}),
        (X[:D], fs.LowRankModel, {}),
        (X, fs.LowRankModel, {"max_features": D - 1}),
        (X, fs.LowRankModel, {"rank": 3}),
        (X, fs.LowRankModel, {"method": "low_rank"}),
        (stored, fs.LowRankModel, {}),
        (X[:D], GapMoments, {"method": "gaussian"}),
        (X, GapMoments, {"method": "gaussian", "rank": 3}),
    ):
        assert type(LowRankCompleter(**options).fit(given).model_) is kind
    low_rank = LowRankCompleter(3)
    assert not hasattr(low_rank, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        low_rank.partial_fit(X)
    assert "rank=3 asks for a low-rank model" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="method='low_rank' asks for a low-rank model"):
        fs.run(LowRankCompleter(method="low_rank"), X)
    with pytest.raises(ValueError, match="7 columns, more than max_features=6"):
        LowRankCompleter(max_features=6).partial_fit(X)
    with pytest.raises(AttributeError, match="model_ is a Gaussian"):
        LowRankCompleter().fit(X).components_  # noqa: B018
    with pytest.raises(AttributeError, match="model_ is a low-rank model"):
        low_rank.fit(X).covariance_  # noqa: B018
    with pytest.raises(ValueError, match="takes rows"):
        LowRankCompleter(method="gaussian").fit({"a": {"x": 1.0}, "b": {"y": 2.0}})


@pytest.mark.parametrize(
    "wrong",
    [{"method": "em"}, {"max_iter": 0}, {"tol": -1.0}, {"max_features": 0}, {"clip": (2.0, 1.0)}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_parameter_leaves_the_model(wrong):
    _, X = table()
    model = LowRankCompleter().fit(X)
    before = model.transform(X)
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        model.set_params(**wrong).fit(X)
    model.set_params(**{name: LowRankCompleter().get_params()[name] for name in wrong})
    assert np.array_equal(model.transform(X), before)


# -- bad input ---------------------------------------------------------------------------------------------------------
def odd_tables():
    whole, _ = table()
    rng = np.random.default_rng(5)
    heavy = rng.standard_cauchy((300, D))
    return {
        "a constant column": np.column_stack([whole, np.full(300, 0.1)]),
        "a duplicated column": np.column_stack([whole, whole[:, 0]]),
        "a column that is a sum": np.column_stack([whole, whole.sum(axis=1)]),
        "fewer rows than columns": whole[:5],
        "equal rows": np.tile(whole[:1], (40, 1)),
        "heavy tails": heavy,
        "one column": whole[:, :1],
    }


@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("name", odd_tables())
def test_odd_tables_are_filled_with_finite_numbers(name, share):
    whole = odd_tables()[name]
    X = np.where(np.random.default_rng(1).random(whole.shape) < share, np.nan, whole)
    X[0] = whole[0]  # no column without an entry
    for learn in ("fit", "partial_fit"):
        model = getattr(LowRankCompleter(method="gaussian"), learn)(X)
        assert np.isfinite(model.transform(X)).all()
    spread = np.where(whole.std(axis=0) > 0, whole.std(axis=0), 1.0)
    if name == "a duplicated column" and share == 0.2:
        one = np.isnan(X[:, -1]) & ~np.isnan(X[:, 0])
        assert np.abs((LowRankCompleter().fit_transform(X) - whole) / spread)[one, -1].max() < 1e-3
    if name == "equal rows":
        assert np.array_equal(model.transform(X), whole)


def test_one_row_and_one_entry_a_row():
    whole, _ = table()
    assert np.array_equal(LowRankCompleter(method="gaussian").fit_transform(whole[:1]), whole[:1])
    X = np.full_like(whole, np.nan)
    at = np.arange(len(X)), np.random.default_rng(0).integers(0, D, len(X))
    X[at] = whole[at]
    assert np.isfinite(LowRankCompleter().fit_transform(X)).all()


def test_an_infinity_is_refused_by_its_place():
    _, X = table()
    X[3, 2] = np.inf
    with pytest.raises(ValueError, match=r"infinity"):
        LowRankCompleter().fit(X)
    with pytest.raises(ValueError, match="row 3 holds an infinity in column 2"):
        GapMoments().update(X)
    model = GapMoments().update(X[:3])
    with pytest.raises(ValueError, match="too far apart"):
        model.update(np.where(np.arange(D) == 4, 1e308, X[4:5]))
    assert model.n_rows == 3


def test_the_nearest_correlation_matrix():
    matrix = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    out = nearest_correlation(matrix)
    assert np.linalg.eigvalsh(out)[0] > -1e-12 and (out.diagonal() == 1).all() and np.array_equal(out, out.T)
    whole = np.array([[1.0, 0.3], [0.3, 1.0]])
    assert nearest_correlation(whole) is whole


def test_rows_of_a_pattern_are_one_group():
    gaps = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]], bool)
    found = group_by_pattern(gaps)
    assert [sorted(group.rows.tolist()) for group in found] == [[0, 3, 4], [2]]
    assert sorted(group.counts.tolist() for group in found) == [[1.0], [1.0, 2.0]]


# -- how sure ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_hold_the_missing_entries(coverage):
    whole, X = table(4000)
    lower, upper = LowRankCompleter().fit(X).predict_interval(X, coverage=coverage)
    gaps = np.isnan(X)
    assert np.array_equal(lower[~gaps], X[~gaps]) and np.array_equal(upper[~gaps], X[~gaps])
    share = np.mean(((lower <= whole) & (whole <= upper))[gaps])
    # five standard errors of a share, and what 4,000 rows leave uncertain of the covariance
    assert abs(share - coverage) < 5 * np.sqrt(coverage * (1 - coverage) / gaps.sum()) + 0.01
    with pytest.raises(ValueError, match="coverage"):
        LowRankCompleter().fit(X).predict_interval(X, coverage=1.0)


def test_no_warning():
    _, X = table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LowRankCompleter().fit(X).transform(X)
