"""The ADA-FD paper's theorems (Wan, Zhang, IEEE TPAMI 44, 2022): regret over its bound is at most 1.

All their proofs replace a loss by its tangent. So the regret here is sum g_t'(beta_t - beta*), which is at least that
of any convex losses with these subgradients, and the subgradients may be anything.
"""

import numpy as np
import pytest

from fastsketch.reference._rounds import FD, FFD, WholeMatrix, adaptive_rounds
from tests.papers.inputs import ADVERSARIAL, worst

# Roots of squares are taken: lengths of 1e-100 stay numbers of a double, and a delta of their order is below its range.
ROWS = [name for name in ADVERSARIAL if name not in ("tiny", "huge")]
SIGNS = {
    "absolute loss": lambda t, x, beta, rng: np.sign(x @ beta - 1.0),
    "noise": lambda t, x, beta, rng: rng.choice([-1.0, 1.0]),
    "against what was learned": lambda t, x, beta, rng: np.sign(x @ beta) or 1.0,
    "all one way": lambda t, x, beta, rng: -1.0,
}


class Watched:
    """A sketch of gradients that remembers sigma_t, what each round has removed from the squares."""

    def __init__(self, sketch):
        self.sketch, self.removed = sketch, []

    def fade(self, decay):
        self.sketch.fade(decay)

    def add(self, g):
        sketch = self.sketch
        if isinstance(sketch, FD):
            rows = np.vstack([sketch.s[:-1], g])
            squares = np.linalg.svd(rows, compute_uv=False) ** 2
            self.removed.append(squares[-1] if len(squares) == sketch.tau else 0.0)
            return sketch.add(g)
        v, s = sketch.add(g)
        full = isinstance(sketch, FFD) and len(s) == 2 * sketch.tau
        self.removed.append(s[sketch.tau - 1] ** 2 if full else 0.0)
        return v, s


class Rounds:
    """Rounds of a method: gradients and decisions (rounds, d), sigma_t, and the terms of its bounds."""

    def __init__(self, make, rows, sign, *, eta, delta, form, rng):
        n, self.d = rows.shape
        self.eta, self.delta, self.form = eta, delta, form
        self.gradients, self.betas = np.zeros((n, self.d)), np.zeros((n + 1, self.d))
        watched = Watched(make(self.d))

        def subgradient(t, beta):
            self.betas[t - 1] = beta
            self.gradients[t - 1] = sign(t, rows[t - 1], beta, rng) * rows[t - 1]
            return 0.0, self.gradients[t - 1]

        steps = {"subgradient": subgradient, "learning_rate": eta, "delta": delta, "form": form}
        self.betas[n] = adaptive_rounds(watched, self.d, rounds=n, **steps)[0]
        self.removed = np.array(watched.removed)
        self.trace = np.linalg.svd(self.gradients, compute_uv=False).sum()  # tr(G^(1/2))

    def regret(self, best):
        return float((self.gradients * (self.betas[:-1] - best)).sum())

    def comparators(self, rng):
        """Give decisions: none, the one that makes regret less the bound's squares largest, others of its length."""
        against = -self.gradients.sum(axis=0)
        hardest = self.eta * against / (self.delta + self.trace)
        yield from (np.zeros(self.d), hardest, 3 * hardest, hardest / 3, self.betas[-1])
        other = rng.standard_normal(self.d)
        yield other * np.linalg.norm(hardest) / np.linalg.norm(other)

    def bound(self, best, *, removed_times):
        """Return the right side of Theorems 1, 4 (dual averaging), 2, 5 (mirror descent, removed_times tau), 3."""
        dual = self.form == "dual_averaging"
        away = ((self.betas - best) ** 2).sum(axis=1).max() if not dual else 0.0
        square, roots = best @ best, np.sqrt(self.removed).sum()
        largest = np.linalg.norm(self.gradients, axis=1).max() if dual else 0.0
        ratio = (largest + np.sqrt(self.removed.sum())) / self.delta
        if removed_times is None:  # ADA-FULL: nothing is removed
            ratio, roots = 1.0, 0.0
        out = self.delta / (2 * self.eta) * square + (square if dual else away) * self.trace / (2 * self.eta)
        out += self.eta * max(1.0, ratio) * self.trace
        if dual:
            return out + roots / (2 * self.eta) * (self.betas**2).sum(axis=1).max()
        return out + (removed_times or 0) * roots / (2 * self.eta) * away


METHODS = {
    "ada_fd": (lambda tau: lambda d: FD(d, tau), 1),
    "ada_ffd": (lambda tau: lambda d: FFD(d, tau), 2),
    "ada_full": (lambda tau: WholeMatrix, None),
}


@pytest.mark.parametrize("form", ["dual_averaging", "mirror_descent"])
@pytest.mark.parametrize("method", METHODS)
def test_theorems_1_to_5_regret(method, form, amount):
    """Theorems 1, 2: ADA-FD; 4, 5: ADA-FFD; 3: ADA-FULL, whose dual averaging needs delta >= the longest gradient."""
    make, times = METHODS[method]
    rng, ratios = np.random.default_rng(5), {}
    for name in ROWS:
        for sign in SIGNS:
            for case in range(amount(1, 12)):
                n, d = int(rng.integers(20, amount(50, 200))), int(rng.integers(3, 10))
                tau = int(rng.integers(2, d + 1 if method == "ada_fd" else max(d // 2, 2) + 1))
                rows = ADVERSARIAL[name](rng, n, d)
                largest = np.linalg.norm(rows, axis=1).max()
                delta = largest * 10.0 ** rng.uniform(-4, 1)
                if method == "ada_full" and form == "dual_averaging":
                    delta = max(delta, largest)
                eta = 10.0 ** rng.uniform(-3, 2)
                rounds = Rounds(make(tau), rows, SIGNS[sign], eta=eta, delta=delta, form=form, rng=rng)
                for k, best in enumerate(rounds.comparators(rng)):
                    bound = rounds.bound(best, removed_times=None if times is None else times * tau)
                    ratios[name, sign, case, n, d, tau, delta, eta, k] = rounds.regret(best) / bound
    assert worst(ratios) <= 1


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_what_is_removed_has_the_bound_of_frequent_directions(name, amount):
    """Equation 13: Delta_T <= ||C - C_k||_F^2 / (tau - k) for every k < tau, for ADA-FFD as for ADA-FD."""
    rng, ratios = np.random.default_rng(6), {}
    for case in range(amount(3, 60)):
        n, d = int(rng.integers(20, 90)), int(rng.integers(4, 12))
        for method, largest in (("ada_fd", d), ("ada_ffd", d // 2)):
            tau = int(rng.integers(2, largest + 1))
            rows = ADVERSARIAL[name](rng, n, d)
            watched = Watched(METHODS[method][0](tau)(d))
            for row in rows:
                watched.add(row)
            squares = np.linalg.svd(rows, compute_uv=False) ** 2
            tails = np.r_[np.cumsum(squares[::-1])[::-1], np.zeros(tau)]
            slack = 8 * n * np.finfo(float).eps * squares[0]
            right = min(tails[k] / (tau - k) for k in range(tau)) + slack
            ratios[method, case, n, d, tau] = sum(watched.removed) / right
    assert worst(ratios) <= 1
