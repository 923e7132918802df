"""SketchedNewton against the papers' algorithms with an explicit H, and the promises of every model."""

import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch import reference
from fastsketch.io import load_svmlight
from fastsketch.online._newton import _draws
from fastsketch.sketching import random_normal
from tests.helpers import same_state

RNG = np.random.default_rng(0)
ROUNDS = 3000
CASES = [("rfd", 0.0), ("rfd", 1.0), ("fd", 1000.0), ("pfd", 1000.0), ("rp", 100.0), ("oja", 100.0), ("full", 1.0)]
PROJECTIONS = ("same", "next", "both", "none")
LOSSES = ("square", "logistic", "squared_hinge", "huber", "absolute")


def stream(n=600, d=25, seed=0, density=0.3):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    labels = np.sign(rows @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n))
    return rows, np.where(labels == 0, 1.0, labels)


class Drawn:
    """Stands for a generator: the numbers that the fast version draws, one row of them a round."""

    def __init__(self, m):
        self.config, self.round = fs.SketchedNewton(m, "rp", alpha0=1.0)._config, 0

    def standard_normal(self, shape):
        if isinstance(shape, tuple):
            return random_normal(0, 3, shape[0] * shape[1]).reshape(shape)
        self.round += 1
        return _draws(self.config, self.round - 1, 1)[0] * np.sqrt(shape)


def referenced(rows, y, m, sketch, alpha0, loss, projection):
    if sketch == "rp":
        return reference.random_projection_newton(rows, y, m, alpha0, Drawn(m), loss=loss, projection=projection)
    if sketch == "oja":
        return reference.oja_newton(rows, y, m, alpha0, Drawn(m), loss=loss, projection=projection)
    if sketch == "full":
        return reference.full_online_newton(rows, y, alpha0, loss=loss, projection=projection)
    return reference.fast_online_newton(rows, y, m, alpha0, rule=sketch, loss=loss, projection=projection)


@pytest.fixture(scope="module")
def a9a_rows():
    from tests.helpers import data_dir

    path = data_dir() / "a9a" / "a9a.gz"
    if not path.exists():
        pytest.skip("data set absent: a9a (set FASTSKETCH_DATA)")
    rows, y = load_svmlight(path)
    return rows[:ROUNDS], np.where(np.asarray(y[:ROUNDS]) > 0, 1.0, -1.0)


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize(("sketch", "alpha0"), CASES)
def test_three_thousand_rounds_of_a9a(a9a_rows, sketch, alpha0, projection):
    """Dense and implicit sparse form, the alpha = 0 phase, changes of rank and rebases: 1e-8 relative."""
    rows, y = a9a_rows
    if sketch == "rp" and projection in ("next", "both"):
        pytest.skip("rounds that teach nothing draw numbers here, and none in the reference")
    w, losses, predictions = referenced(rows.toarray(), y, 10, sketch, alpha0, "square", projection)
    for given in (rows, rows.toarray()):
        model = fs.SketchedNewton(10, sketch, alpha0=alpha0, projection=projection).update(given, y)
        assert np.abs(model.weights - w).max() <= 1e-8 * np.abs(w).max()
        assert np.abs(model.last_predictions - predictions).max() <= 1e-8 * max(1, np.abs(predictions).max())
        assert np.isclose(model.progress["cumulative_loss"], losses.sum(), rtol=1e-9)
        assert np.isclose(model.progress["error_rate"], np.mean(predictions * y <= 0), atol=1.5 / ROUNDS)


def test_farm_ads_with_columns_that_occur(dataset):
    """Wide sparse rows: the explicit H is kept small by the columns that 600 rounds use."""
    rows = sparse.csr_array(sparse.load_npz(dataset("farm-ads/X_raw.npz")))[:600]
    y = np.where(np.load(dataset("farm-ads/y_raw.npy")).ravel()[:600] > 0, 1.0, -1.0)
    used = np.flatnonzero(np.asarray((rows != 0).sum(axis=0)).ravel())[:900]
    rows = sparse.csr_array(rows[:, used])
    w, _, predictions = referenced(rows.toarray(), y, 10, "rfd", 0.0, "square", "same")
    model = fs.SketchedNewton(10).update(rows, y)
    assert model._a["sparse"]
    assert np.abs(model.weights - w).max() <= 1e-8 * np.abs(w).max()
    assert np.abs(model.last_predictions - predictions).max() <= 1e-8 * np.abs(predictions).max()


