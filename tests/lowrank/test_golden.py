"""State files of low-rank models as this and earlier versions wrote them."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

DATA = Path(__file__).parents[1] / "data"
# Every parameter on which the numbers depend: defaults may change.
GREEDY = {
    "learning_rate": 1.0,
    "sweeps": 0,
    "ridge": 10.0,
    "bias_ridge": 3.0,
    "max_power_iterations": 30,
}
MODELS = {
    "huber": lambda: fs.LowRankModel(3, loss="huber", clip=(-5, 5), **GREEDY),
    "swept-float32": lambda: fs.LowRankModel(2, dtype="float32", **{**GREEDY, "sweeps": 1}),
    "quantile": lambda: fs.LowRankModel(2, loss="quantile", loss_parameter=0.9, max_inner_rank=1, **GREEDY),
}
FILES = [(schema, kind) for schema in (1, 2) for kind in MODELS]


def seen():
    rng = np.random.default_rng(0)
    rows = rng.integers(-3, 4, (12, 9)) * (rng.random((12, 9)) < 0.6)
    return sparse.csr_array(rows.astype(float))


def write(kind):
    """How the files came to be: not called by any test."""
    model = MODELS[kind]().fit(seen())
    model.save(DATA / f"schema2-lowrank-{kind}.fsk")
    facts = {
        "predictions": model.predict_block(np.arange(12)).tolist(),
        "rank": model.selected_rank,
        "folded": model.fold_in(seen()[:3]).predict_block().tolist(),
    }
    (DATA / f"schema2-lowrank-{kind}.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(("schema", "kind"), FILES)
def test_golden_files(schema, kind):
    model = fs.load(DATA / f"schema{schema}-lowrank-{kind}.fsk")
    facts = json.loads((DATA / f"schema{schema}-lowrank-{kind}.json").read_text())
    tolerance = 1e-4 if "float32" in kind else 1e-9
    assert model.selected_rank == facts["rank"]
    assert np.allclose(model.predict_block(np.arange(12)), facts["predictions"], atol=tolerance)
    assert np.allclose(model.fold_in(seen()[:3]).predict_block(), facts["folded"], atol=max(tolerance, 1e-5))


@pytest.mark.parametrize(("schema", "kind"), FILES)
def test_golden_files_hold_their_parameters(schema, kind):
    model, fresh = fs.load(DATA / f"schema{schema}-lowrank-{kind}.fsk"), MODELS[kind]()
    explicit = {"loss_parameter": model.loss_parameter} if schema == 1 else {}  # schema 1 wrote the default in use
    assert model.parameters == fresh.parameters | explicit
    # ridges had no units then, and delta was 1
    assert (model.facts()["penalty"], model.facts()["bias_penalty"]) == (GREEDY["ridge"], GREEDY["bias_ridge"])
    assert model.resolved["loss_parameter"] == {"huber": 1.0, "quantile": 0.9}.get(kind)
    folded, asked = (model.fold_in(seen()[:3], **more).factors for more in ({}, {"ridge": GREEDY["ridge"]}))
    assert np.array_equal(folded, asked)
    assert [line["rank"] for line in model.history] == list(range(model.rank + 1))
