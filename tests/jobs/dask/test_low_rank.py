"""Low-rank models of partitions on Dask: the same bits with any workers, and when workers are killed."""

import os
import signal
from contextlib import nullcontext, suppress

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import same_state
from tests.jobs.dask.conftest import local
from tests.lowrank.problems import problem, stored

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
from dask import delayed  # noqa: E402

import fastsketch.jobs.dask as fsd  # noqa: E402
from fastsketch.jobs.dask._low_rank import check_memory  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::UserWarning",
)
X = stored(*problem(m=120, n=40, seed=1))
EDGES = (0, 30, 30, 80, 100, 120)
PARTS = [X[a:b] for a, b in zip(EDGES, EDGES[1:], strict=False)]
TEMPLATE = fs.LowRankModel(3, sweeps=2)


def same(one, two):
    """But for the seconds of the history."""
    drop = [{**line, "seconds": 0.0} for line in one.history] == [{**line, "seconds": 0.0} for line in two.history]
    arrays = zip(one._state()[1].items(), two._state()[1].items(), strict=True)
    return drop and all(a[0] == b[0] and np.array_equal(a[1], b[1]) for a, b in arrays)


@pytest.fixture(scope="module")
def here():
    """Without a client."""
    return fsd.fit(TEMPLATE, [delayed(part) for part in PARTS])


def test_the_objective_of_one_machine(here):
    one = TEMPLATE.copy().fit(X)
    assert here.facts()["objective"] == pytest.approx(one.facts()["objective"], rel=1e-9)
    assert here.shape == X.shape
    assert np.allclose(here.predict_block(np.arange(120)), one.predict_block(np.arange(120)), atol=1e-7)
    assert TEMPLATE.n_features is None


@pytest.mark.parametrize("workers", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 4))])
def test_any_number_of_workers_gives_the_same_bits(here, workers, cluster, amount):
    with nullcontext(cluster) if workers == 3 else local(workers) as found, distributed.Client(found):
        for form in amount((lambda part: lambda: part,), (delayed, lambda part: lambda: part)):
            assert same(fsd.fit(TEMPLATE, [form(part) for part in PARTS]), here)


@pytest.mark.parametrize("rank", [2, *(pytest.param(rank, marks=pytest.mark.long) for rank in (0, 3))])
def test_a_killed_worker_changes_nothing(here, rank, client):
    """Killed when the biases are known, between ranks, and before the sweeps: the fit ends, with the same bits."""
    victim = sorted(client.run(os.getpid).values())[0]

    def kill(line):
        if line["rank"] == rank:
            with suppress(ProcessLookupError):  # the fit that chooses comes to this rank before the last one
                os.kill(victim, signal.SIGKILL)

    assert same(fsd.fit(TEMPLATE, [delayed(part) for part in PARTS], callback=kill), here)
    client.wait_for_workers(3)
    assert victim not in client.run(os.getpid).values()


def test_a_dask_array_weights_and_validation():
    dense = np.where(X.toarray() == 0, np.nan, X.toarray())
    weights = np.random.default_rng(0).random(dense.shape) + 0.5
    one = TEMPLATE.copy().fit(dense, sample_weight=weights, validation=0.25)
    chunked, heavy = (da.from_array(rows, chunks=(50, 15)) for rows in (dense, weights))
    found = fsd.fit(TEMPLATE, chunked, sample_weight=heavy, validation=0.25)
    assert found.facts()["validation"] == pytest.approx(one.facts()["validation"], rel=1e-7)
    blocks = da.from_array(dense, chunks=(50, 40)).map_blocks(lambda rows: stored(rows, ~np.isnan(rows)))
    assert fsd.fit(TEMPLATE, blocks).facts()["objective"] == pytest.approx(
        TEMPLATE.copy().fit(dense).facts()["objective"], rel=1e-9
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_memory": 1000}, ValueError, "more than max_memory=0 MB: lower rank .or sweeps to 0."),
        ({"max_memory": 0}, ValueError, "max_memory"),
        ({"weight": 3}, TypeError, "no argument 'weight' for a LowRankModel: it has sample_weight"),
        (
            {"sample_weight": [delayed(PARTS[0])]},
            ValueError,
            "sample_weight must have the 5 partitions of the data, got 1",
        ),
        ({"patience": 2}, ValueError, "patience needs a validation set"),
        ({"validation": 1.5}, ValueError, "validation"),
    ],
)
def test_what_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        fsd.fit(TEMPLATE, [delayed(part) for part in PARTS], **options)


def test_too_many_sums_are_refused_before_any_step():
    with pytest.raises(ValueError, match=r"40 columns x 4 x 5 / 2 numbers in a sweep.*more than max_memory=0 MB"):
        check_memory(40, fs.LowRankModel(3)._setting(), max_memory=1000.0, partitions=2)
    with pytest.raises(ValueError, match="40 columns x 8 numbers, take"):
        check_memory(40, fs.LowRankModel(3, sweeps=0)._setting(), max_memory=1000.0, partitions=2)


def test_refused_by_its_partition_on_a_worker(cluster):
    with distributed.Client(cluster):
        with pytest.raises(ValueError, match="partition 1: X must be finite where it is observed"):
            fsd.fit(TEMPLATE, [delayed(X), delayed(X * np.inf)])
        with pytest.raises(ValueError, match="must have seen no rows"):
            fsd.fit(TEMPLATE.copy().fit(X), [delayed(X)])
    with pytest.raises(TypeError, match="callback: of a LowRankModel alone, got FrequentDirections"):
        fsd.fit(fs.FrequentDirections(4), [delayed(X)], callback=print)
    assert same_state(TEMPLATE, fs.LowRankModel(3, sweeps=2))
