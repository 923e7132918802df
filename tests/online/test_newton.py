"""SketchedNewton against the papers' algorithms with an explicit H, and the promises of every model."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch import reference
from fastsketch._core.losses import LOSSES, ONLINE_LOSSES
from fastsketch._kernels import pool
from fastsketch._kernels.online.numbers import RANK, ROWS
from tests.data.sources.helpers import labelled
from tests.helpers import papers, same_state

RNG = np.random.default_rng(0)
CASES = [("rfd", 0.0), ("rfd", 1.0), ("fd", 1000.0), ("pfd", 1000.0)]
CONSTRAINTS = ("current", "next", "both", None)
# The papers' loss, (z - y)^2.
PAPERS = {"loss": "square", "loss_scale": 2.0}


def stream(n=600, d=25, seed=0, density=0.3):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    labels = np.sign(rows @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n))
    return rows, np.where(labels == 0, 1.0, labels)


def referenced(rows, y, m, *, method, alpha0, loss, loss_scale=1.0, constraint):
    common = {"alpha0": alpha0, "loss": loss, "loss_scale": loss_scale, "constraint": constraint}
    return reference.fast_online_newton(rows, y, sketch_size=m, method=method, **common)


@pytest.fixture(scope="module")
def a9a_rows():
    from tests.helpers import data_dir

    path = data_dir() / "a9a" / "a9a.gz"
    if not path.exists():
        pytest.skip("data set absent: a9a (set FASTSKETCH_DATA)")
    rows, y = labelled(path)
    return rows[:3000], np.where(np.asarray(y[:3000]) > 0, 1.0, -1.0)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize(("method", "alpha0"), CASES)
def test_rounds_of_a9a(a9a_rows, method, alpha0, constraint, amount):
    """Dense and implicit sparse form, the alpha = 0 phase, changes of rank and rebases: 1e-8 relative."""
    n = amount(250, 3000)
    rows, y = a9a_rows[0][:n], a9a_rows[1][:n]
    options = {"method": method, "alpha0": alpha0, "constraint": constraint, **PAPERS}
    w, losses, scores = referenced(rows.toarray(), y, 10, **options)
    for given in (rows, rows.toarray()):
        model = papers.SketchedNewton(10, **options).update(given, y)
        assert np.abs(model.coef - w).max() <= 1e-8 * np.abs(w).max()
        assert np.abs(model.last_scores - scores).max() <= 1e-8 * max(1, np.abs(scores).max())
        assert np.isclose(model.progress["cumulative_loss"], losses.sum(), rtol=1e-9)
        assert np.isclose(model.progress["error_rate"], np.mean(scores * y <= 0), atol=1.5 / n)


def test_farm_ads_with_columns_that_occur(dataset, amount):
    """Wide sparse rows: the explicit H is kept small by the columns that some rounds use."""
    n = amount(100, 600)
    rows = sparse.csr_array(sparse.load_npz(dataset("farm-ads/X_raw.npz")))[:n]
    y = np.where(np.load(dataset("farm-ads/y_raw.npy")).ravel()[:n] > 0, 1.0, -1.0)
    used = np.flatnonzero(np.asarray((rows != 0).sum(axis=0)).ravel())[: amount(300, 900)]
    rows = sparse.csr_array(rows[:, used])
    w, _, scores = referenced(rows.toarray(), y, 10, method="rfd", alpha0=0.0, constraint="current", **PAPERS)
    model = papers.SketchedNewton(10, alpha0=0.0, **PAPERS).update(rows, y)
    assert model._learned.sparse
    assert np.abs(model.coef - w).max() <= 1e-8 * np.abs(w).max()
    assert np.abs(model.last_scores - scores).max() <= 1e-8 * np.abs(scores).max()


@pytest.mark.parametrize("constraint", ["current", "next"])
@pytest.mark.parametrize(("method", "alpha0"), [("rfd", 0.0), ("rfd", 0.5)])
@pytest.mark.parametrize("loss", ONLINE_LOSSES)
def test_every_loss(loss, method, alpha0, constraint):
    rows, y = stream(300)
    options = {"method": method, "alpha0": alpha0, "constraint": constraint, "loss": loss}
    options["loss_scale"] = 2.0 if loss == "square" else 1.0
    w, losses, _ = referenced(rows, y, 5, **options)
    for given in (rows, sparse.csr_array(rows)):
        model = papers.SketchedNewton(5, **options).update(given, y)
        assert np.abs(model.coef - w).max() <= 1e-7 * max(1.0, np.abs(w).max())
        assert np.isclose(model.progress["cumulative_loss"], losses.sum(), rtol=1e-8)


def test_accuracy_on_a9a(dataset):
    """RFD paper, Table 2, l = 10, no parameter to tune: 83.3% in the paper."""
    rows, y = labelled(dataset("a9a/a9a.gz"))
    y = np.where(np.asarray(y) > 0, 1.0, -1.0)
    order = np.random.default_rng(0).permutation(rows.shape[0])
    half = int(0.7 * len(order))
    for model in (papers.SketchedNewton(10, **PAPERS), papers.SketchedNewton()):
        model.update(rows[order[:half]], y[order[:half]])
        assert np.mean((model.decision_function(rows[order[half:]]) > 0) == (y[order[half:]] > 0)) > 0.83


@pytest.mark.parametrize("constraint", ["current", "both"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("method", "alpha0"), CASES)
def test_any_batches_and_any_stops_give_the_same_bits(method, alpha0, form, constraint):
    rows, y = stream(400)
    rows = sparse.csr_array(rows) if form == "sparse" else rows
    make = lambda: papers.SketchedNewton(4, method=method, alpha0=alpha0, constraint=constraint, **PAPERS)  # noqa: E731
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
        parts.coef  # noqa: B018  reading changes nothing
    assert np.array_equal(parts.coef, whole.coef)
    assert parts.progress == whole.progress


def test_resumed_in_a_new_process_to_the_same_bits(tmp_path):
    rows, y = stream(300)
    np.savez(tmp_path / "stream.npz", rows=rows, y=y)
    papers.SketchedNewton(4, **PAPERS).update(sparse.csr_array(rows[:137]), y[:137]).save(tmp_path / "half.fsk")
    code = """if True:
        import fastsketch as fs, numpy as np
        from scipy import sparse
        with np.load("stream.npz") as s:
            model = fs.load("half.fsk").update(sparse.csr_array(s["rows"][137:]), s["y"][137:])
        model.save("whole.fsk")
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    whole = papers.SketchedNewton(4, **PAPERS).update(sparse.csr_array(rows), y)
    assert np.array_equal(fs.load(tmp_path / "whole.fsk").coef, whole.coef)
    assert fs.load(tmp_path / "whole.fsk").progress == whole.progress


