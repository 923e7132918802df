"""fastsketch.papers: each call is the printed algorithm of fastsketch.reference, and refuses what contradicts it."""

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

from fastsketch import papers, reference
from fastsketch._core.losses import LOSSES
from fastsketch.sketching._random_maps import SizedMap
from tests.lowrank.problems import numpy_loss, problem, stored

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((180, 14)) * np.arange(1, 15) ** -0.5
LABELS = np.where(ROWS @ RNG.standard_normal(14) > 0, 1.0, -1.0)
SQUARES = float((ROWS**2).sum())


def gram(b):
    return b.T @ b


# -- sketches ----------------------------------------------------------------------------------------------------------
def test_frequent_directions_is_algorithm_1():
    b, delta = reference.frequent_directions(ROWS, 6)
    sketch = papers.frequent_directions(6).update(ROWS)
    assert np.abs(gram(sketch.sketch()) - gram(b)).max() <= 1e-11 * SQUARES
    assert abs(sketch.shrinkage - delta) <= 1e-11 * SQUARES


def test_robust_frequent_directions_is_algorithm_2():
    b, alpha, _ = reference.robust_frequent_directions(ROWS, 6, alpha0=0.5)
    sketch = papers.robust_frequent_directions(6, alpha0=0.5).update(ROWS)
    assert np.abs(gram(sketch.sketch()) - gram(b)).max() <= 1e-11 * SQUARES
    assert abs(sketch.alpha - alpha) <= 1e-11 * SQUARES


@pytest.mark.parametrize("n", [5, 100, 173])
def test_doubled_buffers_are_algorithms_4_and_5(n):
    """The printed algorithms do not flush their buffer at the end; a read-out does."""
    b, delta = reference.fast_frequent_directions(ROWS[:n], 6)
    robust, alpha, _ = reference.fast_robust_frequent_directions(ROWS[:n], 6, alpha0=0.5)
    if len(b) > 6:
        b, last = _flushed(b, 6)
        delta += last
        robust, more, _ = reference.robust_frequent_directions_blocks([robust, np.zeros((0, 14))], 6)
        alpha += more
    plain = papers.fast_frequent_directions(6).update(ROWS[:n])
    other = papers.fast_robust_frequent_directions(6, alpha0=0.5).update(ROWS[:n])
    assert np.abs(gram(plain.sketch()) - gram(b)).max() <= 1e-11 * SQUARES
    assert abs(plain.shrinkage - delta) <= 1e-11 * SQUARES
    assert np.abs(gram(other.sketch()) - gram(robust)).max() <= 1e-11 * SQUARES
    assert abs(other.alpha - alpha) <= 1e-11 * SQUARES


@pytest.mark.parametrize("make", [papers.fast_frequent_directions, papers.fast_robust_frequent_directions])
def test_doubled_buffers_are_no_larger_for_sparse_rows(make):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 300)) * (rng.random((200, 300)) < 0.02)
    dense, sparse = (make(6, solver="gram").update(each) for each in (rows, csr_array(rows)))
    assert abs(sparse.shrinkage - dense.shrinkage) <= 1e-11 * np.square(rows).sum()


def _flushed(b, m):
    """One shrink of all rows of a buffer: squares less that of number m."""
    _, s, vt = np.linalg.svd(b, full_matrices=False)
    last = float(s[m - 1] ** 2)
    return np.sqrt(np.maximum(s[: m - 1] ** 2 - last, 0.0))[:, np.newaxis] * vt[: m - 1], last


# -- learners ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("alpha0", [0.0, 0.5])
def test_rfd_son_is_algorithm_6(alpha0):
    settings = {"alpha0": alpha0, "loss": "square", "loss_scale": 2.0, "constraint": "current"}
    w, losses, scores = reference.fast_online_newton(ROWS, LABELS, sketch_size=5, method="rfd", **settings)
    model = papers.rfd_son(5, alpha0=alpha0).update(ROWS, LABELS)
    assert np.abs(model.coef - w).max() <= 1e-8 * np.abs(w).max()
    assert np.abs(model.last_scores - scores).max() <= 1e-8
    assert np.isclose(model.progress["cumulative_loss"], losses.sum(), rtol=1e-9)


