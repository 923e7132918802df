"""Positions of ids by binary search, with a sorting permutation if the ids do not ascend."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Positions = NDArray[np.int64]
Order = NDArray[np.int32] | None  # sorts the ids; None: they ascend as they are


def ascending(values: Ids) -> bool:
    """Return True if each value is larger than the one before."""
    return bool((values[1:] > values[:-1]).all())


def order_of(ids: Ids, order: Order = None, n: int = 0) -> Order:
    """Return the permutation that sorts distinct ids, or None if they ascend.

    The first n ids have the permutation `order` already.

    Ids that ascend need no memory. Where they do not, new ids are inserted into the sorted order, which copies it.
    """
    if order is None and ascending(ids[max(n - 1, 0) :]):
        return None
    before = np.arange(n, dtype=np.int32) if order is None else order
    added = (n + np.argsort(ids[n:])).astype(np.int32)
    return np.insert(before, np.searchsorted(ids[:n], ids[added], sorter=order), added)


def find(order: Order, ids: Ids, wanted: Ids) -> Positions:
    """Return the position of each wanted id, or -1 if it is not among the ids.

    `order` is the permutation that sorts the ids, from ``order_of``.
    """
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    positions = at if order is None else order[at].astype(np.int64)
    return np.where(ids[positions] == wanted, positions, -1)