@pytest.mark.parametrize("alpha0", [0.0, 1e-12, 1e-6, 1e-3, 1.0, 1e3])
def test_rfd_is_stable_for_any_alpha0(alpha0):
    """The papers' point: where FD needs its alpha, RFD gives finite coefficients and about the same error for all."""
    rows, y = stream(2000, density=1.0)
    model = papers.SketchedNewton(6, alpha0=alpha0, **PAPERS).update(rows / 5, y)
    assert np.isfinite(model.coef).all()
    assert model.progress["error_rate"] < 0.25


@pytest.mark.usefixtures("threaded_blas")
@pytest.mark.parametrize("method", ["rfd", "fd"])
def test_the_same_bits_for_any_number_of_threads(method):
    """Rows so wide that products and rebases go to the pool in parts."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 24_000)) / 150
    y = np.where(rng.random(50) < 0.5, 1.0, -1.0)
    before, found = pool.get(), []
    try:
        for n_threads in (1, 2, 3, 8):
            pool.use(n_threads)
            found.append(papers.SketchedNewton(20, method=method, alpha0=1.0).update(rows, y).coef)
    finally:
        pool.use(before)
    assert all(np.array_equal(found[0], other) for other in found[1:])


def kept_rows(model):
    """Return Z' and X of a sketched model, dense."""
    learned = model._learned
    n = int(learned.count[ROWS])
    if learned.sparse:
        return learned.rows.z.T, learned.rows.as_csr(n, model.n_features).toarray()
    return learned.rows.z, learned.rows.kept[:n]


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["rfd", "fd"])
def test_nothing_drifts_in_a_million_rounds(method, form, amount):
    """The small space (K = B B', its inverse) is that of the rows themselves; coefficients are finite."""
    rows, y = stream(amount(2_500, 50_000), 12, density=0.25)
    rows = sparse.csr_array(rows / 5) if form == "sparse" else rows / 5
    model = papers.SketchedNewton(4, method=method, alpha0=1.0, **PAPERS)
    for _ in range(20):
        model.update(rows, y)
    r, space = int(model._learned.count[RANK]), model._learned.space
    z, kept = kept_rows(model)
    b = np.vstack([space.frame[:r, :r] @ z[:r], space.factors[: len(kept), None] * kept])
    gram, k = b @ b.T, r + len(kept)
    assert np.abs(space.small[:k, :k] - gram).max() <= 1e-9 * np.abs(gram).max()
    product = space.inverse[:k, :k] @ (gram + model.alpha * np.eye(k))
    assert np.abs(product - np.eye(k)).max() <= 1e-8
    assert np.isfinite(model.coef).all()
    assert model.n_rows == amount(50_000, 1_000_000)


