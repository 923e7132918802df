"""Arrays of the adaptive methods: H sketched or whole, or diagonal; the rounds are in _kernels/online."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import L1_PENALTY, L2_PENALTY, NO_PENALTY
from fastsketch._kernels.online import diagonal
from fastsketch._kernels.online.adaptive import AdaptiveRounds
from fastsketch._kernels.online.numbers import (
    ADAM,
    BUFFERED,
    CLOCK,
    DELTA,
    DIAGONAL,
    EVERY_ROUND,
    FADED,
    NEVER,
    OLD,
    RANK,
    RESIDUALS,
    ROWS,
    SCALE,
    WEIGHTS,
    WHEN_FULL,
)
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import (
    SLOT_ROWS,
    SLOTS,
    Arrays,
    Changing,
    Csr,
    Floats,
    KeptRows,
    LearnedState,
    Rescaling,
    RowBatch,
    Zeros,
    common_fields,
    flat,
)


def _validate_scalar(scalar: Floats) -> None:
    """Raise ValueError unless these may be the scalars of an adaptive state."""
    if not scalar[DELTA] > 0:
        raise ValueError(f"delta must be positive, got {scalar[DELTA]}")
    for entry, name in ((RESIDUALS, "sum of squared residuals"), (WEIGHTS, "weight of residuals")):
        checks.number_within(scalar[entry], name, 0.0, np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSetting:
    """Parameters of an adaptive method as the kernels take them."""

    method: int  # DIAGONAL, GRADIENT or ADAM; of sketches the rule, EVERY_ROUND, WHEN_FULL or NEVER
    loss: int
    phi: int = NO_PENALTY
    dual: bool = False
    strength: float = 0.0
    learning_rate: float
    decay: float
    in_units: bool  # slopes and steps in units of residuals
    # of sketches
    sketch_size: int = 0
    root: bool = True  # H takes the square root of the sketched matrix
    fade: bool = False  # gradient t counts 1 / sqrt(t)


# -- H sketched, or whole ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class AdaptiveDenseRows(Arrays):
    """Rows C of d entries."""

    rows: Floats  # (cap, d)
    total: Floats | None  # sum of gradients (d,), for penalty l1 in the dual form


@dataclass(slots=True)
class AdaptiveSparseRows(KeptRows):
    """Rows C = [F Z'; X], with X in CSR form."""

    z: Annotated[Floats, SLOT_ROWS]  # Z, (slots, width)
    b: Floats  # (width,)
    frame: Floats  # F, (width, width)


@dataclass(slots=True)
class SketchedState(LearnedState):
    """State with S'S = V diag(lam) V', V = C'T; w = scale (base + Z b) + C'steps."""

    setting: AdaptiveSetting
    turn: Floats  # T', (most, cap)
    lam: Floats  # (most,)
    gram: Floats  # C C', (cap, cap)
    steps: Floats  # (cap,)
    inner: Floats  # (cap,)
    held: AdaptiveDenseRows | AdaptiveSparseRows

    def begin_rounds(self) -> AdaptiveRounds:
        return AdaptiveRounds(self, self.setting)

    @classmethod
    def learn(
        cls, states: Sequence[Any], batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        if not isinstance(batch, Csr):
            for k, state in enumerate(states):
                state.rounds.learn(*flat(batch), 0, targets[k], sample_weight, scores[k])
            return
        longest = int(np.diff(batch.indptr).max(initial=0))
        for state, y, out in zip(states, targets, scores, strict=True):
            done, short, more = 0, True, 0
            while short:
                # room for the rows until the next rebase, and if that was not enough, for a direction formed explicitly
                rows = min(state.turn.shape[1] - state.n_kept(), len(y) - done)
                held, more = cast(AdaptiveSparseRows, state.held), longest * rows + more
                if not held.has_room(state.n_kept(), more):
                    state.rounds_now = None  # first: an interrupt must not leave rounds with arrays of before
                    held.make_room(state.n_kept(), more)
                done, short = state.rounds.learn(*batch, done, y, sample_weight, out)
                more = len(state.base)

    def n_kept(self) -> int:
        return int(self.count[ROWS] - self.count[OLD])

    def fade(self, factor: float) -> None:
        self.lam *= factor

    def rescale(self, change: Rescaling) -> None:
        """Express S'S in the new scales; C becomes its eigenvectors V, orthonormal to rounding whatever has moved."""
        n, old, rank = int(self.count[ROWS]), int(self.count[OLD]), int(self.count[RANK])
        held, slots = self.held, change.n_slots(self.n_slots)
        if isinstance(held, AdaptiveDenseRows):
            rows = held.rows[:n].copy()
        else:
            z_rows = held.frame[:old, :old] @ np.ascontiguousarray(held.z[:slots, :old].T)
            rows = np.concatenate([z_rows, held.as_csr(n - old, slots).toarray()])
        w = np.zeros(slots)
        w[: self.n_slots] = self.coef()
        self.base[:slots] = w = change.weights(w)
        self.scalar[SCALE], self.steps[:], self.inner[:] = 1.0, 0.0, 0.0
        directions = self.turn[:rank, :n] @ rows
        change.apply(directions)
        basis, factor = np.linalg.qr(directions.T)
        values, mixed = np.linalg.eigh((factor * self.lam[:rank]) @ factor.T)
        directions = (basis @ mixed[:, ::-1]).T
        self.lam[:rank] = np.maximum(values[::-1], 0.0)
        self.turn[:], self.gram[:] = 0.0, 0.0
        self.turn[:rank, :rank], self.gram[:rank, :rank] = np.eye(rank), directions @ directions.T
        self.inner[:rank] = directions @ w
        self.count[ROWS] = rank
        if isinstance(held, AdaptiveDenseRows):
            held.rows[:rank], held.rows[rank:] = directions, 0.0
            return
        old = min(rank, held.z.shape[1])
        held.z[:], held.b[:], held.frame[:] = 0.0, 0.0, np.eye(len(held.frame))
        held.z[:slots, :old], self.count[OLD] = directions[:old].T, old
        held.kept_indptr[:] = 0
        if rank > old:  # kept as rows without zeros
            used = (rank - old) * slots
            self.rounds_now = None
            held.make_room(0, max(used, len(held.kept_data)))
            held.kept_data[:used] = directions[old:].ravel()
            held.kept_indices[:used] = np.tile(np.arange(slots), rank - old)
            held.kept_indptr[: rank - old + 1] = slots * np.arange(rank - old + 1)

    def may_begin_anywhere(self) -> bool:
        return not self.setting.dual and self.setting.phi == NO_PENALTY

    def changing(self, batch: RowBatch, n: int, *, alone: bool) -> Changing | None:
        if alone and n == 1:
            return []  # a row that has no finite score is refused before anything is changed
        setting, rows, held = self.setting, int(self.count[ROWS]), self.held
        until_full = 2 * setting.sketch_size - int(self.count[RANK]) if setting.method == WHEN_FULL else n
        if setting.fade:
            until_full = min(until_full, 2 * setting.sketch_size - int(self.scalar[BUFFERED]))
        rebases = n > min(until_full, self.turn.shape[1] - rows)
        if rebases and self.sparse:
            return None
        out: Changing = [(a, ...) for a in (self.scalar, self.count, self.turn, self.lam, self.gram)]
        out += [(self.steps, ...), (self.inner, ...)]
        if isinstance(held, AdaptiveDenseRows):
            out += self.of_slots(batch, self.base, held.total)
            return [*out, (held.rows, ... if rebases else slice(rows, rows + n))]
        # a scale that goes to zero is multiplied into all of base
        out += [(self.base, ...)] if setting.phi == L2_PENALTY else self.of_slots(batch, self.base)
        return [*out, (held.kept_indptr, ...), (held.b, ...)]

    def coef(self) -> Floats:
        n, old, held, scale = int(self.count[ROWS]), int(self.count[OLD]), self.held, self.scalar[SCALE]
        if isinstance(held, AdaptiveDenseRows):
            return scale * self.base + self.steps[:n] @ held.rows[:n]
        slots = self.n_slots
        old_part = scale * held.b[:old] + self.steps[:old] @ held.frame[:old, :old]
        kept = self.steps[old:n] @ held.as_csr(n - old, slots)
        return scale * self.base[:slots] + old_part @ held.z[:slots, :old].T + kept

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        names = LearnedState.validate_all(self, arrays)
        scalar, (most, cap), tau = arrays["scalar"], self.turn.shape, self.setting.sketch_size
        _validate_scalar(scalar)
        width = self.held.z.shape[1] if isinstance(self.held, AdaptiveSparseRows) else 0
        rank, n, old = arrays["count"][[RANK, ROWS, OLD]].tolist()
        # a shrink in every round leaves room for a direction; the other rules rebase C when they drop one
        every = self.setting.method == EVERY_ROUND
        checks.number_within(rank, "rank", 0, min(most, tau - 1) if every and most == tau else most)
        checks.number_within(scalar[BUFFERED], "rows in the buffer", 0, 2 * tau)
        checks.number_within(n, "rows of C", rank, cap if every else rank)
        checks.number_within(old, "rows of C that are not sparse", 0, min(rank, width))
        lam = checks.not_negative(arrays, "lam", (most,))[:rank]
        if (lam[1:] > lam[:-1]).any():
            raise ValueError("array 'lam' must be in descending order")
        if not np.isfinite(scalar[SCALE]) or not (scalar[SCALE] if self.setting.dual else scalar[SCALE] > 0):
            raise ValueError(f"the scale has the wrong sign, or is zero: {scalar[SCALE]}")
        if self.sparse:
            KeptRows.validate_rows(arrays, n - old, len(self.base))
        return names


def start_sketched(
    setting: AdaptiveSetting, delta: float, *, d: int, slots: int, sparse: bool, zeros: Zeros = np.zeros
) -> SketchedState:
    """Return the state before the first row; with zeros=outline, one of the same shapes that takes no memory.

    d: columns that there may be; slots: of dense rows d, else those to begin with.
    """
    tau = setting.sketch_size
    if setting.method == EVERY_ROUND:
        most, cap = min(d, tau), 2 * tau
    elif setting.method == NEVER:
        most, cap = d, d
    else:
        most, cap = min(d, 2 * tau), min(d, 2 * tau)
    if sparse:
        width = min(tau, d)
        held: AdaptiveSparseRows | AdaptiveDenseRows = AdaptiveSparseRows(
            zeros(0),
            zeros(0, np.int32),
            zeros(cap + 1, np.int64),
            z=zeros((slots, width)),
            b=zeros(width),
            frame=zeros((width, width)),
        )
    else:
        held = AdaptiveDenseRows(zeros((cap, d)), zeros(d) if setting.dual and setting.phi == L1_PENALTY else None)
    common = common_fields(setting, slots, sparse, zeros)
    common["scalar"][DELTA], common["scalar"][SCALE] = delta, 1.0
    return SketchedState(
        **common,
        turn=zeros((most, cap)),
        lam=zeros(most),
        gram=zeros((cap, cap)),
        steps=zeros(cap),
        inner=zeros(cap),
        held=held,
    )


# -- H diagonal --------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class DiagonalState(LearnedState):
    """State with a diagonal H."""

    setting: AdaptiveSetting
    squares: Annotated[Floats, SLOTS]  # sum of squared gradients, or Adam's second moment, (d,)
    first: Annotated[Floats | None, SLOTS]  # Adam's first moment, (d,)
    last: Annotated[Floats, SLOTS]  # the part of the clock that a coordinate has been given, (d,)

    def begin_rounds(self) -> diagonal.DiagonalRounds:
        return diagonal.DiagonalRounds(self, self.setting)

    @classmethod
    def learn(
        cls, states: Sequence[Any], batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        diagonal.learn([state.rounds for state in states], *flat(batch), targets, sample_weight, scores)

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        names = LearnedState.validate_all(self, arrays)
        scalar, d = arrays["scalar"], len(self.base)
        _validate_scalar(scalar)
        checks.not_negative(arrays, "squares", (d,))
        checks.number_within(scalar[FADED], "share that has not faded", 1e-110, 1.0)
        checks.number_within(scalar[CLOCK], "clock", 0.0, np.finfo(np.float64).max)
        if (checks.not_negative(arrays, "last", (d,)) > scalar[CLOCK]).any():
            raise ValueError("array 'last' must not be ahead of the clock")
        return names

    def changing(self, batch: RowBatch, n: int, *, alone: bool) -> Changing | None:
        setting = self.setting
        if alone and n == 1 and setting.method == DIAGONAL and setting.phi == NO_PENALTY:
            return []  # a row that has no finite score is refused before anything is changed
        # squares of all columns may be put in other units
        each = setting.method == ADAM or setting.decay != 1.0
        arrays = self.base, self.squares, self.first, None if setting.phi == NO_PENALTY else self.last
        changed = [(a, ...) for a in arrays if a is not None] if each else self.of_slots(batch, *arrays)
        return [(self.scalar, ...), (self.count, ...), *changed]

    def fade(self, factor: float) -> None:
        self.squares *= factor

    def rescale(self, change: Rescaling) -> None:
        """Take slopes as independent of the columns: squares of gradients change as those of the columns do."""
        self.base[:] = change.weights(self.base)
        self.squares[change.columns] *= change.squares

    def may_begin_anywhere(self) -> bool:
        return not self.setting.dual and self.setting.phi == NO_PENALTY

    def coef(self) -> Floats:
        return self.copied().rounds.coef()


def start_diagonal(
    setting: AdaptiveSetting, delta: float, *, d: int, sparse: bool, zeros: Zeros = np.zeros
) -> DiagonalState:
    """Return the state before the first row; with zeros=outline, one of the same shapes that takes no memory."""
    common = common_fields(setting, d, sparse, zeros)
    common["scalar"][DELTA], common["scalar"][FADED] = delta, 1.0
    return DiagonalState(**common, squares=zeros(d), first=zeros(d) if setting.method == ADAM else None, last=zeros(d))
