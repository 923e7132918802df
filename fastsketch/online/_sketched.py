"""The arrays of the adaptive methods with a sketched or a whole H; the rounds are in _kernels/online/adaptive."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import L1_PENALTY
from fastsketch._kernels.online import adaptive as kernel
from fastsketch._kernels.online.numbers import EVERY_ROUND, NEVER, OLD, RANK, ROWS, TURNS
from fastsketch.io import _checks as checks
from fastsketch.online._points import PointsState, beginning
from fastsketch.online._state import (
    OF_POINTS,
    SCRATCH,
    SLOT_ROWS,
    SLOTS,
    Arrays,
    Batch,
    Csr,
    Floats,
    KeptRows,
    Places,
    Zeros,
)


@dataclass(frozen=True, slots=True)
class SketchedSetting:
    """The parameters of a model as the kernels take them."""

    loss: int
    rule: int  # EVERY_ROUND, WHEN_FULL or NEVER
    phi: int
    dual: bool
    root: bool  # H takes the square root of the sketched matrix
    fade: bool  # gradient t counts 1 / sqrt(t)
    sketch_size: int
    strength: float
    decay: float = 1.0
    in_units: bool = False  # slopes and steps in units of residuals


@dataclass(slots=True)
class DenseRows(Arrays):
    """C as rows of d entries; k points."""

    rows: Floats  # (cap, d)
    total: Annotated[Floats | None, OF_POINTS]  # sum of gradients (k, d), for penalty l1 in the dual form
    extra: Annotated[Floats, SCRATCH]


@dataclass(slots=True)
class SparseRows(KeptRows):
    """C = [F Z'; X], X in CSR form."""

    z: Annotated[Floats, SLOT_ROWS]  # Z, (slots, width)
    b: Annotated[Floats, OF_POINTS]  # (k, width)
    frame: Floats  # F, (width, width)
    work: Annotated[Floats, SCRATCH, SLOTS]  # a zero for each slot


@dataclass(slots=True)
class SketchedState(PointsState):
    """S'S = V diag(lam) V', V = C'T; w = scale (base + Z b) + C'steps."""

    setting: SketchedSetting
    turn: Floats  # T', (most, cap)
    lam: Floats  # (most,)
    gram: Floats  # C C', (cap, cap)
    scale: Annotated[Floats, OF_POINTS]  # (k,)
    steps: Annotated[Floats, OF_POINTS]  # (k, cap)
    inner: Annotated[Floats, OF_POINTS]  # (k, cap)
    held: DenseRows | SparseRows
    space: Annotated[Floats, SCRATCH]
    ints: Annotated[Places, SCRATCH]

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        if not isinstance(batch, Csr):
            self._rounds().dense(batch, targets, sample_weight, scores)
            return
        held = cast(SparseRows, self.held)
        done, short, more = 0, True, 0
        longest = int(np.diff(batch.indptr).max(initial=0))
        while short:
            # room for the rows until the next rebase, and if that was not enough, for a direction formed explicitly
            kept = int(self.count[ROWS] - self.count[OLD])
            rows = self.turn.shape[1] - kept
            if held.room_for(kept, longest * min(rows, len(targets) - done) + more):
                self.bound = None
            done, short = self._rounds().sparse(*batch, done, targets, sample_weight, scores)
            more = self.base.shape[1]

    def n_stored(self) -> int:
        return cast(SparseRows, self.held).n_values(int(self.count[ROWS] - self.count[OLD]))

    def _rounds(self) -> kernel.Rounds:
        if self.bound is None:
            self.bound = kernel.Rounds(self, self.setting)
        return self.bound

    def is_atomic(self) -> bool:
        # a row that has no finite score is refused before anything is changed
        return True

    def fade(self, factor: float) -> None:
        self.lam *= factor

    def coefs(self) -> Floats:
        n, old, held = int(self.count[ROWS]), int(self.count[OLD]), self.held
        if isinstance(held, DenseRows):
            return self.scale[:, None] * self.base + self.steps[:, :n] @ held.rows[:n]
        slots = self.n_slots
        z, frame = held.z[:slots, :old], held.frame[:old, :old]
        kept = held.as_csr(n - old, slots)
        old_part = self.scale[:, None] * held.b[:, :old] + self.steps[:, :old] @ frame
        return self.scale[:, None] * self.base[:, :slots] + old_part @ z.T + self.steps[:, old:n] @ kept

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        PointsState.validate_all(self, arrays)
        (most, cap), tau, d = self.turn.shape, self.setting.sketch_size, self.base.shape[1]
        width = self.held.z.shape[1] if isinstance(self.held, SparseRows) else 0
        rank, n, old, turns = arrays["count"][[RANK, ROWS, OLD, TURNS]].tolist()
        # a shrink in every round leaves room for a direction; the other rules rebase C when they drop one
        every = self.setting.rule == EVERY_ROUND
        checks.number_within(rank, "rank", 0, min(most, tau - 1) if every and most == tau else most)
        checks.number_within(n, "rows of C", rank, cap if every else rank)
        checks.number_within(old, "rows of C that are not sparse", 0, min(rank, width))
        checks.number_within(turns, "turns", 0, checks.MOST_COUNT)
        lam = checks.not_negative(arrays, "lam", (most,))[:rank]
        if (lam[1:] > lam[:-1]).any():
            raise ValueError("array 'lam' must be in descending order")
        if not (arrays["scale"] if self.setting.dual else arrays["scale"] > 0).all():
            raise ValueError(f"array 'scale' has the wrong sign, or is zero: {arrays['scale']}")
        if self.sparse:
            KeptRows.validate_rows(arrays, n - old, d)


def start(
    setting: SketchedSetting,
    learning_rate: Floats,
    delta: Floats,
    *,
    d: int,
    slots: int,
    sparse: bool,
    zeros: Zeros = np.zeros,
) -> SketchedState:
    """The state before the first row; with zeros=outline, one of the same shapes that takes no memory.

    d: columns that there may be; slots: of dense rows d, else those to begin with.
    """
    tau, k = setting.sketch_size, len(learning_rate)
    if setting.rule == EVERY_ROUND:
        most, cap = min(d, tau), 2 * tau
    elif setting.rule == NEVER:
        most, cap = d, d
    else:
        most, cap = min(d, 2 * tau), min(d, 2 * tau)
    width = min(tau, d) if sparse else 0
    held = (
        SparseRows(
            kept_data=zeros(0),
            kept_indices=zeros(0, np.int32),
            kept_indptr=zeros(cap + 1, np.int64),
            z=zeros((slots, width)),
            b=zeros((k, width)),
            frame=zeros((width, width)),
            work=zeros(slots),
        )
        if sparse
        else DenseRows(
            rows=zeros((cap, d)),
            total=zeros((k, d)) if setting.dual and setting.phi == L1_PENALTY else None,
            extra=zeros(kernel.extra_size(d, most, cap, setting.phi)),
        )
    )
    doubles, integers = kernel.space_sizes(most, cap, width, k)
    return SketchedState(
        **beginning(learning_rate, delta, d=slots, sparse=sparse, in_units=setting.in_units, zeros=zeros),
        setting=setting,
        turn=zeros((most, cap)),
        lam=zeros(most),
        gram=zeros((cap, cap)),
        scale=np.ones(k),
        steps=zeros((k, cap)),
        inner=zeros((k, cap)),
        held=held,
        space=zeros(doubles),
        ints=zeros(integers, np.int32),
    )
