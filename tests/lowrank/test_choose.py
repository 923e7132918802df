"""What held-out entries choose and score, of a share or of those that a fit holds out for itself."""

import json

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._core.losses import LOSSES
from fastsketch.lowrank._choose import RIDGE_CANDIDATES
from fastsketch.lowrank._data import observed_entries
from fastsketch.lowrank._loading import CV_FOLDS, assign_folds
from tests.lowrank.problems import problem, stored


def split(x, share=0.2, seed=0):
    """(entries to learn from, entries held out), as CSR."""
    coo, inside = sparse.coo_array(x), np.random.default_rng(seed).random(x.nnz) >= share
    parts = (inside, ~inside)
    return tuple(
        sparse.csr_array(sparse.coo_array((coo.data[at], tuple(ids[at] for ids in coo.coords)), shape=x.shape))
        for at in parts
    )


def errors_of(model, x, loss):
    """The loss of every stored entry."""
    entries = sparse.coo_array(x)
    z = model.decision_function(*entries.coords).astype(np.float64)
    return LOSSES[loss].value(z, entries.data, model.resolved["loss_parameter"] or 0.0)


@pytest.mark.parametrize("loss", ["square", "logistic", "huber", "absolute"])
def test_the_choice_is_the_best_that_was_tried_and_can_be_given(loss):
    x, held = split(stored(*problem(loss, m=120, n=60, noise=1.0)))
    model = fs.LowRankModel(8, loss=loss, max_inner_rank=1).fit(x, validation=held)
    *lines, of_biases = model.selection
    assert (of_biases["rank"], of_biases["ridge"], of_biases["gain"]) == (0, None, 0.0)
    assert [line["ridge"] for line in lines] == (["learned"] if loss == "square" else list(RIDGE_CANDIDATES))
    assert {(line["rank"], line["bias_ridge"]) for line in lines} == {(8, 2.0 if loss == "logistic" else 3.0)}
    chosen, best = model.resolved, min(lines, key=lambda line: line["validation"])
    assert chosen["ridge"] == best["ridge"] and model.selected_rank == 8
    facts = json.loads(json.dumps(model.facts()))
    assert facts["validation"] == pytest.approx(best["validation"])
    assert facts["standard_error"] == best["standard_error"] > 0
    assert (facts["gain"], facts["gain_error"]) == (best["gain"], best["gain_error"])
    # the gain is that over biases alone, with the error of its mean over entries
    alone = fs.LowRankModel(**{**chosen, "rank": 0}).fit(x)
    apart = errors_of(alone, held, loss) - errors_of(model, held, loss)
    assert np.allclose((best["gain"], best["gain_error"]), (apart.mean(), apart.std() / np.sqrt(len(apart))), rtol=1e-5)
    assert best["gain"] > best["gain_error"]
    twin = fs.from_bytes(model.to_bytes())
    assert twin.selection == model.selection and twin.facts() == model.facts()
    # without validation the values found give the same model
    again = fs.LowRankModel(**{**chosen, "rank": model.selected_rank}).fit(x)
    assert np.allclose(again.predict_block([0, 1]), model.predict_block([0, 1]), rtol=1e-9)


@pytest.mark.parametrize("loss", ["square", "logistic"])
@pytest.mark.parametrize("validation", [None, 0.1, 0.3])
def test_a_fit_of_all_entries_follows_the_choice(loss, validation):
    x = stored(*problem(loss, m=120, n=60, noise=1.0))
    calls = []
    model = fs.LowRankModel(8, loss=loss).fit(x, validation=validation, callback=calls.append)
    facts, chosen = model.facts(), model.resolved
    assert (facts["n_observations"], facts["chosen_by"]) == (x.nnz, "validation")
    assert len(model.selection) == (2 if loss == "square" else 6) and facts["gain"] > facts["gain_error"] > 0
    again = fs.LowRankModel(**{**chosen, "rank": model.selected_rank}).fit(x)
    assert again.selection == [] and again.facts()["chosen_by"] == "argument"
    assert np.array_equal(again.decision_block([0, 1]), model.decision_block([0, 1]))
    # scores of its ranks are those of the fit that chose; the callback has seen both
    first = [line for line in calls if line["validation"] is not None]
    assert [line["validation"] for line in model.history] == [e["validation"] for e in first[: len(model.history)]]
    assert [line["rank"] for line in calls] == [*range(len(first)), *range(len(model.history))]
    assert model.history[0]["seconds"] > first[-1]["seconds"]
    if validation == 0.1:
        own = fs.LowRankModel(8, loss=loss).fit(x)
        assert np.array_equal(own.decision_block([0, 1]), model.decision_block([0, 1]))


def test_what_is_given_is_not_chosen():
    x = stored(*problem(m=120, n=60, noise=1.0))
    for options, share in (({"ridge": 1.0}, None), ({"sweeps": 0}, None), ({"rank": 0, "bias_ridge": 3.0}, None)):
        model = fs.LowRankModel(**{"rank": 5, **options}).fit(x, validation=share)
        assert model.selection == [] and model.facts()["gain"] is None
    alone = fs.LowRankModel(0).fit(x)
    assert alone.selection == [] and alone.selected_rank == 0
    ridge = fs.LowRankModel(5, bias_ridge=7.0).fit(x)
    assert {line["bias_ridge"] for line in ridge.selection} == {7.0} and ridge.resolved["bias_ridge"] == 7.0


