"""Alarms of SketchedCovariance: thresholds that new rows exceed as often as was asked, and the scores behind them."""

import copy
import pickle
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import beta, chi2

pytest.importorskip("sklearn")

import fastsketch as fs  # noqa: E402
from fastsketch import reference  # noqa: E402
from fastsketch.covariance import _kept_rows as kept_rows  # noqa: E402
from fastsketch.covariance._gaussian import ShrunkCovariance, empirical_covariance  # noqa: E402
from fastsketch.covariance._kept_rows import KeptRows  # noqa: E402
from fastsketch.covariance._mrcd import Fit, Moments, Scorer, consistency_factor, cross_validated, leave_one_out  # noqa: E402
from fastsketch.sklearn import SketchedCovariance  # noqa: E402

# fits of ten that may leave an interval which holds for 95% of them: more happen to 1 in 1,000 right programs
MAY_MISS = 3


def rows_of(seed, n, d=40):
    """Return rows of heavy tails and a few factors: no chi-squared law."""
    rng = np.random.default_rng(seed)
    loadings = np.random.default_rng(99).standard_normal((4, d)) * 3
    return rng.standard_normal((n, 4)) @ loadings + rng.standard_t(4, (n, d))


# -- the share of alarms -----------------------------------------------------------------------------------------------
CASES = [
    {"n": 150},
    {"n": 150, "d": 200},
    {"n": 600},
    {"n": 6000},
    {"n": 600, "solver": "gram", "sketch_size": 16},
    {"n": 6000, "solver": "gram", "sketch_size": 16},
    {"n": 600, "assume_centered": True, "shrinkage": "oas"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_new_rows_are_alarms_as_often_as_the_interval_says(case, amount):
    options = dict(case)
    n, d, fits = options.pop("n"), options.pop("d", 40), amount(4, 10)
    missed = 0
    for seed in range(fits):
        model = SketchedCovariance(contamination=0.05, **options).fit(rows_of([seed, n], n, d))
        low, high = model.alarm_interval_
        new = rows_of([seed, 7], 4000, d)
        slack = 3 * np.sqrt(0.05 * 0.95 / len(new))
        missed += not low - slack <= np.mean(model.predict(new) < 0) <= high + slack
    assert missed <= MAY_MISS


def test_the_interval_is_that_of_the_rows_kept():
    model = SketchedCovariance(contamination=0.05).fit(rows_of(0, 399))
    assert np.allclose(model.alarm_interval_, beta.ppf([0.025, 0.975], 20, 380))
    kept = np.sort(model._detector().threshold.held_out)
    assert len(kept) == 399 and np.isclose(-model.offset_, kept[-20])  # 20 of the 400 places are beyond it
    model.set_params(contamination=0.1)  # may change without another pass
    assert np.isclose(-model.offset_, kept[-40])


def test_anomalies_among_the_rows_are_part_of_the_share():
    """They take alarms away from normal rows: with 2% of anomalies about 3% are left of 5%."""
    rows, away = rows_of(0, 3000), 300 * np.random.default_rng(5).standard_normal((60, 40))
    rows[::50] += away
    model = SketchedCovariance(contamination=0.05).fit(rows)
    assert 0.02 < np.mean(model.predict(rows_of(1, 4000)) < 0) < 0.045
    assert np.all(model.predict(away) == -1)


# -- as scikit-learn has outlier detectors -----------------------------------------------------------------------------
def test_scores_decisions_and_predictions_agree():
    X, Y = rows_of(0, 500), rows_of(1, 200)
    model = SketchedCovariance(contamination=0.1)
    trained = model.fit_predict(X)
    assert set(trained) == {1, -1} and trained.shape == (500,)
    decisions = model.decision_function(Y)
    assert np.allclose(decisions, model.score_samples(Y) - model.offset_)
    assert np.array_equal(model.predict(Y), np.where(decisions < 0, -1, 1))
    assert np.allclose(model.score_samples(sparse.csr_array(Y)), model.score_samples(Y))
    assert model.score_samples(10 * Y).mean() < model.score_samples(Y).mean()


def test_the_covariance_is_that_of_all_rows():
    X = rows_of(0, 300)
    with_alarms, without = SketchedCovariance().fit(X), SketchedCovariance(contamination=None).fit(X)
    assert np.array_equal(with_alarms.covariance_, without.covariance_)
    assert with_alarms.score(X) == without.score(X)


@pytest.mark.parametrize("contamination", [0, 0.6, -0.1, 1, "auto", True, float("nan")])
def test_shares_that_are_none(contamination):
    with pytest.raises((TypeError, ValueError), match="contamination"):
        SketchedCovariance(contamination=contamination).fit(rows_of(0, 50))


def test_without_rows_kept_aside_there_is_no_threshold():
    X = rows_of(0, 300)
    without = SketchedCovariance(contamination=None).fit(X)
    for model, why in (
        (without, "contamination=None; set contamination and call fit"),
        (SketchedCovariance.from_model(fs.FrequentDirections(8, center=True).update(X)), "from elsewhere"),
        (fs.run(SketchedCovariance(), X), "as that of a job, which keeps none"),
    ):
        assert np.isclose(model.score_samples(X).mean(), model.score(X))  # densities
        for call in (model.predict, model.decision_function):
            with pytest.raises(ValueError, match=f"a threshold needs rows kept aside, .*{why}"):
                call(X)
    with pytest.raises(ValueError, match="contamination is None: set it; rows are kept"):
        SketchedCovariance().fit(X).set_params(contamination=None).predict(X)


@pytest.mark.parametrize("mine", [0.05, None])
def test_merging_with_an_estimator_without_rows_says_so(mine, tmp_path):
    X, theirs = rows_of(0, 300), 0.05 if mine is None else None
    model, other = (SketchedCovariance(contamination=c).fit(X) for c in (mine, theirs))
    with pytest.warns(UserWarning, match="has kept no rows, so that the merged one has no threshold") as caught:
        model.merge(other)
    assert caught[0].filename == __file__
    model.set_params(contamination=0.05).save(tmp_path / "model.fsk")
    for merged in (model, SketchedCovariance.load(tmp_path / "model.fsk")):
        with pytest.raises(ValueError, match="one that was merged had kept none"):
            merged.predict(X)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("solver", ["exact", "gram"])
def test_units_of_rows_do_not_matter_until_squares_leave_the_range(form, solver):
    """Scores are those of the same rows in other units, of float32 too; smaller rows are refused, equal ones not."""
    X = rows_of(0, 300, 6)
    ours = SketchedCovariance(4, solver=solver).fit(form(X))
    order = np.argsort(ours.score_samples(form(X)))
    for unit, dtype in (
        (2.0**-448, np.float64),
        (2.0**465, np.float64),
        (2.0**-100, np.float32),
        (2.0**100, np.float32),
    ):
        rows = form((unit * X).astype(dtype))
        model = SketchedCovariance(4, solver=solver).fit(rows)
        assert np.allclose(model.mahalanobis(rows), ours.mahalanobis(form(X)), rtol=1e3 * np.finfo(dtype).eps)
        assert len(set(np.argsort(model.score_samples(rows))[:10]) & set(order[:10])) >= 9
    for unit in (1e-150, 1e-160, 1e-200, 1e-320):
        with pytest.raises(ValueError, match="the rows differ, but by so little .* scale the rows up"):
            SketchedCovariance(solver=solver).fit(form(unit * X))
        with pytest.warns(UserWarning, match="the covariance is zero"):
            assert not SketchedCovariance(solver=solver).fit(form(np.full((9, 3), unit))).mahalanobis([[0, 0, 0]]).any()


@pytest.mark.parametrize("solver", ["exact", "gram"])
def test_rows_whose_squares_leave_the_range_are_refused(solver):
    X = rows_of(0, 300)
    refused = pytest.raises(ValueError, match=r"squares of the rows, weighted, must not sum up to more than 1e\+300")
    model = SketchedCovariance(solver=solver, sketch_size=8).fit(X)
    before = model.decision_function(X)
    for call in (model.partial_fit, model.fit):
        for rows, weights in ((1e160 * X, None), (X, np.full(300, 1e299)), (sparse.csr_array(1e160 * X), None)):
            with refused:
                call(rows, sample_weight=weights)
    assert np.array_equal(model.decision_function(X), before)
    job = fs.run(SketchedCovariance(solver=solver, sketch_size=8), X)  # which sums up no moments
    with refused:
        job.partial_fit(1e160 * X)
    assert job.n_samples_seen_ == 300
    large = SketchedCovariance(solver=solver, sketch_size=8).fit(1e140 * X)
    assert np.array_equal(large.predict(1e140 * X), large.predict(1e140 * X[::-1])[::-1])


def test_few_rows_say_what_they_cannot():
    model = SketchedCovariance(contamination=0.01).fit(rows_of(0, 30))
    with pytest.warns(UserWarning, match="contamination=0.01 needs at least 99 retained rows, and there are 30"):
        model.predict(rows_of(1, 10))
    assert np.allclose(model.alarm_interval_, beta.ppf([0.025, 0.975], 1, 30))
    with pytest.raises(ValueError, match="a threshold needs at least 2 rows, got 1"), pytest.warns(UserWarning):
        SketchedCovariance().fit(rows_of(0, 1)).predict(rows_of(1, 2))


def test_rows_that_do_not_differ():
    with pytest.warns(UserWarning, match="every distance"):
        assert np.all(SketchedCovariance().fit(np.ones((200, 3))).predict(np.ones((5, 3))) == 1)


# -- the pieces, against plain NumPy -----------------------------------------------------------------------------------
def weighted_rows(n=60, d=12):
    return rows_of(0, n, d), np.random.default_rng(1).random(n) + 0.5


@pytest.mark.parametrize("n", [150, 400])
def test_scores_are_those_of_the_reference(n):
    """Columns 10^9 apart; more than five rows a column are trimmed."""
    units = np.geomspace(1e-9, 1e9, 12)
    X, Y = rows_of(0, n, 12) * units, rows_of(1, 50, 12) * units
    model = SketchedCovariance().fit(X)
    assert model.robust_
    assert np.allclose(-model.score_samples(Y), reference.mrcd_distances(X / units, Y / units), rtol=1e-6)
    half = model.set_params(support_fraction=0.5)
    expected = reference.mrcd_distances(X / units, Y / units, support_fraction=0.5)
    assert np.allclose(-half.score_samples(Y), expected, rtol=1e-6)
    whole = model.set_params(support_fraction=1.0)
    assert not whole.robust_ and np.allclose(-whole.score_samples(Y), whole.mahalanobis(Y), rtol=1e-6)


def test_few_rows_a_column_are_not_trimmed():
    for n, robust in ((80, False), (81, True)):
        model = SketchedCovariance().fit(rows_of(0, n, 12))
        assert model.robust_ is robust
        new = rows_of(1, 50, 12)
        assert np.allclose(-model.score_samples(new), model.mahalanobis(new), rtol=1e-6) is not robust
    assert not SketchedCovariance(contamination=None).fit(rows_of(0, 600, 12)).robust_


@pytest.mark.parametrize("solver", ["exact", "gram"])
def test_an_exact_fit_is_not_trimmed(solver):
    """An indicator of a category that is rare, and absent from the nearest rows: their determinant is zero."""
    X = rows_of(0, 600, 12)
    rare = np.arange(600) % 20 == 0
    X[rare] *= 4
    with_flag = np.column_stack([X, rare])
    model = SketchedCovariance(16, solver=solver).fit(with_flag)
    assert not model.robust_
    assert np.allclose(-model.score_samples(with_flag), model.mahalanobis(with_flag), rtol=1e-6)
    assert SketchedCovariance(16, solver=solver).fit(X).robust_
    constant = np.column_stack([X, np.full(600, 3.0)])  # which has no part in the determinant
    assert SketchedCovariance(16, solver=solver).fit(constant).robust_


def test_a_fifth_of_the_rows_far_away_does_not_widen_the_distances():
    rng = np.random.default_rng(0)
    X, away = rng.standard_normal((2000, 8)), rng.random(2000) < 0.2
    X[away] *= 10
    model = SketchedCovariance().fit(X)
    new = rng.standard_normal((2000, 8))
    assert np.median(model.mahalanobis(new)) < 0.2 * chi2.median(8)
    assert np.isclose(np.median(-model.score_samples(new)), chi2.median(8), rtol=0.25)


def test_distances_of_normal_rows_are_comparable():
    """The consistency factor: the median of new normal rows is that of the chi-squared law."""
    X = np.random.default_rng(0).standard_normal((4000, 10))
    model = SketchedCovariance().fit(X)
    new = np.random.default_rng(1).standard_normal((20_000, 10))
    assert np.isclose(np.median(-model.score_samples(new)), chi2.median(10), rtol=0.05)
    assert consistency_factor(1.0, 10) == 1 and np.isclose(consistency_factor(1 - 1e-9, 10), 1)
    # the variance of a normal number between its quartiles
    assert np.isclose(1 / consistency_factor(0.5, 1), 0.142, atol=1e-3)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_rows_of_a_fold_take_no_part(center, share):
    X, w = weighted_rows()
    X[:, 2] = 0.0
    X[0, 2] = 1.0  # the only row to differ there
    moments = Moments.of(X, w, np.ones(12), center=center)
    fit = Fit(Scorer(moments.shrunk(share, 0.01), moments.mean, moments.scale), moments, np.ones(60, bool), share)
    found = cross_validated(X, np.zeros(12), w, fit, 0.01, center=center)
    for first in range(10):
        fold = np.arange(60) % 10 == first
        mean = np.average(X[~fold], axis=0, weights=w[~fold]) if center else np.zeros(12)
        moved = X[~fold] - mean
        covariance = (moved.T * w[~fold]) @ moved / w[~fold].sum()
        scale = np.sqrt(covariance.diagonal())
        if first == 0:  # a column without variance has the deviation that it has in all rows
            scale[2] = moments.scale[2]
        correlation = covariance / np.outer(scale, scale)
        correlation = (1 - share) * correlation
        correlation[np.diag_indices(12)] = 1.01
        z = (X[fold] - mean) / scale
        assert np.allclose(found[fold], np.einsum("ij,jk,ik->i", z, np.linalg.inv(correlation), z), rtol=1e-6)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("n", [9, 300])
def test_a_row_is_removed_from_a_sketch_that_holds_all(n, center):
    X, share, floor = rows_of(0, n, 12), 0.2, 0.05
    sketch = fs.FrequentDirections(14, solver="gram", method="tfd", center=center).update(X)
    whole = empirical_covariance(sketch, float(n))
    shrunk = ShrunkCovariance(whole.shrunk(share, floor), share, floor)
    mean = sketch.mean if center else np.zeros(12)
    found = leave_one_out(X, mean, np.ones(n), whole, shrunk, float(n), center=center)
    for i in range(9):
        others = np.delete(X, i, axis=0)
        moved = others - (others.mean(axis=0) if center else 0)
        matrix = (1 - share) * moved.T @ moved / (n - 1) + floor * np.eye(12)
        row = X[i] - (others.mean(axis=0) if center else 0)
        assert np.isclose(found[i], row @ np.linalg.solve(matrix, row), rtol=1e-6)


def test_categories_that_were_never_seen_raise_alarms_and_no_more_than_asked_for():
    """A hundred rows of fewer directions: what is new is far away, and as far as one of the hundred was."""
    shares = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        kinds, odd = rng.integers(8, size=(1100, 1)), rng.random((1100, 20)) < 0.03
        values = np.where(odd, rng.integers(6, size=odd.shape), kinds * np.arange(1, 21) % 4)
        rows = np.eye(6)[values].reshape(1100, 120)
        model = SketchedCovariance(contamination=0.05).fit(rows[:100])
        shares.append(np.mean(model.predict(rows[100:]) < 0))
    assert abs(np.mean(shares) - 0.05) < 3 * np.std(shares) / np.sqrt(len(shares)), shares


@pytest.mark.parametrize("solver", ["exact", "gram"])
def test_directions_without_variance_are_not_left_out(solver):
    """A pseudo-inverse is blind to a column that never varied, and to a sum that always held."""
    X = rows_of(0, 400, 4) @ np.random.default_rng(1).standard_normal((4, 40))
    X[:, 3] = 7.0
    model = SketchedCovariance(solver=solver, contamination=0.05).fit(X[:300].astype(np.float32))
    strange = X[300:306].copy()
    strange[[0, 1, 2], 3] += [0.1, -1.0, 100.0]
    strange[[3, 4, 5], [0, 8, 9]] += [0.1, -1.0, 100.0]
    assert np.all(model.predict(strange[[0, 1, 2, 5]]) < 0)
    assert np.mean(model.predict(X[300:].astype(np.float32)) < 0) < 0.2
    model.set_params(shrinkage=None)  # which would hide a sum that is a little off
    assert np.all(model.predict(strange) < 0) and np.mean(model.predict(X[300:].astype(np.float32)) < 0) < 0.2


# -- rows kept ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("batch", [1, 7, 300, 1000])
def test_a_sample_does_not_depend_on_batches(matrix, batch):
    rows = rows_of(0, 1000, 6)
    whole, parts = KeptRows(50), KeptRows(50)
    offer(whole, matrix(rows), None, first=0)
    for start in range(0, 1000, batch):
        offer(parts, matrix(rows[start : start + batch]), None, first=start)
    (one, _), (two, _) = whole.sample(), parts.sample()
    one, two = (x if isinstance(x, np.ndarray) else x.toarray() for x in (one, two))
    assert one.shape == (50, 6) and np.array_equal(one, two)


def test_every_row_is_as_likely():
    counts = np.zeros(10)
    for first in range(0, 40_000, 10):
        sample = KeptRows(3)
        offer(sample, np.arange(10.0)[:, np.newaxis], None, first=first)
        counts[sample.sample()[0].ravel().astype(int)] += 1
    assert counts.sum() == 12_000 and np.abs(counts - 1200).max() < 5 * np.sqrt(1200)


def test_wide_rows_are_fewer(monkeypatch):
    monkeypatch.setattr(kept_rows, "MAX_BYTES", 1e4)
    assert KeptRows.like(np.zeros((5, 100))).size == 12
    assert KeptRows.like(sparse.csr_array(np.eye(100))).size == 833
    assert KeptRows.like(np.zeros((5, 10_000))).size == 1


@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
def test_files_pickles_merges_and_batches(matrix, tmp_path):
    X, Y = rows_of(0, 900), rows_of(1, 300)
    whole = SketchedCovariance(contamination=0.05).fit(matrix(X))
    expected = whole.decision_function(Y)
    parts = SketchedCovariance(contamination=0.05)
    for start in range(0, 900, 90):
        parts.partial_fit(matrix(X[start : start + 90]))
    assert np.allclose(parts.decision_function(Y), expected)
    parts.save(tmp_path / "model.fsk")
    for again in (SketchedCovariance.load(tmp_path / "model.fsk"), pickle.loads(pickle.dumps(parts))):
        assert np.array_equal(again.decision_function(Y), parts.decision_function(Y))
    other = SketchedCovariance(contamination=0.05).fit(matrix(rows_of(2, 900)))
    merged = parts.merge(other)
    assert merged._kept_rows.sample()[0].shape == (1800, 40)
    assert 0.02 < np.mean(merged.predict(rows_of(3, 4000)) < 0) < 0.09
    with pytest.warns(UserWarning, match="other has kept no rows"):
        assert merged.merge(fs.run(SketchedCovariance(contamination=0.05), X))._kept_rows is None


def test_a_source_keeps_rows_too():
    X = rows_of(0, 700)
    model = SketchedCovariance(contamination=0.05).fit(fs.open_rows(X))
    assert np.allclose(model.offset_, SketchedCovariance(contamination=0.05).fit(X).offset_)


def test_damaged_files_are_refused(tmp_path):
    from fastsketch.data.files import _state as files

    path = tmp_path / "model.fsk"
    for matrix in (np.asarray, sparse.csr_array):
        SketchedCovariance().fit(matrix(rows_of(0, 50))).save(path)
        about, arrays = files.read(path)
        about = {name: about[name] for name in ("kind", "home", "parameters", "notes", "state")}
        for change in (
            {"kept_size": np.array([0.0])},
            {"kept_size": np.array([10.0])},
            {"kept_keys": arrays["kept_keys"][:-1]},
            {"kept_weights": -arrays["kept_weights"]},
            {"kept_rows": arrays["kept_rows"][:-1]},
            {"kept_rows": arrays["kept_rows"] * np.nan},
            {"without_rows": np.array([3.0])},
        ):
            files.write(path, files.pack(about, {**arrays, **change}))
            with pytest.raises(fs.StateError):
                SketchedCovariance.load(path)


# -- bad input ---------------------------------------------------------------------------------------------------------
ROWS, QUERY = rows_of(0, 300, 6), rows_of(1, 60, 6)
ODD = {
    "constant column": (np.insert(ROWS, 2, 3.0, axis=1), np.insert(QUERY, 2, 3.0, axis=1)),
    "duplicated columns": (ROWS[:, [0, 1, 2, 0, 0, 5]], QUERY[:, [0, 1, 2, 0, 0, 5]]),
    "fewer rows than columns": (rows_of(0, 25, 60), rows_of(1, 60, 60)),
    "two rows": (ROWS[:2], QUERY),
    "columns 10^9 apart": (ROWS * np.geomspace(1e-9, 1e9, 6), QUERY * np.geomspace(1e-9, 1e9, 6)),
    "a large mean": (ROWS + 1e8, QUERY + 1e8),
    "heavy tails": (ROWS**9, QUERY**9),
    "one row at 1e12": (np.vstack([ROWS, np.full((1, 6), 1e12)]), QUERY),
    "a third missing": (np.where(np.random.default_rng(2).random(ROWS.shape) < 0.33, np.nan, ROWS), QUERY),
}


@pytest.mark.filterwarnings("ignore:contamination=")
@pytest.mark.parametrize("solver", ["exact", "gram"])
@pytest.mark.parametrize("case", ODD)
def test_odd_rows_have_finite_scores(case, solver):
    rows, query = ODD[case]
    model = SketchedCovariance(4, solver=solver, contamination=0.1, fill="mean").fit(rows)
    for answer in (model.score_samples(query), model.mahalanobis(query), model.decision_function(query)):
        assert np.all(np.isfinite(answer))
    if case not in ("two rows", "fewer rows than columns"):
        assert np.mean(model.predict(query) < 0) < 0.35


@pytest.mark.parametrize("case", ["nearly all missing", "a column missing"])
def test_without_complete_rows_there_is_no_threshold(case):
    rows = ROWS.copy()
    if case == "a column missing":
        rows[:, 2] = np.nan
    else:
        rows[np.arange(300), np.arange(300) % 6] = np.nan
    with pytest.warns(UserWarning, match="no number in column 2") if case == "a column missing" else nullcontext():
        model = SketchedCovariance(fill="mean").fit(rows)
    with pytest.raises(ValueError, match="nothing to set a threshold by: each of the rows had .* a missing number"):
        model.predict(QUERY)
    assert np.all(np.isfinite(model.mahalanobis(QUERY)))


# -- missing numbers ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_missing_numbers_are_filled_in_or_left_out(matrix, weighted):
    X = rows_of(0, 300, 8) + 5
    holes = np.random.default_rng(1).random(X.shape) < 0.05
    rows, weights = np.where(holes, np.nan, X), np.random.default_rng(2).random(300) if weighted else None
    before = rows.copy()
    whole = ~holes.any(axis=1)
    dropped = SketchedCovariance(fill="drop").fit(matrix(rows), sample_weight=weights)
    same = SketchedCovariance().fit(X[whole], sample_weight=None if weights is None else weights[whole])
    assert np.allclose(dropped.covariance_, same.covariance_) and dropped.n_missing_ == (~whole).sum()
    filled = SketchedCovariance(fill="mean").fit(matrix(rows), sample_weight=weights)
    means = np.ma.average(np.ma.masked_invalid(rows), axis=0, weights=weights)
    assert np.allclose(filled.location_, means) and filled.n_missing_ == holes.sum()
    both = SketchedCovariance().fit(np.where(holes, means, X), sample_weight=weights)
    assert np.allclose(filled.covariance_, both.covariance_)
    assert len(filled._kept_rows.sample()[1]) == whole.sum()
    for model in (dropped, filled):
        expected = model.mahalanobis(np.where(holes, model.location_, X))
        assert np.allclose(model.mahalanobis(matrix(rows)), expected)
        assert model.predict(matrix(rows)).shape == (300,)
    assert np.array_equal(rows, before, equal_nan=True)


def rows_with_gaps(seed, rows, share):
    """Return (rows of which this share have up to half of their numbers missing, which rows these are)."""
    rng = np.random.default_rng(seed)
    with_gaps = rng.random(len(rows)) < share
    order = np.argsort(rng.random(rows.shape), axis=1)
    missing = order < rng.integers(1, rows.shape[1] // 2 + 1, (len(rows), 1))
    return np.where(missing & with_gaps[:, np.newaxis], np.nan, rows), with_gaps


@pytest.mark.parametrize("law", ["factors and heavy tails", "indicators", "normal"])
@pytest.mark.parametrize("options", [{}, {"support_fraction": 1.0}, {"solver": "gram", "sketch_size": 12}], ids=str)
def test_rows_with_gaps_are_alarms_as_often_as_others(law, options, amount):
    """Filled with means none of them was one; by the chi-squared law of the columns observed 0% to 20% were."""

    def draw(seed, n):
        if law == "factors and heavy tails":
            return rows_of(seed, n, 10)
        rng = np.random.default_rng(seed)
        return rng.standard_normal((n, 10)) if law == "normal" else (rng.random((n, 10)) < 0.3).astype(float)

    shares = {level: [] for level in (0.01, 0.05, 0.1)}
    for seed in range(amount(3, 12)):
        model = SketchedCovariance(fill="mean", **options).fit(rows_with_gaps(seed, draw([seed, 0], 3000), 0.15)[0])
        new, with_gaps = rows_with_gaps([seed, 1], draw([seed, 1], 3000), 0.15)
        for level, found in shares.items():
            alarms = model.set_params(contamination=level).predict(new) < 0
            found.append([alarms[with_gaps].mean(), alarms[~with_gaps].mean()])
    for level, found in shares.items():
        n = 450 * len(found)
        slack = 4 * np.sqrt(level / n + level / (2500 * len(found)))
        gaps, others = np.mean(found, axis=0)
        assert abs(gaps - level) < slack + 0.1 * level and abs(others - level) < slack + 0.1 * level, (
            level,
            gaps,
            others,
        )


def test_the_distance_over_the_columns_observed():
    X = rows_of(0, 500, 8)
    model = SketchedCovariance(fill="mean").fit(X)
    units, scorer, threshold = model._detector()
    missing, observed = np.array([1, 4, 6]), np.array([0, 2, 3, 5, 7])
    covariance = np.linalg.inv(scorer.matrix.inverse_columns(np.arange(8)))[np.ix_(observed, observed)]
    z = (units.apply(X)[0][:20, observed] - scorer.mean[observed]) / scorer.scale[observed]
    expected = np.einsum("ij,jk,ik->i", z, np.linalg.inv(covariance), z) / scorer.factor
    rows, origin = units.apply(X[:20])
    found = scorer.marginal_distances(*scorer.scaled(rows, origin), scorer.distances(rows, origin), missing)
    assert np.allclose(found, expected, rtol=1e-8)
    gaps = X[:20].copy()
    gaps[:, missing] = np.nan
    for form in (np.asarray, sparse.csr_array):
        assert np.allclose(-model.score_samples(form(gaps)), threshold.comparable(scorer, expected, missing), rtol=1e-8)
    far = gaps[:1] * [[1], [1e3], [1e6]]
    assert np.all(np.diff(model.score_samples(far)) < 0) and np.all(np.isfinite(model.score_samples(far)))
    nothing = model.score_samples(np.full((1, 8), np.nan))
    assert np.isclose(-nothing[0], np.median(threshold.held_out)) and model.predict(np.full((1, 8), np.nan)) == 1


def test_missing_numbers_in_files_of_rows(tmp_path):
    """A file with gaps teaches what its rows do as an array; a source that fills them itself goes before."""
    rows = rows_of(0, 200, 3) + 5
    rows[np.random.default_rng(1).random(rows.shape) < 0.1] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    for name in ("rows.npy", "rows.csv"):
        for fill in ("mean", "drop"):
            far, near = (SketchedCovariance(fill=fill).fit(X) for X in (str(tmp_path / name), rows))
            assert np.allclose(far.covariance_, near.covariance_) and far.n_missing_ == near.n_missing_ > 0
            assert np.array_equal(far.predict(rows), near.predict(rows))
        zeros = SketchedCovariance(fill="mean").fit(fs.open_rows(str(tmp_path / name), fill=0))
        assert np.allclose(zeros.location_, np.nan_to_num(rows).mean(axis=0)) and zeros.n_missing_ == 0
        with pytest.raises(ValueError, match="holds a NaN"):
            SketchedCovariance().fit(str(tmp_path / name))
    with pytest.raises(ValueError, match="X contains NaN: fill='mean' puts .*, fill='drop' leaves out rows"):
        SketchedCovariance().fit(rows)
    with pytest.raises(ValueError, match="infinity"):
        SketchedCovariance().fit(np.where(np.isnan(rows), np.inf, rows))


def test_missing_numbers_in_batches_files_and_merges(tmp_path):
    rows = rows_of(0, 300, 8) + 5
    rows[::7, 3] = np.nan
    model = SketchedCovariance(fill="mean").partial_fit(rows[:100]).partial_fit(rows[100:])
    assert model.n_missing_ == 43 and np.allclose(model.location_[3], np.nanmean(rows[:, 3]), atol=0.2)
    model.save(tmp_path / "model.fsk")
    assert SketchedCovariance.load(tmp_path / "model.fsk").n_missing_ == 43
    assert model.merge(model).n_missing_ == 86
    assert model.fit(rows[1:7]).n_missing_ == 0


def test_missing_numbers_that_are_refused():
    rows = rows_of(0, 50, 8)
    rows[:, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        SketchedCovariance().fit(rows)
    with pytest.raises(ValueError, match="fill='drop' leaves none of 50 rows"):
        SketchedCovariance(fill="drop").fit(rows)
    with pytest.raises(ValueError, match="fill must be"):
        SketchedCovariance(fill="median").fit(rows)
    with pytest.raises(ValueError, match="infinity"):
        SketchedCovariance(fill="mean").fit(np.where(np.isnan(rows), np.inf, rows))
    with pytest.warns(UserWarning, match="no number in column 2 of the first 50 rows") as caught:
        assert np.isfinite(SketchedCovariance(fill="mean").fit(rows).location_).all()
    assert caught[0].filename == __file__


def offer(sample, rows, weights, *, first):
    """Offer rows of a stream to a sample."""
    if (part := sample.chosen(rows, weights, first=first)) is not None:
        sample.add(part)


def interrupted(call, line):
    """Call, and raise KeyboardInterrupt at the line-th line of the estimators' code; return whether it came so far.

    Not at the lines that put what was learned in place, one after the other once the sketch has learned.
    """
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        place = frame.f_code.co_filename.replace("\\", "/")
        if "fastsketch/sklearn/" not in place or frame.f_code.co_name in ("_learn_rows", "add"):
            return None
        seen += event == "line"
        if event == "line" and seen == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("way", ["fit", "partial_fit", "first"])
def test_an_interrupt_leaves_no_half_of_a_batch(way, tmp_path, amount):
    rng, line, came = np.random.default_rng(4), 0, True
    x, more = rng.standard_normal((60, 4)), rng.standard_normal((30, 4)) + 5
    while came:
        line += amount(5, 1)
        model = SketchedCovariance(contamination=0.1)
        if way != "first":
            model.fit(x)
        came = interrupted(lambda: (model.fit if way == "fit" else model.partial_fit)(more), line)  # noqa: B023
        if not hasattr(model, "sketch_"):
            assert way == "first"
            model.partial_fit(more)
        model.save(tmp_path / "model.fsk")
        again = SketchedCovariance.load(tmp_path / "model.fsk")
        assert np.array_equal(again.score_samples(x), model.score_samples(x))
        kept = len(model._kept_rows.sample()[0])
        assert kept == model.n_samples_seen_
        assert kept in {"fit": (60, 30), "partial_fit": (60, 90), "first": (30,)}[way]
    assert line > 10


def test_threads_that_ask_at_once_have_the_same_sample(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((300, 4))
    model = SketchedCovariance().fit(rows[:100]).partial_fit(rows[100:200]).partial_fit(rows[200:])
    whole = copy.deepcopy(model._kept_rows).sample()
    argsort = np.argsort

    def late(keys, **options):  # another thread comes between
        with monkeypatch.context() as patch:
            patch.setattr(np, "argsort", argsort)
            model._kept_rows.sample()
        return argsort(keys, **options)

    monkeypatch.setattr(np, "argsort", late)
    for one, other in zip(model._kept_rows.sample(), whole, strict=True):
        assert np.array_equal(one, other)


def test_rows_of_weight_zero_change_no_threshold():
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((400, 5)), np.zeros(400)
    weights[:20] = 3
    asked = rng.standard_normal((50, 5))
    one = SketchedCovariance(contamination=0.2).fit(X, sample_weight=weights)
    other = SketchedCovariance(contamination=0.2).fit(X[:20], sample_weight=weights[:20])
    assert np.allclose(one.decision_function(asked), other.decision_function(asked), atol=1e-9)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_numbers_whose_squares_are_out_of_range_are_refused_by_name(form):
    model = SketchedCovariance(contamination=0.2).fit(np.random.default_rng(0).standard_normal((40, 5)))
    asked = np.zeros((2, 5))
    asked[1, 3] = -1e138
    assert model.predict(form(asked))[1] == -1
    asked[1, 3] = -1e156
    for ask in (model.predict, model.mahalanobis, model.leverage, model.projection_distance, model.score):
        with pytest.raises(ValueError, match=r"at most [0-9.]+e\+139 in size in column 3, got -1e\+156 in row 1"):
            ask(form(asked))


def test_weights_whose_squares_underflow_are_refused():
    X = np.random.default_rng(0).standard_normal((40, 5))
    model = SketchedCovariance().fit(X, sample_weight=np.full(40, 1e-150))
    assert np.allclose(model.mahalanobis(X), SketchedCovariance().fit(X).mahalanobis(X))
    with pytest.raises(ValueError, match="sample_weight.*underflow.*1e-165: multiply all weights by a constant"):
        SketchedCovariance().fit(X, sample_weight=np.full(40, 1e-165))


def test_a_file_of_before_the_robust_scores_loads():
    """It has no squares of weights; its scores are those of the rows that it retained."""
    from tests import golden

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 3)) @ np.array([[1.0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]])
    rows += 0.3 * rng.standard_normal((60, 4))
    model = SketchedCovariance.load(golden.FOLDER / "covariance.fsk")
    same = SketchedCovariance(contamination=0.1, fill="mean").fit(rows)
    assert model.robust_ and np.allclose(model.score_samples(rows), same.score_samples(rows))
    assert np.allclose(model.covariance_, same.covariance_) and np.isclose(model.offset_, same.offset_)
    assert model.partial_fit(rows).n_samples_seen_ == 120
