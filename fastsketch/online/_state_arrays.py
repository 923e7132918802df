"""Dataclasses for the arrays of online models, and the base class LearnedState of a learner's state.

The fields are the only declaration of the arrays: kernels read them by name, and state files contain every array under
the name of its field.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.numbers import COUNTS, LOSS, MISTAKES, ROUND, SCALARS, SEEN, learn
from fastsketch.data.files import _checks as checks

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.int32]

NDARRAY: Any = np.ndarray  # for isinstance, without a type checker asking for dtype and shape

# Marks for fields of dataclasses, as in ``losses: Annotated[Floats, OF_LOSSES]``.
GROWS = "its length depends on the rows seen"
OF_LOSSES = "sums of losses, which may be infinite"
SLOTS = "one entry for each slot along the last axis, with spare capacity"
SLOT_ROWS = "one row for each slot, with spare capacity"


class Csr(NamedTuple):
    """Sparse rows in CSR format: (data, indices, indptr) of float64, int32 and int64."""

    data: Floats
    indices: Places
    indptr: Counts


RowBatch = Floats | Csr


class Rescaling(NamedTuple):
    """A change of feature scales: the scaled feature x_j becomes ratio_j x_j + shift_j for the given columns j.

    Learners convert their states by it.
    """

    columns: Counts  # columns, or slots for sparse rows
    intercept: int  # the column (or slot) of the intercept
    ratio: Floats
    shift: Floats
    squares: Floats  # factor by which the mean of x_j^2 changes
    growth: Floats  # factor by which the divisor of column j changes

    def n_slots(self, n_seen: int) -> int:
        """Return how many columns a learner's state needs after this change, given that it has `n_seen` now."""
        return max(n_seen, self.intercept + 1, int(self.columns.max(initial=0)) + 1)

    def apply(self, rows: Floats) -> None:
        """Convert scaled rows (..., columns) to the new scales, in place. Linear combinations of rows are converted
        correctly too.
        """
        ones = rows[..., self.intercept, None]
        rows[..., self.columns] = self.ratio * rows[..., self.columns] + self.shift * ones

    def apply_to_stored_rows(self, rows: "StoredRows", n_rows: int, n_slots: int) -> None:
        """Convert the first n_rows sparse rows that a learner stores to the new scales, in place.

        A row without an entry for a column is taken to have the new centre there.
        """
        ratio, shift = np.ones(n_slots), np.zeros(n_slots)
        ratio[self.columns], shift[self.columns] = self.ratio, self.shift
        used = slice(int(rows.kept_indptr[n_rows]))
        slots = rows.kept_indices[used]
        rows.kept_data[used] = rows.kept_data[used] * ratio[slots] + shift[slots]

    def weights(self, weights: Floats) -> Floats:
        """Return coefficients (d,) converted to the new scales, such that the scores of rows do not change.

        If the divisor of a column grew by a factor g > 2, its weight is also multiplied by (2 / g)^2, because it was
        not learned from such values, as in normalised online learning (Ross, Mineiro and Langford 2013).
        """
        converted, scaled_weights = (
            weights.copy(),
            weights[self.columns] * np.minimum(2.0 / self.growth, 1.0) ** 2 / self.ratio,
        )
        converted[self.columns] = scaled_weights
        converted[self.intercept] -= scaled_weights @ self.shift
        return converted


