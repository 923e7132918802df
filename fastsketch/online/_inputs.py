"""What becomes of rows before they are learned from: an intercept, and features scaled by their running moments.

The intercept is one more column, which is always 1 and is not scaled: the last entry of every row. The passes, and what
they do to sparse and to dense rows, are in _kernels/online/inputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online import inputs as kernel
from fastsketch._kernels.online.columns import INTERCEPT
from fastsketch._kernels.online.inputs import LENGTHS, LONG, ROWS, TOTALS
from fastsketch.io import _checks as checks
from fastsketch.online._state import SLOTS, Arrays, Batch, Csr, Floats, Zeros

# What the column of the intercept holds: as long as a row that has been scaled.
ONE = 1.0
NAMES = ("moments", "moment_totals")


class OutOfRange(ArithmeticError):
    """The squares of the features of a row left the range of numbers."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


@dataclass(slots=True)
class Inputs(Arrays):
    """An intercept or none, and moments or none."""

    sparse: bool
    intercept: bool
    # (2, slots): of sparse rows sums of squares and counts, of dense ones means and squared distances
    moments: Annotated[Floats | None, SLOTS]
    moment_totals: Floats | None  # entries ROWS, LENGTHS, LONG

    def with_intercept(self, batch: Batch) -> Batch:
        """The rows with one more entry, if there is an intercept; of sparse ones before columns become slots."""
        if not self.intercept:
            return batch
        if isinstance(batch, Csr):
            return Csr(*kernel.append_column(*batch, INTERCEPT, ONE))
        out = np.empty((len(batch), batch.shape[1] + 1))
        out[:, :-1], out[:, -1] = batch, ONE
        return out

    def has_slots(self, n_slots: int) -> bool:
        """Whether there is room for so many slots."""
        return self.moments is None or n_slots <= self.moments.shape[-1]

    def make_slots(self, n_used: int, n_slots: int) -> None:
        """Make room for so many slots, n_used of which are in use."""
        if self.moments is not None and not self.has_slots(n_slots):
            self.widen(n_used, max(2 * self.moments.shape[-1], n_slots))

    def prepared(self, batch: Batch) -> Batch:
        """Rows as they are learned from; dense ones get the intercept here."""
        return self.joined(batch if isinstance(batch, Csr) else self.with_intercept(batch))

    # -- scaling -----------------------------------------------------------------------------------------------------
    def joined(self, batch: Batch) -> Batch:
        """The rows scaled, each once it has joined the moments; OutOfRange, with some of them joined."""
        if self.moments is None or self.moment_totals is None:
            return batch
        return self._scaled(batch, self.moments, self.moment_totals, True)

    def scaled(self, batch: Batch, n_slots: int) -> Batch:
        """The rows scaled, for answers; sparse ones in slots, from n_slots on for columns that have none."""
        if self.moments is None or self.moment_totals is None:
            return batch
        moments = self.moments[:, :n_slots] if self.sparse else self.moments
        return self._scaled(batch, moments, self.moment_totals, False)

    def _scaled(self, batch: Batch, moments: Floats, totals: Floats, joins: bool) -> Batch:
        if isinstance(batch, Csr):
            out = batch if self.intercept else batch._replace(data=batch.data.copy())  # else the data is ours already
            tail = int(self.intercept)
            done = kernel.scale_sparse(*out, tail, moments[0], moments[1], totals, joins)
            if done < len(out.indptr) - 1:
                raise OutOfRange(done)
            return out
        dense = batch if self.intercept else batch.copy()
        done = kernel.scale_dense(dense, moments.shape[1], moments[0], moments[1], totals, joins)
        if done < len(dense):
            raise OutOfRange(done)
        return dense

    def undoing(self, batch: Batch) -> Callable[[], None]:
        """What takes back that rows have joined: to be called before they do."""
        moments, totals = self.moments, self.moment_totals
        if moments is None or totals is None:
            return _nothing
        slots: Any = batch.indices if isinstance(batch, Csr) else slice(None)
        some, before = moments[:, slots].copy(), totals.copy()

        def undo() -> None:
            moments[:, slots] = some
            totals[:] = before

        return undo

    # -- coefficients as people see them -------------------------------------------------------------------------------
    def for_features(self, coef: Floats) -> tuple[Floats, Floats]:
        """(coefficients (..., slots or d) of the features as they came, what is added to scores (...)).

        coef: of prepared rows. Sparse rows have their scores divided by the length that they have once scaled, the
        intercept apart; its slot is left as it is.
        """
        out = coef if self.sparse or not self.intercept else coef[..., :-1]
        added = np.zeros(coef.shape[:-1]) if self.sparse or not self.intercept else coef[..., -1] * ONE
        if self.moments is None or self.moment_totals is None:
            return out, added
        first, second = self.moments[:, : out.shape[-1]]
        rows = max(float(self.moment_totals[ROWS]), 1.0)
        if self.sparse:
            return out / kernel.sizes(first, second, rows), added
        length = np.sqrt(self.moment_totals[LENGTHS] / max(float(self.moment_totals[LONG]), 1.0)) or 1.0
        out = np.where(second > 0, out / np.where(second > 0, np.sqrt(second / rows) * length, 1.0), 0.0)
        return out, added - out @ first

    def slots_in(self, n_slots: int) -> int:
        """Entries of the moments of states with so many slots, or columns."""
        return n_slots - (self.intercept and not self.sparse)

    # -- files -------------------------------------------------------------------------------------------------------
    def validate_moments(self, arrays: Mapping[str, NDArray[Any]], rows: int, n_slots: int) -> None:
        """Raise ValueError unless rows could have made the moments of this file; n_slots: or columns of dense rows."""
        if self.moments is None:
            return
        moments = checks.finite(arrays, "moments", (2, n_slots))
        totals = checks.not_negative(arrays, "moment_totals", (TOTALS,))
        checks.number_within(totals[ROWS], "rows of the moments", rows, rows)
        checks.number_within(totals[LONG], "rows that have a length", 0, rows)
        if (moments[1] < 0).any() or (self.sparse and ((moments[0] < 0) | (moments[1] > rows)).any()):
            raise ValueError("array 'moments' must hold sums of squares and counts of rows")


def _nothing() -> None:
    pass


def start(n_slots: int, *, sparse: bool, intercept: bool, scaled: bool, zeros: Zeros = np.zeros) -> Inputs:
    """Before the first row; n_slots: that there is room for, or the columns of dense rows."""
    moments = zeros((2, n_slots)) if scaled else None
    return Inputs(sparse, intercept, moments, np.zeros(TOTALS) if scaled else None)
