"""Arguments of a search: ids of codes, the codes that may be found, and their number."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_array, as_integer, as_integer_vector, require_array_like
from fastsketch.neighbours.codes._places import ascending, find, with_run

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Less than one of so many codes is few.
FEW = 16
# Ids that an error names.
SHOWN = 5


def as_ids(ids: ArrayLike | None, n: int, name: str = "ids") -> Places | None:
    """Return int64 (n,) without duplicates, or None; TypeError or ValueError names the first fault."""
    if ids is None:
        return None
    out = as_integers(ids, name)
    if len(out) != n:
        raise ValueError(f"{name} must have one entry for each of the {n} codes, got {len(out)}")
    return different(out, name)


def allowed(allow: ArrayLike | None, n: int, ids: Places | None, name: str = "allow") -> Mask | None:
    """Return which of n codes may be found, bool (n,), from a mask or from different ids; None for all of them."""
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
    """Return k, which must be 1 at least and at most the number of the n codes that may be found."""
    k = as_integer(k, "k", 1)
    most = n if allow is None else int(np.count_nonzero(allow))
    if k > most:
        of = "of the collection" if allow is None else "that are allowed"
        raise ValueError(f"k must be at most the {most} codes {of}, got {k}")
    return k


def few(allow: Mask | None) -> Places | None:
    """Return the places of the codes that may be found, if they are so few that they are better taken out."""
    return np.flatnonzero(allow) if allow is not None and FEW * np.count_nonzero(allow) < len(allow) else None


def bits_of(allow: Mask | None) -> NDArray[np.uint8] | None:
    """Return a mask as the kernels read it."""
    return None if allow is None else np.packbits(allow, bitorder="little")


def _places(wanted: Places, n: int, ids: Places | None, name: str) -> Places:
    """Return where the wanted ids are; ValueError names one that is nowhere."""
    places = wanted if ids is None else find(with_run((), ids), ids, wanted)
    known = (places >= 0) & (places < n)
    if not known.all():
        what = f"places of the {n} codes" if ids is None else "ids of the codes"
        raise ValueError(f"{name} must hold {what}, got {int(wanted[np.argmin(known)])}")
    return places


def as_integers(values: ArrayLike, name: str) -> Places:
    """Return int64 (n,); TypeError or ValueError for what is none."""
    require_array_like(values, name)
    out = as_integer_vector(values, name)
    if out.dtype.kind == "u" and out.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2**63, got {out.max()}")
    return np.ascontiguousarray(out, np.int64)


def different(values: Places, name: str = "ids") -> Places:
    """Return the same values; ValueError that lists those that come twice."""
    if not ascending(values):
        ordered = np.sort(values)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(twice):
            raise ValueError(f"{name} must be different, got {shown(twice)} more than once")
    return values


def shown(ids: Places) -> str:
    """Return the first of some ids, for an error."""
    return ", ".join(map(str, ids[:SHOWN].tolist())) + (", ..." if len(ids) > SHOWN else "")
