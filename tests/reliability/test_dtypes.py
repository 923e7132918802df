"""Rows of every dtype at every entry point: the answer of the same numbers as floats, or an error of this library."""

import traceback

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.reference import baselines

ROWS = (np.random.default_rng(0).random((40, 12)) < 0.5).astype(float)
CSR, LABELS = sparse.csr_array(ROWS), np.where(ROWS[:, 0] > 0, 1.0, -1.0)
NUMBERS = ("bool", "uint8", ">i4", "int64", "float16", ">f2", ">f8", "longdouble")
NO_NUMBERS = (object, complex, "M8[s]", "m8[s]", "U5", "S5")
HASH, QUANTIZER, EASE = (cls(4).update(ROWS) for cls in (fs.SketchHash, fs.SketchQuantizer, fs.SketchedEASE))
RIDGE, NEWTON = (cls(4).update(ROWS, LABELS) for cls in (fs.SketchedRidge, fs.SketchedNewton))
SKETCH, CODES = fs.FrequentDirections(4).update(ROWS), HASH.encode(ROWS)
ENTRY_POINTS = {
    "sketch": lambda x: fs.FrequentDirections(4).update(x),
    "sketch of sparse rows": lambda x: (
        fs.FrequentDirections(3, solver="gram").update(sparse.csr_array(np.eye(12))).update(x)
    ),
    "refine": lambda x: SKETCH.copy().refine(x),
    "audit": lambda x: SKETCH.audit(x),
    "hash": lambda x: fs.SketchHash(4).update(x),
    "encode": lambda x: HASH.encode(x, factors=True),
    "search": lambda x: HASH.search(x[:3], CODES, k=2),
    "quantizer": lambda x: fs.SketchQuantizer(4).update(x),
    "quantizer, encode": lambda x: QUANTIZER.encode(x),
    "EASE": lambda x: fs.SketchedEASE(4).update(x),
    "recommend": lambda x: EASE.recommend(x, 3),
    "scores of items": lambda x: EASE.decision_block(x),
    "ridge": lambda x: fs.SketchedRidge(4).update(x, LABELS),
    "ridge, predict": lambda x: RIDGE.predict(x),
    "learner": lambda x: fs.SketchedNewton().update(x, LABELS),
    "learner, predict": lambda x: NEWTON.predict_proba(x),
    "monitor": lambda x: fs.DriftMonitor(every=2, reference=10).update(x),
    "monitor of sparse rows": lambda x: fs.DriftMonitor(every=2, reference=10).update(CSR).update(x),
    "window": lambda x: fs.Window(fs.FrequentDirections(4), 3, every=16).update(x),
    "groups": lambda x: fs.sketch_groups(x, by=np.arange(40) % 3, sketch_size=3),
    "random hyperplanes": lambda x: baselines.LSH(8).update(x),
    "compressor": lambda x: fs.Compressor("srht", 8, block_rows=100).compress(x),
}


def answer(call, rows):
    """What a call answers, a model by its saved state; an error that was not raised in this library fails the test."""
    try:
        out = call(rows)
    except (TypeError, ValueError) as error:
        assert "fastsketch" in traceback.extract_tb(error.__traceback__)[-1].filename, error
        return None
    return fs.from_bytes(out.to_bytes()).to_bytes() if hasattr(out, "to_bytes") else out


@pytest.mark.filterwarnings("ignore:refine has float32 rows")
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_dtype_at_every_entry_point(name):
    call = ENTRY_POINTS[name]
    for dtype in NUMBERS:
        found = answer(call, ROWS.astype(dtype))
        narrow = np.dtype(dtype).kind == "f" and np.dtype(dtype).itemsize == 2
        expected = answer(call, ROWS.astype(np.float32 if narrow else np.float64))
        assert found is not None, dtype
        if isinstance(found, bytes):
            assert found == expected, dtype
        elif isinstance(found, np.ndarray):
            assert np.array_equal(found, expected), dtype
    pandas = pytest.importorskip("pandas")
    for dtype in ("Float64", "Int64", "boolean"):  # nullable, which NumPy makes objects of
        found = answer(call, pandas.DataFrame(ROWS).astype(dtype))
        assert found is not None, dtype
        if isinstance(found, bytes | np.ndarray):
            assert np.array_equal(found, answer(call, pandas.DataFrame(ROWS))), dtype
    for dtype in NO_NUMBERS:
        assert answer(call, ROWS.astype(np.int64).astype(dtype)) is None, dtype


LOW_RANK = fs.LowRankModel(2).fit(ROWS)
USERS, ITEMS, VALUES = np.repeat(np.arange(40), 12), np.tile(np.arange(12), 40), np.arange(480.0)
# Values and weights of entries: float16 becomes float64 here. Values of events may be objects, as in pandas.
OF_ENTRIES = {
    "low rank": lambda x: fs.LowRankModel(2).fit(x).complete(),
    "low rank, weights": lambda x: fs.LowRankModel(2).fit(VALUES.reshape(40, 12), sample_weight=x).complete(),
    "low rank, new rows": lambda x: LOW_RANK.fold_in(x).decision_function(USERS, ITEMS),
    "events": lambda x: fs.data.Triples(USERS, ITEMS, values=np.ravel(x)).matrix().toarray(),
    "low rank, events": lambda x: fs.LowRankModel(2).fit(fs.data.Triples(USERS, ITEMS, values=np.ravel(x))).complete(),
    "low rank, weights of events": lambda x: (
        fs.LowRankModel(2).fit(fs.data.Triples(USERS, ITEMS, values=VALUES), sample_weight=np.ravel(x)).complete()
    ),
    "EASE, events": lambda x: fs.SketchedEASE(4).update(fs.data.Triples(USERS, ITEMS, values=np.ravel(x))),
}


@pytest.mark.parametrize("name", OF_ENTRIES)
def test_every_dtype_of_entries(name):
    expected = answer(OF_ENTRIES[name], ROWS)
    for dtype in NUMBERS:
        found = answer(OF_ENTRIES[name], ROWS.astype(dtype))
        assert found is not None and np.array_equal(found, expected), dtype
