"""State that comes in from outside is checked by these rules: once, before memory is taken for it or a kernel sees it.

Kernels trust their state: they look neither at indices nor at counts. So every kind of state names its rules in one
``validate`` out of what is here; a broken one raises ValueError, which ``fs.load`` turns into a StateError.
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

# Counts stay below this: sums of two of them, and a batch more, are still machine integers.
MOST_COUNT = 1 << 62
# Columns that LAPACK's integers count.
MOST_COLUMNS = 1 << 31


def array_of(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any = FLOAT64) -> NDArray[Any]:
    """Return the array of this name, of exactly this shape and dtype."""
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"array {name!r} is missing")
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"array {name!r} has shape {array.shape} of {array.dtype}, expected {shape} of {dtype}")
    return array


def only(arrays: Arrays, *names: str) -> None:
    """Refuse arrays of other names."""
    for name in arrays:
        if name not in names:
            raise ValueError(f"array {name!r} does not belong to it")


def finite(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any = FLOAT64) -> NDArray[Any]:
    """Return the array of this name, shape and dtype, without a NaN or an infinity."""
    array = array_of(arrays, name, shape, dtype)
    require_finite(array, name)
    return array


def require_finite(array: NDArray[Any], name: str) -> None:
    """Refuse NaN and infinity."""
    with np.errstate(all="ignore"):
        # One pass without a temporary array: a sum is finite only if all its terms are. Few are not: those are
        # looked at again, because the sum of finite numbers may overflow.
        good = math.isfinite(float(array.sum())) or bool(np.isfinite(array).all())
    if not good:
        raise ValueError(f"array {name!r} must be finite")


def not_negative(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any = FLOAT64) -> NDArray[Any]:
    """Return the array of this name, shape and dtype, finite and without a negative number."""
    array = finite(arrays, name, shape, dtype)
    if array.size and array.min() < 0:
        raise ValueError(f"array {name!r} must not be negative, got {array.min()}")
    return array


def sums(arrays: Arrays, name: str, shape: tuple[int, ...], *, low: float = -math.inf) -> NDArray[Any]:
    """Return sums of losses: float64, no NaN; finite numbers may have added up to infinity."""
    array = array_of(arrays, name, shape)
    if np.isnan(array).any() or (array.size and array.min() < low):
        raise ValueError(f"array {name!r} must hold sums of losses, got {array.min()}")
    return array


def rows_of(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return rows of a sketch: finite, and so are their squares and the sum of these in the rows' own dtype."""
    array = array_of(arrays, name, shape, dtype)
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        if not math.isfinite(float(flat @ flat)):
            raise ValueError(f"array {name!r} must be finite, and so must the sum of its squares")
    return array


def named_numbers(arrays: Arrays, name: str, names: tuple[str, ...], dtype: Any) -> dict[str, Any]:
    """Return {name: number} of an array whose entries have names."""
    return dict(zip(names, finite(arrays, name, (len(names),), dtype).tolist(), strict=True))


def number_within(value: Any, name: str, low: float, high: float) -> None:
    """Refuse a value outside [low, high]."""
    if not low <= value <= high:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {value}")


def as_count(value: Any, name: str, minimum: int = 0) -> int:
    """Return a count of rows, or a place: an integer that the kernels can add to."""
    return as_integer(value, name, minimum, MOST_COUNT)


def as_figure(value: Any, name: str) -> float:
    """Return a real number that is only shown: also NaN or infinity, where a loss has overflowed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    return float(value)


def text_arrays(texts: Iterable[str], name: str, ends: str, errors: str = "strict") -> dict[str, NDArray[Any]]:
    """Return texts as two arrays of these names: their UTF-8, one after another, and where each ends."""
    coded = [text.encode(errors=errors) for text in texts]
    lengths = np.array(list(map(len, coded)), np.int64)
    return {name: np.frombuffer(b"".join(coded), np.uint8), ends: np.cumsum(lengths, dtype=np.int64)}


def texts_of(arrays: Arrays, name: str, ends: str, errors: str = "strict") -> list[str]:
    """Return the inverse; ValueError for what is none."""
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
    indptr: NDArray[Any], indices: NDArray[Any], *, n_stored: int, n_columns: int, what: str = "the sparse rows"
) -> None:
    """Refuse CSR rows unless starts ascend to n_stored and columns are in range, none twice in a row."""
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != n_stored or (np.diff(indptr) < 0).any():
        raise ValueError(f"the row starts of {what} are not in order, or do not end with the last of them")
    used = indices[:n_stored]
    if len(used) == 0:
        return
    if used.min() < 0 or used.max() >= n_columns:
        raise ValueError(f"{what} have a column index outside [0, {n_columns})")
    rising = np.diff(used) > 0
    starts = indptr[1:-1]
    rising[starts[(starts > 0) & (starts < n_stored)] - 1] = True  # from one row to the next it may fall
    if not rising.all():
        row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((used, row))
        if ((np.diff(row[order]) == 0) & (np.diff(used[order]) == 0)).any():
            raise ValueError(f"{what} have a column twice in one row")
