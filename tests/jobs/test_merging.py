"""Merge trees: the same bits with every engine, and a lost process costs its task alone."""

from collections import Counter

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.jobs import WorkerLost
from fastsketch.jobs._engines import Processes
from tests.helpers import same_state
from tests.jobs import merge_tasks as tasks

ENGINES = [("serial", None), ("threads", 1), ("threads", 4), ("processes", 1), ("processes", 2)]


@pytest.mark.covering(1)
@pytest.mark.parametrize("fan_in", [2, 3, 20])
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_blocks_by_any_executor_are_one_stream(engine, workers, fan_in):
    whole = fs.SketchHash(6, block_rows=tasks.BLOCK).update(tasks.all_rows())
    found = fs.map_merge(tasks.hash_of_block, range(tasks.BLOCKS), fan_in=fan_in, engine=engine, workers=workers)
    assert same_state(found, whole)


@pytest.mark.covering(1)
@pytest.mark.parametrize("task", [tasks.hash_of_part, tasks.quantizer_of_part, tasks.sketch_of_block])
@pytest.mark.parametrize(("engine", "workers"), ENGINES[1:])
def test_every_executor_gives_the_bits_of_the_serial_one(engine, workers, task):
    serial = fs.map_merge(task, range(tasks.BLOCKS), engine="serial")
    found = fs.map_merge(task, range(tasks.BLOCKS), engine=engine, workers=workers)
    assert same_state(found, serial)
    if task is not tasks.quantizer_of_part:
        assert np.allclose(found.mean, tasks.all_rows().mean(axis=0))


@pytest.mark.covering(1)
@pytest.mark.parametrize("fan_in", [2, 3])
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_item_models_of_shards_by_any_executor(engine, workers, fan_in):
    from scipy import sparse

    serial = fs.map_merge(tasks.items_of_block, range(tasks.BLOCKS), fan_in=fan_in, engine="serial")
    found = fs.map_merge(tasks.items_of_block, range(tasks.BLOCKS), fan_in=fan_in, engine=engine, workers=workers)
    assert same_state(found, serial)
    users = sparse.vstack([tasks.users_of(index) for index in range(tasks.BLOCKS)], format="csr")
    whole = fs.SketchedEASE(12).update(users)
    assert found.n_rows == whole.n_rows == users.shape[0]
    assert np.allclose(found.popularity, whole.popularity, rtol=1e-5)
    # what they recommend is as good: within what a user likes
    new = tasks.users_of(tasks.BLOCKS)
    taste = np.array([np.bincount(new[[i]].indices % 4, minlength=4).argmax() for i in range(new.shape[0])])
    for model in (found, whole):
        assert (model.recommend(new, 3).items % 4 == taste[:, np.newaxis]).mean() > 0.9


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
def test_an_error_of_a_task_ends_the_job(engine):
    with pytest.raises(KeyError, match="item three"):
        fs.map_merge(tasks.fails, range(6), engine=engine, workers=2)


@pytest.mark.parametrize("task", [tasks.broken_state, tasks.broken_hash, tasks.broken_items])
def test_a_model_that_comes_back_inconsistent_is_refused_by_number(task):
    with pytest.raises(fs.StateError, match=r"part 3 .* not consistent"):
        fs.map_merge(task, range(6), engine="processes", workers=1)


def test_a_model_that_is_sent_inconsistent_is_refused_by_the_worker():
    models = [tasks.broken_state(item, item) for item in range(2, 4)]
    with pytest.raises(fs.StateError, match="not consistent"):
        fs.merge(models, engine="processes", workers=1)


def test_tasks_and_results_that_cannot_be_sent():
    with pytest.raises(TypeError, match="cannot be sent"):
        fs.map_merge(tasks.no_pickle, [1], engine="processes", workers=1)
    with pytest.raises(Exception, match="pickle|local object"):
        fs.map_merge(lambda item, index: item, [1], engine="processes", workers=1)


@pytest.mark.parametrize("engine", ["serial", "threads", "processes"])
def test_blas_runs_on_one_thread_in_tasks(engine):
    assert fs.map_merge(tasks.blas_threads, range(3), engine=engine, workers=2).n == 3


def test_processes_are_spawned():
    with Processes(1, 0) as engine:
        assert engine._context.get_start_method() == "spawn"


