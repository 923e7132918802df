"""A dense sketch has the same bits for every number of threads, of the pool and of BLAS."""

import functools

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fastsketch as fs
from fastsketch.sketching._engines import DenseEngine
from tests.helpers import some

# of each: arguments, l, d, rows
CASES = {
    "small": ({}, 16, 3000, 200),
    "gram": ({}, 64, 2048, 400),
    "many parts": ({}, 100, 4100, 401),
    "refreshed": ({}, 32, 2500, 650),
    "wide": ({}, 300, 2000, 610),
    "robust": ({"method": "rfd"}, 100, 2000, 350),
    "tracked": ({"method": "tfd"}, 64, 2100, 300),
    "centred": ({"center": True}, 64, 2048, 300),
    "decayed": ({"decay": 0.99}, 64, 2048, 300),
    "decayed and centred": ({"decay": 0.99, "center": True}, 60, 2048, 300),
    "exact": ({"solver": "exact"}, 64, 700, 700),
    "exact, decayed": ({"solver": "exact", "decay": 0.99}, 64, 700, 700),
    "exact, centred": ({"solver": "exact", "center": True}, 64, 700, 700),
    "svd": ({"solver": "svd"}, 40, 900, 200),
    "tolerance": ({"tolerance": 0.05}, 8, 1500, 300),
}


def all_of(arguments, size, d, n, dtype):
    """Everything that comes out of a stream in three batches, a weighted one among them, and of a merge."""
    rng = np.random.default_rng(d)
    rows = (rng.standard_normal((n, d)) * np.logspace(0, -2, d)).astype(dtype)
    arguments = {"solver": "gram", **arguments}
    one, other = (fs.FrequentDirections(size, **arguments) for _ in range(2))
    for part in np.array_split(np.arange(n), 3):
        one.update(rows[part])
    other.update(rows[::-1], sample_weight=rng.random(n))
    merged = one.to_bytes() + fs.merge([one, other]).to_bytes()
    return merged + b"".join(np.ascontiguousarray(s.sketch()).tobytes() for s in (one, other))


@functools.cache
def alone(name, dtype):
    with threadpool_limits(1):
        return all_of(*CASES[name], dtype)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", some([3, 2, 8], 1))
def test_bits(name, dtype, n):
    with threadpool_limits(n):
        assert all_of(*CASES[name], dtype) == alone(name, dtype)


def blas_threads():
    return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]


def test_a_fit_leaves_blas_as_it_is(monkeypatch):
    seen, absorb = [], DenseEngine.absorb

    def watched(engine, piece, weights):
        seen.append(blas_threads())
        absorb(engine, piece, weights)

    monkeypatch.setattr(DenseEngine, "absorb", watched)
    with threadpool_limits(3, user_api="blas"):
        fs.FrequentDirections(32, solver="gram").update(np.random.default_rng(0).standard_normal((300, 500)))
        assert seen == [blas_threads()]
