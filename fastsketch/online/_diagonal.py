"""The arrays of the adaptive methods with a diagonal H; the rounds are in _kernels/diagonal."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fastsketch._kernels import diagonal as kernel
from fastsketch._kernels.losses import NO_PENALTY
from fastsketch._kernels.online import ADAM, DIAGONAL
from fastsketch.online._points import PointsState, beginning
from fastsketch.online._state import OF_POINTS, SCRATCH, Batch, Csr, Floats


@dataclass(frozen=True, slots=True)
class DiagonalSetting:
    """The parameters of a model as the kernels take them."""

    method: int  # DIAGONAL, GRADIENT or ADAM
    loss: int
    phi: int
    dual: bool
    strength: float


@dataclass(slots=True)
class DiagonalState(PointsState):
    """Arrays of k points in d features."""

    setting: DiagonalSetting
    squares: Floats  # sum of squared gradients, or Adam's second moment, (d,)
    first: Annotated[Floats | None, OF_POINTS]  # Adam's first moment, (k, d)
    last: Annotated[Floats, OF_POINTS]  # the part of the clock that a coordinate has been given, (k, d)
    clock: Annotated[Floats, OF_POINTS]  # (k,)
    slopes: Annotated[Floats, SCRATCH]  # (k,)
    scores: Annotated[Floats, SCRATCH]  # (k,)

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        data, indices, indptr = batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
        kernel.rounds(self, self.setting, data, indices, indptr, targets, sample_weight, scores)

    def is_atomic(self) -> bool:
        # a row that has no finite score is refused before anything is changed, but for the pulls of a penalty
        return self.setting.method == DIAGONAL and self.setting.phi == NO_PENALTY

    def coefs(self) -> Floats:
        return kernel.coef_now(self.copied(), self.setting)


def start(setting: DiagonalSetting, learning_rate: Floats, delta: Floats, *, d: int, sparse: bool) -> DiagonalState:
    """The state before the first row."""
    k = len(learning_rate)
    return DiagonalState(
        **beginning(learning_rate, delta, d=d, sparse=sparse),
        setting=setting,
        squares=np.zeros(d),
        first=np.zeros((k, d)) if setting.method == ADAM else None,
        last=np.zeros((k, d)),
        clock=np.zeros(k),
        slopes=np.zeros(k),
        scores=np.zeros(k),
    )
