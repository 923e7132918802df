"""What held-out entries choose: bias_ridge, ridge and rank, of a share or of those that a fit holds out for itself."""

import json

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._core.losses import LOSSES
from fastsketch.lowrank._choose import along
from tests.lowrank.problems import problem, stored


def split(x, share=0.2, seed=0):
    """(entries to learn from, entries held out), as CSR."""
    coo, inside = sparse.coo_array(x), np.random.default_rng(seed).random(x.nnz) >= share
    parts = (inside, ~inside)
    return tuple(
        sparse.csr_array(sparse.coo_array((coo.data[at], tuple(ids[at] for ids in coo.coords)), shape=x.shape))
        for at in parts
    )


def test_a_path_is_followed_as_long_as_it_gains():
    for best in range(9):
        seen = []
        path = tuple(float(k) for k in range(9))
        assert along(path, 4.0, lambda value, best=best, seen=seen: seen.append(value) or abs(value - best)) == best
        assert len(seen) == len(set(seen)) <= abs(best - 4) + 3
    assert along((1.0, 2.0, 3.0), 2.0, lambda _: np.inf) == 2.0


def errors_of(model, x, loss):
    """The loss of every stored entry."""
    entries = sparse.coo_array(x)
    z = model.decision_function(*entries.coords).astype(np.float64)
    return LOSSES[loss].value(z, entries.data, model.resolved["loss_parameter"] or 0.0)


@pytest.mark.parametrize("loss", ["square", "logistic", "huber", "absolute"])
def test_the_choice_is_the_best_that_was_tried_and_can_be_given(loss):
    x, held = split(stored(*problem(loss, m=120, n=60, noise=1.0)))
    model = fs.LowRankModel(8, loss=loss, max_inner_rank=1).fit(x, validation=held)
    lines = model.selection
    biases, both = [line for line in lines if line["ridge"] is None], [line for line in lines if line["ridge"]]
    assert len(biases) >= 3 and len(both) >= (2 if loss == "square" else 4)
    chosen = model.resolved
    same_rank = [line for line in both if line["rank"] == model.selected_rank]
    best = next(line for line in same_rank if line["ridge"] == chosen["ridge"])
    # another ridge than 1 is the best that was tried; learned ridges are one
    assert best is min(same_rank, key=lambda line: line["validation"]) or best["ridge"] == 1.0
    least = min(biases, key=lambda line: line["validation"])["bias_ridge"]
    usual, other = (
        errors_of(fs.LowRankModel(0, loss=loss, bias_ridge=ridge).fit(x), held, loss)
        for ridge in (biases[0]["bias_ridge"], least)
    )
    assert chosen["bias_ridge"] == (least if better(usual, other, 0.5) else biases[0]["bias_ridge"])
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
    assert twin.selection == lines and twin.facts() == model.facts()
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
    assert len({line["bias_ridge"] for line in model.selection}) >= 3 and facts["gain"] > facts["gain_error"] > 0
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
    assert {line["rank"] for line in alone.selection} == {0} and alone.facts()["chosen_by"] == "validation"
    ridge = fs.LowRankModel(5, bias_ridge=7.0).fit(x)
    assert {line["bias_ridge"] for line in ridge.selection} == {7.0} and ridge.resolved["bias_ridge"] == 7.0


def test_few_entries_choose_nothing_and_the_model_says_so():
    x = stored(*problem(m=20, n=15, share=0.5))
    model = fs.LowRankModel(3).fit(x)
    assert x.nnz < 300 and model.selection == []
    assert (model.facts()["chosen_by"], model.facts()["gain"]) == ("default", None)
    assert (model.resolved["ridge"], model.resolved["bias_ridge"], model.selected_rank) == ("learned", 3.0, 3)
    huber = fs.LowRankModel(3, loss="huber").fit(x)
    assert (huber.resolved["ridge"], huber.selection) == (1.0, [])


def test_data_that_leave_nothing_to_choose():
    for equal in (np.full((30, 20), 4.0), np.full((1, 400), 4.0), np.full((400, 1), 4.0)):
        model = fs.LowRankModel(1).fit(equal)
        assert model.selected_rank == 0 and np.allclose(model.complete(), 4.0, rtol=1e-6)
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