def test_divergence_names_its_cause_and_changes_nothing():
    rows, y = stream(300, density=1.0)
    model = papers.SketchedNewton(3, method="fd", alpha0=1e-280, constraint=None, **PAPERS).update(rows[:2], y[:2])
    before = model.to_bytes()
    with pytest.raises(FloatingPointError, match="alpha"):
        model.update(1e150 * rows[2:], y[2:])
    assert model.to_bytes() == before


def test_scores_stay_within_one():
    rows, y = stream(500)
    for constraint in ("next", "both"):
        model = papers.SketchedNewton(5, constraint=constraint, **PAPERS).update(rows, y)
        assert np.abs(model.last_scores).max() <= 1 + 1e-12
    model = papers.SketchedNewton(5, **PAPERS)
    for i in range(200):
        model.update(rows[i], y[i])
        assert abs(model.decision_function(rows[i])[0]) <= 1 + 1e-8


def test_progress_and_regret():
    rows, y = stream(400)
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    model = (
        papers.SketchedNewton(8, constraint=None, **PAPERS)
        .compare_with(best)
        .update(rows[:250], y[:250])
        .update(rows[250:], y[250:])
    )
    theirs = ((rows @ best - y) ** 2).sum()
    assert np.isclose(model.progress["regret"], model.progress["cumulative_loss"] - theirs)
    assert model.progress["n_rows"] == 400
    assert papers.SketchedNewton(5).progress["regret"] is None
    late = papers.SketchedNewton(8, constraint=None, **PAPERS).update(rows[:250], y[:250])
    so_far = late.progress["cumulative_loss"]
    late.compare_with(best).update(rows[250:], y[250:])
    mine = late.progress["cumulative_loss"] - so_far
    assert np.isclose(late.progress["regret"], mine - ((rows[250:] @ best - y[250:]) ** 2).sum())


def test_zero_rows_and_known_targets_teach_nothing():
    model = papers.SketchedNewton(4).update(np.zeros((5, 3)), np.ones(5))
    assert (model.coef == 0).all()
    assert model.n_rows == 5
    assert papers.SketchedNewton(4, **PAPERS).update(np.ones((3, 2)), np.zeros(3)).progress["cumulative_loss"] == 0


@pytest.mark.parametrize("method", ["rfd", "fd", "pfd"])
def test_rows_that_share_no_feature(method):
    """Every shrink meets directions that have nothing to do with those kept: F is singular, and Z is recomputed."""
    rows = sparse.csr_array(np.hstack([np.eye(40), np.zeros((40, 60))]))
    y = np.where(np.arange(40) % 3, 1.0, -1.0)
    model = papers.SketchedNewton(3, method=method, alpha0=1.0, **PAPERS).update(rows, y)
    w = reference.fast_online_newton(rows.toarray(), y, sketch_size=3, alpha0=1.0, method=method, **PAPERS)[0]
    assert np.allclose(model.coef, w)
    assert (np.sign(model.decision_function(rows)) == y).all()