@pytest.mark.parametrize("form", ["mirror_descent", "dual_averaging"])
@pytest.mark.parametrize(
    ("call", "printed"),
    [
        (papers.ada_fd, reference.adaptive_frequent_directions),
        (papers.ada_ffd, reference.adaptive_fast_frequent_directions),
        (papers.fd_son, reference.sketched_newton_subgradient),
    ],
)
def test_adaptive_methods_are_algorithms_1_to_4_and_equation_6(call, printed, form):
    targets = ROWS @ np.linspace(-1, 1, 14)
    about = LOSSES["absolute"]

    def subgradient(t, beta):
        z, y = np.array([ROWS[t - 1] @ beta]), np.array([targets[t - 1]])
        return float(about.value(z, y, 0.0)[0]), float(about.slope(z, y, 0.0)[0]) * ROWS[t - 1]

    w = printed(14, 180, subgradient=subgradient, learning_rate=0.1, sketch_size=4, delta=0.01, form=form)[0]
    model = call(4, loss="absolute", learning_rate=0.1, delta=0.01, form=form).update(ROWS, targets)
    assert np.abs(model.coef - w).max() <= 1e-8 * np.abs(w).max()


# -- codes -------------------------------------------------------------------------------------------------------------
def test_a_block_of_frosh_is_algorithm_1():
    model = papers.frosh(8, block_rows=180, seed=3).update(ROWS)
    numbers = SizedMap("srht", 8, 180, seed=3).numbers(0, np.dtype(np.float64))
    sample = numbers.hi * SizedMap("srht", 8, 180, seed=3).rows_per_call + numbers.target
    b = reference.subsampled_hadamard(ROWS - ROWS.mean(axis=0), signs=numbers.value, sample=sample)
    w = reference.top_directions(b, 8)
    assert np.allclose(np.abs(model.components @ w), np.eye(8), atol=1e-8)


# -- low-rank models ---------------------------------------------------------------------------------------------------
def values_of(model, shape):
    rows, columns = np.nonzero(np.ones(shape, bool))
    return model.decision_function(rows, columns).reshape(shape)


def test_rank_one_matrix_pursuit_is_algorithm_1():
    o, seen = problem()
    x, residuals = reference.rank_one_matrix_pursuit(o, seen, rank=6)
    model = papers.rank_one_matrix_pursuit(6).fit(stored(o, seen))
    assert np.abs(values_of(model, o.shape) - x).max() <= 1e-5 * np.abs(x).max()
    assert np.allclose([2 * line["objective"] for line in model.history[1:]], residuals, rtol=1e-7)


@pytest.mark.parametrize(
    ("call", "refine"),
    [(papers.glrl, "full"), (papers.eglrl, "economic"), (partial(papers.glrl, refine="none"), "none")],
)
@pytest.mark.parametrize("loss", ["square", "logistic", "squared_hinge"])
def test_glrl_and_eglrl_are_algorithm_2(call, refine, loss):
    o, seen = problem(loss)
    x, _, objectives = reference.greedy_low_rank_smooth(
        o, seen, rank=4, loss=numpy_loss(loss), lipschitz=LOSSES[loss].lipschitz, refine=refine, scales=None
    )
    model = call(4, loss=loss).fit(stored(o, seen))
    # both stop where a refinement gains less than its tolerance
    assert np.allclose([line["objective"] for line in model.history], objectives, rtol=2e-5)
    assert np.abs(values_of(model, o.shape) - x).max() <= 5e-3 * np.abs(x).max()