@pytest.mark.parametrize("projection", ["same", "next"])
@pytest.mark.parametrize(("sketch", "alpha0"), [("rfd", 0.0), ("rfd", 0.5), ("oja", 1.0), ("full", 1.0)])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss(loss, sketch, alpha0, projection):
    rows, y = stream(300)
    w, losses, _ = referenced(rows, y, 5, sketch, alpha0, loss, projection)
    for given in (rows, sparse.csr_array(rows)):
        model = fs.SketchedNewton(5, sketch, loss, alpha0, projection).update(given, y)
        assert np.abs(model.weights - w).max() <= 1e-7 * max(1.0, np.abs(w).max())
        assert np.isclose(model.progress["cumulative_loss"], losses.sum(), rtol=1e-8)


def test_accuracy_on_a9a(dataset):
    """RFD paper, Table 2, l = 10, no parameter to tune: 83.3% in the paper."""
    rows, y = load_svmlight(dataset("a9a/a9a.gz"))
    y = np.where(np.asarray(y) > 0, 1.0, -1.0)
    order = np.random.default_rng(0).permutation(rows.shape[0])
    half = int(0.7 * len(order))
    model = fs.SketchedNewton(10).update(rows[order[:half]], y[order[:half]])
    assert np.mean(np.sign(model.predict(rows[order[half:]])) == y[order[half:]]) > 0.83