def test_merge_is_pure_and_ordered():
    models = [tasks.sketch_of_block(item, 0) for item in range(7)]
    before = [model.to_bytes() for model in models]
    one = fs.merge(models)
    assert [model.to_bytes() for model in models] == before
    # neighbours in pairs, level by level; the last of an odd level waits
    pairs = [models[i].copy().merge(models[i + 1]) for i in (0, 2, 4)]
    assert same_state(one, pairs[0].merge(pairs[1]).merge(pairs[2].merge(models[6])))
    for engine in ("threads", "processes"):
        assert same_state(one, fs.merge(models, engine=engine, workers=2))
    alone = fs.merge(models[:1])
    assert alone is not models[0]
    assert same_state(alone, models[0])


@pytest.mark.parametrize(("n", "fan_in", "copies"), [(1, 2, 1), (2, 2, 1), (9, 2, 4), (9, 4, 2), (10, 9, 1)])
def test_only_leaves_that_others_go_into_are_copied(n, fan_in, copies):
    copied = []

    class Noted(tasks.Count):
        def copy(self):
            copied.append(self.n)
            return Noted(self.n)

    models = [Noted(2**number) for number in range(n)]
    assert fs.merge(models, fan_in).n == 2**n - 1
    assert [model.n for model in models] == [2**number for number in range(n)]
    assert len(copied) == copies


def test_many_models_are_merged_on_two_levels_with_the_bits_of_merge():
    """Some of these sketches have nothing, names, another l, a decay of rows before, rows in another scale."""
    rng = np.random.default_rng(0)
    many = [fs.FrequentDirections(4, solver="gram").update(rng.standard_normal((n % 11, 9))) for n in range(70)]
    many[3], many[20] = fs.FrequentDirections(4, solver="gram"), fs.FrequentDirections(7, solver="gram")
    many[20].update(rng.standard_normal((30, 9)))
    many[31].update(1e200 * rng.standard_normal(9)).fade(0.5)
    many[44] = fs.RobustFrequentDirections(4, solver="gram").update(rng.standard_normal((12, 9)))
    before = [model.to_bytes() for model in many]
    groups = [many[start].copy() for start in range(0, 70, 9)]
    for number, group in enumerate(groups):
        for model in many[9 * number + 1 : 9 * number + 9]:
            group.merge(model)
    for group in groups[1:]:
        groups[0].merge(group)
    for merged in (fs.merge(many), fs.merge(many, 9), fs.merge(many, engine="threads", workers=2)):
        assert same_state(merged, groups[0])
    assert [model.to_bytes() for model in many] == before


def test_columns_of_many_must_have_the_same_names():
    pd = pytest.importorskip("pandas")
    tables = [pd.DataFrame(np.eye(3), columns=list("abc")) for _ in range(66)]
    whole = fs.merge([fs.FrequentDirections(2).update(table) for table in tables])
    assert list(whole.feature_names) == ["a", "b", "c"]
    tables[50] = pd.DataFrame(np.eye(3), columns=list("abd"))
    with pytest.raises(ValueError, match="columns of other"):
        fs.merge([fs.FrequentDirections(2).update(table) for table in tables])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: fs.merge([]), ValueError, "at least one model"),
        (lambda: fs.map_merge(tasks.hash_of_block, []), ValueError, "at least one item"),
        (lambda: fs.merge([tasks.Count(1)], 1), ValueError, "fan_in"),
        (lambda: fs.merge([tasks.Count(1)], engine="x"), ValueError, "engine"),
        (lambda: fs.merge([tasks.Count(1)], workers=0), ValueError, "workers"),
        (lambda: fs.map_merge(tasks.hash_of_block, [1], retries=-1), ValueError, "retries"),
        (lambda: fs.merge([fs.SketchHash(4), 3]), TypeError, "models that merge, got int"),
        (lambda: fs.merge([fs.SketchHash(4), fs.FrequentDirections(4)]), TypeError, "must be a SketchHash"),
        (lambda: fs.merge([fs.FrequentDirections(4).update(np.eye(n)) for n in (3, 4)]), ValueError, "n_features=4"),
        (lambda: fs.merge([fs.FrequentDirections(4, center=c) for c in (True, False)]), ValueError, "center=False"),
    ],
)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match):
        call()
