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
from fastsketch.online._state import LATER, OF_POINTS, SCRATCH, SLOTS, Batch, Csr, Floats, Learned, Zeros


@dataclass(frozen=True, slots=True)
class DiagonalSetting:
    """The parameters of a model as the kernels take them."""

    method: int  # DIAGONAL, GRADIENT or ADAM
    loss: int
    phi: int
    dual: bool
    strength: float
    decay: float = 1.0


@dataclass(slots=True)
class DiagonalState(PointsState):
    """Arrays of k points in d features."""

    setting: DiagonalSetting
    squares: Annotated[Floats, SLOTS]  # sum of squared gradients, or Adam's second moment, (d,)
    fading: Annotated[Floats, LATER]  # what squares are to be multiplied with, (1,)
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
        first = cast("DiagonalState", states[0])
        if not first.is_atomic() or len(first.clock) != 1 or first.setting.dual:
            Learned.learn_together(states, batch, targets, sample_weight, scores)
            return
        data, indices, indptr = batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
        kernel.rounds_together(list(states), first.setting, data, indices, indptr, targets, sample_weight, scores)

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        PointsState.validate_all(self, arrays)
        k, d = self.base.shape
        checks.not_negative(arrays, "squares", (d,))
        checks.number_within(arrays.get("fading", self.fading)[0], "share that has not faded", 1e-110, 1.0)
        clock = checks.not_negative(arrays, "clock", (k,))
        last = checks.not_negative(arrays, "last", (k, d))
        if (last > clock[:, None]).any():
            raise ValueError("array 'last' must not be ahead of array 'clock'")

    def undoing(self, batch: Batch) -> Any:
        if not self.is_atomic():
            return PointsState.undoing(self, batch)
        at = batch.indices if isinstance(batch, Csr) else slice(None)
        rest = [array.copy() for array in (self.clock, self.losses, self.mistakes, self.count, self.seen)]
        return at, self.base[:, at].copy(), self.squares[at].copy(), rest

    def put_back(self, kept: Any) -> None:
        if isinstance(kept, DiagonalState):
            PointsState.put_back(self, kept)
            return
        at, base, squares, rest = kept
        self.base[:, at], self.squares[at] = base, squares
        for array, before in zip((self.clock, self.losses, self.mistakes, self.count, self.seen), rest, strict=True):
            array[:] = before

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
        **beginning(learning_rate, delta, d=d, sparse=sparse, zeros=zeros),
        setting=setting,
        squares=zeros(d),
        fading=np.ones(1),
        first=zeros((k, d)) if setting.method == ADAM else None,
        last=zeros((k, d)),
        clock=zeros(k),
        slopes=zeros(k),
        scores=zeros(k),
    )
