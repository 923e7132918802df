"""The RFD paper's theorems (Luo et al., JMLR 20, 2019), as far as they hold: left side over right side at most 1.

What does not hold as printed, and what holds in its place, is in docs/papers/rfd.md.
"""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import reference
from fastsketch.reference._curvatures import Shrinking
from fastsketch.reference._newton_rounds import FLAT, MU, _project, _solve
from tests.helpers import stream
from tests.papers.inputs import ADVERSARIAL, EPS, worst


def spectra(rng, d):
    """Eigenvalues of positive semidefinite matrices, by name."""
    yield "random", rng.random(d)
    yield "equal", np.ones(d)
    yield "steep", 10.0 ** -np.arange(d)
    yield "rank 2", np.r_[3.0, 1.0, np.zeros(d - 2)]
    yield "two levels", np.r_[np.full(d // 2, 1e6), np.full(d - d // 2, 1e-6)]
    yield "huge", 1e150 * rng.random(d)
    yield "tiny", 1e-150 * rng.random(d)


# -- sketches ----------------------------------------------------------------------------------------------------------
def test_theorem_1_the_best_matrix_of_low_rank_and_multiple_of_the_identity(amount):
    """(sigma_k+1 - sigma_d) / 2 is reached for every xi between the two, and no other pair that is tried is below it.

    Below that of the truncated decomposition unless the rank is at most k.
    """
    rng, ratios = np.random.default_rng(0), {}
    for d in (2, 5, 9):
        for name, sigma in spectra(rng, d):
            sigma = np.sort(sigma)[::-1]
            q = np.linalg.qr(rng.standard_normal((d, d)))[0]
            m = (q * sigma) @ q.T
            for k in range(1, d):
                least, delta = (sigma[k] - sigma[-1]) / 2, (sigma[k] + sigma[-1]) / 2
                slack = 64 * d * EPS * sigma[0]
                assert least <= sigma[k] / 2 + slack
                for xi in (sigma[-1], delta, sigma[k]):
                    turn = np.linalg.qr(rng.standard_normal((k, k)))[0]
                    c = (q[:, :k] * np.sqrt(np.maximum(sigma[:k] - xi, 0))) @ turn
                    reached = np.linalg.norm(m - c @ c.T - delta * np.eye(d), 2)
                    assert abs(reached - least) <= slack, (name, d, k)
                    for _ in range(amount(3, 60)):
                        size = 10.0 ** rng.uniform(-6, 0) * sigma[0]
                        other = c + np.sqrt(size) * rng.standard_normal((d, k))
                        shift = delta + size * rng.standard_normal()
                        found = np.linalg.norm(m - other @ other.T - shift * np.eye(d), 2)
                        ratios[name, d, k, size] = least / (found + slack)
    assert worst(ratios) <= 1


def test_corollary_1_the_best_pair_in_the_frobenius_norm(amount):
    """delta the mean of the eigenvalues that C leaves, sigma_k+1 .. sigma_d, and C of the others less delta."""
    rng, ratios = np.random.default_rng(18), {}
    for d in (2, 5, 9):
        for name, sigma in spectra(rng, d):
            sigma = np.sort(sigma)[::-1]
            q = np.linalg.qr(rng.standard_normal((d, d)))[0]
            for k in range(1, d):
                delta = sigma[k:].mean()
                least = np.linalg.norm(sigma[k:] - delta)
                c = q[:, :k] * np.sqrt(np.maximum(sigma[:k] - delta, 0))
                for _ in range(amount(5, 60)):
                    size = 10.0 ** rng.uniform(-6, 0) * sigma[0]
                    other, shift = c + np.sqrt(size) * rng.standard_normal((d, k)), delta + size * rng.standard_normal()
                    found = np.linalg.norm((q * sigma) @ q.T - other @ other.T - shift * np.eye(d))
                    ratios[name, d, k, size] = least / (found + 64 * d * EPS * sigma[0])
    assert worst(ratios) <= 1


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_theorem_2_every_step_of_rfd_is_the_best(name):
    """Its error about the sketch before and the row is that of Theorem 1, for m < d: with m = d it is not.

    Of m = d rows nothing needs to be lost: alpha + sigma_m^2 and a rank of m - 1 have the error 0.
    """
    rng = np.random.default_rng(1)
    d, m = 7, 4
    rows, ratios = ADVERSARIAL[name](rng, 40, d), {}
    for t in range(m, len(rows)):
        before, alpha, _ = reference.robust_frequent_directions(rows[:t], m)
        after, beta, _ = reference.robust_frequent_directions(rows[: t + 1], m)
        ahead = before.T @ before + np.outer(rows[t], rows[t])
        sigma = np.linalg.eigvalsh(ahead + alpha * np.eye(d))[::-1]
        found = np.linalg.norm(ahead - after.T @ after - (beta - alpha) * np.eye(d), 2)
        slack = 64 * d * EPS * sigma[0]
        ratios[t] = found / ((sigma[m - 1] - sigma[-1]) / 2 + slack)
        assert found >= (sigma[m - 1] - sigma[-1]) / 2 - slack
    assert worst(ratios) <= 1 + 1e-9


def test_theorem_2_does_not_hold_for_as_many_rows_as_columns():
    b, alpha, _ = reference.robust_frequent_directions(np.eye(3), 3)
    assert np.linalg.norm(np.eye(3) - b.T @ b - alpha * np.eye(3), 2) == pytest.approx(0.5)
    # while b = 0, alpha = 1 has the error 0


def bound_of(rows, m):
    """Return min over k < m of ||A - A_k||_F^2 / (2 (m - k)), the right side of Theorem 3."""
    squares = np.linalg.svd(rows, compute_uv=False) ** 2
    tails = np.r_[np.cumsum(squares[::-1])[::-1], np.zeros(m)]
    return min(tails[k] / (2 * (m - k)) for k in range(m))


def sketched(rows, m):
    """Give the (B, alpha) of every form of RFD, by name."""
    yield "Algorithm 2", reference.robust_frequent_directions(rows, m)[:2]
    yield "Algorithm 5", reference.fast_robust_frequent_directions(rows, m)[:2]
    blocks = np.array_split(rows, max(2, len(rows) // (m + 1)))
    yield "Algorithm 7", reference.robust_frequent_directions_blocks(blocks, m)[:2]
    for solver in ("gram", "svd"):
        for room in (0, None):
            # weights of a double have a range: the library scales rows whose squares would leave it
            sketch = fs.RobustFrequentDirections(m, solver=solver, buffer_size=room).update(rows)
            yield f"library, {solver}, buffer {room}", (sketch.sketch(), sketch.alpha)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_theorem_3_and_corollary_2_half_of_the_bound_of_fd(name, amount):
    """||A'A - B'B - alpha I|| <= ||A - A_k||_F^2 / (2 (m - k)) for every k < m; FD's own bound is twice that."""
    rng, ratios = np.random.default_rng(2), {}
    for case in range(amount(4, 150)):
        n, d = int(rng.integers(2, amount(90, 400))), int(rng.integers(2, 24))
        m = int(rng.integers(2, d + 1))
        rows = ADVERSARIAL[name](rng, n, d)
        target, top = rows.T @ rows, np.linalg.norm(rows, 2) ** 2
        right, slack = bound_of(rows, m), (64 * d + 8 * n) * EPS * top  # of products, and of each of n shrinks
        for how, (b, alpha) in sketched(rows, m):
            left = np.linalg.norm(target - b.T @ b - alpha * np.eye(d), 2)
            ratios[how, case, n, d, m] = left / (right + slack)
        b, _ = reference.fast_frequent_directions(rows, m)
        ratios["Algorithm 4, twice the bound", case] = np.linalg.norm(target - b.T @ b, 2) / (2 * right + slack)
    assert worst(ratios) <= 1


ALPHA0 = 1e-3
FULL_RANK = {
    "identity": lambda rng: np.eye(5),  # nearly three times the target's: the largest there is
    "identity, again": lambda rng: np.tile(np.eye(7), (5, 1)),
    "gaussian": lambda rng: rng.standard_normal((2000, 30)),
    "signal": lambda rng: stream("signal", rng, 300, 30),
    "steep": lambda rng: rng.standard_normal((60, 12)) * 10.0 ** -np.arange(12),
    "one direction, then all": lambda rng: np.vstack([np.eye(9)[:1].repeat(50, axis=0), np.eye(9)]),
}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
@pytest.mark.parametrize("rows_of", FULL_RANK.values(), ids=FULL_RANK)
def test_theorem_4_what_holds_of_it(rows_of, share):
    """Its proof takes lambda_min(A'A) = 0.

    For M = A'A + alpha0 I: kappa(RFD) <= kappa(FD) always; <= kappa(M) where A lacks a rank; else <= 1 + 2 kappa(M):
    with b = lambda_max(B'B) <= lambda_max(A'A), Delta >= lambda_min(A'A) and alpha = alpha0 + Delta / 2 it is
    1 + b / alpha <= 1 + 2 lambda_max(A'A) / (2 alpha0 + lambda_min(A'A)).
    """
    rows = rows_of(np.random.default_rng(8))
    for lacking in (0, 1):  # columns of zeros
        a = rows * (np.arange(rows.shape[1]) >= lacking)
        size, identity = max(2, int(share * a.shape[1])), np.eye(a.shape[1])
        rfd = np.linalg.cond(fs.RobustFrequentDirections(size, ALPHA0, solver="gram").update(a).gram())
        fd = fs.FrequentDirections(size, method="fd", solver="gram").update(a).gram() + ALPHA0 * identity
        target = np.linalg.cond(a.T @ a + ALPHA0 * identity)
        assert rfd <= np.linalg.cond(fd) * (1 + 1e-9)
        assert rfd <= (target if lacking else 1 + 2 * target) * (1 + 1e-9)


def test_theorem_4_does_not_hold_as_printed():
    """kappa(RFD) <= kappa(M), which is 1 for the identity."""
    b, alpha, _ = reference.robust_frequent_directions(np.eye(3), 2, alpha0=ALPHA0)
    assert np.linalg.cond(b.T @ b + alpha * np.eye(3)) > 2.9
    assert np.linalg.cond(fs.RobustFrequentDirections(2, ALPHA0, solver="svd").update(np.eye(5)).gram()) > 2.9


# -- regret ------------------------------------------------------------------------------------------------------------
# Of the loss (z - y)^2 with |z| <= 1 and |y| <= 1: C = 1, slopes of at most L = 4, mu = 1/8; eta_t = 1/t.
SLOPE = 4.0
# Rows of any length: H has their squares. Those that grow without end have squares beyond a double.
LEARNED = [name for name in ADVERSARIAL if name not in ("growing", "tiny", "huge")]
SCALES = (1e-30, 1.0, 1e30)
LABELS = {
    "rule": lambda rng, scores: np.where(scores > 0, 1.0, -1.0),
    "noise": lambda rng, scores: rng.choice([-1.0, 1.0], len(scores)),
    "turning": lambda rng, scores: np.where((scores > 0) == (np.arange(len(scores)) < len(scores) // 2), 1.0, -1.0),
    "ones": lambda rng, scores: np.ones(len(scores)),
}


class Rounds:
    """Algorithm 3 on a stream, in its own words; arrays of all rounds, the first of which is number 1 of the paper."""

    def __init__(self, rows, labels, m, alpha0):
        n, d = rows.shape
        self.rows, self.labels, self.m, self.alpha0 = rows, labels, m, alpha0
        sketch = Shrinking(d, m, limit=m, method="rfd", alpha0=alpha0, beta=0.0)
        self.weights, self.gradients, self.h = np.zeros((n, d)), np.zeros((n, d)), np.zeros((n, d, d))
        self.alpha = np.zeros(n)
        w = self.weights[0]
        for t in range(n):
            self.weights[t] = w
            slope = 2 * (w @ rows[t] - labels[t])
            self.gradients[t] = g = slope * rows[t] * (abs(slope) > FLAT)  # 5; a score on its label leaves rounding
            if g.any():
                sketch.append(np.sqrt(MU + 1 / (t + 1)) * g)  # 6 to 9
            self.alpha[t], self.h[t] = sketch.alpha, sketch.h()  # 10
            if g.any():
                w = w - _solve(self.h[t], sketch.alpha, g)  # 11
            if t + 1 < n and self.h[t].any():
                w = _project(w, rows[t + 1], self.h[t], sketch.alpha)  # 12
        self.b, self.last = sketch.b, w
        self.eta = 1 / np.arange(1, n + 1)
        self.removed = 2 * np.diff(self.alpha, prepend=alpha0)  # sigma_m^2 of each round
        self.losses = ((self.weights * rows).sum(axis=1) - labels) ** 2

    def regret(self, w):
        return self.losses.sum() - ((self.rows @ w - self.labels) ** 2).sum()

    def comparators(self, rng):
        """Give weights within the intersection of all |w'x| <= 1: none, the best, any, and the longest."""
        yield "none", np.zeros(self.rows.shape[1])
        ways = {"best": np.linalg.lstsq(self.rows, self.labels)[0], "any": rng.standard_normal(self.rows.shape[1])}
        _, lengths, vt = np.linalg.svd(self.rows)
        ways["longest"] = vt[(lengths > 1e-6 * lengths[0]).sum() - 1]
        for name, w in ways.items():
            largest = np.abs(self.rows @ w).max()
            if largest > 0:
                yield name, w / (max(largest, 1.0) if name == "best" else largest) * (1 - 1e-12)

    def moved(self, w):
        """Return ||w_t - w||^2 of every round."""
        return ((self.weights - w) ** 2).sum(axis=1)

    def square_gradients(self, rounds):
        """Return sum g'H^+ g of some rounds, R_G of the proofs."""
        return sum(self.gradients[t] @ _solve(self.h[t], self.alpha[t], self.gradients[t]) for t in rounds)


def played(amount, alpha0):
    """Give (what it is, rounds, comparators by name) of adversarial streams."""
    rng = np.random.default_rng(3)
    for name in LEARNED:
        for scale in SCALES:
            for label in list(LABELS)[:: amount(2, 1)]:
                n, d = int(rng.integers(30, 120)), int(rng.integers(3, 10))
                m = int(rng.integers(2, d))
                rows = ADVERSARIAL[name](rng, n, d)
                rows *= scale / np.sqrt(np.mean((rows**2).sum(axis=1)))
                labels = LABELS[label](rng, rows @ rng.standard_normal(d))
                rounds = Rounds(rows, labels, m, alpha0 * scale**2)
                yield (name, scale, label, n, d, m), rounds, list(rounds.comparators(rng))


@pytest.mark.parametrize("alpha0", [0.0, 1e-3, 1.0])
def test_the_rounds_are_those_of_the_reference(alpha0):
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((60, 6))
    labels = np.sign(rows @ rng.standard_normal(6))
    options = {"loss": "square", "loss_scale": 2.0}
    w, losses, _ = reference.online_newton(rows, labels, sketch_size=4, alpha0=alpha0, **options)
    rounds = Rounds(rows, labels, 4, alpha0)
    assert np.allclose(rounds.last, w, rtol=1e-9) and np.allclose(rounds.losses, losses, rtol=1e-9)


@pytest.mark.parametrize("alpha0", [0.0, 1e-3, 1.0, 100.0])
def test_lemma_6_the_step_from_which_all_regrets_follow(alpha0, amount):
    """2 R(w) <= alpha0 ||w||^2 + R_G + R_D, for any w that all rounds allow; with alpha0 = 0 as well."""
    ratios = {}
    for what, rounds, comparators in played(amount, alpha0):
        n, right = len(rounds.rows), rounds.square_gradients(range(len(rounds.rows)))
        changes = np.diff(rounds.h, axis=0, prepend=rounds.alpha0 * np.eye(rounds.rows.shape[1])[None])
        for name, w in comparators:
            away = rounds.weights - w
            inside = np.einsum("ti,tij,tj->t", away, changes, away)
            r_d = (inside - MU * (rounds.gradients * away).sum(axis=1) ** 2).sum()
            slack = 1e-7 * (n + np.abs(inside).sum())
            ratios[what, name] = (2 * rounds.regret(w) - r_d - slack) / (rounds.alpha0 * w @ w + right)
    assert worst(ratios) <= 1


def other_terms(rounds, w):
    """Return 2 (C L)^2 sum eta + sum sigma_m^2 ||w_t - w||^2 / 4: of every theorem on regret."""
    return 2 * SLOPE**2 * rounds.eta.sum() + (rounds.removed * rounds.moved(w)).sum() / 4


def grown(rounds, before, first):
    """Return what bounds R_G / 2 from round `first` on, from ln det H = before."""
    after = np.linalg.slogdet(rounds.h[-1])[1]
    shares = (rounds.removed[first:] / rounds.alpha[first:]).sum()
    return (after - before + rounds.m / 2 * shares) / (2 * (MU + rounds.eta[-1]))


@pytest.mark.parametrize("alpha0", [1e-3, 1.0, 100.0])
def test_theorem_5_with_the_distance_of_weights(alpha0, amount):
    """The regret of RFD-SON, sum sigma_m^2 ||w_t - w||^2 / 4 in the place of C^2 sum sigma_m^2."""
    ratios = {}
    for what, rounds, comparators in played(amount, alpha0):
        d, m = rounds.rows.shape[1], rounds.m
        a0, last = rounds.alpha0, rounds.alpha[-1]
        logs = m * np.log((rounds.b**2).sum() / (m * a0) + last / a0) + (d - m) * np.log(last / a0)
        # a determinant is at most the power of the mean: the printed logarithms
        assert np.linalg.slogdet(rounds.h[-1])[1] - d * np.log(a0) <= logs + 1e-9 * d
        right = (logs + m / 2 * (rounds.removed / rounds.alpha).sum()) / (2 * (MU + rounds.eta[-1]))
        for name, w in comparators:
            here = a0 / 2 * w @ w + right
            ratios[what, name] = rounds.regret(w) / (here + other_terms(rounds, w))
            if rounds.moved(w).max() <= 4:  # as its proof takes it to be
                printed = here + 2 * SLOPE**2 * rounds.eta.sum() + rounds.removed.sum()
                ratios[what, name, "as printed"] = rounds.regret(w) / printed
    assert any("as printed" in what for what in ratios)
    assert worst(ratios) <= 1


def in_cycles(d, m, n, kappa):
    """Play Algorithm 3 for the rows s e_1, s e_2, ... in turn with labels 1, where H stays diagonal.

    Weights are in units of 1 / s, H in units of s^2, of which kappa are alpha0. Return (losses, alpha, tr(B'B)).
    """
    squares, z, alpha = np.zeros(d), np.zeros(d), np.full(n + 1, kappa)
    losses = np.zeros(n)
    for t in range(n):
        i = t % d
        slope = 2 * (z[i] - 1)
        losses[t] = (z[i] - 1) ** 2
        squares[i] += (MU + 1 / (t + 1)) * slope**2
        there = np.flatnonzero(squares)
        removed = squares[there].min() if len(there) == m else 0.0
        squares[there] -= removed
        alpha[t + 1] = alpha[t] + removed / 2
        z[i] = min(z[i] - slope / (alpha[t + 1] + squares[i]), 1.0)
    return losses, alpha, squares.sum()


def test_theorem_5_does_not_hold_as_printed():
    """Short rows in many directions: w is far away, and C^2 sum sigma_m^2 is next to nothing."""
    d, m, n, kappa, s = 100, 2, 12_000, 20.0, 1e-10
    losses, alpha, trace = in_cycles(d, m, n, kappa)
    few = Rounds(s * np.eye(d)[np.arange(250) % d], np.ones(250), m, kappa * s**2)
    assert np.allclose(few.losses, losses[:250]) and np.allclose(few.alpha, alpha[1:251] * s**2)
    # w = (1 / s, 1 / s, ...) has no loss and |w'x| = 1
    removed, share = 2 * np.diff(alpha), MU + 1 / n
    right = kappa / 2 * d + 2 * SLOPE**2 * (1 / np.arange(1, n + 1)).sum() + s**2 * removed.sum()
    right += m / (2 * share) * np.log(trace / (m * kappa) + alpha[-1] / kappa)
    right += (d - m) / (2 * share) * np.log(alpha[-1] / kappa) + m / (4 * share) * (removed / alpha[1:]).sum()
    assert losses.sum() > 1.2 * right


def first_phase(rounds):
    """Return (number of rounds with alpha = 0, what bounds their R_G / 2): Theorem 6, with the least mu + eta_t."""
    t0 = int(np.argmax(rounds.alpha > 0)) if (rounds.alpha > 0).any() else len(rounds.alpha)
    g = rounds.gradients[:t0]
    if not g.any():
        return t0, 0.0
    nonzero = []
    for t in range(t0):  # sigma*: the least eigenvalue other than 0 of any sum g g'
        squares = np.linalg.svd(g[: t + 1], compute_uv=False) ** 2
        nonzero += [squares[squares > 1e-10 * squares[0]].min()] if squares[0] > 0 else []
    r = max(int((np.linalg.svd(g, compute_uv=False) ** 2 > 1e-10 * (g**2).sum()).sum()), 1)
    logs = np.log1p(2 * (g**2).sum() / ((1 + r) * r * min(nonzero)))
    return t0, (rounds.m - 1 + rounds.m * (rounds.m - 1) * logs) / (2 * (MU + rounds.eta[t0 - 1]))


def test_theorem_6_the_rounds_before_alpha_grows(amount):
    """Its factor 1 / (eta_1 + mu') is the least of 1 / (mu_t + eta_t), where the proof needs the largest."""
    ratios = {}
    for what, rounds, comparators in played(amount, 0.0):
        t0, right = first_phase(rounds)
        assert rounds.square_gradients(range(t0)) / 2 <= right * (1 + 1e-9)
        for name, w in comparators:
            losses = ((rounds.rows[:t0] @ w - rounds.labels[:t0]) ** 2).sum()
            regret = rounds.losses[:t0].sum() - losses
            ratios[what, name] = regret / (right + 2 * SLOPE**2 * rounds.eta[:t0].sum())
    assert worst(ratios) <= 1


def test_theorem_7_with_the_determinant_where_it_belongs(amount):
    """The regret without a parameter: both phases, from ln det H of the round T' in which alpha begins to grow.

    Of that round g'H^-1 g <= 2 / (mu + eta_T'), since H is at least half of what it was before the shrink.
    """
    ratios = {}
    for what, rounds, comparators in played(amount, 0.0):
        t0, right = first_phase(rounds)
        if t0 < len(rounds.rows):
            g = rounds.gradients[t0]
            assert g @ _solve(rounds.h[t0], rounds.alpha[t0], g) <= 2 / (MU + rounds.eta[t0]) * (1 + 1e-9)
            before = np.linalg.slogdet(rounds.h[t0])[1]
            right += 1 / (MU + rounds.eta[t0]) + grown(rounds, before, t0 + 1)
        for name, w in comparators:
            ratios[what, name] = rounds.regret(w) / (right + other_terms(rounds, w))
    assert worst(ratios) <= 1


def test_theorem_7_does_not_hold_as_printed():
    """With alpha0' = det(H) in the place of its d-th root the right side falls below 0: two rows in turn, labels 1."""
    d, m = 10, 2
    rounds = Rounds(3 * np.eye(d)[np.arange(30) % 2], np.ones(30), m, 0.0)
    t0, right = first_phase(rounds)
    log_det, last, share = np.linalg.slogdet(rounds.h[t0])[1], rounds.alpha[-1], MU + rounds.eta[-1]
    logs = m * np.log((rounds.b**2).sum() / (m * rounds.alpha[t0]) + last / np.exp(log_det))
    logs += (d - m) * (np.log(last) - log_det)
    logs += m / 2 * (rounds.removed[t0 + 1 :] / rounds.alpha[t0 + 1 :]).sum()
    right += 2 * SLOPE**2 * rounds.eta.sum() + rounds.removed[t0 + 1 :].sum() + logs / (2 * share)
    right += rounds.weights[t0] @ rounds.h[t0] @ rounds.weights[t0] / 2
    assert right < -400 and rounds.regret(np.repeat([1 / 3, 0.0], [2, d - 2])) > 2
