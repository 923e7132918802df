"""Arguments that are arrays, but no rows: of a masked array or a ragged list each is refused by its name."""

import inspect
import traceback

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.recommending import ranking

LINES = fs.data.Triples(["u", "u", "v"], ["i", "j", "i"], values=[1.0, 2.0, 3.0])
ROWS = np.random.default_rng(0).random((40, 12))
EVENTS = sparse.csr_array((ROWS < 0.4).astype(float))
NUMBERS = np.arange(4)
HASH, QUANTIZER = fs.SketchHash(4).update(ROWS), fs.SketchQuantizer(4).update(ROWS)
CODES = HASH.encode(ROWS)
INDEX = fs.CodeIndex(HASH)
INDEX.add(ROWS)
EASE, LOW_RANK = fs.SketchedEASE(4, ridge=1.0).update(EVENTS), fs.LowRankModel(2).fit(EVENTS)
SKETCH = fs.FrequentDirections(4).update(ROWS)
NEWTON = fs.SketchedNewton(4).update(ROWS, np.arange(40) % 2)
WINDOW = fs.Window(fs.FrequentDirections(4), 3, every="1h")
# What a call takes, and the call; the name of its argument is that of its parameter.
CALLS = {
    "groups": (np.arange(40) % 3, lambda by: fs.sketch_groups(ROWS, by=by)),
    "new ids": (np.arange(40) + 100, lambda ids: INDEX.copy().add(ROWS, ids=ids)),
    "get": (NUMBERS, lambda ids: INDEX.get(ids)),
    "remove": (NUMBERS, lambda ids: INDEX.copy().remove(ids)),
    "contains": (NUMBERS, lambda ids: INDEX.contains(ids)),
    "allowed ids": (NUMBERS, lambda allow: INDEX.search(ROWS[:2], k=2, allow=allow)),
    "allowed codes": (NUMBERS, lambda allow: HASH.search(ROWS[:2], CODES, k=2, allow=allow)),
    "ids of codes": (np.arange(40), lambda ids: HASH.search(ROWS[:2], CODES, k=2, ids=ids)),
    "codes": (CODES, lambda codes: HASH.search(ROWS[:2], codes, k=2)),
    "codes to decode": (QUANTIZER.encode(ROWS), lambda codes: QUANTIZER.decode(codes)),
    "projection": (HASH.projection, lambda projection: HASH.copy().anchor(projection)),
    "allowed items": (NUMBERS, lambda allow: EASE.recommend(EVENTS, 2, allow=allow)),
    "items": (NUMBERS, lambda items: EASE.similar_items(items, 2)),
    "ids of items": (np.arange(12), lambda item_ids: fs.SketchedEASE(4).update(EVENTS, item_ids=item_ids)),
    "ridges": (np.array([1.0, 2.0]), lambda ridges: EASE.select_ridge(EVENTS, ridges=ridges)),
    "allowed columns": (NUMBERS, lambda allow: LOW_RANK.recommend([0], n=2, allow=allow)),
    "columns": (NUMBERS, lambda columns: LOW_RANK.predict(NUMBERS, columns)),
    "ids of columns": (np.arange(12), lambda column_ids: fs.LowRankModel(2).fit(EVENTS, column_ids=column_ids)),
    "weights": (np.ones(40), lambda sample_weight: SKETCH.copy().update(ROWS, sample_weight=sample_weight)),
    "weights of an audit": (np.ones(40), lambda sample_weight: SKETCH.audit(ROWS, sample_weight=sample_weight)),
    "vector": (np.ones(12), lambda v: SKETCH.solve(v, alpha=1.0)),
    "comparator": (np.ones(12), lambda comparator: fs.SketchedNewton(4).compare_with(comparator)),
    "scores": (np.arange(12.0), lambda scores: ranking.top_items(scores, 2)),
    "lists": (np.zeros((40, 1), int), lambda recommended: ranking.ndcg_at(recommended, EVENTS)),
    "values of users": (np.ones(5), lambda values: ranking.mean_of(values)),
    "times of events": (np.arange(EVENTS.nnz), lambda times: ranking.leave_one_out(EVENTS, times=times)),
    "weights of lines": (np.ones(3), lambda sample_weight: fs.LowRankModel(1).fit(LINES, sample_weight=sample_weight)),
    "times": (np.arange(40.0), lambda by: WINDOW.copy().update(ROWS, by=by)),
}


@pytest.mark.parametrize("what", CALLS)
def test_masked_arrays_and_ragged_lists_are_refused_by_name(what):
    values, call = CALLS[what]
    call(values)
    (name,) = inspect.signature(call).parameters
    bad = {"masked": np.ma.array(values, mask=np.arange(values.size).reshape(values.shape) % 2)}
    bad["masked chunks"] = pytest.importorskip("dask.array").from_array(bad["masked"])
    for kind, value in {**bad, "ragged": [[1, 2], [3]]}.items():
        with pytest.raises((TypeError, ValueError), match=name) as caught:
            call(value)
        assert "fastsketch" in traceback.extract_tb(caught.value.__traceback__)[-1].filename, kind


def test_integers_without_bound_are_refused():
    with pytest.raises(TypeError, match="projection"):
        HASH.copy().anchor(10**400)
    with pytest.raises(ValueError, match="targets"):
        fs.SketchedRidge(4).update(ROWS[:1], 10**400)
    with pytest.raises(ValueError, match="n must be below"):
        LOW_RANK.recommend([0], n=1 << 40)


def test_a_dictionary_of_keys_is_a_sparse_matrix_to_a_monitor():
    one, two = (
        fs.DriftMonitor(every=2, reference=10).update(form(EVENTS)) for form in (sparse.dok_array, sparse.csr_array)
    )
    assert one.to_bytes() == two.to_bytes()
