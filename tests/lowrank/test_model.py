"""LowRankModel against the GLRL paper's algorithms, its theorems, and the promises of every model."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

import fastsketch as fs
from fastsketch import reference
from fastsketch.lowrank._losses import LOSSES

SMOOTH = [name for name, about in LOSSES.items() if about.smooth]
ROUGH = [name for name, about in LOSSES.items() if not about.smooth]
PARAMETER = {"huber": 1.0, "quantile": 0.3, "epsilon_insensitive": 0.2}


def problem(loss="square", m=30, n=25, rank=3, share=0.5, noise=0.1, seed=0):
    """(observed values (m, n), mask) of a low-rank truth, as the loss takes them."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) + noise * rng.standard_normal((m, n))
    seen = rng.random((m, n)) < share
    if LOSSES[loss].kind == "labels":
        truth = np.where(truth > 0, 1.0, -1.0)
    elif LOSSES[loss].kind == "counts":
        truth = rng.poisson(np.exp(np.clip(truth, -3, 2))).astype(float)
    return truth, seen


def stored(o, seen):
    """CSR that stores zeros too."""
    rows, columns = np.nonzero(seen)
    return sparse.csr_array(sparse.coo_array((o[rows, columns], (rows, columns)), shape=o.shape))


def numpy_loss(loss):
    p = PARAMETER.get(loss, 0.0)

    def call(z, o):
        if loss == "square":
            return 0.5 * (z - o) ** 2, z - o
        if loss == "logistic":
            return np.logaddexp(0, -o * z), -o * expit(-o * z)
        if loss == "huber":
            r = np.abs(z - o)
            return np.where(r <= p, 0.5 * r * r, p * (r - 0.5 * p)), np.clip(z - o, -p, p)
        if loss == "poisson":
            return np.exp(z) - o * z, np.exp(z) - o
        if loss == "l1":
            return np.abs(z - o), np.sign(z - o)
        if loss == "hinge":
            return np.maximum(0, 1 - o * z), np.where(o * z < 1, -o, 0.0)
        if loss == "quantile":
            r = o - z
            return np.where(r > 0, p * r, (p - 1) * r), np.where(r > 0, -p, np.where(r < 0, 1 - p, 0.0))
        r = np.abs(z - o) - p
        return np.maximum(r, 0), np.where(r > 0, np.sign(z - o), 0.0)

    return call


def made(rank, loss="square", refine="economic", **options):
    plain = {"biases": False, "scaling": False, "power_iterations": 3000}
    return fs.LowRankModel(rank, loss, refine, **{**plain, "loss_parameter": PARAMETER.get(loss), **options})


@pytest.fixture(autouse=True)
def exact_singular_vectors(monkeypatch):
    """The reference has exact singular vectors: here the power method goes on until it has them too."""
    monkeypatch.setattr("fastsketch.lowrank._pursuit.TURNED", 1e-9)
    monkeypatch.setattr("fastsketch.lowrank._pursuit.NEWTON", 100)
    monkeypatch.setattr("fastsketch.lowrank._pursuit.LBFGS", 1000)


# of poisson without refinement there is no Lipschitz constant: its step is searched for
@pytest.mark.parametrize("scaling", [False, True])
@pytest.mark.parametrize(
    ("loss", "refine"),
    [
        (loss, refine)
        for loss in SMOOTH
        for refine in ("economic", "full", "none")
        if (loss, refine) != ("poisson", "none")
    ],
)
def test_algorithm_2(loss, refine, scaling):
    o, seen = problem(loss)
    rank = 4
    scales = None
    if scaling:
        scales = [(seen.sum(axis=k) + 30.0) ** -0.25 for k in (1, 0)]
        scales = [scale / scale.max() for scale in scales]
    x, _, objectives = reference.greedy_low_rank_smooth(
        o, seen, rank, numpy_loss(loss), LOSSES[loss].lipschitz or 50.0, refine, scales=scales
    )
    model = made(rank, loss, refine, scaling=scaling).fit(stored(o, seen))
    rows, columns = np.nonzero(np.ones_like(seen))
    z = model.decision_function(rows, columns).reshape(o.shape)
    found = [line["objective"] for line in model.history_]
    # L-BFGS, there and here, stops where it gains less than its tolerance
    assert np.allclose(found, objectives, rtol=1e-4 if loss == "poisson" else 2e-5)
    assert np.abs(z - x).max() <= 5e-3 * np.abs(x).max()