@pytest.mark.parametrize("loss", ["square", "huber"])
def test_the_choice_follows_its_rule(loss, amount):
    """Every model that was tried is fitted again, and the rule is applied to its losses entry by entry."""
    ends: set[tuple[bool, ...]] = set()
    about = {"loss": loss, **({"loss_parameter": 1e3} if loss == "huber" else {})}  # squares, of a ridge that is chosen
    for seed in range(amount(18, 90)):
        rng = np.random.default_rng(seed)
        strength, share = ((seed % 6) / 8, 0.2) if seed < 8 else (0.3, 0.1)
        factors = strength * rng.standard_normal((100, 2)) @ rng.standard_normal((2, 60))
        o = rng.standard_normal((100, 1)) + rng.standard_normal(60) + factors + rng.standard_normal((100, 60))
        x, held = split(stored(o, rng.random(o.shape) < share), 0.3, seed)
        model = fs.LowRankModel(6, **about).fit(x, validation=held)
        bias_ridge, tried = model.resolved["bias_ridge"], {}
        for line in model.selection:
            if line["bias_ridge"] == bias_ridge:
                given = {"ridge": line["ridge"] or 1.0, "bias_ridge": bias_ridge}
                again = fs.LowRankModel(line["rank"], **about, **given).fit(x)
                tried[line["rank"], line["ridge"]] = errors_of(again, held, loss)
        rank, ridge = of_rule(tried, 6)
        assert (model.selected_rank, model.resolved["ridge"] if rank else None) == (rank, ridge)
        usual = better(tried[0, None], tried[6, "learned" if loss == "square" else 1.0], 1)
        ends.add((rank > 0, rank == 6, ridge == 1.0, bool(usual)))
    if loss == "square":  # biases alone, all ranks; fewer ones are rarely better, as factors fade
        assert {end[0] for end in ends} == {True, False}
        return
    # biases alone, another ridge because 1 is no better than they, ridge 1, fewer ranks
    assert {end[0] for end in ends} == {end[1] for end in ends} == {True, False}
    assert (True, True, True, True) in ends and any(end[0] and not end[3] for end in ends)


def better(other, one, errors):
    """Whether `one` has lower losses than `other` in the mean, by more than so many standard errors."""
    gains = other - one
    return gains.mean() > errors * gains.std() / np.sqrt(len(gains))


def of_rule(tried, rank):
    """The (rank, ridge) that the losses {(rank, ridge): (k,)} of entries held out choose."""
    alone, ridge = tried[0, None], "learned"
    if (rank, ridge) not in tried:
        ridge = of_path(tried, rank)
    while rank > 1 and better(tried[rank, ridge], tried[rank // 2, ridge], 2):
        rank //= 2
    errors = 0 if ridge == "learned" else 1
    return (rank, ridge) if better(alone, tried[rank, ridge], errors) else (0, None)


def of_path(tried, rank):
    """The ridge that those losses choose."""
    alone, usual = tried[0, None], tried[rank, 1.0]
    ridge = min((key[1] for key in tried if key[0] == rank), key=lambda ridge: tried[rank, ridge].mean())
    if better(alone, usual, 1) and not better(usual, tried[rank, ridge], 2):
        ridge = 1.0
    return ridge


def test_given_ridges_are_kept():
    x, held = split(stored(*problem(m=80, n=40, noise=1.0)))
    model = fs.LowRankModel(6, ridge=0.6, bias_ridge=7.0).fit(x, validation=held)
    assert {line["ridge"] for line in model.selection} == {0.6, None}
    assert sum(line["ridge"] is None for line in model.selection) == 1
    assert {line["bias_ridge"] for line in model.selection} == {7.0}
    greedy = fs.LowRankModel(6, sweeps=0).fit(x, validation=held)
    assert greedy.resolved["ridge"] == 1.0 and all(line["rank"] == 0 for line in greedy.selection)
    error = greedy.facts()["standard_error"]
    assert greedy.add_ranks(2).selection and greedy.facts()["standard_error"] >= error * 0.5


def test_biases_alone_where_factors_do_not_help():
    rng = np.random.default_rng(0)
    o = rng.standard_normal((60, 1)) + rng.standard_normal(40) + rng.standard_normal((60, 40))
    x, held = split(stored(o, rng.random(o.shape) < 0.3), 0.3)
    for options in ({"ridge": 1.0}, {"ridge": 0.01}):
        model = fs.LowRankModel(5, **options).fit(x, validation=held)
        assert model.selected_rank == 0
    alone = next(line for line in model.selection if line["bias_ridge"] == model.resolved["bias_ridge"])
    plain = fs.LowRankModel(0, bias_ridge=model.resolved["bias_ridge"]).fit(x)
    for one in (model, fs.from_bytes(model.to_bytes())):
        assert np.array_equal(one.predict_block([0, 3]), plain.predict_block([0, 3]))
        assert one.fold_in(x[:3]).factors.shape == (3, 0)
        assert one.selected_rank == 0 and one.facts()["validation"] == alone["validation"]


def test_stranger_candidates_are_refused():
    x, held = split(stored(*problem()))
    model = fs.LowRankModel(2).fit(x, validation=held)
    state, arrays = model._state()
    for wrong in (
        {"selection": [{**state["selection"][0], "rank": -1}]},
        {"selection": [{**state["selection"][0], "bias_ridge": -1.0}]},
        {"selection": [{**state["selection"][0], "gain": "much"}]},
        {"standard_error": "much"},
        {"ridge_unit": -1.0},
        {"bias_ridge_unit": np.nan},
        {"loss_parameter": 2.0},
    ):
        with pytest.raises((TypeError, ValueError)):
            model._validate({**state, **wrong}, arrays)
