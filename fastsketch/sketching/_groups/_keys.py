"""Keys of groups: all integers or all strings."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import refuse_final_nul
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._id_columns import MIXED, ids_in
from fastsketch.data.sources import Source, naming

Key = int | str

# Of strings in a state file: UTF-8, and where each ends. A lone surrogate, from a file name say, is a string as well.
_TEXT = "key_text", "key_ends", "surrogatepass"


def keys_at(values: Any, source: Source, first: int) -> list[Any]:
    """Return the keys of the rows of a chunk as Python's ints, or as strings.

    ValueError for one that is missing, or none of the two, or of another type than the first; it names the row.
    """
    with naming(source, first):
        try:
            kind, keys = ids_in(values, "the keys of groups")
        except TypeError as error:
            raise ValueError(error) from None
        if kind == MIXED:
            kept = type(keys[0]) if isinstance(keys[0], Key) else Key
            row = next(row for row, key in enumerate(keys) if not isinstance(key, kept))
            raise ValueError(f"the keys of groups must be all integers or all strings: row {row} has {keys[row]!r}")
        refuse_final_nul(keys, "the keys of groups")
        return keys


def kind_of(keys: Iterable[Key]) -> str:
    """Return what kind of keys these are, "str" or "int"."""
    return "str" if isinstance(next(iter(keys), None), str) else "int"


def key_arrays(keys: Sequence[Key]) -> dict[str, NDArray[Any]]:
    """Return keys as arrays of a state file."""
    if kind_of(keys) == "int":
        return {"keys": np.array(keys, np.int64)}
    return checks.text_arrays(cast("Sequence[str]", keys), *_TEXT)


def keys_from(arrays: dict[str, NDArray[Any]]) -> Sequence[Key]:
    """Return the inverse; ValueError for what is none."""
    return arrays["keys"].tolist() if "keys" in arrays else checks.texts_of(arrays, *_TEXT)