def test_square_loss_is_rank_one_matrix_pursuit():
    o, seen = problem()
    for economic, refine in ((False, "full"), (True, "economic")):
        x, residuals = reference.rank_one_matrix_pursuit(o, seen, 6, economic)
        model = made(6, "square", refine).fit(stored(o, seen))
        assert np.allclose([2 * line["objective"] for line in model.history_[1:]], residuals, rtol=1e-5)
        assert np.abs(model.predict_block(np.arange(30)) - x).max() <= 1e-2 * np.abs(x).max()


def test_the_square_loss_is_refined_to_the_end_by_default(monkeypatch):
    monkeypatch.setattr("fastsketch.lowrank._pursuit.LBFGS", 2)
    o, seen = problem()
    _, residuals = reference.rank_one_matrix_pursuit(o, seen, 6)
    model = made(6, "square", "full").fit(stored(o, seen))
    assert np.allclose([2 * line["objective"] for line in model.history_[1:]], residuals, rtol=1e-4)


def test_linear_rate_of_theorem_4():
    """Square loss, X reachable: f(X_T) <= (1 - d1^2)^T f(X_0) with d1 >= 1 / sqrt(m)."""
    o, seen = problem(m=20, n=20, noise=0.5, share=0.7)
    model = made(15, "square", "full").fit(stored(o, seen))
    f = np.array([line["objective"] for line in model.history_])
    rate = 1 - 1 / 20
    assert (f[1:] <= rate ** np.arange(1, 16) * f[0] * (1 + 1e-9)).all()
    # and what is observed is a straight line in logarithms, or steeper
    assert np.polyfit(np.arange(16), np.log(f), 1)[0] < np.log(rate)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(
    ("loss", "refine", "shrink"),
    [
        *(
            (loss, refine, shrink)
            for loss in SMOOTH
            for refine in ("economic", "full", "none")
            for shrink in (1.0, 0.4)
        ),
        *((loss, "economic", 1.0) for loss in ROUGH),
    ],
)
def test_the_objective_never_grows(loss, shrink, refine, biases):
    o, seen = problem(loss)
    model = made(8, loss, refine, shrink=shrink, biases=biases, scaling=biases).fit(stored(o, seen))
    f = np.array([line["objective"] for line in model.history_])
    assert (np.diff(f) <= 1e-9 * np.abs(f[0])).all()
    assert f[-1] < 0.97 * f[0] or refine == "none"
    z = model.decision_function(*np.nonzero(seen))
    value = numpy_loss(loss)(z, o[seen] if LOSSES[loss].kind != "labels" else np.sign(o[seen]))[0].sum()
    assert np.isclose(value, f[-1], rtol=1e-8)


@pytest.mark.parametrize("inner", ["energy", "paper"])
@pytest.mark.parametrize("loss", ROUGH)
def test_algorithm_3_with_the_printed_step(loss, inner):
    o, seen = problem(loss)
    x, objectives = reference.greedy_low_rank_nonsmooth(o, seen, 5, numpy_loss(loss), 0.3, 0.9, inner, inner_rank=3)
    model = made(15, loss, step="paper", step_size=0.3, inner=inner, nu=0.9, inner_rank=3).fit(stored(o, seen))
    found = [line["objective"] for line in model.history_]
    assert np.allclose(found[: len(objectives)], objectives, rtol=1e-5)
    k = model.history_[int(np.argmin(objectives))]["rank"]
    z = model.decision_function(*np.nonzero(np.ones_like(seen)), rank=k).reshape(o.shape)
    assert np.abs(z - x).max() <= 1e-3 * np.abs(x).max()
    assert min(found) == next(line["objective"] for line in model.history_ if line["rank"] == model.rank_)


