"""Checks and conversions of sparse matrices, so that compiled code may read their arrays without bounds checks.

SciPy and our kernels do not check the arrays of a container: an index outside of the matrix would access memory outside
of the arrays, and the flags of order that a container carries may be wrong. All arrays are therefore checked here,
once, before SciPy or a kernel reads them, and flags are ignored. Changes by another thread during a call are not
detected.
"""

from copy import copy
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.linalg import csr as kernel

Array = NDArray[Any]

INT32, INT64, FLOAT16 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float16)
# Type code of long double, which is the same on all machines; its width differs.
LONG_DOUBLE = np.dtype(np.longdouble).char

# The kernels store column indices as int32.
MOST_COLUMNS = 2**31 - 1
# Errors of SciPy or NumPy for a container whose attributes have been replaced.
_BROKEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _InconsistentMatrix(ValueError):
    """Error for an inconsistent sparse matrix; the message describes what is wrong."""


def check_width(n_columns: int, name: str) -> None:
    """Raise ValueError if there are more columns than 32-bit indices allow."""
    if n_columns > MOST_COLUMNS:
        raise ValueError(f"{name} must have fewer than 2**31 columns, got {n_columns}")


def as_csr(matrix: Any, name: str, *, sum_duplicates: bool = True, numbered: bool = False) -> Any:
    """Convert a scipy.sparse matrix of any format to valid CSR with sorted columns and without duplicates, and return
    it.

    The container itself is returned if it is that already. Duplicates are added up, in int64 if sums of small integers
    need it, or refused. data has a native dtype that SciPy computes with, and no entry after the last row. `numbered`:
    replace each value by its index in the data of the matrix, which is CSR, CSC or COO. Raises TypeError if values are
    not real, ValueError naming the fault if the container is inconsistent.
    """
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, got {matrix.ndim} dimensions")
    try:
        if matrix.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers, got dtype {matrix.dtype}")
        if numbered:
            values, matrix = _as_data(matrix.data, 1), copy(matrix)  # the caller's stays unchanged
            matrix.data = np.arange(len(values))
        out, ordered = _checked(matrix if matrix.format == "csr" else _convert_to_csr(matrix))
    except _InconsistentMatrix as fault:
        raise ValueError(f"{name} is not a consistent {matrix.format} matrix: {fault}") from None
    except AttributeError as error:
        raise ValueError(f"{name} is not a consistent sparse matrix: {error}") from error
    check_width(out.shape[1], name)
    if not ordered:
        # a copy, as the caller's arrays must not change; the new container has no flags
        out = _container("csr", out.data.copy(), out.indices.copy(), out.indptr.copy(), out.shape)
        if not sum_duplicates:
            _refuse_duplicates(out, name)
        _sum_duplicates(out)
    return out


# -- compressed formats ------------------------------------------------------------------------------------------------
def _checked(csr: Any) -> tuple[Any, bool]:
    """Validate a CSR matrix that may be inconsistent. Return a valid one, and True if the columns of every row ascend.

    The same object is returned if its arrays are fine. Inconsistent arrays raise _InconsistentMatrix.
    """
    indptr, indices, data = csr.indptr, csr.indices, csr.data
    plain = _is_index(indptr) and _is_index(indices) and indptr.dtype == indices.dtype and _is_data(data, 1)
    if not plain:
        indptr, indices, data = _as_index(indptr, "indptr"), _as_index(indices, "indices"), _as_data(data, 1)
    ordered = _check_compressed(indptr, indices, data, *csr.shape)
    used = int(indptr[-1])
    if not plain or used < len(data):
        csr = _container("csr", data[:used], indices[:used], indptr, csr.shape)
    return csr, ordered


