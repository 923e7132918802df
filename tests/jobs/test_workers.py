"""How many workers "auto" is: as many as the rows are worth and the memory holds."""

from types import SimpleNamespace

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._kernels import pool
from fastsketch.data.sources._source import CHUNK_BYTES
from fastsketch.jobs import _workers

GB = 1 << 30


@pytest.fixture
def machine(monkeypatch):
    """A function that sets the threads and the free memory of the machine."""

    def of(threads, room):
        monkeypatch.setattr(pool, "get", lambda: threads)
        monkeypatch.setattr(_workers, "free_memory", lambda: room)

    return of


def workers(n_parts, n_bytes, model_bytes, *, processes):
    """The workers of "auto" for parts of n_bytes together."""
    parts = [SimpleNamespace(n_bytes=size, size=0) for size in (n_bytes, *(n_parts - 1) * [0])]
    return _workers.choose_n_workers("auto", "processes" if processes else "threads", parts, lambda: model_bytes)


def test_as_many_as_there_are_parts_threads_and_rows(machine):
    machine(8, None)
    assert workers(100, 100 * GB, 0, processes=True) == 8
    assert workers(5, 100 * GB, 0, processes=True) == 5
    assert workers(100, 2 * GB, 0, processes=True) == 4  # a worker for each 512 MB
    assert workers(100, GB // 2, 0, processes=True) == workers(100, 0, 0, processes=False) == 1


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("model_bytes", [0, 10 << 20, GB])
def test_they_fit_into_four_fifths_of_the_memory(machine, processes, model_bytes):
    of_one = model_bytes + 6 * CHUNK_BYTES + processes * (100 << 20)
    for room in (GB // 10, GB, 4 * GB, 9 * GB):
        machine(16, room)
        most = workers(100, 100 * GB, model_bytes, processes=processes)
        assert most == 1 or most * of_one <= 0.8 * room
        assert most == 16 or (most + 1) * of_one > 0.8 * room


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"buffer_size": 300},
        {"method": "tfd"},
        {"center": True},
        {"dtype": "float32"},
        {"solver": "exact"},
        {"solver": "exact", "center": True},
        {"tolerance": 0.01},
        {"tolerance": 0.01, "solver": "auto"},
        {"tolerance": 0.05, "method": "fd"},
        {"tolerance": 0.1, "tolerance_relative_to": "largest_eigenvalue"},
        {"tolerance": 0.1, "max_sketch_size": 20},
    ],
    ids=repr,
)
def test_a_sketch_reckons_with_what_its_file_holds(setting):
    model = fs.FrequentDirections(8, **{"solver": "gram", **setting})
    reckoned = model._state_bytes(400)
    assert len(model.update(np.random.default_rng(0).standard_normal((1000, 400))).to_bytes()) <= reckoned
