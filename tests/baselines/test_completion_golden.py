"""State files of the completion baselines as this version wrote them."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.baselines import ADMML1, AISImpute, AltMin, WibergL1

DATA = Path(__file__).parents[1] / "data"
MODELS = {
    "ais-impute": lambda: AISImpute(0.5, max_iterations=3, loss="logistic"),
    "alt-min": lambda: AltMin(2, ridge=0.1, max_iterations=2),
    "alt-min-biases": lambda: AltMin(2, ridge=0.1, max_iterations=2, biases=True),
    "admm": lambda: ADMML1(1.0, max_iterations=3),
    "wiberg": lambda: WibergL1(1, max_iterations=1),
}


def write(kind):
    """How the files came to be: not called by any test."""
    rng = np.random.default_rng(0)
    rows = np.sign(rng.standard_normal((8, 6))) * (rng.random((8, 6)) < 0.8)
    model = MODELS[kind]().fit(sparse.csr_array(rows))
    model.save(DATA / f"schema2-completion-{kind}.fsk")
    facts = {"scores": model.decision_function(*np.indices((8, 6)).reshape(2, -1)).tolist(), "history": model.history}
    (DATA / f"schema2-completion-{kind}.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("kind", MODELS)
def test_golden_files(kind):
    model = fs.load(DATA / f"schema2-completion-{kind}.fsk")
    facts = json.loads((DATA / f"schema2-completion-{kind}.json").read_text())
    scores = model.decision_function(*np.indices((8, 6)).reshape(2, -1))
    assert np.allclose(scores, facts["scores"], atol=1e-12) and model.history == facts["history"]
    assert model.parameters == MODELS[kind]().parameters
