"""Answers of item weights: the best items of rows, neighbours of items, contributions of the items of a row."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.recommending._item_events import entries
from fastsketch.recommending._item_weights import ItemWeights, best_of
from fastsketch.recommending.ranking._splits import owners

# Rows whose own items are ranked beside the others at a time: few, as one row of many items makes the array wide.
BATCH = 256


class Recommendations(NamedTuple):
    """Best items of every row, best first.

    Attributes
    ----------
    items : ndarray (k, n) of int64
        -1 where fewer than n are left. Of a model with ids these: int64 of integers, else objects, None where none is.
    scores : ndarray (k, n) of float64
        NaN there.
    """

    items: NDArray[Any]
    scores: NDArray[np.float64]


class Explanation(NamedTuple):
    """Contributions of the items of a row to the score of an item; they add up to it.

    Attributes
    ----------
    items : ndarray (r,) of int64, or of ids
        Those of the row but the item itself, the largest contribution first.
    contributions : ndarray (r,) of float64
    """

    items: NDArray[Any]
    contributions: NDArray[np.float64]


class Limits(NamedTuple):
    """Limits on items: only those of `open_items`, without those stored in the row of a matrix."""

    open_items: NDArray[np.bool_]
    allowed: NDArray[np.int32] | None  # ascending, open; None: all that are open
    exclude: Any  # CSR (k, items) or None


def recommend(
    weights: ItemWeights, events: Any, n: int, limits: Limits, *, popularity: NDArray[np.float64], exclude_seen: bool
) -> Recommendations:
    """Return the n best items of every row of CSR events; of rows without a known item the most popular, at 0."""
    silent = ~_holds(events, popularity > 0)
    excluded = [] if limits.exclude is None else [entries(limits.exclude)]
    # walks have scores of all items, those of the rows themselves among them
    seen = [] if weights.walks is not None and not exclude_seen else [entries(events)]
    items, scores = weights.best(events, n, limits.open_items, [*seen, *excluded], allowed=limits.allowed)
    if weights.walks is None and not exclude_seen:
        for start in range(0, len(items), BATCH):
            part = slice(start, start + BATCH)
            projected = weights.projected(events[part])
            own_items, own_scores = _of_own_items(weights, events[part], projected, limits, part)
            both, values = np.hstack([items[part], own_items]), np.hstack([scores[part], own_scores])
            order = np.lexsort((both, -values), axis=1)[:, :n]
            items[part], scores[part] = np.take_along_axis(both, order, 1), np.take_along_axis(values, order, 1)
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
    """Return whether each row holds an item that is known."""
    sums = np.concatenate([[0], np.cumsum(known[events.indices])])
    return sums[events.indptr[1:]] > sums[events.indptr[:-1]]


def _of_own_items(weights: ItemWeights, events: Any, projected: Any, limits: Limits, part: slice) -> Any:
    """Return (items, scores) (k, most) of the items of the rows themselves, -1 and -inf where there are none."""
    length = np.diff(events.indptr)
    owner, held = owners(events), events.indices
    gain = weights.gain[held]
    # z_j = y . Z_j gain_j - x_j (gain_j - 1)
    z = np.einsum("ij,ij->i", projected[owner], weights.z[held]) * gain - events.data * (gain - 1)
    free = limits.open_items[held]
    if limits.allowed is not None:
        free &= np.isin(held, limits.allowed)
    if limits.exclude is not None:
        left_out = limits.exclude[part]
        width = events.shape[1]
        there = owners(left_out) * width + left_out.indices
        free &= ~np.isin(owner * width + held, there)
    items = np.full((events.shape[0], int(length.max(initial=0))), -1, np.int64)
    scores = np.full(items.shape, -np.inf)
    place = np.arange(len(held)) - events.indptr[owner]
    items[owner[free], place[free]], scores[owner[free], place[free]] = held[free], z[free]
    return items, scores


def similar(weights: ItemWeights, chosen: NDArray[np.int64], n: int, open_items: NDArray[np.bool_]) -> Recommendations:
    """Return the n items in whose scores each of the chosen items has the highest weights."""
    from scipy.sparse import csr_array

    alone = np.ones(len(chosen), weights.z.dtype), chosen.astype(np.int32), np.arange(len(chosen) + 1)
    rows = csr_array(alone, shape=(len(chosen), weights.n_items))
    items, scores = weights.best(rows, n, open_items, [entries(rows)])
    items[~open_items[chosen]] = -1
    scores[items < 0] = np.nan
    return Recommendations(items, scores)


def explained(weights: ItemWeights, events: Any, target: int) -> Explanation:
    """Return the contributions of the items of one CSR row to the score of `target`."""
    held = events.indices.astype(np.int64)
    given = events.data.astype(np.float64) * weights.of_target(held, target)
    held, given = held[held != target], given[held != target]
    order = np.argsort(-given, kind="stable")
    return Explanation(held[order], given[order])
