"""Hashes and quantizers of a summary: the same bits however the stream is split into batches, pieces and parts."""

import pickle

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import DTYPES, same_state, stream, tol

RNG = np.random.default_rng(0)
ROWS = stream("signal", np.random.default_rng(1), 1300, 40) * np.linspace(3, 0.2, 40) + np.linspace(-5, 5, 40)
MODELS = {
    "hash, random": (fs.SketchHash, {"n_bits": 12, "rotation": "random"}),
    "hash, itq": (fs.SketchHash, {"n_bits": 12, "rotation": "itq"}),
    "hash": (fs.SketchHash, {"n_bits": 12, "rotation": None}),
    "quantizer": (fs.SketchQuantizer, {"n_bytes": 8, "sketch_size": 24}),
}
METHODS = ("srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling")


@pytest.fixture(params=MODELS)
def fresh(request):
    kind, settled = MODELS[request.param]
    return lambda **options: kind(**settled, block_rows=100, seed=3, reservoir_size=150, **options)


def same(one, two):
    """Whether two models have the same state, encoder and codes."""
    return (
        same_state(one, two)
        and one.encoder().fingerprint == two.encoder().fingerprint
        and np.array_equal(one.encode(ROWS), two.encode(ROWS))
    )


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_any_batches_and_any_stops_give_the_same_bits(fresh, method, dtype):
    rows = ROWS.astype(dtype)
    whole, parts, i = fresh(method=method).update(rows), fresh(method=method), 0
    while i < len(rows):
        step = int(RNG.integers(1, 250))
        parts.update(rows[i : i + step])
        i += step
        if step % 3 == 0:
            parts = fs.from_bytes(parts.to_bytes())
        elif step % 3 == 1:
            parts = pickle.loads(pickle.dumps(parts))
        if step % 2:
            parts.encode(rows[:3])  # reading changes nothing
    assert same(whole, parts)
    assert whole.n_rows == len(rows)
    assert whole.resolved["dtype"] == dtype and whole.dtype is None
    assert np.allclose(whole.mean, rows.mean(axis=0, dtype=np.float64), rtol=0, atol=tol(dtype, 30))


@pytest.mark.parametrize("method", METHODS)
def test_merges_in_any_order_give_the_bits_of_one_stream(fresh, method):
    """Of pieces of one stream, cut at multiples of block_rows."""
    whole, cuts = fresh(method=method).update(ROWS), (0, 300, 400, 900, 1300)
    models = [
        fresh(method=method, first_block=a // 100).update(ROWS[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    before = [model.to_bytes() for model in models]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)):
        left = models[order[0]].copy().merge(models[order[1]])
        merged = left.merge(models[order[2]].copy().merge(models[order[3]]))
        assert [model.to_bytes() for model in models] == before
        assert merged.n_rows == whole.n_rows and same(merged, whole)


@pytest.mark.parametrize("method", METHODS)
def test_parts_of_any_length_merge_in_any_order_to_the_same_bits(fresh, method):
    cuts = (0, 17, 250, 251, 700, 1300)
    models = [
        fresh(method=method, part=p).update(ROWS[a:b]) for p, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False))
    ]
    chain = models[0].copy()
    for model in models[1:]:
        chain.merge(model)
    tree = models[4].copy().merge(models[2].copy().merge(models[0])).merge(models[1].copy().merge(models[3]))
    assert same(chain, tree)
    assert chain.n_rows == len(ROWS) and np.allclose(chain.mean, ROWS.mean(axis=0))
    # sealed before they are sent: the same
    sealed = [fs.from_bytes(model.seal().to_bytes()) for model in models]
    for model in sealed[1:]:
        sealed[0].merge(model)
    assert np.array_equal(sealed[0].encode(ROWS), chain.encode(ROWS))
