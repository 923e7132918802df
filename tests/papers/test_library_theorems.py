"""Theorems of the papers, of the library's own calls, each beside mutants of the call for which it must fail.

The other files of this folder check the theorems of ``fastsketch.reference``. Here the left sides come from the models
of ``fastsketch.papers``. A mutant is the same model with one mistake: a test of a theorem that a mutant passes would
not notice that mistake in the library either.
"""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import papers
from fastsketch.sketching._engines import MappedEngine
from tests.lowrank.problems import stored
from tests.papers.inputs import ADVERSARIAL, EPS, worst
from tests.papers.test_adafd_theorems import METHODS, ROWS, Rounds, Watched
from tests.papers.test_glrl_theorems import matrices
from tests.papers.test_rfd_theorems import bound_of

N_CASES = 3


# -- RFD: what is estimated of A'A -------------------------------------------------------------------------------------
def estimates(call):
    """Yield (name, rows, sketch size, estimate of A'A) of a function that returns (B, alpha)."""
    rng = np.random.default_rng(31)
    for name, rows_of in ADVERSARIAL.items():
        for _ in range(N_CASES):
            n, d = int(rng.integers(20, 90)), int(rng.integers(4, 20))
            m = int(rng.integers(2, d + 1))
            rows = rows_of(rng, n, d)
            b, alpha = call(rows, m)
            yield (name, n, d, m), rows, m, b.T @ b + alpha * np.eye(d)


def error_over_bound(call, times):
    """Return the largest error over `times` min ||A - A_k||_F^2 / (2 (m - k)): Theorem 3 for 1, FD's bound for 2."""
    ratios = {}
    for what, rows, m, estimate in estimates(call):
        slack = (64 * rows.shape[1] + 8 * len(rows)) * EPS * np.linalg.norm(rows, 2) ** 2
        ratios[what] = np.linalg.norm(rows.T @ rows - estimate, 2) / (times * bound_of(rows, m) + slack)
    return worst(ratios)


def rfd(rows, m, **given):
    sketch = papers.robust_frequent_directions(m, **given).update(rows)
    return sketch.sketch(), sketch.alpha


def fast_rfd(rows, m):
    sketch = papers.fast_robust_frequent_directions(m).update(rows)
    return sketch.sketch(), sketch.alpha


def fd(rows, m):
    return papers.frequent_directions(m).update(rows).sketch(), 0.0


def truncated(rows, m):
    return fs.FrequentDirections(m, method="isvd", solver="svd", buffer_size=0).update(rows).sketch(), 0.0


def compensated(rows, m):
    sketch = fs.FrequentDirections(m, method="cfd", solver="svd", buffer_size=0).update(rows)
    return sketch.sketch(), sketch.shrinkage / 2


@pytest.mark.parametrize("call", [rfd, fast_rfd])
def test_theorem_3_and_corollary_2_of_rfd(call):
    assert error_over_bound(call, 1) <= 1


@pytest.mark.parametrize(
    "mutant",
    {
        "alpha is not added": lambda rows, m: (rfd(rows, m)[0], 0.0),
        "alpha is the whole sum": lambda rows, m: (rfd(rows, m)[0], 2 * rfd(rows, m)[1]),
        "nothing is subtracted": lambda rows, m: (truncated(rows, m)[0], rfd(rows, m)[1]),
        "all is added back to the rows": compensated,
    }.items(),
    ids=lambda mutant: mutant[0],
)
def test_theorem_3_of_rfd_sees(mutant):
    assert error_over_bound(mutant[1], 1) > 1


def test_the_bound_of_frequent_directions():
    assert error_over_bound(fd, 2) <= 1


def test_the_bound_of_frequent_directions_sees_that_nothing_is_subtracted():
    assert error_over_bound(truncated, 2) > 1


def condition_over(call):
    """Return the largest condition number over that of FD + alpha0 I, of the first inequality of Theorem 4."""
    rng, ratios, alpha0 = np.random.default_rng(32), {}, 1e-3
    for name in ("noise", "alternating", "cycles", "steep"):
        rows = ADVERSARIAL[name](rng, 60, 9)
        b, alpha = call(rows, 5, alpha0)
        flat = papers.frequent_directions(5).update(rows).sketch()
        printed = np.linalg.cond(flat.T @ flat + alpha0 * np.eye(9))
        ratios[name] = np.linalg.cond(b.T @ b + alpha * np.eye(9)) / printed / (1 + 1e-9)
    return worst(ratios)


def test_theorem_4_of_rfd_as_far_as_it_holds():
    assert condition_over(lambda rows, m, alpha0: rfd(rows, m, alpha0=alpha0)) <= 1
    assert condition_over(lambda rows, m, alpha0: (rfd(rows, m)[0], alpha0 / 10)) > 1  # alpha falls in place of growing


# -- ADA-FD: regret ----------------------------------------------------------------------------------------------------
# Targets by which the absolute loss has these signs of its slope.
TARGETS = {
    "absolute loss": lambda n, rng: np.ones(n),
    "noise": lambda n, rng: 1e9 * rng.choice([-1.0, 1.0], n),
    "against what was learned": lambda n, rng: np.full(n, -1e-9),
    "all one way": lambda n, rng: np.full(n, 1e9),
}