def test_the_line_search_finds_the_lowest_point():
    for loss in ROUGH:
        o, seen = problem(loss)
        model = made(1, loss, inner_rank=1).fit(stored(o, seen))
        f = numpy_loss(loss)
        rows, columns = np.nonzero(seen)
        z = model.decision_function(rows, columns)
        values = [f(t * z, o[seen])[0].sum() for t in np.linspace(0, 2, 401)]
        assert f(z, o[seen])[0].sum() <= min(values) * (1 + 1e-6), loss


@pytest.mark.parametrize("refine", ["economic", "full", "none"])
@pytest.mark.parametrize("loss", ["square", "logistic", "l1"])
def test_every_rank_from_one_fit(loss, refine):
    o, seen = problem(loss)
    x = stored(o, seen)
    options = {"biases": True, "scaling": True, "inner_rank": 1}
    whole = made(7, loss, refine, **options).fit(x)
    rows, columns = np.nonzero(np.ones_like(seen))
    for k in range(8):
        part = made(k, loss, refine, **options).fit(x)
        assert np.array_equal(part.predict(rows, columns), whole.predict(rows, columns, rank=k))
    grown = made(3, loss, refine, **options).fit(x).add_ranks(2).add_ranks(2)
    assert np.array_equal(grown.predict(rows, columns), whole.predict(rows, columns))
    assert grown.rank == 7
    with pytest.raises(ValueError, match="rank must be one of the fit"):
        part.predict(rows, columns, rank=8)


@pytest.mark.parametrize("loss", LOSSES)
def test_fold_in_gives_training_rows_their_factors(loss):
    o, seen = problem(loss, m=60, n=40, share=0.6)
    x = stored(o, seen)
    model = made(3, loss, biases=True, scaling=True, sweeps=4, ridge=1.0, bias_ridge=1.0).fit(x)
    a, b = model.factors()
    rows = model.fold_in(x)
    _, own, _ = model.bias_terms()
    smooth = LOSSES[loss].smooth
    # losses with kinks have flat places: there it is the value, with the ridge, that agrees
    if smooth:
        assert np.abs(rows.factors - a).max() <= 1e-4 * np.abs(a).max()
        assert np.abs(rows.biases - own).max() <= 1e-4 * max(1.0, np.abs(own).max())
    f = numpy_loss(loss)
    mine = f(model.decision_function(*np.nonzero(seen)), o[seen])[0].sum() + 0.5 * ((a**2).sum() + (own**2).sum())
    folded = f(rows._block(slice(None))[seen], o[seen])[0].sum() + 0.5 * (
        (rows.factors**2).sum() + (rows.biases**2).sum()
    )
    assert abs(folded - mine) <= (1e-6 if smooth else 1e-2) * abs(mine)
    columns = model.fold_in(x, axis=1)
    assert len(columns) == 40
    assert columns.factors.shape == b.shape
    assert columns.predict_block().shape == (40, 60)


@pytest.mark.parametrize("loss", ["square", "logistic", "huber", "poisson"])
def test_fold_in_solves_its_convex_problem(loss):
    from scipy.optimize import minimize

    o, seen = problem(loss, m=40, n=30)
    model = made(2, loss, biases=True, sweeps=1, ridge=0.7, bias_ridge=0.3).fit(stored(o[:30], seen[:30]))
    new = model.fold_in(stored(o[30:], seen[30:]))
    level, _, column = model.bias_terms()
    b = model.factors()[1]
    f = numpy_loss(loss)
    for k in range(10):
        there = seen[30 + k]

        def value(x, there=there, k=k):
            z = level + column[there] + b[there] @ x[:2] + x[2]
            return f(z, o[30 + k, there])[0].sum() + 0.35 * (x[:2] ** 2).sum() + 0.15 * x[2] ** 2

        best = minimize(value, np.zeros(3), method="BFGS", options={"gtol": 1e-10}).fun
        assert value(np.append(new.factors[k], new.biases[k])) <= best + 1e-6 * max(1, abs(best))


