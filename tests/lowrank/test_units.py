"""A model of c X is c times the model of X: what ridges, delta, epsilon and clip are counted in."""

import numpy as np
import pytest

import fastsketch as fs
from tests.lowrank.problems import penalties, problem, stored

SCALING = ["square", "huber", "absolute", "quantile", "epsilon_insensitive"]
GIVEN = {"ridge": 0.3, "bias_ridge": 1.0}
PARAMETER = {"huber": 0.8, "epsilon_insensitive": 0.2}  # in units of X
OPTIONS = [
    {},
    GIVEN,
    {**GIVEN, "parameter": True, "clip": (-2.0, 2.5)},
    {"sweeps": 0},
    {"sweeps": 0, "refine": "full"},
    {"sweeps": 0, "refine": "none", "scaling": False},
    {"biases": False, "ridge": 0.1},
    {"validation": 0.2},
]


def fitted(loss, x, scale, options):
    options = dict(options)
    validation = options.pop("validation", None)
    if options.pop("parameter", False):
        options["loss_parameter"] = scale * PARAMETER[loss] if loss in PARAMETER else None
        options["clip"] = tuple(scale * end for end in options["clip"])
    return fs.LowRankModel(4, loss=loss, **options).fit(scale * x, validation=validation)


def data(seed=0):
    return stored(*problem(m=120, n=50, rank=4, noise=0.5, seed=seed))


@pytest.mark.covering(1)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("loss", SCALING)
def test_predictions_and_fold_ins_are_those_of_the_scaled_data(loss, options, amount):
    x, rows = data(), np.arange(120)
    one = fitted(loss, x, 1.0, options)
    new = x[:20]

    def told(model, scale):
        folded = [model.fold_in(scale * new, **more).predict_block() for more in ({}, {"ridge": 0.5})]
        other = model.fold_in(scale * x[:, :5], axis=1).predict_block()
        return [model.predict_block(rows), *folded, other]

    # by a power of four no operation rounds differently: the bits are the same
    powers = [(4.0**power, 0.0) for power in (-4, 4, -150, 150)]
    for scale, tolerance in amount(((0.01, 1e-8), powers[-1]), ((0.01, 1e-8), (100.0, 1e-8), *powers)):
        other = fitted(loss, x, scale, options)
        for mine, theirs in zip(told(one, 1.0), told(other, scale), strict=True):
            assert np.abs(theirs / scale - mine).max() <= tolerance * np.abs(mine).max(), (loss, scale)
        assert other.selected_rank == one.selected_rank
        assert other.resolved["ridge"] == one.resolved["ridge"]
        assert other.resolved["bias_ridge"] == one.resolved["bias_ridge"]


