"""Checks of arrays and numbers that are read from a state file.

A state file may come from an untrusted source, and the compiled kernels check neither indices nor counts. So every
class of state has a ``validate`` method that is built from these functions and runs once, before memory is allocated
and before a kernel is called. A violated rule raises ValueError, which ``fs.load`` turns into a StateError.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer

Arrays = Mapping[str, NDArray[Any]]
FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)

# Counts are smaller than this, so that the sum of two counts and a batch fits int64.
MOST_COUNT = 1 << 62
# LAPACK counts columns with 32-bit integers.
MOST_COLUMNS = 1 << 31


def array_of(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any = FLOAT64) -> NDArray[Any]:
    """Return the array of this name after checking its shape and dtype. ValueError if they differ or it is missing."""
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"array {name!r} is missing")
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"array {name!r} has shape {array.shape} of {array.dtype}, expected {shape} of {dtype}")
    return array


def only(arrays: Arrays, *names: str) -> None:
    """Raise ValueError if a state file has an array that is not among `names`."""
    for name in arrays:
        if name not in names:
            raise ValueError(f"array {name!r} does not belong to it")


def finite(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any = FLOAT64) -> NDArray[Any]:
    """Return ``arrays[name]``. Raise ValueError unless it has this shape and dtype and every entry is finite."""
    array = array_of(arrays, name, shape, dtype)
    require_finite(array, name)
    return array


def require_finite(array: NDArray[Any], name: str) -> None:
    """Raise ValueError if an array holds NaN or infinity."""
    with np.errstate(all="ignore"):
        # A sum is finite only if all terms are, and needs no temporary array. If it is not, the entries are checked,
        # because a sum of finite numbers may overflow.
        good = math.isfinite(float(array.sum())) or bool(np.isfinite(array).all())
    if not good:
        raise ValueError(f"array {name!r} must be finite")


def not_negative(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any = FLOAT64) -> NDArray[Any]:
    """Return ``arrays[name]``. Raise ValueError unless it has this shape and dtype and is finite and nonnegative."""
    array = finite(arrays, name, shape, dtype)
    if array.size and array.min() < 0:
        raise ValueError(f"array {name!r} must not be negative, got {array.min()}")
    return array


def sums(arrays: Arrays, name: str, shape: tuple[int, ...], *, low: float = -math.inf) -> NDArray[Any]:
    """Return the array of summed losses of this name after checking its shape and values. ValueError for NaN or an
    entry below `low`.

    Infinity is allowed, because a sum of finite losses may overflow.
    """
    array = array_of(arrays, name, shape)
    if np.isnan(array).any() or (array.size and array.min() < low):
        raise ValueError(f"array {name!r} must hold sums of losses, got {array.min()}")
    return array


def rows_of(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return the array of this name, the rows of a sketch, after checking it. ValueError unless the sum of their
    squares is finite.

    The sum is computed in the dtype of the rows.
    """
    array = array_of(arrays, name, shape, dtype)
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        if not math.isfinite(float(flat @ flat)):
            raise ValueError(f"array {name!r} must be finite, and so must the sum of its squares")
    return array


def named_numbers(arrays: Arrays, name: str, names: tuple[str, ...], dtype: Any) -> dict[str, Any]:
    """Return {name: number} from an array that must hold one finite entry for each of `names`."""
    return dict(zip(names, finite(arrays, name, (len(names),), dtype).tolist(), strict=True))


def number_within(value: Any, name: str, low: float, high: float) -> None:
    """Raise ValueError unless low <= value <= high."""
    if not low <= value <= high:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {value}")


def as_count(value: Any, name: str, minimum: int = 0) -> int:
    """Return a value as an integer. Raise an error unless it is in [minimum, 2**62).

    The limit lets the kernels add counts without overflow.
    """
    return as_integer(value, name, minimum, MOST_COUNT)


def as_figure(value: Any, name: str) -> float:
    """Return a number that was read from a state file as a float. TypeError if it is not a real number.

    NaN and infinity are allowed, because such numbers are only displayed.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    return float(value)


def text_arrays(texts: Iterable[str], name: str, ends: str, errors: str = "strict") -> dict[str, NDArray[Any]]:
    """Encode strings as {name: array of their concatenated UTF-8 bytes, ends: array of the end of each string}."""
    coded = [text.encode(errors=errors) for text in texts]
    lengths = np.array(list(map(len, coded)), np.int64)
    return {name: np.frombuffer(b"".join(coded), np.uint8), ends: np.cumsum(lengths, dtype=np.int64)}


def texts_of(arrays: Arrays, name: str, ends: str, errors: str = "strict") -> list[str]:
    """Decode strings that ``text_arrays`` has encoded. Raise ValueError if the two arrays are inconsistent."""
    stops = array_of(arrays, ends, (arrays[ends].size,), INT64)
    text = array_of(arrays, name, (arrays[name].size,), np.uint8).tobytes()
    starts = np.concatenate([[0], stops[:-1]]) if stops.size else stops
    if (stops < starts).any() or (stops[-1] if stops.size else 0) != len(text):
        raise ValueError(f"array {ends!r} does not fit array {name!r}")
    try:
        return [text[a:b].decode(errors=errors) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    except UnicodeDecodeError as error:
        raise ValueError(f"array {name!r} holds no UTF-8 text: {error}") from None


def csr_rows(
    indptr: NDArray[Any], indices: NDArray[Any], *, n_stored: int, n_columns: int, name: str = "the sparse rows"
) -> None:
    """Raise ValueError unless the row starts and column indices form a valid CSR matrix.

    The row starts must ascend from 0 to n_stored, the column indices must be in [0, n_columns), and no row may have a
    column twice. Columns need not be sorted.
    """
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != n_stored or (np.diff(indptr) < 0).any():
        raise ValueError(f"the row starts of {name} are not in order, or do not end with the last of them")
    used = indices[:n_stored]
    if len(used) == 0:
        return
    if used.min() < 0 or used.max() >= n_columns:
        raise ValueError(f"{name} have a column index outside [0, {n_columns})")
    is_ascending = np.diff(used) > 0
    starts = indptr[1:-1]
    is_ascending[starts[(starts > 0) & (starts < n_stored)] - 1] = True  # between rows it may decrease
    if not is_ascending.all():
        row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((used, row))
        if ((np.diff(row[order]) == 0) & (np.diff(used[order]) == 0)).any():
            raise ValueError(f"{name} have a column twice in one row")
