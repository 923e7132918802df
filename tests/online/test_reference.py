"""The references themselves: where sketches lose nothing they are the full methods; the papers' order of regrets."""

import numpy as np
import pytest
from scipy import sparse

from fastsketch import reference
from tests.helpers import papers

# The papers' loss, (z - y)^2.
PAPERS = {"loss": "square", "loss_scale": 2.0}


def absolute_loss(rows, targets):
    """Return subgradient(t, beta) of |x_t'beta - y_t|."""

    def subgradient(t, beta):
        r = rows[t - 1] @ beta - targets[t - 1]
        return abs(r), np.sign(r) * rows[t - 1]

    return subgradient


def problem(n=300, d=12, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = (rng.standard_normal((n, d)) * (10.0 / np.arange(1, d + 1))) @ basis + 0.1
    return rows, rows @ rng.standard_normal(d)


@pytest.mark.parametrize("form", ["mirror_descent", "dual_averaging"])
def test_sketches_that_lose_nothing_are_ada_full(form):
    """ADA-FD with tau = d + 1 and ADA-FFD with tau > d / 2 never shrink anything (ADA-FD paper, section 5.2)."""
    rows, targets = problem()
    d = rows.shape[1]
    options = {"subgradient": absolute_loss(rows, targets), "learning_rate": 0.5, "delta": 1.0, "form": form}
    full, losses = reference.adaptive_full(d, 300, **options)
    for method, tau in (
        (reference.adaptive_frequent_directions, d + 1),
        (reference.adaptive_fast_frequent_directions, d // 2 + 1),
    ):
        beta, found = method(d, 300, sketch_size=tau, **options)
        assert np.allclose(beta, full, atol=1e-6)
        assert np.allclose(found, losses, atol=1e-5)


def test_the_order_of_regrets():
    """FULL, FFD and FD far below DIAG, OGD and ADAM (section 5.2), each at its best eta.

    Rows have a quickly falling spectrum in a random basis, which no diagonal can show.
    """
    rows, targets = problem(800, 40)
    d, tau = 40, 8

    def best(method):
        return min(method(eta)[1].sum() for eta in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0))

    common = {"subgradient": absolute_loss(rows, targets)}
    full, ffd, fd = (
        reference.adaptive_full,
        reference.adaptive_fast_frequent_directions,
        reference.adaptive_frequent_directions,
    )
    regret = {
        "full": best(lambda eta: full(d, 800, **common, learning_rate=eta, delta=1.0)),
        "ffd": best(lambda eta: ffd(d, 800, **common, sketch_size=tau, learning_rate=eta, delta=1.0)),
        "fd": best(lambda eta: fd(d, 800, **common, sketch_size=tau, learning_rate=eta, delta=1.0)),
        "diag": best(lambda eta: reference.adaptive_diagonal(d, 800, **common, learning_rate=eta, delta=1.0)),
        "ogd": best(lambda eta: reference.online_gradient_descent(d, 800, **common, learning_rate=eta)),
        "adam": best(lambda eta: reference.adam(d, 800, **common, learning_rate=eta)),
    }
    assert max(regret["full"], regret["ffd"], regret["fd"]) < 0.8 * min(regret["diag"], regret["ogd"], regret["adam"])


@pytest.mark.parametrize("form", ["mirror_descent", "dual_averaging"])
def test_diagonal_steps_are_adagrads(form):
    rows, targets = problem(50, 5)
    beta, squares, total = np.zeros(5), np.zeros(5), np.zeros(5)
    for x, y in zip(rows, targets, strict=True):
        g = np.sign(x @ beta - y) * x
        squares, total = squares + g**2, total + g
        h = 1.0 + np.sqrt(squares)
        beta = -0.3 * total / h if form == "dual_averaging" else beta - 0.3 * g / h
    options = {"subgradient": absolute_loss(rows, targets), "learning_rate": 0.3, "delta": 1.0, "form": form}
    found, _ = reference.adaptive_diagonal(5, 50, **options)
    assert np.allclose(found, beta)


def stepped(rows, step):
    """Return beta after rounds beta - 0.3 step(g) of the absolute loss |x'beta - 1|."""
    beta = np.zeros(rows.shape[1])
    for x in rows:
        beta = beta - 0.3 * step(np.sign(x @ beta - 1.0) * x)
    return beta


def within(vectors, roots, g):
    """Return V (diag(roots) + 0.7)^-1 V'g."""
    return vectors @ ((vectors.T @ g) / (roots + 0.7))


def test_ada_lr_takes_the_fourth_root_of_a_projected_square():
    """ADA-FD paper, equation 3: Sigma^2 are the eigenvalues of G P G, P the projection on the range of G R."""
    rows = np.random.default_rng(7).standard_normal((40, 7)) + 0.3
    rng, total = np.random.default_rng(8), np.zeros((7, 7))

    def step(g):
        nonlocal total
        total = total + np.outer(g, g)
        half = total @ rng.standard_normal((7, 3))
        values, vectors = np.linalg.eigh(total @ half @ np.linalg.pinv(half, rcond=1e-9) @ total)
        there = values > 1e-12 * values[-1]
        return within(vectors[:, there], values[there] ** 0.25, g)

    options = {"sketch_size": 3, "learning_rate": 0.3, "delta": 0.7, "rng": np.random.default_rng(8)}
    found, _ = reference.adaptive_low_rank(7, 40, subgradient=absolute_loss(rows, np.ones(40)), **options)
    assert np.allclose(found, stepped(rows, step))


def test_radagrad_takes_the_left_singular_pairs_of_projected_gradients():
    """ADA-FD paper, equation 4: those of sum g (R g)', and a plain step outside of them."""
    rows = np.random.default_rng(7).standard_normal((40, 7)) + 0.3
    map_ = np.random.default_rng(8).standard_normal((3, 7)) / np.sqrt(3)
    low = np.zeros((7, 3))

    def step(g):
        nonlocal low
        low = low + np.outer(g, map_ @ g)
        u, s, _ = np.linalg.svd(low, full_matrices=False)
        u, s = u[:, s > 1e-12 * s[0]], s[s > 1e-12 * s[0]]
        return within(u, np.sqrt(s), g) + g - u @ (u.T @ g)

    options = {"sketch_size": 3, "learning_rate": 0.3, "delta": 0.7, "rng": np.random.default_rng(8)}
    found, _ = reference.radagrad(7, 40, subgradient=absolute_loss(rows, np.ones(40)), **options)
    assert np.allclose(found, stepped(rows, step))


@pytest.mark.parametrize(("method", "kind"), [("ada_ffd", "dense"), ("fd_son", "dense"), ("fd_son", "one hot")])
def test_fast_sketches_are_explicit_buffers(method, kind):
    """ADA-FD paper, equation 5: rows B that are cut to tau - 1 when there are 2 tau, after the step.

    H = delta I + (B'B)^(1/2), or of FD-SON delta I + B'B with gradients over t^(1/4), equation 6.
    """
    rng, tau, son = np.random.default_rng(7), 3, method == "fd_son"
    rows = rng.standard_normal((40, 9)) + 0.3 if kind == "dense" else np.eye(9)[rng.integers(9, size=40)]
    b, t = np.zeros((0, 9)), 0

    def step(g):
        nonlocal b, t
        t += 1
        b = np.vstack([b, g / t**0.25 if son else g])
        values, vectors = np.linalg.eigh(b.T @ b)
        squares = values.clip(0)
        if len(b) == 2 * tau:
            _, s, vt = np.linalg.svd(b, full_matrices=False)
            left = s[: tau - 1] ** 2 - s[tau - 1] ** 2
            b = (np.sqrt(left.clip(0))[:, None] * vt[: tau - 1])[left > 1e-20]  # rows of zeros are free
        return within(vectors, squares if son else np.sqrt(squares), g)

    call = reference.sketched_newton_subgradient if son else reference.adaptive_fast_frequent_directions
    options = {"sketch_size": tau, "learning_rate": 0.3, "delta": 0.7}
    found, _ = call(9, 40, subgradient=absolute_loss(rows, np.ones(40)), **options)
    expected = stepped(rows, step)
    assert np.allclose(found, expected)
    for form in (np.asarray, sparse.csr_array):
        model = papers.AdaptiveSubgradient(tau, method=method, loss="absolute", learning_rate=0.3, delta=0.7)
        assert np.allclose(model.update(form(rows), np.ones(40)).coef, expected)


def test_newton_with_the_whole_h_is_sherman_morrison():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 6))
    y = np.sign(rows @ rng.standard_normal(6))
    w, losses, scores = reference.full_online_newton(rows, y, alpha0=2.0, constraint=None, **PAPERS)
    h, mine = 2.0 * np.eye(6), np.zeros(6)
    for t, (x, target) in enumerate(zip(rows, y, strict=True), 1):
        g = 2 * (mine @ x - target) * x
        h += (0.125 + 1 / t) * np.outer(g, g)
        mine = mine - np.linalg.inv(h) @ g
    assert np.allclose(w, mine)
    assert np.isclose(losses.sum(), ((scores - y) ** 2).sum())


