"""Theorems of the papers, of the library's own calls, each beside mutants of the call for which it must fail.

The other files of this folder check the theorems of ``fastsketch.reference``. Here the left sides come from the models
of ``fastsketch.papers``. A mutant is the same model with one mistake: a test of a theorem that a mutant passes would
not notice that mistake in the library either.
"""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import papers
from fastsketch.reference._curvatures import Shrinking
from fastsketch.reference._newton_rounds import _project
from fastsketch.reference._rounds import FD, FFD
from fastsketch.sketching._engines import MappedEngine
from fastsketch.sketching._random_maps import SizedMap
from tests.lowrank.problems import stored
from tests.papers.inputs import ADVERSARIAL, EPS, worst
from tests.papers.test_adafd_theorems import METHODS, ROWS, Rounds, Watched
from tests.papers.test_frosh_theorems import EVEN, gamma
from tests.papers.test_glrl_theorems import SMOOTH, matrices, values_of
from tests.papers.test_rfd_theorems import FLAT, LABELS, MU, bound_of, first_phase, grown, other_terms
from tests.papers.test_rfd_theorems import Rounds as NewtonRounds

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


def step_error_over_best(call):
    """Return the largest error of one step over the least that any matrix of rank m - 1 has: Theorem 2, m < d."""
    rng, ratios, d, m = np.random.default_rng(40), {}, 7, 4
    for name, rows_of in ADVERSARIAL.items():
        rows = rows_of(rng, 30, d)
        for t in range(m, len(rows)):
            (before, alpha), (after, later_alpha) = call(rows[:t], m), call(rows[: t + 1], m)
            ahead = before.T @ before + np.outer(rows[t], rows[t])
            sigma = np.linalg.eigvalsh(ahead + alpha * np.eye(d))[::-1]
            found = np.linalg.norm(ahead - after.T @ after - (later_alpha - alpha) * np.eye(d), 2)
            ratios[name, t] = found / ((sigma[m - 1] - sigma[-1]) / 2 + 256 * d * EPS * sigma[0])
    return worst(ratios) / (1 + 1e-9)


def test_theorem_2_of_rfd():
    assert step_error_over_best(rfd) <= 1
    assert step_error_over_best(lambda rows, m: (rfd(rows, m)[0], 0.0)) > 1
    assert step_error_over_best(truncated) > 1


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


# -- RFD-SON: regret ---------------------------------------------------------------------------------------------------
class LibraryNewtonRounds(NewtonRounds):
    """Rounds of a SketchedNewton model; H is that of the printed doubled buffer, of the gradients of these rounds.

    A full buffer has 2 m rows, so that a shrink lowers up to 2 m - 1 eigenvalues where Algorithm 3 lowers m. The
    theorems hold for it with 2 m - 1 in the place of m.
    """

    def __init__(self, model, rows, labels, size, alpha0):
        n, d = rows.shape
        self.rows, self.labels, self.alpha0, self.m = rows, labels, alpha0, min(2 * size - 1, d)
        sketch = Shrinking(d, size, limit=2 * size, method="rfd", alpha0=alpha0, beta=0.0)
        self.weights, self.gradients, self.h = np.zeros((n, d)), np.zeros((n, d)), np.zeros((n, d, d))
        self.alpha, self.scores = np.zeros(n), np.zeros(n)
        for t in range(n):
            if t > 0 and sketch.h().any():  # what the model does to the next row before it is scored
                self.weights[t] = _project(model.coef, rows[t], sketch.h(), sketch.alpha)
            self.scores[t] = model.update(rows[t : t + 1], labels[t : t + 1]).last_scores[0]
            slope = 2 * (self.scores[t] - labels[t])
            self.gradients[t] = slope * rows[t] * (abs(slope) > FLAT)
            if self.gradients[t].any():
                sketch.append(np.sqrt(MU + 1 / (t + 1)) * self.gradients[t])
            self.alpha[t], self.h[t] = sketch.alpha, sketch.h()
        self.b, self.eta = sketch.b, 1 / np.arange(1, n + 1)
        self.removed = 2 * np.diff(self.alpha, prepend=alpha0)
        self.losses = (self.scores - labels) ** 2


def newton(size, alpha_start, **mutation):
    """Return the model of Algorithm 6 with the projection of Algorithm 3, of which the theorems on regret are."""
    printed = papers.rfd_son(size, alpha0=alpha_start).parameters
    return fs.SketchedNewton(**{**printed, "constraint": "next", **mutation})


