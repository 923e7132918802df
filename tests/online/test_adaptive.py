"""AdaptiveSubgradient and AdaptiveGrid against the ADA-FD paper's algorithms, and the promises of every model."""

import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch import reference
from fastsketch.io import load_svmlight
from fastsketch.online import _adaptive, _projected
from fastsketch.online._losses import LOSSES, loss_and_slope

RNG = np.random.default_rng(0)
ROUNDS = 3000
SKETCHED = {
    "ada-fd": reference.adaptive_frequent_directions,
    "ada-ffd": reference.adaptive_fast_frequent_directions,
    "fd-son": reference.sketched_newton_subgradient,
}
BOTH_FORMS = ("ada-fd", "ada-ffd", "fd-son", "ada-full", "ada-diag")
PENALTIES = (None, ("l1", 0.02), ("l2", 0.05))


def stream(n=500, d=30, seed=0, density=0.3):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < density) / np.sqrt(np.arange(1, d + 1))
    return rows, rows @ rng.standard_normal(d) + 0.1 * rng.standard_normal(n)


class Drawn:
    """Stands for a generator: the numbers that the fast version draws."""

    def __init__(self, method, tau, d):
        self.config, self.d, self.round = fs.AdaptiveSubgradient(tau, method)._config, d, 0

    def standard_normal(self, shape):
        self.round += 1
        pi = _projected.projection(self.config, self.d, self.round)
        return pi if self.config.method == "ada-lr" else pi.T * np.sqrt(shape[0])


def referenced(method, rows, y, loss, tau, eta, delta, form="cmd", penalty=None):
    rows = rows.toarray() if sparse.issparse(rows) else rows
    n, d = rows.shape

    def subgradient(t, beta):
        value, slope = loss_and_slope(loss, rows[t - 1] @ beta, y[t - 1])
        return float(value), slope * rows[t - 1]

    if method in SKETCHED:
        return SKETCHED[method](d, n, subgradient, tau, eta, delta, form, penalty)
    if method == "ada-full":
        return reference.adaptive_full(d, n, subgradient, eta, delta, form, penalty)
    if method == "ada-diag":
        return reference.adaptive_diagonal(d, n, subgradient, eta, delta, form, penalty)
    if method == "ogd":
        return reference.online_gradient_descent(d, n, subgradient, eta, penalty)
    if method == "adam":
        return reference.adam(d, n, subgradient, eta, epsilon=delta, penalty=penalty)
    call = reference.adaptive_low_rank if method == "ada-lr" else reference.radagrad
    return call(d, n, subgradient, tau, eta, delta, Drawn(method, tau, d))


def made(method, loss, tau, eta, delta, form="cmd", penalty=None):
    name, strength = penalty or (None, 0.0)
    return fs.AdaptiveSubgradient(tau, method, form, loss, eta, delta, penalty=name, strength=strength)


def agrees(model, w, losses, rtol=1e-8):
    assert np.abs(model.weights - w).max() <= rtol * np.abs(w).max()
    assert np.isclose(model.progress["cumulative_loss"], losses.sum(), rtol=rtol)
    assert model.n_rounds == len(losses)


@pytest.fixture(scope="module")
def a9a_rows():
    from tests.helpers import data_dir

    path = data_dir() / "a9a" / "a9a.gz"
    if not path.exists():
        pytest.skip("data set absent: a9a (set FASTSKETCH_DATA)")
    rows, y = load_svmlight(path)
    return rows[:ROUNDS], np.where(np.asarray(y[:ROUNDS]) > 0, 1.0, -1.0)


def all_cases():
    for method in _adaptive.METHODS:
        for form in ("cmd", "pds") if method in BOTH_FORMS else ("cmd",):
            yield method, form


@pytest.mark.parametrize(("method", "form"), list(all_cases()))
def test_three_thousand_rounds_of_a9a(a9a_rows, method, form):
    """Both forms of rows, changes of rank, shrinks and rebases: 1e-8 relative.

    delta = 10: with 1 and this loss the reference itself answers a change of 1e-15 in its rows with 8e-8.
    """
    rows, y = a9a_rows
    if method in ("ada-full", "ada-lr"):
        rows, y = rows[:800], y[:800]  # the reference takes 3 ms a round
    w, losses = referenced(method, rows, y, "squared_hinge", 10, 0.1, 10.0, form)
    for given in (rows, rows.toarray()):
        agrees(made(method, "squared_hinge", 10, 0.1, 10.0, form).update(given, y), w, losses)


