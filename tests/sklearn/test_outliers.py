"""Alarms of SketchedCovariance: thresholds that new rows exceed as often as was asked, and the scores behind them."""

import copy
import itertools
import pickle
import sys

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import beta

pytest.importorskip("sklearn")

import fastsketch as fs  # noqa: E402
from fastsketch.sklearn import SketchedCovariance  # noqa: E402
from fastsketch.sklearn import _kept_rows as kept_rows  # noqa: E402
from fastsketch.sklearn import _left_out as left_out  # noqa: E402
from fastsketch.sklearn._gaussian import (  # noqa: E402
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    column_distances,
    empirical_covariance,
    shrink_tail,
)
from fastsketch.sklearn._kept_rows import KeptRows  # noqa: E402
from fastsketch.sklearn._left_out import (  # noqa: E402
    Downdate,
    KeptSample,
    ShiftedFactor,
    downdated_pairs,
    measures_left_out,
)
from fastsketch.sklearn._outliers import RIDGE, counts_for, least_variance  # noqa: E402
from tests.helpers import some, tol  # noqa: E402

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
    kept = model._scorer()[1].scores
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
    with pytest.warns(UserWarning, match="contamination=0.01 needs at least 99 rows kept, and there are 30"):
        model.predict(rows_of(1, 10))
    assert np.allclose(model.alarm_interval_, beta.ppf([0.025, 0.975], 1, 30))
    with pytest.raises(ValueError, match="a threshold needs at least 2 rows, got 1"), pytest.warns(UserWarning):
        SketchedCovariance().fit(rows_of(0, 1)).predict(rows_of(1, 2))


def test_rows_that_do_not_differ():
    with pytest.warns(UserWarning, match="every distance"):
        assert np.all(SketchedCovariance().fit(np.ones((200, 3))).predict(np.ones((5, 3))) == 1)


# -- the pieces, against plain NumPy -----------------------------------------------------------------------------------
def sample_of(sketch, rows, weights=None, matrix=None):
    """Return rows that a sketch has learned from as a sample, in units of 1."""
    mean = np.zeros(rows.shape[1]) if sketch.mean is None else sketch.mean
    matrix = DenseCovariance(sketch.gram() / sketch.total_weight) if matrix is None else matrix
    return KeptSample(sketch, matrix, rows, mean, np.ones(len(rows)) if weights is None else weights)


def weighted_rows(n=60, d=12):
    return rows_of(0, n, d), np.random.default_rng(1).random(n) + 0.5


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("size", [5, 12])
def test_rows_are_taken_out_of_a_sum(center, size):
    X, w = weighted_rows()
    sketch = fs.FrequentDirections(size, solver="exact", center=center).update(X, w)
    out, gram = Downdate.by(sample_of(sketch, X[:20], w[:20])), sketch.gram()
    left = X[20:]
    expected_mean = np.average(left, axis=0, weights=w[20:]) if center else np.zeros(12)
    moved = left - expected_mean
    expected = (moved.T * w[20:]) @ moved
    assert np.isclose(out.left, w[20:].sum())
    assert np.allclose(np.average(X, axis=0, weights=w) * center - out.shift, expected_mean)
    assert np.allclose(gram - out.roots.T @ out.roots, expected, atol=tol(np.float64, 1e6))
    spectrum = sketch.spectrum()
    values, vectors = downdated_pairs(gram, (spectrum.values, spectrum.vectors), out.roots)
    assert np.allclose(values, np.linalg.eigvalsh(expected)[::-1][:size])
    assert np.allclose(vectors @ expected @ vectors.T, np.diag(values), atol=1e-8)
    assert np.allclose(vectors @ vectors.T, np.eye(size), atol=tol(np.float64, 1e3))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("center", [True, False])
def test_distances_without_some_rows(share, center):
    X, w = weighted_rows()
    sketch = fs.FrequentDirections(5, solver="exact", center=center).update(X, w)
    out, gram = Downdate.by(sample_of(sketch, X[:9], w[:9])), sketch.gram()
    matrix = DenseCovariance((gram - out.roots.T @ out.roots) / out.left)
    values, vectors = np.linalg.eigh(matrix.matrix())
    pairs = values[::-1][:5], vectors.T[::-1][:5]
    shrunk = shrink_tail(matrix, pairs, most=3, n=30.0, least=0.0, ridge=0.01)
    mean = (matrix.trace - pairs[0][: shrunk.kept].sum()) / (12 - shrunk.kept)
    kept = pairs[0][: shrunk.kept], pairs[1][: shrunk.kept]
    shrunk = shrunk._replace(
        matrix=matrix.shrunk(*kept, share, mean, 0.01), share=share, mean=mean, floor=share * mean + 0.01
    )
    # (x - mean of the others)' (their shrunk covariance)^-1 (x - mean of the others)
    moved = X[:9] - (np.average(X[9:], axis=0, weights=w[9:]) if center else 0)
    expected = np.einsum("ij,ij->i", moved @ np.linalg.inv(shrunk.matrix.matrix()), moved)
    factor = ShiftedFactor.made(gram, shrunk, out.left)
    assert np.allclose(factor.distances(out, pairs), expected, rtol=1e-5 if share == 1 else 1e-9)
    assert np.allclose(factor.variances(out, pairs), shrunk.matrix.matrix().diagonal())