def newton_streams(alpha0, n):
    """Yield (name, rows, labels, sketch size, alpha0 in units of the rows)."""
    rng = np.random.default_rng(36)
    for name in ("noise", "alternating", "cycles", "steep", "heavy"):
        for label in LABELS:
            d, scale = 9, 10.0 ** rng.integers(-20, 20)
            rows = ADVERSARIAL[name](rng, n, d)
            rows *= scale / np.sqrt(np.mean((rows**2).sum(axis=1)))
            labels = LABELS[label](rng, rows @ rng.standard_normal(d))
            yield (name, label), rows, labels, int(rng.integers(2, 5)), alpha0 * scale**2


def newton_regret_over_bound(alpha0, n, mutation=()):
    """Return the largest regret over the bound of Theorem 5 (alpha0 > 0), or of Theorems 6 and 7 (alpha0 = 0)."""
    ratios = {}
    for what, rows, labels, size, a0 in newton_streams(alpha0, n):
        mutated = {name: change(a0) for name, change in dict(mutation).items()}
        rounds = LibraryNewtonRounds(newton(size, a0, **mutated), rows, labels, size, a0)
        if alpha0 > 0:
            right = grown(rounds, rows.shape[1] * np.log(a0), 0)
        else:
            t0, right = first_phase(rounds)
            if t0 < n:
                right += 1 / (MU + rounds.eta[t0]) + grown(rounds, np.linalg.slogdet(rounds.h[t0])[1], t0 + 1)
        for name, w in rounds.comparators(np.random.default_rng(0)):
            ratios[what, name] = rounds.regret(w) / (a0 / 2 * w @ w + right + other_terms(rounds, w))
    return worst(ratios)


@pytest.mark.parametrize("alpha0", [0.0, 1e-3, 1.0])
def test_theorems_5_to_7_of_rfd(alpha0, amount):
    assert newton_regret_over_bound(alpha0, amount(300, 3000)) <= 1


@pytest.mark.parametrize(
    "mutant",
    {
        "the weights hardly move": {"alpha0": lambda a0: 1e12 * a0},
        "steps are a thousandth as long": {"loss_scale": lambda a0: 2e3},
    }.items(),
    ids=lambda mutant: mutant[0],
)
def test_theorem_5_of_rfd_sees(mutant):
    assert newton_regret_over_bound(1e-3, 1500, mutant[1]) > 1


def alpha_over_bound(alpha_of):
    """Return the largest growth of alpha over half the bound of FD for the rows that were sketched: Theorem 3."""
    ratios = {}
    for what, rows, labels, size, a0 in newton_streams(1e-3, 200):
        model = newton(size, a0)
        rounds = LibraryNewtonRounds(model, rows, labels, size, a0)
        sketched = np.sqrt(MU + rounds.eta)[:, np.newaxis] * rounds.gradients
        slack = 1e-12 * (sketched**2).sum()
        ratios[what] = (alpha_of(model, a0) - a0) / (bound_of(sketched, size) + slack)
    return worst(ratios)


def test_alpha_of_rfd_son_grows_as_theorem_3_lets_it():
    assert alpha_over_bound(lambda model, a0: model.alpha) <= 1
    assert alpha_over_bound(lambda model, a0: a0 + 10 * (model.alpha - a0)) > 1


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


# -- FTSL: regret ------------------------------------------------------------------------------------------------------
def ftsl(tau, *, fast, **given):
    method = "ftfsl" if fast else "ftsl"
    plain = {"scale": None, "fit_intercept": False, "calibrate": False}
    return fs.AdaptiveSubgradient(tau, method=method, form="dual_averaging", loss="absolute", **plain, **given)


