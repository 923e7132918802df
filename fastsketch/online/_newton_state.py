"""Arrays of SketchedNewton and its rounds; the mathematics is in _kernels/online/newton."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal
from fastsketch._kernels.online.newton import NewtonRounds, together
from fastsketch._kernels.online.numbers import (
    ALPHA,
    APPENDED,
    BOTH,
    CURRENT,
    FADED,
    FADINGS,
    FLOOR,
    FULL,
    LOSS,
    MISTAKES,
    NEWTON_COUNTS,
    NEWTON_SCALARS,
    NEXT,
    RANK,
    ROUND,
    ROWS,
    SHRINKAGE,
    TAKEN,
    UNCONSTRAINED,
)
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import (
    OF_LOSSES,
    SLOT_ROWS,
    Arrays,
    Counts,
    Csr,
    Floats,
    KeptRows,
    LearnedState,
    RowBatch,
    Zeros,
    outline,
)

# Rounds whose random numbers are made together.
ROUNDS_A_BLOCK = 64
# alpha0 of models that are given none, as share of the squared length of the first row: for labels, which bound the
# slopes, and for real targets. Chosen on validation splits of seven and of four sets, where it is as good as the best
# constant, or better: that depends on the lengths of the rows.
SHARE_FOR_LABELS, SHARE_FOR_REAL_TARGETS = 0.01, 3.0
# The same where H is made of curvatures of the losses: there alpha0 is but the ridge of a regression. Chosen by the
# scores from before each row was learned from, of training rows.
SHARE_BY_LOSS = 0.2
# Of rows as scale="moments" makes them, about as long as their intercept; by progressive losses of eleven sets.
SHARE_FOR_SCALED_ROWS = 0.05
MOST_ALPHA = float(np.finfo(np.float64).max)
CONSTRAINTS = {None: UNCONSTRAINED, "current": CURRENT, "next": NEXT, "both": BOTH}


@dataclass(frozen=True, slots=True)
class NewtonSetting:
    """Parameters of a SketchedNewton as its rounds take them."""

    method: str
    sketch_size: int
    spared: int  # rows that a shrink of "pfd" spares
    loss: int
    constraint: int
    alpha0: float | None  # None: a share of the squared length of the first row that is not zero
    first_row_share: float
    by_loss: bool  # H of curvatures of the losses, not of gradients
    seed: int
    decay: float = 1.0
    loss_scale: float = 1.0  # that the weights of rows hold

    @property
    def mixed(self) -> bool:
        """Return whether all rows of B change in every round."""
        return self.method in ("rp", "oja")


# -- Z, what earlier shrinks kept, and X, the rows since ---------------------------------------------------------------
@dataclass(slots=True)
class NewtonDenseRows(Arrays):
    """Dense rows Z' and X, for m = sketch_size."""

    z: Floats  # Z', (m, d)
    kept: Floats  # X, (2 m, d)


@dataclass(slots=True)
class NewtonSparseRows(KeptRows):
    """Sparse rows: Z by slot, and X in CSR form with at most 2 m rows."""

    z: Annotated[Floats, SLOT_ROWS]  # Z, (slots, m)


# -- the small space, k = 2 m ------------------------------------------------------------------------------------------
@dataclass(slots=True)
class ShrinkingSpace(Arrays):
    """Small space of B = [F Z'; C X] for "rfd", "fd" and "pfd"; w = base + Z b + X'e."""

    frame: Floats  # F, (k, k)
    factors: Floats  # the diagonal of C, (k,)
    small: Floats  # B B', (k, k)
    inverse: Floats  # (B B' + alpha I)^-1, (k, k)
    b: Floats  # (k,)
    e: Floats  # (k,)


@dataclass(slots=True)
class MixedSpace(Arrays):
    """Small space of B = L [Z'; X] for "rp" and "oja"."""

    frame: Floats  # L, (m, 3 m)
    small: Floats  # B B', (m, m)
    lam: Floats  # Oja's eigenvalues, (m,)
    b: Floats  # (m,)
    e: Floats  # (k,)


