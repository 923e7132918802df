"""Distances and nearest neighbours of packed codes against counting bits one by one."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._kernels.hashing import hamming

RNG = np.random.default_rng(0)


def slow_distances(queries, codes):
    bits = np.unpackbits(queries, axis=1)[:, np.newaxis] != np.unpackbits(codes, axis=1)
    return bits.sum(axis=2)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 9, 13, 16, 17, 31, 33])
@pytest.mark.parametrize("n", [1, 2, 31, 511, 512, 513, 1500])
def test_against_counting(width, n):
    # few different values: many ties
    codes = RNG.integers(0, 4, (n, width), dtype=np.uint8)
    queries = RNG.integers(0, 4, (5, width), dtype=np.uint8)
    expected = slow_distances(queries, codes)
    assert np.array_equal(fs.hamming_distances(queries, codes), expected)
    order = np.argsort(expected, axis=1, kind="stable")
    for k in sorted({1, min(2, n), min(10, n), n}):
        distances, indices = fs.hamming_topk(queries, codes, k=k)
        assert (distances.dtype, indices.dtype) == (np.int32, np.int64)
        assert np.array_equal(indices, order[:, :k])
        assert np.array_equal(distances, np.take_along_axis(expected, order[:, :k], axis=1))


def test_layouts_and_one_query():
    codes = RNG.integers(0, 256, (50, 5), dtype=np.uint8)
    wide = np.repeat(codes, 2, axis=1)[:, ::2]
    wide.flags.writeable = False
    for k in (1, 50):
        one = fs.hamming_topk(codes[7], codes, k=k)
        two = fs.hamming_topk(wide[7:8], wide[::-1][::-1], k=k)
        assert np.array_equal(one[0], two[0])
        assert np.array_equal(one[1], two[1])
        assert one[1][0, 0] == 7
    assert fs.hamming_topk(np.empty((0, 5), np.uint8), codes, k=3)[0].shape == (0, 3)


@pytest.mark.parametrize("width", [1, 8, 13, 16])
@pytest.mark.parametrize("n", [1, 511, 512, 1500])
def test_what_may_come_and_ids(width, n):
    # few different values: many ties, which go by id
    codes = RNG.integers(0, 4, (n, width), dtype=np.uint8)
    queries = RNG.integers(0, 4, (5, width), dtype=np.uint8)
    distances = slow_distances(queries, codes)
    a_block = np.ones(n, bool)
    a_block[:512] = False
    for allow in (None, RNG.random(n) < 0.1, a_block, np.zeros(n, bool)):
        for ids in (None, RNG.permutation(n), np.arange(n)[::-1] * 10**15 - 10**18):
            places = np.arange(n) if allow is None else np.flatnonzero(allow)
            bits = None if allow is None else np.packbits(allow, bitorder="little")
            names = places if ids is None else ids[places]
            for k in (1, 10, n):
                given = None if ids is None else np.ascontiguousarray(ids, np.int64)
                found = hamming.topk(queries, codes, k, allow=bits, ids=given)
                for row, distance in enumerate(distances):
                    order = places[np.lexsort((names, distance[places]))][:k]
                    assert np.array_equal(found[1][row, : len(order)], order)
                    assert np.array_equal(found[0][row, : len(order)], distance[order])
                    assert (found[1][row, len(order) :] == 2**63 - 1).all()
                    assert (found[0][row, len(order) :] == 2**31 - 1).all()


def test_many_threads():
    codes = RNG.integers(0, 256, (3000, 16), dtype=np.uint8)
    expected = fs.hamming_topk(codes[:64], codes, k=7)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda i: fs.hamming_topk(codes[i], codes, k=7), range(64)))
    assert np.array_equal(np.vstack([d for d, _ in parts]), expected[0])
    assert np.array_equal(np.vstack([i for _, i in parts]), expected[1])


GOOD = np.zeros((3, 2), np.uint8)


@pytest.mark.parametrize(
    ("queries", "codes", "k", "error", "match"),
    [
        (GOOD, GOOD, 4, ValueError, "at most the 3 codes"),
        (GOOD, GOOD, 0, ValueError, "k must be"),
        (GOOD, GOOD, 1.0, TypeError, "k must be"),
        (GOOD, np.empty((0, 2), np.uint8), 1, ValueError, "at most the 0 codes"),
        (np.zeros((1, 3), np.uint8), GOOD, 1, ValueError, "2 bytes"),
        (np.zeros((1, 2)), GOOD, 1, TypeError, "uint8"),
        (GOOD, GOOD.astype(np.int8), 1, TypeError, "uint8"),
        (GOOD, np.zeros((2, 2, 2), np.uint8), 1, ValueError, "shape"),
        (GOOD, np.empty((3, 0), np.uint8), 1, ValueError, "shape"),
        (np.ma.masked_array(GOOD), GOOD, 1, TypeError, "masked"),
    ],
)
def test_bad_input(queries, codes, k, error, match):
    with pytest.raises(error, match=match):
        fs.hamming_topk(queries, codes, k=k)