def test_new_rows_are_predicted_and_recommended():
    o, seen = problem(m=80, n=30, noise=0.05)
    model = fs.LowRankModel(3, sweeps=10, ridge=0.1, bias_ridge=0.1, scaling=False).fit(stored(o[:60], seen[:60]))
    new = model.fold_in(stored(o[60:], seen[60:]))
    error = np.abs(new.predict_block() - o[60:])[~seen[60:]].mean()
    assert error < 0.5 * np.abs(o[60:])[~seen[60:]].mean()
    columns, scores = new.recommend(4, exclude=stored(o[60:], seen[60:]))
    for k in range(20):
        allowed = np.flatnonzero(~seen[60 + k])
        block = new.predict_block()[k]
        assert set(columns[k]) <= set(allowed)
        assert np.allclose(scores[k], np.sort(block[allowed])[::-1][:4])
    assert np.allclose(new.predict([0, 1], [3, 4]), new.predict_block()[[0, 1], [3, 4]])
    assert np.allclose(new.predict([0], [-1]), model.bias_terms()[0] + new.biases[0])
    # another fit of the model leaves what was folded in as it was
    before = new.predict_block()
    model.fit(stored(5 - o[:60], seen[:60]))
    assert np.array_equal(new.predict_block(), before)
    assert np.array_equal(new.recommend(4, exclude=stored(o[60:], seen[60:]))[0], columns)


def test_recommend_and_similar():
    o, seen = problem()
    x = stored(o, seen)
    model = fs.LowRankModel(3, clip=(-2, 2)).fit(x)
    columns, scores = model.recommend([4, -1, 7], 5, exclude=sparse.csr_array(x[[4, 0, 7]]))
    block = np.clip(model.predict_block([4, -1, 7]), -2, 2)
    for k, i in enumerate((4, -1, 7)):
        allowed = np.flatnonzero(~seen[0 if i < 0 else i])
        assert np.allclose(scores[k], np.sort(block[k][allowed])[::-1][:5])
        assert (np.diff(scores[k]) <= 0).all()
    # the whole of X names rows by their own number
    whole, _ = model.recommend([4, 7], 5, exclude=x)
    assert np.array_equal(whole, columns[[0, 2]])
    few, values = model.recommend([0], 25, exclude=x)
    assert (few[0] == -1).sum() == seen[0].sum()
    assert np.isnan(values[0][few[0] == -1]).all()
    near, cosines = model.similar(3, 4, axis=1)
    assert 3 not in near
    assert (np.diff(cosines) <= 0).all()
    b = model.factors()[1]
    b = b / np.linalg.norm(b, axis=1, keepdims=True)
    assert np.allclose(cosines, np.sort(np.delete(b @ b[3], 3))[::-1][:4])


def test_what_has_not_been_seen_is_answered_by_biases():
    o, seen = problem()
    seen[5], seen[:, 7] = False, False
    model = fs.LowRankModel(3).fit(stored(o, seen))
    level, row, column = model.bias_terms()
    assert row[5] == column[7] == 0
    assert np.allclose(
        model.predict([5, -1, 3, 3, -1], [2, 2, 7, -1, -1]), level + np.array([column[2], column[2], row[3], row[3], 0])
    )
    labels = fs.LowRankModel(2, "hinge").fit(stored(np.where(o > -1, 1.0, -1.0), seen))
    assert set(labels.predict(np.arange(30), np.zeros(30, int))) <= {-1.0, 1.0}
    assert labels.predict([-1], [-1]) == 1.0  # the more frequent label


