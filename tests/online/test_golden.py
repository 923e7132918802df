"""State files of online models as earlier versions wrote them: they load, know what they knew, and learn on."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch import io
from tests.helpers import papers

DATA = Path(__file__).parents[1] / "data"
# The square loss of schema 1 was (z - y)^2.
SQUARE = {"loss": "square", "loss_scale": 2.0}
SCHEMA_1 = {
    "newton-rfd": lambda: papers.SketchedNewton(3, alpha0=0.0, **SQUARE),
    "newton-oja": lambda: papers.SketchedNewton(3, method="oja", loss="logistic", alpha0=1.0),
    "adaptive-ffd": lambda: papers.AdaptiveSubgradient(3, form="dual_averaging"),
    "adaptive-diag-l1": lambda: papers.AdaptiveSubgradient(
        method="ada_diag", loss="absolute", penalty="l1", penalty_strength=0.01
    ),
    "adaptive-grid": lambda: fs.AdaptiveGrid([0.1, 1.0], [1.0], sketch_size=3, penalty="l2", penalty_strength=0.01),
}
SCHEMA_2 = {
    "newton-pfd-next": lambda: papers.SketchedNewton(3, method="pfd", alpha0=1.0, constraint="next", beta=0.5),
    "newton-full": lambda: papers.SketchedNewton(
        method="full", alpha0=1.0, constraint=None, loss="huber", loss_scale=0.5
    ),
    "newton-rp": lambda: papers.SketchedNewton(3, method="rp", alpha0=1.0, seed=5, **SQUARE),
    "adaptive-fd": lambda: papers.AdaptiveSubgradient(3, method="ada_fd", loss="square", learning_rate=0.3, delta=2.0),
    "adaptive-ffd-l1": lambda: papers.AdaptiveSubgradient(
        3, form="dual_averaging", loss="logistic", penalty="l1", penalty_strength=0.01
    ),
    "adaptive-adam": lambda: papers.AdaptiveSubgradient(method="adam"),
    "newton-first-row": lambda: papers.SketchedNewton(3),
    "adaptive-radagrad": lambda: papers.AdaptiveSubgradient(3, method="radagrad", seed=5),
    "adaptive-grid": lambda: fs.AdaptiveGrid([0.1, 1.0], [1.0, 3.0], sketch_size=3),
}
CASES = [(1, kind) for kind in SCHEMA_1] + [(2, kind) for kind in SCHEMA_2]


def made(schema, kind):
    return (SCHEMA_1 if schema == 1 else SCHEMA_2)[kind]()


def stream(kind, n=80):
    rng = np.random.default_rng(0)
    rows = rng.integers(-2, 3, (n, 8)) * (rng.random((n, 8)) < 0.25)
    y = np.where(rows[:, 0] >= rows[:, 1], 1.0, -1.0)
    return (rows if kind in ("newton-oja", "adaptive-fd", "newton-rp") else sparse.csr_array(rows)), y


def write(kind):
    """How the files of the present schema came to be: not called by any test."""
    rows, y = stream(kind)
    model = made(2, kind).update(rows[:47], y[:47])
    model.notes = {"from": kind}
    if not isinstance(model, fs.AdaptiveGrid):
        model.compare_with(np.ones(8)).update(rows[:10], y[:10])
    model.save(DATA / f"schema2-online-{kind}.fsk")
    facts = {
        "weights": model.coef.tolist(),
        "after": model.update(rows[47:], y[47:]).coef.tolist(),
        "progress": model.progress,
    }
    (DATA / f"schema2-online-{kind}.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(("schema", "kind"), CASES)
def test_golden_files(schema, kind):
    path = DATA / f"schema{schema}-online-{kind}.fsk"
    assert io.read_header(path)["schema"] == schema
    model, new = fs.load(path), made(schema, kind)
    facts = json.loads(path.with_suffix(".json").read_text())
    rows, y = stream(kind)
    assert type(model) is type(new)
    assert model.resolved == new.resolved
    assert np.allclose(model.coef, facts["weights"], rtol=1e-9, atol=1e-12)
    model.update(rows[47:], y[47:])
    assert np.allclose(model.coef, facts["after"], rtol=1e-7, atol=1e-10)
    assert model.n_rows == (facts["progress"]["rounds"] if schema == 1 else facts["progress"]["n_rows"])
    assert model.progress["cumulative_loss"] == pytest.approx(facts["progress"]["cumulative_loss"], rel=1e-8)
    regret = facts["progress"]["regret"]
    assert model.progress["regret"] == (None if regret is None else pytest.approx(regret, rel=1e-8))
    if schema == 2:
        assert model.notes == {"from": kind}


@pytest.mark.parametrize("kind", SCHEMA_1)
def test_what_learned_before_learns_now(kind):
    """A new model with the parameters of a file comes to its state; from that state both go on with the same bits.

    For "newton-rfd", whose square loss was (z - y)^2, that takes loss_scale=2.
    """
    rows, y = stream(kind)
    old = fs.load(DATA / f"schema1-online-{kind}.fsk")
    new = type(old)(**old.parameters).update(rows[:47], y[:47])
    assert new.resolved == made(1, kind).resolved
    assert np.allclose(new.coef, old.coef, rtol=1e-9, atol=1e-12)
    assert new.progress["cumulative_loss"] == pytest.approx(old.progress["cumulative_loss"], rel=1e-10)
    state, arrays = old._state()
    new._restore(state, {name: array.copy() for name, array in arrays.items()})
    assert new.to_bytes() == old.to_bytes()
    assert new.update(rows[47:], y[47:]).to_bytes() == old.update(rows[47:], y[47:]).to_bytes()
