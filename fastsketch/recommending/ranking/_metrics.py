"""Metrics of recommendations, one value per user.

All metrics take the same arguments:

- ``recommended`` (users, c) of integers: the items of each user, best first, without duplicates, as ``recommend`` of
  every model returns them. Shorter lists end with -1.
- ``relevant`` (users, items), scipy.sparse or an array: entries other than 0 are relevant. Relevance is binary; values
  are ignored. Items that must not be recommended, such as those already seen, should not be in it.
- ``k``: only the first k recommendations count (default: all c).

They return float64 (users,), with NaN for users without relevant items, for whom no metric is defined. The mean is
therefore ``np.nanmean``. To compare two models user by user, use
``mean_of(ndcg_at(a, relevant) - ndcg_at(b, relevant))``.

With h_r = 1 if the r-th item of the list is relevant (r from 1), n the number of the user's relevant items:

| metric | of one user |
|---|---|
| precision | sum_{r <= k} h_r / k |
| recall | sum_{r <= k} h_r / n; with `capped` / min(k, n) |
| NDCG | sum_{r <= k} h_r / log2(r + 1), over the same of min(k, n) hits at the front |
| MAP | sum_{r <= k} h_r (h_1 + ... + h_r) / r, over min(k, n) |
| MRR | 1 / r of the first hit, 0 if there is none among k |

References
----------
K. Jarvelin and J. Kekalainen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20 (2002) (NDCG); C. Buckley
and E. Voorhees, Retrieval system evaluation, in TREC (2005) (MAP, MRR).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.sparse import as_csr
from fastsketch._core.validation import Rows, as_array, as_flag, as_integer, as_rows, check_finite, is_sparse
from fastsketch.recommending.ranking._splits import row_indices

Values = NDArray[np.float64]
Indices = NDArray[np.int64]


def precision_at(recommended: ArrayLike, relevant: Rows, *, k: int | None = None) -> Values:
    """Compute the precision: the share of each user's first k recommendations that are relevant.

    The share is of k also for lists of fewer than k items.

    Parameters
    ----------
    recommended : (users, c) array of int
        Items of each user, best first, each once; -1 stands for no item.
    relevant : (users, items), scipy.sparse or array
        What is stored and not zero is relevant.
    k : int, optional
        The first k recommendations count, 1 <= k <= c; all c by default.

    Returns
    -------
    (users,) array of float64
        In [0, 1]; NaN for a user without relevant items.

    Raises
    ------
    TypeError, ValueError, IndexError
        If the lists are not such; the message names the user and the item.

    Examples
    --------
    >>> from fastsketch.recommending import ranking
    >>> recommended = [[2, 0, 3], [1, 3, 0]]
    >>> relevant = [[0, 0, 1, 1], [1, 0, 0, 0]]  # items 2 and 3; item 0
    >>> ranking.precision_at(recommended, relevant).round(3).tolist()  # two of three, one of three
    [0.667, 0.333]
    >>> ranking.precision_at(recommended, relevant, k=1).tolist()
    [1.0, 0.0]
    """
    hits, n = _hits(recommended, relevant, k)
    return hits.sum(axis=1) / hits.shape[1] + _nan_without_relevant(n)


def recall_at(recommended: ArrayLike, relevant: Rows, *, k: int | None = None, capped: bool = False) -> Values:
    """Compute the recall: the share of each user's relevant items among the first k recommendations.

    Parameters
    ----------
    recommended : (users, c) array of int
        Items of each user, best first, each once; -1 stands for no item.
    relevant : (users, items), scipy.sparse or array
        What is stored and not zero is relevant.
    k : int, optional
        The first k recommendations count, 1 <= k <= c; all c by default.
    capped : bool, default False
        The share is of all n relevant items, so that a user with n > k has at most k / n. With `capped` it is of
        min(k, n), and the best list of k has 1; papers print both under the name recall.

    Returns
    -------
    (users,) array of float64
        In [0, 1]; NaN for a user without relevant items.

    Raises
    ------
    TypeError, ValueError, IndexError
        If the lists are not such; the message names the user and the item.

    Examples
    --------
    One item is recommended to a user who would like either of two: half of them is found, and no list of one item finds
    more.

    >>> from fastsketch.recommending import ranking
    >>> relevant = [[0, 0, 1, 1]]
    >>> ranking.recall_at([[2, 0, 3]], relevant, k=1).tolist()
    [0.5]
    >>> ranking.recall_at([[2, 0, 3]], relevant, k=1, capped=True).tolist()
    [1.0]
    """
    hits, n = _hits(recommended, relevant, k)
    largest_hits = np.minimum(n, hits.shape[1]) if as_flag(capped, "capped") else n
    return hits.sum(axis=1) / np.maximum(largest_hits, 1) + _nan_without_relevant(n)


def ndcg_at(recommended: ArrayLike, relevant: Rows, *, k: int | None = None) -> Values:
    """Compute the normalised discounted cumulative gain (NDCG) of the first k recommendations.

    Relevance is binary. A hit at rank r gains 1 / log2(r + 1). The sum is divided by the largest possible one: that of
    min(k, n) hits at the first ranks, for a user with n relevant items.

    Parameters
    ----------
    recommended : (users, c) array of int
        Items of each user, best first, each once; -1 stands for no item.
    relevant : (users, items), scipy.sparse or array
        What is stored and not zero is relevant.
    k : int, optional
        The first k recommendations count, 1 <= k <= c; all c by default.

    Returns
    -------
    (users,) array of float64
        In [0, 1]; NaN for a user without relevant items.

    Raises
    ------
    TypeError, ValueError, IndexError
        If the lists are not such; the message names the user and the item.

    References
    ----------
    K. Jarvelin and J. Kekalainen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20 (2002).

    Examples
    --------
    Hits at ranks 1 and 3 gain 1 / log2(2) = 1 and 1 / log2(4) = 0.5; at ranks 1 and 2 they would gain 1 and 0.63.

    >>> from fastsketch.recommending import ranking
    >>> relevant = [[0, 0, 1, 1]]
    >>> ranking.ndcg_at([[2, 0, 3]], relevant).round(3).tolist()
    [0.92]
    >>> round(1.5 / (1 + 0.6309), 3)
    0.92
    >>> ranking.ndcg_at([[2, 3, 0]], relevant).tolist()
    [1.0]
    """
    hits, n = _hits(recommended, relevant, k)
    gains = 1.0 / np.log2(np.arange(2, hits.shape[1] + 2, dtype=np.float64))
    best = np.cumsum(gains)[np.clip(n, 1, hits.shape[1]) - 1]
    return np.where(hits, gains, 0.0).sum(axis=1) / best + _nan_without_relevant(n)


def average_precision_at(recommended: ArrayLike, relevant: Rows, *, k: int | None = None) -> Values:
    """Compute the average precision of the first k recommendations.

    It is the mean of the precision at each hit; its mean over users is MAP.

    The sum is divided by min(k, n), the largest possible number of hits. TREC's map_cut divides by n instead.

    Parameters
    ----------
    recommended : (users, c) array of int
        Items of each user, best first, each once; -1 stands for no item.
    relevant : (users, items), scipy.sparse or array
        What is stored and not zero is relevant.
    k : int, optional
        The first k recommendations count, 1 <= k <= c; all c by default.

    Returns
    -------
    (users,) array of float64
        In [0, 1]; NaN for a user without relevant items.

    Raises
    ------
    TypeError, ValueError, IndexError
        If the lists are not such; the message names the user and the item.

    References
    ----------
    C. Buckley and E. Voorhees, Retrieval system evaluation, in TREC (2005).

    Examples
    --------
    Of two relevant items one has rank 1, where the precision is 1, and the other rank 3, where it is 2 / 3.

    >>> from fastsketch.recommending import ranking
    >>> relevant = [[0, 0, 1, 1]]
    >>> ranking.average_precision_at([[2, 0, 3]], relevant).round(3).tolist(), round((1 + 2 / 3) / 2, 3)
    ([0.833], 0.833)
    """
    hits, n = _hits(recommended, relevant, k)
    length = hits.shape[1]
    precision = np.cumsum(hits, axis=1) / np.arange(1, length + 1, dtype=np.float64)
    return np.where(hits, precision, 0.0).sum(axis=1) / np.clip(n, 1, length) + _nan_without_relevant(n)


def reciprocal_rank_at(recommended: ArrayLike, relevant: Rows, *, k: int | None = None) -> Values:
    """Compute the reciprocal rank of the first relevant item among the first k recommendations.

    Its mean over users is MRR.

    Parameters
    ----------
    recommended : (users, c) array of int
        Items of each user, best first, each once; -1 stands for no item.
    relevant : (users, items), scipy.sparse or array
        What is stored and not zero is relevant.
    k : int, optional
        The first k recommendations count, 1 <= k <= c; all c by default.

    Returns
    -------
    (users,) array of float64
        1 / rank of the first hit, 0 without a hit; NaN for a user without relevant items.

    Raises
    ------
    TypeError, ValueError, IndexError
        If the lists are not such; the message names the user and the item.

    References
    ----------
    C. Buckley and E. Voorhees, Retrieval system evaluation, in TREC (2005).

    Examples
    --------
    The first of four users has a hit at rank 1, the second at rank 3, and the third none. The last has no relevant
    item.

    >>> import numpy as np
    >>> from fastsketch.recommending import ranking
    >>> relevant = [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    >>> found = ranking.reciprocal_rank_at([[0, 1, 3]] * 4, relevant)
    >>> found.round(3).tolist()
    [1.0, 0.333, 0.0, nan]
    >>> round(float(np.nanmean(found)), 3)
    0.444
    """
    hits, n = _hits(recommended, relevant, k)
    return np.where(hits.any(axis=1), 1.0 / (np.argmax(hits, axis=1) + 1), 0.0) + _nan_without_relevant(n)


def coverage_at(recommended: ArrayLike, n_items: int, *, k: int | None = None) -> float:
    """Compute the share of all items that are among the first k recommendations of at least one user.

    Parameters
    ----------
    recommended : (users, c) array of int
        Items of each user, best first, each once; -1 stands for no item.
    n_items : int
        Number of items.
    k : int, optional
        The first k recommendations count, 1 <= k <= c; all c by default.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError, ValueError, IndexError
        If the lists are not such; the message names the user and the item.

    Examples
    --------
    Lists of the most popular items have the same few items for all users.

    >>> from fastsketch.recommending import ranking
    >>> ranking.coverage_at([[0, 1], [0, 1], [0, 1]], n_items=8)
    0.25
    >>> ranking.coverage_at([[0, 1], [2, 3], [4, 0]], n_items=8)
    0.625
    """
    n_items = as_integer(n_items, "n_items", 1)
    lists = as_lists(recommended, n_items, k)
    return len(np.unique(lists[lists >= 0])) / n_items


# -- input -------------------------------------------------------------------------------------------------------------
def as_lists(recommended: ArrayLike, n_items: int, k: int | None = None) -> Indices:
    """Validate recommendations and return the first k of each user, int64 (users, k).

    Errors name the user and the item.
    """
    lists = as_array(recommended, "recommended")
    if lists.ndim != 2:
        raise ValueError(f"recommended must have shape (users, k), got {lists.shape}")
    if lists.dtype.kind not in "iu" and lists.size:
        raise TypeError(f"recommended must hold integers, got dtype {lists.dtype}")
    if lists.shape[1] == 0:
        raise ValueError(f"recommended must hold at least one item for a user, got shape {lists.shape}")
    if k is not None:
        if as_integer(k, "k", 1) > lists.shape[1]:
            raise ValueError(f"k must be at most the {lists.shape[1]} recommendations of a user, got {k}")
        lists = lists[:, :k]
    outside = (lists < -1) | (lists >= n_items)
    if outside.any():
        user, position = np.unravel_index(int(np.argmax(outside)), lists.shape)
        raise IndexError(
            f"recommended must hold items in [0, {n_items}), or -1 for none: user {user} has {lists[user, position]}"
        )
    lists = lists.astype(np.int64)
    ordered = np.sort(lists, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if repeated.any():
        user, position = np.unravel_index(int(np.argmax(repeated)), repeated.shape)
        raise ValueError(f"recommended must name an item once: user {user} has {ordered[user, position]} twice")
    return lists


def as_relevant(relevant: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp], tuple[int, int]]:
    """Return (users, items) of all entries that are not zero, and the shape of the matrix.

    Entries are ordered by user and item.
    """
    rows: Any = as_csr(relevant, "relevant") if is_sparse(relevant) else as_rows(relevant, name="relevant")
    check_finite(rows, "relevant")
    if not is_sparse(rows):
        users, items = np.nonzero(rows)
        return users, items, rows.shape
    is_relevant = rows.data != 0
    return row_indices(rows)[is_relevant], rows.indices[is_relevant].astype(np.intp), rows.shape


def _hits(recommended: ArrayLike, relevant: Rows, k: int | None) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return (mask (users, k) of relevant recommendations, number of relevant items of each user).

    The mask is (users, k).
    """
    users, items, (m, n) = as_relevant(relevant)
    lists = as_lists(recommended, n, k)
    if len(lists) != m:
        raise ValueError(f"recommended and relevant must have the same users, got {len(lists)} and {m} rows")
    # pairs as one number: with fewer than 2**31 columns, 2**32 rows do not overflow
    relevant_pairs = users.astype(np.int64) * n + items
    listed_pairs = np.arange(m)[:, np.newaxis] * n + lists
    position = np.searchsorted(relevant_pairs, listed_pairs)
    hits = (lists >= 0) & (np.append(relevant_pairs, -1)[position] == listed_pairs)
    return hits, np.bincount(users, minlength=m)


def _nan_without_relevant(n: NDArray[np.intp]) -> Values:
    """Return an array that is NaN for users without relevant items and 0 for others. Added to a metric, it marks users
    for whom none is defined.
    """
    return np.where(n > 0, 0.0, np.nan)


# -- means over users --------------------------------------------------------------------------------------------------
class Mean(NamedTuple):
    """Mean of a metric over users, and its standard error.

    Attributes
    ----------
    mean : float
        NaN if there are no users.
    standard_error : float
        Standard deviation (ddof=1) / sqrt(n_users); NaN for fewer than two users.
    n_users : int
        Number of users with a value.

    Examples
    --------
    >>> from fastsketch.recommending import ranking
    >>> precision = ranking.mean_of([0.2, 0.4, 0.6, 0.8])
    >>> f"{precision.mean:.2f} +- {precision.standard_error:.2f} over {precision.n_users} users"
    '0.50 +- 0.13 over 4 users'
    """

    mean: float
    standard_error: float
    n_users: int


class Ranking(NamedTuple):
    """Result of ``evaluate``: the mean of every metric over the users with relevant items, and the coverage.

    Attributes
    ----------
    precision, recall, ndcg, average_precision, reciprocal_rank : Mean
        Mean of the metric of the same name.
    coverage : float
        Share of the items that are recommended to at least one user.

    Examples
    --------
    >>> from fastsketch.recommending import ranking
    >>> found = ranking.evaluate([[0, 1], [1, 2]], [[0, 1, 0], [1, 1, 0]])
    >>> found.precision.mean, found.reciprocal_rank.mean, found.coverage
    (0.5, 0.75, 1.0)
    >>> [name for name, value in found._asdict().items() if isinstance(value, ranking.Mean)]
    ['precision', 'recall', 'ndcg', 'average_precision', 'reciprocal_rank']
    """

    precision: Mean
    recall: Mean
    ndcg: Mean
    average_precision: Mean
    reciprocal_rank: Mean
    coverage: float


def mean_of(values: ArrayLike) -> Mean:
    """Compute the mean of a metric over users and its standard error; NaN is ignored.

    Parameters
    ----------
    values : (users,) array of float64
        Values of a metric, or differences of two.

    Returns
    -------
    Mean
        (mean, standard_error, n_users).

    Examples
    --------
    The mean of differences is a paired comparison of two models, and more precise than a comparison of two means:

    >>> import numpy as np
    >>> from fastsketch.recommending import ranking
    >>> first, second = np.array([0.9, 0.5, 0.1, np.nan]), np.array([0.8, 0.4, 0.1, np.nan])
    >>> better = ranking.mean_of(first - second)
    >>> round(better.mean, 3), round(better.standard_error, 3), better.n_users
    (0.067, 0.033, 3)
    >>> round(ranking.mean_of(first).standard_error, 3)  # of one model alone
    0.231
    """
    try:
        user_values = as_array(values, "values").astype(np.float64).reshape(-1)
    except OverflowError as error:
        raise ValueError(f"values must be numbers that a float holds: {error}") from None
    user_values = user_values[~np.isnan(user_values)]
    n = len(user_values)
    mean = float(user_values.mean()) if n else float("nan")
    return Mean(mean, float(user_values.std(ddof=1)) / n**0.5 if n > 1 else float("nan"), n)


def evaluate(recommended: ArrayLike, relevant: Rows, *, k: int | None = None) -> Ranking:
    """Compute all ranking metrics of recommendations, averaged over users with standard errors.

    Parameters
    ----------
    recommended : (users, c) array of int
        Items of each user, best first, -1 where there is none.
    relevant : (users, items), scipy.sparse or array
        What is stored and not zero is relevant.
    k : int, optional
        The first k recommendations count, 1 <= k <= c; all c by default.

    Returns
    -------
    Ranking
        A Mean of precision, recall, ndcg, average_precision and reciprocal_rank, and the coverage.

    Raises
    ------
    TypeError, ValueError, IndexError
        If the lists are not such; the message names the user and the item.

    Examples
    --------
    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> relevant = sparse.csr_array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    >>> found = ranking.evaluate([[1, 3], [2, 0], [0, 1]], relevant)
    >>> found.recall.mean, found.recall.n_users  # 1/2 and 1; the third user has no relevant item
    (0.75, 2)
    >>> found.coverage
    1.0
    """
    metrics = precision_at, recall_at, ndcg_at, average_precision_at, reciprocal_rank_at
    means = [mean_of(metric(recommended, relevant, k=k)) for metric in metrics]
    return Ranking._make([*means, coverage_at(recommended, as_relevant(relevant)[2][1], k=k)])
