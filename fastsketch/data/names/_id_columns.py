"""Convert columns of ids to lists of Python integers, strings, or a mixture of types."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import require_array_like

# Kinds of ids, as stored in state files.
INTEGERS: Final = "integers"
STRINGS: Final = "strings"
MIXED: Final = "mixed"
KINDS = (INTEGERS, STRINGS, MIXED)


def convert_ids(values: Any, name: str, *, mixed: bool = False) -> tuple[str, list[Any]]:
    """Validate ids and convert them to Python objects. Return (kind, list of ids).

    The input may be a sequence, an array, a column of a data frame or a single id. `kind` is one of KINDS; `mixed`
    forces MIXED. Raise TypeError or ValueError for an entry that is not a valid id.
    """
    if isinstance(values, str | bytes | int | np.integer | UUID | tuple):
        # A single id. A tuple is one, not a sequence of ids.
        values = object_array([values])
    array = _as_array(values, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be a vector of ids, got shape {array.shape}")
    kind = array.dtype.kind
    if kind in "OT":
        return _convert_objects(array.tolist(), name, mixed=mixed)
    if kind == "U":
        return STRINGS, array.tolist()
    if kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2**63, got {array.max()}: as strings they may be anything")
    if kind in "iu" or (array.size == 0 and kind == "f"):
        return INTEGERS, array.tolist()
    if kind == "f":
        return INTEGERS, _convert_integral_floats(array, name).tolist()
    raise TypeError(f"{name} must be integers or strings, got dtype {array.dtype}: astype(str) makes strings of them")


def _as_array(values: Any, name: str) -> NDArray[Any]:
    """Convert a vector of ids to an array without changing their types: a mixture becomes an array of objects."""
    require_array_like(values, name)
    if isinstance(values, np.ndarray):
        return cast("NDArray[Any]", values)
    if hasattr(values, "__array__"):  # a column of pandas, polars or pyarrow
        return np.asarray(values)
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a vector of ids, got {type(cast('Any', values)).__name__}")
    # np.array would convert the numbers in a mixture to strings
    return object_array(list(cast("Iterable[Any]", values)))


def object_array(values: list[Any]) -> NDArray[Any]:
    """Create an array of objects from a list. Tuples stay single entries."""
    return np.fromiter(values, object, len(values))  # np.array would make a dimension of tuples


def _convert_integral_floats(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return floats that are integers as int64; pandas stores integers in this way if entries are missing.

    Raise ValueError for NaN and TypeError for a fraction.
    """
    missing = np.isnan(array)
    if missing.any():
        raise _missing_id_error(name, int(np.argmax(missing)), np.nan)
    is_integer = (np.abs(array) <= 2.0**53) & (array == np.floor(array))
    if not is_integer.all():
        position = int(np.argmin(is_integer))
        raise TypeError(f"{name} must be integers or strings: entry {position} is {array[position]!r}")
    return array.astype(np.int64)


def is_missing(value: Any) -> bool:
    """Return True if a value is None, or pandas' NA or NaT."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _missing_id_error(name: str, position: int, value: Any) -> ValueError:
    """Create the ValueError for a missing id at a position."""
    return ValueError(f"{name} must not be missing: entry {position} is {value!r}")


def _convert_objects(values: list[Any], name: str, *, mixed: bool) -> tuple[str, list[Any]]:
    """Validate a list of Python objects as ids. Return (kind, list of ids)."""
    types = set(map(type, values))
    if types - {str} and not (types == {int} and min(values) >= -(2**63) and max(values) < 2**63):
        values = [_as_id(value, name, k) for k, value in enumerate(values)]
    types = set(map(type, values))
    if mixed or types - {int} and types - {str}:
        return MIXED, values
    return STRINGS if types == {str} else INTEGERS, values


def _as_id(value: Any, name: str, position: int) -> Any:
    """Convert one id to a Python object. Raise TypeError or ValueError if the value is not a valid id."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise ValueError(
                f"{name} must be within 64 bits: entry {position} is {value}: as strings they may be anything"
            )
        return int(cast("int", value))
    if isinstance(value, bytes | UUID):
        return value
    if isinstance(value, tuple):
        return tuple(_as_id(item, name, position) for item in cast("tuple[Any, ...]", value))
    if is_missing(value):
        raise _missing_id_error(name, position, value)
    if isinstance(value, float | np.floating):
        if value != value:
            raise _missing_id_error(name, position, np.nan)
        return int(_convert_integral_floats(np.array([value], np.float64), name)[0])
    raise TypeError(
        f"{name} must be integers or strings: entry {position} is {value!r:.60}, of type {type(value).__name__} (str() "
        "makes a string of it)"
    )


def mixed_id_sort_key(value: Any) -> tuple[str, Any]:
    """Return a sort key for ids of mixed types, which orders them by type name and then by value."""
    kind = type(value).__name__
    if isinstance(value, tuple):
        return kind, [mixed_id_sort_key(item) for item in cast("tuple[Any, ...]", value)]
    return kind, value


def encode_id(value: Any) -> Any:
    """Encode an id of a mixed-type column for JSON: int and str unchanged, others as {type: value}."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, UUID):
        return {"uuid": value.hex}
    if isinstance(value, tuple):
        return {"tuple": [encode_id(item) for item in cast("tuple[Any, ...]", value)]}
    return value


def decode_id(value: Any) -> Any:
    """Decode an id that ``encode_id`` has encoded. Raise ValueError or TypeError for an invalid encoding."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = cast("dict[str, Any]", value).items()
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "uuid":
        return UUID(hex=content)
    if kind == "tuple" and isinstance(content, list):
        return tuple(decode_id(item) for item in cast("list[Any]", content))
    raise ValueError(f"there are no ids of the type {kind!r}")
