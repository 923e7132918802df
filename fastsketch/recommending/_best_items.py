"""Recommendations, similar items and explanations, computed from item-to-item weights."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.recommending._item_events import csr_structure
from fastsketch.recommending._item_weights import ItemWeights, top_products


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
    """How much each item of a row contributes to the score of one target item.

    The score of the target is the sum of the contributions.

    Attributes
    ----------
    items : ndarray (r,) of int64, or of ids
        The items of the row, without the item itself, by descending contribution.
    contributions : ndarray (r,) of float64
    """

    items: NDArray[Any]
    contributions: NDArray[np.float64]


class ItemFilter(NamedTuple):
    """A filter that leaves items with events, in a list if one is given, and without those excluded for a row."""

    open_items: NDArray[np.bool_]  # items with events
    allowed: NDArray[np.int32] | None  # items of `allow` that are open, ascending; None: all open items
    exclude: Any  # CSR (k, items) of the items that each row may not get, or None


def recommend(
    weights: ItemWeights,
    events: Any,
    n: int,
    item_filter: ItemFilter,
    *,
    popularity: NDArray[np.float64],
    exclude_seen: bool,
) -> Recommendations:
    """Return the n items with the highest scores for every CSR row, best first, as Recommendations.

    A row without any item of positive `popularity` (items,) gets the most popular items, at score 0. With
    `exclude_seen` the items of the row are not recommended.
    """
    without_items = ~_mark_rows_with_items(events, popularity > 0)
    excluded = [] if item_filter.exclude is None else [csr_structure(item_filter.exclude)]
    items, scores = weights.top_items(
        events, n, item_filter.open_items, excluded, exclude_seen=exclude_seen, allowed=item_filter.allowed
    )
    if without_items.any():
        cold_rows = np.flatnonzero(without_items)
        open_popularity = np.where(item_filter.open_items, popularity, np.nan)
        exclusions = [csr_structure(events, cold_rows)] if exclude_seen else []
        if item_filter.exclude is not None:
            exclusions.append(csr_structure(item_filter.exclude, cold_rows))
        ones, columns = np.ones((len(cold_rows), 1)), open_popularity[:, np.newaxis]
        items[cold_rows], scores[cold_rows] = (
            top_products(ones, columns, n, left_out=exclusions, allowed=item_filter.allowed)[0],
            0.0,
        )
    scores[items < 0] = np.nan
    return Recommendations(items, scores)


def _mark_rows_with_items(events: Any, is_known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask (k,) of the CSR rows that have at least one item that the model knows, those where `is_known`
    (items,) is True.
    """
    sums = np.concatenate([[0], np.cumsum(is_known[events.indices])])
    return sums[events.indptr[1:]] > sums[events.indptr[:-1]]


def find_similar(
    weights: ItemWeights, query_items: NDArray[np.int64], n: int, open_items: NDArray[np.bool_]
) -> Recommendations:
    """Return for each query item the n items to whose scores it contributes most, best first, as Recommendations.

    `query_items` (k,) are column indices. Query items without events get -1 and NaN.
    """
    from scipy.sparse import csr_array

    csr_arrays = (
        np.ones(len(query_items), weights.z.dtype),
        query_items.astype(np.int32),
        np.arange(len(query_items) + 1),
    )
    rows = csr_array(csr_arrays, shape=(len(query_items), weights.n_items))
    items, scores = weights.top_items(rows, n, open_items, [], exclude_seen=True)
    items[~open_items[query_items]] = -1
    scores[items < 0] = np.nan
    return Recommendations(items, scores)


def explain_score(weights: ItemWeights, events: Any, target: int) -> Explanation:
    """Return how much each item of one CSR row contributes to the score of the item `target`, largest first.

    `events` has one row. The target itself is excluded, and contributions are in descending order.
    """
    row_items = events.indices.astype(np.int64)
    contributions = events.data.astype(np.float64) * weights.weights_of_target(row_items, target)
    row_items, contributions = row_items[row_items != target], contributions[row_items != target]
    order = np.argsort(-contributions, kind="stable")
    return Explanation(row_items[order], contributions[order])
