"""Hashes, random maps, transforms and searches in parts: the same bits for every number of threads."""

import numpy as np
import pytest
import scipy.sparse

import fastsketch as fs
from fastsketch._kernels import pool
from fastsketch._kernels.hashing import hamming

THREADS = (1, 2, 3, 8)
RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def as_before(threaded_blas):
    before = pool.get()
    yield
    pool.use(before)


def ones(octets):
    """Bits that are set, along the last axis."""
    return np.unpackbits(octets, axis=-1).sum(axis=-1, dtype=np.int64)


def agreed(answer):
    """The answer, which must be the same with any number of threads."""
    answers = []
    for n in THREADS:
        pool.use(n)
        answers.append([np.asarray(part) for part in answer()])
    for other in answers[1:]:
        for mine, theirs in zip(answers[0], other, strict=True):
            assert mine.tobytes() == theirs.tobytes()
    return answers[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["srht", "countsketch", "sparse", "gaussian", "sampling"])
def test_random_maps(kind, dtype):
    rows = (RNG.standard_normal((2500, 1100)) + 1).astype(dtype)
    weights = RNG.random(2500)

    def answer(sizes=(2500,), weight=None):
        sketch = fs.FrequentDirections(40, compressor=fs.Compressor(kind, 40, block_rows=1000), center=True)
        start = 0
        for size in sizes:
            part = None if weight is None else weight[start : start + size]
            sketch.update(rows[start : start + size], sample_weight=part)
            start += size
        return [np.frombuffer(sketch.to_bytes(), np.uint8)]

    whole = agreed(answer)
    # batches of any sizes are the same stream: steps are then taken one by one, or in other companies
    for one, other in zip(whole, answer((1, 130, 700, 1669)), strict=True):
        assert np.array_equal(one, other)
    agreed(lambda: answer(weight=weights))


@pytest.mark.parametrize("kind", ["srht", "sparse", "gaussian"])
def test_a_bad_row_is_found_whichever_part_has_it(kind):
    rows = RNG.standard_normal((900, 1100))
    rows[[611, 700], [1099, 3]] = np.nan, np.inf
    for n in THREADS:
        pool.use(n)
        sketch = fs.FrequentDirections(40, compressor=fs.Compressor(kind, 40, block_rows=1000)).update(rows[:100])
        before = sketch.to_bytes()
        with pytest.raises(ValueError, match="row 611 holds"):
            sketch.update(rows)
        assert sketch.to_bytes() == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1 << 18,), 0), ((1 << 19,), 0), ((1 << 15, 24), 0), ((3, 1 << 18), 1), ((40, 1 << 13), 1), ((256, 2000), 0)],
)
def test_transforms(shape, axis, dtype):
    x = RNG.standard_normal(shape).astype(dtype)
    [found] = agreed(lambda: [fs.sketching.fwht(x.copy(), axis=axis)])
    m = shape[axis]
    back = fs.sketching.fwht(found.copy(), axis=axis) / m
    assert np.abs(back - x).max() < 100 * np.finfo(dtype).eps
    # a few entries of H x in double
    index = RNG.integers(0, m, 5)
    bits = index[:, np.newaxis] & np.arange(m)
    signs = 1.0 - 2.0 * (ones(bits.astype(np.uint32)[..., np.newaxis].view(np.uint8)) & 1)
    exact = np.tensordot(signs, x.astype(np.float64), (1, axis))
    mine = np.moveaxis(found, axis, 0)[index]
    assert np.abs(mine - exact).max() < 100 * np.finfo(dtype).eps * np.sqrt(m)


def rows_and_model(dtype, n_bits=37):
    rows = RNG.standard_normal((5000, 300)).astype(dtype)
    return rows, fs.SketchHash(n_bits, rotation="random").update(rows[:1000])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes(dtype):
    rows, model = rows_and_model(dtype)
    codes, scores = agreed(lambda: (model.encode(rows), model.decision_function(rows)))
    assert np.array_equal(codes, np.packbits(scores > 0, axis=1, bitorder="little"))
    exact = rows.astype(np.float64) @ model.projection - model.mean @ model.projection
    assert np.abs(scores - exact).max() < 300 * np.finfo(dtype).eps
    # however the rows lie, and of whichever dtype they come
    for same in (np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2], rows.astype(rows.dtype.newbyteorder())):
        assert np.array_equal(model.encode(same), codes)
        assert np.array_equal(model.decision_function(same), scores)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_of_sparse_rows(dtype):
    rows, model = rows_and_model(dtype)
    rows[RNG.random(rows.shape) < 0.95] = 0
    sparse = scipy.sparse.csr_array(rows)
    codes, scores = agreed(lambda: (model.encode(sparse), model.decision_function(sparse)))
    assert np.array_equal(codes, np.packbits(scores > 0, axis=1, bitorder="little"))
    assert np.abs(scores - model.decision_function(rows)).max() < 300 * np.finfo(dtype).eps
    empty = scipy.sparse.csr_array((3, 300), dtype=dtype)
    assert np.array_equal(model.decision_function(empty), model.decision_function(empty.toarray()))