def test_scales_of_predictions():
    o, seen = problem("logistic")
    model = fs.LowRankModel(3, "logistic").fit(stored(o, seen))
    p = model.predict(*np.nonzero(seen))
    assert ((p > 0) & (p < 1)).all()
    assert np.mean((p > 0.5) == (o[seen] > 0)) > 0.8
    zero_one = fs.LowRankModel(3, "logistic").fit(stored((o > 0).astype(float), seen))
    assert np.array_equal(zero_one.predict(*np.nonzero(seen)), p)
    counts, seen = problem("poisson")
    assert (fs.LowRankModel(2, "poisson").fit(stored(counts, seen)).predict(*np.nonzero(seen)) > 0).all()


def test_intervals_from_quantiles():
    o, seen = problem(m=80, n=60, noise=1.0)
    low, high = (fs.LowRankModel(2, "quantile", loss_parameter=p).fit(stored(o, seen)) for p in (0.1, 0.9))
    inside = (low.predict(*np.nonzero(seen)) <= o[seen]) & (o[seen] <= high.predict(*np.nonzero(seen)))
    assert 0.7 < inside.mean() < 0.9


def test_zeros_are_observations_and_nan_is_missing():
    o, seen = problem()
    o[:, 3] = 0.0
    x = stored(o, seen)
    assert x.nnz == seen.sum()
    dense = np.where(seen, o, np.nan)
    one, two = fs.LowRankModel(3).fit(x), fs.LowRankModel(3).fit(dense)
    assert np.array_equal(one.predict_block(np.arange(30)), two.predict_block(np.arange(30)))
    without = x.copy()
    without.eliminate_zeros()
    assert not np.allclose(fs.LowRankModel(3).fit(without).predict_block([0]), one.predict_block([0]))


