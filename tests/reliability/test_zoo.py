"""The zoo has every kind of model, and each of its specimens learns and can be read."""

import os
import pickle

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import fastsketch as fs
from fastsketch._frame.loading import kinds
from fastsketch._kernels import pool
from tests.reliability.zoo import (
    SPECIMENS,
    STARTS,
    TAKE_A_DTYPE,
    event_rows,
    float_values,
    start_values,
    trained,
)


def test_every_kind_is_there():
    found = {type(specimen.make()).__name__ for specimen in SPECIMENS}  # first: rooms are imported when they are needed
    known = {name for home, name in kinds if home.startswith("fastsketch.")}
    assert known - {"RobustFrequentDirections", "CodeIndex"} == found  # an index learns nothing: its own tests
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


def bits(model):
    """The bytes of a model's state; of a window those of its blocks, as it notes the dtype of its own first rows.

    Of a completion those of its arrays, as it notes the time that a fit took.
    """
    if hasattr(model, "block_models"):
        return [block.to_bytes() for block in model.block_models.values()]
    if hasattr(model, "fit"):
        return [(name, array.tobytes()) for name, array in model._state()[1].items()]
    return model.to_bytes()


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_first_rows_of_any_dtype_count_as_the_floats_that_they_are(specimen, tmp_path):
    """Bitwise the model of rows that came as floats from the beginning; it can be saved, and loads."""
    for form, dtype in STARTS:
        if form == "frame":
            pytest.importorskip("pandas")
        values = start_values(dtype, below_zero=specimen.rows is not event_rows)
        plain = float_values(values, takes_a_dtype=specimen.name.startswith(TAKE_A_DTYPE))
        model, expected = (trained(specimen, form, each, tmp_path) for each in (values, plain))
        assert bits(model) == bits(expected), (form, dtype)
        content = model.to_bytes()
        assert fs.from_bytes(content).to_bytes() == pickle.loads(pickle.dumps(model)).to_bytes() == content
        assert model.copy().to_bytes() == content


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