@pytest.mark.parametrize("rule", ["inverse_sqrt", "inverse"])
def test_glrl_nonsmooth_is_algorithm_3_and_has_the_steps_of_equation_10(rule):
    o, seen = problem("absolute")
    settings = {"step_size": 0.3, "inner_tolerance": 0.9, "max_inner_rank": 3, "step_rule": rule}
    x, objectives = reference.greedy_low_rank_nonsmooth(
        o, seen, steps=5, subgradient=numpy_loss("absolute"), inner_criterion="previous", **settings
    )
    model = papers.glrl_nonsmooth(15, loss="absolute", **settings).fit(stored(o, seen))
    found = [line["objective"] for line in model.history]
    assert np.allclose(found[: len(objectives)], objectives, rtol=1e-5)
    rank = model.history[int(np.argmin(objectives))]["rank"]
    z = model.decision_function(*np.nonzero(np.ones_like(seen)), rank=rank).reshape(o.shape)
    assert np.abs(z - x).max() <= 1e-3 * np.abs(x).max()


def test_the_default_is_not_the_printed_algorithm():
    """What the calls are for: the models as they come have other answers."""
    import fastsketch as fs

    o, seen = problem()
    ours, printed = (
        values_of(model.fit(stored(o, seen)), o.shape) for model in (fs.LowRankModel(6), papers.glrl(6, loss="square"))
    )
    assert np.abs(ours - printed).max() > 0.1 * np.abs(printed).max()


# -- bad input ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "contradiction"),
    [
        (lambda **given: papers.frequent_directions(4, **given), {"method": "rfd"}),
        (lambda **given: papers.robust_frequent_directions(4, **given), {"buffer_size": 8}),
        (lambda **given: papers.fast_frequent_directions(4, **given), {"buffer_size": 0}),
        (lambda **given: papers.fast_robust_frequent_directions(4, **given), {"method": "fd"}),
        (lambda **given: papers.rfd_son(4, **given), {"constraint": None}),
        (
            lambda **given: papers.ada_fd(4, loss="absolute", learning_rate=1.0, delta=1.0, **given),
            {"scale": "moments"},
        ),
        (lambda **given: papers.ada_ffd(4, loss="absolute", learning_rate=1.0, delta=1.0, **given), {"method": "ogd"}),
        (
            lambda **given: papers.fd_son(4, loss="absolute", learning_rate=1.0, delta=1.0, **given),
            {"fit_intercept": True},
        ),
        (lambda **given: papers.faster_frequent_directions(4, **given), {"compressor": None}),
        (lambda **given: papers.frosh(4, **given), {"rotation": "itq"}),
        (lambda **given: papers.rank_one_matrix_pursuit(4, **given), {"loss": "huber"}),
        (lambda **given: papers.glrl(4, loss="logistic", **given), {"biases": True}),
        (lambda **given: papers.glrl(4, loss="logistic", **given), {"refine": "economic"}),
        (lambda **given: papers.eglrl(4, loss="logistic", **given), {"sweeps": 4}),
        (
            lambda **given: papers.glrl_nonsmooth(4, loss="absolute", step_size=1.0, inner_tolerance=0.9, **given),
            {"inner_criterion": "current"},
        ),
        (
            lambda **given: papers.glrl_nonsmooth(4, loss="absolute", step_size=1.0, inner_tolerance=0.9, **given),
            {"step_rule": "line_search"},
        ),
    ],
)
def test_a_setting_that_contradicts_the_algorithm_is_refused_by_name(call, contradiction):
    ((name, value),) = contradiction.items()
    with pytest.raises(TypeError, match=rf"has {name}=.*{value!r}"):
        call(**contradiction)
    call()


def test_faster_frequent_directions_takes_the_rows_of_a_block():
    model = papers.faster_frequent_directions(4, block_rows=32).update(ROWS)
    compressor = model.resolved["compressor"]
    assert (compressor.kind, compressor.block_rows, compressor.rows_out) == ("srht", 32, 4)


def test_a_step_of_algorithm_3_has_as_many_ranks_as_it_needs():
    call = partial(papers.glrl_nonsmooth, loss="absolute", step_size=0.3, inner_tolerance=0.9)
    assert call(7).parameters["max_inner_rank"] == 7
    assert call(7, max_inner_rank=3).parameters["max_inner_rank"] == 3