@pytest.mark.parametrize(("method", "form"), list(all_cases()))
def test_farm_ads_with_columns_that_occur(dataset, method, form):
    """Wide sparse rows; the reference is kept small by the columns that 400 rounds use."""
    rows = sparse.csr_array(sparse.load_npz(dataset("farm-ads/X_raw.npz")))[:400]
    y = np.where(np.load(dataset("farm-ads/y_raw.npy")).ravel()[:400] > 0, 1.0, -1.0)
    used = np.flatnonzero(np.asarray((rows != 0).sum(axis=0)).ravel())[: 300 if method == "ada-full" else 700]
    rows = sparse.csr_array(rows[:, used])
    w, losses = referenced(method, rows, y, "logistic", 10, 0.1, 1.0, form)
    model = made(method, "logistic", 10, 0.1, 1.0, form).update(rows, y)
    assert model._a["sparse"] == (method not in ("ada-full", "ada-lr", "radagrad"))
    agrees(model, w, losses)


@pytest.mark.parametrize("penalty", PENALTIES[1:])
@pytest.mark.parametrize(("method", "form"), [case for case in all_cases() if case[0] not in ("ada-lr", "radagrad")])
def test_penalties(method, form, penalty):
    rows, y = stream(200, 12)
    w, losses = referenced(method, rows, y, "huber", 4, 0.3, 1.0, form, penalty)
    for given in (rows, sparse.csr_array(rows)):
        model = made(method, "huber", 4, 0.3, 1.0, form, penalty).update(given, y)
        agrees(model, w, losses, 1e-8)
    if penalty[0] == "l1" and form == "pds":
        strong = made(method, "huber", 4, 0.3, 1.0, form, ("l1", 10.0)).update(rows, y)
        assert (strong.weights == 0).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", ["ada-ffd", "ada-diag", "radagrad"])
def test_every_loss(method, loss):
    rows, y = stream(300)
    y = np.sign(y)
    w, losses = referenced(method, rows, y, loss, 5, 0.1, 1.0)
    agrees(made(method, loss, 5, 0.1, 1.0).update(rows, y), w, losses)


def test_losses_are_the_same_in_every_kernel():
    from fastsketch._kernels import diagonal, newton

    for name, (number, labels) in LOSSES.items():
        for z in (-40.0, -1.5, -0.3, 0.0, 0.2, 1.0, 3.0, 40.0):
            for y in (-1.0, 1.0) if labels else (-1.0, 0.0, 0.3, 1.0):
                expected = [float(part) for part in loss_and_slope(name, np.float64(z), y)]
                for found in (diagonal.loss_of(number, z, y), newton.loss_and_slope(number, z, y)):
                    assert found == pytest.approx(expected, rel=1e-14, abs=1e-300), (name, z, y)


def test_numbers_of_the_kernels():
    assert [_adaptive.DIAGONAL.index(name) for name in ("ada-diag", "ogd", "adam")] == [0, 1, 2]
    assert [_adaptive.PENALTIES[name] for name in (None, "l1", "l2")] == [0, 1, 2]


def basis(model):
    """V' of a sketched model, (rank, d)."""
    a = model._a
    rank, rows, old = (int(a["count"][i]) for i in (0, 1, 3))
    if not a["sparse"]:
        return a["turn"][:rank, :rows] @ a["rows"][:rows]
    fresh = rows - old
    end = a["kept_indptr"][fresh]
    kept = sparse.csr_array(
        (a["kept_data"][:end], a["kept_indices"][:end], a["kept_indptr"][: fresh + 1]), shape=(fresh, model.n_features)
    ).toarray()
    c = np.vstack([a["frame"][:old, :old] @ a["z"][:, :old].T, kept])
    return a["turn"][:rank, :rows] @ c