def test_weights():
    o, seen = problem()
    x = stored(o, seen)
    twice = x.copy()
    twice.data = np.full_like(x.data, 2.0)
    # twice the loss with twice the ridge is the same problem
    one = fs.LowRankModel(3, bias_ridge=1.0).fit(x)
    two = fs.LowRankModel(3, bias_ridge=2.0).fit(x, twice)
    assert np.allclose(one.predict_block([0, 1]), two.predict_block([0, 1]), rtol=1e-5)
    some = x.copy()
    some.data = (np.arange(x.nnz) % 3 > 0).astype(float)
    kept = stored(o, np.asarray(some.toarray() > 0))
    ours = fs.LowRankModel(2, scaling=False).fit(x, some)
    assert np.allclose(
        ours.predict_block([0]), fs.LowRankModel(2, scaling=False).fit(kept).predict_block([0]), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(ValueError, match="not negative"):
        fs.LowRankModel(2).fit(x, -some)
    with pytest.raises(ValueError, match="stored where X is"):
        fs.LowRankModel(2).fit(x, kept)


def test_validation_chooses_a_rank_and_stops():
    o, seen = problem(m=80, n=60, noise=1.0, share=0.3)
    x = stored(o, seen)
    model = fs.LowRankModel(15, scaling=False).fit(x, validation=0.2)
    scores = [line["validation"] for line in model.history_]
    assert model.rank_ == int(np.argmin(scores)) < 15
    short = fs.LowRankModel(15, scaling=False).fit(x, validation=0.2, patience=2)
    stop = next(k for k in range(16) if k - int(np.argmin(scores[: k + 1])) >= 2)
    assert [line["validation"] for line in short.history_] == scores[: stop + 1]
    assert short.rank_ == stop - 2 < 13
    lines = []
    stopped = fs.LowRankModel(15).fit(x, callback=lambda line: lines.append(line) or line["rank"] == 4)
    assert stopped.rank_ == 4 == lines[-1]["rank"]
    held = stored(o, ~seen)
    assert fs.LowRankModel(3).fit(x, validation=held).history_[0]["validation"] > 0


def test_interrupted_fits_leave_the_model_as_it_was():
    o, seen = problem()
    model = fs.LowRankModel(3).fit(stored(o, seen))
    before = model.to_bytes()

    def stop(line):
        if line["rank"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(stored(2 * o, seen), callback=stop)
    assert model.to_bytes() == before
    with pytest.raises(ValueError, match="finite"):
        model.fit(stored(np.where(o > 1, np.inf, o), seen))
    assert model.to_bytes() == before
    with pytest.raises(KeyboardInterrupt):
        fs.LowRankModel(1).fit(stored(o, seen)).add_ranks(3, callback=stop)


@pytest.mark.parametrize("sweeps", [0, 2])
def test_saved_and_loaded(tmp_path, sweeps):
    o, seen = problem("huber")
    model = fs.LowRankModel(4, "huber", sweeps=sweeps, clip=(-3, 3)).fit(stored(o, seen), validation=0.1)
    model.notes["what"] = "test"
    model.save(tmp_path / "m.fsk")
    for other in (fs.load(tmp_path / "m.fsk"), pickle.loads(pickle.dumps(model)), model.copy()):
        assert np.array_equal(other.predict_block([0, 3]), model.predict_block([0, 3]))
        assert other.history_ == model.history_
        assert other.notes == {"what": "test"}
        assert other.to_bytes() == model.to_bytes()
        with pytest.raises(ValueError, match="goes on from a fit|cannot follow sweeps"):
            other.add_ranks(1)
    code = "import fastsketch as fs; print(repr(fs.load('m.fsk').predict([1], [2])[0].item()))"
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert float(out) == model.predict([1], [2])[0]
    empty = fs.LowRankModel(2)
    assert fs.from_bytes(empty.to_bytes()).to_bytes() == empty.to_bytes()


@pytest.mark.parametrize("loss", ["square", "logistic", "l1"])
def test_float32_is_near_float64(loss):
    o, seen = problem(loss)
    x = stored(o, seen)
    one, two = fs.LowRankModel(3, loss).fit(x), fs.LowRankModel(3, loss).fit(x.astype(np.float32))
    assert two.factors()[0].dtype == np.float32
    assert np.isclose(one.history_[-1]["objective"], two.history_[-1]["objective"], rtol=1e-2)
    assert fs.LowRankModel(3, loss, dtype="float32").fit(x).factors()[0].dtype == np.float32


def test_a_hundred_thousand_rows_folded_in_seconds():
    import time

    rng = np.random.default_rng(0)
    o, seen = problem(m=400, n=300, rank=5)
    model = fs.LowRankModel(5, sweeps=1).fit(stored(o, seen))
    n, each = 100_000, 20
    new = sparse.csr_array(
        (rng.standard_normal(n * each), rng.integers(0, 300, n * each), np.arange(0, n * each + 1, each)),
        shape=(n, 300),
    )
    new.sum_duplicates()
    model.fold_in(new[:10])
    start = time.perf_counter()
    folded = model.fold_in(new)
    assert time.perf_counter() - start < 10
    assert folded.factors.shape == (100_000, 5)


def test_the_median_needs_no_sort():
    from fastsketch._kernels.lowrank import weighted_median

    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 50, 999):
        for _ in range(20):
            values = rng.integers(-5, 6, n).astype(float) if rng.random() < 0.5 else rng.standard_normal(n)
            weights = rng.random(n) * (rng.random(n) < 0.8)
            found = weighted_median(values.copy(), weights.copy())
            cost = lambda x, v=values, w=weights: (w * np.abs(v - x)).sum()  # noqa: E731
            if weights.sum() == 0:
                assert np.isnan(found)
            else:
                assert cost(found) <= min(cost(x) for x in values) * (1 + 1e-12)
    assert np.isnan(weighted_median(np.empty(0), np.empty(0)))


@pytest.mark.parametrize(
    ("x", "loss", "error", "match"),
    [
        (sparse.csr_array((3, 3)), "square", ValueError, "at least one observation"),
        (np.array([[1.0, np.inf], [1, 2]]), "square", ValueError, "finite"),
        (sparse.csr_array(np.array([[1.0, np.nan]])), "square", ValueError, r"entry \(0, 1\)"),
        (np.array([[1.0, 2.0]]), "logistic", ValueError, "labels -1 and"),
        (np.array([[1.0, -2.0]]), "poisson", ValueError, "nonnegative counts"),
        (np.array([[1j, 2.0]]), "square", TypeError, "real"),
        (np.ones(3), "square", ValueError, "two dimensions"),
        (np.ma.masked_array(np.ones((2, 2))), "square", TypeError, "masked"),
        (sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(2, 2)), "square", ValueError, "more than once"),
        (
            sparse.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2)),
            "square",
            ValueError,
            "more than once",
        ),
    ],
)
def test_bad_input_is_named(x, loss, error, match):
    with pytest.raises(error, match=match):
        fs.LowRankModel(1, loss).fit(x)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"rank": -1}, ValueError, "rank"),
        ({"rank": 2.0}, TypeError, "rank"),
        ({"loss": "x"}, ValueError, "loss"),
        ({"refine": "x"}, ValueError, "refine"),
        ({"biases": 1}, TypeError, "biases"),
        ({"loss_parameter": 1.0}, ValueError, "loss_parameter"),
        ({"loss": "quantile", "loss_parameter": 1.0}, ValueError, "loss_parameter"),
        ({"loss": "huber", "loss_parameter": 0.0}, ValueError, "loss_parameter"),
        ({"shrink": 0.0}, ValueError, "shrink"),
        ({"sweeps": -1}, ValueError, "sweeps"),
        ({"ridge": -1.0}, ValueError, "ridge"),
        ({"step": "x"}, ValueError, "step"),
        ({"clip": 3}, TypeError, "clip"),
        ({"clip": (2, 1)}, ValueError, "clip"),
        ({"dtype": "int8"}, ValueError, "dtype"),
        ({"nu": 0.0}, ValueError, "nu"),
        ({"inner_rank": 0}, ValueError, "inner_rank"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_parameters_are_named(options, error, match):
    with pytest.raises(error, match=match):
        fs.LowRankModel(**{"rank": 2, **options})


def test_bad_queries_are_named():
    o, seen = problem()
    model = fs.LowRankModel(2)
    with pytest.raises(ValueError, match="not been fitted"):
        model.predict([0], [0])
    with pytest.raises(ValueError, match="at most min"):
        fs.LowRankModel(26).fit(stored(o, seen))
    model.fit(stored(o, seen))
    for call, error, match in (
        (lambda: model.predict([30], [0]), IndexError, "rows must lie in"),
        (lambda: model.predict([0], [-2]), IndexError, "columns must lie in"),
        (lambda: model.predict([0.5], [0]), TypeError, "integers"),
        (lambda: model.predict([0, 1], [0]), ValueError, "same shape"),
        (lambda: model.fold_in(np.ones((2, 24))), ValueError, "25 columns"),
        (lambda: model.fold_in(np.ones((2, 25)), axis=2), ValueError, "axis"),
        (lambda: model.recommend([0], 0), ValueError, "n must"),
        (lambda: model.recommend([0], exclude=sparse.csr_array((2, 25))), ValueError, "exclude"),
        (lambda: model.similar(-1), ValueError, "index"),
        (lambda: model.add_ranks(30), ValueError, "at most min"),
        (lambda: model.fit(stored(o, seen), patience=3), ValueError, "validation"),
        (lambda: model.fit(stored(o, seen), validation=1.5), ValueError, "validation"),
    ):
        with pytest.raises(error, match=match):
            call()
    assert fs.LowRankModel(1).fit(sparse.csr_array(np.array([[2.0]]))).predict([0], [0]) == pytest.approx(2.0, abs=0.1)
