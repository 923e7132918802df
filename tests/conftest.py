"""Fixtures: real data, and the check that BLAS threads are left as they were."""

import pytest

from tests.helpers import data_dir


@pytest.fixture
def dataset():
    """A function that returns the path of a file of the data sets, or skips the test, saying which is absent."""

    def find(name):
        path = data_dir() / name
        if not path.exists():
            pytest.skip(f"data set absent: {name} (set FASTSKETCH_DATA)")
        return path

    return find
