"""Merge trees: the same bits with every engine, and a lost process costs its task alone."""

from collections import Counter

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.merging import WorkerLost
from tests.helpers import same_state
from tests.merging import tasks

ENGINES = [("serial", None), ("threads", 1), ("threads", 4), ("processes", 1), ("processes", 2)]


@pytest.mark.parametrize("fan_in", [2, 3, 20])
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_blocks_by_any_engine_are_one_stream(engine, workers, fan_in):
    whole = fs.SketchHash(6, block_rows=tasks.BLOCK).update(tasks.all_rows())
    found = fs.map_merge(tasks.hash_of_block, range(tasks.BLOCKS), fan_in, engine=engine, workers=workers)
    assert same_state(found, whole)


@pytest.mark.parametrize("task", [tasks.hash_of_part, tasks.sketch_of_block])
@pytest.mark.parametrize(("engine", "workers"), ENGINES[1:])
def test_every_engine_gives_the_bits_of_the_serial_one(engine, workers, task):
    serial = fs.map_merge(task, range(tasks.BLOCKS), engine="serial")
    found = fs.map_merge(task, range(tasks.BLOCKS), engine=engine, workers=workers)
    assert same_state(found, serial)
    assert np.allclose(found.mean, tasks.all_rows().mean(axis=0))


def test_a_killed_process_costs_its_task_alone(tmp_path):
    jobs = [(str(tmp_path), item) for item in range(tasks.BLOCKS)]
    found = fs.map_merge(tasks.killed_once, jobs, engine="processes", workers=2)
    assert same_state(found, fs.SketchHash(6, block_rows=tasks.BLOCK).update(tasks.all_rows()))
    runs = Counter((tmp_path / "runs").read_text().split())
    assert runs == {str(item): 2 if item == 5 else 1 for item in range(tasks.BLOCKS)}


def test_a_task_that_always_dies_ends_the_job():
    with pytest.raises(WorkerLost, match="3 times"):
        fs.map_merge(tasks.always_killed, [1], engine="processes", workers=1, retries=2)


@pytest.mark.parametrize("engine", ["serial", "threads", "processes"])
def test_what_a_task_raises_ends_the_job(engine):
    with pytest.raises(KeyError, match="item three"):
        fs.map_merge(tasks.fails, range(6), engine=engine, workers=2)


def test_what_cannot_be_sent():
    with pytest.raises(TypeError, match="cannot be sent"):
        fs.map_merge(tasks.no_pickle, [1], engine="processes", workers=1)
    with pytest.raises(Exception, match="pickle|local object"):
        fs.map_merge(lambda item, index: item, [1], engine="processes", workers=1)


@pytest.mark.parametrize("engine", ["serial", "threads", "processes"])
def test_blas_runs_on_one_thread_in_tasks(engine):
    assert fs.map_merge(tasks.blas_threads, range(3), engine=engine, workers=2).n == 3


def test_tree_merge_is_pure_and_ordered():
    models = [tasks.sketch_of_block(item, 0) for item in range(7)]
    before = [model.to_bytes() for model in models]
    one = fs.tree_merge(models)
    assert [model.to_bytes() for model in models] == before
    assert same_state(one, fs.merge(models))
    for engine in ("threads", "processes"):
        assert same_state(one, fs.tree_merge(models, engine=engine, workers=2))
    alone = fs.tree_merge(models[:1])
    assert alone is not models[0]
    assert same_state(alone, models[0])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: fs.tree_merge([]), ValueError, "at least one model"),
        (lambda: fs.map_merge(tasks.hash_of_block, []), ValueError, "at least one item"),
        (lambda: fs.tree_merge([tasks.Count(1)], 1), ValueError, "fan_in"),
        (lambda: fs.tree_merge([tasks.Count(1)], engine="x"), ValueError, "engine"),
        (lambda: fs.tree_merge([tasks.Count(1)], workers=0), ValueError, "workers"),
        (lambda: fs.map_merge(tasks.hash_of_block, [1], retries=-1), ValueError, "retries"),
        (lambda: fs.tree_merge([fs.SketchHash(4), 3]), TypeError, "SketchHash"),
    ],
)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match):
        call()
