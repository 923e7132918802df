"""Convert rows of named features to CSR arrays."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch._kernels.features import names as kernel
from fastsketch.data.files import _checks as checks

# The arrays of CSR rows: indptr (n + 1,) int64, indices (nnz,) int32, ascending in a row, data (nnz,) float64.
CsrArrays = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]
# 2**30 is the largest power of two below 2**31 - 1.
MAX_HASH_BITS = 30
# A row of named features.
NamedRow = Mapping[str, float | str] | Sequence[str | tuple[str, float | str]]
NamedRows = NamedRow | Sequence[NamedRow]

# (row, name, whether the value is a string) of a feature whose earlier values were of the other type only.
Mixed = tuple[int, str, bool]


def is_named(rows: Any) -> bool:
    """Return True if rows are rows of named features: a dict, or a list of dicts, of names or of pairs.

    The first row that is not empty decides.
    """
    if type(rows) is dict:  # fast path for single rows
        return True
    if isinstance(rows, dict):
        return not is_sparse(rows)  # scipy.sparse.dok_matrix is a dict
    if isinstance(rows, list | tuple):
        for row in cast("Sequence[Any]", rows):
            if isinstance(row, Mapping):
                return True
            if not isinstance(row, list | tuple):
                return False
            if row:
                return _is_entry(cast("Sequence[Any]", row)[0])
        return False
    return (isinstance(rows, Mapping) and not is_sparse(rows)) or _holds_dicts(rows)


def _is_entry(item: Any) -> bool:
    """Return True if an item of a row is a feature name or a pair (name, value)."""
    if isinstance(item, list | tuple):
        pair = cast("Sequence[Any]", item)
        return len(pair) == 2 and isinstance(pair[0], str)
    return isinstance(item, str)


def _holds_dicts(rows: Any) -> TypeGuard[NDArray[Any]]:
    """Return True if rows are a vector of objects whose first entry is a dict."""
    if not isinstance(rows, np.ndarray):
        return False
    array = cast("NDArray[Any]", rows)
    return array.dtype == object and array.ndim == 1 and array.size > 0 and isinstance(array[0], Mapping)


def as_list(rows: Any) -> Sequence[Any]:
    """Return rows of named features as a sequence of rows; a single dict is one row."""
    if isinstance(rows, Mapping):  # so is scipy.sparse.dok_array
        row = cast("Mapping[str, Any]", rows)
        if not is_sparse(row):
            return (row,)
    if isinstance(rows, list | tuple):
        return cast("Sequence[Any]", rows)
    if _holds_dicts(rows):
        return rows.tolist()
    kind = type(cast("Any", rows)).__name__
    raise TypeError(f"rows must be a dict, or a list of dicts, of names or of pairs, got {kind}")


class NameTable:
    """A table of feature names and their columns, numbered in order of first appearance."""

    width: int | None = None  # number of columns; None: one for each name

    def __init__(self) -> None:
        self.columns: dict[str, int] = {}
        self._pairs: dict[str, dict[str, int]] = {}
        self.mixed: Mixed | None = None  # of the last batch

    def __len__(self) -> int:
        return len(self.columns)

    def parts(self, rows: Sequence[Any], *, add: bool = True) -> CsrArrays:
        """Encode rows of named features as the CSR arrays (indptr, indices, data).

        With `add` new names get columns, in place; if the batch is refused or interrupted, they are removed again.
        Otherwise new names are ignored. TypeError or ValueError names the row and feature.
        """
        how = kernel.ADD if add else kernel.IGNORE
        n_before, columns = len(self.columns), kernel.Columns(self.columns, self._pairs, how)
        try:
            parts = kernel.encode(rows, columns)
            self.mixed = columns.mixed
            return parts
        except BaseException:
            self.cut(n_before)
            raise

    def cut(self, size: int) -> None:
        """Remove all names except the first `size`, in order of appearance."""
        if len(self.columns) > size:
            while len(self.columns) > size:
                self.columns.popitem()
            self._rebuild_pairs()

    def add(self, names: Sequence[str]) -> None:
        """Add columns for new names. Raise ValueError, and add none, if a name already has a column."""
        n_before = len(self.columns)
        self.parts([names])
        if len(self.columns) < n_before + len(names):
            self.cut(n_before)
            raise ValueError("names must be different: one of them stands twice")
        self._rebuild_pairs()

    def _rebuild_pairs(self) -> None:
        """Rebuild the set of features that have string values, from the columns called "name=string"."""
        self._pairs.clear()
        self._pairs.update({name.partition("=")[0]: {} for name in self.columns if "=" in name})

    def arrays(self, size: int | None = None) -> dict[str, NDArray[Any]]:
        """Encode the first `size` names, or all of them, as two arrays for a state file."""
        return checks.text_arrays(islice(self.columns, size), "names", "name_ends")

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "NameTable":
        """Decode names from the two arrays of a state file. Raise ValueError if the arrays are invalid."""
        out = cls()
        out.add(checks.texts_of(arrays, "names", "name_ends"))
        return out


class HashedNames:
    """An encoder of named features by feature hashing, which stores no names.

    The hash is MurmurHash3 (x86, 32 bits, seed 0) of the UTF-8 text, read as a signed integer h. The column is ``|h|
    mod 2**hash_bits`` and the sign is that of h, as in scikit-learn's ``FeatureHasher(2**hash_bits)``.
    """

    mixed = None  # no names are stored

    def __init__(self, hash_bits: int) -> None:
        self.width: int | None = 1 << hash_bits
        self._columns = kernel.Columns({}, {}, kernel.HASH, hash_bits)

    def __len__(self) -> int:
        return 0

    def parts(self, rows: Sequence[Any], *, add: bool = True) -> CsrArrays:
        """Encode rows of named features as the CSR arrays (indptr, indices, data); `add` has no effect."""
        return kernel.encode(rows, self._columns)

    def cut(self, size: int) -> None:
        """Do nothing, because hashing stores no names to remove."""
