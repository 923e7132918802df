"""State files of online models as earlier versions wrote them: they load, know what they knew, and learn on."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

DATA = Path(__file__).parents[1] / "data"
MODELS = {
    "newton-rfd": lambda: fs.SketchedNewton(3),
    "newton-oja": lambda: fs.SketchedNewton(3, "oja", loss="logistic", alpha0=1.0),
    "adaptive-ffd": lambda: fs.AdaptiveSubgradient(3, loss="squared_hinge", form="pds"),
    "adaptive-diag-l1": lambda: fs.AdaptiveSubgradient(method="ada-diag", penalty="l1", strength=0.01),
    "adaptive-grid": lambda: fs.AdaptiveGrid([0.1, 1.0], [1.0], 3, penalty="l2", strength=0.01),
}


def stream(kind, n=80):
    rng = np.random.default_rng(0)
    rows = rng.integers(-2, 3, (n, 8)) * (rng.random((n, 8)) < 0.25)
    return (sparse.csr_array(rows) if kind != "newton-oja" else rows), np.where(rows[:, 0] >= rows[:, 1], 1.0, -1.0)


def write(kind):
    """How the files came to be: not called by any test."""
    rows, y = stream(kind)
    model = MODELS[kind]().update(rows[:47], y[:47])
    model.save(DATA / f"schema1-online-{kind}.fsk")
    facts = {
        "weights": model.weights.tolist(),
        "after": model.update(rows[47:], y[47:]).weights.tolist(),
        "progress": model.progress,
    }
    (DATA / f"schema1-online-{kind}.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("kind", MODELS)
def test_golden_files(kind):
    model = fs.load(DATA / f"schema1-online-{kind}.fsk")
    facts = json.loads((DATA / f"schema1-online-{kind}.json").read_text())
    rows, y = stream(kind)
    assert type(model) is type(MODELS[kind]())
    assert np.allclose(model.weights, facts["weights"], rtol=1e-9, atol=1e-12)
    model.update(rows[47:], y[47:])
    assert np.allclose(model.weights, facts["after"], rtol=1e-7, atol=1e-10)
    assert model.progress["rounds"] == facts["progress"]["rounds"] == 80
    assert model.progress["cumulative_loss"] == pytest.approx(facts["progress"]["cumulative_loss"], rel=1e-8)