class LibraryRounds(Rounds):
    """Rounds of a model of the library; what its sketch removes is that of the printed sketch of the same gradients."""

    def __init__(self, model, make, rows, targets, *, eta, delta, form):
        n, self.d = rows.shape
        self.eta, self.delta, self.form = eta, delta, form
        self.gradients, self.betas = np.zeros((n, self.d)), np.zeros((n + 1, self.d))
        watched = Watched(make(self.d))
        for t in range(n):
            self.gradients[t] = np.sign(rows[t] @ self.betas[t] - targets[t]) * rows[t]
            self.betas[t + 1] = model.update(rows[t : t + 1], targets[t : t + 1]).coef
            watched.add(self.gradients[t])
        self.removed = np.array(watched.removed)
        self.trace = np.linalg.svd(self.gradients, compute_uv=False).sum()


CALLS = {
    "ada_fd": papers.ada_fd,
    "ada_ffd": papers.ada_ffd,
    "ada_full": lambda size, **given: fs.AdaptiveSubgradient(
        method="ada_full", scale=None, fit_intercept=False, calibrate=False, **given
    ),
}


def regret_over_bound(method, form, *, step=1.0):
    """Return the largest regret over its bound, of a learner whose steps are `step` times as long as they should be."""
    make, times = METHODS[method]
    rng, ratios = np.random.default_rng(33), {}
    for name in ROWS:
        for sign, targets_of in [*TARGETS.items()] * 3:
            n, d = int(rng.integers(20, 50)), int(rng.integers(3, 10))
            tau = int(rng.integers(2, d + 1 if method == "ada_fd" else max(d // 2, 2) + 1))
            if method == "ada_fd" and rng.random() < 0.5:
                tau = d + 1  # nothing is removed, and the bound is tighter
            rows = ADVERSARIAL[name](rng, n, d)
            largest = np.linalg.norm(rows, axis=1).max()
            delta = largest * 10.0 ** rng.uniform(-4, 1)
            if method == "ada_full" and form == "dual_averaging":
                delta = max(delta, largest)
            eta = 10.0 ** rng.uniform(-3, 2)
            model = CALLS[method](tau, loss="absolute", learning_rate=step * eta, delta=delta, form=form)
            how = {"eta": eta, "delta": delta, "form": form}
            rounds = LibraryRounds(model, make(tau), rows, targets_of(n, rng), **how)
            for k, best in enumerate(rounds.comparators(rng)):
                bound = rounds.bound(best, removed_times=None if times is None else times * tau)
                ratios[name, sign, n, d, tau, eta, k] = rounds.regret(best) / bound
    return worst(ratios)


@pytest.mark.parametrize("form", ["dual_averaging", "mirror_descent"])
@pytest.mark.parametrize("method", CALLS)
def test_theorems_1_to_5_of_ada_fd(method, form):
    assert regret_over_bound(method, form) <= 1
    assert regret_over_bound(method, form, step=5.0) > 1


# -- FROSH: centring ---------------------------------------------------------------------------------------------------
def loss_of_centring():
    """Return the largest error of a centred sketch behind a map that keeps all rows, over ||A||_F^2: Remark 1."""
    rng, ratios = np.random.default_rng(35), {}
    m, d = 64, 12
    for name in ("noise", "alternating", "cycles", "steep"):
        blocks = [ADVERSARIAL[name](rng, m, d) + shift for shift in range(5)]
        rows = np.vstack(blocks)
        given = {"center": True, "compressor": fs.Compressor("srht", m, block_rows=m)}
        sketch = fs.FrequentDirections(d + 1, method="fd", solver="svd", **given).update(rows)
        centred = rows - rows.mean(axis=0)
        ratios[name] = np.linalg.norm(centred.T @ centred - sketch.gram(), 2) / (rows**2).sum()
    return worst(ratios)


def test_remark_1_of_frosh_centring_loses_nothing(monkeypatch):
    assert loss_of_centring() <= 1e-12
    move = MappedEngine._move_mean
    monkeypatch.setattr(MappedEngine, "_move_mean", lambda *given: [move(*given), None][1])  # no correction row
    assert loss_of_centring() > 1e-3


# -- GLRL: how fast the square loss falls ------------------------------------------------------------------------------
def objective_over_bound(**mutation):
    """Return the largest objective over (1 - 1 / min(m, n))^t times the first one: Theorem 4 with the least gamma."""
    rng, ratios = np.random.default_rng(34), {}
    for name, o in matrices(rng, 7, 6):
        if name in ("tiny", "huge"):
            continue
        seen = rng.random(o.shape) < 0.7
        model = papers.rank_one_matrix_pursuit(5)
        if mutation:
            model = fs.LowRankModel(**{**model.parameters, **mutation})
        f = np.array([line["objective"] for line in model.fit(stored(o, seen)).history])
        for t in range(1, len(f)):
            ratios[name, t] = f[t] / ((1 - 1 / min(o.shape)) ** t * f[0] + 1e-12 * f[0])
    return worst(ratios)


def test_theorem_4_of_glrl():
    assert objective_over_bound() <= 1


def test_theorem_4_of_glrl_sees_steps_that_are_too_short():
    assert objective_over_bound(refine="none") <= 1
    assert objective_over_bound(refine="none", learning_rate=0.2) > 1
