"""State files of sketches, as this version and earlier ones wrote them, load and continue."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.sources._arrays import ArraySource

DATA = Path(__file__).parents[1] / "data"
OF_SCHEMA_1 = ("dense-rfd", "exact-decay", "sparse", "svd-float32", "mapped-centred")
FIRST = [DATA / f"schema1-{name}.fsk" for name in OF_SCHEMA_1]
FILES = [*FIRST, *sorted(DATA.glob("schema[23]-sketch-*.fsk"))]


def rows(n, seed, d=10):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 0.3, d) + 1


def csr(n, d=40):
    dense = rows(n, 2, d)
    return sparse.csr_array(dense * (np.random.default_rng(3).random(dense.shape) < 0.1))


MODELS = {
    "dense-rfd": lambda: fs.RobustFrequentDirections(4, 0.5, solver="gram", center=True).update(rows(45, 2)),
    "exact-decay": lambda: fs.FrequentDirections(4, method="cfd", solver="exact", decay=0.99).update(rows(315, 2)),
    "sparse-centred": lambda: fs.FrequentDirections(4, solver="gram", center=True).update(csr(70)),
    "svd-float32": lambda: fs.FrequentDirections(4, method="pfd", solver="svd", dtype="float32").update(rows(45, 2)),
    "mapped-gaussian": lambda: fs.FrequentDirections(
        4, compressor=fs.Compressor("gaussian", 4, block_rows=30, seed=3, first_block=7), center=True
    ).update(rows(100, 2)),
    "mapped": lambda: fs.FrequentDirections(4, method="fd", compressor="srht").update(rows(100, 2)),
    "merged": lambda: fs.merge([fs.FrequentDirections(4, solver="gram").update(rows(40, k)) for k in range(3)]),
    "empty": lambda: fs.FrequentDirections(4, buffer_size=7, compressor="countsketch"),
    # with new rows in the buffer, which are weighted there in schema 2
    "weighted-centred": lambda: fs.FrequentDirections(4, solver="gram", center=True, decay=0.98).update(
        rows(45, 2), np.linspace(0.0, 3.0, 45)
    ),
    "sparse-weighted-centred": lambda: (
        fs.FrequentDirections(4, solver="gram", center=True).update(csr(69), np.linspace(0.0, 3.0, 69)).fade(0.5)
    ),
}


def named_rows(n):
    source = ArraySource(rows(n, 2))
    source.feature_names = tuple(f"column {k}" for k in range(10))
    return source


# A ledger is in files of schema 3 alone, and so are names of columns.
TRACKED = {
    "named": lambda: fs.FrequentDirections(4, solver="gram").update(named_rows(45)),
    "tfd": lambda: fs.FrequentDirections(4, method="tfd", solver="gram", decay=0.99).update(rows(45, 2)),
    "tfd-sparse-centred": lambda: fs.FrequentDirections(4, method="tfd", solver="gram", center=True).update(csr(69)),
}
# Those of which schema 3 holds something else than schema 2: the mean's second part, rows that are not weighted yet.
OF_SCHEMA_3 = ("dense-rfd", "sparse-centred", "mapped-gaussian", "weighted-centred", "sparse-weighted-centred")


def facts_of(sketch):
    read = {} if sketch.n_features is None else {"singular_values": sketch.singular_values.tolist()}
    if sketch.method == "tfd":
        read["estimates"] = sketch.spectrum().values.tolist()
    if sketch.feature_names is not None:
        read["feature_names"] = list(sketch.feature_names)
    return {"n_rows": sketch.n_rows, "shrinkage": sketch.shrinkage, **read}


def continued(sketch):
    d = sketch.n_features or 10
    return sketch.update(rows(33, 5, d)).update(rows(100, 6, d))


def write(kind, schema):
    """How the files of schema 2 and 3 came to be: not called by any test."""
    sketch = (MODELS | TRACKED)[kind]()
    sketch.save(DATA / f"schema{schema}-sketch-{kind}.fsk")
    facts = {**facts_of(sketch), "continued": facts_of(continued(sketch))}
    (DATA / f"schema{schema}-sketch-{kind}.json").write_text(json.dumps(facts))


def stored(path):
    facts = json.loads(path.with_suffix(".json").read_text())
    if "continued" not in facts:  # those of schema 1 are kept together
        facts["continued"] = json.loads((DATA / "schema1-sketch-continued.json").read_text())[path.stem]
    return facts


def agree(sketch, facts):
    assert sketch.n_rows == facts["n_rows"]
    assert np.isclose(sketch.shrinkage, facts["shrinkage"], rtol=1e-6)
    assert sketch.feature_names == (tuple(facts["feature_names"]) if "feature_names" in facts else None)
    if "singular_values" in facts:
        assert np.allclose(sketch.singular_values, facts["singular_values"], rtol=1e-5)
    if "estimates" in facts:
        assert np.allclose(sketch.spectrum().values, facts["estimates"], rtol=1e-5)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_files(path):
    sketch, facts = fs.load(path), stored(path)
    agree(sketch, facts)
    assert fs.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
    assert type(sketch)(**sketch.parameters).parameters == sketch.parameters
    agree(continued(sketch), facts["continued"])


@pytest.mark.parametrize(
    ("schema", "kind"), [*((2, kind) for kind in MODELS), *((3, kind) for kind in (*OF_SCHEMA_3, *TRACKED))]
)
def test_this_version_learns_what_the_files_hold(schema, kind):
    path = DATA / f"schema{schema}-sketch-{kind}.fsk"
    then, now = fs.load(path), (MODELS | TRACKED)[kind]()
    assert then.parameters == now.parameters
    assert then._state()[1].keys() == now._state()[1].keys()
    assert type(then) is type(now)
    agree(now, stored(path))


def test_a_sketch_of_blocks_from_the_first_schema_is_mapped_now():
    sketch = fs.load(DATA / "schema1-mapped-centred.fsk")
    assert sketch.compressor == fs.Compressor("srht", 4, block_rows=30, seed=3)
    assert sketch._engine.kind == "mapped"


def test_there_are_golden_files():
    assert len(FILES) == len(FIRST) + len(MODELS) + len(OF_SCHEMA_3) + len(TRACKED)
