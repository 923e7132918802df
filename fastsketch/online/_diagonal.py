"""The arrays of the adaptive methods with a diagonal H; the rounds are in _kernels/online/diagonal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import NO_PENALTY
from fastsketch._kernels.online import diagonal as kernel
from fastsketch._kernels.online.numbers import ADAM, DIAGONAL
from fastsketch.io import _checks as checks
from fastsketch.online._points import PointsState, beginning
from fastsketch.online._state import OF_POINTS, SCRATCH, SLOTS, Batch, Csr, Floats, Learned, Zeros


@dataclass(frozen=True, slots=True)
class DiagonalSetting:
    """The parameters of a model as the kernels take them."""

    method: int  # DIAGONAL, GRADIENT or ADAM
    loss: int
    phi: int
    dual: bool
    strength: float
    decay: float = 1.0
    in_units: bool = False  # slopes and steps in units of residuals


@dataclass(slots=True)
class DiagonalState(PointsState):
    """Arrays of k points in d features."""

    setting: DiagonalSetting
    squares: Annotated[Floats, SLOTS]  # sum of squared gradients, or Adam's second moment, (d,)
    fading: Floats  # what squares are to be multiplied with, (1,)
    first: Annotated[Floats | None, OF_POINTS, SLOTS]  # Adam's first moment, (k, d)
    last: Annotated[Floats, OF_POINTS, SLOTS]  # the part of the clock that a coordinate has been given, (k, d)
    clock: Annotated[Floats, OF_POINTS]  # (k,)
    slopes: Annotated[Floats, SCRATCH]  # (k,)
    scores: Annotated[Floats, SCRATCH]  # (k,)

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        data, indices, indptr = batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
        kernel.rounds(self, self.setting, data, indices, indptr, targets, sample_weight, scores)

    @classmethod
    def learn_together(
        cls, states: Sequence[Learned], batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        ours = cast("Sequence[DiagonalState]", states)
        if not all(state.is_plain() for state in ours):
            Learned.learn_together(states, batch, targets, sample_weight, scores)
            return
        data, indices, indptr = batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
        kernel.rounds_together(list(ours), ours[0].setting, data, indices, indptr, targets, sample_weight, scores)

    def is_plain(self) -> bool:
        """Whether the rounds for several states at a time serve."""
        setting = self.setting
        plain = self.is_atomic() and not (setting.dual or setting.in_units) and setting.decay == 1.0
        return plain and len(self.clock) == 1 and float(self.fading[0]) == 1.0

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        PointsState.validate_all(self, arrays)
        k, d = self.base.shape
        checks.not_negative(arrays, "squares", (d,))
        checks.number_within(arrays["fading"][0], "share that has not faded", 1e-110, 1.0)
        clock = checks.not_negative(arrays, "clock", (k,))
        last = checks.not_negative(arrays, "last", (k, d))
        if (last > clock[:, None]).any():
            raise ValueError("array 'last' must not be ahead of array 'clock'")

    def undoing(self, batch: Batch) -> Any:
        if not self.is_atomic() or self.setting.decay != 1.0:  # squares of all columns may be put in other units
            return PointsState.undoing(self, batch)
        at = batch.indices if isinstance(batch, Csr) else slice(None)
        rest = [array.copy() for array in self._of_all_rows()]
        return at, self.base[:, at].copy(), self.squares[at].copy(), rest

    def put_back(self, kept: Any) -> None:
        if isinstance(kept, DiagonalState):
            PointsState.put_back(self, kept)
            return
        at, base, squares, rest = kept
        self.base[:, at], self.squares[at] = base, squares
        for array, before in zip(self._of_all_rows(), rest, strict=True):
            array[:] = before

    def _of_all_rows(self) -> list[NDArray[Any]]:
        arrays: list[NDArray[Any]] = [self.clock, self.losses, self.mistakes, self.count, self.seen]
        return arrays if self.residuals is None else [*arrays, self.residuals]

    def is_atomic(self) -> bool:
        # a row that has no finite score is refused before anything is changed, but for the pulls of a penalty
        return self.setting.method == DIAGONAL and self.setting.phi == NO_PENALTY

    def fade(self, factor: float) -> None:
        self.squares *= factor

    def coefs(self) -> Floats:
        return kernel.coef_now(self.copied(), self.setting)


def start(
    setting: DiagonalSetting, learning_rate: Floats, delta: Floats, *, d: int, sparse: bool, zeros: Zeros = np.zeros
) -> DiagonalState:
    """The state before the first row; with zeros=outline, one of the same shapes that takes no memory."""
    k = len(learning_rate)
    return DiagonalState(
        **beginning(learning_rate, delta, d=d, sparse=sparse, in_units=setting.in_units, zeros=zeros),
        setting=setting,
        squares=zeros(d),
        fading=np.ones(1),
        first=zeros((k, d)) if setting.method == ADAM else None,
        last=zeros((k, d)),
        clock=zeros(k),
        slopes=zeros(k),
        scores=zeros(k),
    )
