"""What online models have learned: arrays by name, in small classes whose fields are their one declaration.

Kernels read the same attributes. A file holds every array but scratch, under the name of its field.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.numbers import ROUND
from fastsketch.io import _checks as checks

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.int32]

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


def marked(item: Field[Any], mark: str) -> bool:
    """Whether the annotation of a field has this mark."""
    return mark in getattr(item.type, "__metadata__", ())


class Csr(NamedTuple):
    """Sparse rows as the kernels take them."""

    data: Floats
    indices: Places
    indptr: Counts


Batch = Floats | Csr


def outline(shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """In place of np.zeros: an array of this shape and dtype that takes no memory, to compare others with."""
    return np.broadcast_to(np.zeros((), dtype), shape)


# np.zeros, or `outline`: what the states are begun with
Zeros = Callable[..., NDArray[Any]]


class Arrays:
    """A slotted dataclass of arrays, of further such classes, and of None in place of an array that is not needed."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def copied(self, n_slots: int) -> Self:
        """The same with arrays of its own, of which the first n_slots slots are in use."""
        copies: dict[str, Any] = {}
        for item in fields(self):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                copies[item.name] = value.copied(n_slots)
            elif (room := _slots_of(item, value)) > n_slots:
                copies[item.name] = _of_slots(item, value, n_slots, room)
            elif marked(item, BOUND):
                copies[item.name] = None
            else:
                copies[item.name] = value.copy() if isinstance(value, np.ndarray) else value
        return type(self)(**copies)

    def widen(self, n_slots: int, room: int) -> None:
        """Make room for `room` slots, of which the first n_slots are in use."""
        for item in fields(self):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.widen(n_slots, room)
            elif isinstance(value, np.ndarray) and (marked(item, SLOTS) or marked(item, SLOT_ROWS)):
                setattr(self, item.name, _of_slots(item, value, n_slots, room))

    def saved(self, n_slots: int) -> dict[str, NDArray[Any]]:
        """The arrays that a resume needs, by name, without room beyond the first n_slots slots; views."""
        out: dict[str, NDArray[Any]] = {}
        for item in fields(self):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                out.update(value.saved(n_slots))
            elif isinstance(value, np.ndarray) and not marked(item, SCRATCH):
                out[item.name] = _used(item, value, n_slots)
        return out

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put in the arrays that ``saved`` gave, once they have passed ``validate``."""
        for item in fields(self):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.take(arrays)
            elif marked(item, BOUND):
                setattr(self, item.name, None)
            elif isinstance(value, np.ndarray) and not marked(item, SCRATCH):
                setattr(self, item.name, np.ascontiguousarray(arrays[item.name]))

    def validate(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless each array has the shape and dtype of the one here and is finite; returns names.

        The arrays here may be outlines: nothing is taken from them but shape and dtype.
        """
        names: set[str] = set()
        for item in fields(self):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                names |= value.validate(arrays)
            elif isinstance(value, np.ndarray) and not marked(item, SCRATCH):
                expected, given = cast(NDArray[Any], value), arrays.get(item.name)
                grown = given is not None and given.ndim == 1 and marked(item, GROWS)
                shape = cast(NDArray[Any], given).shape if grown else expected.shape
                if marked(item, OF_LOSSES):
                    checks.sums(arrays, item.name, shape)
                else:
                    checks.finite(arrays, item.name, shape, expected.dtype)
                names.add(item.name)
        return names


def _slots_of(item: Field[Any], array: Any) -> int:
    """How many slots a field has room for; 0 if it has none."""
    if array is None:
        return 0
    return int(array.shape[-1] if marked(item, SLOTS) else array.shape[0] if marked(item, SLOT_ROWS) else 0)


def _used(item: Field[Any], array: Any, n_slots: int) -> NDArray[Any]:
    """The part of the first n_slots slots."""
    return array[..., :n_slots] if marked(item, SLOTS) else array[:n_slots] if marked(item, SLOT_ROWS) else array


def _of_slots(item: Field[Any], array: Any, n_slots: int, room: int) -> NDArray[Any]:
    """The same with room for `room` slots; the n_slots in use alone are copied."""
    shape = (*array.shape[:-1], room) if marked(item, SLOTS) else (room, *array.shape[1:])
    out = np.zeros(shape, array.dtype)
    _used(item, out, n_slots)[...] = _used(item, array, n_slots)
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
        """Values of the first n_rows rows."""
        return int(self.kept_indptr[: n_rows + 1].max(initial=0))

    def as_csr(self, n_rows: int, d: int) -> Any:
        """The first n_rows rows as a scipy.sparse.csr_array (n_rows, d)."""
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
class Learned(Arrays):
    """The state of one model, and how it learns on."""

    sparse: bool  # the form of rows that it takes; sparse ones have slots in the place of columns
    base: Annotated[Floats, SLOTS]
    regret: Annotated[Floats, OF_LOSSES]
    seen: Annotated[Counts, SCRATCH] = field(kw_only=True)  # slots that have occurred, or columns of dense rows, (1,)
    bound: Annotated[Any, BOUND] = field(default=None, kw_only=True)  # what the kernel has made of the arrays

    @property
    def n_slots(self) -> int:
        """Slots that have occurred in the rows learned from; all columns of dense rows."""
        return int(self.seen[0])

    def has_slots(self, n_slots: int) -> bool:
        """Whether there is room for this many slots."""
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
        """Values of the sparse rows that it holds."""
        raise NotImplementedError

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        Arrays.take(self, arrays)
        self.seen[0] = self.base.shape[-1]

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError unless a model could have learned these arrays; `self` may be one of outlines."""
        checks.only(arrays, "comparator", *self.validate(arrays))

    def prepare(self, batch: Batch) -> None:
        """Settle what depends on the first rows, before they are learned from (nothing by default)."""

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Learn from the rows in turn; a row without a finite score has not been learned from."""
        raise NotImplementedError

    @classmethod
    def learn_together(
        cls, states: "Sequence[Learned]", batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats
    ) -> None:
        """Let states of this class learn from the same rows, each as it does alone; targets and scores (k, n).

        Where no factorisation was left, for numbers of such sizes, the last score of that state is NaN.
        """
        for state, y, out in zip(states, targets, scores, strict=True):
            try:
                state.learn(batch, y, sample_weight, out)
            except np.linalg.LinAlgError:
                out[-1] = np.nan

    def undoing(self, batch: Batch) -> Any:
        """What ``put_back`` needs to undo a batch of one row that is learned from next."""
        return self.copied()

    def put_back(self, kept: Any) -> None:
        """Be as before the row."""
        self.take(kept.saved())

    def is_atomic(self) -> bool:
        """Whether one row is learned from in whole or not at all, so that no copy of the state is needed."""
        raise NotImplementedError

    def totals(self) -> tuple[int, float, int]:
        """(rows seen, cumulative loss, mistakes)."""
        raise NotImplementedError

    def fade(self, factor: float) -> None:
        """What came before counts `factor` of what it did in H."""
        raise NotImplementedError

    @staticmethod
    def rows_in(arrays: Mapping[str, NDArray[Any]]) -> int:
        """Rows seen, of arrays that have passed ``validate_all``."""
        return int(arrays["count"][ROUND])

    def coef(self) -> Floats:
        """w, (d,); (n_slots,) of sparse rows."""
        raise NotImplementedError
