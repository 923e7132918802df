"""What validation chooses: bias_ridge, ridge and rank."""

import json

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
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


@pytest.mark.parametrize("loss", ["square", "logistic", "huber", "absolute"])
def test_the_choice_is_the_best_that_was_tried_and_can_be_given(loss):
    x, held = split(stored(*problem(loss, m=120, n=60, noise=1.0)))
    model = fs.LowRankModel(8, loss=loss, max_inner_rank=1).fit(x, validation=held)
    lines = model.selection
    biases, both = [line for line in lines if line["ridge"] is None], [line for line in lines if line["ridge"]]
    assert len(biases) >= 3 and len(both) >= 4
    best = min(both, key=lambda line: line["validation"])
    chosen = model.resolved
    assert (best["rank"], best["ridge"]) == (model.selected_rank, chosen["ridge"])
    assert chosen["bias_ridge"] == min(biases, key=lambda line: line["validation"])["bias_ridge"]
    facts = json.loads(json.dumps(model.facts()))
    assert facts["validation"] == pytest.approx(best["validation"])
    assert facts["standard_error"] == best["standard_error"] > 0
    twin = fs.from_bytes(model.to_bytes())
    assert twin.selection == lines and twin.facts() == model.facts()
    # without validation the values found give the same model
    again = fs.LowRankModel(**{**chosen, "rank": model.selected_rank}).fit(x)
    assert np.allclose(again.predict_block([0, 1]), model.predict_block([0, 1]), rtol=1e-9)


def test_given_ridges_are_kept():
    x, held = split(stored(*problem(m=80, n=40, noise=1.0)))
    model = fs.LowRankModel(6, ridge=0.6, bias_ridge=7.0).fit(x, validation=held)
    assert {line["ridge"] for line in model.selection} == {0.6, None}
    assert sum(line["ridge"] is None for line in model.selection) == 1
    assert {line["bias_ridge"] for line in model.selection} == {7.0}
    assert fs.LowRankModel(6).fit(x).selection == []
    greedy = fs.LowRankModel(6, sweeps=0).fit(x, validation=held)
    assert greedy.resolved["ridge"] == 1.0 and all(line["rank"] == 0 for line in greedy.selection)
    error = greedy.facts()["standard_error"]
    assert greedy.add_ranks(2).selection and greedy.facts()["standard_error"] >= error * 0.5


def test_biases_alone_where_factors_do_not_help():
    rng = np.random.default_rng(0)
    o = rng.standard_normal((60, 1)) + rng.standard_normal(40) + rng.standard_normal((60, 40))
    x, held = split(stored(o, rng.random(o.shape) < 0.3), 0.3)
    for options in ({}, {"ridge": 0.01}):
        model = fs.LowRankModel(5, **options).fit(x, validation=held)
        best = min(model.selection, key=lambda line: line["validation"])
        assert model.selected_rank == best["rank"]
    assert model.selected_rank == 0
    plain = fs.LowRankModel(0, bias_ridge=model.resolved["bias_ridge"]).fit(x)
    for one in (model, fs.from_bytes(model.to_bytes())):
        assert np.array_equal(one.predict_block([0, 3]), plain.predict_block([0, 3]))
        assert one.fold_in(x[:3]).factors.shape == (3, 0)
        assert one.selected_rank == 0 and one.facts()["validation"] == best["validation"]


def test_stranger_candidates_are_refused():
    x, held = split(stored(*problem()))
    model = fs.LowRankModel(2).fit(x, validation=held)
    state, arrays = model._state()
    for wrong in (
        {"selection": [{**state["selection"][0], "rank": -1}]},
        {"selection": [{**state["selection"][0], "bias_ridge": -1.0}]},
        {"standard_error": "much"},
        {"ridge_unit": -1.0},
        {"bias_ridge_unit": np.nan},
        {"loss_parameter": 2.0},
    ):
        with pytest.raises((TypeError, ValueError)):
            model._validate({**state, **wrong}, arrays)
