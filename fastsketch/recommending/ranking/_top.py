"""Lists of the best items, from the scores of any model."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.sparse import as_csr
from fastsketch._core.validation import as_array, as_integer, as_subset, is_sparse
from fastsketch.recommending.ranking._splits import row_indices

# The number of scores that are sorted at a time.
BLOCK = 1 << 22


def top_items(
    scores: ArrayLike, n: int = 10, *, exclude: Any = None, allow: ArrayLike | None = None
) -> NDArray[np.int64]:
    """List the indices of the n items with the highest scores for every user, best first.

    Equal scores are ordered by item. Items with a score of minus infinity or NaN are never recommended.

    Parameters
    ----------
    scores : (users, items) array of real numbers
        Or (items,): the same scores, such as popularity, for all users of `exclude`.
    n : int, default 10
        The length of the lists.
    exclude : scipy.sparse (users, items), optional
        Items stored in a row are not recommended to this user; pass the items that users have seen.
    allow : vector of int, optional
        The only items that may be recommended; all by default.

    Returns
    -------
    (users, n) array of int64
        -1 where fewer than n items are left. For scores (items,) without `exclude`, (1, n).

    Raises
    ------
    TypeError, ValueError, IndexError
        If scores are not real numbers, shapes do not agree, or `allow` has an unknown item.

    Examples
    --------
    The simplest recommender: the most popular items that each user has not seen.

    >>> import numpy as np
    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> seen = sparse.csr_array([[1, 1, 0, 1], [0, 1, 0, 0], [0, 1, 0, 1]])
    >>> popularity = np.asarray(seen.sum(axis=0)).ravel()
    >>> popularity.tolist()
    [1, 3, 0, 2]
    >>> ranking.top_items(popularity, 2, exclude=seen).tolist()
    [[2, -1], [3, 0], [0, 2]]
    """
    n = as_integer(n, "n", 1)
    z = as_array(scores, "scores")
    if z.dtype.kind not in "fiub":
        raise TypeError(f"scores must hold real numbers, got dtype {z.dtype}")
    if z.ndim not in (1, 2):
        raise ValueError(f"scores must have shape (users, items) or (items,), got {z.shape}")
    if exclude is not None:
        if not is_sparse(exclude):
            raise TypeError(f"exclude must be a scipy.sparse matrix, got {type(exclude).__name__}")
        exclude = as_csr(exclude, "exclude")
        shape = z.shape if z.ndim == 2 else (exclude.shape[0], len(z))
        if exclude.shape != shape:
            raise ValueError(f"exclude must have shape {shape} as the scores, got {exclude.shape}")
    items = None if allow is None else as_subset(allow, z.shape[-1], "allow")
    if z.ndim == 1:
        items = _best_items(z, items, n if exclude is None else n + int(np.diff(exclude.indptr).max(initial=0)))
        z = np.broadcast_to(z, (1 if exclude is None else exclude.shape[0], len(z)))
    if items is not None and exclude is not None:
        exclude = exclude[:, items]
    lists = np.full((len(z), n), -1, np.int64)
    for start in range(0, len(z), step := max(1, BLOCK // max(1, z.shape[1]))):
        block = z[start : start + step]
        block_scores = np.array(block if items is None else block[:, items], np.float64)
        block_scores[np.isnan(block_scores)] = -np.inf
        if exclude is not None:
            seen = exclude[start : start + step]
            block_scores[row_indices(seen), seen.indices] = -np.inf
        best = np.argsort(-block_scores, axis=1, kind="stable")[:, :n]
        is_allowed = np.take_along_axis(block_scores, best, axis=1) > -np.inf
        lists[start : start + step, : best.shape[1]] = np.where(is_allowed, best if items is None else items[best], -1)
    return lists


def _best_items(scores: NDArray[Any], items: NDArray[np.int64] | None, number: int) -> NDArray[np.int64]:
    """Return those `number` of the given items that have the highest scores, in ascending order of item."""
    items = np.arange(len(scores)) if items is None else items
    item_scores = scores[items].astype(np.float64)
    item_scores[np.isnan(item_scores)] = -np.inf
    return np.sort(items[np.argsort(-item_scores, kind="stable")[:number]])
