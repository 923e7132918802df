"""A grid of learning rates and deltas under the absolute loss, learned in one pass over the rows.

A subgradient of |w'x - y| is x or -x, so that G = sum g g' depends on neither. Where G takes most of a round (ADA-FULL,
ADA-LR, RADAGRAD) one loop finds it for all points of the grid; else there is a model for each.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from bench_papers import adaptive
from fastsketch._kernels.online.numbers import RANK, ROWS


class Point(NamedTuple):
    """One pair of step sizes."""

    learning_rate: float
    delta: float


class AdaptiveGrid:
    """Adaptive subgradient methods at all points of a grid.

    Parameters
    ----------
    rates, deltas : sequences of float
    method : a method of AdaptiveSubgradient, "ada_lr" or "radagrad"
    form : "mirror_descent" or "dual_averaging"
    sketch_size : int, default 20
    """

    def __init__(self, rates, deltas, *, method, form="mirror_descent", sketch_size=20):
        self.points = [Point(*point) for point in product(rates, deltas)]
        self.shape = len(rates), len(deltas)
        self.together = method in TOGETHER
        if self.together:
            self.losses, self.rounds = np.zeros(len(self.points)), None
            self.setting = method, form, sketch_size
        else:
            more = {"form": form, "loss": "absolute"}
            self.models = [adaptive(method, sketch_size, **point._asdict(), **more) for point in self.points]

    def update(self, rows, y):
        """Learn from dense rows (n, d), at all points."""
        if not self.together:
            for model in self.models:
                model.update(rows, y)
            return self
        if self.rounds is None:
            self.rounds = _rounds(rows.shape[1], self.points, *self.setting)
            next(self.rounds)
        for row, target in zip(rows, y, strict=True):
            self.losses += self.rounds.send((row, target))
        return self

    @property
    def cumulative_loss(self):
        """Return the sums of losses so far, (len(rates), len(deltas))."""
        losses = self.losses if self.together else [model.progress["cumulative_loss"] for model in self.models]
        return np.reshape(losses, self.shape)

    def best(self):
        """Return the point of the smallest cumulative loss."""
        return self.points[int(np.argmin(self.cumulative_loss))]


def _rounds(d, points, method, form, sketch_size):
    """Play rounds: each is sent (x, y) and gives the losses of all points, (k,)."""
    eta, delta = np.array(points).T[:, :, np.newaxis]
    w, total, losses = np.zeros((len(points), d)), np.zeros((len(points), d)), None
    eigenpairs = TOGETHER[method](d, sketch_size)
    while True:
        x, y = yield losses
        residuals = w @ x - y
        losses, signs = np.abs(residuals), np.sign(residuals)[:, np.newaxis]
        s, *factors = eigenpairs(x)  # G is near v' diag(s) v, v the product of the factors
        total += signs * x
        g = total if form == "dual_averaging" else signs * x
        inner = g
        for factor in reversed(factors):
            inner = inner @ factor.T
        step = inner / (np.sqrt(s) + delta)
        if method == "radagrad":  # a plain step outside
            step -= inner
        for factor in factors:
            step = step @ factor
        if method == "radagrad":
            step += g
        w = -eta * step if form == "dual_averaging" else w - eta * step


def _whole(d, _):
    """Of all of G, as a model turns them from one round to the next: a third of the time of `eigh`."""
    model = adaptive("ada_full", 2, loss="absolute", learning_rate=1.0, delta=1.0)

    def eigenpairs(x):
        model.update(x[np.newaxis], np.ones(1))
        (state,) = model._model_state.states.main_learners
        rank, n = state.count[RANK], state.count[ROWS]
        return np.maximum(state.lam[:rank], 0.0), state.turn[:rank, :n], state.rows.rows[:n]

    return eigenpairs


def _projected_anew(d, sketch_size):
    total, rng = np.zeros((d, d)), np.random.default_rng(0)

    def eigenpairs(x):
        nonlocal total
        total += np.outer(x, x)
        q, _ = np.linalg.qr(total @ rng.standard_normal((d, sketch_size)))
        return np.linalg.svd(q.T @ total, full_matrices=False)[1:]

    return eigenpairs


def projected_once(d, sketch_size):
    low = np.zeros((d, sketch_size))
    projection = np.random.default_rng(0).standard_normal((sketch_size, d)) / np.sqrt(sketch_size)

    def eigenpairs(x):
        low[...] += np.outer(x, projection @ x)
        q, _ = np.linalg.qr(low)
        _, s, wt = np.linalg.svd(low.T @ q, full_matrices=False)
        return s, (q @ wt.T).T

    return eigenpairs


TOGETHER = {"ada_full": _whole, "ada_lr": _projected_anew, "radagrad": projected_once}
