"""The zoo has every kind of model, and each of its specimens learns and can be read."""

import os

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import fastsketch as fs
from fastsketch._frame.loading import kinds
from fastsketch._kernels import pool
from tests.reliability.zoo import SPECIMENS


def test_every_kind_is_there():
    found = {type(specimen.make()).__name__ for specimen in SPECIMENS}  # first: rooms are imported when they are needed
    known = {name for home, name in kinds if home.startswith("fastsketch.")}
    assert known - {"RobustFrequentDirections"} == found
    assert len({specimen.name for specimen in SPECIMENS}) == len(SPECIMENS)


def test_every_engine_is_there():
    kinds = {
        specimen.learned()._state()[0]["engine"]["kind"]
        for specimen in SPECIMENS
        if specimen.name.startswith("sketch-")
    }
    assert kinds == {"dense", "sparse", "mapped"}


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_every_specimen_learns_and_can_be_read(specimen):
    found = specimen.read(specimen.learned())
    assert found["facts"]["n_rows"] == 40 and len(found) > 1


def surroundings():
    """What a process has in common with others, or with other code in it."""
    threads = {entry["filepath"]: entry["num_threads"] for entry in threadpool_info()}
    numbers = np.random.get_state()[1].tobytes()  # noqa: NPY002  what nobody is to use
    return dict(os.environ), threads, pool.get(), numbers


@pytest.mark.usefixtures("threaded_blas")
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_every_specimen_leaves_threads_environment_and_random_numbers_alone(specimen):
    specimen.read(specimen.learned())  # libraries of threads are loaded once
    before = surroundings()
    model = specimen.learned()
    specimen.read(model)
    fs.from_bytes(model.to_bytes()).copy()
    assert surroundings() == before
