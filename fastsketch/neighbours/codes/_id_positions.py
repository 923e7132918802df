"""Positions of ids, found by binary search, with a sorting permutation if the ids do not ascend."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Positions = NDArray[np.int64]
Order = NDArray[np.int32] | None  # sorts the ids; None: they ascend as they are


def is_ascending(values: Ids) -> bool:
    """Return True if each value is larger than the one before."""
    return bool((values[1:] > values[:-1]).all())


def sorting_permutation(ids: Ids, order: Order = None, n: int = 0) -> Order:
    """Return the permutation that sorts distinct ids, for binary search. Return None if they ascend already, which
    takes no memory.

    The first n ids have the permutation `order` already. New ids are inserted into it, which makes a copy.
    """
    if order is None and is_ascending(ids[max(n - 1, 0) :]):
        return None
    previous = np.arange(n, dtype=np.int32) if order is None else order
    added = (n + np.argsort(ids[n:])).astype(np.int32)
    return np.insert(previous, np.searchsorted(ids[:n], ids[added], sorter=order), added)


def find_positions(order: Order, ids: Ids, query_ids: Ids) -> Positions:
    """Find each query id among `ids` by binary search. Return its position, or -1 if it is missing.

    `order` is the permutation that sorts the ids, from ``sorting_permutation``.
    """
    if not len(ids):
        return np.full(len(query_ids), -1, np.int64)
    insertion = np.minimum(np.searchsorted(ids, query_ids, sorter=order), len(ids) - 1)
    positions = insertion if order is None else order[insertion].astype(np.int64)
    return np.where(ids[positions] == query_ids, positions, -1)