def _check_compressed(
    indptr: Array, indices: Array, data: Array, n: int, width: int, *, names: tuple[str, str] = ("row", "column")
) -> bool:
    """Validate the arrays of a CSR or CSC matrix. Return True if the indices ascend within each row;
    _InconsistentMatrix if the arrays are inconsistent.

    Raise _InconsistentMatrix if the arrays are inconsistent or an index is not below `width`. `names` are what rows and
    columns are called in errors.
    """
    row_name, column_name = names
    if len(indptr) != n + 1:
        raise _InconsistentMatrix(f"indptr has {len(indptr)} entries, {n + 1} expected")
    if len(indices) != len(data):
        raise _InconsistentMatrix(f"it has {len(indices)} indices for {len(data)} values")
    check = kernel.check_32 if indptr.dtype == INT32 else kernel.check_64
    status, position = check(indptr, indices, width)
    if status == kernel.START:
        raise _InconsistentMatrix(f"indptr starts at {indptr[0]}, not at 0")
    if status == kernel.BACKWARD:
        raise _InconsistentMatrix(
            f"indptr goes back from {indptr[position]} to {indptr[position + 1]} in {row_name} {position}"
        )
    if status == kernel.END:
        raise _InconsistentMatrix(f"indptr ends at {indptr[-1]}, beyond the {len(indices)} entries")
    if status == kernel.INDEX:
        number = int(np.searchsorted(indptr, position, side="right")) - 1
        raise _InconsistentMatrix(
            f"{row_name} {number} has the {column_name} index {indices[position]}, outside [0, {width})"
        )
    return status == kernel.ORDERED


# -- the other formats -------------------------------------------------------------------------------------------------
def _convert_to_csr(matrix: Any) -> Any:
    """Convert a sparse matrix of another format to CSR, after validating its arrays. _InconsistentMatrix if they are
    inconsistent.

    Duplicates may remain, and the result must still be validated.
    """
    kind, shape = matrix.format, matrix.shape
    try:
        m, n = shape
        if kind == "lil":
            return _convert_lil(matrix, m)
        if kind in ("csc", "bsr"):
            indptr, indices = _as_index(matrix.indptr, "indptr"), _as_index(matrix.indices, "indices")
            data = _as_data(matrix.data, 1 if kind == "csc" else 3)
            if kind == "csc":
                _check_compressed(indptr, indices, data, n, m, names=("column", "row"))
            else:
                rows, columns = data.shape[1:]
                if not (rows and columns) or m % rows or n % columns:
                    raise _InconsistentMatrix(f"blocks of {rows} x {columns} do not fill {m} x {n}")
                _check_compressed(indptr, indices, data, m // rows, n // columns, names=("block row", "block column"))
            return _container(kind, data, indices, indptr, shape).tocsr()
        if kind == "dia":
            _check_diagonals(matrix)
        row, column, data = _checked_coordinates(matrix)
        coo = _container("coo", data, row, column, shape)
        coo.has_canonical_format = True  # prevents SciPy from adding up duplicates, which `as_csr` does or refuses
        return coo.tocsr()
    except _InconsistentMatrix:
        raise
    except _BROKEN as error:
        raise _InconsistentMatrix(str(error) or type(error).__name__) from error


def _convert_lil(matrix: Any, n: int) -> Any:
    """Convert a sparse matrix in LIL format to CSR."""
    rows, values = list(matrix.rows), list(matrix.data)
    lengths = [len(row) for row in rows]
    if len(rows) != n or lengths != [len(value) for value in values]:
        raise _InconsistentMatrix("its lists do not belong together")
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices = np.fromiter(chain.from_iterable(rows), np.int64, int(indptr[-1]))
    data = np.fromiter(chain.from_iterable(values), matrix.dtype, int(indptr[-1]))
    return _container("csr", _as_data(data, 1), indices, indptr, matrix.shape)


def _check_diagonals(matrix: Any) -> None:
    """Raise _InconsistentMatrix unless a DIA matrix has one offset for each diagonal."""
    offsets, data = _as_index(matrix.offsets, "offsets"), _as_data(matrix.data, 2)
    if len(offsets) != len(data):
        raise _InconsistentMatrix(f"it has {len(offsets)} offsets for {len(data)} diagonals")


def _checked_coordinates(matrix: Any) -> tuple[Array, Array, Array]:
    """Validate the row indices, column indices and values of a COO, DOK or DIA matrix, and return them."""
    entries = matrix if matrix.format == "coo" else matrix.tocoo()
    row, column, data = _as_index(entries.row, "row"), _as_index(entries.col, "col"), _as_data(entries.data, 1)
    if not len(row) == len(column) == len(data):
        raise _InconsistentMatrix(f"it has {len(row)} rows and {len(column)} columns for {len(data)} values")
    for index, size, name in ((row, matrix.shape[0], "row"), (column, matrix.shape[1], "column")):
        if index.size and (index.min() < 0 or index.max() >= size):
            raise _InconsistentMatrix(f"it has a {name} index outside [0, {size})")
    return row, column, data


# -- arrays ------------------------------------------------------------------------------------------------------------
def _is_index(array: Any) -> bool:
    """Return True if an index array needs no conversion before compiled code reads it."""
    if type(array) is not np.ndarray or array.ndim != 1:
        return False
    flags = array.flags
    return array.dtype in (INT32, INT64) and flags.c_contiguous and flags.aligned


def _is_data(array: Any, ndim: int) -> bool:
    """Return True if an array of values needs no conversion before SciPy computes with it."""
    if type(array) is not np.ndarray or array.ndim != ndim:
        return False
    return array.dtype.isnative and array.dtype != FLOAT16 and array.dtype.char != LONG_DOUBLE


def _as_index(array: Any, name: str) -> Array:
    """Return an index array as contiguous int64, as compiled code needs it. _InconsistentMatrix if it does not hold
    integers.

    A uint64 that overflows becomes negative, and is refused later.
    """
    out: Array = np.asarray(array)
    if out.ndim != 1 or out.dtype.kind not in "iu":
        raise _InconsistentMatrix(f"{name} must be a vector of integers, got dtype {out.dtype} and shape {out.shape}")
    return np.require(out, np.int64, ["C", "A"])


def _as_data(array: Any, ndim: int) -> Array:
    """Return matrix values in a native dtype that SciPy computes with. _InconsistentMatrix if they are not real
    numbers.
    """
    out: Array = np.asarray(array)
    if out.ndim != ndim or out.dtype.kind not in "fiub":
        raise _InconsistentMatrix(
            f"data must hold real numbers in {ndim} dimensions, got dtype {out.dtype} and shape {out.shape}"
        )
    out = without_long_double(out)
    native = out.dtype.newbyteorder("=")
    return out.astype(np.float32 if native == FLOAT16 else native, copy=False)


def without_long_double(values: Array) -> Array:
    """Convert a long double array to float64, and return any other array unchanged.

    Values that overflow become infinite.
    """
    if values.dtype.char != LONG_DOUBLE:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float64)


