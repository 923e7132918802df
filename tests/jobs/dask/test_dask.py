"""On Dask: the same bits with 1, 2 and 4 workers, and when workers are killed."""

import os
import signal
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._frame.model import MergeableModel
from fastsketch.reference import baselines
from tests.broken import BROKEN
from tests.helpers import same_state
from tests.jobs.dask.conftest import local

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
from dask import delayed  # noqa: E402

import fastsketch.jobs.dask as fsd  # noqa: E402

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


def slow_rows(index):
    time.sleep(0.15)
    return ROWS[index * M : (index + 1) * M]


def slow_array():
    parts = [da.from_delayed(delayed(slow_rows)(i), (min(M, len(ROWS) - i * M), D), ROWS.dtype) for i in range(12)]
    return da.concatenate(parts)


@pytest.mark.parametrize("workers", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 4))])
def test_any_number_of_workers_gives_the_bits_of_one_stream(workers, cluster):
    with nullcontext(cluster) if workers == 3 else local(workers) as found, distributed.Client(found):
        for chunks in (M, 3 * M):
            for fan_in in (2, 4):
                assert same_state(fsd.fit(TEMPLATE, da.from_array(ROWS, chunks=(chunks, 7)), fan_in=fan_in), WHOLE)


@pytest.mark.parametrize("moment", [0.5, *(pytest.param(moment, marks=pytest.mark.long) for moment in (0.05, 0.9))])
def test_a_killed_worker_changes_nothing(moment, client):
    """Killed early, in the midst and near the end of the job: it ends, with the same bits."""
    victim = sorted(client.run(os.getpid).values())[0]
    # twelve partitions of 0.15 s on three workers
    timer = threading.Timer(moment * 12 * 0.15 / 3, os.kill, (victim, signal.SIGKILL))
    timer.start()
    found = fsd.fit(TEMPLATE, slow_array(), fan_in=3)
    timer.join()
    assert same_state(found, WHOLE)
    client.wait_for_workers(3)
    assert victim not in client.run(os.getpid).values()  # it did die, and was replaced


