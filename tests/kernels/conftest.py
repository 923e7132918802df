"""Tests of the C loops run at the levels that this CPU has."""

import pytest

from fastsketch._kernels import level

# Files whose subject is a C loop that has levels. Levels that round alike return the same bits (test_levels.py,
# asan.c), so one of each kind serves where tests take long.
FAST = ("test_block", "test_dots", "test_hamming", "test_quantize")
LONG = ("test_eigh", "test_hadamard", "test_rank_one", "test_tridiagonal")


def pytest_generate_tests(metafunc):
    name, levels = metafunc.module.__name__.rpartition(".")[2], level.supported()
    if name in FAST + LONG:
        metafunc.fixturenames.append("at_level")
        metafunc.parametrize("at_level", levels if name in FAST else sorted({levels[0], levels[-1]}), indirect=True)


@pytest.fixture
def at_level(request):
    """The named level, in force for one test."""
    before = level.current()
    level.use(request.param)
    yield request.param
    level.use(before)
