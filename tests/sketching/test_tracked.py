"""Tracked FD against its reference in plain NumPy: rows, certificate and ledger of every engine."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastsketch as fs
from fastsketch import reference as ref
from fastsketch.sketching._engines import by_column
from tests.helpers import DTYPES, stream, tol

L = 7
BETA = 0.45
# Streams whose choice of spared rows is no matter of rounding.
KINDS = ("noise", "signal", "heavy", "drift")


def blocks_of(rows, first, later):
    """The rows of every shrink: a buffer of `first` rows that are all new, then `later` each time."""
    cuts = [0, *range(first, len(rows) + 1, later)]
    return [rows[a:b] for a, b in zip(cuts, cuts[1:], strict=False)], rows[cuts[-1] :]


def read(sketch, rest):
    """As the library reads: rows that wait are stacked, and shrunk if there are more than l."""
    return ref.tracked_merge([sketch], L, x=rest, beta=BETA, flush=len(sketch.v) + len(rest) > L)


def same(model, found, *, dtype, scale):
    """The sketch, its certificate and its ledger, whose matrices are compared as what they stand for."""
    summary, unit = model._engine.clone().summary(), 2.0**model._engine.exponent
    vt, allowed = by_column(model._engine, summary.vt), 2 * tol(dtype, scale)
    b = model.sketch().astype(np.float64)
    assert np.abs(b.T @ b - found.b.T @ found.b).max() <= allowed
    assert abs(model.shrinkage - found.delta) <= allowed
    for mine, theirs in ((summary.seen, found.seen), (summary.leaked, found.leaked)):
        big = vt.T @ mine @ vt * unit * unit
        assert np.abs(big - found.v.T @ theirs @ found.v).max() <= 2 * allowed  # of turns, which rounding adds up in
    assert abs(summary.lost * unit * unit - found.lost) <= allowed
    spectrum, (values, _) = model.spectrum(), found.read_out()
    assert (spectrum.low <= spectrum.values).all() and (spectrum.values <= spectrum.high).all()
    most = min(len(spectrum.values), len(values))
    assert (
        np.abs(spectrum.values[:most] - np.clip(values[:most], spectrum.low[:most], spectrum.high[:most])).max(
            initial=0.0
        )
        <= 2 * allowed
    )


@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [12, 33])
@pytest.mark.parametrize(("n", "b"), [(90, 0), (100, L), (101, 12), (6, L), (7, L), (13, L), (16, 1)])
def test_dense(solver, dtype, kind, d, n, b):
    rows = stream(kind, np.random.default_rng(3), n, d).astype(dtype)
    model = fs.FrequentDirections(L, method="tfd", solver=solver, buffer_size=b).update(rows)
    exact = rows.astype(np.float64)
    blocks, rest = blocks_of(exact, L + b, b + 1)
    sketch = ref.tracked_frequent_directions(blocks, L, beta=BETA) if blocks else ref.tracked_empty(d)
    same(model, read(sketch, rest), dtype=dtype, scale=(exact**2).sum())


@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("kind", ["noise", "signal"])
@pytest.mark.parametrize("d", [1, 5, L - 1, L])
def test_few_columns(solver, kind, d):
    """Fewer than the sketch has rows: nothing is lost, and the ledger says so."""
    rows = stream(kind, np.random.default_rng(4), 80, d)
    model = fs.FrequentDirections(L, method="tfd", solver=solver).update(rows)
    blocks, rest = blocks_of(rows, 2 * L, L + 1)
    found = read(ref.tracked_frequent_directions(blocks, L, beta=BETA), rest)
    same(model, found, dtype=np.float64, scale=(rows**2).sum())
    if d < L:
        assert np.allclose(model.spectrum().values, np.linalg.eigvalsh(rows.T @ rows)[::-1], rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size, d", [(20, 33), (33, 200), (64, 129)])
def test_buffers_large_enough_for_packed_panels(dtype, size, d):
    rows = stream("signal", np.random.default_rng(size), 6 * size, d).astype(dtype)
    model = fs.FrequentDirections(size, method="tfd", solver="gram").update(rows)
    exact = rows.astype(np.float64)
    blocks, rest = blocks_of(exact, 2 * size, size + 1)
    found = ref.tracked_frequent_directions([*blocks, rest], size, beta=BETA)
    same(model, found, dtype=dtype, scale=(exact**2).sum())


def scarce(seed, n, d, dtype):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.08)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", [0, 11, None])
def test_sparse(dtype, b):
    rows = scarce(5, 300, 60, dtype)
    model = fs.FrequentDirections(L, method="tfd", solver="gram", buffer_size=b).update(csr_array(rows))
    assert model._engine.kind == "sparse"
    exact = rows.astype(np.float64)
    b = 6 * L if b is None else b
    blocks, rest = blocks_of(exact, L + b, b + 1)
    found = read(ref.tracked_frequent_directions(blocks, L, beta=BETA), rest)
    same(model, found, dtype=dtype, scale=(exact**2).sum())


def settled(rows, weights, *, center, decay, b):
    """Reference of a stream that is weighted, decayed and centred by the means of its blocks (FROSH Algorithm 1)."""
    sketch, mean, total = ref.tracked_empty(rows.shape[1]), np.zeros(rows.shape[1]), 0.0
    room, start = L + b - center, 0
    while start < len(rows):
        x, w = rows[start : start + room], weights[start : start + room]
        full = len(x) == room
        start += len(x)
        factor = decay ** len(x)
        w = w * decay ** np.arange(len(x) - 1, -1, -1)
        sketch, total = sketch.faded(factor), total * factor
        if center:
            own = w @ x / w.sum()
            shift = np.sqrt(total * w.sum() / (total + w.sum())) * (own - mean)
            mean, total = (total * mean + w.sum() * own) / (total + w.sum()), total + w.sum()
            x = np.vstack([np.sqrt(w)[:, None] * (x - own), shift])
        else:
            x = np.sqrt(w)[:, None] * x
        flush = full or len(sketch.v) + len(x) > L
        sketch = ref.tracked_merge([sketch], L, x=x, beta=BETA, flush=flush)
        room = b + 1 - center
    return sketch


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("center", "decay"), [(True, 1.0), (False, 0.97), (True, 0.97)])
@pytest.mark.parametrize("n", [160, 163, 168])
def test_weights_decay_and_centring(kind, dtype, center, decay, n):
    rng = np.random.default_rng(n)
    rows = scarce(8, n, 50, dtype) if kind == "sparse" else stream("signal", rng, n, 50).astype(dtype) + dtype(1)
    weights, b = rng.uniform(0.1, 2.0, n), 11
    model = fs.FrequentDirections(L, method="tfd", solver="gram", buffer_size=b, center=center, decay=decay)
    model.update(csr_array(rows) if kind == "sparse" else rows, weights)
    assert model._engine.kind == kind
    exact = rows.astype(np.float64)
    found = settled(exact, weights, center=center, decay=decay, b=b)
    same(model, found, dtype=dtype, scale=(weights @ exact**2).sum())


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_fade_and_merge(kind, dtype):
    """Three sketches of different lengths, one so short that it has lost nothing."""
    d, b = 40, 11
    make = {"dense": np.asarray, "sparse": csr_array}[kind]
    models, found, scale = [], [], 0.0
    for seed, n in ((1, 100), (2, 5), (3, 61)):
        rows = scarce(seed, n, d, dtype) if kind == "sparse" else stream("noise", np.random.default_rng(seed), n, d)
        rows = rows.astype(dtype)
        model = fs.FrequentDirections(L, method="tfd", solver="gram", buffer_size=b).update(make(rows)).fade(0.7)
        blocks, rest = blocks_of(rows.astype(np.float64), L + b, b + 1)
        one = ref.tracked_frequent_directions(blocks, L, beta=BETA) if blocks else ref.tracked_empty(d)
        models.append(model)
        found.append(read(one, rest).faded(0.7))
        scale += (rows.astype(np.float64) ** 2).sum()
    one, model = found[0], models[0]
    for theirs, other in zip(found[1:], models[1:], strict=True):
        fits = len(one.v) + len(theirs.v) <= L
        one = ref.tracked_merge([one, theirs], L, x=np.empty((0, d)), beta=BETA, flush=not fits)
        model.merge(other)
        same(model, one, dtype=dtype, scale=scale)
    more = scarce(9, b + 1, d, dtype)  # a shrink after a merge finds kept rows that no shrink has left
    model.update(make(more))
    one = ref.tracked_merge([one], L, x=more.astype(np.float64), beta=BETA)
    same(model, one, dtype=dtype, scale=scale)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_merges_of_centred_sketches_carry_the_mean(kind, center):
    """A merge is that of the two and of the correction row between their means."""
    d, b = 40, 11
    parts = [scarce(seed, n, d, np.float64) + (kind == "dense") for seed, n in ((1, 102), (2, 77))]
    make = {"dense": np.asarray, "sparse": csr_array}[kind]
    options = {"method": "tfd", "solver": "gram", "buffer_size": b, "center": center}
    models = [fs.FrequentDirections(L, **options).update(make(part)) for part in parts]
    found = [settled(part, np.ones(len(part)), center=center, decay=1.0, b=b) for part in parts]
    n, m = map(len, parts)
    shift = np.sqrt(n * m / (n + m)) * (parts[1].mean(axis=0) - parts[0].mean(axis=0))[np.newaxis]
    one = ref.tracked_merge(found, L, x=shift if center else shift[:0], beta=BETA)
    same(models[0].merge(models[1]), one, dtype=np.float64, scale=sum((part**2).sum() for part in parts))


@pytest.mark.parametrize("map_kind", ["srht", "gaussian", "countsketch"])
def test_mapped_rows(map_kind, monkeypatch):
    """Behind a random map: the reference gets the rows that the map gives."""
    from fastsketch.sketching._engines import DenseEngine

    model = fs.FrequentDirections(L, method="tfd", compressor=fs.Compressor(map_kind, rows_out=9, block_rows=30))
    mapped, update = [], DenseEngine.update

    def recorded(self, rows, weights=None, **options):
        mapped.append(np.array(rows, np.float64))
        update(self, rows, weights, **options)

    monkeypatch.setattr(DenseEngine, "update", recorded)
    model.update(stream("noise", np.random.default_rng(2), 300, 20))
    monkeypatch.undo()
    rows = np.vstack(mapped)
    blocks, rest = blocks_of(rows, L + 9, 10)
    found = read(ref.tracked_frequent_directions(blocks, L, beta=BETA), rest)
    same(model, found, dtype=np.float64, scale=(rows**2).sum())


def test_a_shrink_spares_what_holds_most_not_what_is_longest():
    """Loud rows first, then many of a weaker kind: the ledger knows what the shortened rows hold."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    loud = rng.standard_normal((60, 3)) * 3 @ q[:3]
    weak = rng.standard_normal((900, 2)) * 2 @ q[3:5] + 0.3 * rng.standard_normal((900, 40))
    rows = np.vstack([loud, weak])
    true = np.linalg.eigvalsh(rows.T @ rows)[::-1]
    error = {}
    for method in ("fd", "pfd", "tfd"):
        spectrum = fs.FrequentDirections(14, method=method, solver="gram").update(rows).spectrum()
        error[method] = np.abs(spectrum.values[:5] / true[:5] - 1).max()
    assert error["tfd"] < 0.05
    assert error["tfd"] < 0.5 * min(error["fd"], error["pfd"])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_shrink_after_a_merge_that_left_all_rows(kind):
    """Three rows and four: as many kept rows as the sketch may have, one more than a shrink leaves."""
    make, b, d = {"dense": np.asarray, "sparse": csr_array}[kind], 11, 60
    rows = scarce(3, L + b, d, np.float64)
    rows[:L, :L] += np.diag(np.linspace(3, 2, L))  # none of them is zero
    models = [fs.FrequentDirections(L, method="tfd", solver="gram", buffer_size=b) for _ in range(2)]
    merged = models[0].update(make(rows[:3])).merge(models[1].update(make(rows[3:L])))
    assert merged._engine.state.kept == L
    one = ref.tracked_merge([ref.tracked_empty(d)], L, x=rows[:L], beta=BETA, flush=False)
    same(merged, one, dtype=np.float64, scale=(rows**2).sum())
    merged.update(make(rows[L:]))
    assert merged._engine.state.kept == L - 1
    same(merged, ref.tracked_merge([one], L, x=rows[L:], beta=BETA), dtype=np.float64, scale=(rows**2).sum())


@pytest.mark.parametrize(("buffer_size", "center"), [(0, False), (1, True)])
@pytest.mark.parametrize("tolerance", [None, 0.3])
def test_a_merge_leaves_room_for_another_row(buffer_size, center, tolerance):
    """A state with a full buffer can be neither saved and loaded, nor added to."""
    rows = np.random.default_rng(0).standard_normal((12, 7))
    more = {} if tolerance is None else {"tolerance": tolerance}
    for size, n in ((2, 1), (3, 2), (5, 2), (5, 4), (5, 6)):
        models = [
            fs.FrequentDirections(size, method="tfd", solver="gram", buffer_size=buffer_size, center=center, **more)
            for _ in range(2)
        ]
        merged = models[0].update(rows[:n]).merge(models[1].update(rows[n : 2 * n]))
        assert fs.from_bytes(merged.to_bytes()).to_bytes() == merged.to_bytes()
        moved = rows[: 2 * n] - (rows[: 2 * n].mean(axis=0) if center else 0.0)
        b = merged.sketch()
        error = np.linalg.eigvalsh(moved.T @ moved - b.T @ b)
        assert error[0] > -1e-9 and error[-1] <= merged.error_bound * (1 + 1e-9)