def test_partitions_of_any_length():
    """Not multiples of block_rows: the same parts give the same bits, from an array, delayed or loaded by functions."""
    chunks = ((33, 200, 1, len(ROWS) - 234), (D,))
    one = fsd.fit(TEMPLATE, da.from_array(ROWS, chunks=chunks))
    edges = np.cumsum([0, *chunks[0]])
    pieces = [ROWS[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    two = fsd.fit(TEMPLATE, [delayed(piece) for piece in pieces], fan_in=2)
    three = fsd.fit(TEMPLATE, [lambda piece=piece: piece for piece in pieces])
    assert same_state(one, two)
    assert same_state(one, three)
    assert one.n_rows == len(ROWS)
    assert np.allclose(one.mean, ROWS.mean(axis=0))


def test_default_blocks_are_those_of_the_model():
    rows = np.random.default_rng(1).standard_normal((400, D))
    found = fsd.fit(fs.SketchHash(6), da.from_array(rows, chunks=(4 * D, D)))
    assert same_state(found, fs.SketchHash(6).update(rows))


def test_a_template_is_not_changed_and_gives_its_notes_place_and_anchor():
    template = fs.SketchHash(6, block_rows=M, part=2, first_block=5).anchor(WHOLE.projection)
    template.notes["job"] = 7
    before = template.to_bytes()
    found = fsd.fit(template, da.from_array(ROWS, chunks=(M, D)))
    assert template.to_bytes() == before
    assert found.notes == {"job": 7}
    assert same_state(found, template.copy().merge(template.copy().update(ROWS)))
    assert (found.part, found.first_block) == (2, 5)
    assert not np.array_equal(found.projection, WHOLE.projection)  # other blocks, other random numbers
    assert np.allclose(found.projection.T @ found.projection, np.eye(6))


def test_codes_of_a_dask_array():
    data = da.from_array(ROWS, chunks=(70, D))
    quantizer = fsd.fit(fs.SketchQuantizer(4, block_rows=M), da.from_array(ROWS, chunks=(100, D)))
    for encoder in (quantizer.encoder(), WHOLE.encoder(), WHOLE.encoder(factors=True)):
        codes = data.map_blocks(encoder.encode, dtype="uint8", chunks=(data.chunks[0], encoder.width))
        assert codes.shape == (len(ROWS), encoder.width)
        assert np.array_equal(codes.compute(), encoder.encode(ROWS))
    lsh = fsd.fit(baselines.LSH(12), da.from_array(ROWS, chunks=(100, D)))
    codes = data.map_blocks(lsh.encode, dtype="uint8", chunks=(data.chunks[0], 2))
    assert np.array_equal(codes.compute(), lsh.encode(ROWS))


@pytest.mark.parametrize(
    "model",
    [
        lambda part: fs.FrequentDirections(7, solver="gram"),
        lambda part: fs.FrequentDirections(7, method="cfd", center=True),
        lambda part: fs.RobustFrequentDirections(7, alpha0=0.5),
        lambda part: baselines.LSH(9),
        lambda part: fs.SketchHash(6, method="fd", part=part),
        lambda part: baselines.PCAHash(6, part=part),
        lambda part: baselines.ITQ(6, part=part),
    ],
)
def test_every_model_that_merges(model):
    """The same bits as the merge tree of the library over models of the partitions."""
    rows = ROWS[:-30]  # partitions of 200 rows are not whole blocks
    array = da.from_array(rows, chunks=(200, D))
    found = fsd.fit(model(0), array, fan_in=2)
    parts = [model(i // 200).update(rows[i : i + 200]) for i in range(0, len(rows), 200)]
    assert type(found) is type(parts[0])
    assert same_state(found, model(0).merge(fs.merge(parts)))
    assert found.n_rows == len(rows)


def test_parts_of_a_compressed_sketch_have_random_numbers_of_their_own():
    compressor = fs.Compressor("srht", 7, block_rows=50, first_block=3)
    found = fsd.fit(fs.FrequentDirections(7, compressor=compressor), da.from_array(ROWS, chunks=(200, D)), fan_in=2)
    places = [3 + (part << 32) for part in range(-(-len(ROWS) // 200))]
    parts = [
        fs.FrequentDirections(7, compressor=replace(compressor, first_block=place)).update(ROWS[i : i + 200])
        for place, i in zip(places, range(0, len(ROWS), 200), strict=True)
    ]
    assert np.array_equal(found.sketch(), fs.merge(parts).sketch())
    assert found.n_rows == len(ROWS)
    assert found.update(ROWS).n_rows == 2 * len(ROWS)


def users_of(index):
    """CSR rows of users who like a quarter of 40 items each."""
    rng = np.random.default_rng(index)
    taste = rng.integers(4, size=(80, 1)) == np.arange(40) % 4
    return sparse.csr_array((rng.random((80, 40)) < np.where(taste, 0.5, 0.05)).astype(float))


def test_an_item_model_of_sparse_partitions(cluster):
    """The bits of the merge tree of the library, from delayed CSR, loaded CSR and dense chunks."""
    template = fs.SketchedEASE(12)
    before = template.to_bytes()
    expected = template.copy().merge(fs.merge([fs.SketchedEASE(12).update(users_of(i)) for i in range(5)]))
    dense = da.from_array(np.vstack([users_of(i).toarray() for i in range(5)]), chunks=(80, 40))
    for data in (
        [delayed(users_of)(i) for i in range(5)],
        [partial(users_of, i) for i in range(5)],
        dense,
    ):
        assert same_state(fsd.fit(template, data, fan_in=2), expected)
    with distributed.Client(cluster):
        assert same_state(fsd.fit(template, [delayed(users_of)(i) for i in range(5)], fan_in=2), expected)
    assert template.to_bytes() == before
    assert expected.n_rows == 400
    with pytest.raises(ValueError, match="rows must not be negative: row 0 holds"):
        fsd.fit(template, [partial(users_of, 0), lambda: -users_of(1)])


def test_a_model_of_ones_own():
    found = fsd.fit(Rows(), [lambda: ROWS[:40], lambda: ROWS[40:]])
    assert np.allclose(found.total, ROWS.sum(axis=0))


class Rows(MergeableModel):
    """The sum of the rows."""

    def _begin(self):
        self.n, self.total = 0, None

    def update(self, rows):
        self.n, self.total = self.n + len(rows), rows.sum(axis=0) + (0 if self.total is None else self.total)
        return self

    def _merge(self, other):
        self.n, self.total = self.n + other.n, self.total + other.total

    def _state(self):
        return {"n": self.n}, {} if self.total is None else {"total": self.total}

    def _restore(self, state, arrays):
        self.n, self.total = state["n"], arrays.get("total")

    @property
    def n_rows(self):
        return self.n

    @property
    def n_features(self):
        return None if self.total is None else len(self.total)


HASH = fs.SketchHash(4)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: fsd.fit(HASH, da.from_array(ROWS), fan_in=1), ValueError, "fan_in"),
        (lambda: fsd.fit(baselines.SGH(4), da.from_array(ROWS)), TypeError, "that merges, got SGH"),
        (lambda: fsd.fit("fd", da.from_array(ROWS)), TypeError, "that merges, got str"),
        (lambda: fsd.fit(WHOLE, da.from_array(ROWS)), ValueError, f"must have seen no rows, it has seen {len(ROWS)}"),
        (lambda: fsd.fit(HASH, ROWS.tolist()), TypeError, "delayed"),
        (lambda: fsd.fit(HASH, "no such file"), fs.data.SourceError, "no such file"),
        (lambda: fsd.fit(HASH, ROWS), TypeError, "got|delayed"),
        (lambda: fsd.fit(HASH, BROKEN["csc32 indptr backwards"]()), TypeError, "dask array, a list"),
        (lambda: fsd.fit(HASH, [BROKEN["csc32 indptr backwards"]]), ValueError, "rows is not a consistent csc"),
        (lambda: fsd.fit(HASH, []), ValueError, "at least one partition"),
        (lambda: fsd.fit(HASH, da.zeros(5)), ValueError, "two-dimensional"),
        (lambda: fsd.fit(HASH, da.zeros((5, 0))), ValueError, "columns"),
        (lambda: fsd.fit(fs.SketchHash(8), da.zeros((5, 4))), ValueError, "at most the 4 features"),
        (lambda: fsd.fit(fs.FrequentDirections(4), da.from_array(ROWS * np.nan)), ValueError, "row 0 holds"),
        (lambda: fsd.nothing, AttributeError, "no attribute 'nothing'"),
    ],
)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_a_part_that_comes_back_inconsistent_is_refused_by_name(where, monkeypatch):
    def load(index):
        return ROWS[index * M : (index + 1) * M]

    update = fs.FrequentDirections.update

    def spoilt(self, rows, *args):
        update(self, rows, *args)
        if np.array_equal(rows, load(2)):
            self._engine.state.n_rows = -7
        return self

    template = fs.FrequentDirections(6, solver="gram")
    before = template.to_bytes()
    monkeypatch.setattr(fs.FrequentDirections, "update", spoilt)
    parts = [delayed(load)(index) for index in range(4)]
    with pytest.raises(fs.StateError, match=r"part 2 .* n_rows must lie in"):
        if where == "threads":
            fsd.fit(template, parts)
        else:
            with (
                distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
                distributed.Client(cluster),
            ):
                fsd.fit(template, parts)
    assert template.to_bytes() == before


@pytest.mark.parametrize("center", [False, True])
def test_a_second_pass_is_that_of_the_library(center):
    rows = np.random.default_rng(3).standard_normal((900, 60)) * 0.9 ** np.arange(60) + 1.0
    data = da.from_array(rows, chunks=(200, 25))
    template = fs.FrequentDirections(12, method="tfd", solver="gram", center=center)
    sketch = fsd.fit(template, data)
    before = sketch.to_bytes()
    found, expected = fsd.refine(sketch, data, fan_in=2), sketch.copy().refine(rows)
    assert np.allclose(found.singular_values, expected.singular_values, rtol=1e-10)
    assert np.allclose(found.spectrum().high, expected.spectrum().high, rtol=1e-8)
    assert sketch.to_bytes() == before
    assert np.array_equal(fsd.refine(sketch, [lambda: rows]).sketch(), fsd.refine(sketch, [delayed(rows)]).sketch())
    exact = fsd.fit(fs.FrequentDirections(12, solver="exact"), data)
    assert fsd.refine(exact, data).to_bytes() == exact.to_bytes()
    with pytest.warns(UserWarning, match="not the same rows"):
        fsd.refine(sketch, data[:400])
    with pytest.raises(ValueError, match="60 columns"):
        fsd.refine(sketch, data[:, :50])
    with pytest.raises(ValueError, match="no rows"):
        fsd.refine(template, data)
    with pytest.raises(ValueError, match="finite"):
        fsd.refine(sketch, [lambda: rows * np.nan])