def dense_as_csr(rows: Array) -> Any:
    """Convert dense rows to CSR, also from dtypes that SciPy refuses, such as float16."""
    from scipy.sparse import csr_array

    return csr_array(_as_data(rows, 2))


def _container(kind: str, data: Array, indices: Array, indptr: Array, shape: Any) -> Any:
    """Return a SciPy sparse array of the given format with these three arrays. It has no cached flags, such as whether
    indices are sorted.

    They are (data, indices, indptr), or for "coo" (data, rows, columns).
    """
    from scipy import sparse

    if kind == "coo":
        return sparse.coo_array((data, (indices, indptr)), shape=shape)
    make: Any = getattr(sparse, f"{kind}_array")
    return make((data, indices, indptr), shape=shape)


# -- duplicates --------------------------------------------------------------------------------------------------------
def _sum_duplicates(csr: Any) -> None:
    """Sort the columns of each row and sum duplicates, in place. Sums of small integers do not overflow."""
    dtype = csr.data.dtype
    small = dtype.kind in "iu" and dtype.itemsize < INT64.itemsize
    if small:
        csr.data = csr.data.astype(INT64)
    csr.sum_duplicates()
    if small and (csr.data == csr.data.astype(dtype)).all():
        csr.data = csr.data.astype(dtype)


def _refuse_duplicates(csr: Any, name: str) -> None:
    """Sort the columns of each row in place; raise ValueError if an entry is stored more than once."""
    csr.sort_indices()
    indptr, indices = csr.indptr, csr.indices
    is_repeated = indices[1:] == indices[:-1]
    is_repeated[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = (
        False  # the last of one row, the first of the next
    )
    if is_repeated.any():
        position = int(np.argmax(is_repeated))
        row = int(np.searchsorted(indptr, position, side="right")) - 1
        raise ValueError(f"{name} holds entry ({row}, {int(indices[position])}) more than once")
