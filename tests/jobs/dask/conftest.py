"""One cluster for the whole room: workers take seconds to begin."""

from contextlib import contextmanager

import pytest


@contextmanager
def local(workers, **options):
    """A cluster of processes on this machine, none of which is given up however often it is killed."""
    from dask import config
    from distributed import LocalCluster

    with (
        config.set({"distributed.deploy.lost-worker-timeout": "1 day"}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50, **options
        ) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def cluster():
    """Three workers, which are replaced when they die."""
    with local(3) as found:
        yield found