def test_sketched_newton_of_full_size_is_the_whole_h():
    """A sketch of more rows than features and rounds loses nothing: Algorithms 3 and 6 are FULL-ON."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((30, 5))
    y = np.sign(rows[:, 0])
    full = reference.full_online_newton(rows, y, alpha0=1.0, **PAPERS)[0]
    for method in (reference.online_newton, reference.fast_online_newton):
        assert np.allclose(method(rows, y, sketch_size=40, alpha0=1.0, constraint="current", **PAPERS)[0], full)


def test_a_constraint_on_the_next_example_bounds_every_score():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((200, 8))
    y = np.sign(rows @ rng.standard_normal(8))
    _, _, scores = reference.online_newton(rows, y, sketch_size=4, **PAPERS)
    assert np.abs(scores).max() <= 1 + 1e-9


def test_random_projection_and_oja_learn():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((400, 10)) / 3
    y = np.sign(rows @ rng.standard_normal(10))
    for method in (reference.random_projection_newton, reference.oja_newton):
        rng = np.random.default_rng(0)
        w, losses, scores = method(rows, y, sketch_size=4, alpha0=10.0, rng=rng, **PAPERS)
        assert np.mean(scores[200:] * y[200:] > 0) > 0.8
        assert losses[200:].mean() < losses[:50].mean()
