"""On Dask: the same bits with 1, 2 and 4 workers, and when workers are killed."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import same_state

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
from dask import delayed  # noqa: E402

import fastsketch.dask as fsd  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::UserWarning",
)
M, D = 80, 20
ROWS = np.random.default_rng(0).standard_normal((12 * M - 30, D)) * np.linspace(2, 0.1, D) + 3
# one stream, its last block closed as in a merge
WHOLE = fs.SketchHash(6, block_rows=M, rotation="itq").merge(
    fs.SketchHash(6, block_rows=M, rotation="itq").update(ROWS)
)


def fit(data, **options):
    return fsd.SketchHash(6, block_rows=M, rotation="itq", **options).fit(data)


def local(workers):
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    )


def slow_rows(index):
    time.sleep(0.15)
    return ROWS[index * M : (index + 1) * M]


def slow_array():
    parts = [da.from_delayed(delayed(slow_rows)(i), (min(M, len(ROWS) - i * M), D), ROWS.dtype) for i in range(12)]
    return da.concatenate(parts)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_bits_of_one_stream(workers):
    with local(workers) as cluster, distributed.Client(cluster):
        for chunks in (M, 3 * M):
            for fan_in in (2, 4):
                assert same_state(fit(da.from_array(ROWS, chunks=(chunks, 7)), fan_in=fan_in).model_, WHOLE)


@pytest.mark.parametrize("moment", [0.05, 0.5, 0.9])
def test_a_killed_worker_changes_nothing(moment):
    """Killed early, in the midst and near the end of the job: it ends, with the same bits."""
    with local(2) as cluster, distributed.Client(cluster) as client:
        victim = sorted(client.run(os.getpid).values())[0]
        # twelve partitions of 0.15 s on two workers
        timer = threading.Timer(moment * 12 * 0.15 / 2, os.kill, (victim, signal.SIGKILL))
        timer.start()
        found = fit(slow_array(), fan_in=3).model_
        timer.join()
        assert same_state(found, WHOLE)
        client.wait_for_workers(2)
        assert victim not in client.run(os.getpid).values()  # it did die, and was replaced


def test_partitions_of_any_length():
    """Not multiples of block_rows: the parts are what counts, in whatever way they come."""
    chunks = ((33, 200, 1, len(ROWS) - 234), (D,))
    one = fit(da.from_array(ROWS, chunks=chunks)).model_
    edges = np.cumsum([0, *chunks[0]])
    pieces = [ROWS[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    two = fit([delayed(piece) for piece in pieces], fan_in=2).model_
    three = fit([lambda piece=piece: piece for piece in pieces]).model_
    assert same_state(one, two)
    assert same_state(one, three)
    assert one.n_rows == len(ROWS)
    assert np.allclose(one.mean, ROWS.mean(axis=0))


def test_default_blocks_are_those_of_the_model():
    rows = np.random.default_rng(1).standard_normal((400, D))
    found = fsd.SketchHash(6).fit(da.from_array(rows, chunks=(4 * D, D))).model_
    assert same_state(found, fs.SketchHash(6).update(rows))


def test_codes_of_a_dask_array():
    hasher = fit(da.from_array(ROWS, chunks=(100, D)))
    codes = hasher.encode(da.from_array(ROWS, chunks=(70, 9)))
    assert codes.dtype == np.uint8
    assert np.array_equal(codes.compute(), hasher.model_.encode(ROWS))
    assert np.array_equal(hasher.encode(ROWS[:5]), hasher.model_.encode(ROWS[:5]))


def test_sketch():
    array = da.from_array(ROWS, chunks=(200, D))
    found = fsd.sketch(array, 7, rule="rfd", solver="gram", fan_in=2)
    parts = [fs.RobustFrequentDirections(7, solver="gram").update(ROWS[i : i + 200]) for i in range(0, len(ROWS), 200)]
    assert same_state(found, fs.tree_merge(parts))
    assert isinstance(fsd.sketch([delayed(ROWS)], 7), fs.FrequentDirections)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: fsd.SketchHash(0), ValueError, "n_bits"),
        (lambda: fsd.SketchHash(4, fan_in=1), ValueError, "fan_in"),
        (lambda: fsd.SketchHash(4).fit(ROWS.tolist()), TypeError, "delayed"),
        (lambda: fsd.SketchHash(4).fit("x"), TypeError, "dask array"),
        (lambda: fsd.SketchHash(4).fit([]), ValueError, "at least one partition"),
        (lambda: fsd.SketchHash(4).fit(da.zeros(5)), ValueError, "two-dimensional"),
        (lambda: fsd.SketchHash(4).fit(da.zeros((5, 0))), ValueError, "columns"),
        (lambda: fsd.SketchHash(4).encode(ROWS), ValueError, "no rows"),
        (lambda: fsd.SketchHash(8).fit(da.zeros((5, 4))), ValueError, "at most the 4 features"),
        (lambda: fsd.sketch(da.zeros((5, 4)), 1), ValueError, "sketch_size"),
        (lambda: fsd.sketch(da.from_array(ROWS * np.nan)), ValueError, "finite"),
    ],
)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match):
        call()