def outline(shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Return a read-only array of zeros that takes no memory.

    It replaces np.zeros where only shapes matter, as in the validation of a state file.
    """
    return np.broadcast_to(np.zeros((), dtype), shape)


# np.zeros, or `outline`
Zeros = Callable[..., NDArray[Any]]


class FieldMarks(NamedTuple):
    """Name and annotation of one field of a dataclass of arrays: how the array grows with the number of columns."""

    name: str
    slot_axis: int | None  # the axis with one entry for each slot
    grows: bool
    of_losses: bool


def _field_marks(cls: Any) -> tuple[FieldMarks, ...]:
    """Return the FieldMarks of every field of a dataclass of arrays."""
    marks_of_fields: list[FieldMarks] = []
    for item in fields(cls):
        marks = getattr(item.type, "__metadata__", ())
        axis = -1 if SLOTS in marks else 0 if SLOT_ROWS in marks else None
        marks_of_fields.append(FieldMarks(item.name, axis, GROWS in marks, OF_LOSSES in marks))
    return tuple(marks_of_fields)


fields_of: Callable[[Any], tuple[FieldMarks, ...]] = cache(_field_marks)


class Arrays:
    """Base class of dataclasses that hold NumPy arrays, None, or nested dataclasses of arrays. It copies, enlarges,
    saves and validates all fields.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def copied(self, n_slots: int = 0) -> Self:
        """Return a deep copy. Arrays with spare capacity keep it, but only their first `n_slots` entries are copied."""
        copies: dict[str, Any] = {}
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value = value.copied(n_slots)
            elif isinstance(value, NDARRAY):
                capacity = 0 if item.slot_axis is None else value.shape[item.slot_axis]
                value = (
                    copy_with_capacity(value, item.slot_axis, n_slots, capacity) if capacity > n_slots else value.copy()
                )
            copies[item.name] = value
        return type(self)(**copies)

    def widen(self, n_slots: int, capacity: int) -> None:
        """Replace the arrays that have one entry per column by longer ones with `capacity` entries, of which the first
        `n_slots` are copied.
        """
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.widen(n_slots, capacity)
            elif isinstance(value, NDARRAY) and item.slot_axis is not None:
                setattr(self, item.name, copy_with_capacity(value, item.slot_axis, n_slots, capacity))

    def saved(self, n_slots: int = 0) -> dict[str, NDArray[Any]]:
        """Return the arrays by name for a state file, as views. Those with one entry per column are cut to `n_slots`
        entries.
        """
        saved_arrays: dict[str, NDArray[Any]] = {}
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                saved_arrays.update(value.saved(n_slots))
            elif isinstance(value, NDARRAY):
                saved_arrays[item.name] = first_slots(value, item.slot_axis, n_slots)
        return saved_arrays

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace all arrays of this state by those of a state file that have passed ``validate``."""
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.fill(arrays)
            elif isinstance(value, NDARRAY):
                setattr(self, item.name, np.ascontiguousarray(arrays[item.name]))

    def validate(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check the arrays of a state file for this object, and return the set of their names.

        ValueError if an array has another shape or dtype than the field of its name, or is not finite. Only the shapes
        and dtypes of the fields are compared, so that the fields may be results of ``outline``.
        """
        names: set[str] = set()
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                names |= value.validate(arrays)
            elif isinstance(value, NDARRAY):
                expected, given = cast(NDArray[Any], value), arrays.get(item.name)
                shape = given.shape if given is not None and given.ndim == 1 and item.grows else expected.shape
                if item.of_losses:
                    checks.sums(arrays, item.name, shape)
                else:
                    checks.finite(arrays, item.name, shape, expected.dtype)
                names.add(item.name)
        return names

    def arrays(self) -> list[NDArray[Any]]:
        """Return the fields that are arrays, as a list. Nested dataclasses are not included."""
        values = [getattr(self, item.name) for item in fields_of(type(self))]
        return [value for value in values if isinstance(value, NDARRAY)]

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check the arrays of a state file for this object, and return the set of their names; ValueError for a fault.

        Subclasses also check ranges of values and relations between arrays.
        """
        return self.validate(arrays)


def first_slots(array: NDArray[Any], axis: int | None, n_slots: int) -> NDArray[Any]:
    """Return a view of the first `n_slots` entries of an array along an axis; with axis None the array itself."""
    return array if axis is None else array[..., :n_slots] if axis == -1 else array[:n_slots]


def copy_with_capacity(array: NDArray[Any], axis: int | None, n_slots: int, capacity: int) -> NDArray[Any]:
    """Return a longer copy of an array, with `capacity` entries along an axis: the first `n_slots` are copied, the
    others are zero.
    """
    shape = (*array.shape[:-1], capacity) if axis == -1 else (capacity, *array.shape[1:])
    copied = np.zeros(shape, array.dtype)
    first_slots(copied, axis, n_slots)[...] = first_slots(array, axis, n_slots)
    return copied


@dataclass(slots=True)
class StoredRows(Arrays):
    """Sparse rows that a learner stores for its sketch, as CSR arrays with spare capacity."""

    kept_data: Annotated[Floats, GROWS]
    kept_indices: Annotated[Places, GROWS]
    kept_indptr: Counts

    def has_capacity(self, n_rows: int, n_nonzeros: int) -> bool:
        """Return True if `n_nonzeros` more values fit into the arrays after the first `n_rows` rows, without allocating
        memory.
        """
        return len(self.kept_indices) >= int(self.kept_indptr[n_rows]) + n_nonzeros

    def enlarge_arrays(self, n_rows: int, n_nonzeros: int) -> None:
        """Replace the arrays by longer ones, in place, for `n_nonzeros` more values after the first `n_rows` rows.

        Kernel objects with pointers to the old arrays must be dropped before.
        """
        used = int(self.kept_indptr[n_rows])
        n_nonzeros = max(n_nonzeros, used)  # doubled, so that a stream of single rows does not copy at every row
        data = np.concatenate([self.kept_data[:used], np.zeros(n_nonzeros)])
        indices = np.concatenate([self.kept_indices[:used], np.zeros(n_nonzeros, np.int32)])
        self.kept_data, self.kept_indices = data, indices

    def as_csr(self, n_rows: int, d: int) -> Any:
        """Return the first n_rows rows as a scipy.sparse.csr_array (n_rows, d)."""
        from scipy.sparse import csr_array

        end = int(self.kept_indptr[n_rows])
        return csr_array((self.kept_data[:end], self.kept_indices[:end], self.kept_indptr[: n_rows + 1]), (n_rows, d))

    @staticmethod
    def validate_rows(arrays: Mapping[str, NDArray[Any]], n_rows: int, d: int) -> None:
        """Raise ValueError if the first n_rows stored rows are not valid CSR rows with d columns."""
        starts, indices = arrays["kept_indptr"][: n_rows + 1], arrays["kept_indices"]
        n_stored = int(starts[-1])
        if not n_stored <= len(indices) == len(arrays["kept_data"]):
            raise ValueError("the rows that it keeps end beyond their last value")
        checks.csr_rows(starts, indices, n_stored=n_stored, n_columns=d, name="the rows that it keeps")


@dataclass(slots=True)
class LearnedState(Arrays, ABC):
    """Base class of the state of one learner: the weight vector w, counts and losses, and the arrays that its updates
    need.

    A model has one of these for two classes or real targets, and one for each of more classes.
    """

    sparse: bool  # whether it learns sparse rows, whose columns are slots
    setting: Any  # parameters for the kernels
    base: Annotated[Floats, SLOTS]
    scalar: Annotated[Floats, OF_LOSSES]  # entries as in _kernels/online/numbers
    count: Counts
    rounds_now: Any = field(
        default=None, kw_only=True
    )  # kernel object with pointers to the arrays; None once one is replaced

    @property
    def n_slots(self) -> int:
        """Return the number of columns that the learner uses: for sparse rows those that have had an entry, for dense
        rows all.
        """
        return int(self.count[SEEN])

    def has_slots(self, n_slots: int) -> bool:
        """Return True if the arrays are long enough for `n_slots` columns."""
        return n_slots <= len(self.base)

    def make_slots(self, n_slots: int) -> None:
        """Ensure that the arrays are long enough for `n_slots` columns.
        If they are not, they are replaced by longer ones, in place.
        """
        if not self.has_slots(n_slots):
            # doubled; results do not depend on the capacity
            self.widen(self.n_slots, max(2 * len(self.base), n_slots))
            self.rounds_now = None

    def copied(self, n_slots: int = 0) -> Self:
        out = cast(Self, Arrays.copied(self, self.n_slots))
        out.rounds_now = None
        return out

    def saved(self, n_slots: int = 0) -> dict[str, NDArray[Any]]:
        out = Arrays.saved(self, self.n_slots)
        if "kept_indptr" in out:  # without spare capacity, which depends on batches
            stored = int(out["kept_indptr"][: self.n_stored_rows() + 1].max(initial=0))
            out.update({name: out[name][:stored] for name in ("kept_data", "kept_indices")})
        return out

    def n_stored_rows(self) -> int:
        """Return the number of sparse rows that the state stores."""
        raise NotImplementedError

    def reserve(self, n_rows: int, n_nonzeros: int) -> None:
        """Ensure that `n_nonzeros` values fit after the first `n_rows` stored sparse rows.
        If they do not, the arrays are replaced by longer ones, in place.
        """
        rows = cast(StoredRows, self.stored_rows)
        if not rows.has_capacity(n_rows, n_nonzeros):
            self.rounds_now = None  # first: an interrupt must not leave rounds with pointers to the old arrays
            rows.enlarge_arrays(n_rows, n_nonzeros)

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check the arrays of one learner that were read from a state file, and return the set of their names.
        ValueError if one is invalid.

        `self` may have outlines instead of arrays.
        """
        names = self.validate(arrays)
        scalar, count = arrays["scalar"].tolist(), arrays["count"].tolist()
        if min(count) < 0:
            raise ValueError("its counts must not be negative")
        checks.number_within(count[ROUND], "n_rows", 0, checks.MOST_COUNT)
        checks.number_within(count[MISTAKES], "mistakes", 0, count[ROUND])
        checks.number_within(count[SEEN], "slots that have occurred", len(self.base), len(self.base))
        checks.number_within(scalar[LOSS], "cumulative loss", 0.0, np.inf)
        return names

    def rescale(self, change: Rescaling) -> None:
        """Convert weights and second-order information to new feature scales, in place."""
        raise NotImplementedError

    def accepts_initial_weights(self) -> bool:
        """Return True if this learner can start from weights other than 0, which the caller writes to `base`."""
        return False

    @property
    def rounds(self) -> Any:
        """Return the compiled object that runs the updates; it has pointers to the arrays of this state.

        It is created at the first call, and again after an array was replaced.
        """
        if self.rounds_now is None:
            self.rounds_now = self.begin_rounds()
        return self.rounds_now

    @abstractmethod
    def begin_rounds(self) -> Any:
        """Return a new compiled object that runs the updates and has pointers to the arrays of this state."""

    @classmethod
    def learn(
        cls, states: Sequence[Any], batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        """Train k learners of this class, in place, each on the same n rows, and write the scores of rows to `scores`.
        A row's score is the one that it had before it was learned.

        `targets` (k, n) has the targets of each state. `scores` (k, n) receives the score of each row before it was
        learned. If a row makes the coefficients of a state overflow, its score is NaN or infinite, and that state has
        learned only the rows before it.
        """
        learn([state.rounds_for(batch) for state in states], *as_flat_arrays(batch), targets, sample_weight, scores)

    def rounds_for(self, batch: RowBatch) -> Any:
        """Return the compiled object that runs the updates, after preparing this state for the rows of the batch.

        Subclasses reserve memory, for example.
        """
        return self.rounds

    @property
    def stored_rows(self) -> StoredRows | None:
        """Return the sparse rows that the state stores; None for dense rows and diagonal methods."""
        rows = getattr(self, "rows", None)
        return rows if isinstance(rows, StoredRows) else None

    def totals(self) -> tuple[int, float, int]:
        """Return (number of rows seen, cumulative loss, number of mistakes)."""
        return int(self.count[ROUND]), float(self.scalar[LOSS]), int(self.count[MISTAKES])

    def fade(self, factor: float) -> None:
        """Multiply the weight of all earlier rows by a factor, in the second-order matrix of the updates, in place."""
        raise NotImplementedError

    @abstractmethod
    def coef(self) -> Floats:
        """Return the weight vector w for scaled rows. For sparse rows its entries are in the order in which columns
        first occurred.
        """


def common_fields(setting: Any, d: int, sparse: bool, zeros: Zeros) -> dict[str, Any]:
    """Return a dict with initial values of the fields that every learner's state has.

    `d` is the number of columns of dense rows, or for sparse rows the initial capacity in slots.
    """
    count = np.zeros(COUNTS, np.int64)
    count[SEEN] = 0 if sparse else d
    return {"setting": setting, "sparse": sparse, "base": zeros(d), "scalar": np.zeros(SCALARS), "count": count}


def row_slice(batch: RowBatch, first: int, stop: int) -> RowBatch:
    """Return rows [first, stop) of a dense or sparse batch. The values are views."""
    if not isinstance(batch, Csr):
        return batch[first:stop]
    begin, end = int(batch.indptr[first]), int(batch.indptr[stop])
    return Csr(batch.data[begin:end], batch.indices[begin:end], batch.indptr[first : stop + 1] - begin)


def as_flat_arrays(batch: RowBatch) -> tuple[Floats, Places | None, Counts | None]:
    """Return a batch as the three arrays (data, indices, indptr) that compiled code takes. For dense rows, data is flat
    and the others are None.
    """
    return batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
