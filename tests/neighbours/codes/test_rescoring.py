"""Candidates ranked by exact distances: the same from an array, a file, sparse rows and a function; rows read once."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.neighbours.codes import _rescoring
from fastsketch.reference import baselines
from tests.neighbours.codes.test_search import CODES, METRICS, MODEL, QUERIES, ROWS, exact, nearest_first, recall

SPARSE = np.where(np.abs(ROWS) > 2, ROWS, 0.0)


@pytest.mark.parametrize("metric", METRICS)
def test_all_candidates_give_the_exact_answer(metric):
    distances, found = MODEL.search(QUERIES, CODES[True], k=10, metric=metric, rescore=ROWS, oversample=64)
    values = exact(metric)
    expected = nearest_first(metric, values, 10)
    assert np.array_equal(found, expected)
    assert np.allclose(distances, np.take_along_axis(values, expected, axis=1), rtol=1e-12)
    assert distances.dtype == np.float64


@pytest.mark.parametrize("metric", [*METRICS, "hamming"])
def test_candidates_are_those_of_the_codes(metric):
    _, candidates = MODEL.search(QUERIES, CODES[False], k=25, metric=metric)
    distances, found = MODEL.search(QUERIES, CODES[False], k=10, metric=metric, rescore=ROWS, oversample=2.45)
    kind = "euclidean" if metric == "hamming" else metric
    values = np.take_along_axis(exact(kind), candidates, axis=1)
    order = nearest_first(kind, values, 10)
    assert np.array_equal(found, np.take_along_axis(candidates, order, axis=1))
    assert np.allclose(distances, np.take_along_axis(values, order, axis=1), rtol=1e-12)


def test_recall_grows_with_candidates():
    grown = [recall(MODEL.search(QUERIES, CODES[True], rescore=ROWS, oversample=o)[1]) for o in (1, 3, 10)]
    assert recall(MODEL.search(QUERIES, CODES[True])[1]) == pytest.approx(grown[0])
    assert grown[0] < grown[1] < grown[2] and grown[2] > 0.9


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "queries", [QUERIES, sparse.csr_array(np.where(QUERIES > 1, QUERIES, 0))], ids=["dense", "csr"]
)
def test_wherever_the_rows_are(metric, queries, tmp_path, monkeypatch):
    rows = SPARSE.astype(np.float32)
    file = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, rows.shape)
    file[:] = rows
    file.flush()
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    ids = np.arange(len(rows))[::-1] + 9
    options = {"k": 5, "metric": metric, "ids": ids}
    expected = MODEL.search(queries, CODES[True], rescore=rows, **options)
    sources = {
        "memmap": mapped,
        "strided": np.repeat(rows, 2, axis=1)[:, ::2],
        "fortran": np.asfortranarray(rows),
        "csr": sparse.csr_array(rows),
        "coo": sparse.coo_array(rows),
        "lists": rows.tolist(),
        "function": lambda wanted: rows[len(rows) - 1 - (wanted - 9)],
        "sparse function": lambda wanted: sparse.csr_array(rows[len(rows) - 1 - (wanted - 9)]),
    }
    for piece in (_rescoring.PIECE_BYTES, 40 * 8 * 7):
        monkeypatch.setattr(_rescoring, "PIECE_BYTES", piece)
        for name, source in sources.items():
            distances, found = MODEL.search(queries, CODES[True], rescore=source, **options)
            assert np.array_equal(found, expected[1]), name
            assert np.allclose(distances, expected[0], rtol=1e-12), name


def test_a_row_is_read_once_and_in_order(monkeypatch):
    monkeypatch.setattr(_rescoring, "PIECE_BYTES", 40 * 8 * 10)
    asked = []

    def rows_of(ids):
        asked.append(ids)
        return ROWS[ids - 1000]

    allow = np.arange(0, 640, 3) + 1000
    options = {"k": 3, "ids": np.arange(640) + 1000, "allow": allow}
    _, found = MODEL.search(QUERIES, CODES[True], rescore=rows_of, **options)
    together = np.concatenate(asked)
    assert (np.diff(together) > 0).all() and np.isin(together, allow).all()
    assert max(map(len, asked)) == 10 and all(ids.dtype == np.int64 for ids in asked)
    assert np.isin(found, together).all()


def test_equal_rows_are_ordered_by_id():
    rows = np.repeat(ROWS[:4], 10, axis=0)
    codes, ids = MODEL.encode(rows, factors=True), np.random.default_rng(0).permutation(40)
    distances, found = MODEL.search(ROWS[:4], codes, k=10, rescore=rows, oversample=4, ids=ids)
    assert (distances == 0).all()
    for i in range(4):
        assert np.array_equal(found[i], np.sort(ids[10 * i : 10 * i + 10]))


def test_whole_numbers_half_precision_and_large_numbers():
    for rows in (np.rint(ROWS).astype(np.int8), ROWS.astype(np.float16), np.rint(ROWS).astype(np.uint8)):
        _, found = MODEL.search(rows[:9], MODEL.encode(rows, factors=True), k=1, rescore=rows, oversample=200)
        assert np.array_equal(rows[found[:, 0]], rows[:9])
    model = baselines.LSH(64).update(ROWS)
    codes = model.encode(ROWS)
    with pytest.raises(ValueError, match="leave the range of numbers"):
        big = np.where(np.arange(40) % 2, 1e200, -1e200) + 0 * ROWS
        model.search(np.full((1, 40), 1e200), codes, metric="inner_product", rescore=big)
    for form in (np.asarray, sparse.csr_array):
        queries, rows = form(QUERIES * 1e160), form(ROWS * 1e160)
        distances, _ = model.search(queries, codes, metric="cosine", rescore=rows, oversample=64)
        assert np.allclose(distances, -np.sort(-exact("cosine"), axis=1)[:, :10])


@pytest.mark.parametrize("model", [MODEL, fs.SketchQuantizer(6, sketch_size=64, block_rows=100).update(ROWS)])
@pytest.mark.parametrize("metric", METRICS)
def test_no_queries(model, metric):
    codes = CODES[True] if model is MODEL else model.encode(ROWS)
    for rescore in (None, ROWS):
        for queries in (QUERIES[:0], sparse.csr_array(QUERIES[:0])):
            distances, found = model.search(queries, codes, rescore=rescore, metric=metric)
            assert distances.shape == found.shape == (0, 10)
