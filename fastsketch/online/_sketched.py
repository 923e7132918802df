"""The arrays of the adaptive methods with a sketched H, and of the whole one; the rounds are in _kernels/adaptive."""

from dataclasses import dataclass
from typing import Annotated, cast

import numpy as np

from fastsketch._kernels import adaptive as kernel
from fastsketch._kernels.losses import L1_PENALTY
from fastsketch._kernels.online import EVERY_ROUND, NEVER, OLD, RANK, ROWS
from fastsketch.online._points import PointsState, beginning
from fastsketch.online._state import OF_POINTS, SCRATCH, Arrays, Batch, Csr, Floats, KeptRows, Places


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


@dataclass(slots=True)
class DenseRows(Arrays):
    """C as rows of d entries; k points."""

    rows: Floats  # (cap, d)
    total: Annotated[Floats | None, OF_POINTS]  # sum of gradients (k, d), for penalty l1 in the dual form
    extra: Annotated[Floats, SCRATCH]


@dataclass(slots=True)
class SparseRows(KeptRows):
    """C = [F Z'; X], X in CSR form."""

    z: Floats  # Z, (d, width)
    b: Annotated[Floats, OF_POINTS]  # (k, width)
    frame: Floats  # F, (width, width)
    work: Annotated[Floats, SCRATCH]  # d zeros


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
            kernel.dense_rounds(self, self.setting, batch, targets, sample_weight, scores)
            return
        held = cast(SparseRows, self.held)
        done, short, more = 0, True, 0
        longest = int(np.diff(batch.indptr).max(initial=0))
        while short:
            # room for the rows until the next rebase, and if that was not enough, for a direction formed explicitly
            kept = int(self.count[ROWS] - self.count[OLD])
            rows = self.turn.shape[1] - kept
            held.room_for(kept, longest * min(rows, len(targets) - done) + more)
            done, short = kernel.sparse_rounds(self, self.setting, *batch, done, targets, sample_weight, scores)
            more = self.base.shape[1]

    def is_atomic(self) -> bool:
        # a row that has no finite score is refused before anything is changed, but for rebases
        return isinstance(self.held, DenseRows) and int(self.count[ROWS]) + 1 < self.turn.shape[1]

    def coefs(self) -> Floats:
        n, old, held = int(self.count[ROWS]), int(self.count[OLD]), self.held
        if isinstance(held, DenseRows):
            return self.scale[:, None] * self.base + self.steps[:, :n] @ held.rows[:n]
        z, frame = held.z[:, :old], held.frame[:old, :old]
        kept = held.as_csr(n - old, self.base.shape[1])
        old_part = self.scale[:, None] * held.b[:, :old] + self.steps[:, :old] @ frame
        return self.scale[:, None] * self.base + old_part @ z.T + self.steps[:, old:n] @ kept

    def check(self) -> None:
        most, cap = self.turn.shape
        rank, n, old = (int(self.count[entry]) for entry in (RANK, ROWS, OLD))
        width = self.held.z.shape[1] if isinstance(self.held, SparseRows) else 0
        if self.count.min() < 0 or rank > most or rank > n or n > cap or old > min(n, width):
            raise ValueError("its counts are out of range")
        if isinstance(self.held, SparseRows):
            self.held.check_rows(n - old, self.base.shape[1])


def start(setting: SketchedSetting, learning_rate: Floats, delta: Floats, *, d: int, sparse: bool) -> SketchedState:
    """The state before the first row."""
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
            kept_data=np.zeros(0),
            kept_indices=np.zeros(0, np.int32),
            kept_indptr=np.zeros(cap + 1, np.int64),
            z=np.zeros((d, width)),
            b=np.zeros((k, width)),
            frame=np.zeros((width, width)),
            work=np.zeros(d),
        )
        if sparse
        else DenseRows(
            rows=np.zeros((cap, d)),
            total=np.zeros((k, d)) if setting.dual and setting.phi == L1_PENALTY else None,
            extra=np.zeros(kernel.extra_size(d, most, cap, setting.phi)),
        )
    )
    doubles, integers = kernel.space_sizes(most, cap, width, k)
    return SketchedState(
        **beginning(learning_rate, delta, d=d, sparse=sparse),
        setting=setting,
        turn=np.zeros((most, cap)),
        lam=np.zeros(most),
        gram=np.zeros((cap, cap)),
        scale=np.ones(k),
        steps=np.zeros((k, cap)),
        inner=np.zeros((k, cap)),
        held=held,
        space=np.zeros(doubles),
        ints=np.zeros(integers, np.int32),
    )
