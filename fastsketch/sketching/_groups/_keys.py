"""Keys of groups: integers or strings, each with a number by its first appearance."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Key = int | str

# Integers that a state file keeps.
LEAST, MOST = -(1 << 63), (1 << 63) - 1


class KeyError_(ValueError):
    """A row whose key is none: which row, counted from 0, and why."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(f"row {row} {why}")
        self.row, self.why = row, why


class KeyMap(dict[Key, int]):
    """{key: number}; a key that is looked up for the first time gets the next number."""

    def __missing__(self, key: Key) -> int:
        self[key] = number = len(self)
        return number

    def numbers(self, keys: list[Any]) -> NDArray[np.int64]:
        """Return the numbers of keys, new ones included."""
        return np.fromiter(map(self.__getitem__, keys), np.int64, len(keys))


def as_keys(values: ArrayLike) -> list[Any]:
    """Return the keys of rows as Python's ints, or as strings.

    Raises
    ------
    KeyError_
        For a value that is missing, or none of the two, or of another type than the first.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"the keys of groups must be one-dimensional, one for each row, got shape {array.shape}")
    kind = array.dtype.kind
    if kind == "f":
        return _integral(array)
    if kind == "u" and array.size and int(array.max()) > MOST:
        raise KeyError_(int(array.argmax()), f"has the key {array.max()}: it must be below 2**63")
    keys = array.tolist()
    if kind in "iuU":
        return keys
    if kind in "OT" and len(array):
        _check_objects(keys)
        return [int(key) for key in keys] if not isinstance(keys[0], str) else keys
    if len(array):
        raise ValueError(f"the keys of groups must be integers or strings, got {array.dtype}")
    return []


def _integral(array: NDArray[Any]) -> list[int]:
    with np.errstate(invalid="ignore"):
        bad = ~((np.abs(array) < 2.0**63) & (np.floor(array) == array))
    if bad.any():
        row = int(bad.argmax())
        why = (
            "has no key (null)" if np.isnan(array[row]) else f"has the key {array[row]}: an integer or a string is one"
        )
        raise KeyError_(row, why)
    return array.astype(np.int64).tolist()


def _check_objects(keys: list[Any]) -> None:
    types = set(map(type, keys))
    if types <= {str} or types <= {int}:
        wrong = None
        if types == {int} and not (min(keys) >= LEAST and max(keys) <= MOST):
            wrong = next(row for row, key in enumerate(keys) if not LEAST <= key <= MOST)
        if wrong is None:
            return
        raise KeyError_(wrong, f"has the key {keys[wrong]}: it must be within 64 bits")
    strings = isinstance(next((key for key in keys if not _is_null(key)), ""), str)
    for row, key in enumerate(keys):
        if _is_null(key):
            raise KeyError_(row, "has no key (null)")
        if isinstance(key, str) != strings or isinstance(key, bool | np.bool_) or not isinstance(key, Key | np.integer):
            raise KeyError_(row, f"has the key {key!r}: keys must be all integers or all strings")


def _is_null(key: Any) -> bool:
    return key is None or (isinstance(key, float) and key != key) or type(key).__name__ in ("NAType", "NaTType")


def kind_of(keys: Iterable[Key]) -> str:
    """Return what kind of keys these are, "str" or "int"."""
    return "str" if isinstance(next(iter(keys), None), str) else "int"


# -- as arrays of a state file -------------------------------------------------------------------------------------
def key_arrays(keys: Sequence[Key]) -> dict[str, NDArray[Any]]:
    """Return integers as "keys"; of strings UTF-8 as "key_text", and where each ends."""
    if kind_of(keys) == "int":
        return {"keys": np.array(keys, np.int64)}
    # a lone surrogate, from a file name say, is a string as well
    coded = [key.encode("utf-8", "surrogatepass") for key in cast("Sequence[str]", keys)]
    ends = np.cumsum(np.fromiter(map(len, coded), np.int64, len(coded)), dtype=np.int64)
    return {"key_text": np.frombuffer(b"".join(coded), np.uint8), "key_ends": ends}


def keys_from(arrays: dict[str, NDArray[Any]]) -> list[Key]:
    """Return the inverse; ValueError for what is none."""
    if "keys" in arrays:
        return arrays["keys"].tolist()
    text, ends = arrays["key_text"].tobytes(), arrays["key_ends"].tolist()
    return [text[start:end].decode("utf-8", "surrogatepass") for start, end in zip([0, *ends[:-1]], ends, strict=True)]