@pytest.mark.parametrize("rank", [3, 12])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["ada-ffd", "ada-fd", "ada-full"])
def test_directions_stay_orthonormal_for_a_million_rounds(method, form, rank):
    """max |V'V - I| <= 1e-10 after 1,000,000 rounds, of full rank and of rank 3, where nothing ever shrinks."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 12)) * (rng.random((2000, 12)) < 0.25)
    if rank == 3:
        rows = rng.standard_normal((2000, 3)) @ rows[:3] * (rng.random((2000, 1)) < 0.9)
    y = rows @ rng.standard_normal(12)
    model = fs.AdaptiveSubgradient(4, method, eta=0.01)
    model.update(sparse.csr_array(rows[:1] if form == "sparse" and method != "ada-full" else rows[:1]), y[:1])
    model._a = model._start(12, form == "sparse" and method != "ada-full")
    for _ in range(500):
        model.update(rows, y)
    v = basis(model)
    assert model.n_rounds == 1_000_000
    assert len(v) == min(rank, 12) if method == "ada-full" else len(v) >= 3
    assert np.abs(v @ v.T - np.eye(len(v))).max() <= 1e-10


@pytest.mark.parametrize("size", [1e-5, 1e-3, 1e-2])
def test_rows_of_low_rank_and_directions_hardly_there(size):
    """Directions that are nothing but rounding stay out; ones that are small but there come in."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 40))
    rows[150:] += size * rng.standard_normal((150, 40)) * (rng.random((150, 1)) < 0.5)
    y = rows @ rng.standard_normal(40)
    for loss in ("square", "absolute"):
        w, losses = referenced("ada-ffd", rows, y, loss, 6, 0.05, 1.0)
        model = made("ada-ffd", loss, 6, 0.05, 1.0).update(rows[:150], y[:150])
        assert model._a["count"][0] == 4
        agrees(model.update(rows[150:], y[150:]), w, losses)
    if size > 1e-5:  # sparse rows see no residual below 3e-7 of the row
        wide = sparse.csr_array(np.hstack([rows, np.zeros((300, 200))]))
        model = made("ada-ffd", "absolute", 6, 0.05, 1.0).update(wide[:150], y[:150])
        assert model._a["sparse"]
        assert model._a["count"][0] == 4
        model.update(wide[150:], y[150:])
        v = basis(model)
        assert np.abs(v @ v.T - np.eye(len(v))).max() <= 1e-10
        agrees(model, np.concatenate([w, np.zeros(200)]), losses, 1e-7)
        # row by row, each of which may ask for room for a direction of its own
        single = made("ada-ffd", "absolute", 6, 0.05, 1.0)
        for i in range(300):
            single.update(wide[i : i + 1], y[i : i + 1])
        assert np.array_equal(single.weights, model.weights)


@pytest.mark.parametrize("penalty", [None, "l1", "l2"])
def test_the_grid_is_every_point_of_it(penalty):
    rows, y = stream(400, density=0.12)
    etas, deltas = [0.01, 0.1, 1.0], [0.3, 3.0]
    for method, form in all_cases():
        if penalty and method in ("ada-lr", "radagrad"):
            continue
        options = {"penalty": penalty, "strength": 0.02 if penalty else 0.0}
        for given in (rows, sparse.csr_array(rows)):
            grid = fs.AdaptiveGrid(etas, deltas, 5, method, form, **options).update(given[:170], y[:170])
            grid = fs.from_bytes(grid.to_bytes()).update(given[170:], y[170:])
            for i, eta in enumerate(etas):
                for j, delta in enumerate(deltas):
                    one = fs.AdaptiveSubgradient(5, method, form, "absolute", eta, delta, **options).update(given, y)
                    assert np.isclose(grid.cumulative_loss[i, j], one.progress["cumulative_loss"], rtol=1e-10)
            i, j = np.unravel_index(grid.cumulative_loss.argmin(), (3, 2))
            best = grid.best()
            assert (best.eta, best.delta) == (etas[i], deltas[j])
            one = fs.AdaptiveSubgradient(5, method, form, "absolute", etas[i], deltas[j], **options).update(given, y)
            assert np.allclose(best.weights, one.weights, rtol=1e-9, atol=1e-12)
            assert np.allclose(grid.weights, best.weights, rtol=1e-12, atol=1e-14)
            assert np.allclose(best.update(given, y).weights, one.update(given, y).weights, rtol=1e-8, atol=1e-11)
    with pytest.raises(TypeError, match="regret"):
        grid.compare_with(np.ones(30))


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("method", "way"), list(all_cases()))
def test_any_batches_and_any_stops_give_the_same_bits(method, way, form, penalty):
    if penalty and method in ("ada-lr", "radagrad"):
        with pytest.raises(ValueError, match="no penalty"):
            made(method, "huber", 4, 0.3, 1.0, way, penalty)
        return
    rows, y = stream(300, density=0.12)  # of which the first batch, however short, is sparse enough
    rows = sparse.csr_array(rows) if form == "sparse" else rows
    make = lambda: made(method, "huber", 4, 0.3, 1.0, way, penalty)  # noqa: E731
    whole = make().update(rows, y)
    parts, i = make(), 0
    while i < 300:
        step = int(RNG.integers(1, 40)) if RNG.random() < 0.5 else 1 + 19 * (i == 0)
        parts.update(rows[i : i + step], y[i : i + step])
        i += step
        if step % 5 == 0:
            parts = fs.from_bytes(parts.to_bytes())
        elif step % 5 == 1:
            parts = pickle.loads(pickle.dumps(parts))
        parts.weights  # noqa: B018  reading changes nothing
    assert np.array_equal(parts.weights, whole.weights)
    assert parts.progress == whole.progress


