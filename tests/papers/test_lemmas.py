"""What the papers' proofs rest on: their lemmas, quoted ones too, left side over right side at most 1."""

import itertools

import numpy as np
import pytest

from fastsketch import reference
from fastsketch.reference._rounds import FD
from tests.lowrank.problems import numpy_loss
from tests.papers.inputs import ADVERSARIAL, EPS, worst
from tests.papers.test_adafd_theorems import ROWS, SIGNS, Rounds
from tests.papers.test_glrl_theorems import SMOOTH, STRONG, values_of
from tests.papers.test_rfd_theorems import MU, SLOPE, bound_of

M, D = 64, 8


# -- RFD ---------------------------------------------------------------------------------------------------------------
def norms_of(values):
    """Give unitarily invariant norms of a matrix by its singular values: Schatten's and Ky Fan's."""
    values = np.sort(values)[::-1]
    yield from ((values**p).sum() ** (1 / p) for p in (1, 1.5, 2, 7))
    yield from np.cumsum(values)


@pytest.mark.parametrize("name", [name for name in ADVERSARIAL if name not in ("tiny", "huge")])
def test_rfd_lemmas_1_to_3_differences_of_singular_values(name, amount):
    """Lemma 1: their k largest are at most the k largest of the difference; 2, 3: so is every invariant norm."""
    rng, ratios = np.random.default_rng(20), {}
    for case in range(amount(4, 60)):
        a = ADVERSARIAL[name](rng, 12, 5)
        for what, b in (("near", a + 1e-3 * np.abs(a).max() * rng.standard_normal(a.shape)), ("turned", a[::-1])):
            sa, sb, apart = (np.linalg.svd(x, compute_uv=False) for x in (a, b, a - b))
            differences, slack = np.abs(sa - sb), 64 * EPS * (sa[0] + sb[0])
            for k, (left, right) in enumerate(zip(norms_of(differences), norms_of(apart), strict=True)):
                ratios[what, case, k] = left / (right + slack)
    assert worst(ratios) <= 1


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_rfd_lemmas_4_and_5_what_shrinks_remove(name, amount):
    """A'A - B'B >= 0, and the sum of sigma_m^2 is at most ||A - A_k||_F^2 / (m - k): of Algorithms 2 and 7."""
    rng, ratios = np.random.default_rng(21), {}
    for case in range(amount(4, 60)):
        n, d = int(rng.integers(10, 90)), int(rng.integers(3, 16))
        m = int(rng.integers(2, d + 1))
        rows = ADVERSARIAL[name](rng, n, d)
        top = np.linalg.norm(rows, 2) ** 2
        slack = (64 * d + 8 * n) * EPS * top
        blocks = np.array_split(rows, max(2, n // (m + 1)))
        whole, parts = reference.robust_frequent_directions, reference.robust_frequent_directions_blocks
        for b, alpha, _ in (whole(rows, m), parts(blocks, m)):
            assert np.linalg.eigvalsh(rows.T @ rows - b.T @ b)[0] >= -slack
            ratios[case, n, d, m, alpha] = 2 * alpha / (2 * bound_of(rows, m) + slack)
    assert worst(ratios) <= 1


@pytest.mark.parametrize("name", [name for name in ADVERSARIAL if name not in ("tiny", "huge", "growing")])
def test_rfd_lemma_7_sum_of_gradients_in_their_own_matrix(name, amount):
    """Equation 30 for gradients of rank m - 1; equation 29 is a step of Theorem 6, whose test has it."""
    rng, ratios = np.random.default_rng(22), {}
    for case in range(amount(4, 60)):
        n, r = int(rng.integers(5, 60)), int(rng.integers(2, 6))
        g = ADVERSARIAL[name](rng, n, r) @ np.linalg.qr(rng.standard_normal((9, r)))[0].T
        left, least, h = 0.0, np.inf, np.zeros((9, 9))
        for row in g:
            h += np.outer(row, row)
            values, vectors = np.linalg.eigh(h)
            kept = values > 1e-10 * values[-1]
            if row.any():
                left += ((vectors[:, kept].T @ row) ** 2 / values[kept]).sum()
                least = min(least, values[kept].min())
        m = int(kept.sum()) + 1
        logs = np.log1p(2 * (g**2).sum() / (m * (m - 1) * least))
        ratios[case, n, m] = left / (m - 1 + m * (m - 1) / 2 * logs) / (1 + 1e-6)
    assert worst(ratios) <= 1


def test_rfd_assumptions_1_and_2_of_the_square_loss():
    """Slopes of at most 4, and a curvature of mu = 1/8 in units of squared slopes: no larger one, for |z|, |y| <= 1."""
    z, other, y = (x.ravel() for x in np.meshgrid(*[np.linspace(-1, 1, 21)] * 3))
    slopes = 2 * (other - y)
    assert np.abs(slopes).max() == SLOPE
    excess = (z - y) ** 2 - (other - y) ** 2 - slopes * (z - other)
    squares = (slopes * (z - other)) ** 2
    assert (excess >= MU / 2 * squares - 1e-12).all()
    assert (excess < 1.01 * MU / 2 * squares).any()


# -- ADA-FD ------------------------------------------------------------------------------------------------------------
class Kept(FD):
    """Frequent directions that remember (V, s) of every round."""

    def __init__(self, d, tau):
        super().__init__(d, tau)
        self.pairs = []

    def add(self, g):
        self.pairs.append(super().add(g))
        return self.pairs[-1]


def matrices_of(pairs, d, delta):
    """Return H_0, H_1, ...: delta I + (S_t'S_t)^(1/2)."""
    return [delta * np.eye(d), *(delta * np.eye(d) + (v * s) @ v.T for v, s in pairs)]


@pytest.mark.parametrize("form", ["dual_averaging", "mirror_descent"])
def test_adafd_lemmas_1_and_2_the_step_from_which_all_regrets_follow(form, amount):
    """Lemma 1: dual averaging with matrices that may shrink; Lemma 2: mirror descent; for any comparator."""
    rng, ratios = np.random.default_rng(23), {}
    for name, sign, case in itertools.product(ROWS, SIGNS, range(amount(1, 12))):
        n, d = int(rng.integers(10, 50)), int(rng.integers(3, 9))
        rows, tau = ADVERSARIAL[name](rng, n, d), int(rng.integers(2, d + 1))
        delta, eta = np.linalg.norm(rows, axis=1).max() * 10.0 ** rng.uniform(-4, 1), 10.0 ** rng.uniform(-3, 2)
        sketch = Kept(d, tau)
        rounds = Rounds(lambda _, sketch=sketch: sketch, rows, SIGNS[sign], eta=eta, delta=delta, form=form, rng=rng)
        h, g, moved = matrices_of(sketch.pairs, d, delta), rounds.gradients, rounds.betas[1:]
        steps = h[:-1] if form == "dual_averaging" else h[1:]
        squares = eta / 2 * sum(row @ np.linalg.solve(ht, row) for row, ht in zip(g, steps, strict=True))
        for k, best in enumerate(rounds.comparators(rng)):
            away = best - rounds.betas
            if form == "dual_averaging":
                far = (moved**2).sum(axis=1).max()
                changed, right = 0.0, best @ h[-1] @ best + np.sqrt(rounds.removed).sum() * far
            else:  # what matrices change by may be below 0: on the left
                changed = sum(x @ (b - a) @ x for x, a, b in zip(away[1:-1], h[1:-1], h[2:], strict=True))
                right = away[0] @ h[1] @ away[0]
            right = right / (2 * eta) + squares
            lengths = sum(x @ matrix @ x for x, matrix in zip(away, h, strict=True))
            slack = 1e-9 * (squares + np.abs(g @ best).sum() + lengths / eta)
            ratios[name, sign, case, k, delta, eta] = (rounds.regret(best) - changed / (2 * eta) - slack) / right
    assert worst(ratios) <= 1


@pytest.mark.parametrize("name", ROWS)
def test_adafd_lemmas_3_and_4_roots_and_sketches(name, amount):
    """Lemma 3: sum g'(G_t^(1/2))^+ g <= 2 tr(G_T^(1/2)). Lemma 4: C'C >= S'S >= C'C - Delta_t I in every round."""
    rng, ratios = np.random.default_rng(24), {}
    for case in range(amount(3, 40)):
        n, d = int(rng.integers(5, 50)), int(rng.integers(3, 9))
        rows, tau = ADVERSARIAL[name](rng, n, d), int(rng.integers(2, d + 1))
        sketch, removed, left = FD(d, tau), 0.0, 0.0
        for t, row in enumerate(rows):
            sigma = np.linalg.svd(np.vstack([sketch.s[:-1], row]), compute_uv=False)
            removed += sigma[-1] ** 2 if len(sigma) == tau else 0.0
            v, s = sketch.add(row)
            _, roots, vt = np.linalg.svd(rows[: t + 1], full_matrices=False)
            kept = roots > 1e-7 * roots[0]
            left += ((vt[kept] @ row) ** 2 / roots[kept]).sum()
            lost = np.linalg.eigvalsh(rows[: t + 1].T @ rows[: t + 1] - (v * s**2) @ v.T)
            slack = (64 * d + 8 * n) * EPS * roots[0] ** 2
            assert lost[0] >= -slack
            ratios["4", case, t] = lost[-1] / (removed + slack)
        ratios["3", case] = left / (2 * np.linalg.svd(rows, compute_uv=False).sum()) / (1 + 1e-6)
    assert worst(ratios) <= 1


# -- FROSH -------------------------------------------------------------------------------------------------------------
def test_frosh_theorem_3_sums_of_random_matrices(amount):
    """Bernstein's inequality of Tropp: how often a sum of matrices with random signs is longer than epsilon."""
    rng, ratios, draws = np.random.default_rng(25), {}, amount(200, 2000)
    for name in ("noise", "cycles", "spikes"):
        rows = ADVERSARIAL[name](rng, 40, 6)
        parts = np.einsum("ki,kj->kij", rows, rng.standard_normal((40, 4)))
        longest = max(np.linalg.norm(part, 2) for part in parts)
        variance = max(np.linalg.norm(np.einsum(f, parts, parts), 2) for f in ("kij,klj->il", "kij,kil->jl"))
        sums = np.einsum("tk,kij->tij", rng.choice([-1.0, 1.0], (draws, 40)), parts)
        lengths = np.linalg.norm(sums, 2, axis=(1, 2))
        for share in (1.5, 2.5, 3.5):
            epsilon = share * np.sqrt(variance)
            bound = 10 * np.exp(-(epsilon**2) / 2 / (variance + longest * epsilon / 3))
            ratios[name, share] = np.mean(lengths >= epsilon) / (bound + 3 / draws)
    assert worst(ratios) <= 1


@pytest.mark.parametrize("name", ["noise", "repeated", "spikes", "heavy", "cycles"])
def test_frosh_theorem_4_and_lemma_2_one_mapped_chunk(name, amount):
    """Theorem 4 with a hidden factor of 1 and delta = .1; Lemma 2 with beta = .1: how often they fail."""
    rng, draws, delta = np.random.default_rng(26), amount(60, 1000), 0.1
    rows = ADVERSARIAL[name](rng, M, D)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    kept = values > 1e-12 * values[-1]
    whitened = rows @ (vectors[:, kept] / np.sqrt(values[kept]))
    for q in (16, 48):
        apart, longer = [], []
        for _ in range(draws):
            drawn = {"signs": rng.choice([-1.0, 1.0], M), "sample": rng.choice(M, q, replace=False)}
            mapped = reference.subsampled_hadamard(whitened, **drawn)
            apart.append(np.linalg.norm(mapped.T @ mapped - np.eye(kept.sum()), 2))
            lengths = np.linalg.norm(reference.subsampled_hadamard(rows, **drawn), axis=0)
            longer.append((lengths / np.sqrt(2 * np.log(2 * M * D / delta)) / np.linalg.norm(rows, axis=0)).max())
        k = D  # any k of at least the rank: the bound fails with a share of delta + m / e^k
        shares = np.mean(np.array(apart) > np.sqrt(k * np.log(2 * k / delta) / q)), np.mean(np.array(longer) > 1)
        assert shares[0] <= delta + M / np.e**k + 3 / np.sqrt(draws)
        assert shares[1] <= delta + 3 / np.sqrt(draws)
        print(f"{name}, q = {q}: longest {max(apart):.2f}, {max(longer):.2f}; shares {shares}")


def test_frosh_lemma_3_the_mean_over_all_samples():
    """E X'S'S X = X'X, S scaled by sqrt(m / q): exactly, over all samples without replacement."""
    x, q = np.random.default_rng(27).standard_normal((7, 3)), 3
    grams = [x[list(s)].T @ x[list(s)] * 7 / q for s in itertools.combinations(range(7), q)]
    assert np.allclose(np.mean(grams, axis=0), x.T @ x, rtol=1e-12, atol=1e-12)


# -- GLRL --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", {**SMOOTH, **STRONG})
def test_glrl_definitions_1_and_2_constants_of_losses(loss, amount):
    """f(X) between the tangent at Y and mu / 2, L / 2 times ||X - Y||^2 above it; mu is 0 where none is said."""
    call, *constants, labels = {**SMOOTH, **STRONG}[loss]
    rng = np.random.default_rng(29)
    for _ in range(amount(30, 1000)):
        x, y, o = rng.standard_normal((3, 4, 5)) * 10.0 ** rng.uniform(-3, 3, (3, 1, 1))
        (here, _), (there, slopes) = (call(z, values_of(o, labels)) for z in (x, y))
        excess, square = (here - there - (x - y) * slopes).sum(), ((x - y) ** 2).sum()
        slack = 1e-12 * (here.sum() + there.sum() + np.abs((x - y) * slopes).sum())
        assert excess <= constants[0] / 2 * square + slack
        assert excess >= (constants[1] if len(constants) > 1 else 0.0) / 2 * square - slack


@pytest.mark.parametrize("loss", STRONG)
def test_glrl_lemma_7_gradients_of_strongly_convex_losses(loss, amount):
    """f(Y) >= f(X) - ||grad f(X)||^2 / (2 mu) for any X, Y."""
    call, _, mu, labels = STRONG[loss]
    rng, ratios = np.random.default_rng(28), {}
    for case in range(amount(30, 1000)):
        x, y, o = rng.standard_normal((3, 4, 5)) * 10.0 ** rng.uniform(-3, 3, (3, 1, 1))
        values, slopes = call(x, values_of(o, labels))
        for what, other in (("any", y), ("a step", x - slopes / mu)):
            lower = values.sum() - (slopes**2).sum() / (2 * mu)
            above = call(other, values_of(o, labels))[0].sum()
            assert above >= lower - 1e-12 * values.sum(), (case, what)
            ratios[case, what] = max(lower, 0.0) / (above + 1e-12 * values.sum())
    assert worst(ratios) <= 1


def distances(o, rank):
    """Return ||X_T|| of GLRL without refinement, logistic loss, all values observed."""
    x, _, _ = reference.greedy_low_rank_smooth(
        o, np.ones(o.shape, bool), rank=rank, loss=numpy_loss("logistic"), lipschitz=0.25, refine="none"
    )
    return np.linalg.norm(x)


def test_glrl_proposition_8_has_no_d2_for_all_steps_where_no_matrix_is_best():
    """||X_t - X*|| <= d2: of any number of steps; but signs have no best matrix, and X_t goes on to grow."""
    lengths = [distances(np.ones((1, 1)), rank) for rank in (4, 40, 250)]
    assert lengths[1] > lengths[0] + 1 and lengths[2] > lengths[1] + 1


def test_glrl_proposition_9_sums_of_powers():
    """Sum t^k <= (T + 1/2)^(k + 1) / (k + 1) for k > 0; for -1 < k < 0, which the proof uses, as well."""
    t = np.arange(1, 3001)
    for k in (-0.9, -0.5, -0.1, 0.01, 0.5, 0.99, 1, 1.5, 2, 7):
        assert (np.cumsum(t**k) <= (t + 0.5) ** (k + 1) / (k + 1)).all(), k
