"""State files of low-rank models as earlier versions wrote them."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

DATA = Path(__file__).parents[1] / "data"
MODELS = {
    "huber": lambda: fs.LowRankModel(3, "huber", clip=(-5, 5)),
    "swept-float32": lambda: fs.LowRankModel(2, sweeps=1, dtype="float32"),
    "quantile": lambda: fs.LowRankModel(2, "quantile", loss_parameter=0.9, inner_rank=1),
}


def seen():
    rng = np.random.default_rng(0)
    rows = rng.integers(-3, 4, (12, 9)) * (rng.random((12, 9)) < 0.6)
    return sparse.csr_array(rows.astype(float))


def write(kind):
    """How the files came to be: not called by any test."""
    model = MODELS[kind]().fit(seen())
    model.save(DATA / f"schema1-lowrank-{kind}.fsk")
    facts = {
        "predictions": model.predict_block(np.arange(12)).tolist(),
        "rank": model.rank_,
        "folded": model.fold_in(seen()[:3]).predict_block().tolist(),
    }
    (DATA / f"schema1-lowrank-{kind}.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("kind", MODELS)
def test_golden_files(kind):
    model = fs.load(DATA / f"schema1-lowrank-{kind}.fsk")
    facts = json.loads((DATA / f"schema1-lowrank-{kind}.json").read_text())
    tolerance = 1e-4 if "float32" in kind else 1e-9
    assert model.rank_ == facts["rank"]
    assert np.allclose(model.predict_block(np.arange(12)), facts["predictions"], atol=tolerance)
    assert np.allclose(model.fold_in(seen()[:3]).predict_block(), facts["folded"], atol=max(tolerance, 1e-5))