def test_a_singular_matrix_has_no_common_factor():
    X = rows_of(0, 10, 12)
    sketch = fs.FrequentDirections(5, solver="exact", center=True).update(X)
    shrunk = SketchedCovariance(5, shrinkage=None).fit(X)._read()
    assert ShiftedFactor.made(sketch.gram(), shrunk, 9.0) is None


@pytest.mark.parametrize(
    "options", [{}, {"shrinkage": None}, {"shrinkage": "oas"}, {"assume_centered": True}, {"solver": "gram"}], ids=str
)
@pytest.mark.parametrize("n", [30, 300])
def test_rows_are_measured_as_by_a_model_of_the_others(options, n):
    """Fits to the others, shrunk by as much, say the same; a sketch of them is another one."""
    X, counts = rows_of(0, n), [2, 4]
    model = SketchedCovariance(8, **options).fit(X)
    units, matrix = model._standard()
    X, mean = units.apply(X)
    shrunk, dense = model._read(), "solver" not in options
    found = measures_left_out(
        KeptSample(model.sketch_, matrix, X, mean, np.ones(n)), model._leading(), 10, counts, shrunk
    )
    expected = np.empty((8, n))
    for fold in range(10):
        part = np.arange(n) % 10 == fold
        others = fs.FrequentDirections(**model.sketch_.parameters).update(X[~part]).spectrum().vectors
        mean = 0 if "assume_centered" in options else X[~part].mean(axis=0)
        values, vectors = np.linalg.eigh((X[~part] - mean).T @ (X[~part] - mean) / np.sum(~part))
        expected[4:, part] = (((X[part] - mean) @ vectors[:, :-5:-1]) ** 2 / values[:-5:-1]).T
        values[: 40 - shrunk.kept] *= 1 - shrunk.share
        values[: 40 - shrunk.kept] += shrunk.share * shrunk.mean
        values += shrunk.floor - shrunk.share * shrunk.mean
        inverses = np.where(values > 1e-9 * values[-1], 1 / np.maximum(values, 1e-300), 0)
        expected[0, part] = ((X[part] - mean) @ vectors) ** 2 @ inverses
        expected[1, part] = (X[part] - mean) ** 2 @ (1 / (vectors**2 @ values))
        for row, k in enumerate(counts):
            along = (X[part] - mean) @ others[:k].T
            expected[row + 2, part] = ((X[part] - mean) ** 2).sum(axis=1) - (along**2).sum(axis=1)
    off, spread = np.log(found / expected), np.log(expected).std(axis=1)
    if dense:  # the directions kept are nearly those of the others
        assert np.all(np.abs(off[:2]) < 0.1 * spread[:2, np.newaxis])
    else:  # a sketch has one eigenvalue for all other directions: distances are others
        off, spread = off[1:], spread[1:]
    assert np.all(np.abs(off.mean(axis=1)) < 0.1 * spread) and np.all(off.std(axis=1) < 0.3 * spread)


def test_a_sketch_has_learned_all_rows_but_those_of_its_part(monkeypatch):
    X, learned = rows_of(0, 70, 12), []
    monkeypatch.setattr(
        left_out, "empirical_covariance", lambda sketch, total: learned.append(sketch) or DenseCovariance(np.eye(12))
    )
    monkeypatch.setattr(left_out, "leading_pairs", lambda *_: (X, X))
    monkeypatch.setattr(left_out.RowModel, "measures", lambda *_: np.zeros((1, 10)))
    sketch = fs.FrequentDirections(14, solver="gram", center=True).update(X)
    shrunk = ShrunkCovariance(None, 0.0, 0, 0.0, 0.0)
    measures_left_out(sample_of(sketch, X, matrix=X), (X, X), 7, [], shrunk)
    assert len(learned) == 7
    for fold, others in enumerate(learned):
        left = X[np.arange(70) % 7 != fold]
        assert others.n_rows == 60 and np.allclose(others.mean, left.mean(axis=0))
        assert np.allclose(others.gram(), (left - left.mean(axis=0)).T @ (left - left.mean(axis=0)))