def ftsl_regret_over_bound(make, *, fast, step=1.0):
    """Return the largest regret of FTSL over its bound, which docs/papers/adafd.md proves.

    The bound is eta tr(G^(1/2)) + |x|^2 (delta + sqrt(c)) / (2 eta), with c the largest eigenvalue of S'S + rho I.
    """
    rng, ratios = np.random.default_rng(33), {}
    for name in ROWS:
        for sign, targets_of in [*TARGETS.items()] * 3:
            n, d = int(rng.integers(20, 60)), int(rng.integers(3, 24))
            tau = int(rng.integers(2, (max(d // 2, 2) if fast else d) + 1))
            rows = ADVERSARIAL[name](rng, n, d)
            delta, eta = np.linalg.norm(rows, axis=1).max(), 10.0 ** rng.uniform(-3, 2)
            model = make(tau, fast=fast, learning_rate=step * eta, delta=delta)
            sketch = FFD if fast else FD
            given = {"eta": eta, "delta": delta, "form": "dual_averaging"}
            rounds = LibraryRounds(model, lambda d: sketch(d, tau), rows, targets_of(n, rng), **given)  # noqa: B023
            squares = rounds.gradients.T @ rounds.gradients
            watched = sketch(d, tau)
            for g in rounds.gradients:
                v, s = watched.add(g)
            second = (v * s**2) @ v.T + watched.removed * np.eye(d)  # S'S + rho I is at least G
            least = np.linalg.eigvalsh(second - squares)[0]
            assert least >= -1e-9 * np.linalg.norm(squares, 2)
            largest = float(np.linalg.eigvalsh(second)[-1])
            for k, best in enumerate(rounds.comparators(rng)):
                bound = eta * rounds.trace + best @ best * (delta + np.sqrt(largest)) / (2 * eta)
                ratios[name, sign, n, d, tau, eta, k] = rounds.regret(best) / bound
    return worst(ratios)


@pytest.mark.parametrize("fast", [False, True])
def test_the_regret_of_ftsl_has_a_bound_without_the_number_of_columns(fast):
    assert ftsl_regret_over_bound(ftsl, fast=fast) <= 1
    assert ftsl_regret_over_bound(ftsl, fast=fast, step=5.0) > 1


def test_the_bound_of_ftsl_needs_what_the_sketch_has_removed():
    def without(tau, *, fast, **given):
        return papers.ada_fd(tau, loss="absolute", form="dual_averaging", **given)

    assert ftsl_regret_over_bound(without, fast=False) > 1


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


D, BLOCK = 24, 96  # columns; rows of a block that the map takes together, 4 D by default


def sketch_of(parts, size):
    """Return the merged sketch of parts of the rows, each with its own random numbers. One part is FROSH's stream."""
    sketches = []
    for k, rows in enumerate(parts):
        parameters = papers.faster_frequent_directions(size, center=True).parameters
        compressor = fs.Compressor("srht", first_block=1000 * k)
        sketches.append(fs.FrequentDirections(**{**parameters, "compressor": compressor}).update(rows))
    return fs.merge(sketches)


def frosh_error_over_bound(n_parts, numbers_of_blocks=(1, 4, 64)):
    """Return the largest error over that of Lemma 1, of rows about their mean: Theorem 1, and 2 for several parts."""
    rng, ratios = np.random.default_rng(37), {}
    for size in (4, 16, 24):
        for n_blocks in numbers_of_blocks:
            for name in EVEN:
                parts = [ADVERSARIAL[name](rng, n_blocks * BLOCK, D) for _ in range(n_parts)]
                parts = [rows + np.abs(rows).max() for rows in parts]
                rows = np.vstack(parts)
                centred = rows - rows.mean(axis=0)
                error = np.linalg.norm(centred.T @ centred - sketch_of(parts, size).gram(), 2)
                squares = (centred**2).sum() + 1e-13 * (rows**2).sum()
                ratios[name, size, n_blocks] = error / (gamma(size, n_blocks * n_parts, D) * squares)
    return worst(ratios)


@pytest.mark.parametrize("n_parts", [1, 4])
def test_theorems_1_and_2_of_frosh(n_parts):
    assert frosh_error_over_bound(n_parts) <= 1


def without_signs(numbers):
    return lambda *given: (drawn := numbers(*given))._replace(value=np.ones_like(drawn.value))


def first_rows(numbers):
    """Keep the same rows of every transformed block, the first ones."""
    return lambda *given: (drawn := numbers(*given))._replace(
        target=np.arange(len(drawn.target), dtype=np.int32), hi=np.zeros_like(drawn.hi), value=np.ones_like(drawn.value)
    )


@pytest.mark.parametrize("mutate", [without_signs, first_rows])
def test_theorem_1_of_frosh_sees_what_is_not_random(mutate, monkeypatch):
    monkeypatch.setattr(SizedMap, "numbers", mutate(SizedMap.numbers))
    assert frosh_error_over_bound(1, numbers_of_blocks=(64,)) > 1


def test_theorem_1_of_frosh_sees_rows_of_another_scale(monkeypatch):
    scale = SizedMap.scale.fget
    monkeypatch.setattr(SizedMap, "scale", property(lambda sized: 1.5 * scale(sized)))
    assert frosh_error_over_bound(1, numbers_of_blocks=(64,)) > 1


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


class Pursuit:
    """X_0, X_1, ... of a fitted model, its objectives, and the gradients there."""

    def __init__(self, model, o, seen, loss):
        fitted = model.fit(stored(o, seen))
        ranks = [line["rank"] for line in fitted.history]
        self.f = np.array([line["objective"] for line in fitted.history])
        self.xs = [fitted.decision_block(np.arange(len(o)), rank=rank) if rank else np.zeros(o.shape) for rank in ranks]
        gradients = [np.where(seen, loss(x, o)[1], 0.0) for x in self.xs]
        self.s = np.array([np.linalg.norm(g, 2) for g in gradients])
        lengths = np.array([np.linalg.norm(g) for g in gradients])
        self.gamma = np.divide(self.s, lengths, out=np.ones(len(lengths)), where=lengths > 0)
        self.slack = 1e-9 * abs(self.f[0])  # singular vectors to 1e-9, and rounding


def pursued(call, losses, share, mutation):
    """Yield (what, values, mask, loss function, Lipschitz constant, Pursuit) of a function of fastsketch.papers."""
    rng = np.random.default_rng(38)
    for name, o in matrices(rng, 7, 6):
        if name in ("tiny", "huge"):
            continue
        for loss in losses:
            function, lipschitz, labels = SMOOTH[loss]
            values, seen = values_of(o, labels), rng.random(o.shape) < share
            given = {"loss_parameter": 1.0} if loss == "huber" else {}
            model = fs.LowRankModel(**{**call(5, loss=loss, **given).parameters, **mutation})
            yield (name, loss), values, seen, function, lipschitz, Pursuit(model, values, seen, function)


def step_over_decrease(call, **mutation):
    """Return the largest s^2 / (2 L) over the decrease of the objective in that step: Proposition 1."""
    ratios = {}
    for what, _, _, _, lipschitz, path in pursued(call, SMOOTH, 0.7, mutation):
        for t in range(1, len(path.f)):
            least = path.s[t - 1] ** 2 / (2 * lipschitz)
            ratios[what, t] = least / (path.f[t - 1] - path.f[t] + path.slack + 1e-6 * least)
    return worst(ratios)


def objective_over_sublinear_rate(call, **mutation):
    """Return the largest f(X_t) - f(X*) over its bound, for X* of the observed values: Theorem 3."""
    ratios = {}
    for what, o, seen, function, lipschitz, path in pursued(call, SMOOTH, 0.7, mutation):
        best = np.where(seen, o, 0.0)
        below = function(best, o)[0][seen].sum()
        for t in range(1, len(path.f)):
            a0, a = path.f[0] - below, path.f[t] - below
            if a <= 0 or a0 == 0:
                continue
            d1, d2 = path.gamma[:t].min(), max(np.linalg.norm(x - best) for x in path.xs[:t])
            ratios[what, t] = a / (1 / (1 / a0 + d1**2 * t / (2 * d2**2 * lipschitz)) + path.slack)
    return worst(ratios)


def objective_over_linear_rate(call, **mutation):
    """Return the largest f(X_t) over (1 - d1^2)^t f(X_0), where all values are observed: Theorem 2, square loss."""
    ratios = {}
    for what, _, _, _, _, path in pursued(call, ["square"], 1.0, mutation):
        for t in range(1, len(path.f)):
            rate = 1 - path.gamma[:t].min() ** 2
            ratios[what, t] = path.f[t] / (rate**t * path.f[0] + path.slack)
    return worst(ratios)


@pytest.mark.parametrize("call", [papers.glrl, papers.eglrl])
@pytest.mark.parametrize("over", [step_over_decrease, objective_over_linear_rate, objective_over_sublinear_rate])
def test_proposition_1_and_theorems_2_and_3_of_glrl(over, call):
    assert over(call) <= 1


@pytest.mark.parametrize(
    ("over", "length"),
    [(step_over_decrease, 0.5), (objective_over_linear_rate, 0.5), (objective_over_sublinear_rate, 0.002)],
)
def test_proposition_1_and_theorems_2_and_3_of_glrl_see_steps_that_are_too_short(over, length):
    assert over(papers.glrl, refine="none") <= 1
    assert over(papers.glrl, refine="none", learning_rate=length) > 1
