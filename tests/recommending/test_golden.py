"""State files of SketchedEASE as this and earlier versions wrote them."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

DATA = Path(__file__).parents[1] / "data"
# Every parameter on which the numbers depend: defaults may change.
SETTING = {"activity_power": 0.5, "dropout": 0.0, "reservoir_size": 30, "seed": 3}
MODELS = {
    "isvd-float32": lambda: fs.SketchedEASE(6, method="isvd", dtype="float32", decay=0.99, **SETTING),
    "rfd-ridge": lambda: fs.SketchedEASE(6, method="rfd", dtype="float64", ridge=2.0, decay=1.0, **SETTING),
}


def seen(seed=0, n=150):
    rng = np.random.default_rng(seed)
    return sparse.csr_array((rng.random((n, 14)) < np.linspace(0.5, 0.1, 14)) * rng.integers(1, 4, (n, 14)))


def write(kind):
    """How the files came to be: not called by any test."""
    model = MODELS[kind]().update(seen())
    model.save(DATA / f"schema3-ease-{kind}.fsk")
    facts = {
        "scores": model.decision_block(seen(1, 5)).tolist(),
        "ridge": model.facts()["ridge"],
        "continued": model.update(seen(2, 40)).decision_block(seen(1, 5)).tolist(),
    }
    (DATA / f"schema3-ease-{kind}.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("kind", MODELS)
def test_golden_files(kind):
    model = fs.load(DATA / f"schema3-ease-{kind}.fsk")
    facts = json.loads((DATA / f"schema3-ease-{kind}.json").read_text())
    assert model.parameters == MODELS[kind]().parameters
    tolerance = 1e-4 if "float32" in kind else 1e-9
    assert model.facts()["ridge"] == pytest.approx(facts["ridge"], rel=tolerance)
    assert np.allclose(model.decision_block(seen(1, 5)), facts["scores"], atol=tolerance)
    assert np.allclose(model.update(seen(2, 40)).decision_block(seen(1, 5)), facts["continued"], atol=tolerance)