# -- states ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class NewtonState(LearnedState):
    """State of any method of SketchedNewton."""

    setting: NewtonSetting
    scalar: Annotated[Floats, OF_LOSSES]  # entries ALPHA, SHRINKAGE, LOSS
    count: Counts  # entries RANK, ROWS, ROUND, MISTAKES, FULL, APPENDED
    fading: Floats  # entries FADED, FLOOR, TAKEN

    def learn(self, batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        if isinstance(batch, Csr):
            self.make_room(batch)
        if self.bound is None:
            self.bound = NewtonRounds(self, self.setting)
        if self.setting.method == "rp":
            self._learn_randomly(batch, targets, sample_weight, scores)
        elif isinstance(batch, Csr):
            self.bound.sparse(*batch, targets, sample_weight, None, scores)
        else:
            self.bound.dense(batch, targets, sample_weight, None, scores)

    @classmethod
    def learn_together(
        cls, states: Sequence[LearnedState], batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        ours = cast("Sequence[NewtonState]", states)
        if ours[0].setting.method == "rp":  # whose random numbers are those of its own rounds
            LearnedState.learn_together(states, batch, targets, sample_weight, scores)
            return
        for state in ours:
            if isinstance(batch, Csr):
                state.make_room(batch)
            if state.bound is None:
                state.bound = NewtonRounds(state, state.setting)
        data, indices, indptr = batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
        together([state.bound for state in ours], data, indices, indptr, targets, sample_weight, scores)

    def _learn_randomly(self, batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Learn by a random projection, as many rows at a time as have their random numbers made together."""
        for first in range(0, len(targets), ROUNDS_A_BLOCK):
            part = slice(first, min(first + ROUNDS_A_BLOCK, len(targets)))
            rho = random_rows(self.setting, int(self.count[ROUND]), part.stop - first)
            some = targets[part], sample_weight[part], rho, scores[part]
            if isinstance(batch, Csr):
                self.bound.sparse(batch.data, batch.indices, batch.indptr[first : part.stop + 1], *some)
            else:
                self.bound.dense(batch[part], *some)
            if not np.isfinite(scores[part.stop - 1]):
                return

    def make_room(self, batch: Csr) -> None:
        """Make room for sparse rows before they are learned from."""

    def totals(self) -> tuple[int, float, int]:
        return int(self.count[ROUND]), float(self.scalar[LOSS]), int(self.count[MISTAKES])

    def prepare(self, batch: RowBatch) -> None:
        if self.is_open():
            with np.errstate(over="ignore"):
                square = _first_square(batch)
            # rows of zeros before it learn nothing: any alpha serves them, and it is settled later
            if np.isfinite(square):  # else the rounds will refuse the batch
                self.scalar[ALPHA] = self.fading[FLOOR] = self.setting.first_row_share * square

    def fade(self, factor: float) -> None:
        if self.bound is None:
            self.bound = NewtonRounds(self, self.setting)
        self.bound.fade(factor)

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        LearnedState.validate_all(self, arrays)
        scalar, count, setting = arrays["scalar"], arrays["count"].tolist(), self.setting
        faded, floor, taken = arrays["fading"].tolist()
        checks.number_within(faded, "share that has not faded", 5e-324, 1.0)
        checks.number_within(taken, "share of what it keeps that has not faded", 0.0, 1.0)
        checks.number_within(floor, "floor of alpha", setting.alpha0 or 0.0, scalar[ALPHA] * 2)
        least = (setting.alpha0 or 0.0) / (1 if faded == 1 and setting.decay == 1 else 2)
        most = MOST_ALPHA if setting.method == "rfd" else cast(float, setting.alpha0)
        checks.number_within(scalar[ALPHA], "alpha", least, most)
        checks.number_within(scalar[SHRINKAGE], "shrinkage", 0.0, np.inf)
        checks.number_within(scalar[LOSS], "cumulative loss", 0.0, np.inf)
        checks.number_within(count[ROUND], "n_rows", 0, checks.MOST_COUNT)
        checks.number_within(count[MISTAKES], "mistakes", 0, count[ROUND])
        checks.number_within(count[APPENDED], "gradients taken in", 0, count[ROUND] if setting.mixed else 0)
        checks.number_within(count[FULL], "full", 0, 0)
        r, n = count[RANK], count[ROWS]
        if setting.method == "full":
            checks.number_within(max(r, n, -r, -n), "rows of the sketch", 0, 0)
        elif setting.mixed:
            checks.number_within(r, "rank", setting.sketch_size, setting.sketch_size)
            checks.number_within(n, "rows since the last shrink", 0, min(2 * setting.sketch_size - 1, count[APPENDED]))
            checks.not_negative(arrays, "lam", (setting.sketch_size,))
        else:
            # B = [F Z'; C X] of 2 m rows would be full, and shrunk
            checks.number_within(r, "rank", 0, setting.sketch_size - 1)
            checks.number_within(n, "rows since the last shrink", 0, min(2 * setting.sketch_size - 1 - r, count[ROUND]))
        if self.sparse:
            KeptRows.validate_rows(arrays, n, len(self.base))

    def is_open(self) -> bool:
        """Return whether alpha0 waits for a row that is not zero."""
        return self.setting.alpha0 is None and float(self.scalar[ALPHA]) == 0.0


@dataclass(slots=True)
class NewtonFullState(NewtonState):
    """State of FULL-ON, with the whole H."""

    inverse: Floats  # H^-1, (d, d)

    def is_atomic(self) -> bool:
        return False  # H changes in several steps

    def coef(self) -> Floats:
        return self.base.copy()


@dataclass(slots=True)
class NewtonSketchState(NewtonState):
    """State with a sketched H."""

    rows: NewtonDenseRows | NewtonSparseRows
    space: ShrinkingSpace | MixedSpace

    def make_room(self, batch: Csr) -> None:
        # X never holds more than 2 m rows
        m, held, rows = self.setting.sketch_size, int(self.count[ROWS]), cast(NewtonSparseRows, self.rows)
        longest = int(np.diff(batch.indptr).max(initial=0))
        used = int(rows.kept_indptr[held])
        if rows.room_for(held, max(2 * m * longest - used, (2 * m - held) * longest)):
            self.bound = None

    def n_stored(self) -> int:
        return cast(NewtonSparseRows, self.rows).n_values(int(self.count[ROWS]))

    def is_atomic(self) -> bool:
        # all rows of a mixed sketch change in several steps; without alpha, each row needs a factorisation
        if not isinstance(self.space, ShrinkingSpace) or not self.scalar[ALPHA] > 0.0:
            return False
        if self.setting.decay != 1 and float(self.scalar[ALPHA]) * self.setting.decay < float(self.fading[FLOOR]) / 2:
            return False  # alpha is put back before the row is learned from
        return self.setting.constraint not in (NEXT, BOTH) or not self._is_full()

    def _is_full(self) -> bool:
        """Return whether one more row makes a shrink."""
        return int(self.count[RANK]) + int(self.count[ROWS]) + 1 == 2 * self.setting.sketch_size

    def coef(self) -> Floats:
        slots, r, n = self.n_slots, int(self.count[RANK]), int(self.count[ROWS])
        w = self.base[:slots].copy()
        b, e, rows = self.space.b, self.space.e, self.rows
        if isinstance(rows, NewtonDenseRows):
            return w + b[:r] @ rows.z[:r] + e[:n] @ rows.kept[:n]
        return w + rows.z[:slots, :r] @ b[:r] + e[:n] @ rows.as_csr(n, slots)


def _first_square(batch: RowBatch) -> float:
    """Return the squared length of the first row that is not zero; 0 if there is none."""
    if isinstance(batch, Csr):
        places = np.flatnonzero(batch.data)
        if not len(places):
            return 0.0
        row = int(np.searchsorted(batch.indptr, int(places[0]), side="right")) - 1
        values = batch.data[int(batch.indptr[row]) : int(batch.indptr[row + 1])]
    else:
        occurring = np.flatnonzero(batch.any(axis=1))
        if not len(occurring):
            return 0.0
        values = batch[int(occurring[0])]
    # summed in order: the same bits for dense rows and sparse ones
    return float(np.cumsum(values * values)[-1])


# -- beginnings --------------------------------------------------------------------------------------------------------
def start_newton(setting: NewtonSetting, d: int, sparse: bool, zeros: Zeros = np.zeros) -> NewtonState:
    """Return the state before the first row; with zeros=outline, one of the same shapes that takes no memory.

    d: columns of dense rows, else slots to begin with.
    """
    m, k = setting.sketch_size, 2 * setting.sketch_size
    common: dict[str, Any] = {
        "sparse": sparse,
        "base": zeros(d),
        "regret": zeros(2),
        "seen": np.full(1, 0 if sparse else d),
        "setting": setting,
        "scalar": np.zeros(NEWTON_SCALARS),
        "count": np.zeros(NEWTON_COUNTS, np.int64),
        "fading": np.zeros(FADINGS),
    }
    alpha0 = setting.alpha0 or 0.0
    common["scalar"][ALPHA] = common["fading"][FLOOR] = alpha0
    common["fading"][FADED] = common["fading"][TAKEN] = 1.0
    if setting.method == "full":
        return NewtonFullState(**common, inverse=zeros((d, d)) if zeros is outline else np.eye(d) / alpha0)
    if setting.mixed:
        common["count"][RANK] = m
    space = _mixed_space(m, zeros) if setting.mixed else _shrinking_space(m, zeros)
    rows = (
        NewtonSparseRows(
            kept_data=zeros(0),
            kept_indices=zeros(0, np.int32),
            kept_indptr=zeros(k + 1, np.int64),
            z=zeros((d, m)),
        )
        if sparse
        else NewtonDenseRows(z=zeros((m, d)), kept=zeros((k, d)))
    )
    if setting.method == "oja" and zeros is not outline:
        if d < m:
            raise ValueError(f"method='oja' needs {m} columns for sketch_size={m}, the intercept among them, got {d}")
        directions = np.linalg.qr(random_normal(setting.seed, Normal.OJA_START, d * m).reshape(d, m))[0]
        rows.z[...] = directions if sparse else directions.T
    return NewtonSketchState(**common, rows=rows, space=space)


def _shrinking_space(m: int, zeros: Zeros) -> ShrinkingSpace:
    k = 2 * m
    return ShrinkingSpace(
        frame=zeros((k, k)),
        factors=zeros(k),
        small=zeros((k, k)),
        inverse=zeros((k, k)),
        b=zeros(k),
        e=zeros(k),
    )


def _mixed_space(m: int, zeros: Zeros) -> MixedSpace:
    k = 2 * m
    return MixedSpace(
        frame=zeros((m, 3 * m)) if zeros is outline else np.eye(m, 3 * m),
        small=zeros((m, m)),
        lam=zeros(m),
        b=zeros(m),
        e=zeros(k),
    )


def random_rows(setting: NewtonSetting, first: int, n: int) -> Floats:
    """Return the random numbers of rounds first .. first + n - 1, (n, m); zeros but for a random projection."""
    m = setting.sketch_size
    if setting.method != "rp" or n == 0:
        return np.zeros((n, m))
    blocks = range(first // ROUNDS_A_BLOCK, (first + n - 1) // ROUNDS_A_BLOCK + 1)
    numbers = np.concatenate(
        [random_normal(setting.seed, Normal.NEWTON_PROJECTION + block, ROUNDS_A_BLOCK * m) for block in blocks]
    )
    begin = first - blocks[0] * ROUNDS_A_BLOCK
    return numbers.reshape(-1, m)[begin : begin + n] / np.sqrt(m)