@pytest.mark.parametrize("projection", ["same", "both"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("sketch", "alpha0"), CASES)
def test_any_batches_and_any_stops_give_the_same_bits(sketch, alpha0, form, projection):
    rows, y = stream(400)
    rows = sparse.csr_array(rows) if form == "sparse" else rows
    make = lambda: fs.SketchedNewton(4, sketch, alpha0=alpha0, projection=projection)  # noqa: E731
    whole = make().update(rows, y)
    parts, i = make(), 0
    while i < 400:
        step = int(RNG.integers(1, 40)) if RNG.random() < 0.5 else 1
        parts.update(rows[i : i + step], y[i : i + step])
        i += step
        if step % 5 == 0:
            parts = fs.from_bytes(parts.to_bytes())
        elif step % 5 == 1:
            parts = pickle.loads(pickle.dumps(parts))
        parts.weights  # noqa: B018  reading changes nothing
    assert np.array_equal(parts.weights, whole.weights)
    assert parts.progress == whole.progress


def test_resumed_in_a_new_process_to_the_same_bits(tmp_path):
    rows, y = stream(300)
    np.savez(tmp_path / "stream.npz", rows=rows, y=y)
    fs.SketchedNewton(4).update(sparse.csr_array(rows[:137]), y[:137]).save(tmp_path / "half.fsk")
    code = """if True:
        import fastsketch as fs, numpy as np
        from scipy import sparse
        with np.load("stream.npz") as s:
            model = fs.load("half.fsk").update(sparse.csr_array(s["rows"][137:]), s["y"][137:])
        model.save("whole.fsk")
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    whole = fs.SketchedNewton(4).update(sparse.csr_array(rows), y)
    assert np.array_equal(fs.load(tmp_path / "whole.fsk").weights, whole.weights)
    assert fs.load(tmp_path / "whole.fsk").progress == whole.progress


@pytest.mark.parametrize("alpha0", [0.0, 1e-12, 1e-6, 1e-3, 1.0, 1e3])
def test_rfd_is_stable_for_any_alpha0(alpha0):
    """The papers' point: where FD needs its alpha, RFD gives finite weights and about the same error for all."""
    rows, y = stream(2000, density=1.0)
    model = fs.SketchedNewton(6, alpha0=alpha0).update(rows / 5, y)
    assert np.isfinite(model.weights).all()
    assert model.progress["error_rate"] < 0.25


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_ojas_directions_stay_orthonormal(form):
    """A million rounds: |V V' - I| at the level of rounding, also within an epoch."""
    rows, y = stream(50_000, 12, density=0.25)
    rows = sparse.csr_array(rows / 5) if form == "sparse" else rows / 5
    model = fs.SketchedNewton(4, "oja", alpha0=100.0)
    for _ in range(20):
        model.update(rows, y)
    assert model.n_rounds == 1_000_000
    a = model._a
    z = a["z"].T if form == "sparse" else a["z"]
    n = int(a["count"][1])
    if form == "sparse":
        kept = sparse.csr_array(
            (
                a["kept_data"][: a["kept_indptr"][n]],
                a["kept_indices"][: a["kept_indptr"][n]],
                a["kept_indptr"][: n + 1],
            ),
            shape=(n, 12),
        ).toarray()
    else:
        kept = a["kept"][:n]
    v = a["frame"][:, : 4 + n] @ np.vstack([z, kept])
    assert np.abs(v @ v.T - np.eye(4)).max() <= 1e-12


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("sketch", ["rfd", "fd"])
def test_nothing_drifts_in_a_million_rounds(sketch, form):
    """What is kept in the small space (K = B B', its inverse) is what the rows themselves give; weights are finite."""
    rows, y = stream(50_000, 12, density=0.25)
    rows = sparse.csr_array(rows / 5) if form == "sparse" else rows / 5
    model = fs.SketchedNewton(4, sketch, alpha0=1.0)
    for _ in range(20):
        model.update(rows, y)
    a = model._a
    r, n = int(a["count"][0]), int(a["count"][1])
    z = a["z"][:, :r].T if form == "sparse" else a["z"][:r]
    kept = (
        a["kept"][:n]
        if form == "dense"
        else sparse.csr_array(
            (
                a["kept_data"][: a["kept_indptr"][n]],
                a["kept_indices"][: a["kept_indptr"][n]],
                a["kept_indptr"][: n + 1],
            ),
            shape=(n, 12),
        ).toarray()
    )
    b = np.vstack([a["frame"][:r, :r] @ z, a["coef"][:n, None] * kept])
    gram, k = b @ b.T, r + n
    assert np.abs(a["small"][:k, :k] - gram).max() <= 1e-9 * np.abs(gram).max()
    product = a["inverse"][:k, :k] @ (gram + model.alpha * np.eye(k))
    assert np.abs(product - np.eye(k)).max() <= 1e-8
    assert np.isfinite(model.weights).all()
    assert model.n_rounds == 1_000_000


def test_divergence_names_its_cause_and_changes_nothing():
    rows, y = stream(300, density=1.0)
    model = fs.SketchedNewton(3, "fd", alpha0=1e-280, projection="none").update(rows[:2], y[:2])
    before = model.to_bytes()
    with pytest.raises(FloatingPointError, match="alpha"):
        model.update(1e150 * rows[2:], y[2:])
    assert model.to_bytes() == before


def test_predictions_stay_within_one():
    rows, y = stream(500)
    for projection in ("next", "both"):
        model = fs.SketchedNewton(5, projection=projection).update(rows, y)
        assert np.abs(model.last_predictions).max() <= 1 + 1e-12
    model = fs.SketchedNewton(5)
    for i in range(200):
        model.update(rows[i], y[i])
        assert abs(model.predict(rows[i])[0]) <= 1 + 1e-8


def test_progress_and_regret():
    rows, y = stream(400)
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    model = (
        fs.SketchedNewton(8, projection="none")
        .compare_with(best)
        .update(rows[:250], y[:250])
        .update(rows[250:], y[250:])
    )
    theirs = ((rows @ best - y) ** 2).sum()
    assert np.isclose(model.progress["regret"], model.progress["cumulative_loss"] - theirs)
    assert model.progress["rounds"] == 400
    assert fs.SketchedNewton(5).progress["regret"] is None
    late = fs.SketchedNewton(8, projection="none").update(rows[:250], y[:250])
    so_far = late.progress["cumulative_loss"]
    late.compare_with(best).update(rows[250:], y[250:])
    mine = late.progress["cumulative_loss"] - so_far
    assert np.isclose(late.progress["regret"], mine - ((rows[250:] @ best - y[250:]) ** 2).sum())


def test_numbers_that_two_files_share():
    from fastsketch._kernels import newton as kernel
    from fastsketch.online import _losses, _newton

    for name, (number, _) in _losses.LOSSES.items():
        assert getattr(kernel, name.upper()) == number
    for name, number in _newton.PROJECTIONS.items():
        assert getattr(kernel, "NO_PROJECTION" if name == "none" else name.upper()) == number
    for name in ("ALPHA", "SHRINKAGE", "LOSS", "RANK", "ROWS", "ROUND", "MISTAKES", "FULL", "APPENDED"):
        assert getattr(kernel, name) == getattr(_newton, name)


def test_zero_rows_and_known_targets_teach_nothing():
    model = fs.SketchedNewton(4).update(np.zeros((5, 3)), np.ones(5))
    assert (model.weights == 0).all()
    assert model.n_rounds == 5
    assert fs.SketchedNewton(4).update(np.ones((3, 2)), np.zeros(3)).progress["cumulative_loss"] == 0


@pytest.mark.parametrize("sketch", ["rfd", "fd", "pfd", "rp", "oja"])
def test_rows_that_share_no_feature(sketch):
    """Every shrink meets directions that have nothing to do with those kept: F is singular, and Z is made anew."""
    rows = sparse.csr_array(np.hstack([np.eye(40), np.zeros((40, 60))]))
    y = np.where(np.arange(40) % 3, 1.0, -1.0)
    model = fs.SketchedNewton(3, sketch, alpha0=1.0).update(rows, y)
    if sketch in ("rfd", "fd", "pfd"):
        w = reference.fast_online_newton(rows.toarray(), y, 3, 1.0, rule=sketch)[0]
        assert np.allclose(model.weights, w)
    if sketch != "rp":  # whose H is not diagonal here
        assert (np.sign(model.predict(rows)) == y).all()


def test_labels_zero_and_one():
    rows, y = stream(200)
    one = fs.SketchedNewton(4, loss="logistic").update(rows, y)
    two = fs.SketchedNewton(4, loss="logistic").update(rows, (y > 0).astype(int))
    assert np.array_equal(one.weights, two.weights)


def test_an_interrupt_leaves_the_model_before_or_after():
    class Stop(Exception):
        pass

    def ring(*_):
        raise Stop

    rows, y = stream(20_000)
    model = fs.SketchedNewton(4).update(rows[:100], y[:100])
    before, after = model.to_bytes(), model.copy().update(rows, y).to_bytes()
    old = signal.signal(signal.SIGALRM, ring)
    try:
        for delay in np.geomspace(1e-4, 0.1, 12):
            trial = fs.from_bytes(before)
            signal.setitimer(signal.ITIMER_REAL, delay)
            try:
                trial.update(rows, y)
            except Stop:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert trial.to_bytes() in (before, after)
    finally:
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize(
    ("rows", "targets", "error", "match"),
    [
        (np.ones((3, 4)), [1, 1], ValueError, "each of the 3 rows"),
        (np.ones((3, 4)), [1, np.nan, 1], ValueError, "entry 1"),
        (np.ones((3, 4)), [1j, 1, 1], TypeError, "real"),
        (np.ones((3, 4)), ["a", "b", "c"], TypeError, "real"),
        (np.ones((3, 4)), np.ma.masked_array([1.0, 2, 3]), TypeError, "masked"),
        (np.full((3, 4), np.inf), [1, 1, 1], ValueError, "finite"),
        (np.ones((3, 5)), [1, 1, 1], ValueError, "4 columns"),
        (np.ones((3, 4), complex), [1, 1, 1], TypeError, "real"),
    ],
)
def test_bad_batches_change_nothing(rows, targets, error, match):
    model = fs.SketchedNewton(3).update(RNG.standard_normal((20, 4)), np.sign(RNG.standard_normal(20)))
    before = model.to_bytes()
    with pytest.raises(error, match=match):
        model.update(rows, targets)
    assert model.to_bytes() == before


@pytest.mark.parametrize("labels", [[1, 2, 1], [0, -1, 1], [0.5, 1, 1]])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_labels_are_named(loss, labels):
    with pytest.raises(ValueError, match="labels -1 and"):
        fs.SketchedNewton(3, loss=loss).update(np.ones((3, 4)), labels)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"sketch_size": 1}, ValueError, "sketch_size"),
        ({"sketch_size": 2.0}, TypeError, "sketch_size"),
        ({"sketch": "x"}, ValueError, "sketch"),
        ({"loss": "x"}, ValueError, "loss"),
        ({"loss": 1}, TypeError, "loss"),
        ({"alpha0": -1.0}, ValueError, "alpha0"),
        ({"sketch": "fd"}, ValueError, "alpha0 must be positive"),
        ({"projection": "x"}, ValueError, "projection"),
        ({"beta": 0.5}, ValueError, "beta"),
        ({"sketch": "pfd", "alpha0": 1.0, "beta": 2.0}, ValueError, "beta"),
    ],
)
def test_bad_parameters_are_named(options, error, match):
    with pytest.raises(error, match=match):
        fs.SketchedNewton(**options)


def test_unfitted_and_bad_queries():
    model = fs.SketchedNewton(3)
    with pytest.raises(ValueError, match="no rows"):
        model.predict(np.ones((2, 4)))
    assert same_state(fs.from_bytes(model.to_bytes()), model)
    model.update(np.ones((2, 4)), [1, -1])
    with pytest.raises(ValueError, match="4 columns"):
        model.predict(np.ones((2, 5)))
    with pytest.raises(ValueError, match="finite"):
        model.predict(np.full((2, 4), np.nan))
    with pytest.raises(ValueError, match="weights"):
        model.compare_with(np.ones(5))