def test_rows_are_taken_out_of_a_sketch_that_holds_all():
    X = rows_of(0, 300, 12)
    sketch = fs.FrequentDirections(14, solver="gram", method="tfd", center=True).update(X)
    whole = empirical_covariance(sketch, 300.0)
    none = ShrunkCovariance(whole, 0.0, 0, 0.0, 0.0)
    measures = left_out._by_span(sample_of(sketch, X[:40], matrix=whole), [3], none)
    moved, inverse = X[:40] - X[40:].mean(axis=0), np.linalg.inv(np.cov(X[40:].T, bias=True))
    assert np.allclose(measures[0], np.einsum("ij,jk,ik->i", moved, inverse, moved), rtol=1e-6)
    assert np.allclose(measures[1], ((X[:40] - X[40:].mean(axis=0)) ** 2 / X[40:].var(axis=0)).sum(axis=1), rtol=1e-6)


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


@pytest.mark.parametrize("share", [0.02, 0.05])
def test_anomalies_that_are_alike_are_seen(share):
    """They make a leading direction of their own, in which they are loud, and hardly further away than other rows."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    X, truth = rng.standard_normal((4000, 50)), rng.random(4000) < share
    X[truth] += 1.5
    model, new, wrong = SketchedCovariance().fit(X[:2000]), X[2000:], truth[2000:]
    distance, ours = (roc_auc_score(wrong, scores) for scores in (model.mahalanobis(new), -model.score_samples(new)))
    assert ours > max(0.93, distance)
    assert np.mean(model.set_params(contamination=0.1).predict(new[~wrong]) < 0) < 0.1


@pytest.mark.parametrize(("n", "d"), [(30, 100), (300, 784), (400, 20)])
def test_directions_that_are_rows_learned_from_count_for_no_peak(n, d):
    """Along a direction of few rows these are loud, and others are not: all that was learned would be alarms."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((n, d))
    model = SketchedCovariance(contamination=0.05).fit(noise)
    assert model._scorer()[1].holding == 0
    assert np.mean(model.predict(noise) < 0) <= 0.05
    one = 1.5 * rng.standard_normal((n, 1)) + noise  # a direction that rows have in common
    model = SketchedCovariance(contamination=0.05).fit(one)
    assert model._scorer()[1].holding == 1
    assert np.mean(model.predict(one) < 0) <= 0.05


@pytest.mark.parametrize("solver", ["exact", "gram"])
def test_directions_without_variance_are_not_left_out(solver):
    """A pseudo-inverse is blind to a column that never varied, and to a sum that always held."""
    X = rows_of(0, 400, 4) @ np.random.default_rng(1).standard_normal((4, 40))
    X[:, 3] = 7.0
    model = SketchedCovariance(solver=solver, contamination=0.05).fit(X[:300].astype(np.float32))
    strange = X[300:306].copy()
    strange[[0, 1, 2], 3] += [0.1, -1.0, 100.0]
    strange[[3, 4, 5], [0, 8, 9]] += [0.1, -1.0, 100.0]
    assert np.all(model.predict(strange) < 0) and np.mean(model.predict(X[300:].astype(np.float32)) < 0) < 0.2


@pytest.mark.parametrize("matrix", [DenseCovariance, None], ids=["dense", "spiked"])
def test_distances_by_the_variances_of_columns(matrix):
    X = rows_of(0, 50, 12) + 3
    basis = np.linalg.qr(rows_of(1, 12, 3))[0].T
    spiked = SpikedCovariance(np.array([9.0, 5.0, 4.0]), basis, 2.0)
    held = spiked if matrix is None else matrix(spiked.matrix())
    variances = spiked.matrix().diagonal()
    assert np.allclose(held.diagonal(), variances)
    expected = ((X - X.mean(axis=0)) ** 2 / variances).sum(axis=1)
    for rows in (X, sparse.csr_array(X)):
        assert np.allclose(column_distances(rows, X.mean(axis=0), variances), expected)
    # a column that does not vary says nothing, as the distance by a singular matrix has it
    variances = np.append(np.zeros(1), variances[1:])
    expected = ((X - X.mean(axis=0))[:, 1:] ** 2 / variances[1:]).sum(axis=1)
    for rows in (X, sparse.csr_array(X)):
        assert np.allclose(column_distances(rows, X.mean(axis=0), variances), expected)


def test_weights_of_least_variance():
    logs = np.random.default_rng(0).standard_normal((3, 500)) * [[1.0], [0.5], [2.0]]
    logs[1] += logs[0]
    spread = np.cov(logs)
    spread += RIDGE * np.diag(spread.diagonal())
    weights = least_variance(logs)
    assert np.isclose(weights.sum(), 1) and weights.min() >= 0
    grid = np.linspace(0, 1, 41)
    best = min(
        np.array(w) @ spread @ w for a, b in itertools.product(grid, grid) if a + b <= 1 for w in [(a, b, 1 - a - b)]
    )
    assert weights @ spread @ weights <= best * (1 + 1e-6)
    assert np.allclose(least_variance(np.ones((2, 50))), 0.5)


