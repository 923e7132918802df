"""State files of hashes, as this version and earlier ones wrote them, load and continue."""

import json
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import baselines

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(DATA.glob("schema*-hash-*.fsk"))
CONTINUED = {path.stem: path for path in FILES if "sgh" not in path.stem}  # SGH learns from one batch

QUERIES = np.random.default_rng(0).standard_normal((6, 10))
MORE = np.random.default_rng(1).standard_normal((200, 10))


def learned(model):
    rows = np.random.default_rng(2).standard_normal((95, 10)) * np.linspace(2, 0.3, 10) + 1
    return model.update(rows)


def merged(**options):
    models = [fs.SketchHash(4, block_rows=16, part=part, **options) for part in range(3)]
    return fs.merge([learned(model) for model in models])


MODELS = {
    "frosh-itq": lambda: learned(fs.SketchHash(4, block_rows=16, seed=3, reservoir_size=30)),
    "fd-random-float32": lambda: learned(fs.SketchHash(4, method="fd", rotation="random", dtype="float32")),
    "exact-anchored": lambda: learned(fs.SketchHash(3, method="exact")).anchor(),
    "merged": lambda: merged(method="countsketch", rotation=None),
    "empty": lambda: fs.SketchHash(4, method="auto", block_rows=16),
    "lsh": lambda: learned(baselines.LSH(12, seed=3)),
    "pca": lambda: learned(baselines.PCAHash(4, seed=3)),
    "itq": lambda: learned(baselines.ITQ(4, seed=3)),
    "sgh": lambda: learned(baselines.SGH(6, n_bases=40, seed=3)),
}


def scores(model):
    return np.round(model.decision_function(QUERIES).astype(float), 6).tolist()


def write(kind):
    """How the files of schema 2 came to be: not called by any test."""
    model = MODELS[kind]()
    model.save(DATA / f"schema2-hash-{kind}.fsk")
    facts = {"n_rows": model.n_rows, "decision": scores(model) if model.n_rows else []}
    if kind != "sgh":
        facts["continued"] = scores(model.update(MORE[:33]).update(MORE[33:]))
    (DATA / f"schema2-hash-{kind}.json").write_text(json.dumps(facts))


def facts_of(path):
    facts = json.loads(path.with_suffix(".json").read_text())
    if "continued" not in facts:  # those of schema 1 are kept together
        facts["continued"] = json.loads((DATA / "schema1-hash-continued.json").read_text()).get(path.stem)
    return facts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_files(path):
    model, facts = fs.load(path), facts_of(path)
    assert model.n_rows == facts["n_rows"]
    if model.n_rows:
        assert np.allclose(model.decision_function(QUERIES), facts["decision"], atol=1e-4)
    assert fs.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    assert type(model)(**model.parameters).parameters == model.parameters


@pytest.mark.parametrize("path", CONTINUED.values(), ids=CONTINUED)
def test_golden_files_continue(path):
    model, facts = fs.load(path), facts_of(path)
    model.update(MORE[:33]).update(MORE[33:])
    assert model.n_rows == facts["n_rows"] + 200
    assert np.allclose(model.decision_function(QUERIES), facts["continued"], atol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_this_version_learns_what_the_files_hold(kind):
    """The state that the same rows give today: the same entries, and the same scores."""
    then, now = fs.load(DATA / f"schema2-hash-{kind}.fsk"), MODELS[kind]()
    assert then.parameters == now.parameters
    assert then._state()[1].keys() == now._state()[1].keys()
    if now.n_rows:
        assert np.allclose(then.decision_function(QUERIES), now.decision_function(QUERIES), atol=1e-4)


def test_there_are_golden_files():
    assert len([path for path in FILES if path.stem.startswith("schema1")]) == 8
    assert len([path for path in FILES if path.stem.startswith("schema2")]) == len(MODELS)
