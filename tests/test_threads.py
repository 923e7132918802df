"""Thread limits hold inside, and everything is as before outside, in whatever order contexts overlap."""

import gc
import os
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fastsketch as fs
from fastsketch._core import threads as _threads
from fastsketch._kernels.cpus import limits


def pools():
    """Threads of numpy's and scipy's BLAS; that of faiss, which other tests load, is not ours."""
    return {
        pool["filepath"]: pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and "faiss" not in pool["filepath"]
    }


@pytest.fixture(autouse=True)
def two_threads():
    import scipy.linalg.cython_blas  # noqa: F401

    with threadpool_limits(2, "blas"):
        yield


def test_limit_holds_inside_and_ends_outside():
    before = pools()
    with fs.thread_limit(1):
        assert set(pools().values()) == {1}
    assert pools() == before


def test_limits_never_raise_a_pool():
    with threadpool_limits(1, "blas"), fs.thread_limit(8):
        assert set(pools().values()) == {1}


def test_nested_limits_keep_the_smallest():
    with fs.thread_limit(1):
        with fs.thread_limit(2):
            assert set(pools().values()) == {1}
        assert set(pools().values()) == {1}
    assert set(pools().values()) == {2}


def test_overlapping_contexts_of_two_threads_restore_everything():
    before = pools()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with fs.thread_limit(1):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    context = fs.thread_limit(1)
    context.__enter__()
    thread.start()
    assert entered.wait(10)
    context.__exit__(None, None, None)  # the first to enter leaves first
    assert set(pools().values()) == {1}
    leave.set()
    thread.join()
    assert pools() == before


def test_an_exception_restores_everything():
    before = pools()
    with pytest.raises(KeyError), fs.thread_limit(1):
        raise KeyError
    assert pools() == before


def test_updates_leave_threads_alone():
    before = pools()
    fs.FrequentDirections(8, solver="gram").update(np.ones((100, 50)))
    assert pools() == before
    assert not _threads._limits
    assert not _threads._original_sizes


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_interrupts_at_any_moment_leave_threads_and_sketch_alone():
    """A signal that raises, 150 times, somewhere in the updates of a sketch."""

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    rows = np.random.default_rng(0).standard_normal((3000, 20))
    sketch = fs.FrequentDirections(4, solver="gram").update(rows[:7])
    before, start, states = pools(), sketch.to_bytes(), set()
    whole = fs.from_bytes(start).update(rows).to_bytes()
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        for delay in np.linspace(1e-5, 5e-3, 150):
            sketch = fs.from_bytes(start)
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                sketch.update(rows)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                states.add(sketch.to_bytes())
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop:  # between two lines of this test
        pass
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert states <= {start, whole}
    gc.collect()
    assert pools() == before
    assert not _threads._limits


def test_numba_threads_follow_if_loaded():
    numba = pytest.importorskip("numba")
    before = numba.get_num_threads()
    with fs.thread_limit(1):
        assert numba.get_num_threads() == 1
    assert numba.get_num_threads() == before


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", None, True])
def test_bad_n(bad):
    with pytest.raises((TypeError, ValueError), match="^n must be"):
        fs.thread_limit(bad)


def test_many_threads_sketch_as_one():
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((200, 40)) for _ in range(40)]
    alone = [fs.FrequentDirections(8, solver="gram").update(batch).sketch() for batch in rows]
    out = [None] * len(rows)

    def work(k):
        out[k] = fs.FrequentDirections(8, solver="gram").update(rows[k]).sketch()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(rows))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for one, other in zip(alone, out, strict=True):
        assert np.array_equal(one, other)


def test_a_library_loaded_inside_a_limit_is_limited_from_the_next_one_on():
    code = """if True:
        import fastsketch as fs
        from threadpoolctl import threadpool_info
        with fs.thread_limit(1):
            import scipy.linalg.cython_blas, numpy.linalg
            with fs.thread_limit(4):
                inside = {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}
        after = {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}
        print(inside, after)
    """
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    after = min(2, limits()["affinity"])  # OpenBLAS has no more threads than there are cores
    assert done.stdout.strip() == f"{{1}} {{{after}}}"


# -- modules that another thread is importing --------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["scipy.sparse", "torch", "numba"])
def test_a_module_that_another_thread_is_importing_counts_as_absent(monkeypatch, name):
    """It is listed in sys.modules before it has any attributes."""
    rows = np.random.default_rng(0).standard_normal((60, 4))
    expected = fs.SketchedNewton().update(rows, rows[:, 0] > 0).to_bytes()
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert fs.SketchedNewton().update(rows, rows[:, 0] > 0).to_bytes() == expected
    learner = fs.SketchedNewton()
    for row in rows:  # few rows take a path of their own
        learner.update(row[np.newaxis], [row[0] > 0])
    assert learner.n_rows == 60
    with fs.thread_limit(1):
        assert fs.FrequentDirections(3).update(rows.tolist()).n_rows == 60
