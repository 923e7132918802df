"""What online models have learned: arrays by name, in small classes whose fields are their one declaration.

Kernels read the same attributes. A file holds every array but scratch, under the name of its field.
"""

from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.int32]

# Entries of `regret`: the comparator's loss; the model's own loss when the comparison began.
THEIRS, BEFORE = range(2)


# Marks of fields, as in ``work: Annotated[Floats, SCRATCH]``.
SCRATCH = "not needed by a resume"
GROWS = "as long as the rows seen ask for"
OF_POINTS = "one row or entry for each point of a grid"
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

    def take(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Put in the arrays that ``saved`` gave; ValueError if one does not fit."""
        for item in fields(self):
            value: Any = getattr(self, item.name)
            if isinstance(value, Arrays):
                value.take(arrays)
            elif marked(item, DECIDED) and item.name not in arrays:
                continue  # files of schema 1 have it among their parameters alone
            elif isinstance(value, np.ndarray) and not marked(item, SCRATCH):
                given, expected = arrays[item.name], cast(NDArray[Any], value)
                shape = given.shape if marked(item, GROWS) and given.ndim == 1 else expected.shape
                if given.shape != shape or given.dtype != expected.dtype:
                    raise ValueError(
                        f"array {item.name!r} is {given.dtype} {given.shape}, expected {expected.dtype} {shape}"
                    )
                setattr(self, item.name, np.ascontiguousarray(given))

    def check(self) -> None:
        """Raise ValueError if a file holds counts or places that a kernel could not use."""


@dataclass(slots=True)
class KeptRows(Arrays):
    """Sparse rows held by a model: CSR arrays with room to grow."""

    kept_data: Annotated[Floats, GROWS]
    kept_indices: Annotated[Places, GROWS]
    kept_indptr: Counts

    def room_for(self, n_rows: int, more: int) -> None:
        """Make room for `more` nonzeros after the first n_rows rows."""
        used = int(self.kept_indptr[n_rows])
        if len(self.kept_data) < used + more:
            self.kept_data = np.concatenate([self.kept_data[:used], np.zeros(more)])
            self.kept_indices = np.concatenate([self.kept_indices[:used], np.zeros(more, np.int32)])

    def as_csr(self, n_rows: int, d: int) -> Any:
        """The first n_rows rows as a scipy.sparse.csr_array (n_rows, d)."""
        from scipy.sparse import csr_array

        end = int(self.kept_indptr[n_rows])
        return csr_array((self.kept_data[:end], self.kept_indices[:end], self.kept_indptr[: n_rows + 1]), (n_rows, d))

    def check_rows(self, n_rows: int, d: int) -> None:
        """Raise ValueError unless the first n_rows rows are CSR of d columns."""
        starts = self.kept_indptr[: n_rows + 1]
        end = int(starts[-1])
        used = self.kept_indices[:end]
        if (
            starts[0] != 0
            or (np.diff(starts) < 0).any()
            or not end <= len(self.kept_data) == len(self.kept_indices)
            or (used < 0).any()
            or (used >= d).any()
        ):
            raise ValueError("the rows it keeps are not in CSR form")


@dataclass(slots=True)
class Learned(Arrays):
    """The state of one model, and how it learns on."""

    sparse: bool  # the form of rows that it takes
    base: Floats
    regret: Floats

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

    def coef(self) -> Floats:
        """w, (d,)."""
        raise NotImplementedError