def test_directions_that_hold_half_of_the_variance_and_more():
    values = np.array([5.0, 2.0, 1.5, 1.0])
    assert counts_for(values, 10.0, 9) == [1, 3, 4]
    assert counts_for(values, 9.5, 4) == [1, 3]  # all four directions leave nothing
    assert counts_for(values[:1], 5.0, 9) == [] and counts_for(values, 10.0, 1) == []


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
    monkeypatch.setattr(kept_rows, "MOST_BYTES", 1e4)
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


# -- scores that see more than a distance ------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", some(range(3), 1))
def test_what_varies_least_counts_most(seed):
    """Factors whose scale goes up and down fill a Mahalanobis distance; anomalies in other columns drown in it."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(seed)

    def rows(n, loud):
        factors = np.exp(rng.standard_normal((n, 1))) * rng.standard_normal((n, 25))
        return np.hstack([loud * rng.standard_normal((n, 20)), np.repeat(factors, 4, axis=1)])

    model = SketchedCovariance().fit(rows(2000, 1.0))
    X, truth = np.vstack([rows(1000, 1.0), rows(1000, 1.3)]), np.repeat([0, 1], 1000)
    distance, ours = roc_auc_score(truth, model.mahalanobis(X)), roc_auc_score(truth, -model.score_samples(X))
    assert ours > distance + 0.05


@pytest.mark.parametrize("seed", some(range(3), 1))
@pytest.mark.parametrize("n", [200, 1000])
def test_a_sum_that_is_none_is_seen(n, seed):
    """Columns and their sum, which is wrong in a twentieth of the rows: the distance alone shows it, in any units."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(seed)
    parts = np.exp(0.7 * rng.standard_normal((n + 1000, 6)))
    wrong = rng.random(len(parts)) < np.repeat([0.05, 0.5], [n, 1000])
    total = parts.sum(axis=1) * (1 + 1e-3 * rng.standard_normal(len(parts)))
    total[wrong] += total.std() * rng.choice([-1, 1], wrong.sum()) * rng.uniform(0.5, 1.5, wrong.sum())
    X = np.column_stack([parts, total])
    model = SketchedCovariance().fit(X[:n])
    new, truth = X[n:], wrong[n:]
    distance, ours = (roc_auc_score(truth, s) for s in (model.mahalanobis(new), -model.score_samples(new)))
    assert ours > max(0.7, distance - 0.08)
    threshold = model._scorer()[1]
    several = 2 + len(threshold.counts)
    [mean, *alone] = threshold.ways
    assert np.array_equal(alone, np.eye(len(mean))[[0, *range(several, len(mean))]])
    assert len(mean) == several + (threshold.holding > 0) and np.isclose(mean[:several].sum(), 1)
    scores = model._scorer()[1].scores  # a half above the median of either, and a quarter above its upper quartile
    assert np.mean(scores > 0) >= 0.5 and np.mean(scores > 1) >= 0.25


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
    for model in (dropped, filled):
        expected = model.mahalanobis(np.where(holes, model.location_, X))
        assert np.allclose(model.mahalanobis(matrix(rows)), expected)
        assert model.predict(matrix(rows)).shape == (300,)
    assert np.array_equal(rows, before, equal_nan=True)


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


@pytest.mark.parametrize("learned", [True, False], ids=["among rows learned from", "in new rows alone"])
def test_a_total_that_is_a_tenth_off_is_seen(learned):
    """Shrinkage, small as it is, is more than what is left of the variance where a sum holds."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(3)
    X = np.exp(rng.standard_normal((800, 5)) + 2)
    X, wrong = np.column_stack([X, X.sum(axis=1)]), np.arange(800) % 50 == 0
    X[wrong & (learned | (np.arange(800) >= 400)), -1] *= 1.1
    new, truth = X[400:], wrong[400:]
    areas = {}
    for shrinkage in ("auto", 0.02, None):
        model = SketchedCovariance(contamination=0.05, shrinkage=shrinkage).fit(X[:400])
        areas[shrinkage] = roc_auc_score(truth, -model.score_samples(new))
    assert areas["auto"] == areas[None] > 0.9 > areas[0.02] + 0.1, areas


def test_shrinkage_stays_where_rows_left_out_are_likelier_by_it():
    X = rows_of(0, 60, 40)
    model = SketchedCovariance(contamination=0.05).fit(X)
    rows, mean = model._standard()[0].apply(X)
    assert np.array_equal(model._scorer()[0].matrix.distances(rows, mean), model.mahalanobis(X))


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