def test_labels_zero_and_one():
    rows, y = stream(200)
    one = papers.SketchedNewton(4, loss="logistic").update(rows, y)
    two = papers.SketchedNewton(4, loss="logistic").update(rows, (y > 0).astype(int))
    assert np.array_equal(one.coef, two.coef)


def test_unfitted_and_bad_queries():
    model = papers.SketchedNewton(3)
    with pytest.raises(ValueError, match="no rows"):
        model.predict(np.ones((2, 4)))
    assert same_state(fs.from_bytes(model.to_bytes()), model)
    model.update(np.ones((2, 4)), [1, -1])
    with pytest.raises(ValueError, match="4 columns"):
        model.predict(np.ones((2, 5)))
    with pytest.raises(ValueError, match="finite"):
        model.predict(np.full((2, 4), np.nan))
    with pytest.raises(ValueError, match="comparator"):
        model.compare_with(np.ones(5))
    with pytest.raises(ValueError, match="comparator must be a vector"):
        model.compare_with(np.ones((4, 1)))
    with pytest.raises(ValueError, match="5 columns as the comparator"):
        papers.SketchedNewton().compare_with(np.ones(5)).update(np.ones((2, 4)), [1, -1])
    with pytest.raises(ValueError, match="no rows"):
        papers.SketchedNewton().compare_with(np.ones(5)).coef  # noqa: B018


