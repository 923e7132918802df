"""Dask as an engine of jobs: the bits of the other engines, whatever becomes of the workers; errors that say where."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.jobs import WorkerLost, _run
from tests.helpers import same_state, some
from tests.jobs import answers
from tests.jobs.answers import Watching
from tests.jobs.dask.conftest import local
from tests.jobs.tasks import Watched, rows_of, runs

distributed = pytest.importorskip("distributed")
from dask import config  # noqa: E402

from fastsketch.jobs import _dask  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
D = 24
ROWS = rows_of(0, 1000, D)
MODELS = [
    fs.FrequentDirections(5, solver="gram", center=True),
    fs.SketchQuantizer(6, block_rows=64, method="srht"),
    fs.SketchedEASE(8),
    fs.FrequentDirections(5, solver="exact"),
    fs.SketchHash(6, block_rows=64),
]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(_run, "PART_BYTES", 100 * D * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "rows.npy", np.abs(ROWS))
    return tmp_path / "rows.npy"


@pytest.mark.parametrize("model", some(MODELS, 3), ids=repr)
def test_the_bits_of_the_other_engines(cluster, files, model, amount):
    expected = fs.run(model, files, workers=1)
    for workers in amount((2,), ("auto", 1, 2, 7)):
        assert same_state(fs.run(model, files, engine="dask", workers=workers, scheduler=cluster), expected)
    assert same_state(fs.run(model, files, engine="dask", scheduler=cluster.scheduler_address), expected)
    with distributed.Client(cluster) as client:
        assert same_state(fs.run(model, files, engine="dask"), expected)
        assert client.status == "running"  # it is its owner's


def test_without_a_scheduler_and_a_client_the_error_says_what_to_type(files):
    with pytest.raises(ValueError, match=r"`with distributed.Client\(\):` begins workers on this machine"):
        fs.run(fs.FrequentDirections(5), files, engine="dask", workers=2)


def test_two_passes_and_a_checkpoint(cluster, files, tmp_path):
    model = fs.FrequentDirections(5, method="pfd", solver="gram")
    options = {"engine": "dask", "scheduler": cluster, "passes": 2}
    expected = fs.run(model, files, workers=1, passes=2)
    assert same_state(fs.run(model, files, **options), expected)
    assert same_state(fs.run(model, files, checkpoint=tmp_path / "c", **options), expected)
    assert same_state(fs.run(model, files, checkpoint=tmp_path / "c", resume=True, **options), expected)


@pytest.mark.parametrize("seen", [False, True])
def test_a_result_whose_worker_dies_before_it_is_fetched_is_made_again(cluster, seen):
    """The future has finished, and its worker is killed; the cluster has seen that, or not yet, when it is fetched."""
    until(lambda: len(cluster.scheduler.workers) == 3)
    with _dask.Cluster(cluster, 0) as engine:
        engine.submit("a part", os.getpid)
        engine._start()
        until(lambda: engine._finished_futures.qsize() == 1)
        [(_, future)] = engine._running.values()
        victim = future.result()
        os.kill(victim, signal.SIGKILL)
        until(lambda: not seen or victim not in engine._client.run(os.getpid, on_error="ignore").values())
        key, found = engine.next_result()
    assert key == "a part" and found > 0 and (found != victim or not seen)


def test_workers_killed_at_random_change_nothing(tmp_path, cluster, monkeypatch, amount):
    """Many kills within a job of three workers, each of which a nanny replaces."""
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 50)
    model, rng, n, kills = fs.FrequentDirections(5, solver="gram"), random.Random(0), amount(1000, 6000), amount(2, 20)
    expected = fs.run(model, rows_of(0, n, D), workers=1)
    killed, over = [], threading.Event()

    def kill(client):
        while len(killed) < kills and not over.wait(rng.uniform(0.1, 0.5)):
            pids = sorted(client.run(os.getpid, on_error="ignore").values())
            if pids:
                killed.append(rng.choice(pids))
                os.kill(killed[-1], signal.SIGKILL)

    with distributed.Client(cluster) as client:
        killer = threading.Thread(target=kill, args=(client,))
        killer.start()
        try:
            found = fs.run(model, Watched(tmp_path, n, D, pause=0.15), engine="dask")
        finally:
            over.set()
            killer.join()
    assert len(killed) >= amount(2, 3)
    assert same_state(found, expected)
    assert set(runs(tmp_path)) == set(range(0, n, 100))


def test_map_jobs(cluster, files, tmp_path):
    model = fs.SketchHash(9).update(ROWS)
    rows, out = np.load(files), tmp_path / "out.npy"
    options = {"engine": "dask", "scheduler": cluster, "part_bytes": 100 * D * 8}
    assert fs.map_rows(model.encode, files, output=out, **options).n_parts == 10
    assert np.array_equal(np.load(out), model.encode(rows))
    fs.map_rows(lambda rows: rows[:, 0], files, output=out, **options)  # Dask sends these too
    assert np.array_equal(np.load(out), rows[:, 0])
    pytest.importorskip("pyarrow")
    assert fs.map_rows(answers.two_answers, files, output=tmp_path / "out.parquet", **options).n_rows == 1000


def test_a_model_that_is_mapped_is_sent_once_and_outlives_its_worker(tmp_path, cluster):
    np.save(tmp_path / "rows.npy", np.arange(1200.0 * 4).reshape(-1, 4) // 4)
    fs.map_rows(
        Watching(tmp_path, kills=1, pause=0.01).sums,
        tmp_path / "rows.npy",
        output=tmp_path / "out.npy",
        engine="dask",
        scheduler=cluster,
        part_bytes=100 * 32,
    )
    assert np.array_equal(np.load(tmp_path / "out.npy"), np.load(tmp_path / "rows.npy").sum(axis=1))
    assert len(Watching(tmp_path).read("kills")) == 1
    arrived = Watching(tmp_path).read("arrived")
    assert len(set(arrived)) <= 4 and len(arrived) <= 5  # three workers, the one in the place of one, the scheduler


def test_a_long_model_is_sent_once_and_outlives_its_worker(files, tmp_path, monkeypatch, cluster):
    monkeypatch.setattr(_dask, "MAX_BYTES_WITH_TASKS", 0)
    test_a_model_that_is_mapped_is_sent_once_and_outlives_its_worker(tmp_path, cluster)
    for model in (MODELS[0], MODELS[3]):
        found = fs.run(model, files, engine="dask", scheduler=cluster)
        assert same_state(found, fs.run(model, files, workers=1))


def test_a_task_waits_on_every_busy_worker_but_at_the_end(cluster):
    """The cluster has three; one that is limited to two would begin what waits on the third."""
    until(lambda: len(cluster.scheduler.workers) == 3)  # a test before may have killed one
    for limit, many, few in ((0, 6, 3), (3, 6, 3), (8, 6, 3), (2, 2, 2)):
        with _dask.Cluster(cluster, limit) as engine:
            assert (engine.max_submitted(100), engine.max_submitted(3)) == (many, few)


def test_workers_need_not_wait_for_a_model(cluster):
    """No task of the cluster makes it: its result would draw all others to the worker that has it."""
    with _dask.Cluster(cluster, 0) as engine:
        shared = engine.share(MODELS[0])
        for k in range(3):
            engine.submit(k, repr, shared)
        assert {engine.next_result() for _ in range(3)} == {(k, repr(MODELS[0])) for k in range(3)}
        assert isinstance(shared, _dask._Copy)


def test_a_part_that_kills_whoever_reads_it_ends_the_job(tmp_path, cluster, monkeypatch):
    """Dask counts a death against every part that the worker had, and gives one of these up."""
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 1)
    with pytest.raises(WorkerLost, match=r"part \d+ lost its worker 2 times: killed, or out of memory"):
        source = Watched(tmp_path, 1000, D, act="kill 300 99")
        fs.run(MODELS[0], source, engine="dask", scheduler=cluster)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def until(condition, seconds=60):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_cluster_whose_workers_have_all_died_is_an_error(monkeypatch):
    """It was waited for without end: Dask gives up a place where for some time nobody is."""
    monkeypatch.setattr(_dask, "LOST_WORKERS_TIMEOUT", 1.0)
    with (
        local(1) as cluster,
        config.set({"distributed.deploy.lost-worker-timeout": "1 ms"}),
        pytest.raises(ConnectionError, match=r"at tcp.* has had no workers for 1 s"),
        _dask.Cluster(cluster, 0) as engine,
    ):
        engine.submit("a part", die)
        engine.next_result()


def test_errors_of_tasks(cluster, tmp_path):
    rows = ROWS.copy()
    rows[333, 5] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(ValueError, match=r"rows.npy: .*row 333"):
        fs.run(MODELS[0], tmp_path / "rows.npy", engine="dask", scheduler=cluster)
    with pytest.raises(KeyError, match="rows are gone"):
        fs.run(MODELS[0], Watched(tmp_path, 1000, D, act="raise 300"), engine="dask", scheduler=cluster)
    assert same_state(
        fs.run(MODELS[0], ROWS, engine="dask", scheduler=cluster), fs.run(MODELS[0], ROWS, workers=1)
    )  # the cluster is as it was


def test_what_comes_back_is_looked_at(files, monkeypatch):
    update = fs.FrequentDirections.update

    def spoilt(self, rows, *args):
        update(self, rows, *args)
        if np.array_equal(rows, np.load(files)[200:300]):
            self._engine.state.n_rows = -7
        return self

    monkeypatch.setattr(fs.FrequentDirections, "update", spoilt)
    with (
        local(1, processes=False) as cluster,
        pytest.raises(fs.StateError, match=r"part 2 cannot be merged: .*n_rows must lie in"),
    ):
        fs.run(MODELS[0], files, engine="dask", scheduler=cluster)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense", "foo://x", "127.0.0.1:9"])
def test_a_scheduler_that_cannot_be_reached(files, tmp_path, monkeypatch, address):
    monkeypatch.setattr(_dask, "CONNECT_TIMEOUT", 1.0)  # each call waits for as long
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=f"no Dask scheduler answers at {address} .*`dask scheduler` starts one"):
        fs.run(MODELS[0], files, engine="dask", scheduler=address)
    with pytest.raises(ConnectionError, match=f"no Dask scheduler answers at {address}"):
        fs.map_rows(answers.first_column, files, output=tmp_path / "out.npy", engine="dask", scheduler=address)
    assert time.monotonic() - began < 15
    assert not (tmp_path / "out.npy.partial").exists()


def test_a_scheduler_without_workers(files, monkeypatch):
    monkeypatch.setattr(_dask, "WORKERS_TIMEOUT", 0.5)
    with local(0) as cluster, pytest.raises(ConnectionError, match="at tcp.* has no workers: `dask worker tcp"):
        fs.run(MODELS[0], files, engine="dask", scheduler=cluster)


# -- dask arrays -------------------------------------------------------------------------------------------------------
def slow_block(index, folder):
    with (Path(folder) / "computed").open("a") as file:
        file.write(f"{os.getpid()} {index}\n")
    return rows_of(100 * index, 100, D)


def lazy_rows(folder):
    import dask.array as da
    from dask import delayed

    return da.concatenate(
        [da.from_delayed(delayed(slow_block)(index, str(folder)), (100, D), float) for index in range(10)]
    )


@pytest.mark.parametrize("model", some([MODELS[4], *MODELS[:2]], 1), ids=repr)
def test_a_dask_array_is_computed_on_the_cluster_each_block_once(cluster, tmp_path, model):
    """The mean of all rows, too, on which every block depends; parts of one block, of half a block, of several."""
    rows = lazy_rows(tmp_path)
    rows = rows - rows.mean(axis=0)
    found = fs.run(model, rows, engine="dask", scheduler=cluster)
    lines = [line.split() for line in (tmp_path / "computed").read_text().splitlines()]
    assert sorted(int(index) for _, index in lines) == list(range(10))
    assert str(os.getpid()) not in {pid for pid, _ in lines}
    expected = fs.run(model, rows, workers=1)
    assert same_state(found, expected)
    assert same_state(fs.run(model, rows, engine="dask", scheduler=cluster, workers=1), expected)


@pytest.mark.parametrize("rows_of_part", [50, 300])
def test_parts_of_a_dask_array_of_other_lengths(cluster, tmp_path, monkeypatch, rows_of_part):
    monkeypatch.setattr(_run, "PART_BYTES", rows_of_part * D * 8)
    rows = lazy_rows(tmp_path)
    model = fs.FrequentDirections(5, solver="gram")
    found = fs.run(model, rows, engine="dask", scheduler=cluster)
    assert same_state(found, fs.run(model, rows, workers=1))


def test_an_array_that_lies_on_the_cluster(cluster):
    import dask.array as da

    model = fs.FrequentDirections(5, solver="gram")
    with distributed.Client(cluster) as client:
        rows = client.persist(da.from_array(ROWS, chunks=(100, 7)))
        found = fs.run(model, rows, engine="dask")
        coder = fs.SketchHash(9).update(ROWS)
    assert same_state(found, fs.run(model, da.from_array(ROWS, chunks=(100, D)), workers=1))
    assert coder.n_rows == 1000


def test_codes_of_a_dask_array(cluster, tmp_path):
    model = fs.SketchHash(9).update(ROWS)
    fs.map_rows(model.encode, lazy_rows(tmp_path), output=tmp_path / "out.npy", engine="dask", scheduler=cluster)
    assert np.array_equal(np.load(tmp_path / "out.npy"), model.encode(ROWS))
    assert len((tmp_path / "computed").read_text().splitlines()) == 10
