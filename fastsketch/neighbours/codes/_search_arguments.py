"""Validation of the arguments of a search: ids, filters and the number of neighbours."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_array, as_integer, as_integer_vector, require_array_like
from fastsketch.neighbours.codes._places import ascending, find, order_of

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

# A filter that selects fewer than one of this many codes is served by copying them: see ``few``.
FEW = 16
# The number of ids that an error message lists.
SHOWN = 5


def as_ids(ids: ArrayLike | None, n: int, name: str = "ids") -> Places | None:
    """Validate the ids of n codes and return them as int64 (n,). Return None for None.

    TypeError or ValueError names the first fault, such as a duplicate.
    """
    if ids is None:
        return None
    out = as_integers(ids, name)
    if len(out) != n:
        raise ValueError(f"{name} must have one entry for each of the {n} codes, got {len(out)}")
    return different(out, name)


def allowed(allow: ArrayLike | None, n: int, ids: Places | None, name: str = "allow") -> Mask | None:
    """Convert a filter, given as ids or as a mask, to a boolean mask over n codes. Return None for None."""
    if allow is None:
        return None
    given = as_array(allow, name)
    if given.dtype.kind == "b":
        if given.shape != (n,):
            raise ValueError(f"{name} as a mask must have one entry for each of the {n} codes, got shape {given.shape}")
        return np.ascontiguousarray(given)
    wanted = different(as_integers(given, name), name)
    mask = np.zeros(n, np.bool_)
    mask[_places(wanted, n, ids, name)] = True
    return mask


def as_k(k: int, n: int, allow: Mask | None) -> int:
    """Validate the number of neighbours k. Raise ValueError unless it is from 1 to the number of allowed codes."""
    k = as_integer(k, "k", 1)
    most = n if allow is None else int(np.count_nonzero(allow))
    if k > most:
        of = "of the collection" if allow is None else "that are allowed"
        raise ValueError(f"k must be at most the {most} codes {of}, got {k}")
    return k


def few(allow: Mask | None) -> Places | None:
    """Return the positions of the allowed codes if they are so few that copying them is faster, else None."""
    return np.flatnonzero(allow) if allow is not None and FEW * np.count_nonzero(allow) < len(allow) else None


def bits_of(allow: Mask | None) -> NDArray[np.uint8] | None:
    """Pack a boolean mask into bits, as the kernels read it. Return None for None."""
    return None if allow is None else np.packbits(allow, bitorder="little")


def _places(wanted: Places, n: int, ids: Places | None, name: str) -> Places:
    """Return the positions of ids among n codes. Raise ValueError if an id is unknown.

    Without `ids` the positions themselves are the ids.
    """
    places = wanted if ids is None else find(order_of(ids), ids, wanted)
    known = (places >= 0) & (places < n)
    if not known.all():
        what = f"places of the {n} codes" if ids is None else "ids of the codes"
        raise ValueError(f"{name} must hold {what}, got {int(wanted[np.argmin(known)])}")
    return places


def as_integers(values: ArrayLike, name: str) -> Places:
    """Convert a vector of integers to int64 (n,). Raise TypeError or ValueError if it is not one."""
    require_array_like(values, name)
    out = as_integer_vector(values, name)
    if out.dtype.kind == "u" and out.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2**63, got {out.max()}")
    return np.ascontiguousarray(out, np.int64)


def different(values: Places, name: str = "ids") -> Places:
    """Return the values unchanged. Raise ValueError, which lists duplicates, if they are not distinct."""
    if not ascending(values):
        ordered = np.sort(values)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(twice):
            raise ValueError(f"{name} must be different, got {shown(twice)} more than once")
    return values


def shown(ids: Places) -> str:
    """Format the first few ids for an error message."""
    return ", ".join(map(str, ids[:SHOWN].tolist())) + (", ..." if len(ids) > SHOWN else "")
