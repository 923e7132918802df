"""What online models have learned: arrays by name, in small classes whose fields are their one declaration.

Kernels read the same attributes. A file holds every array but scratch, under the name of its field.
"""

from collections.abc import Callable, Mapping
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
LATER = "what older files, which lack it, mean is what it begins with"
DECIDED = "decided with the first row: what the parameters gave then holds, also in a later version"


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

    def copied(self) -> Self:
        """The same with arrays of its own."""
        copies: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Arrays):
                copies[item.name] = value.copied()
            elif marked(item, BOUND):
                copies[item.name] = None
            else:
                copies[item.name] = value.copy() if isinstance(value, np.ndarray) else value
        return type(self)(**copies)

    def saved(self) -> dict[str, NDArray[Any]]:
        """The arrays that a resume needs, by name; views."""
        out: dict[str, NDArray[Any]] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Arrays):
                out.update(value.saved())
            elif isinstance(value, np.ndarray) and not marked(item, SCRATCH):
                out[item.name] = value
        return out

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put in the arrays that ``saved`` gave, once they have passed ``validate``."""
        for item in fields(self):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.take(arrays)
            elif marked(item, BOUND):
                setattr(self, item.name, None)
            elif isinstance(value, np.ndarray) and not marked(item, SCRATCH) and item.name in arrays:
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
            elif (marked(item, DECIDED) or marked(item, LATER)) and item.name not in arrays:
                continue  # DECIDED: files of schema 1 have it among their parameters alone
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

    sparse: bool  # the form of rows that it takes
    base: Floats
    regret: Annotated[Floats, OF_LOSSES]
    bound: Annotated[Any, BOUND] = field(default=None, kw_only=True)  # what the kernel has made of the arrays

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError unless a model could have learned these arrays; `self` may be one of outlines."""
        checks.only(arrays, "comparator", *self.validate(arrays))

    def prepare(self, batch: Batch) -> None:
        """Settle what depends on the first rows, before they are learned from (nothing by default)."""

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Learn from the rows in turn; a row without a finite score has not been learned from."""
        raise NotImplementedError

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
        """w, (d,)."""
        raise NotImplementedError
