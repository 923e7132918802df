"""The pool of threads: how many it has, what governs it, and what a fork makes of it; the rest is in kernels/pool.c."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fastsketch as fs
from fastsketch._kernels import cpus, pool

ROWS = np.random.default_rng(0).standard_normal((400, 3000))


def sketched():
    return fs.FrequentDirections(64, solver="gram").update(ROWS).to_bytes()


@pytest.fixture(autouse=True)
def as_before():
    before = pool.get()
    yield
    assert pool.get() == before


def test_thread_limit_governs_the_pool():
    before = pool.get()
    for n in (1, 2, 3, 8, 200):
        with fs.thread_limit(n):
            assert pool.get() == n
    assert pool.get() == before


def test_nested_limits_keep_the_smallest():
    with fs.thread_limit(3):
        with fs.thread_limit(8):
            assert pool.get() == 3
        with fs.thread_limit(2):
            assert pool.get() == 2
        assert pool.get() == 3


def test_threadpoolctl_governs_the_pool():
    [shown] = [entry for entry in threadpool_info() if entry["user_api"] == "fastsketch"]
    assert shown["num_threads"] == pool.get()
    with threadpool_limits(3, user_api="fastsketch"):
        assert pool.get() == 3
    with threadpool_limits(1):
        assert pool.get() == 1


@pytest.mark.parametrize("n", [2, 3, 8, 50])
def test_same_bits_for_every_number_of_threads(n):
    with fs.thread_limit(1):
        alone = sketched()
    with fs.thread_limit(n):
        assert sketched() == alone
    assert pool.started() > 0, "that was no job for the pool"


def test_models_in_many_threads_share_the_pool():
    alone, found = sketched(), []
    with fs.thread_limit(3):
        threads = [threading.Thread(target=lambda: found.append(sketched() == alone)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [True] * 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_after_threads_ran():
    """A child's first large update starts workers of its own, whatever the parent's were at."""
    code = """
import os, sys, threading, warnings
import numpy as np
import fastsketch as fs
from fastsketch._kernels import pool
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads: that is what is tried
rows = np.random.default_rng(0).standard_normal((400, 3000))
pool.use(4)
expected = fs.FrequentDirections(64, solver="gram").update(rows).to_bytes()
assert pool.started() > 0
stop = threading.Event()
def other():
    sketch = fs.FrequentDirections(64, solver="gram")
    while not stop.is_set():
        sketch.update(rows)
thread = threading.Thread(target=other)
thread.start()
status = 0
for _ in range(10):
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(60)
        alone = pool.started() == 0
        good = fs.FrequentDirections(64, solver="gram").update(rows).to_bytes() == expected
        os._exit(0 if alone and good and pool.started() > 0 and pool.blas_threads() > 0 else 1)
    status |= os.waitpid(child, 0)[1]
stop.set()
thread.join()
sys.exit(status != 0)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_blas_of_scipy_is_in_step():
    sketched()
    assert pool.adopted is not None
    blas = {entry["filepath"]: entry["num_threads"] for entry in threadpool_info()}
    assert pool.blas_threads() == blas[pool.adopted]
    with fs.thread_limit(1):
        assert pool.blas_threads() == 1


# -- cores -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A function that sets what the process is allowed."""

    def allowed(cores, *, group="", files=(), omp=None):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        (tmp_path / "self").mkdir(exist_ok=True)
        (tmp_path / "self" / "cgroup").write_text(group)
        for name, text in files:
            (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "fs" / name).write_text(text)
        monkeypatch.setattr(cpus, "_GROUPS", tmp_path / "fs")
        monkeypatch.setattr(cpus, "_MINE", tmp_path / "self" / "cgroup")
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if omp is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", omp)
        return cpus.usable()

    return allowed


def test_affinity(machine):
    assert machine(5) == 5


@pytest.mark.parametrize(("limit", "expected"), [("max 100000", 8), ("150000 100000", 2), ("1000 100000", 1), ("x", 8)])
def test_quota_of_a_control_group(machine, limit, expected):
    assert machine(8, group="0::/a/b\n", files=[("a/b/cpu.max", limit)]) == expected


def test_quota_of_a_group_above(machine):
    assert machine(8, group="0::/a/b\n", files=[("a/b/cpu.max", "max 100000"), ("a/cpu.max", "300000 100000")]) == 3


def test_quota_of_the_first_kind_of_groups(machine):
    files = [("cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n"), ("cpu,cpuacct/x/cpu.cfs_period_us", "100000\n")]
    assert machine(8, group="4:cpu,cpuacct:/x\n3:memory:/x\n", files=files) == 3


@pytest.mark.parametrize(("omp", "expected"), [("2", 2), ("16", 4), ("3,1", 3), ("", 4), ("many", 4), ("0", 4)])
def test_omp_num_threads(machine, omp, expected):
    assert machine(4, omp=omp) == expected


# -- what threads leave behind ---------------------------------------------------------------------------------------
def test_one_limit_entered_twice_ends_with_the_outer_block():
    limit = fs.thread_limit(3)
    with limit:
        with limit:
            pass
        assert pool.get() == 3


@pytest.mark.parametrize("n", [1 << 16, 1 << 31, 10**20])
def test_numbers_of_threads_have_an_end(n):
    with pytest.raises(ValueError, match="n must be below 2\\*\\*16"):
        fs.thread_limit(n)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_has_no_limits_of_other_threads():
    code = """
import os, sys, threading, time, warnings
import numpy as np
import fastsketch as fs
from fastsketch._kernels import pool
warnings.simplefilter("ignore", DeprecationWarning)
pool.use(3)
rows = np.random.default_rng(0).standard_normal((200, 300))
expected = fs.FrequentDirections(16).update(rows).sketch().tobytes()
stop, inside = threading.Event(), threading.Event()
def limiting():
    with fs.thread_limit(1):
        inside.set()
        stop.wait()
def reading():
    sketch = fs.FrequentDirections(16).update(rows)
    while not stop.is_set():
        sketch.update(rows[:1]).sketch()
        time.sleep(1e-3)  # a fork waits for locks that threads without a pause hardly ever leave
threads = [threading.Thread(target=limiting), *(threading.Thread(target=reading) for _ in range(2))]
for thread in threads:
    thread.start()
inside.wait()
status = 0
for _ in range(20):
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(60)
        good = pool.get() == 3 and fs.FrequentDirections(16).update(rows).sketch().tobytes() == expected
        with fs.thread_limit(2):
            good &= pool.get() == 2
        os._exit(0 if good and pool.get() == 3 else 1)
    status |= os.waitpid(child, 0)[1]
stop.set()
for thread in threads:
    thread.join()
sys.exit(status != 0)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0