def test_predictions_are_on_the_scale_of_the_targets():
    rows, y = stream(300)
    for loss in ONLINE_LOSSES:
        model = papers.SketchedNewton(4, loss=loss, alpha0=1.0).update(rows, y)
        scores = model.decision_function(rows)
        assert np.array_equal(scores, rows @ model.coef)
        labels = np.where(scores > 0, 1.0, -1.0)
        assert np.array_equal(model.predict(rows), labels if LOSSES[loss].targets == "label" else scores)
        if loss == "logistic":
            assert np.allclose(model.predict_proba(rows)[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-12)
        elif LOSSES[loss].targets == "real":
            with pytest.raises(ValueError, match="predict_proba needs a loss of labels, this model has"):
                model.predict_proba(rows)
    model = papers.SketchedNewton(4).update(rows[:5], y[:5])
    assert model.predict(np.zeros((1, 25))) == [-1.0]  # a score of 0


def test_the_loss_scale_is_a_factor_of_the_weights():
    """loss="square", loss_scale=2 is (z - y)^2 to the bit: products with 2 and 1/2 are exact."""
    rng = np.random.default_rng(0)
    z, y, weight = 10.0 ** rng.integers(-30, 30, (3, 5000)) * rng.standard_normal((3, 5000))
    square = LOSSES["square"]
    assert np.array_equal((2.0 * weight) * square.value(z, y, 0.0), weight * (z - y) ** 2)
    assert np.array_equal((2.0 * weight) * square.slope(z, y, 0.0), weight * (2.0 * (z - y)))
    rows, y = stream(300)
    weights = rng.random(300)
    for make in (fs.SketchedNewton, fs.AdaptiveSubgradient):
        one = make(4, loss="square", loss_scale=2.0)._learn(rows, y, weights, mean_weight=1.0)
        two = make(4, loss="square")._learn(rows, y, 2.0 * weights, mean_weight=1.0)
        assert np.array_equal(one.coef, two.coef)
        assert one.progress == two.progress
    # the weight of all rows as one number
    one, two = (papers.SketchedNewton(4).update(rows, y, sample_weight=w) for w in (3.0, np.full(300, 3.0)))
    assert np.array_equal(one.coef, two.coef)


def test_counts_and_places_of_a_file_are_checked():
    rows, y = stream(60, density=0.2)
    for given in (rows, sparse.csr_array(rows)):
        model = papers.SketchedNewton(4).update(given, y)
        for entry in (RANK, ROWS):
            broken = model.copy()
            broken._learned.count[entry] = 1000
            with pytest.raises(fs.StateError, match="must lie in"):
                fs.from_bytes(broken.to_bytes())
    assert model._learned.sparse and model._learned.count[ROWS] > 0
    model._learned.rows.kept_indices[:] = 25
    with pytest.raises(fs.StateError, match="column index outside"):
        fs.from_bytes(model.to_bytes())


def test_copies_hold_the_last_scores():
    rows, y = stream(60)
    model = papers.SketchedNewton(4).update(rows, y)
    assert np.array_equal(model.copy().last_scores, model.last_scores)
    assert fs.from_bytes(model.to_bytes()).last_scores.shape == (0,)


def test_facts_and_repr():
    model = fs.SketchedNewton(4, method="pfd", alpha0=1.0)
    assert repr(model) == "<SketchedNewton(sketch_size=4, method='pfd', alpha0=1.0): no rows yet>"
    facts = model.update(*stream(60)).facts()
    assert facts["kind"] == "SketchedNewton"
    assert (facts["n_rows"], facts["n_features"], facts["beta"], facts["alpha"]) == (60, 25, 0.2, 1.0)
    assert facts["mean_loss"] == model.progress["mean_loss"]
    assert "regret" not in facts


# -- weights -----------------------------------------------------------------------------------------------------------
# alpha0 = 5 is too small for "fd" without a constraint: a last bit of the rows grows a millionfold there
@pytest.mark.parametrize("constraint", ["current", None])
@pytest.mark.parametrize(("method", "alpha0"), [("rfd", 0.0), ("rfd", 0.5), ("fd", 50.0)])
@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_weights_against_an_explicit_h(loss, method, alpha0, constraint):
    rows, y = stream(300)
    weights = np.random.default_rng(2).choice([0.0, 0.1, 1.0, 9.0], 300)
    kept = weights > 0  # the others are left out, and these are weighed relative to the mean weight so far
    relative = weights[kept] / (np.cumsum(weights[kept]) / np.arange(1, kept.sum() + 1))
    options = {"method": method, "alpha0": alpha0, "constraint": constraint, "loss": loss, "loss_scale": 2.0}
    given = {**options, "sample_weight": relative}
    w, losses, _ = reference.fast_online_newton(rows[kept], y[kept], sketch_size=5, **given)
    for x in (rows, sparse.csr_array(rows)):
        model = papers.SketchedNewton(5, **options).update(x, y, sample_weight=weights)
        assert np.abs(model.coef - w).max() <= 1e-7 * max(1.0, np.abs(w).max())
        assert np.isclose(model.progress["cumulative_loss"], losses.sum(), rtol=1e-8)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_a_heavy_row_moves_as_its_copies_do(loss):
    """It went the shorter way the more it weighed: its weight stood in H squared."""
    rows, y = stream(400)
    model = papers.SketchedNewton(5, alpha0=20.0, constraint=None, loss=loss).update(rows[:390], y[:390])
    for x, t in zip(rows[390:], -y[390:], strict=True):
        moves = {}
        for times in (1, 2, 4):
            heavy, copies = model.copy().update(x, t, sample_weight=float(times)), model.copy()
            for _ in range(times):
                copies.update(x, t)
            moves[times] = x @ (heavy.coef - model.coef)
            if times <= 2:  # at more the slope has changed under the copies
                assert moves[times] / (x @ (copies.coef - model.coef)) == pytest.approx(1, abs=0.35)
        assert abs(moves[4]) > abs(moves[2]) > abs(moves[1])


@pytest.mark.parametrize("weight", [1e-300, 1e-12, 1e300])
def test_weights_of_any_size_leave_a_model_of_numbers(weight):
    rows, y = stream(60)
    model = papers.SketchedNewton(5, alpha0=1.0, loss="logistic")
    try:
        model.update(rows, y, sample_weight=weight)
    except FloatingPointError:
        assert model.n_rows == 0
    else:
        assert np.isfinite(model.coef).all()
