"""Arrays of online models by name, in small classes whose fields are their one declaration.

Kernels read the same attributes. A file holds every array but scratch, under the name of its field.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.numbers import ROUND
from fastsketch.data.files import _checks as checks

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.int32]

NDARRAY: Any = np.ndarray  # whose dtype and shape a type checker is not to ask for

# Entries of `regret`: the comparator's loss; the model's own loss when the comparison began.
THEIRS, BEFORE = range(2)


# Marks of fields, as in ``work: Annotated[Floats, SCRATCH]``.
SCRATCH = "not needed by a resume"
GROWS = "as long as the rows seen ask for"
OF_POINTS = "one row or entry for each point of a grid"
OF_LOSSES = "sums of losses, which may reach infinity"
BOUND = "made of the arrays of this object, and made again for others"
SLOTS = "one entry for each slot of a column along the last axis, with room to grow"
SLOT_ROWS = "one row for each slot of a column, with room to grow"


class Csr(NamedTuple):
    """Sparse rows as the kernels take them."""

    data: Floats
    indices: Places
    indptr: Counts


RowBatch = Floats | Csr


def outline(shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Return an array of this shape and dtype that takes no memory, to compare others with, in place of np.zeros."""
    return np.broadcast_to(np.zeros((), dtype), shape)


# np.zeros, or `outline`: what the states are begun with
Zeros = Callable[..., NDArray[Any]]


class FieldMarks(NamedTuple):
    """Marks of one field of a class of arrays."""

    name: str
    slot_axis: int | None  # the axis with one entry for each slot of a column
    is_kept: bool  # in files
    grows: bool
    of_points: bool
    of_losses: bool
    is_bound: bool


def _read_fields(cls: Any) -> tuple[FieldMarks, ...]:
    """Return the fields of a class of arrays with their marks, from its annotations."""
    out: list[FieldMarks] = []
    for item in fields(cls):
        marks = getattr(item.type, "__metadata__", ())
        axis = -1 if SLOTS in marks else 0 if SLOT_ROWS in marks else None
        others = GROWS in marks, OF_POINTS in marks, OF_LOSSES in marks, BOUND in marks
        out.append(FieldMarks(item.name, axis, SCRATCH not in marks and BOUND not in marks, *others))
    return tuple(out)


fields_of: Callable[[Any], tuple[FieldMarks, ...]] = cache(_read_fields)


