"""Arrays of Dask as sources of a job: the same bits with any number of workers."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.jobs import _run
from fastsketch.reference import baselines
from tests.broken import BROKEN
from tests.helpers import same_state
from tests.jobs.dask.conftest import local

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
from dask import delayed  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::UserWarning",
)
M, D = 80, 20
ROWS = np.random.default_rng(0).standard_normal((12 * M - 30, D)) * np.linspace(2, 0.1, D) + 3
# one stream, its last block closed as in a merge
TEMPLATE = fs.SketchHash(6, block_rows=M)
WHOLE = TEMPLATE.copy().merge(TEMPLATE.copy().update(ROWS))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(_run, "PART_BYTES", M * D * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)


def learned(model, rows, cluster=None, **options):
    return fs.run(model, rows, engine="dask", scheduler=cluster, **options)


@pytest.mark.parametrize("workers", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 4))])
def test_any_number_of_workers_gives_the_bits_of_one_stream(workers, cluster):
    with nullcontext(cluster) if workers == 3 else local(workers) as found, distributed.Client(found):
        for chunks in (M, 3 * M):
            assert same_state(learned(TEMPLATE, da.from_array(ROWS, chunks=(chunks, 7))), WHOLE)


@pytest.mark.parametrize(
    "model",
    [
        fs.FrequentDirections(7, solver="gram"),
        fs.FrequentDirections(7, method="cfd", center=True),
        fs.FrequentDirections(7, compressor=fs.Compressor("srht", 7, block_rows=50, first_block=3)),
        fs.RobustFrequentDirections(7, alpha0=0.5),
        fs.SketchHash(6, method="fd"),
        baselines.LSH(9),
        baselines.ITQ(6),
    ],
    ids=repr,
)
def test_every_model_that_merges(model, cluster):
    """The bits of one process over the same array; the template and its notes stay as they are."""
    model = model.copy()
    model.notes["job"] = 7
    before, array = model.to_bytes(), da.from_array(ROWS, chunks=(200, D))
    found = learned(model, array, cluster)
    assert model.to_bytes() == before
    assert found.notes == {"job": 7} and found.n_rows == len(ROWS)
    assert same_state(found, fs.run(model, array, workers=1))


def test_an_estimator_is_that_of_the_same_job_in_one_process(cluster):
    pca = pytest.importorskip("fastsketch.sklearn").SketchedPCA(4)
    array = da.from_array(ROWS, chunks=(200, D))
    found, expected = learned(pca, array, cluster), fs.run(pca, array, workers=1)
    assert np.array_equal(found.components_, expected.components_)


def test_codes_of_a_dask_array():
    data = da.from_array(ROWS, chunks=(70, D))
    for encoder in (WHOLE.encoder(), WHOLE.encoder(factors=True)):
        codes = data.map_blocks(encoder.encode, dtype="uint8", chunks=(data.chunks[0], encoder.width))
        assert codes.shape == (len(ROWS), encoder.width)
        assert np.array_equal(codes.compute(), encoder.encode(ROWS))


def users_of(index):
    """CSR rows of users who like a quarter of 40 items each."""
    rng = np.random.default_rng(index)
    taste = rng.integers(4, size=(80, 1)) == np.arange(40) % 4
    return sparse.csr_array((rng.random((80, 40)) < np.where(taste, 0.5, 0.05)).astype(float))


def partitions(load, n=5, width=40):
    """Delayed CSR matrices as one array."""
    meta = sparse.csr_array((0, width))
    return da.concatenate([da.from_delayed(delayed(load)(i), (80, width), meta=meta) for i in range(n)])


def test_an_item_model_of_delayed_sparse_partitions(cluster):
    template = fs.SketchedEASE(12)
    rows = partitions(users_of)
    found = learned(template, rows, cluster)
    assert same_state(found, fs.run(template, rows, workers=1))
    assert found.n_rows == 400
    with pytest.raises(ValueError, match="must not be negative: .*row 80 holds"):
        learned(template, partitions(lambda index: users_of(index) * (1 if index != 1 else -1)), cluster)
    with pytest.raises(ValueError, match="is not a consistent csc"):
        learned(fs.SketchHash(4), partitions(lambda _: BROKEN["csc32 indptr backwards"]()), cluster)


@pytest.mark.parametrize("center", [False, True])
def test_a_second_pass_is_that_of_one_process(center, cluster):
    rows = np.random.default_rng(3).standard_normal((900, 60)) * 0.9 ** np.arange(60) + 1.0
    data = da.from_array(rows, chunks=(200, 25))
    template = fs.FrequentDirections(12, method="tfd", solver="gram", center=center)
    found = learned(template, data, cluster, passes=2)
    assert same_state(found, fs.run(template, data, workers=1, passes=2))
    refined = fs.run(template, data, workers=1).refine(data)
    assert np.allclose(found.singular_values, refined.singular_values, rtol=1e-10)


def test_a_low_rank_model_takes_partitions_together():
    """What docs/jobs/many-cores.md says: partitions are stacked and fitted by one process."""
    import dask

    parts = [delayed(users_of)(i) for i in range(3)]
    model = fs.LowRankModel(2, sweeps=1).fit(sparse.vstack(dask.compute(*parts)))
    assert model.shape == (240, 40)
    with pytest.raises(TypeError, match="learns by update, got LowRankModel: its fit takes all rows together"):
        learned(fs.LowRankModel(2), partitions(users_of))
