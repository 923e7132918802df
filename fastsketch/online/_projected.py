"""ADA-LR and RADAGRAD: G by random projections, for comparison. A round is a few LAPACK calls, so that NumPy serves."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from fastsketch import _threads
from fastsketch._kernels.online.numbers import ROUND
from fastsketch._losses import LOSSES, as_loss_parameter
from fastsketch._random import Normal, random_normal
from fastsketch.online._points import PointsState, beginning
from fastsketch.online._state import Batch, Floats, Zeros


@dataclass(frozen=True, slots=True)
class ProjectedSetting:
    """The parameters of a model as its rounds take them."""

    method: str
    loss: str
    sketch_size: int
    seed: int
    in_units: bool = False  # slopes and steps in units of residuals


@dataclass(slots=True)
class ProjectedState(PointsState):
    """Arrays of k points in d features."""

    setting: ProjectedSetting
    products: Floats  # sum of g g' (d, d) of "ada_lr", of g (Pi g)' (d, tau) of "radagrad"

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Rounds of equations 3 and 4 of the ADA-FD paper, for every point."""
        fixed = projection(self.setting, self.base.shape[1], 0) if self.setting.method == "radagrad" else None
        with np.errstate(all="ignore"):
            for i, x in enumerate(cast(Floats, batch)):
                if not self._round(x, targets[i], sample_weight[i], fixed, scores[i : i + 1]):
                    return

    @_threads.one_blas_thread
    def _round(self, x: Floats, target: float, weight: float, fixed: Floats | None, score: Floats) -> bool:
        """Learn from one row; False, with nothing changed, if a score is not finite."""
        loss, p = LOSSES[self.setting.loss], as_loss_parameter(self.setting.loss, None)
        z = self.base @ x
        y = np.full_like(z, target)
        losses, slopes = weight * loss.value(z, y, p), weight * loss.slope(z, y, p)
        if not np.isfinite(z).all() or not np.isfinite(slopes * slopes * (x @ x)).all():
            return False
        unit = 1.0
        if self.residuals is not None and weight > 0:
            sums = self.residuals + (weight * (z[0] - target) ** 2, weight)
            if not np.isfinite(sums).all():
                return False
            self.residuals[:] = sums
            unit = float(np.sqrt(sums[0] / sums[1])) or 1.0
            if self.setting.loss == "absolute" or (self.setting.loss == "huber" and unit > 1):
                slopes = slopes * unit
        score[0] = z[0]
        self.count[ROUND] += 1
        self.losses += losses
        self.mistakes += z * target <= 0
        h_slope = weight if self.setting.loss == "absolute" else slopes[0] / unit
        if abs(h_slope) > 1e-12 and x.any():
            self._step(x, h_slope, slopes, fixed)
        return True

    def _step(self, x: Floats, h_slope: float, slopes: Floats, fixed: Floats | None) -> None:
        """H takes the gradient h_slope x, w of each point moves along its own, slope x."""
        eta, delta, g = self.learning_rate[:, None], self.delta[:, None], h_slope * x
        if fixed is None:
            self.products += np.outer(g, g)
            q = np.linalg.qr(self.products @ projection(self.setting, len(x), int(self.count[ROUND])))[0]
            _, s, vt = _svd(q.T @ self.products)
            inner = vt @ x
            self.base -= eta * slopes[:, None] * ((inner / (np.sqrt(s) + delta)) @ vt)
            return
        self.products += np.outer(g, g @ fixed)
        q = np.linalg.qr(self.products)[0]
        _, s, wt = _svd(self.products.T @ q)
        v = q @ wt.T
        inner = v.T @ x
        self.base -= eta * slopes[:, None] * ((inner / (np.sqrt(s) + delta)) @ v.T + (x - v @ inner))

    def is_atomic(self) -> bool:
        return False

    def coefs(self) -> Floats:
        return self.base.copy()


def _svd(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    if not np.isfinite(matrix).all():  # LAPACK may look for the singular values of infinity for ever
        raise np.linalg.LinAlgError("the products of the gradients have left the range of numbers")
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return u, s, vt


def start(
    setting: ProjectedSetting, learning_rate: Floats, delta: Floats, *, d: int, sparse: bool, zeros: Zeros = np.zeros
) -> ProjectedState:
    """The state before the first row; with zeros=outline, one of the same shapes that takes no memory."""
    width = d if setting.method == "ada_lr" else setting.sketch_size
    return ProjectedState(
        **beginning(learning_rate, delta, d=d, sparse=sparse, in_units=setting.in_units, zeros=zeros),
        setting=setting,
        products=zeros((d, width)),
    )


def projection(setting: ProjectedSetting, d: int, round_: int) -> Floats:
    """Pi, (d, tau): one for all rounds of RADAGRAD, another in each of ADA-LR."""
    tau = setting.sketch_size
    if setting.method == "ada_lr":
        return random_normal(setting.seed, Normal.ADA_LR + round_, d * tau).reshape(d, tau)
    return random_normal(setting.seed, Normal.RADAGRAD, d * tau).reshape(tau, d).T / np.sqrt(tau)
