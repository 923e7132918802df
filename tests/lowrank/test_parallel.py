"""Work in parts on several threads: the same bits for every number of them, and as plain NumPy has it."""

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

import fastsketch as fs
from fastsketch._core.losses import LOSSES, as_loss_parameter
from fastsketch._kernels import pool
from fastsketch._kernels.lowrank import entries
from tests.helpers import some
from tests.lowrank.problems import PARAMETER


@pytest.fixture
def threads():
    """A function that lets kernels and BLAS have n threads."""
    before, limits = pool.get(), []

    def use(n):
        pool.use(n)
        limits.append(threadpool_limits(n, "blas"))

    yield use
    for limit in reversed(limits):
        limit.restore_original_limits()
    pool.use(before)


def large(loss, m=700, n=120, share=0.8, dtype=np.float64):
    """More entries than one part has, in rows of very different lengths."""
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n)) + 0.3 * rng.standard_normal((m, n))
    seen = rng.random((m, n)) < share * rng.random((m, 1)) ** 0.2
    seen[5] = False
    if LOSSES[loss].targets == "label":
        truth = np.where(truth > 0, 1.0, -1.0)
    elif LOSSES[loss].targets == "count":
        truth = rng.poisson(np.exp(np.clip(truth, -3, 2))).astype(float)
    rows, columns = np.nonzero(seen)
    return sparse.csr_array(sparse.coo_array((truth[rows, columns].astype(dtype), (rows, columns)), shape=(m, n)))


def answers(x, loss, **options):
    """Everything that a fit computes, as arrays."""
    model = fs.LowRankModel(3, loss=loss, loss_parameter=PARAMETER.get(loss), **options).fit(x)
    rows, columns = np.repeat(np.arange(x.shape[0]), 3), np.tile(np.arange(3), x.shape[0])
    new, side = model.fold_in(x[:300]), model.fold_in(x[:, :50], axis=1)
    found = [*model.factors(), *model.bias_terms()[1:], [line["objective"] for line in model.history]]
    found += [
        model._fitted.learned if loss == "square" and model.sweeps else model.resolved["ridge"],
        model.predict(rows, columns),
        model.predict_block(np.arange(x.shape[0])),
    ]
    found += [*model.recommend(np.arange(x.shape[0]), 7, exclude=x), new.factors, new.biases, side.factors]
    return [np.asarray(part) for part in [*found, new.predict_block(), *new.recommend(4)]]


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "case",
    some(
        [
            ("square", {"refine": "full", "sweeps": 0}),
            ("huber", {"refine": "none", "sweeps": 0}),
            ("absolute", {"max_inner_rank": 3, "sweeps": 0}),
            *((loss, {"sweeps": 2}) for loss in LOSSES),
        ],
        6,
    ),
)
def test_the_same_bits_for_every_number_of_threads(case, dtype, threads, amount):
    loss, options = case
    x = large(loss, dtype=dtype)
    threads(1)
    one = answers(x, loss, **options)
    assert x.nnz >> 14 >= 2  # parts
    for n in amount((3,), (2, 3, 8)):
        threads(n)
        for part, alone in zip(answers(x, loss, **options), one, strict=True):
            assert np.array_equal(part, alone, equal_nan=True)


def test_the_same_bits_with_few_columns_and_weights(threads):
    x = large("huber", m=9000, n=8)
    weights = x.copy()
    weights.data = np.random.default_rng(0).random(x.nnz)
    found = []
    for n in (1, 3):
        threads(n)
        model = fs.LowRankModel(2, loss="huber", sweeps=1, scaling=False).fit(x, sample_weight=weights, validation=0.2)
        found.append([*model.factors(), model.history[-1]["validation"]])
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_over_many_entries(loss):
    """Of losses, squared slopes and curvatures, against the table."""
    rng, p = np.random.default_rng(0), as_loss_parameter(loss, PARAMETER.get(loss))
    z, c = rng.standard_normal(70_001), rng.random(70_001)
    o = np.sign(rng.standard_normal(len(z))) if LOSSES[loss].targets == "label" else rng.poisson(2.0, len(z)) * 1.0
    about = LOSSES[loss]
    parts = about.value(z, o, p), about.slope(z, o, p), about.curvature(z, o, p)
    for weights in (np.empty(0), c):
        w = weights if len(weights) else np.ones_like(z)
        found = entries.objective(about.number, p, z, o, weights)
        expected = (w * parts[0]).sum(), ((w * parts[1]) ** 2).sum(), (w * parts[2]).sum()
        size = (w * np.abs(parts[0])).sum(), expected[1], expected[2]
        for one, other, scale in zip(found, expected, size, strict=True):
            assert abs(one - other) <= 2**15 * np.finfo(float).eps * scale


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (700, 120), (40_000, 3)])
def test_transposed(shape, weighted):
    from fastsketch.lowrank._data import observed_entries

    x = large("square", *shape)
    weights = x.copy()
    weights.data = np.arange(1.0, x.nnz + 1)
    turned = observed_entries(x, loss="square", sample_weight=weights if weighted else None).transpose()
    expected = observed_entries(x.T.tocsr(), loss="square", sample_weight=weights.T.tocsr() if weighted else None)
    for name in ("m", "n", "indptr", "indices", "o", "c"):
        assert np.array_equal(getattr(turned, name), getattr(expected, name))
