"""Validation of the arguments of a search: ids, filters and the number of neighbours."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_array, as_integer, as_integer_vector, require_array_like
from fastsketch.neighbours.codes._id_positions import find_positions, is_ascending, sorting_permutation

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

# A filter that selects fewer than one of this many codes is served by copying them: see ``positions_if_few``.
COPY_DIVISOR = 16
# The number of ids that an error message lists.
MAX_LISTED = 5


def as_ids(ids: ArrayLike | None, n: int, name: str = "ids") -> Places | None:
    """Validate the ids of n codes and return them as int64 (n,). Return None for None.

    TypeError or ValueError names the first fault, such as a duplicate.
    """
    if ids is None:
        return None
    out = as_integers(ids, name)
    if len(out) != n:
        raise ValueError(f"{name} must have one entry for each of the {n} codes, got {len(out)}")
    return require_distinct(out, name)


def as_mask(allow: ArrayLike | None, n: int, ids: Places | None, name: str = "allow") -> Mask | None:
    """Convert a filter, given as ids or as a mask, to a boolean mask over n codes. Return None for None."""
    if allow is None:
        return None
    array = as_array(allow, name)
    if array.dtype.kind == "b":
        if array.shape != (n,):
            raise ValueError(f"{name} as a mask must have one entry for each of the {n} codes, got shape {array.shape}")
        return np.ascontiguousarray(array)
    allowed_ids = require_distinct(as_integers(array, name), name)
    mask = np.zeros(n, np.bool_)
    mask[_positions_of_ids(allowed_ids, n, ids, name)] = True
    return mask


def as_k(k: int, n: int, allow: Mask | None) -> int:
    """Return the number of neighbours k after checking it: from 1 to the number of allowed codes."""
    k = as_integer(k, "k", 1)
    n_allowed = n if allow is None else int(np.count_nonzero(allow))
    if k > n_allowed:
        qualifier = "of the collection" if allow is None else "that are allowed"
        raise ValueError(f"k must be at most the {n_allowed} codes {qualifier}, got {k}")
    return k


def positions_if_few(allow: Mask | None) -> Places | None:
    """Return the positions of the allowed codes if they are so few that searching a copy of them is faster. Otherwise
    return None.

    They are few if they are less than 1 / COPY_DIVISOR of all codes.
    """
    return np.flatnonzero(allow) if allow is not None and COPY_DIVISOR * np.count_nonzero(allow) < len(allow) else None


def pack_mask(allow: Mask | None) -> NDArray[np.uint8] | None:
    """Pack a boolean mask into bits, as the kernels read it. Return None for None."""
    return None if allow is None else np.packbits(allow, bitorder="little")


def _positions_of_ids(query_ids: Places, n: int, ids: Places | None, name: str) -> Places:
    """Return the position of each given id among n codes. ValueError if one is unknown.

    Without `ids` the positions themselves are the ids.
    """
    positions = query_ids if ids is None else find_positions(sorting_permutation(ids), ids, query_ids)
    is_known = (positions >= 0) & (positions < n)
    if not is_known.all():
        expected = f"places of the {n} codes" if ids is None else "ids of the codes"
        raise ValueError(f"{name} must hold {expected}, got {int(query_ids[np.argmin(is_known)])}")
    return positions


def as_integers(values: ArrayLike, name: str) -> Places:
    """Convert a vector of integers to int64 (n,). Raise TypeError or ValueError if it is not one."""
    require_array_like(values, name)
    out = as_integer_vector(values, name)
    if out.dtype.kind == "u" and out.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2**63, got {out.max()}")
    return np.ascontiguousarray(out, np.int64)


def require_distinct(values: Places, name: str = "ids") -> Places:
    """Return the values unchanged. Raise ValueError, which lists duplicates, if they are not distinct."""
    if not is_ascending(values):
        ordered = np.sort(values)
        duplicates = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(duplicates):
            raise ValueError(f"{name} must be different, got {format_ids(duplicates)} more than once")
    return values


def format_ids(ids: Places) -> str:
    """Format the first few ids for an error message."""
    return ", ".join(map(str, ids[:MAX_LISTED].tolist())) + (", ..." if len(ids) > MAX_LISTED else "")