def test_a_hundred_cut_points_in_new_processes(tmp_path):
    """Saved after every third of 300 rounds, loaded in a new process and continued: the same bits, all methods."""
    rows, y = stream(300, density=0.12)
    np.savez(tmp_path / "stream.npz", rows=rows, y=y)
    models = {"newton": fs.SketchedNewton(4), "oja": fs.SketchedNewton(4, "oja", alpha0=1.0)}
    models.update({f"{method}-{form}": made(method, "square", 4, 0.1, 1.0, form) for method, form in all_cases()})
    for cut in range(0, 300, 3):
        for name, model in models.items():
            if cut:
                model.update(sparse.csr_array(rows[cut - 3 : cut]), y[cut - 3 : cut])
            model.save(tmp_path / f"{name}-{cut}.fsk")
    code = """if True:
        import sys, fastsketch as fs, numpy as np
        from scipy import sparse
        with np.load("stream.npz") as s:
            rows, y = sparse.csr_array(s["rows"]), s["y"]
        for name in sys.argv[1:]:
            for cut in range(0, 300, 3):
                model = fs.load(f"{name}-{cut}.fsk").update(rows[cut:], y[cut:])
                whole = model if cut == 0 else whole
                assert np.array_equal(model.weights, whole.weights), (name, cut)
                assert model.progress == whole.progress, (name, cut)
            print(name, "same bits")
    """
    out = subprocess.run(
        [sys.executable, "-c", code, *models], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert out.stdout.count("same bits") == len(models)


def test_sample_weights_scale_the_loss():
    rows, y = stream(300)
    weights = RNG.integers(0, 3, 300).astype(float)
    n, d = rows.shape

    def subgradient(t, beta):
        value, slope = loss_and_slope("huber", rows[t - 1] @ beta, y[t - 1])
        return weights[t - 1] * float(value), weights[t - 1] * slope * rows[t - 1]

    w, losses = reference.adaptive_fast_frequent_directions(d, n, subgradient, 5, 0.3, 1.0)
    for given in (rows, sparse.csr_array(rows)):
        agrees(made("ada-ffd", "huber", 5, 0.3, 1.0).update(given, y, weights), w, losses)
    w, losses = reference.adaptive_diagonal(d, n, subgradient, 0.3, 1.0)
    agrees(made("ada-diag", "huber", 5, 0.3, 1.0).update(rows, y, weights), w, losses)
    # in the Newton learner as well: a weight of zero is an example left out, but for its round
    only = fs.SketchedNewton(5, loss="huber").update(rows, y, np.ones(300))
    assert np.array_equal(only.weights, fs.SketchedNewton(5, loss="huber").update(rows, y).weights)
    heavy = fs.SketchedNewton(5, loss="huber", alpha0=1.0).update(rows, y, weights)
    assert not np.array_equal(heavy.weights, only.weights)
    assert fs.SketchedNewton(5).update(rows, y, np.zeros(300)).weights.any() == False  # noqa: E712
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        fs.SketchedNewton(5).update(rows, y, -np.ones(300))


def test_cost_of_a_round_grows_as_stated():
    """Dense: about d; sparse: about nnz, not d. Exponents from minima of several runs, with room for noise."""

    def seconds(d, nnz=None, tau=10, method="ada-ffd"):
        rng = np.random.default_rng(0)
        if nnz is None:
            rows = rng.standard_normal((300, d))
        else:
            rows = sparse.csr_array(
                (rng.standard_normal(300 * nnz), rng.integers(0, d, 300 * nnz), np.arange(0, 300 * nnz + 1, nnz)),
                shape=(300, d),
            )
            rows.sum_duplicates()
        model = fs.AdaptiveSubgradient(tau, method).update(rows, np.ones(300))
        best = np.inf
        for _ in range(5):
            start = time.perf_counter()
            model.update(rows, np.ones(300))
            best = min(best, time.perf_counter() - start)
        return best

    exponent = np.log(seconds(16_000) / seconds(2_000)) / np.log(8)
    assert exponent < 1.5
    assert seconds(16_000, 20, method="ada-diag") < 0.2 * seconds(16_000, method="ada-diag")


def test_regret_and_progress():
    rows, y = stream(400)
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    model = fs.AdaptiveSubgradient(8, eta=1.0).compare_with(best).update(rows[:250], y[:250])
    model = fs.from_bytes(model.to_bytes()).update(rows[250:], y[250:])
    assert np.isclose(model.progress["regret"], model.progress["cumulative_loss"] - np.abs(rows @ best - y).sum())
    assert model.progress["rounds"] == 400
    assert model.progress["error_rate"] < 0.3


def test_an_interrupt_leaves_the_model_before_or_after():
    class Stop(Exception):
        pass

    def ring(*_):
        raise Stop

    rows, y = stream(20_000)
    old = signal.signal(signal.SIGALRM, ring)
    try:
        for method in ("ada-ffd", "ada-diag", "radagrad"):
            n = 20_000 if method != "radagrad" else 300
            model = made(method, "absolute", 4, 0.1, 1.0).update(rows[:100], y[:100])
            before, after = model.to_bytes(), model.copy().update(rows[:n], y[:n]).to_bytes()
            for delay in np.geomspace(1e-4, 0.05, 12):
                trial = fs.from_bytes(before)
                signal.setitimer(signal.ITIMER_REAL, delay)
                try:
                    trial.update(rows[:n], y[:n])
                except Stop:
                    pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                assert trial.to_bytes() in (before, after)
    finally:
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize(("method", "form"), list(all_cases()))
def test_what_leaves_the_range_is_refused_and_named(method, form):
    rows, y = stream(100, density=1.0)
    for given in (rows, sparse.csr_array(rows * (RNG.random(rows.shape) < 0.2))):
        model = made(method, "square", 4, 0.1, 1.0, form).update(given[:20], y[:20])
        before = model.to_bytes()
        with pytest.raises(FloatingPointError, match="eta = 0.1"):
            model.update(given[20:] * 1e160, y[20:])
        assert model.to_bytes() == before
        with pytest.raises(FloatingPointError, match="round"):
            model.update(given[20:21] * 1e160, y[20:21])
        assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("rows", "targets", "error", "match"),
    [
        (np.ones((3, 4)), [1, 1], ValueError, "each of the 3 rows"),
        (np.ones((3, 4)), [1, np.nan, 1], ValueError, "entry 1"),
        (np.full((3, 4), np.inf), [1, 1, 1], ValueError, "finite"),
        (np.ones((3, 5)), [1, 1, 1], ValueError, "4 columns"),
        (np.ones((3, 4), complex), [1, 1, 1], TypeError, "real"),
    ],
)
def test_bad_batches_change_nothing(rows, targets, error, match):
    for method in _adaptive.METHODS:
        model = fs.AdaptiveSubgradient(3, method).update(RNG.standard_normal((20, 4)), np.ones(20))
        before = model.to_bytes()
        with pytest.raises(error, match=match):
            model.update(rows, targets)
        assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"sketch_size": 1}, ValueError, "sketch_size"),
        ({"method": "x"}, ValueError, "method"),
        ({"form": "x"}, ValueError, "form"),
        ({"loss": "x"}, ValueError, "loss"),
        ({"eta": 0.0}, ValueError, "eta"),
        ({"eta": -1}, ValueError, "eta"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"eta": "a"}, TypeError, "eta"),
        ({"penalty": "l3", "strength": 1.0}, ValueError, "penalty"),
        ({"penalty": "l1"}, ValueError, "go together"),
        ({"strength": 1.0}, ValueError, "go together"),
        ({"strength": -1.0}, ValueError, "strength"),
        ({"method": "adam", "form": "pds"}, ValueError, "mirror-descent form"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_parameters_are_named(options, error, match):
    with pytest.raises(error, match=match):
        fs.AdaptiveSubgradient(**options)


def test_empty_grids_and_odd_shapes():
    with pytest.raises(ValueError, match="empty"):
        fs.AdaptiveGrid([], [1.0])
    assert fs.AdaptiveGrid(0.1, 1.0).cumulative_loss.shape == (1, 1)
    for method in _adaptive.METHODS:
        model = fs.AdaptiveSubgradient(3, method)
        with pytest.raises(ValueError, match="no rows"):
            model.predict(np.ones((2, 4)))
        assert model.update(np.zeros((4, 1)), np.ones(4)).weights == 0
        model.update(np.ones((40, 1)), np.ones(40)).update(np.empty((0, 1)), [])
        assert model.n_rounds == 44
        assert repr(model).startswith("<AdaptiveSubgradient")
