"""Arrays of online models by name, in small classes whose fields are their one declaration.

Kernels read the same attributes. A file holds every array, under the name of its field.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.numbers import COUNTS, LOSS, MISTAKES, ROUND, SCALARS, SEEN
from fastsketch.data.files import _checks as checks

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.int32]

NDARRAY: Any = np.ndarray  # whose dtype and shape a type checker is not to ask for

# Marks of fields, as in ``losses: Annotated[Floats, OF_LOSSES]``.
GROWS = "as long as the rows seen ask for"
OF_LOSSES = "sums of losses, which may reach infinity"
SLOTS = "one entry for each slot of a column along the last axis, with room to grow"
SLOT_ROWS = "one row for each slot of a column, with room to grow"


class Csr(NamedTuple):
    """Sparse rows as the kernels take them."""

    data: Floats
    indices: Places
    indptr: Counts


RowBatch = Floats | Csr


class Rescaling(NamedTuple):
    """New scales of prepared rows: x_j becomes ratio_j x_j + shift_j, for the columns j that are named."""

    columns: Counts  # or slots
    intercept: int  # the column that is always 1
    ratio: Floats
    shift: Floats
    squares: Floats  # factor of the mean of x_j^2
    growth: Floats  # factor of the divisor of column j

    def n_slots(self, n_seen: int) -> int:
        """Return the number of slots of a state that has seen n_seen, and of these columns."""
        return max(n_seen, self.intercept + 1, int(self.columns.max(initial=0)) + 1)

    def apply(self, rows: Floats) -> None:
        """Write vectors (..., columns) that are combinations of rows in the new scales."""
        ones = rows[..., self.intercept, None]
        rows[..., self.columns] = self.ratio * rows[..., self.columns] + self.shift * ones

    def apply_to_kept(self, rows: "KeptRows", n_rows: int, n_slots: int) -> None:
        """Write the first n_rows of sparse rows in the new scales; a row that lacks a column has its new centre."""
        ratio, shift = np.ones(n_slots), np.zeros(n_slots)
        ratio[self.columns], shift[self.columns] = self.ratio, self.shift
        used = slice(int(rows.kept_indptr[n_rows]))
        slots = rows.kept_indices[used]
        rows.kept_data[used] = rows.kept_data[used] * ratio[slots] + shift[slots]

    def weights(self, w: Floats) -> Floats:
        """Return the weights that score rows in the new scales as w does in the old ones.

        A weight whose column grew more than twofold has met no such values: it is reduced by the square of the growth
        beyond, as in normalised online learning (Ross, Mineiro and Langford 2013).
        """
        out, own = w.copy(), w[self.columns] * np.minimum(2.0 / self.growth, 1.0) ** 2 / self.ratio
        out[self.columns] = own
        out[self.intercept] -= own @ self.shift
        return out


# Arrays that rows may change, each with the index of what they may change in it.
Changing = list[tuple[NDArray[Any], Any]]


def outline(shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Return an array of this shape and dtype that takes no memory, to compare others with, in place of np.zeros."""
    return np.broadcast_to(np.zeros((), dtype), shape)


# np.zeros, or `outline`: what the states are begun with
Zeros = Callable[..., NDArray[Any]]


class FieldMarks(NamedTuple):
    """Marks of one field of a class of arrays."""

    name: str
    slot_axis: int | None  # the axis with one entry for each slot of a column
    grows: bool
    of_losses: bool


def _fields_of(cls: Any) -> tuple[FieldMarks, ...]:
    """Return the fields of a class of arrays with their marks, from its annotations."""
    out: list[FieldMarks] = []
    for item in fields(cls):
        marks = getattr(item.type, "__metadata__", ())
        axis = -1 if SLOTS in marks else 0 if SLOT_ROWS in marks else None
        out.append(FieldMarks(item.name, axis, GROWS in marks, OF_LOSSES in marks))
    return tuple(out)


fields_of: Callable[[Any], tuple[FieldMarks, ...]] = cache(_fields_of)


