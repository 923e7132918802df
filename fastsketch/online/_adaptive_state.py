"""States of the adaptive subgradient methods, with a sketched, full or diagonal second-order matrix.

The updates are in _kernels/online.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import L1_PENALTY, NO_PENALTY
from fastsketch._kernels.online.adaptive import AdaptiveRounds
from fastsketch._kernels.online.diagonal import DiagonalRounds
from fastsketch._kernels.online.numbers import (
    ADAM,
    BUFFERED,
    CLOCK,
    DELTA,
    EVERY_ROUND,
    FADED,
    NEVER,
    OLD,
    RANK,
    RESIDUALS,
    ROWS,
    SCALE,
    SHRINKAGE,
    WEIGHTS,
    learn,
)
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import (
    SLOT_ROWS,
    SLOTS,
    Arrays,
    Csr,
    Floats,
    LearnedState,
    Rescaling,
    RowBatch,
    StoredRows,
    Zeros,
    common_fields,
    row_slice,
)


def _validate_scalar(scalar: Floats) -> None:
    """Raise ValueError if a scalar entry of an adaptive learner's state, read from a file, is out of range."""
    if not scalar[DELTA] > 0:
        raise ValueError(f"delta must be positive, got {scalar[DELTA]}")
    names = {RESIDUALS: "sum of squared residuals", WEIGHTS: "weight of residuals", SHRINKAGE: "sum of removed squares"}
    for entry, name in names.items():
        checks.number_within(scalar[entry], name, 0.0, np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSetting:
    """Parameters of an adaptive subgradient method, as the integers and numbers that its compiled code reads."""

    method: int  # DIAGONAL, GRADIENT or ADAM; for sketches the shrink rule: EVERY_ROUND, WHEN_FULL or NEVER
    loss: int
    phi: int = NO_PENALTY
    dual: bool = False
    strength: float = 0.0
    learning_rate: float
    decay: float
    in_units: bool  # H takes slopes in units of the root mean square residual
    # only for sketches:
    sketch_size: int = 0
    root: bool = True  # H = delta I + (S'S)^(1/2), else delta I + S'S
    fade: bool = False  # gradient t is weighted by 1 / sqrt(t)
    compensate: bool = False  # H = delta I + (S'S + rho I)^(1/2), rho the sum of what shrinks have removed


# -- H sketched, or full -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class AdaptiveDenseRows(Arrays):
    """Dense matrix C (cap, d) of stored gradient directions.

    The eigenvectors of the second-order matrix are stored as linear combinations of its rows.
    """

    rows: Floats  # (cap, d)
    total: Floats | None  # sum of gradients (d,), for penalty l1 in the dual form


@dataclass(slots=True)
class AdaptiveSparseRows(StoredRows):
    """Matrix C of stored gradient directions for sparse data: a small number of dense rows F Z', followed by sparse
    rows X in CSR format.
    """

    z: Annotated[Floats, SLOT_ROWS]  # Z, (slots, width)
    b: Floats  # (width,)
    frame: Floats  # F, (width, width)


@dataclass(slots=True)
class SketchedState(LearnedState):
    """State of an adaptive learner with a sketched or full second-order matrix S'S: the eigendecomposition of S'S, and
    the weight vector w.

    S'S = V diag(lam) V' with V = C'T, and w = scale (base + Z b) + C'steps.
    """

    setting: AdaptiveSetting
    turn: Floats  # T', (most, cap)
    lam: Floats  # (most,)
    gram: Floats  # C C', (cap, cap)
    steps: Floats  # (cap,)
    inner: Floats  # (cap,)
    rows: AdaptiveDenseRows | AdaptiveSparseRows

    def begin_rounds(self) -> AdaptiveRounds:
        return AdaptiveRounds(self, self.setting)

    @classmethod
    def learn(
        cls, states: Sequence[Any], batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        if not isinstance(batch, Csr):
            super(SketchedState, cls).learn(states, batch, targets, sample_weight, scores)
            return
        longest_row = int(np.diff(batch.indptr).max(initial=0))
        for k, state in enumerate(states):
            n_done, lacks_capacity, extra_nonzeros = 0, True, 0
            while lacks_capacity:
                # capacity for the rows until the next rebase, and after a failure for an explicitly formed direction
                rows = min(state.turn.shape[1] - state.n_stored_rows(), len(sample_weight) - n_done)
                state.reserve(state.n_stored_rows(), longest_row * rows + extra_nonzeros)
                remaining_rows = cast(Csr, row_slice(batch, n_done, len(sample_weight)))
                remaining_scores = scores[k : k + 1, n_done:]
                lacks_capacity = learn(
                    [state.rounds],
                    *remaining_rows,
                    targets[k : k + 1, n_done:],
                    sample_weight[n_done:],
                    remaining_scores,
                )
                n_done, extra_nonzeros = n_done + int(np.isfinite(remaining_scores).argmin()), len(state.base)

    def n_stored_rows(self) -> int:
        return int(self.count[ROWS] - self.count[OLD])

    def fade(self, factor: float) -> None:
        self.lam *= factor

    def rescale(self, change: Rescaling) -> None:
        """Convert the second-order matrix and the weights to new feature scales, in place. The sketch gets a new
        eigendecomposition.

        The stored rows C become its eigenvectors V.
        """
        n, n_dense_rows, rank = int(self.count[ROWS]), int(self.count[OLD]), int(self.count[RANK])
        row_store, slots = self.rows, change.n_slots(self.n_slots)
        if isinstance(row_store, AdaptiveDenseRows):
            rows = row_store.rows[:n].copy()
        else:
            z_rows = row_store.frame[:n_dense_rows, :n_dense_rows] @ np.ascontiguousarray(
                row_store.z[:slots, :n_dense_rows].T
            )
            rows = np.concatenate([z_rows, row_store.as_csr(n - n_dense_rows, slots).toarray()])
        w = np.zeros(slots)
        w[: self.n_slots] = self.coef()
        self.base[:slots] = w = change.weights(w)
        self.scalar[SCALE], self.steps[:], self.inner[:] = 1.0, 0.0, 0.0
        directions = self.turn[:rank, :n] @ rows
        change.apply(directions)
        basis, triangle = np.linalg.qr(directions.T)
        eigenvalues, rotation = np.linalg.eigh((triangle * self.lam[:rank]) @ triangle.T)
        directions = (basis @ rotation[:, ::-1]).T
        self.lam[:rank] = np.maximum(eigenvalues[::-1], 0.0)
        self.turn[:], self.gram[:] = 0.0, 0.0
        self.turn[:rank, :rank], self.gram[:rank, :rank] = np.eye(rank), directions @ directions.T
        self.inner[:rank] = directions @ w
        self.count[ROWS] = rank
        if isinstance(row_store, AdaptiveDenseRows):
            row_store.rows[:rank], row_store.rows[rank:] = directions, 0.0
            return
        n_dense_rows = min(rank, row_store.z.shape[1])
        row_store.z[:], row_store.b[:], row_store.frame[:] = 0.0, 0.0, np.eye(len(row_store.frame))
        row_store.z[:slots, :n_dense_rows], self.count[OLD] = directions[:n_dense_rows].T, n_dense_rows
        row_store.kept_indptr[:] = 0
        if rank > n_dense_rows:  # the other eigenvectors are stored as rows of X without zeros
            n_stored = (rank - n_dense_rows) * slots
            self.reserve(0, max(n_stored, len(row_store.kept_data)))
            row_store.kept_data[:n_stored] = directions[n_dense_rows:].ravel()
            row_store.kept_indices[:n_stored] = np.tile(np.arange(slots), rank - n_dense_rows)
            row_store.kept_indptr[: rank - n_dense_rows + 1] = slots * np.arange(rank - n_dense_rows + 1)

    def accepts_initial_weights(self) -> bool:
        return not self.setting.dual and self.setting.phi == NO_PENALTY

    def coef(self) -> Floats:
        n, n_dense_rows, row_store, scale = int(self.count[ROWS]), int(self.count[OLD]), self.rows, self.scalar[SCALE]
        if isinstance(row_store, AdaptiveDenseRows):
            return scale * self.base + self.steps[:n] @ row_store.rows[:n]
        slots = self.n_slots
        dense_part = (
            scale * row_store.b[:n_dense_rows]
            + self.steps[:n_dense_rows] @ row_store.frame[:n_dense_rows, :n_dense_rows]
        )
        stored_part = self.steps[n_dense_rows:n] @ row_store.as_csr(n - n_dense_rows, slots)
        return scale * self.base[:slots] + dense_part @ row_store.z[:slots, :n_dense_rows].T + stored_part

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        names = LearnedState.validate_all(self, arrays)
        scalar, (max_rank, capacity), tau = arrays["scalar"], self.turn.shape, self.setting.sketch_size
        _validate_scalar(scalar)
        width = self.rows.z.shape[1] if isinstance(self.rows, AdaptiveSparseRows) else 0
        rank, n, n_dense_rows = arrays["count"][[RANK, ROWS, OLD]].tolist()
        # with a shrink in every round the rank stays below tau; the other rules rebase C when they drop a direction
        every_round = self.setting.method == EVERY_ROUND
        checks.number_within(rank, "rank", 0, min(max_rank, tau - 1) if every_round and max_rank == tau else max_rank)
        checks.number_within(scalar[BUFFERED], "rows in the buffer", 0, 2 * tau)
        checks.number_within(n, "rows of C", rank, capacity if every_round else rank)
        checks.number_within(n_dense_rows, "rows of C that are not sparse", 0, min(rank, width))
        lam = checks.not_negative(arrays, "lam", (max_rank,))[:rank]
        if (lam[1:] > lam[:-1]).any():
            raise ValueError("array 'lam' must be in descending order")
        if not np.isfinite(scalar[SCALE]) or not (scalar[SCALE] if self.setting.dual else scalar[SCALE] > 0):
            raise ValueError(f"the scale has the wrong sign, or is zero: {scalar[SCALE]}")
        if self.sparse:
            StoredRows.validate_rows(arrays, n - n_dense_rows, len(self.base))
        return names


def start_sketched(
    setting: AdaptiveSetting, delta: float, *, d: int, slots: int, sparse: bool, zeros: Zeros = np.zeros
) -> SketchedState:
    """Return the initial state of an adaptive learner whose second-order matrix is sketched or full. `delta` is the
    multiple of the identity in that matrix.

    With zeros=outline it has the right shapes but takes no memory.

    d: maximum number of columns. slots: initial capacity for sparse rows, d for dense ones.
    """
    tau = setting.sketch_size
    if setting.method == EVERY_ROUND:
        max_rank, capacity = min(d, tau), 2 * tau
    elif setting.method == NEVER:
        max_rank, capacity = d, d
    else:
        max_rank, capacity = min(d, 2 * tau), min(d, 2 * tau)
    if sparse:
        width = min(tau, d)
        row_store: AdaptiveSparseRows | AdaptiveDenseRows = AdaptiveSparseRows(
            zeros(0),
            zeros(0, np.int32),
            zeros(capacity + 1, np.int64),
            z=zeros((slots, width)),
            b=zeros(width),
            frame=zeros((width, width)),
        )
    else:
        row_store = AdaptiveDenseRows(
            zeros((capacity, d)), zeros(d) if setting.dual and setting.phi == L1_PENALTY else None
        )
    common = common_fields(setting, slots, sparse, zeros)
    common["scalar"][DELTA], common["scalar"][SCALE] = delta, 1.0
    return SketchedState(
        **common,
        turn=zeros((max_rank, capacity)),
        lam=zeros(max_rank),
        gram=zeros((capacity, capacity)),
        steps=zeros(capacity),
        inner=zeros(capacity),
        rows=row_store,
    )


# -- H diagonal --------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class DiagonalState(LearnedState):
    """State of an adaptive learner with a diagonal second-order matrix, for example AdaGrad or Adam: the weights and
    the sums of squared gradients.
    """

    setting: AdaptiveSetting
    squares: Annotated[Floats, SLOTS]  # sum of squared gradients, or Adam's second moment, (d,)
    first: Annotated[Floats | None, SLOTS]  # Adam's first moment, (d,)
    last: Annotated[Floats, SLOTS]  # value of CLOCK up to which a coordinate is regularised, (d,)

    def begin_rounds(self) -> DiagonalRounds:
        return DiagonalRounds(self, self.setting)

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

    def fade(self, factor: float) -> None:
        self.squares *= factor

    def rescale(self, change: Rescaling) -> None:
        """Convert the weights and the sums of squared gradients to new feature scales, in place. The scores of rows
        stay the same, apart from columns whose scale has grown by more than 2.

        The sums are multiplied by the change of their column's mean square.

        That is exact if slopes are independent of the columns.
        """
        self.base[:] = change.weights(self.base)
        self.squares[change.columns] *= change.squares

    def accepts_initial_weights(self) -> bool:
        return not self.setting.dual and self.setting.phi == NO_PENALTY

    def coef(self) -> Floats:
        return self.copied().rounds.coef()


def start_diagonal(
    setting: AdaptiveSetting, delta: float, *, d: int, sparse: bool, zeros: Zeros = np.zeros
) -> DiagonalState:
    """Return the initial state of an adaptive learner with a diagonal second-order matrix. `delta` is the multiple of
    the identity in that matrix.

    With zeros=outline it has the right shapes but takes no memory.
    """
    common = common_fields(setting, d, sparse, zeros)
    common["scalar"][DELTA], common["scalar"][FADED] = delta, 1.0
    return DiagonalState(**common, squares=zeros(d), first=zeros(d) if setting.method == ADAM else None, last=zeros(d))