@pytest.mark.covering(2)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("ridge", [None, 0.5])
@pytest.mark.parametrize("loss", ["square", "huber", "absolute"])
def test_an_offset_of_a_row_or_column_does_not_change_the_others(loss, ridge, axis):
    """Errors of the entries that are not observed, in deviations; the ridge is learned or chosen, or given."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 8))
    truth = truth / truth.std(axis=0) + 0.1 * rng.standard_normal(truth.shape)
    gaps = rng.random(truth.shape) < 0.2
    shifted = (0, slice(None)) if axis == 0 else (slice(None), 0)
    errors, own = [], []
    for offset in (0.0, 10.0, 1e6):
        moved = truth.copy()
        moved[shifted] += offset
        model = fs.LowRankModel(5, loss=loss, ridge=ridge).fit(np.where(gaps, np.nan, moved))
        wrong = np.where(gaps, (model.complete() - moved) ** 2, np.nan)
        own.append(np.sqrt(np.nanmean(wrong[shifted])))
        wrong[shifted] = np.nan
        errors.append(np.sqrt(np.nanmean(wrong)))
    assert max(errors) <= 1.1 * errors[0]
    assert max(own) <= 3 * own[0]  # and its own entries are predicted near their offset


@pytest.mark.parametrize("loss", SCALING)
def test_penalties_have_the_scale_of_slopes_and_curvatures(loss):
    (one, bias_one), (two, bias_two) = (
        penalties(fitted(loss, data(), scale, {"ridge": 1.0})) for scale in (1.0, 100.0)
    )
    squares = loss in ("square", "huber")
    assert two / one == pytest.approx(100.0 if squares else 1.0, rel=1e-6)
    assert bias_two / bias_one == pytest.approx(1.0 if squares else 0.01, rel=1e-6)


def test_a_bias_ridge_counts_observations():
    """n observations shrink to n / (n + bias_ridge) of what they say, under losses of any curvature."""
    for loss, o in (("square", 3.0), ("logistic", 1.0), ("squared_hinge", 1.0), ("poisson", 3.0)):
        x = np.full((200, 40), np.nan)
        rng = np.random.default_rng(0)
        low = 0.0 if loss == "poisson" else -o
        x[:, :20] = np.where(rng.random((200, 20)) < 0.5, o, low)
        share = {b: fs.LowRankModel(0, loss=loss, bias_ridge=b).fit(x) for b in (0.0, 20.0)}
        whole, half = (np.asarray(model.bias_terms()[1]) for model in share.values())
        assert np.median(np.abs(half) / np.abs(whole).clip(1e-9)) == pytest.approx(0.5, abs=0.08), loss


def test_delta_and_epsilon_follow_what_biases_leave():
    rng = np.random.default_rng(0)
    rows, columns = rng.standard_normal((300, 1)), rng.standard_normal(80)
    x = np.where(rng.random((300, 80)) < 0.5, 5 + 2 * rows + 3 * columns + 0.3 * rng.standard_normal((300, 80)), np.nan)
    wrong = np.where(rng.random(x.shape) < 0.05, x + 50.0, x)
    for loss, share in (("huber", 1.345), ("epsilon_insensitive", 0.1)):
        for rows_of in (x, wrong):
            model = fs.LowRankModel(1, loss=loss, ridge=1.0, bias_ridge=3.0).fit(rows_of)
            assert model.loss_parameter is None
            # wrong entries pull the biases: that alone may move it (the spread of all is 11 with them)
            assert 0.8 < model.resolved["loss_parameter"] / (share * 0.3) < (1.4 if rows_of is x else 1.8)
            assert model.facts()["loss_parameter"] == model.resolved["loss_parameter"]
            twin = fs.from_bytes(model.to_bytes())
            assert twin.resolved == model.resolved
            assert np.array_equal(twin.fold_in(x[:4]).factors, model.fold_in(x[:4]).factors)
    assert fs.LowRankModel(1, loss="huber", loss_parameter=2.5).fit(x).resolved["loss_parameter"] == 2.5
    assert fs.LowRankModel(1, loss="huber").fit(np.ones((4, 4))).predict(0, 0) == pytest.approx(1.0)


@pytest.mark.parametrize("loss", SCALING)
def test_matrices_of_one_number_and_of_nothing_but_zeros(loss):
    for number in (0.0, 3.0, 1e-30, -1e30):
        model = fs.LowRankModel(2, loss=loss).fit(np.full((6, 5), number))
        assert np.allclose(model.predict_block([0, 5]), number, rtol=1e-6, atol=0)


def test_weights_of_zero_are_not_there():
    for loss in ("logistic", "huber", "absolute", "quantile"):
        o, seen = problem(loss, m=40, n=20)
        x = stored(o, seen)
        some = x.copy()
        some.data = (np.arange(x.nnz) % 3 > 0).astype(float)
        kept = stored(o, np.asarray(some.toarray() > 0))
        one, other = fs.LowRankModel(0, loss=loss).fit(x, sample_weight=some), fs.LowRankModel(0, loss=loss).fit(kept)
        assert penalties(one)[1] == pytest.approx(penalties(other)[1], rel=1e-9)
        if loss in ("logistic", "huber"):  # kinks are smoothed over a share of the spread of all that is stored
            assert np.allclose(one.predict_block([0]), other.predict_block([0]), rtol=1e-6)


@pytest.mark.parametrize("loss", [*SCALING, "logistic"])
def test_weights_of_another_scale_choose_and_predict_the_same(loss):
    o, seen = problem(loss, m=80, n=40)
    x = stored(o, seen)
    weights = x.copy()
    weights.data = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 2.0], x.nnz)
    one = fs.LowRankModel(3, loss=loss).fit(x, sample_weight=weights)
    for scale in (4.0**-160, 0.01, 4.0**160):
        other = fs.LowRankModel(3, loss=loss).fit(x, sample_weight=scale * weights)
        for name in ("ridge", "bias_ridge"):
            assert other.resolved[name] == one.resolved[name]
        assert other.selected_rank == one.selected_rank
        assert np.allclose(other.predict_block(np.arange(80)), one.predict_block(np.arange(80)), rtol=1e-6, atol=1e-8)
    for scale in (1e-200, 1e200):
        with pytest.raises(ValueError, match=r"sample_weight must be 0 or from 1e-100 to 1e\+100: scale all weights"):
            fs.LowRankModel(3, loss=loss).fit(x, sample_weight=scale * weights)


@pytest.mark.parametrize("options", [{}, {"ridge": 1.0}, {"loss": "huber"}, {"loss": "absolute"}, {"loss": "quantile"}])
@pytest.mark.parametrize("shape", [(30, 4), (40, 6)])
def test_the_order_of_rows_and_columns_does_not_change_a_small_table(shape, options):
    # residuals of the bias fit are zero up to rounding where a row has one entry: their signs must not move the biases
    rng = np.random.default_rng(1)
    m, n = shape
    truth = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    truth += rng.standard_normal(m)[:, None] + rng.standard_normal(n)
    x = truth + 0.2 * rng.standard_normal(shape)
    x[rng.random(shape) < 0.2] = np.nan
    assert (np.isfinite(x).sum(axis=1) == 1).any()
    rows, columns = rng.permutation(m), rng.permutation(n)
    i, j = np.nonzero(np.isnan(x))
    model = fs.LowRankModel(2, **options).fit(x)
    reordered = fs.LowRankModel(2, **options).fit(x[rows][:, columns])
    predictions = reordered.predict(np.argsort(rows)[i], np.argsort(columns)[j])
    # sums in another order differ by rounding, which the sweeps amplify; a sign that moves a bias changes a tenth
    assert np.abs(predictions - model.predict(i, j)).max() < 1e-6 * np.nanstd(x)