class Arrays:
    """Slotted dataclass of arrays, of further such classes, and of None in place of an array that is not needed."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def copied(self, n_slots: int = 0) -> Self:
        """Return a copy with arrays of its own, of which the first n_slots slots are in use."""
        copies: dict[str, Any] = {}
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value = value.copied(n_slots)
            elif isinstance(value, NDARRAY):
                room = 0 if item.slot_axis is None else value.shape[item.slot_axis]
                value = _with_room(value, item.slot_axis, n_slots, room) if room > n_slots else value.copy()
            copies[item.name] = value
        return type(self)(**copies)

    def widen(self, n_slots: int, room: int) -> None:
        """Make room for `room` slots, of which the first n_slots are in use."""
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.widen(n_slots, room)
            elif isinstance(value, NDARRAY) and item.slot_axis is not None:
                setattr(self, item.name, _with_room(value, item.slot_axis, n_slots, room))

    def saved(self, n_slots: int = 0) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, without room beyond the first n_slots slots; views."""
        out: dict[str, NDArray[Any]] = {}
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                out.update(value.saved(n_slots))
            elif isinstance(value, NDARRAY):
                out[item.name] = _used(value, item.slot_axis, n_slots)
        return out

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put in the arrays that ``saved`` gave, once they have passed ``validate``."""
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.fill(arrays)
            elif isinstance(value, NDARRAY):
                setattr(self, item.name, np.ascontiguousarray(arrays[item.name]))

    def validate(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless each array has the shape and dtype of the one here and is finite; return names.

        The arrays here may be outlines: nothing is taken from them but shape and dtype.
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

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rows could have made these arrays; return names."""
        return self.validate(arrays)


def _used(array: NDArray[Any], axis: int | None, n_slots: int) -> NDArray[Any]:
    """Return the part of the first n_slots slots."""
    return array if axis is None else array[..., :n_slots] if axis == -1 else array[:n_slots]


def _with_room(array: NDArray[Any], axis: int | None, n_slots: int, room: int) -> NDArray[Any]:
    """Return a copy with room for `room` slots; the n_slots in use alone are copied."""
    shape = (*array.shape[:-1], room) if axis == -1 else (room, *array.shape[1:])
    out = np.zeros(shape, array.dtype)
    _used(out, axis, n_slots)[...] = _used(array, axis, n_slots)
    return out


@dataclass(slots=True)
class KeptRows(Arrays):
    """Sparse rows held by a model: CSR arrays with room to grow."""

    kept_data: Annotated[Floats, GROWS]
    kept_indices: Annotated[Places, GROWS]
    kept_indptr: Counts

    def has_room(self, n_rows: int, more: int) -> bool:
        """Return whether there is room for `more` nonzeros after the first n_rows rows."""
        return len(self.kept_indices) >= int(self.kept_indptr[n_rows]) + more

    def make_room(self, n_rows: int, more: int) -> None:
        """Make room for them in new arrays: no rounds may go on with those that there are."""
        used = int(self.kept_indptr[n_rows])
        more = max(more, used)  # seldom: it must not happen in every row of a stream of single ones
        data = np.concatenate([self.kept_data[:used], np.zeros(more)])
        indices = np.concatenate([self.kept_indices[:used], np.zeros(more, np.int32)])
        self.kept_data, self.kept_indices = data, indices

    def as_csr(self, n_rows: int, d: int) -> Any:
        """Return the first n_rows rows as a scipy.sparse.csr_array (n_rows, d)."""
        from scipy.sparse import csr_array

        end = int(self.kept_indptr[n_rows])
        return csr_array((self.kept_data[:end], self.kept_indices[:end], self.kept_indptr[: n_rows + 1]), (n_rows, d))

    @staticmethod
    def validate_rows(arrays: Mapping[str, NDArray[Any]], n_rows: int, d: int) -> None:
        """Raise ValueError unless the first n_rows rows are CSR of d columns; what lies beyond them is room."""
        starts, indices = arrays["kept_indptr"][: n_rows + 1], arrays["kept_indices"]
        stored = int(starts[-1])
        if not stored <= len(indices) == len(arrays["kept_data"]):
            raise ValueError("the rows that it keeps end beyond their last value")
        checks.csr_rows(starts, indices, n_stored=stored, n_columns=d, what="the rows that it keeps")


