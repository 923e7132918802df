"""Preparation of rows for online models: feature names become columns, sparse columns are numbered, values are scaled.

Slots are assigned in the order in which columns first appear, so that results depend neither on the width of rows, nor
on the capacity of arrays, nor on batches. All states of a model share one map of columns to slots. The intercept is an
additional column of ones, the last entry of every row, which is not scaled. The loops are in _kernels/online/inputs.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.sparse import MOST_COLUMNS
from fastsketch._core.validation import (
    Rows,
    all_finite,
    as_flag,
    as_integer,
    as_rows,
    check_finite,
    in_place,
    is_sparse,
)
from fastsketch._core.warning import warn_caller
from fastsketch._kernels.features.columns import INTERCEPT, ColumnMap, row_scores
from fastsketch._kernels.online import inputs as kernel
from fastsketch._kernels.online.inputs import LENGTHS, LONG, ROWS, TOTALS
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._naming import CsrArrays, HashedNames, NameTable, as_list, is_named
from fastsketch.data.sources._formats import refuse_lazy
from fastsketch.online._class_states import RowNotLearned
from fastsketch.online._state_arrays import SLOTS, Arrays, Counts, Csr, Floats, Rescaling, RowBatch, Zeros, row_slice

FLOAT64 = np.dtype(np.float64)


# -- names -------------------------------------------------------------------------------------------------------------
NUMBERED_COLUMNS_MESSAGE = (
    "this model learns from rows whose columns have numbers: dicts and lists of names do not go with them"
)
NAMED_ROWS_MESSAGE = (
    "this model learns from rows with names (dicts, or lists of pairs): matrices do not go with them"
    " (rows come in a list, and a text as the list of its words: [text.split(), ...])"
)
STRING_ROWS_MESSAGE = (
    "rows with words are dicts, as frame.to_dict('records') gives them;"
    " fastsketch.data.TableRows(file, label=...) reads such rows and their labels from a table"
)


class NamedRows:
    """Rows given with feature names (dicts, or lists of names or pairs), converted to CSR with finite float64
    values.
    """

    __slots__ = ("csr", "shape")

    dtype = np.dtype(np.float64)

    def __init__(self, parts: CsrArrays, width: int) -> None:
        indptr, indices, data = parts
        self.csr = Csr(data, indices, indptr)
        self.shape = (len(indptr) - 1, width)

    def __matmul__(self, coef: Floats) -> Floats:
        from scipy.sparse import csr_array

        matrix: Any = csr_array(self.csr, shape=self.shape)
        return matrix @ coef


def contains_strings(rows: Any) -> bool:
    """Return True if rows that could not be converted to numbers contain strings or other objects.
    Error messages then explain how to pass words.
    """
    if is_sparse(rows):
        return False
    try:
        return np.asarray(rows).dtype.kind in "OUS"
    except Exception:  # not an array: the first error explains it better
        return False


class Names:
    """The way in which a model's feature names become columns: by a growing vocabulary, or by a hash function.

    If columns are numbered, there are no names.
    """

    __slots__ = ("_before", "_hash_bits", "_naming", "warned")

    def __init__(self, hash_bits: int | None) -> None:
        self._hash_bits = hash_bits
        self._naming: NameTable | HashedNames | None = None  # None: numbered columns
        self._before = (0, 0)  # rows learned, and names known, before the last batch
        self.warned = False  # whether a feature with both words and numbers has been reported

    @property
    def width(self) -> int | None:
        """Return the number of columns of the hash function, or None for a growing vocabulary or numbered columns."""
        return None if self._naming is None else self._naming.width

    @property
    def is_open(self) -> bool:
        """Return True if new feature names get new columns, as in a vocabulary."""
        return isinstance(self._naming, NameTable)

    def is_named(self, n_rows: int) -> bool | None:
        """Return True if the model's rows have feature names, False if columns are numbered, None before any row."""
        if self._hash_bits is not None:
            return True
        return None if n_rows == 0 else self._naming is not None

    def is_numbered(self) -> bool:
        """Return True if the model's columns have no names."""
        return self._naming is None and self._hash_bits is None

    def reads(self, rows: Any, n_rows: int) -> bool:
        """Return True if these rows have feature names, so that this object must convert them. An empty list counts as
        named if earlier rows were.
        """
        if isinstance(rows, list | tuple) and not rows:
            return bool(self.is_named(n_rows))
        return is_named(rows)

    def number(self, n_rows: int) -> None:
        """Record that the model learns rows of numbered columns, without names.
        ValueError if it has learned rows with names, or is set to hash names.
        """
        if self._hash_bits is not None:
            raise ValueError(f"hash_bits={self._hash_bits} is for rows with names: dicts, or lists of pairs")
        if self.is_named(n_rows):
            raise ValueError(NAMED_ROWS_MESSAGE)
        self._naming = None

    def enter(self, rows: Any, n_rows: int) -> NamedRows:
        """Return rows with feature names as CSR, for learning; new names are added to the vocabulary."""
        if self.is_named(n_rows) is False:
            raise ValueError(NUMBERED_COLUMNS_MESSAGE)
        naming = self._naming
        if naming is None:
            naming = NameTable() if self._hash_bits is None else HashedNames(self._hash_bits)
        else:
            naming.cut(self.count(n_rows))
        self._naming, self._before = naming, (n_rows, len(naming))
        return self._as_rows(naming, rows, add=True)

    def find(self, rows: Any, n_rows: int) -> NamedRows:
        """Return rows with feature names as CSR, for prediction; names that the model does not know are left out."""
        if self._naming is None or not self.is_named(n_rows):
            raise ValueError(
                "the model has seen no rows: call update first" if n_rows == 0 else NUMBERED_COLUMNS_MESSAGE
            )
        return self._as_rows(self._naming, rows, add=False)

    def forget(self, n_rows: int) -> None:
        """Remove the names that the last batch has added to the vocabulary, because the batch was refused."""
        if self.is_named(n_rows) is None:
            self._naming = None
        elif self._naming is not None:
            self._naming.cut(self.count(n_rows))

    def _as_rows(self, naming: NameTable | HashedNames, rows: Any, *, add: bool) -> NamedRows:
        """Return rows with feature names as CSR, with names as columns.
        Warn once if a feature is a word in some rows and a number in others.
        """
        parts = naming.parts(as_list(rows), add=add)
        if naming.mixed is not None and not self.warned:
            self.warned = True
            row, name, is_word = naming.mixed
            kind, earlier_kind = ("a word", "a number") if is_word else ("a number", "a word")
            remedy = f"float(row[{name!r}])" if is_word else f"str(row[{name!r}])"
            consequence = "is learned as another feature" if add else "counts as a feature that was never seen"
            warn_caller(
                f"row {row}: the feature {name!r} is {kind}, and was learned as {earlier_kind}, so that it "
                f"{consequence} (a word makes the feature 'name=word', a number 'name'): give {remedy} if it is the "
                "same column"
            )
        width = naming.width
        return NamedRows(parts, len(naming) if width is None else width)

    # -- names that are known, files -------------------------------------------------------------------------------
    def count(self, n_rows: int) -> int:
        """Return the number of names in the vocabulary. Those of a batch that was refused do not count."""
        if self._naming is None:
            return 0
        rows, names = self._before
        return names if n_rows == rows else len(self._naming)

    def known(self, n_rows: int) -> list[str] | None:
        """Return the names in the vocabulary, in the order of their columns. Return None without a vocabulary."""
        return list(self._naming.columns)[: self.count(n_rows)] if isinstance(self._naming, NameTable) else None

    def copied(self, n_rows: int) -> Self:
        """Return an independent copy, including the vocabulary."""
        out = type(self)(self._hash_bits)
        known = self.known(n_rows)
        out._naming = self._naming
        if known is not None:
            out._naming = naming = NameTable()
            naming.add(known)
        out._before, out.warned = (n_rows, self.count(n_rows)), self.warned
        return out

    def saved(self, n_rows: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the vocabulary for a state file, as (dictionary for JSON, arrays by name)."""
        if self._naming is None or n_rows == 0:
            return {}, {}
        if isinstance(self._naming, NameTable):
            return {"named": True}, self._naming.arrays(self.count(n_rows))
        return {"named": True}, {}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], hash_bits: int | None, n_rows: int
    ) -> Self:
        """Return the vocabulary or other mapping of names that a state file contains, the result of ``saved``.

        ValueError if its parts are inconsistent.
        """
        out = cls(hash_bits)
        named = as_flag(state.get("named", False), "named")
        if named != ("names" in arrays or hash_bits is not None):
            raise ValueError(f"named={named} does not go with hash_bits={hash_bits} and its arrays")
        if named:
            out._naming = NameTable.of_arrays(arrays) if hash_bits is None else HashedNames(hash_bits)
            out._before = (n_rows, len(out._naming))
        return out

    def require_columns(self, columns: Counts) -> None:
        """Raise ValueError if a column number has no name in the vocabulary."""
        feature_columns = columns[columns != INTERCEPT]
        if isinstance(self._naming, NameTable) and feature_columns.size and feature_columns.max() >= len(self._naming):
            raise ValueError(f"column {feature_columns.max()} has no name: there are {len(self._naming)}")


# -- columns and their slots -------------------------------------------------------------------------------------------
# Maximum initial capacity of a state in slots.
MAX_INITIAL_SLOTS = 64


class ColumnSlots:
    """Numbering of the columns of sparse rows by first occurrence; the numbers are called slots.

    Arrays of learners have one entry for each slot, not for each column.
    """

    __slots__ = ("map", "width")

    def __init__(self, width: int | None, columns: Counts | None = None) -> None:
        self.width = width  # None: any width
        self.map = ColumnMap(columns)

    def copied(self, n_slots: int) -> Self:
        """Return an independent copy of the numbering that contains its first n_slots columns."""
        return type(self)(self.width, self.array(n_slots))

    def __len__(self) -> int:
        return len(self.map)

    @property
    def most(self) -> int:
        """Return the largest allowed number of columns of this model's rows."""
        return MOST_COLUMNS if self.width is None else self.width

    def initial_capacity(self) -> int:
        """Return the number of columns for which the arrays of a new learner are allocated."""
        return max(len(self), min(self.most, MAX_INITIAL_SLOTS))

    def enter(self, rows: Csr, n_slots: int) -> Csr:
        """Return sparse rows for learning, whose column indices are replaced by slots.
        A slot is the number of a column in the order of first occurrence; new columns get new slots.
        """
        self.map.forget(n_slots)
        return Csr(rows.data, self.map.add(rows.indices), rows.indptr)

    def slots_of_known_columns(self, rows: Csr, n_slots: int) -> Csr:
        """Return sparse rows for prediction, whose column indices are replaced by slots, or by n_slots if unknown.
        A slot is the number of a column in the order of first occurrence.
        """
        return rows._replace(indices=self.map.find(rows.indices, n_slots))

    def array(self, n_slots: int) -> Counts:
        """Return the first n_slots columns in the order in which they first occurred, as an array of column numbers."""
        return self.map.array()[:n_slots]

    def by_column(self, coef: Floats) -> Floats:
        """Return coefficients in the order of columns, without the intercept.
        The given ones are in the order in which columns first occurred.

        coef has shape (..., n_slots), the result (..., d).
        """
        columns = self.array(coef.shape[-1])
        is_feature = columns != INTERCEPT
        width = self.width if self.width is not None else int(columns[is_feature].max(initial=-1)) + 1
        by_column = np.zeros((*coef.shape[:-1], width))
        by_column[..., columns[is_feature]] = coef[..., is_feature]
        return by_column

    def intercept(self, coef: Floats) -> Floats:
        """Return the intercept among coefficients that are in the order in which columns first occurred; 0 if none.

        coef has shape (..., n_slots), the result (...).
        """
        return coef[..., self.array(coef.shape[-1]) == INTERCEPT].sum(axis=-1)

    # -- files -----------------------------------------------------------------------------------------------------
    @classmethod
    def checked(
        cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, is_open: bool, intercept: bool
    ) -> Self:
        """Return an empty numbering of columns for rows as wide as those of a state file, after validating its columns.

        ValueError if they are inconsistent.
        """
        bases = [array for name, array in arrays.items() if name.rpartition(".")[2] == "base"]
        slots = max((base.shape[-1] for base in bases if base.ndim), default=0)
        width = state["n_features"]
        if width is not None:
            as_integer(width, "n_features", 1, MOST_COLUMNS + 1)
        if (width is None) != (is_open and state["sparse"]):
            raise ValueError(f"its rows have {width} columns, which does not go with open_columns={is_open}")
        if not state["sparse"]:
            if "columns" in arrays:
                raise ValueError("array 'columns' does not belong to a model of dense rows")
            if slots != cast(int, width) + intercept:
                raise ValueError(f"array 'base' has {slots} columns, its rows {width}")
            return cls(width)
        size = arrays["columns"].size if "columns" in arrays else 0
        columns = checks.array_of(arrays, "columns", (size,), checks.INT64)
        if columns.size != slots:
            raise ValueError(f"array 'columns' has {columns.size} entries for {slots} slots")
        if (columns == INTERCEPT).any() and not intercept:
            raise ValueError("array 'columns' has an intercept, its parameters have none")
        own, most = columns[columns != INTERCEPT], MOST_COLUMNS if width is None else width
        if own.size and not 0 <= own.min() <= own.max() < most:
            raise ValueError(f"array 'columns' must lie in [0, {most}), got {own.min()} and {own.max()}")
        if len(np.unique(columns)) < columns.size:
            raise ValueError("array 'columns' must not hold a column twice")
        return cls(width)


def score_rows(rows: Csr, coef: Floats) -> Floats:
    """Return the scores of sparse rows: (n,) for one coefficient vector, (n, k) for k of them.

    Slots beyond the coefficients are ignored.
    """
    if coef.ndim == 1:
        return row_scores(*rows, coef)
    return np.stack([row_scores(*rows, w) for w in coef], axis=1)


# -- intercept and scaling ---------------------------------------------------------------------------------------------
# Value of the intercept column: the length of a scaled row.
INTERCEPT_VALUE = 1.0
# Entry LONG for sparse rows of a model from an older file, which has no mean length: each row is divided by its own.
NO_MEAN = -1
# Largest logarithm of a squared length.
MAX_LOG_SQUARE = 750.0


@dataclass(slots=True)
class Inputs(Arrays):
    """Preparation of a model's rows: it adds the intercept column and scales the features by their running moments.

    `moments` is None without scaling.
    """

    sparse: bool
    intercept: bool
    # (2, slots): sums of squares and counts for sparse rows, means and sums of squared distances for dense ones
    moments: Annotated[Floats | None, SLOTS]
    moment_totals: Floats | None  # entries ROWS, LENGTHS, LONG
    # fixed scales ("steady" in inputs.pyx): centres, divisors, and for sparse rows means and sums of squared distances
    steady: Annotated[Floats | None, SLOTS] = None

    def with_intercept(self, batch: RowBatch) -> RowBatch:
        """Return rows with the intercept column appended, if the model has an intercept.

        Sparse rows must have columns here, not slots.
        """
        if not self.intercept:
            return batch
        if isinstance(batch, Csr):
            return Csr(*kernel.append_column(*batch, INTERCEPT, INTERCEPT_VALUE))
        out = np.empty((len(batch), batch.shape[1] + 1))
        out[:, :-1], out[:, -1] = batch, INTERCEPT_VALUE
        return out

    def has_slots(self, n_slots: int) -> bool:
        """Return True if the arrays of moments are long enough for n_slots columns, or if features are not scaled."""
        return self.moments is None or n_slots <= self.moments.shape[-1]

    def make_slots(self, n_used: int, n_slots: int) -> None:
        """Ensure that the arrays of moments are long enough for n_slots columns.
        If not, they are replaced by longer ones, with the first n_used entries copied.
        """
        if self.moments is not None and not self.has_slots(n_slots):
            self.widen(n_used, max(2 * self.moments.shape[-1], n_slots))

    def prepared(self, batch: RowBatch) -> RowBatch | None:
        """Return rows scaled for learning, one after the other, and update the moments of features by each row.
        Return None if a fixed scale must change first.

        RowNotLearned is raised if squares of a row overflow or underflow. In both cases some rows have already been
        added to the moments.
        """
        if self.intercept and not isinstance(batch, Csr):
            batch = self.with_intercept(batch)
        if self.moments is None or self.moment_totals is None:
            return batch
        if isinstance(batch, Csr) and (not self.intercept or self.steady is not None):
            batch = batch._replace(data=batch.data.copy())
        elif not self.intercept and not isinstance(batch, Csr):
            batch = batch.copy()
        done, moved = self._scale(batch, self.moments, joins=True)
        return None if moved else require_all_scaled(batch, done)

    def scale_stretches(self, batch: RowBatch, rescale: Callable[[], None]) -> Generator[tuple[int, int, RowBatch]]:
        """Yield (first row, stop, scaled rows) for each run of rows of a batch that have the same fixed feature scales.

        The running moments are updated with each row. Between two runs rescale() is called, which must call ``move``
        and convert the learners to the new scales.
        """
        batch = batch._replace(data=batch.data.copy()) if isinstance(batch, Csr) else self.with_intercept(batch)
        n, first, has_moved = len(batch.indptr) - 1 if isinstance(batch, Csr) else len(batch), 0, False
        while first < n:
            remaining_rows = row_slice(batch, first, n)
            n_done, has_moved = self._scale(
                remaining_rows, cast(Floats, self.moments), joins=True, has_joined=has_moved
            )
            if not has_moved and n_done < n - first:
                raise RowNotLearned(first + n_done)
            if n_done:
                yield first, first + n_done, row_slice(batch, first, first + n_done)
            if has_moved:
                rescale()
            first += n_done

    def move(self, intercept: int) -> Rescaling:
        """Set the fixed feature scales to the present standard deviations, in place.
        Return the Rescaling that learners must apply to their states.
        """
        first, second = cast(Floats, self.moments)
        totals, steady = cast(Floats, self.moment_totals), cast(Floats, self.steady)
        columns = np.flatnonzero(steady[1] > 0)
        if self.sparse:
            means, spreads, rows = steady[2][columns], steady[3][columns], second[columns]
            old_length = length = self._geometric_mean_length()
        else:
            means, spreads, rows = first[columns], second[columns], totals[ROWS]
            old_length, length = float(np.sqrt(totals[LENGTHS])), float(np.sqrt(len(columns)))
            totals[LENGTHS] = len(columns)
        centres, divisors = steady[0][columns], steady[1][columns]
        variances = spreads / rows
        new_divisors = np.sqrt(variances)
        new_divisors[variances <= 0] = divisors[variances <= 0]
        old: Floats = divisors * old_length
        new: Floats = new_divisors * length
        old_squares = (variances + (means - centres) ** 2) / old**2
        steady[0][columns], steady[1][columns] = means, new_divisors
        return Rescaling(
            columns,
            intercept,
            ratio=old / new,
            shift=(centres - means) / new,
            squares=np.divide(variances / new**2, old_squares, out=np.ones(len(columns)), where=old_squares > 0),
            growth=new_divisors / divisors,
        )

    # -- scaling ---------------------------------------------------------------------------------------------------
    def scaled(self, batch: RowBatch, n_slots: int) -> RowBatch:
        """Return rows scaled for prediction, without updating the moments. Columns with slots from n_slots on have not
        been learned.
        """
        if self.moments is None or self.moment_totals is None:
            return batch
        moments = self.moments[:, :n_slots] if self.sparse else self.moments
        if not self.intercept:  # appending the intercept has made a copy already
            batch = batch._replace(data=batch.data.copy()) if isinstance(batch, Csr) else batch.copy()
        return require_all_scaled(batch, self._scale(batch, moments, joins=False)[0])

    def _scale(self, batch: RowBatch, moments: Floats, *, joins: bool, has_joined: bool = False) -> tuple[int, bool]:
        """Scale rows by the running moments of the features, in place.
        Return (number of rows scaled, whether a fixed scale must change).

        With `joins` each row updates the moments before it is scaled.
        """
        totals, steady = cast(Floats, self.moment_totals), self.steady
        if not isinstance(batch, Csr):
            means, spreads = moments
            return kernel.scale_dense(batch, moments.shape[1], means, spreads, totals, joins, steady, has_joined)
        squares, counts = moments
        tail = int(self.intercept)
        return kernel.scale_sparse(*batch, tail, squares, counts, totals, joins, steady, has_joined)

    def changed_entries(self, batch: RowBatch) -> list[tuple[NDArray[Any], Any]]:
        """Return pairs (array, index) of all entries that change when the moments are updated by these rows.

        The caller can copy the entries before.
        """
        at = (slice(None), batch.indices) if isinstance(batch, Csr) else ...
        return [(array, ... if array is self.moment_totals else at) for array in self.arrays()]

    def saved(self, n_slots: int = 0) -> dict[str, NDArray[Any]]:
        """Return the arrays for a state file by name.

        A mark NO_MEAN, which is only for memory, becomes 0.
        """
        out = super(Inputs, self).saved(n_slots)
        if self.moment_totals is not None and self.moment_totals[LONG] == NO_MEAN:
            out["moment_totals"] = np.maximum(self.moment_totals, 0.0)
        return out

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the arrays by those of a state file, which have passed ``validate``."""
        super(Inputs, self).fill(arrays)
        totals, moments = self.moment_totals, self.moments
        if self.steady is not None or moments is None or totals is None:
            return
        if self.sparse and totals[LONG] == 0 and moments[1].any():
            self.moment_totals = totals.copy()
            self.moment_totals[LONG] = NO_MEAN

    # -- coefficients of the unscaled features ---------------------------------------------------------------------
    def to_feature_coefficients(self, coef: Floats) -> tuple[Floats, Floats]:
        """Return (coefficients, intercepts) for unscaled features, given the coefficients of scaled rows."""
        converted = coef if self.sparse or not self.intercept else coef[..., :-1]
        intercepts = np.zeros(coef.shape[:-1]) if self.sparse or not self.intercept else coef[..., -1] * INTERCEPT_VALUE
        if self.moments is None or self.moment_totals is None:
            return converted, intercepts
        first, second = self.moments[:, : converted.shape[-1]]
        rows = max(float(self.moment_totals[ROWS]), 1.0)
        if self.steady is not None:
            return self._to_feature_coefficients_of_fixed_scales(converted, intercepts, rows)
        if self.sparse:
            return converted / kernel.sizes(first, second, rows), intercepts
        length = np.sqrt(self.moment_totals[LENGTHS] / max(float(self.moment_totals[LONG]), 1.0)) or 1.0
        converted = np.where(second > 0, converted / np.where(second > 0, np.sqrt(second / rows) * length, 1.0), 0.0)
        return converted, intercepts - converted @ first

    def _geometric_mean_length(self) -> float:
        """Return the geometric mean of the Euclidean norms of all sparse rows so far, by which rows are divided."""
        totals = cast(Floats, self.moment_totals)
        return float(np.exp(0.5 * totals[LENGTHS] / max(totals[LONG], 1.0)))

    def _to_feature_coefficients_of_fixed_scales(
        self, coef: Floats, added: Floats, rows: float
    ) -> tuple[Floats, Floats]:
        first, second = cast(Floats, self.moments)[:, : coef.shape[-1]]
        centres, divisors = cast(Floats, self.steady)[:2, : coef.shape[-1]]
        totals = cast(Floats, self.moment_totals)
        length = float(np.sqrt(totals[LENGTHS])) or 1.0
        has_fixed_scale: NDArray[np.bool_] = np.ones(len(first), np.bool_)
        if self.sparse:
            has_fixed_scale = (divisors > 0) | (second == rows)
            divisors, length = (
                np.where(has_fixed_scale, divisors, kernel.sizes(first, second, rows)),
                self._geometric_mean_length(),
            )
        converted = np.where(divisors > 0, coef / np.where(divisors > 0, divisors, 1.0), 0.0)
        converted = np.where(has_fixed_scale, converted / length, converted)
        return converted, added - converted[..., has_fixed_scale] @ centres[has_fixed_scale]

    # -- files -----------------------------------------------------------------------------------------------------
    def validate_moments(self, arrays: Mapping[str, NDArray[Any]], rows: int) -> None:
        """Raise ValueError if the moments in a state file are impossible for the given number of rows."""
        if self.moments is None:
            return
        moments = arrays["moments"]
        totals = checks.finite(arrays, "moment_totals", (TOTALS,))
        checks.number_within(totals[ROWS], "rows of the moments", rows, rows)
        checks.number_within(totals[LONG], "rows that have a length", 0, rows)
        if not (abs(totals[LENGTHS]) <= MAX_LOG_SQUARE * totals[LONG] if self.sparse else totals[LENGTHS] >= 0):
            raise ValueError(f"array 'moment_totals' must hold lengths of rows, got {totals[LENGTHS]}")
        if (moments[1] < 0).any() or (self.sparse and ((moments[0] < 0) | (moments[1] > rows)).any()):
            raise ValueError("array 'moments' must hold sums of squares and counts of rows")
        if self.steady is not None and (arrays["steady"][1::2] < 0).any():
            raise ValueError("array 'steady' must hold divisors and sums of squares that are not negative")


def start_inputs(
    n_slots: int, *, sparse: bool, intercept: bool, scaled: bool, steady: bool = False, zeros: Zeros = np.zeros
) -> Inputs:
    """Return an ``Inputs`` object for a new model, whose moments have no rows yet.

    `n_slots` is the initial capacity in slots, or the number of columns of dense rows.
    """
    moments = zeros((2, n_slots)) if scaled else None
    out = Inputs(sparse, intercept, moments, np.zeros(TOTALS) if scaled else None)
    if steady:
        out.steady = zeros((4 if sparse else 2, n_slots))
    return out


def require_all_scaled(batch: RowBatch, done: int) -> RowBatch:
    """Return the batch unchanged if all rows were scaled.
    RowNotLearned if scaling stopped at a row whose squares overflow or underflow.
    """
    if done < (len(batch.indptr) - 1 if isinstance(batch, Csr) else len(batch)):
        raise RowNotLearned(done)
    return batch


def numeric_rows(rows: Any, width: int | None, takes_sparse: Callable[[], bool]) -> Any:
    """Validate rows with numbered columns, and return them as finite float64, a 2-d array or CSR.

    width: number of columns of earlier rows, or None.

    Raises ValueError if the width differs, or values are not finite.
    """
    is_plain = type(rows) is np.ndarray and rows.dtype == FLOAT64 and rows.ndim in (1, 2)
    if is_plain and rows.shape[-1] == width and all_finite(rows):  # otherwise as_matrix explains what is wrong
        return rows if rows.ndim == 2 else rows[np.newaxis]
    x = as_matrix(rows)
    if width is not None and x.shape[1] != width:
        is_wider = x.shape[1] > width and takes_sparse()
        remedy = ": open_columns=True takes rows of any width" if is_wider else ""
        raise ValueError(f"rows must have {width} columns as the rows before, got {x.shape[1]}{remedy}")
    if x.dtype is not FLOAT64 and x.dtype != FLOAT64:  # a pickled array has another dtype object
        x = x.astype(FLOAT64)
    check_finite(x)
    return x


def as_matrix(rows: Rows) -> Any:
    """Convert rows with numbered columns to a 2-d array or CSR. Errors about words explain how to pass words.

    For rows that contain words, the error message explains how to pass words.
    """
    try:
        return as_rows(rows)
    except (TypeError, ValueError) as error:
        refuse_lazy(rows)
        if not contains_strings(rows):
            raise
        raise type(error)(f"{error}; {STRING_ROWS_MESSAGE}") from None


def to_csr(rows: Any) -> Csr:
    if isinstance(rows, NamedRows):
        return rows.csr
    if not is_sparse(rows):
        from scipy.sparse import csr_array

        rows = csr_array(rows)
    return Csr(
        in_place(rows.data, np.float64),
        in_place(rows.indices, np.int32),
        in_place(rows.indptr, np.int64),
    )


def to_dense(rows: Any) -> RowBatch:
    return in_place(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.float64)
