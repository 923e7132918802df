"""The arrays of SketchedNewton and its rounds; the mathematics is in _kernels/newton."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.dots import row_products
from fastsketch._kernels.online import (
    ALPHA,
    APPENDED,
    BOTH,
    CURRENT,
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
    UNCONSTRAINED,
)
from fastsketch._random import Normal, random_normal
from fastsketch.io import _checks as checks
from fastsketch.online._state import (
    OF_LOSSES,
    SCRATCH,
    Arrays,
    Batch,
    Counts,
    Csr,
    Floats,
    KeptRows,
    Learned,
    Zeros,
    outline,
)

# Rounds whose random numbers are made together.
ROUNDS_A_BLOCK = 64
# alpha0 of models that are given none, as share of the squared length of the first row: for labels, which bound the
# slopes, and for real targets. Chosen on validation splits of seven and of four sets, where it is as good as the best
# constant, or better: that depends on the lengths of the rows.
SHARE_FOR_LABELS, SHARE_FOR_REAL_TARGETS = 0.01, 3.0
MOST_ALPHA = float(np.finfo(np.float64).max)
CONSTRAINTS = {None: UNCONSTRAINED, "current": CURRENT, "next": NEXT, "both": BOTH}


@dataclass(frozen=True, slots=True)
class NewtonSetting:
    """The parameters of a SketchedNewton as its rounds take them."""

    method: str
    sketch_size: int
    spared: int  # rows that a shrink of "pfd" spares
    loss: int
    constraint: int
    alpha0: float | None  # None: a share of the squared length of the first row that is not zero
    first_row_share: float
    seed: int

    @property
    def mixed(self) -> bool:
        """Whether all rows of B change in every round."""
        return self.method in ("rp", "oja")


# -- Z, what earlier shrinks kept, and X, the rows since ---------------------------------------------------------------
@dataclass(slots=True)
class DenseRows(Arrays):
    """For m = sketch_size."""

    z: Floats  # Z', (m, d)
    kept: Floats  # X, (2 m, d)


@dataclass(slots=True)
class SparseRows(KeptRows):
    """X in CSR form with at most 2 m rows."""

    z: Floats  # Z, (d, m)
    work: Annotated[Floats, SCRATCH]  # d zeros


# -- the small space, k = 2 m ------------------------------------------------------------------------------------------
@dataclass(slots=True)
class ShrinkingSpace(Arrays):
    """B = [F Z'; C X] of "rfd", "fd" and "pfd"; w = base + Z b + X'e."""

    frame: Floats  # F, (k, k)
    factors: Floats  # the diagonal of C, (k,)
    small: Floats  # B B', (k, k)
    inverse: Floats  # (B B' + alpha I)^-1, (k, k)
    b: Floats  # (k,)
    e: Floats  # (k,)
    turn: Annotated[Floats, SCRATCH]  # (m, k)
    zx: Annotated[Floats, SCRATCH]  # Z'x, (k,)
    gx: Annotated[Floats, SCRATCH]  # X x, (k + 1,)


@dataclass(slots=True)
class MixedSpace(Arrays):
    """B = L [Z'; X] of "rp" and "oja"."""

    frame: Floats  # L, (m, 3 m)
    small: Floats  # B B', (m, m)
    lam: Floats  # Oja's eigenvalues, (m,)
    b: Floats  # (m,)
    e: Floats  # (k,)
    zx: Annotated[Floats, SCRATCH]  # (m,)
    gx: Annotated[Floats, SCRATCH]  # (k,)


# -- states ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class NewtonState(Learned):
    """What all methods have."""

    setting: NewtonSetting
    scalar: Annotated[Floats, OF_LOSSES]  # entries ALPHA, SHRINKAGE, LOSS
    count: Counts  # entries RANK, ROWS, ROUND, MISTAKES, FULL, APPENDED

    def totals(self) -> tuple[int, float, int]:
        return int(self.count[ROUND]), float(self.scalar[LOSS]), int(self.count[MISTAKES])

    def prepare(self, batch: Batch) -> None:
        if self.is_open():
            square = _first_square(batch)
            # rows of zeros before it learn nothing: any alpha serves them, and it is settled later
            if np.isfinite(square):  # else the rounds will refuse the batch
                self.scalar[ALPHA] = self.setting.first_row_share * square

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        Learned.validate_all(self, arrays)
        scalar, count, setting = arrays["scalar"], arrays["count"].tolist(), self.setting
        least = setting.alpha0 or 0.0
        checks.number_within(scalar[ALPHA], "alpha", least, MOST_ALPHA if setting.method == "rfd" else least)
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
        """Whether alpha0 waits for a row that is not zero."""
        return self.setting.alpha0 is None and float(self.scalar[ALPHA]) == 0.0


@dataclass(slots=True)
class FullState(NewtonState):
    """FULL-ON: the whole H."""

    inverse: Floats  # H^-1, (d, d)

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        from fastsketch._kernels.newton import full_rounds

        full_rounds(
            cast(Floats, batch),
            targets,
            sample_weight,
            self.setting.loss,
            self.setting.constraint,
            self.base,
            self.inverse,
            self.scalar,
            self.count,
            scores,
        )

    def is_atomic(self) -> bool:
        return False  # H changes in several steps

    def coef(self) -> Floats:
        return self.base.copy()


@dataclass(slots=True)
class SketchState(NewtonState):
    """Sketched H."""

    rows: DenseRows | SparseRows
    space: ShrinkingSpace | MixedSpace

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        try:
            if isinstance(batch, Csr):
                self._learn_sparse(batch, targets, sample_weight, scores)
            else:
                self._learn_dense(batch, targets, sample_weight, scores)
        finally:
            self.count[FULL] = 0

    def is_atomic(self) -> bool:
        # all rows of a mixed sketch change in several steps; so does everything in a shrink
        held = int(self.count[RANK]) + int(self.count[ROWS])
        return not self.is_open() and isinstance(self.space, ShrinkingSpace) and held + 1 < 2 * self.setting.sketch_size

    def coef(self) -> Floats:
        w = self.base.copy()
        r, n = int(self.count[RANK]), int(self.count[ROWS])
        b, e, rows = self.space.b, self.space.e, self.rows
        if isinstance(rows, DenseRows):
            return w + b[:r] @ rows.z[:r] + e[:n] @ rows.kept[:n]
        from fastsketch._kernels.newton import add_rows

        w += rows.z[:, :r] @ b[:r]
        add_rows(rows.kept_data, rows.kept_indices, rows.kept_indptr, n, e[:n].copy(), w)
        return w

    def _learn_sparse(self, batch: Csr, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        from fastsketch._kernels import newton as kernel

        setting, rows, space = self.setting, cast(SparseRows, self.rows), self.space
        # X never holds more than 2 m rows
        longest = int(np.diff(batch.indptr).max(initial=0))
        rows.room_for(int(self.count[ROWS]), 2 * setting.sketch_size * longest)
        if isinstance(space, MixedSpace):
            kernel.mixed_sparse_rounds(
                *batch,
                targets,
                sample_weight,
                setting.loss,
                setting.constraint,
                setting.method == "oja",
                random_rows(setting, int(self.count[ROUND]), len(targets)),
                self.base,
                rows.z,
                rows.kept_data,
                rows.kept_indices,
                rows.kept_indptr,
                rows.work,
                *_mixed(space),
                self.scalar,
                self.count,
                scores,
            )
            return
        kernel.sparse_rounds(
            *batch,
            targets,
            sample_weight,
            setting.loss,
            setting.constraint,
            setting.sketch_size,
            setting.spared,
            setting.method == "rfd",
            self.base,
            rows.z,
            rows.kept_data,
            rows.kept_indices,
            rows.kept_indptr,
            rows.work,
            *_shrinking(space),
            self.scalar,
            self.count,
            scores,
        )

    def _learn_dense(self, x: Floats, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Blocks of rows that end with a shrink: all inner products of a block at once, each in an order of its own."""
        setting, rows = self.setting, cast(DenseRows, self.rows)
        m, n, done = setting.sketch_size, len(x), 0
        # a constraint on the next score moves base, of which the next row needs the product
        most = 1 if setting.constraint in (NEXT, BOTH) else 2 * m
        places, products = np.zeros(2 * m, np.int64), np.zeros((min(most, n), 1 + 5 * m))
        while done < n:
            held = int(self.count[ROWS])
            room = 2 * m - held - (0 if setting.mixed else int(self.count[RANK]))
            block = slice(done, done + min(most, room))
            some = x[block]
            row_products(some, self.base[None], products, 0)
            row_products(some, rows.z, products, 1)
            row_products(some, rows.kept[:held], products, 1 + m)
            row_products(some, some, products, 1 + m + held, lower=True)
            done += self._learn_block(products, some, targets[block], sample_weight[block], places, scores[block])
            if self.count[FULL] < 0:
                return

    def _learn_block(
        self, products: Floats, x: Floats, targets: Floats, sample_weight: Floats, places: Counts, scores: Floats
    ) -> int:
        """Rows of one block up to the next shrink; returns how many."""
        from fastsketch._kernels import newton as kernel

        setting, rows, space = self.setting, cast(DenseRows, self.rows), self.space
        if isinstance(space, MixedSpace):
            return kernel.mixed_dense_block(
                products,
                x,
                targets,
                sample_weight,
                setting.loss,
                setting.constraint,
                setting.method == "oja",
                random_rows(setting, int(self.count[ROUND]), len(x)),
                self.base,
                rows.z,
                rows.kept,
                places,
                *_mixed(space),
                self.scalar,
                self.count,
                scores,
            )
        return kernel.dense_block(
            products,
            x,
            targets,
            sample_weight,
            setting.loss,
            setting.constraint,
            setting.sketch_size,
            setting.spared,
            setting.method == "rfd",
            self.base,
            rows.z,
            rows.kept,
            places,
            *_shrinking(space),
            self.scalar,
            self.count,
            scores,
        )


def _shrinking(s: ShrinkingSpace) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    return s.frame, s.factors, s.small, s.inverse, s.b, s.e, s.turn, s.zx, s.gx


def _mixed(s: MixedSpace) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    return s.frame, s.small, s.lam, s.b, s.e, s.zx, s.gx


def _first_square(batch: Batch) -> float:
    """Squared length of the first row that is not zero; 0 if there is none."""
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
def start(setting: NewtonSetting, d: int, sparse: bool, zeros: Zeros = np.zeros) -> NewtonState:
    """The state before the first row; with zeros=outline, one of the same shapes that takes no memory."""
    m, k = setting.sketch_size, 2 * setting.sketch_size
    common: dict[str, Any] = {
        "sparse": sparse,
        "base": zeros(d),
        "regret": zeros(2),
        "setting": setting,
        "scalar": np.zeros(NEWTON_SCALARS),
        "count": np.zeros(NEWTON_COUNTS, np.int64),
    }
    alpha0 = setting.alpha0 or 0.0
    common["scalar"][ALPHA] = alpha0
    if setting.method == "full":
        return FullState(**common, inverse=zeros((d, d)) if zeros is outline else np.eye(d) / alpha0)
    if setting.mixed:
        common["count"][RANK] = m
    space = _mixed_space(m, zeros) if setting.mixed else _shrinking_space(m, zeros)
    rows = (
        SparseRows(
            kept_data=zeros(0),
            kept_indices=zeros(0, np.int32),
            kept_indptr=zeros(k + 1, np.int64),
            z=zeros((d, m)),
            work=zeros(d),
        )
        if sparse
        else DenseRows(z=zeros((m, d)), kept=zeros((k, d)))
    )
    if setting.method == "oja" and zeros is not outline:
        directions = np.linalg.qr(random_normal(setting.seed, Normal.OJA_START, d * m).reshape(d, m))[0]
        rows.z[...] = directions if sparse else directions.T
    return SketchState(**common, rows=rows, space=space)


def _shrinking_space(m: int, zeros: Zeros) -> ShrinkingSpace:
    k = 2 * m
    return ShrinkingSpace(
        frame=zeros((k, k)),
        factors=zeros(k),
        small=zeros((k, k)),
        inverse=zeros((k, k)),
        b=zeros(k),
        e=zeros(k),
        turn=zeros((m, k)),
        zx=zeros(k),
        gx=zeros(k + 1),
    )


def _mixed_space(m: int, zeros: Zeros) -> MixedSpace:
    k = 2 * m
    return MixedSpace(
        frame=zeros((m, 3 * m)) if zeros is outline else np.eye(m, 3 * m),
        small=zeros((m, m)),
        lam=zeros(m),
        b=zeros(m),
        e=zeros(k),
        zx=zeros(m),
        gx=zeros(k),
    )


def random_rows(setting: NewtonSetting, first: int, n: int) -> Floats:
    """Random numbers of rounds first .. first + n - 1, (n, m); zeros but for a random projection."""
    m = setting.sketch_size
    if setting.method != "rp" or n == 0:
        return np.zeros((n, m))
    blocks = range(first // ROUNDS_A_BLOCK, (first + n - 1) // ROUNDS_A_BLOCK + 1)
    numbers = np.concatenate(
        [random_normal(setting.seed, Normal.NEWTON_PROJECTION + block, ROUNDS_A_BLOCK * m) for block in blocks]
    )
    begin = first - blocks[0] * ROUNDS_A_BLOCK
    return numbers.reshape(-1, m)[begin : begin + n] / np.sqrt(m)