@dataclass(slots=True)
class LearnedState(Arrays, ABC):
    """State of one learner, and its learning."""

    sparse: bool  # the form of rows that it takes; sparse ones have slots in the place of columns
    setting: Any  # parameters as the kernels take them
    base: Annotated[Floats, SLOTS]
    scalar: Annotated[Floats, OF_LOSSES]  # entries of _kernels/online/numbers, as those of count
    count: Counts
    rounds_now: Any = field(default=None, kw_only=True)  # what the kernel has made of the arrays, until one is replaced

    @property
    def n_slots(self) -> int:
        """Return the number of slots in the rows learned from; all columns for dense rows."""
        return int(self.count[SEEN])

    def has_slots(self, n_slots: int) -> bool:
        """Return whether there is room for this many slots."""
        return n_slots <= len(self.base)

    def make_slots(self, n_slots: int) -> None:
        """Make room for this many slots, so that kernels may meet them; not on a state that others still need."""
        if not self.has_slots(n_slots):
            # twice as many: the bits do not depend on it
            self.widen(self.n_slots, max(2 * len(self.base), n_slots))
            self.rounds_now = None

    def copied(self, n_slots: int = 0) -> Self:
        out = cast(Self, Arrays.copied(self, self.n_slots))
        out.rounds_now = None
        return out

    def saved(self, n_slots: int = 0) -> dict[str, NDArray[Any]]:
        out = Arrays.saved(self, self.n_slots)
        if "kept_indptr" in out:  # without room, which depends on how rows came
            stored = int(out["kept_indptr"][: self.n_kept() + 1].max(initial=0))
            out.update({name: out[name][:stored] for name in ("kept_data", "kept_indices")})
        return out

    def n_kept(self) -> int:
        """Return the number of sparse rows that it holds."""
        raise NotImplementedError

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless a model could have learned these arrays; return names. `self` may be of outlines."""
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
        """Express what has been learned in new scales of the rows."""
        raise NotImplementedError

    def may_begin_anywhere(self) -> bool:
        """Return whether w may begin elsewhere than at 0, and `base` is w at the beginning."""
        return False

    @property
    def rounds(self) -> Any:
        """Return what the kernel makes of the arrays."""
        if self.rounds_now is None:
            self.rounds_now = self.begin_rounds()
        return self.rounds_now

    @abstractmethod
    def begin_rounds(self) -> Any:
        """Make what the kernel makes of the arrays."""

    @classmethod
    @abstractmethod
    def learn(
        cls, states: Sequence[Any], batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        """Let states of this class learn from the same rows, each as it does alone; targets and scores (k, n).

        A row that is refused has no finite score: that state has then learned from the rows before it.
        """

    @abstractmethod
    def changing(self, batch: RowBatch, n: int, *, alone: bool) -> Changing | None:
        """Return what learning from these n rows may change, but for room; None: nearly all.

        alone: no other state learns from them; if it learns from one row in whole or not at all, nothing is returned.
        """

    def of_slots(self, batch: RowBatch, *arrays: NDArray[Any] | None) -> Changing:
        """Return the parts of arrays, one entry for each slot, that belong to the columns of these rows."""
        at = batch.indices if isinstance(batch, Csr) else ...
        return [(array, at) for array in arrays if array is not None]

    def totals(self) -> tuple[int, float, int]:
        """Return (rows seen, cumulative loss, mistakes)."""
        return int(self.count[ROUND]), float(self.scalar[LOSS]), int(self.count[MISTAKES])

    def fade(self, factor: float) -> None:
        """Multiply the weight of earlier rows in H by `factor`."""
        raise NotImplementedError

    @abstractmethod
    def coef(self) -> Floats:
        """Return w, (d,); (n_slots,) for sparse rows."""


def common_fields(setting: Any, d: int, sparse: bool, zeros: Zeros) -> dict[str, Any]:
    """Return the fields that every state has, before the first row; d: columns of dense rows, else slots."""
    count = np.zeros(COUNTS, np.int64)
    count[SEEN] = 0 if sparse else d
    return {"setting": setting, "sparse": sparse, "base": zeros(d), "scalar": np.zeros(SCALARS), "count": count}


def flat(batch: RowBatch) -> tuple[Floats, Places | None, Counts | None]:
    """Return rows as kernels take them: CSR arrays, or the values of dense rows and None twice."""
    return batch if isinstance(batch, Csr) else (batch.reshape(-1), None, None)
