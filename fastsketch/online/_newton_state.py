"""State of SketchedNewton: the rows of its sketch, small matrices, and the weights.

The updates are in _kernels/online/newton.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.newton import NewtonRounds
from fastsketch._kernels.online.numbers import (
    ALPHA,
    BOTH,
    CURRENT,
    FADED,
    FLOOR,
    NEXT,
    RANK,
    RESIDUALS,
    ROUND,
    ROWS,
    SHRINKAGE,
    UNCONSTRAINED,
    WEIGHTS,
)
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import (
    SLOT_ROWS,
    Arrays,
    Csr,
    Floats,
    LearnedState,
    Rescaling,
    RowBatch,
    StoredRows,
    Zeros,
    common_fields,
)

# Defaults of `alpha0_share`: for labels without scaling, whose slopes are bounded; for real targets; for
# curvature="loss", where alpha0 is the ridge of a regression; for labels with scale="moments".
SHARE_FOR_LABELS, SHARE_FOR_REAL_TARGETS = 0.01, 3.0
SHARE_BY_LOSS = 0.2
SHARE_FOR_SCALED_ROWS = 0.05
MAX_ALPHA = float(np.finfo(np.float64).max)
CONSTRAINTS = {None: UNCONSTRAINED, "current": CURRENT, "next": NEXT, "both": BOTH}


@dataclass(frozen=True, slots=True)
class NewtonSetting:
    """Parameters of a SketchedNewton learner, in the form that its compiled code reads."""

    method: str
    sketch_size: int
    spared: int  # directions that a shrink of "pfd" does not reduce
    loss: int
    constraint: int
    alpha0: float | None  # None: first_row_share times the squared length of the first nonzero row
    first_row_share: float
    by_loss: bool  # curvature="loss": H of curvatures of the losses, not of gradients
    decay: float = 1.0
    loss_scale: float = 1.0  # the kernels get weights that include it


# -- Z, the result of earlier shrinks, and X, the rows since then ------------------------------------------------------
@dataclass(slots=True)
class NewtonDenseRows(Arrays):
    """Stored rows of a Newton learner's sketch, for dense data: the matrix Z' that the last shrink left, and the rows X
    learned since.

    m is the sketch size.
    """

    z: Floats  # Z', (m, d)
    kept: Floats  # X, (2 m, d)


@dataclass(slots=True)
class NewtonSparseRows(StoredRows):
    """Stored rows of a Newton learner's sketch, for sparse data: the dense matrix Z' that the last shrink left, and the
    sparse rows X learned since.

    X has at most 2 m rows, for the sketch size m.
    """

    z: Annotated[Floats, SLOT_ROWS]  # Z, (slots, m)


# -- the small space, k = 2 m ------------------------------------------------------------------------------------------
@dataclass(slots=True)
class ShrinkingSpace(Arrays):
    """Small k x k matrices of a Newton learner, by which its weights w = base + Z b + X'e are updated cheaply.

    Between shrinks the sketch is B = [F Z'; C X].
    """

    frame: Floats  # F, (k, k)
    factors: Floats  # the diagonal of C, (k,)
    small: Floats  # B B', (k, k)
    inverse: Floats  # (B B' + alpha I)^-1, (k, k)
    b: Floats  # (k,)
    e: Floats  # (k,)


# -- states ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class NewtonState(LearnedState):
    """State of a SketchedNewton learner: the stored rows of its sketch, small matrices, and weights."""

    setting: NewtonSetting
    rows: NewtonDenseRows | NewtonSparseRows
    space: ShrinkingSpace

    def begin_rounds(self) -> NewtonRounds:
        return NewtonRounds(self, self.setting)

    def rounds_for(self, batch: RowBatch) -> NewtonRounds:
        """Return the compiled object that runs the updates, after preparing this state for the rows of the batch.

        Memory for the rows is reserved. Unless alpha0 is given, alpha is initialised as a multiple of the squared
        length of the first nonzero row.
        """
        if self.setting.alpha0 is None and self.scalar[ALPHA] == 0.0:
            with np.errstate(over="ignore"):
                square = first_row_square(batch)
            # alpha does not matter for rows of zeros; it is set with the first row that is not zero
            if np.isfinite(square):  # else the kernel refuses the batch
                self.scalar[ALPHA] = self.scalar[FLOOR] = self.setting.first_row_share * square
        if isinstance(batch, Csr):
            longest_row = int(np.diff(batch.indptr).max(initial=0))
            m, n_stored = self.setting.sketch_size, int(self.count[ROWS])
            used = int(cast(StoredRows, self.stored_rows).kept_indptr[n_stored])
            self.reserve(
                n_stored, max(2 * m * longest_row - used, (2 * m - n_stored) * longest_row)
            )  # X never holds more than 2 m
        return self.rounds

    def fade(self, factor: float) -> None:
        self.rounds.fade(factor)

    def rescale(self, change: Rescaling) -> None:
        """Convert the sketch and the weights to new feature scales, in place; alpha does not change."""
        r, n, space, rows = int(self.count[RANK]), int(self.count[ROWS]), self.space, self.rows
        slots = change.n_slots(self.n_slots)  # not the capacity, on which rounding would depend
        alpha, faded = float(self.scalar[ALPHA]), float(self.scalar[FADED])
        w = np.zeros(slots)
        w[: self.n_slots] = self.coef()
        if isinstance(rows, NewtonDenseRows):
            z, x = rows.z[:r], rows.kept[:n]
            change.apply(x)
        else:
            z = rows.z[:slots, :r].T
            change.apply_to_stored_rows(rows, n, slots)
            x = rows.as_csr(n, slots).toarray()
        change.apply(z)
        if alpha == 0.0:  # no row has been learned from
            return
        basis = np.concatenate([space.frame[:r, :r] @ np.ascontiguousarray(z), space.factors[:n, None] * x])
        gram = basis @ basis.T
        inverse = np.linalg.inv(gram + alpha / faded * np.eye(r + n))
        self.base[:slots] = change.weights(w)
        space.b[:] = space.e[:] = 0.0
        space.small[: r + n, : r + n], space.inverse[: r + n, : r + n] = gram, 0.5 * (inverse + inverse.T)

    def accepts_initial_weights(self) -> bool:
        return self.setting.constraint == UNCONSTRAINED

    def n_stored_rows(self) -> int:
        return int(self.count[ROWS])

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        names = LearnedState.validate_all(self, arrays)
        scalar, count, setting = arrays["scalar"].tolist(), arrays["count"].tolist(), self.setting
        alpha, m = scalar[ALPHA], setting.sketch_size
        checks.number_within(scalar[FADED], "share that has not faded", 5e-324, 1.0)
        checks.number_within(scalar[FLOOR], "floor of alpha", setting.alpha0 or 0.0, alpha * 2)
        least = (setting.alpha0 or 0.0) / 2  # decay may halve it
        checks.number_within(
            alpha, "alpha", least, MAX_ALPHA if setting.method == "rfd" else cast(float, setting.alpha0)
        )
        checks.number_within(scalar[SHRINKAGE], "shrinkage", 0.0, np.inf)
        for entry, name in ((RESIDUALS, "sum of squared residuals"), (WEIGHTS, "weight of residuals")):
            checks.number_within(scalar[entry], name, 0.0, np.finfo(np.float64).max)
        r, n = count[RANK], count[ROWS]
        # B = [F Z'; C X] is shrunk when it has 2 m rows
        checks.number_within(r, "rank", 0, m - 1)
        checks.number_within(n, "rows since the last shrink", 0, min(2 * m - 1 - r, count[ROUND]))
        if self.sparse:
            StoredRows.validate_rows(arrays, n, len(self.base))
        return names

    def coef(self) -> Floats:
        slots, r, n = self.n_slots, int(self.count[RANK]), int(self.count[ROWS])
        w = self.base[:slots].copy()
        b, e, rows = self.space.b, self.space.e, self.rows
        if isinstance(rows, NewtonDenseRows):
            return w + b[:r] @ rows.z[:r] + e[:n] @ rows.kept[:n]
        return w + rows.z[:slots, :r] @ b[:r] + e[:n] @ rows.as_csr(n, slots)


def first_row_square(batch: RowBatch) -> float:
    """Return the squared Euclidean norm of the first nonzero row of a batch; 0 if all rows are zero.

    The parameter alpha is initialised from it.
    """
    if isinstance(batch, Csr):
        positions = np.flatnonzero(batch.data)
        if not len(positions):
            return 0.0
        row = int(np.searchsorted(batch.indptr, int(positions[0]), side="right")) - 1
        values = batch.data[int(batch.indptr[row]) : int(batch.indptr[row + 1])]
    else:
        nonzero_rows = np.flatnonzero(batch.any(axis=1))
        if not len(nonzero_rows):
            return 0.0
        values = batch[int(nonzero_rows[0])]
    # summed in order, so that dense and sparse rows have bitwise identical results
    return float(np.cumsum(values * values)[-1])


# -- initial state -----------------------------------------------------------------------------------------------------
def start_newton(setting: NewtonSetting, d: int, sparse: bool, zeros: Zeros = np.zeros) -> NewtonState:
    """Return the initial state of a SketchedNewton learner, with the weights 0 and an empty sketch.

    With zeros=outline it has the right shapes but takes no memory.

    d: columns of dense rows, or initial capacity in slots.
    """
    m, k = setting.sketch_size, 2 * setting.sketch_size
    common = common_fields(setting, d, sparse, zeros)
    common["scalar"][ALPHA] = common["scalar"][FLOOR] = setting.alpha0 or 0.0
    common["scalar"][FADED] = 1.0
    square = [zeros((k, k)) for _ in range(3)]
    space = ShrinkingSpace(square[0], zeros(k), square[1], square[2], b=zeros(k), e=zeros(k))
    rows: NewtonSparseRows | NewtonDenseRows
    if sparse:
        rows = NewtonSparseRows(zeros(0), zeros(0, np.int32), zeros(k + 1, np.int64), z=zeros((d, m)))
    else:
        rows = NewtonDenseRows(z=zeros((m, d)), kept=zeros((k, d)))
    return NewtonState(**common, rows=rows, space=space)