class Arrays:
    """Slotted dataclass of arrays, of further such classes, and of None in place of an array that is not needed."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def copied(self, n_slots: int) -> Self:
        """Return a copy with arrays of its own, of which the first n_slots slots are in use."""
        copies: dict[str, Any] = {}
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value = value.copied(n_slots)
            elif item.is_bound:
                value = None
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

    def saved(self, n_slots: int) -> dict[str, NDArray[Any]]:
        """Return the arrays that a resume needs, by name, without room beyond the first n_slots slots; views."""
        out: dict[str, NDArray[Any]] = {}
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                out.update(value.saved(n_slots))
            elif isinstance(value, NDARRAY) and item.is_kept:
                out[item.name] = _used(value, item.slot_axis, n_slots)
        return out

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put in the arrays that ``saved`` gave, once they have passed ``validate``."""
        for item in fields_of(type(self)):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.fill(arrays)
            elif item.is_bound:
                setattr(self, item.name, None)
            elif isinstance(value, np.ndarray) and item.is_kept:
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
            elif isinstance(value, np.ndarray) and item.is_kept:
                expected, given = cast(NDArray[Any], value), arrays.get(item.name)
                shape = given.shape if given is not None and given.ndim == 1 and item.grows else expected.shape
                if item.of_losses:
                    checks.sums(arrays, item.name, shape)
                else:
                    checks.finite(arrays, item.name, shape, expected.dtype)
                names.add(item.name)
        return names


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

    def room_for(self, n_rows: int, more: int) -> bool:
        """Make room for `more` nonzeros after the first n_rows rows; True if the arrays are others now."""
        used = int(self.kept_indptr[n_rows])
        if len(self.kept_data) >= used + more:
            return False
        more = max(more, used)  # seldom: it must not happen in every row of a stream of single ones
        self.kept_data = np.concatenate([self.kept_data[:used], np.zeros(more)])
        self.kept_indices = np.concatenate([self.kept_indices[:used], np.zeros(more, np.int32)])
        return True

    def n_values(self, n_rows: int) -> int:
        """Return the number of values in the first n_rows rows."""
        return int(self.kept_indptr[: n_rows + 1].max(initial=0))

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
    base: Annotated[Floats, SLOTS]
    regret: Annotated[Floats, OF_LOSSES]
    seen: Annotated[Counts, SCRATCH] = field(kw_only=True)  # slots that have occurred, or columns of dense rows, (1,)
    bound: Annotated[Any, BOUND] = field(default=None, kw_only=True)  # what the kernel has made of the arrays

    @property
    def n_slots(self) -> int:
        """Return the number of slots in the rows learned from; all columns for dense rows."""
        return int(self.seen[0])

    def has_slots(self, n_slots: int) -> bool:
        """Return whether there is room for this many slots."""
        return n_slots <= self.base.shape[-1]

    def make_slots(self, n_slots: int) -> None:
        """Make room for this many slots, so that kernels may meet them; not on a state that others still need."""
        if not self.has_slots(n_slots):
            # twice as many: the bits do not depend on it
            self.widen(self.n_slots, max(2 * self.base.shape[-1], n_slots))
            self.bound = None

    def copied(self, n_slots: int | None = None) -> Self:
        return cast(Self, Arrays.copied(self, self.n_slots if n_slots is None else n_slots))

    def saved(self, n_slots: int | None = None) -> dict[str, NDArray[Any]]:
        out = Arrays.saved(self, self.n_slots if n_slots is None else n_slots)
        # without room, which depends on how rows came
        return {name: a[: self.n_stored()] if name in ("kept_data", "kept_indices") else a for name, a in out.items()}

    def n_stored(self) -> int:
        """Return the number of values in the sparse rows that it holds."""
        return 0

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        Arrays.fill(self, arrays)
        self.seen[0] = self.base.shape[-1]

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError unless a model could have learned these arrays; `self` may be one of outlines."""
        checks.only(arrays, "comparator", *self.validate(arrays))

    def prepare(self, batch: RowBatch) -> None:
        """Settle what depends on the first rows, before they are learned from (nothing by default)."""

    @abstractmethod
    def learn(self, batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Learn from the rows in turn; a row without a finite score has not been learned from."""

    @classmethod
    def learn_together(
        cls, states: "Sequence[LearnedState]", batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        """Let states of this class learn from the same rows, each as it does alone; targets and scores (k, n).

        Where no factorisation was left, for numbers of such sizes, the last score of that state is NaN.
        """
        for state, y, out in zip(states, targets, scores, strict=True):
            try:
                state.learn(batch, y, sample_weight, out)
            except np.linalg.LinAlgError:
                out[-1] = np.nan

    def undoing(self, batch: RowBatch) -> Any:
        """Return what ``put_back`` needs to undo a batch of one row that is learned from next."""
        return self.copied()

    def put_back(self, kept: Any) -> None:
        """Restore the state before the row."""
        self.fill(kept.saved())

    @abstractmethod
    def is_atomic(self) -> bool:
        """Return whether one row is learned from in whole or not at all, so that no copy of the state is needed."""

    @abstractmethod
    def totals(self) -> tuple[int, float, int]:
        """Return (rows seen, cumulative loss, mistakes)."""

    def fade(self, factor: float) -> None:
        """Multiply the weight of earlier rows in H by `factor`."""
        raise NotImplementedError

    @staticmethod
    def rows_in(arrays: Mapping[str, NDArray[Any]]) -> int:
        """Return the number of rows seen by arrays that have passed ``validate_all``."""
        return int(arrays["count"][ROUND])

    @abstractmethod
    def coef(self) -> Floats:
        """Return w, (d,); (n_slots,) for sparse rows."""
