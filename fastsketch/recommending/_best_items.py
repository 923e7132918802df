"""Recommendations, similar items and explanations, computed from item-to-item weights."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.recommending._item_events import entries
from fastsketch.recommending._item_weights import ItemWeights, best_of


class Recommendations(NamedTuple):
    """Recommended items of every row and their scores, best first.

    Attributes
    ----------
    items : ndarray (k, n) of int64
        -1 where fewer than n items are left. Of a model with ids, the ids: int64 if they are integers, else objects,
        with None where fewer are left.
    scores : ndarray (k, n) of float64
        NaN where fewer than n items are left.
    """

    items: NDArray[Any]
    scores: NDArray[np.float64]


class Explanation(NamedTuple):
    """Contribution of each item in a row to the score of one target item.

    The score of the target is the sum of the contributions.

    Attributes
    ----------
    items : ndarray (r,) of int64, or of ids
        The items of the row, without the item itself, by descending contribution.
    contributions : ndarray (r,) of float64
    """

    items: NDArray[Any]
    contributions: NDArray[np.float64]


class Limits(NamedTuple):
    """Filters on the items that may be recommended."""

    open_items: NDArray[np.bool_]  # items with events
    allowed: NDArray[np.int32] | None  # items of `allow` that are open, ascending; None: all open items
    exclude: Any  # CSR (k, items) of the items that each row may not get, or None


def recommend(
    weights: ItemWeights, events: Any, n: int, limits: Limits, *, popularity: NDArray[np.float64], exclude_seen: bool
) -> Recommendations:
    """Recommend the n best items for every CSR row. Rows without known items get the most popular ones, at score 0.

    An item is known if its `popularity` is positive.
    """
    silent = ~_holds(events, popularity > 0)
    excluded = [] if limits.exclude is None else [entries(limits.exclude)]
    items, scores = weights.best(
        events, n, limits.open_items, excluded, exclude_seen=exclude_seen, allowed=limits.allowed
    )
    if silent.any():
        line = np.flatnonzero(silent)
        open_popularity = np.where(limits.open_items, popularity, np.nan)
        lists = [entries(events, line)] if exclude_seen else []
        if limits.exclude is not None:
            lists.append(entries(limits.exclude, line))
        one, columns = np.ones((len(line), 1)), open_popularity[:, np.newaxis]
        items[line], scores[line] = best_of(one, columns, n, left_out=lists, allowed=limits.allowed)[0], 0.0
    scores[items < 0] = np.nan
    return Recommendations(items, scores)


def _holds(events: Any, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a boolean mask of the CSR rows with an entry in any column where `known` is True."""
    sums = np.concatenate([[0], np.cumsum(known[events.indices])])
    return sums[events.indptr[1:]] > sums[events.indptr[:-1]]


def similar(weights: ItemWeights, chosen: NDArray[np.int64], n: int, open_items: NDArray[np.bool_]) -> Recommendations:
    """Find the n items to whose scores each chosen item contributes most."""
    from scipy.sparse import csr_array

    alone = np.ones(len(chosen), weights.z.dtype), chosen.astype(np.int32), np.arange(len(chosen) + 1)
    rows = csr_array(alone, shape=(len(chosen), weights.n_items))
    items, scores = weights.best(rows, n, open_items, [], exclude_seen=True)
    items[~open_items[chosen]] = -1
    scores[items < 0] = np.nan
    return Recommendations(items, scores)


def explained(weights: ItemWeights, events: Any, target: int) -> Explanation:
    """Return how much each item of one CSR row contributes to the score of the item `target`.

    The target itself is left out, and contributions descend.
    """
    held = events.indices.astype(np.int64)
    given = events.data.astype(np.float64) * weights.of_target(held, target)
    held, given = held[held != target], given[held != target]
    order = np.argsort(-given, kind="stable")
    return Explanation(held[order], given[order])
