"""Checks and conversions of the arguments of public functions, with messages that name the argument."""

import array
import math
import numbers
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._core.sparse import as_csr, check_width, without_long_double
from fastsketch._core.warning import warn_caller


class SparseRows(Protocol):
    """Type of sparse rows: a scipy.sparse container, or another object with ``shape`` and ``tocsr``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows and of columns."""
        ...

    def tocsr(self) -> Any:
        """Convert to a CSR matrix."""
        ...


# Rows as public functions take them.
Rows = ArrayLike | SparseRows

# Sizes of sketches, buffers and blocks are below this, as LAPACK uses 32-bit integers.
MOST_SIZE = 1 << 31

_BOOL: tuple[type, ...] = (bool, np.bool_)


def as_integer(value: Any, name: str, minimum: int, below: int | None = None) -> int:
    """Validate an integer argument, and return it as an int; TypeError or ValueError names the argument.

    It must be at least `minimum`, and less than `below` if that is given.
    """
    if isinstance(value, _BOOL) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    value = int(value)
    if below == minimum + 2 and not minimum <= value < below:
        raise ValueError(f"{name} must be {minimum} or {minimum + 1}, got {value}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if below is not None and value >= below:
        power = below.bit_length() - 1
        limit = f"2**{power}" if below == 1 << power and power > 9 else str(below)
        raise ValueError(f"{name} must be below {limit}, got {value}")
    return value


def as_seed(value: Any, name: str = "seed") -> int:
    """Validate a random seed, and return it as an int in [0, 2**64)."""
    return as_integer(value, name, 0, 1 << 64)


def as_flag(value: Any, name: str) -> bool:
    """Validate a boolean argument, and return it as a bool; TypeError for anything else."""
    if not isinstance(value, _BOOL):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def as_real(
    value: Any, name: str, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> float:
    """Validate a real number in [low, high], and return it as a float; errors name the argument.

    `low_open` and `high_open` exclude the ends.
    """
    if isinstance(value, _BOOL) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        value = float(value)
    except OverflowError:  # an int or a fraction that is too large for a float
        value = math.inf if cast("Any", value) > 0 else -math.inf
    above, below = low < value if low_open else low <= value, value < high if high_open else value <= high
    if not (above and below) or math.isinf(value):
        interval = f"{'(' if low_open else '['}{low:g}, {high:g}{')' if high_open else ']'}"
        excluded = ", both excluded" if low_open and high_open else ""
        raise ValueError(f"{name} must lie in {interval}{excluded}, got {value:g}")
    return value


def as_choice(value: Any, name: str, choices: Iterable[str | None]) -> str:
    """Validate a string that must be one of the choices, and return it; errors name the argument."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {value!r}")
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def as_dtype(dtype: Any, name: str = "dtype") -> np.dtype[Any]:
    """Validate a dtype that must be float32 or float64, and return it in native byte order."""
    try:
        result = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{name} must be float32 or float64, got {dtype!r}") from error
    if result not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"{name} must be float32 or float64, got {result}")
    return result.newbyteorder("=")


def is_sparse(value: Any) -> bool:
    """Return True if the value is a scipy.sparse container, without importing scipy.sparse."""
    # a module that another thread is importing is listed already, and lacks the function
    issparse = getattr(sys.modules.get("scipy.sparse"), "issparse", None)
    return issparse is not None and issparse(value)


def natural_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the default dtype of a model, given that of its first rows: float32 for float16 and float32, else
    float64.
    """
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize <= 4 else np.dtype(np.float64)


# What messages about rows on another device end with.
ON_DEVICE = "fastsketch.torch.FrequentDirections sketches tensors on their device"
# Protocols and types that NumPy converts without iterating over items.
_ARRAYS = ("__array__", "__array_interface__", "__array_struct__")
_BUFFERS: tuple[type, ...] = (str, bytes, bytearray, memoryview, array.array, range)


def refuse_final_nul(values: Any, name: str) -> None:
    """Raise ValueError if a string in a list or an array of objects ends in a NUL character.

    The message names the first such string.

    NumPy's arrays of strings, which labels become, drop NUL at the end: two different labels would become equal.
    """
    if isinstance(values, list | tuple):
        entries = list(cast("list[Any]", values))
    else:
        array: NDArray[Any] = np.asarray(values)
        entries = array.ravel().tolist() if array.dtype.kind in "OT" else []
    for row, value in enumerate(entries):
        if isinstance(value, str) and value[-1:] == "\0":
            raise ValueError(
                f"{name}: {value!r} in row {row} ends in NUL, which arrays of strings do not keep: remove it"
            )


def is_masked(values: Any) -> bool:
    """Return True for a masked array, and for a Dask array whose chunks are masked arrays."""
    return isinstance(values, np.ma.MaskedArray) or isinstance(getattr(values, "_meta", None), np.ma.MaskedArray)


def require_array_like(values: Any, name: str) -> None:
    """Raise TypeError for values that NumPy would not convert safely, for example masked arrays.

    Arrays, tables, sparse matrices and lists of rows are accepted.

    Called for all rows, targets and weights before NumPy converts them. NumPy would drop the mask of a masked array,
    and iterate over the items of any other object that has a length, which may never end (an AnnData). Items of a list,
    and of lists in it, are checked by their types.
    """
    kind = cast("type[Any]", type(values))
    if kind is np.ndarray:
        return
    if isinstance(values, list | tuple):
        items_by_type: dict[type, Any] = {type(item): item for item in cast("Any", values)}
        for item_type, item in items_by_type.items():
            if issubclass(item_type, list | tuple):
                rows: list[Any] = [row for row in cast("Any", values) if type(row) is item_type]
                entries_by_type: dict[type, Any] = {type(entry): entry for row in rows for entry in row}
                for entry in entries_by_type.values():
                    if not isinstance(entry, list | tuple):
                        require_array_like(entry, f"an entry of {name}")
            else:
                require_array_like(item, f"an item of {name}")
        return
    if is_masked(values):
        raise TypeError(
            f"{name} must not be a masked array: what is behind the mask would count; fill the masked entries, leave "
            "their rows out, or put NaN in their place (filled(np.nan)) where missing numbers are taken"
        )
    if any(hasattr(kind, protocol) for protocol in _ARRAYS) or isinstance(values, _BUFFERS) or is_sparse(values):
        return
    if hasattr(kind, "__getitem__") and not isinstance(values, Mapping):
        raise TypeError(
            f"{name} must be an array, a sparse matrix, a table or a list of rows, got an object of type "
            f"{kind.__name__}: give the matrix in it (of an AnnData its X), or np.asarray of the list of its rows"
        )


def detached(values: Any, name: str) -> Any:
    """Return a torch tensor without its gradients, and None for anything else.

    TypeError for a tensor that is no array of numbers in memory: nested, sparse, or on the meta device.
    """
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "Tensor") or not isinstance(values, torch.Tensor):  # or another thread is importing it
        return None
    tensor: Any = values.detach()
    if tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided:
        layout = "nested" if tensor.is_nested else tensor.layout
        raise TypeError(f"{name} must be a dense tensor that holds numbers, got {layout} on {tensor.device}")
    return tensor


def to_numpy(values: Any, name: str) -> Any:
    """Convert a torch tensor or another DLPack object to an array, and return anything else unchanged.

    Tensors are detached, and bfloat16 and float8 become float32, which is exact. A tensor on another device is copied
    to the CPU, with a UserWarning that names the sketch of tensors on their device.
    """
    kind = cast("type[Any]", type(values))
    if kind is np.ndarray:
        return values
    if (tensor := detached(values, name)) is not None:
        if tensor.device.type != "cpu":
            warn_caller(f"{name} on {tensor.device} were copied to the CPU: {ON_DEVICE}")
            tensor = tensor.cpu()
        if str(tensor.dtype) == "torch.bfloat16" or (tensor.is_floating_point() and tensor.dtype.itemsize == 1):
            tensor = tensor.float()  # NumPy has neither bfloat16 nor float8
        return tensor.numpy(force=True)  # of views, such as that of a conjugate, a copy
    if hasattr(kind, "__dlpack__") and not any(hasattr(kind, protocol) for protocol in _ARRAYS):
        try:
            return np.from_dlpack(values)
        except (BufferError, RuntimeError) as error:
            raise ValueError(f"{name} must be in the memory of the CPU ({error}): {ON_DEVICE}") from None
    return values


def as_rows(rows: Any, n_features: int | None = None, name: str = "rows") -> Any:
    """Convert rows to a 2-d array of real numbers, or to canonical CSR, without unnecessary copies.

    A vector becomes one row. Long double becomes float64, as state files do not hold long double. Entries are not
    checked: the kernels look for NaN and infinity, slice by slice.
    """
    if is_sparse(rows):
        out = as_csr(rows, name)
    else:
        rows = to_numpy(rows, name)
        require_array_like(rows, name)
        try:
            out = np.asarray(rows)
        except ValueError as error:
            raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from None
        if out.dtype.kind == "O" and hasattr(rows, "iloc"):
            out = _from_nullable(rows, out)
        refuse_dicts(rows, name)
        if out.ndim == 1:
            out = out[np.newaxis]
        if out.ndim != 2:
            refuse_iterator(rows, name)
            hint = ": of a file take what `for rows in fs.open_rows(...)` gives" if out.dtype.kind in "USO" else ""
            raise ValueError(f"{name} must have one row or be two-dimensional, got {out.ndim} dimensions{hint}")
    if out.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {out.dtype}")
    if out.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column, got shape {out.shape}")
    check_width(out.shape[1], name)
    if n_features is not None and out.shape[1] != n_features:
        raise ValueError(f"{name} must have {n_features} columns as the rows before, got {out.shape[1]}")
    return out if is_sparse(out) else without_long_double(out)


def _from_nullable(frame: Any, objects: NDArray[Any]) -> NDArray[Any]:
    """Convert a pandas data frame of nullable numbers to floats, with missing values as NaN.

    If a column is not numeric, `objects` is returned, the frame as an array of objects.
    """
    kinds: list[Any] = list(frame.dtypes) if objects.ndim == 2 else [None]
    if not all(getattr(kind, "kind", "O") in "fiub" for kind in kinds):
        return objects
    narrow = all(kind.kind == "f" and kind.itemsize <= 4 for kind in kinds)
    return frame.to_numpy(np.float32 if narrow else np.float64, na_value=np.nan)


def refuse_dicts(rows: Any, name: str) -> None:
    """Raise TypeError if rows are a dict or a list of dicts, which only online learners accept."""
    first_row: Any = rows
    if isinstance(rows, list) and rows:
        first_row = cast("list[Any]", rows)[0]
    if isinstance(first_row, dict) and not is_sparse(first_row):  # scipy's dok_array is a dict
        raise TypeError(
            f"{name} must be an array of numbers, got dicts, as the online learners take rows: DictVectorizer of "
            "scikit-learn makes a sparse matrix of them"
        )


def refuse_iterator(rows: Any, name: str) -> None:
    """Raise TypeError if rows are a generator or another iterator, which cannot become an array."""
    if hasattr(rows, "__next__"):
        raise TypeError(
            f"{name} must be an array, not a {type(rows).__name__}: np.array(list(...)) has all rows in memory, and "
            "fs.open_rows(...) reads them in chunks where a source will do"
        )


def as_weights(weights: Any, n_rows: int, name: str = "sample_weight") -> NDArray[np.float64] | None:
    """Validate sample weights, and return them as a float64 vector of finite numbers >= 0; None stays None.

    A scalar is the weight of every row.
    """
    if weights is None:
        return None
    out = _as_column(weights, n_rows, name, fill=True)
    is_valid = np.isfinite(out) & (out >= 0)
    if not is_valid.all():
        first_invalid = int(np.argmin(is_valid))
        raise ValueError(f"{name} must be finite and not negative, got {out[first_invalid]} for row {first_invalid}")
    return out


def as_numbers(values: Any, n_rows: int, name: str = "targets") -> NDArray[np.float64]:
    """Validate finite real targets, and return them as a float64 vector with one entry per row.

    For one row a scalar is allowed. The vector is contiguous.
    """
    if n_rows == 1 and isinstance(values, float) and math.isfinite(values):
        return np.array([values])  # single rows of a stream: NumPy's checks would take longer than learning the row
    out = _as_column(values, n_rows, name, fill=n_rows == 1)
    if not all_finite(out):
        raise ValueError(f"{name} must be finite: entry {int(np.argmin(np.isfinite(out)))} is not")
    return out


def _as_column(values: Any, n_rows: int, name: str, *, fill: bool) -> NDArray[np.float64]:
    """Return values as a contiguous float64 vector with one entry per row. ValueError or TypeError, which names the
    argument, if that is impossible.

    With `fill` a scalar is repeated.
    """
    values = to_numpy(values, name)
    require_array_like(values, name)
    try:
        out: NDArray[Any] = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be a vector of numbers: {error}") from None
    if out.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {out.dtype}")
    if out.ndim == 0 and fill:
        out = np.full(n_rows, float(out))
    if out.shape != (n_rows,):
        raise ValueError(f"{name} must have one entry for each of the {n_rows} rows, got shape {out.shape}")
    return in_place(without_long_double(out), np.dtype(np.float64))


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Convert values to an array; raise ValueError for nested lists of unequal lengths."""
    values = to_numpy(values, name)
    require_array_like(values, name)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array: {error}") from None


def as_vector(v: Any, n_features: int, name: str = "v") -> NDArray[Any]:
    """Validate a finite vector (d,) or matrix (d, k), and return it as an array without unnecessary copies."""
    out = without_long_double(as_array(v, name))
    if out.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {out.dtype}")
    if out.ndim not in (1, 2) or out.shape[0] != n_features:
        raise ValueError(f"{name} must have shape ({n_features},) or ({n_features}, k), got {out.shape}")
    if not np.isfinite(out).all():
        raise ValueError(f"{name} must be finite")
    return out


def no_mask(values: NDArray[Any]) -> str:
    """Return a hint for an error message if a boolean mask was given instead of indices, else ""."""
    return ": np.flatnonzero gives those of a mask" if values.dtype.kind == "b" else ""


def as_integer_vector(values: ArrayLike, name: str) -> NDArray[Any]:
    """Validate a vector of integers, and return it in its own dtype.

    TypeError or ValueError for anything else.
    """
    out = as_array(values, name)
    if out.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {out.shape}")
    if out.size == 0:
        return np.zeros(0, np.int64)
    if out.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {out.dtype}{no_mask(out)}")
    return out


def as_subset(values: ArrayLike, size: int, name: str) -> NDArray[np.int64]:
    """Return the distinct indices in ascending order; raise IndexError if any is outside [0, size)."""
    out = as_integer_vector(values, name)
    outside = np.unique(out[(out < 0) | (out >= size)])
    if outside.size:
        listed = ", ".join(map(str, outside[:5].tolist())) + (", ..." if outside.size > 5 else "")
        raise IndexError(f"{name} must lie in [0, {size}), got {listed}")
    return np.unique(out.astype(np.int64))


def not_finite(row: int, dtype: Any = None, name: str = "rows", column: int | None = None) -> ValueError:
    """Create the ValueError for a row that contains a NaN or an infinity, and return it.

    dtype: float32 if the row may have overflowed in a conversion.
    """
    narrow = " (as float32)" if dtype == np.float32 else ""
    in_column = "" if column is None else f" in column {column}"
    return ValueError(f"{name} must be finite: row {row} holds a NaN or an infinity{narrow}{in_column}")


# Largest size at which an inner product is faster than two passes of NumPy with a temporary array.
SMALL_ARRAY = 4096


def all_finite(values: NDArray[Any]) -> bool:
    """Return True if every entry is finite."""
    if values.size <= SMALL_ARRAY and values.dtype.char in "fd" and math.isfinite(np.vdot(values, values)):
        return True
    return bool(np.isfinite(values).all())


def check_finite(rows: Any, name: str = "rows", offset: int = 0, dtype: Any = None) -> None:
    """Raise ValueError if an entry of the rows is NaN or infinite.

    The message names the first such row (counted from `offset`) and its column.

    dtype: that to which the rows were converted, for the message.
    """
    dense = not is_sparse(rows)
    values: NDArray[Any] = np.asarray(rows if dense else rows.data)
    if values.dtype.kind != "f" or all_finite(values):
        return
    if dense:
        row = int(np.argmin(np.isfinite(values).all(axis=1)))
        column = int(np.argmin(np.isfinite(values[row])))
    else:
        entry = int(np.argmin(np.isfinite(values)))
        row = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
        column = int(rows.indices[entry])
    raise not_finite(offset + row, dtype, name, column)


def rows_with_weight(
    rows: Any, weights: NDArray[np.float64] | None, *columns: Any, checked: bool = False
) -> tuple[Any, ...]:
    """Return rows, weights and further columns without the rows of weight 0, which models ignore.

    Rows are an array or CSR (n, d), `columns` arrays of length n. Unless `checked`, ValueError names a row that is not
    finite, removed rows included. If no weight is 0 the arguments are returned unchanged.
    """
    if weights is None or weights.all():
        return rows, weights, *columns
    if not checked:
        check_finite(rows)
    has_weight = weights > 0
    return rows[has_weight], weights[has_weight], *(column[has_weight] for column in columns)


def in_place(array: Any, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array as C-contiguous and aligned, of the given dtype, as kernels need it. It is copied only if
    necessary.

    Kernels need such arrays.
    """
    out: NDArray[Any] = np.ascontiguousarray(array, dtype)  # which does not copy an unaligned array
    return out if out.flags.aligned else out.copy()
