"""Sparse matrices at the public door: arrays that compiled code may read without a look at bounds.

scipy takes the arrays of a container at their word, as our kernels do: an index outside the matrix is then read and
written outside of memory, and the flags of order that a container carries may be of other arrays. So all arrays are
looked at here, once, before scipy or a kernel touches them; flags are never asked. What another thread changes in them
during the call is not seen.
"""

from copy import copy
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.linalg import csr as kernel

Array = NDArray[Any]

INT32, INT64, FLOAT16 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float16)
# The code of a dtype, which long double has on every machine; its width differs.
LONG_DOUBLE = np.dtype(np.longdouble).char

# The kernels hold places of columns as int32.
MOST_COLUMNS = 2**31 - 1
# What scipy or NumPy may raise over a container whose parts have been replaced.
_BROKEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Fault(ValueError):
    """A fault of a container, as its message says it."""


def check_width(n_columns: int, name: str) -> None:
    """Raise ValueError for rows with more columns than the kernels number, before any of them is looked at."""
    if n_columns > MOST_COLUMNS:
        raise ValueError(f"{name} must have fewer than 2**31 columns, got {n_columns}")


def as_csr(matrix: Any, name: str, *, sum_duplicates: bool = True, numbered: bool = False) -> Any:
    """Return a scipy.sparse container as CSR, itself where it can be: consistent, rows in order and without duplicates.

    Duplicates are added up, in int64 if sums of small integers need it, or refused. data has a dtype of this machine
    that scipy computes with, and no entry after the last row. `numbered`: in the place of each value stands where the
    matrix, which is CSR, CSC or COO, has it in its own data. Raises TypeError for what is not real, ValueError naming
    the fault for what is not consistent.
    """
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, got {matrix.ndim} dimensions")
    try:
        if matrix.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers, got dtype {matrix.dtype}")
        if numbered:
            values, matrix = _as_data(matrix.data, 1), copy(matrix)  # with the same arrays, which scipy does not see
            matrix.data = np.arange(len(values))
        out, ordered = _checked(matrix if matrix.format == "csr" else _converted(matrix))
    except _Fault as fault:
        raise ValueError(f"{name} is not a consistent {matrix.format} matrix: {fault}") from None
    except AttributeError as error:
        raise ValueError(f"{name} is not a consistent sparse matrix: {error}") from error
    check_width(out.shape[1], name)
    if not ordered:
        # a copy: the caller's arrays stay as they are, and the new container has no flags
        out = _container("csr", out.data.copy(), out.indices.copy(), out.indptr.copy(), out.shape)
        if not sum_duplicates:
            _refuse_duplicates(out, name)
        _add_up(out)
    return out


# -- compressed formats ------------------------------------------------------------------------------------------------
def _checked(csr: Any) -> tuple[Any, bool]:
    """Return (CSR, the container itself if all its arrays are plain and full; whether its rows are in order)."""
    indptr, indices, data = csr.indptr, csr.indices, csr.data
    plain = _is_index(indptr) and _is_index(indices) and indptr.dtype == indices.dtype and _is_data(data, 1)
    if not plain:
        indptr, indices, data = _as_index(indptr, "indptr"), _as_index(indices, "indices"), _as_data(data, 1)
    ordered = _look(indptr, indices, data, *csr.shape)
    used = int(indptr[-1])
    if not plain or used < len(data):
        csr = _container("csr", data[:used], indices[:used], indptr, csr.shape)
    return csr, ordered


def _look(
    indptr: Array, indices: Array, data: Array, n: int, width: int, *, names: tuple[str, str] = ("row", "column")
) -> bool:
    """Return whether indices, below `width`, ascend in each of n lines; raises _Fault unless all is consistent."""
    line, place = names
    if len(indptr) != n + 1:
        raise _Fault(f"indptr has {len(indptr)} entries, {n + 1} expected")
    if len(indices) != len(data):
        raise _Fault(f"it has {len(indices)} indices for {len(data)} values")
    check = kernel.check_32 if indptr.dtype == INT32 else kernel.check_64
    status, where = check(indptr, indices, width)
    if status == kernel.START:
        raise _Fault(f"indptr starts at {indptr[0]}, not at 0")
    if status == kernel.BACKWARD:
        raise _Fault(f"indptr goes back from {indptr[where]} to {indptr[where + 1]} in {line} {where}")
    if status == kernel.END:
        raise _Fault(f"indptr ends at {indptr[-1]}, beyond the {len(indices)} entries")
    if status == kernel.INDEX:
        number = int(np.searchsorted(indptr, where, side="right")) - 1
        raise _Fault(f"{line} {number} has the {place} index {indices[where]}, outside [0, {width})")
    return status == kernel.ORDERED