def test_codes_name_the_first_bad_row():
    rows, model = rows_and_model(np.float64)
    rows[[4100, 4999], 7] = np.inf, np.nan
    for given in (rows, np.asfortranarray(rows), scipy.sparse.csr_array(rows)):
        for n in THREADS:
            pool.use(n)
            with pytest.raises(ValueError, match="row 4100 holds"):
                model.encode(given)


@pytest.mark.parametrize("width", [8, 13, 16])
def test_searches(width):
    # few different values: many ties
    codes = RNG.integers(0, 3, (70_000, width), dtype=np.uint8)
    buffer = np.empty(codes.size + 1, np.uint8)
    askew = buffer[1:].reshape(codes.shape)  # no code at a multiple of eight bytes
    askew[:] = codes
    for m in (1, 3, 11, 12, 50):
        queries = codes[:: 70_000 // m][:m]
        (distances,) = agreed(lambda q=queries: [fs.hamming_distances(q, codes)])
        bits = ones(queries[0] ^ codes)
        assert np.array_equal(distances[0], bits)
        order = np.argsort(distances, axis=1, kind="stable")
        for k in (1, 10, 300):
            expected = np.take_along_axis(distances, order[:, :k], axis=1), order[:, :k]
            for collection in (codes, askew):
                found = agreed(lambda q=queries, c=collection, k=k: fs.hamming_topk(q, c, k=k))
                assert np.array_equal(found[0], expected[0])
                assert np.array_equal(found[1], expected[1])


def test_searches_of_some_codes_by_id():
    n = 150_000
    codes = RNG.integers(0, 3, (n, 8), dtype=np.uint8)
    allow, ids = RNG.random(n) < 0.5, RNG.permutation(n)
    for m in (1, 40):
        queries = codes[:m]
        expected = ones(queries[0] ^ codes)
        places = np.flatnonzero(allow)
        bits = np.packbits(allow, bitorder="little")
        for k in (1, 10, 300):
            found = agreed(lambda q=queries, k=k, b=bits: hamming.topk(q, codes, k, allow=b, ids=ids))
            order = places[np.lexsort((ids[places], expected[places]))][:k]
            assert np.array_equal(found[1][0], order)
            assert np.array_equal(found[0][0], expected[order])


def test_searches_where_every_code_is_nearer_than_the_one_before():
    # the worst order of all: what the first codes tell of the others is nothing
    codes = np.packbits(np.arange(64) >= np.linspace(0, 64, 300_000)[:, np.newaxis], axis=1, bitorder="little")
    for m in (1, 20):
        queries = np.zeros((m, 8), np.uint8)
        distances, indices = agreed(lambda q=queries: fs.hamming_topk(q, codes, k=10))
        expected = ones(codes)
        order = np.argsort(expected, kind="stable")[:10]
        assert (indices == order).all()
        assert (distances == expected[order]).all()


@pytest.mark.parametrize("method", ["srht", "countsketch", "gaussian"])
def test_hashes(method):
    rows = RNG.standard_normal((3000, 400)).astype(np.float32)

    def answer():
        model = fs.SketchHash(16, method=method, block_rows=900).update(rows)
        return model.projection, model.mean

    agreed(answer)


@pytest.mark.parametrize("method", ["exact", "fd"])
def test_rows_that_overlap_or_lie_backwards_are_encoded(method):
    """BLAS knows no such rows, and would but print a line about them."""
    rows = np.random.default_rng(0).standard_normal((3000, 50))
    model = fs.SketchHash(8, method=method, sketch_size=16).update(rows)
    windows = np.lib.stride_tricks.sliding_window_view(rows.ravel()[:5000], 50)
    for view in (rows[::-1], np.broadcast_to(rows[0], (700, 50)), windows):
        np.testing.assert_array_equal(model.encode(view), model.encode(view.copy()))
        np.testing.assert_array_equal(model.decision_function(view), model.decision_function(view.copy()))
