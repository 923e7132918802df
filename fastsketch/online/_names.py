"""Rows with names: whether a model takes them, and what it keeps of names."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.columns import INTERCEPT
from fastsketch._validation import as_flag, is_sparse
from fastsketch.features._naming import HashedNames, KeptNames, Parts, as_list, is_named
from fastsketch.online._state import Counts, Csr, Floats

FLOAT64 = np.dtype(np.float64)

NUMBERED = "this model learns from rows whose columns have numbers: dicts and lists of names do not go with them"
NAMED = (
    "this model learns from rows with names (dicts, or lists of pairs): matrices do not go with them"
    " (rows come in a list, and a text as the list of its words: [text.split(), ...])"
)
WORDS = (
    "rows with words are dicts, as frame.to_dict('records') gives them;"
    " fastsketch.features.TableRows(file, label=...) reads such rows and their labels from a table"
)


class NamedRows:
    """Rows whose names have become columns: finite float64, in canonical CSR form."""

    __slots__ = ("csr", "shape")

    dtype = FLOAT64

    def __init__(self, parts: Parts, width: int) -> None:
        indptr, indices, data = parts
        self.csr = Csr(data, indices, indptr)
        self.shape = (len(indptr) - 1, width)

    def __matmul__(self, coef: Floats) -> Floats:
        from scipy.sparse import csr_array

        matrix: Any = csr_array(self.csr, shape=self.shape)
        return matrix @ coef


def holds_words(rows: Any) -> bool:
    """Whether rows that were refused hold words, or are the name of a file."""
    if is_sparse(rows):
        return False
    try:
        return np.asarray(rows).dtype.kind in "OUS"
    except Exception:  # rows of different lengths, or that are no array at all: what refused them stands
        return False


class Names:
    """The names of a model, by a vocabulary or a hash, or that its columns have numbers.

    n_rows, an argument of its methods, is how many rows the model has learned from: the names of a batch are kept if
    that has grown since it came.
    """

    __slots__ = ("_before", "_hash_bits", "_naming")

    def __init__(self, hash_bits: int | None) -> None:
        self._hash_bits = hash_bits
        self._naming: KeptNames | HashedNames | None = None  # of numbered columns
        self._before = (0, 0)  # rows learned from, and names, when the last batch came

    @property
    def width(self) -> int | None:
        """Columns that there may be: any number, with a vocabulary."""
        return None if self._naming is None else self._naming.width

    @property
    def is_open(self) -> bool:
        """Whether names get columns as they come."""
        return isinstance(self._naming, KeptNames)

    def is_named(self, n_rows: int) -> bool | None:
        """Whether rows have names; None before the first."""
        if self._hash_bits is not None:
            return True
        return None if n_rows == 0 else self._naming is not None

    def is_numbered(self) -> bool:
        """Whether columns have numbers, in a model that has learned from rows."""
        return self._naming is None and self._hash_bits is None

    def reads(self, rows: Any, n_rows: int) -> bool:
        """Whether rows are taken for such with names; an empty list is what the rows before have been."""
        if isinstance(rows, list | tuple) and not rows:
            return bool(self.is_named(n_rows))
        return is_named(rows)

    def number(self, n_rows: int) -> None:
        """Before a batch of rows with numbered columns; ValueError if the model learns from names."""
        if self._hash_bits is not None:
            raise ValueError(f"hash_bits={self._hash_bits} is for rows with names: dicts, or lists of pairs")
        if self.is_named(n_rows):
            raise ValueError(NAMED)
        self._naming = None

    def enter(self, rows: Any, n_rows: int) -> NamedRows:
        """A batch to learn from: names that come for the first time get columns."""
        if self.is_named(n_rows) is False:
            raise ValueError(NUMBERED)
        naming = self._naming
        if naming is None:
            naming = KeptNames() if self._hash_bits is None else HashedNames(self._hash_bits)
        else:
            naming.cut(self.count(n_rows))
        self._naming, self._before = naming, (n_rows, len(naming))
        return self._as_rows(naming.parts(as_list(rows), "add"))

    def find(self, rows: Any, n_rows: int) -> NamedRows:
        """Rows to be scored: names that are not known count nothing."""
        if self._naming is None or not self.is_named(n_rows):
            raise ValueError("the model has seen no rows: call update first" if n_rows == 0 else NUMBERED)
        return self._as_rows(self._naming.parts(as_list(rows), "ignore"))

    def _as_rows(self, parts: Parts) -> NamedRows:
        width = self.width
        return NamedRows(parts, len(self._naming or ()) if width is None else width)

    # -- what is kept ----------------------------------------------------------------------------------------------
    def count(self, n_rows: int) -> int:
        """Names that the model knows: those of a batch that was refused or interrupted are nobody's."""
        if self._naming is None:
            return 0
        rows, names = self._before
        return names if n_rows == rows else len(self._naming)

    def known(self, n_rows: int) -> list[str] | None:
        """The names by column; None where none are kept."""
        return list(self._naming.columns)[: self.count(n_rows)] if isinstance(self._naming, KeptNames) else None

    def copied(self, n_rows: int) -> Self:
        """The same with a vocabulary of its own."""
        out = type(self)(self._hash_bits)
        known = self.known(n_rows)
        out._naming = self._naming
        if known is not None:
            out._naming = naming = KeptNames()
            naming.add(known)
        out._before = (n_rows, self.count(n_rows))
        return out

    def saved(self, n_rows: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What json can write, and arrays."""
        if self._naming is None or n_rows == 0:
            return {}, {}
        if isinstance(self._naming, KeptNames):
            return {"named": True}, self._naming.arrays(self.count(n_rows))
        return {"named": True}, {}

    @classmethod
    def read_back(
        cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], hash_bits: int | None, n_rows: int
    ) -> Self:
        """The inverse; ValueError for what is none."""
        out = cls(hash_bits)
        named = as_flag(state.get("named", False), "named")
        if named != ("names" in arrays or hash_bits is not None):
            raise ValueError(f"named={named} does not go with hash_bits={hash_bits} and its arrays")
        if named:
            out._naming = KeptNames.of_arrays(arrays) if hash_bits is None else HashedNames(hash_bits)
            out._before = (n_rows, len(out._naming))
        return out

    def require_columns(self, columns: Counts) -> None:
        """ValueError unless every column has a name."""
        own = columns[columns != INTERCEPT]
        if isinstance(self._naming, KeptNames) and own.size and own.max() >= len(self._naming):
            raise ValueError(f"column {own.max()} has no name: there are {len(self._naming)}")