def test_few_entries_choose_nothing_and_the_model_says_so():
    x = stored(*problem(m=20, n=15, share=0.5))
    model = fs.LowRankModel(3).fit(x)
    assert x.nnz < 300 and model.selection == []
    assert (model.facts()["chosen_by"], model.facts()["gain"]) == ("default", None)
    assert (model.resolved["ridge"], model.resolved["bias_ridge"], model.selected_rank) == ("learned", 3.0, 3)


def few_entries(seed, m=20, n=10, rank=2, noise=0.1):
    """A table of biases, factors and noise with a fifth of its entries missing, and the truth."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    truth = factors + rng.standard_normal((m, 1)) + rng.standard_normal(n)
    return np.where(rng.random((m, n)) < 0.2, np.nan, truth + noise * rng.standard_normal((m, n))), truth


@pytest.mark.parametrize("loss", ["huber", "absolute", "logistic", "poisson"])
def test_few_entries_choose_the_ridge_by_cross_validation(loss):
    """Every fold is held out from a fit with each ridge of the grid, and the mean is over all entries."""
    x, held = stored(*problem(loss, m=20, n=12, noise=0.5)), {}
    assert x.nnz < 300
    model = fs.LowRankModel(2, loss=loss).fit(x)
    folds = assign_folds(observed_entries(x, loss=loss), 0)
    assert sorted(np.bincount(folds)) == sorted(len(part) for part in np.array_split(np.arange(x.nnz), CV_FOLDS))
    coo = sparse.coo_array(x)
    for fold in range(CV_FOLDS):
        training, held_out = (
            sparse.csr_array(sparse.coo_array((coo.data[at], tuple(ids[at] for ids in coo.coords)), shape=x.shape))
            for at in (folds != fold, folds == fold)
        )
        for ridge in RIDGE_CANDIDATES:
            one = fs.LowRankModel(2, loss=loss, ridge=ridge).fit(training)
            held.setdefault(ridge, []).append(errors_of(one, held_out, loss))
    means = {ridge: np.concatenate(losses).mean() for ridge, losses in held.items()}
    *lines, of_biases = model.selection
    assert {line["ridge"]: line["validation"] for line in lines} == pytest.approx(means, rel=1e-9)
    assert model.resolved["ridge"] == min(means, key=means.get)
    assert (of_biases["rank"], of_biases["ridge"]) == (0, None)
    facts, losses = model.facts(), np.concatenate(held[model.resolved["ridge"]])
    assert facts["chosen_by"] == "validation"
    assert facts["validation"] == pytest.approx(losses.mean(), rel=1e-9)
    assert facts["standard_error"] == pytest.approx(losses.std() / np.sqrt(len(losses)), rel=1e-6)
    again = fs.LowRankModel(**model.resolved).fit(x)
    assert np.array_equal(again.complete(), model.complete())
    assert fs.from_bytes(model.to_bytes()).selection == model.selection


@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_few_entries_are_not_shrunk_more_than_by_learned_ridges(loss):
    """The default was a ridge of 1 once, which is too large for most small tables."""
    errors = {"chosen": [], "learned": [], "one": []}
    for seed in range(5):
        x, truth = few_entries(seed)
        models = {"chosen": {"loss": loss}, "learned": {}, "one": {"loss": loss, "ridge": 1.0}}
        for name, options in models.items():
            apart = fs.LowRankModel(2, **options).fit(x).complete() - truth
            errors[name].append(np.sqrt((apart[np.isnan(x)] ** 2).mean()) / truth.std())
    means = {name: np.mean(each) for name, each in errors.items()}
    assert means["chosen"] < means["learned"] < means["one"]


@pytest.mark.parametrize("values", ["real", "stars"])
def test_folds_do_not_depend_on_the_order_of_rows_and_columns(values):
    for seed in range(5):
        x, _ = few_entries(seed)
        x = x if values == "real" else np.clip(np.round(3 + x), 1, 5)
        rng = np.random.default_rng(seed)
        rows, columns = rng.permutation(20), rng.permutation(10)
        table, moved = np.full(x.shape, -1), np.full(x.shape, -1)
        table[~np.isnan(x)] = assign_folds(observed_entries(x, loss="huber"), seed)
        permuted = x[rows][:, columns]
        moved[~np.isnan(permuted)] = assign_folds(observed_entries(permuted, loss="huber"), seed)
        assert np.array_equal(table[rows][:, columns], moved)
        assert np.bincount(table[table >= 0]).min() >= len(table[table >= 0]) // CV_FOLDS
        other_scale = assign_folds(observed_entries(1000 * x, loss="huber"), seed)
        assert np.array_equal(other_scale, table[~np.isnan(x)])
        assert not np.array_equal(other_scale, assign_folds(observed_entries(x, loss="huber"), seed + 10))


@pytest.mark.parametrize("loss", ["huber", "absolute", "quantile"])
def test_predictions_of_few_entries_do_not_depend_on_the_order_of_rows(loss):
    for seed in range(5):
        x, truth = few_entries(seed)
        order = np.random.default_rng(seed).permutation(len(x))
        model, moved = (fs.LowRankModel(2, loss=loss).fit(each) for each in (x, x[order]))
        assert model.resolved["ridge"] == moved.resolved["ridge"]
        assert np.allclose(model.complete()[order], moved.complete(), rtol=0, atol=1e-9 * truth.std())


@pytest.mark.parametrize("loss", ["huber", "absolute", "logistic"])
def test_the_fewest_entries(loss):
    four = fs.LowRankModel(1, loss=loss).fit(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert (four.resolved["ridge"], four.selection) == (1.0, [])
    six = fs.LowRankModel(1, loss=loss).fit(np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]]))
    assert six.resolved["ridge"] in RIDGE_CANDIDATES and len(six.selection) == len(RIDGE_CANDIDATES) + 1
    assert np.isfinite(six.complete()).all()
    equal = fs.LowRankModel(1, loss=loss).fit(np.ones((5, 4)))
    assert np.array_equal(equal.complete(), np.ones((5, 4)))


def test_data_that_leave_nothing_to_choose():
    for equal in (np.full((30, 20), 4.0), np.full((1, 400), 4.0), np.full((400, 1), 4.0)):
        model = fs.LowRankModel(1).fit(equal)
        assert np.allclose(model.complete(), 4.0, rtol=1e-6)
    row = np.random.default_rng(0).standard_normal((1, 400))
    for one in (row, row.T):
        model = fs.LowRankModel(1).fit(one)
        assert np.isfinite(model.complete()).all()
    # a share that most rows cannot spare
    few = stored(np.ones((200, 50)), np.random.default_rng(0).random((200, 50)) < 0.04)
    before = model.to_bytes()
    with pytest.raises(ValueError, match=r"validation=0.8 leaves entries in \d+ of 1\d\d rows alone: hold out fewer"):
        model.fit(few, validation=0.8)
    with pytest.raises(ValueError, match="leaves no entry on one side of 2"):
        model.fit(np.ones((1, 2)), validation=0.001)
    assert model.to_bytes() == before


def test_factors_that_say_nothing_cost_nothing():
    """Ratings of biases and noise alone, few to a row: no fit is worse than tuned biases."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal((150, 1)) + rng.standard_normal(80)
        o = truth + 2 * rng.standard_normal((150, 80))
        x = stored(o, rng.random(o.shape) < 0.08)
        model = fs.LowRankModel(10).fit(x)
        assert any(line["rank"] for line in model.selection)  # factors were tried
        alone = fs.LowRankModel(**{**model.resolved, "rank": 0}).fit(x)
        errors = [np.sqrt(((each.complete() - truth) ** 2).mean()) for each in (model, alone)]
        assert errors[0] < 1.02 * errors[1]