# -- the other formats -------------------------------------------------------------------------------------------------
def _converted(matrix: Any) -> Any:
    """Convert to CSR that is yet to be checked, with duplicates; raise _Fault for what scipy could not convert."""
    kind, shape = matrix.format, matrix.shape
    try:
        m, n = shape
        if kind == "lil":
            return _of_lists(matrix, m)
        if kind in ("csc", "bsr"):
            indptr, indices = _as_index(matrix.indptr, "indptr"), _as_index(matrix.indices, "indices")
            data = _as_data(matrix.data, 1 if kind == "csc" else 3)
            if kind == "csc":
                _look(indptr, indices, data, n, m, names=("column", "row"))
            else:
                rows, columns = data.shape[1:]
                if not (rows and columns) or m % rows or n % columns:
                    raise _Fault(f"blocks of {rows} x {columns} do not fill {m} x {n}")
                _look(indptr, indices, data, m // rows, n // columns, names=("block row", "block column"))
            return _container(kind, data, indices, indptr, shape).tocsr()
        if kind == "dia":
            _look_at_diagonals(matrix)
        row, column, data = _coordinates(matrix)
        coo = _container("coo", data, row, column, shape)
        coo.has_canonical_format = True  # scipy is not to add up duplicates: that is done, or not, with the order
        return coo.tocsr()
    except _Fault:
        raise
    except _BROKEN as error:
        raise _Fault(str(error) or type(error).__name__) from error


def _of_lists(matrix: Any, n: int) -> Any:
    """Return LIL as CSR."""
    rows, values = list(matrix.rows), list(matrix.data)
    lengths = [len(row) for row in rows]
    if len(rows) != n or lengths != [len(value) for value in values]:
        raise _Fault("its lists do not belong together")
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices = np.fromiter(chain.from_iterable(rows), np.int64, int(indptr[-1]))
    data = np.fromiter(chain.from_iterable(values), matrix.dtype, int(indptr[-1]))
    return _container("csr", _as_data(data, 1), indices, indptr, matrix.shape)


def _look_at_diagonals(matrix: Any) -> None:
    offsets, data = _as_index(matrix.offsets, "offsets"), _as_data(matrix.data, 2)
    if len(offsets) != len(data):
        raise _Fault(f"it has {len(offsets)} offsets for {len(data)} diagonals")


def _coordinates(matrix: Any) -> tuple[Array, Array, Array]:
    """Return (rows, columns, values) of COO, or of what scipy takes apart in Python (DOK, DIA)."""
    entries = matrix if matrix.format == "coo" else matrix.tocoo()
    row, column, data = _as_index(entries.row, "row"), _as_index(entries.col, "col"), _as_data(entries.data, 1)
    if not len(row) == len(column) == len(data):
        raise _Fault(f"it has {len(row)} rows and {len(column)} columns for {len(data)} values")
    for index, size, what in ((row, matrix.shape[0], "row"), (column, matrix.shape[1], "column")):
        if index.size and (index.min() < 0 or index.max() >= size):
            raise _Fault(f"it has a {what} index outside [0, {size})")
    return row, column, data


# -- arrays ------------------------------------------------------------------------------------------------------------
def _is_index(array: Any) -> bool:
    """Return whether the kernel can read an array of indices where it lies."""
    if type(array) is not np.ndarray or array.ndim != 1:
        return False
    flags = array.flags
    return array.dtype in (INT32, INT64) and flags.c_contiguous and flags.aligned


def _is_data(array: Any, ndim: int) -> bool:
    """Return whether scipy computes with the values as they are."""
    if type(array) is not np.ndarray or array.ndim != ndim:
        return False
    return array.dtype.isnative and array.dtype != FLOAT16 and array.dtype.char != LONG_DOUBLE


def _as_index(array: Any, what: str) -> Array:
    """Return an array of indices as the kernel reads it.

    One of uint64 that overflows turns negative, and is refused.
    """
    out: Array = np.asarray(array)
    if out.ndim != 1 or out.dtype.kind not in "iu":
        raise _Fault(f"{what} must be a vector of integers, got dtype {out.dtype} and shape {out.shape}")
    return np.require(out, np.int64, ["C", "A"])


def _as_data(array: Any, ndim: int) -> Array:
    """Return values in a dtype of this machine that scipy computes with and state files hold."""
    out: Array = np.asarray(array)
    if out.ndim != ndim or out.dtype.kind not in "fiub":
        raise _Fault(f"data must hold real numbers in {ndim} dimensions, got dtype {out.dtype} and shape {out.shape}")
    out = without_long_double(out)
    native = out.dtype.newbyteorder("=")
    return out.astype(np.float32 if native == FLOAT16 else native, copy=False)


def without_long_double(values: Array) -> Array:
    """Return values of long double as float64, and others as they are; what float64 cannot hold becomes infinite."""
    if values.dtype.char != LONG_DOUBLE:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float64)


def dense_as_csr(rows: Array) -> Any:
    """Return checked dense rows as CSR, also those of a dtype that scipy refuses (float16, foreign byte order)."""
    from scipy.sparse import csr_array

    return csr_array(_as_data(rows, 2))


def _container(kind: str, data: Array, first: Array, second: Array, shape: Any) -> Any:
    """Return a new container, without flags: of indices and indptr, or of rows and columns."""
    from scipy import sparse

    if kind == "coo":
        return sparse.coo_array((data, (first, second)), shape=shape)
    make: Any = getattr(sparse, f"{kind}_array")
    return make((data, first, second), shape=shape)


# -- duplicates --------------------------------------------------------------------------------------------------------
def _add_up(csr: Any) -> None:
    """Sort the rows and add up duplicate entries, without overflow of small integers."""
    dtype = csr.data.dtype
    small = dtype.kind in "iu" and dtype.itemsize < INT64.itemsize
    if small:
        csr.data = csr.data.astype(INT64)
    csr.sum_duplicates()
    if small and (csr.data == csr.data.astype(dtype)).all():
        csr.data = csr.data.astype(dtype)


def _refuse_duplicates(csr: Any, name: str) -> None:
    """Sort the rows; ValueError naming the first entry that is stored more than once."""
    csr.sort_indices()
    indptr, indices = csr.indptr, csr.indices
    same = indices[1:] == indices[:-1]
    same[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = False  # the last of one row, the first of the next
    if same.any():
        place = int(np.argmax(same))
        row = int(np.searchsorted(indptr, place, side="right")) - 1
        raise ValueError(f"{name} holds entry ({row}, {int(indices[place])}) more than once")
