"""Arrays of the adaptive methods: H sketched or whole, or diagonal.

The kernels (_kernels/online/adaptive, _kernels/online/diagonal) run rounds for k points (learning rate, delta), each
with a w of its own; a model has one.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import L1_PENALTY, NO_PENALTY
from fastsketch._kernels.online import adaptive, diagonal
from fastsketch._kernels.online.numbers import ADAM, COUNTS, DIAGONAL, EVERY_ROUND, NEVER, OLD, RANK, ROUND, ROWS, TURNS
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import (
    OF_LOSSES,
    OF_POINTS,
    SCRATCH,
    SLOT_ROWS,
    SLOTS,
    Arrays,
    Counts,
    Csr,
    Floats,
    KeptRows,
    LearnedState,
    Places,
    RowBatch,
    Zeros,
)


# -- points ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class PointsState(LearnedState):
    """State of k points (learning rate, delta) in d features."""

    base: Annotated[Floats, OF_POINTS, SLOTS]  # (k, d)
    losses: Annotated[Floats, OF_POINTS, OF_LOSSES]  # cumulative, (k,)
    mistakes: Annotated[Counts, OF_POINTS]  # (k,)
    count: Counts  # entries RANK, ROWS, ROUND, OLD, TURNS
    learning_rate: Annotated[Floats, SCRATCH]  # (k,), a parameter
    delta: Annotated[Floats, OF_POINTS]  # (k,), decided with the first row, also for a later version
    # of one point that learns in units of residuals: the sums of their weighted squares, and of the weights
    residuals: Floats | None = field(default=None, kw_only=True)

    @abstractmethod
    def coefs(self) -> Floats:
        """Return w of every point, (k, d); (k, n_slots) for sparse rows."""

    def best(self) -> int:
        """Return the number of the point with the smallest cumulative loss."""
        return int(np.argmin(self.losses))

    def coef(self) -> Floats:
        return self.coefs()[self.best()]

    def totals(self) -> tuple[int, float, int]:
        i = self.best()
        return int(self.count[ROUND]), float(self.losses[i]), int(self.mistakes[i])

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        LearnedState.validate_all(self, arrays)
        (k, _), rounds = self.base.shape, int(arrays["count"][ROUND])
        checks.number_within(rounds, "n_rows", 0, checks.MOST_COUNT)
        checks.sums(arrays, "losses", (k,), low=0.0)
        mistakes = checks.not_negative(arrays, "mistakes", (k,), np.dtype(np.int64))
        checks.number_within(mistakes.max(), "mistakes", 0, rounds)
        if arrays["count"].min() < 0:
            raise ValueError("its counts must not be negative")
        if not (arrays["delta"] > 0).all():
            raise ValueError(f"delta must be positive, got {arrays['delta']}")
        if self.residuals is not None:
            checks.not_negative(arrays, "residuals", (2,))


def _fields_of_points(
    learning_rate: Floats, delta: Floats, *, d: int, sparse: bool, in_units: bool, zeros: Zeros = np.zeros
) -> dict[str, Any]:
    """Return the fields of a PointsState before the first row; in_units: one point learns in units of residuals."""
    k = len(learning_rate)
    return {
        "sparse": sparse,
        "base": zeros((k, d)),
        "regret": np.zeros(2),
        "seen": np.full(1, 0 if sparse else d),
        "losses": np.zeros(k),
        "mistakes": np.zeros(k, np.int64),
        "count": np.zeros(COUNTS, np.int64),
        "learning_rate": learning_rate,
        "delta": delta,
        "residuals": np.zeros(2) if in_units else None,
    }


# -- H sketched, or whole ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SketchedSetting:
    """Parameters of a sketched method as the kernels take them."""

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
class AdaptiveDenseRows(Arrays):
    """Rows C of d entries."""

    rows: Floats  # (cap, d)
    total: Annotated[Floats | None, OF_POINTS]  # sum of gradients (k, d), for penalty l1 in the dual form
    extra: Annotated[Floats, SCRATCH]


@dataclass(slots=True)
class AdaptiveSparseRows(KeptRows):
    """Rows C = [F Z'; X], with X in CSR form."""

    z: Annotated[Floats, SLOT_ROWS]  # Z, (slots, width)
    b: Annotated[Floats, OF_POINTS]  # (k, width)
    frame: Floats  # F, (width, width)
    work: Annotated[Floats, SCRATCH, SLOTS]  # a zero for each slot


@dataclass(slots=True)
class SketchedState(PointsState):
    """State with S'S = V diag(lam) V', V = C'T; w = scale (base + Z b) + C'steps."""

    setting: SketchedSetting
    turn: Floats  # T', (most, cap)
    lam: Floats  # (most,)
    gram: Floats  # C C', (cap, cap)
    scale: Annotated[Floats, OF_POINTS]  # (k,)
    steps: Annotated[Floats, OF_POINTS]  # (k, cap)
    inner: Annotated[Floats, OF_POINTS]  # (k, cap)
    held: AdaptiveDenseRows | AdaptiveSparseRows
    space: Annotated[Floats, SCRATCH]
    ints: Annotated[Places, SCRATCH]

    def learn(self, batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        if not isinstance(batch, Csr):
            self._rounds().dense(batch, targets, sample_weight, scores)
            return
        held = cast(AdaptiveSparseRows, self.held)
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
        return cast(AdaptiveSparseRows, self.held).n_values(int(self.count[ROWS] - self.count[OLD]))

    def _rounds(self) -> adaptive.AdaptiveRounds:
        if self.bound is None:
            self.bound = adaptive.AdaptiveRounds(self, self.setting)
        return self.bound

    def is_atomic(self) -> bool:
        # a row that has no finite score is refused before anything is changed
        return True

    def fade(self, factor: float) -> None:
        self.lam *= factor

    def coefs(self) -> Floats:
        n, old, held = int(self.count[ROWS]), int(self.count[OLD]), self.held
        if isinstance(held, AdaptiveDenseRows):
            return self.scale[:, None] * self.base + self.steps[:, :n] @ held.rows[:n]
        slots = self.n_slots
        z, frame = held.z[:slots, :old], held.frame[:old, :old]
        kept = held.as_csr(n - old, slots)
        old_part = self.scale[:, None] * held.b[:, :old] + self.steps[:, :old] @ frame
        return self.scale[:, None] * self.base[:, :slots] + old_part @ z.T + self.steps[:, old:n] @ kept

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        PointsState.validate_all(self, arrays)
        (most, cap), tau, d = self.turn.shape, self.setting.sketch_size, self.base.shape[1]
        width = self.held.z.shape[1] if isinstance(self.held, AdaptiveSparseRows) else 0
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


def start_sketched(
    setting: SketchedSetting,
    learning_rate: Floats,
    delta: Floats,
    *,
    d: int,
    slots: int,
    sparse: bool,
    zeros: Zeros = np.zeros,
) -> SketchedState:
    """Return the state before the first row; with zeros=outline, one of the same shapes that takes no memory.

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
        AdaptiveSparseRows(
            kept_data=zeros(0),
            kept_indices=zeros(0, np.int32),
            kept_indptr=zeros(cap + 1, np.int64),
            z=zeros((slots, width)),
            b=zeros((k, width)),
            frame=zeros((width, width)),
            work=zeros(slots),
        )
        if sparse
        else AdaptiveDenseRows(
            rows=zeros((cap, d)),
            total=zeros((k, d)) if setting.dual and setting.phi == L1_PENALTY else None,
            extra=zeros(adaptive.extra_size(d, most, cap, setting.phi)),
        )
    )
    doubles, integers = adaptive.space_sizes(most, cap, width, k)
    return SketchedState(
        **_fields_of_points(learning_rate, delta, d=slots, sparse=sparse, in_units=setting.in_units, zeros=zeros),
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


# -- H diagonal --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class DiagonalSetting:
    """Parameters of a diagonal method as the kernels take them."""

    method: int  # DIAGONAL, GRADIENT or ADAM
    loss: int
    phi: int
    dual: bool
    strength: float
    decay: float = 1.0
    in_units: bool = False  # slopes and steps in units of residuals


@dataclass(slots=True)
class DiagonalState(PointsState):
    """State with a diagonal H, of k points in d features."""

    setting: DiagonalSetting
    squares: Annotated[Floats, SLOTS]  # sum of squared gradients, or Adam's second moment, (d,)
    fading: Floats  # what squares are to be multiplied with, (1,)
    first: Annotated[Floats | None, OF_POINTS, SLOTS]  # Adam's first moment, (k, d)
    last: Annotated[Floats, OF_POINTS, SLOTS]  # the part of the clock that a coordinate has been given, (k, d)
    clock: Annotated[Floats, OF_POINTS]  # (k,)
    slopes: Annotated[Floats, SCRATCH]  # (k,)
    scores: Annotated[Floats, SCRATCH]  # (k,)

    def learn(self, batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        data, indices, indptr = batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
        diagonal.rounds(self, self.setting, data, indices, indptr, targets, sample_weight, scores)

    @classmethod
    def learn_together(
        cls, states: Sequence[LearnedState], batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        ours = cast("Sequence[DiagonalState]", states)
        if not all(state.is_plain() for state in ours):
            LearnedState.learn_together(states, batch, targets, sample_weight, scores)
            return
        data, indices, indptr = batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
        diagonal.rounds_together(list(ours), ours[0].setting, data, indices, indptr, targets, sample_weight, scores)

    def is_plain(self) -> bool:
        """Return whether the rounds for several states at a time apply."""
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

    def undoing(self, batch: RowBatch) -> Any:
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
        return diagonal.coef_now(self.copied(), self.setting)


def start_diagonal(
    setting: DiagonalSetting, learning_rate: Floats, delta: Floats, *, d: int, sparse: bool, zeros: Zeros = np.zeros
) -> DiagonalState:
    """Return the state before the first row; with zeros=outline, one of the same shapes that takes no memory."""
    k = len(learning_rate)
    return DiagonalState(
        **_fields_of_points(learning_rate, delta, d=d, sparse=sparse, in_units=setting.in_units, zeros=zeros),
        setting=setting,
        squares=zeros(d),
        fading=np.ones(1),
        first=zeros((k, d)) if setting.method == ADAM else None,
        last=zeros((k, d)),
        clock=zeros(k),
        slopes=zeros(k),
        scores=zeros(k),
    )