@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_a_ridge_is_the_best_of_fits_with_explicit_ridges(loss):
    """Every ridge of the grid is fitted again, and the rule is applied to their losses."""
    chosen = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        factors = (0.2, 1.0)[seed % 2] * rng.standard_normal((100, 2)) @ rng.standard_normal((2, 60))
        o = rng.standard_normal((100, 1)) + rng.standard_normal(60) + factors + rng.standard_normal((100, 60))
        x, held = split(stored(o, rng.random(o.shape) < 0.3), 0.3, seed)
        model = fs.LowRankModel(6, loss=loss).fit(x, validation=held)
        means = [
            errors_of(fs.LowRankModel(6, loss=loss, ridge=ridge).fit(x), held, loss).mean()
            for ridge in RIDGE_CANDIDATES
        ]
        assert model.resolved["ridge"] == RIDGE_CANDIDATES[int(np.argmin(means))]
        chosen.add(model.resolved["ridge"])
    assert len(chosen) > 1


def test_given_ridges_are_kept():
    x, held = split(stored(*problem(m=80, n=40, noise=1.0)))
    model = fs.LowRankModel(6, ridge=0.6, bias_ridge=7.0).fit(x, validation=held)
    assert {line["ridge"] for line in model.selection} == {0.6, None}
    assert sum(line["ridge"] is None for line in model.selection) == 1
    assert {line["bias_ridge"] for line in model.selection} == {7.0}
    greedy = fs.LowRankModel(6, sweeps=0).fit(x, validation=held)
    assert greedy.resolved["ridge"] == 1.0 and greedy.selection == []
    error = greedy.facts()["standard_error"]
    assert greedy.add_ranks(2).facts()["standard_error"] >= error * 0.5


def test_the_gain_says_where_factors_do_not_help():
    rng = np.random.default_rng(0)
    o = rng.standard_normal((60, 1)) + rng.standard_normal(40) + rng.standard_normal((60, 40))
    x, held = split(stored(o, rng.random(o.shape) < 0.3), 0.3)
    for options in ({}, {"ridge": 1.0}, {"ridge": 0.01}):
        facts = fs.LowRankModel(5, **options).fit(x, validation=held).facts()
        assert facts["gain"] < facts["gain_error"]
