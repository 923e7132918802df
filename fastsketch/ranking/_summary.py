"""Means over users, with their standard errors."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastsketch._validation import Rows
from fastsketch.ranking._metrics import (
    as_relevant,
    average_precision_at,
    coverage_at,
    ndcg_at,
    precision_at,
    recall_at,
    reciprocal_rank_at,
)


class Mean(NamedTuple):
    """A mean over users, and how far it may be from that of all users there could be.

    Attributes
    ----------
    mean : float
        NaN if there are no users.
    standard_error : float
        Standard deviation (ddof=1) / sqrt(n_users); NaN for fewer than two users.
    n_users : int
        Users that have a value.

    Examples
    --------
    >>> from fastsketch import ranking
    >>> precision = ranking.mean_of([0.2, 0.4, 0.6, 0.8])
    >>> f"{precision.mean:.2f} +- {precision.standard_error:.2f} over {precision.n_users} users"
    '0.50 +- 0.13 over 4 users'
    """

    mean: float
    standard_error: float
    n_users: int


class Ranking(NamedTuple):
    """What recommendations are worth, over the users who have relevant items; coverage over all.

    Attributes
    ----------
    precision, recall, ndcg, average_precision, reciprocal_rank : Mean
        Of the metric of the same name.
    coverage : float
        Share of the items that are recommended to anybody.

    Examples
    --------
    >>> from fastsketch import ranking
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
    """Average a value per user, with its standard error; NaN entries are users that say nothing.

    Parameters
    ----------
    values : (users,) array of float64
        What a metric returns, or a difference of two.

    Returns
    -------
    Mean
        (mean, standard_error, n_users).

    Examples
    --------
    Of differences between two models it is a paired comparison, which tells more than two means side by side: here each
    user is served a little better by the first.

    >>> import numpy as np
    >>> from fastsketch import ranking
    >>> first, second = np.array([0.9, 0.5, 0.1, np.nan]), np.array([0.8, 0.4, 0.1, np.nan])
    >>> better = ranking.mean_of(first - second)
    >>> round(better.mean, 3), round(better.standard_error, 3), better.n_users
    (0.067, 0.033, 3)
    >>> round(ranking.mean_of(first).standard_error, 3)  # of one model alone
    0.231
    """
    one = np.asarray(values, np.float64).reshape(-1)
    one = one[~np.isnan(one)]
    n = len(one)
    mean = float(one.mean()) if n else float("nan")
    return Mean(mean, float(one.std(ddof=1)) / n**0.5 if n > 1 else float("nan"), n)


def evaluate(recommended: ArrayLike, relevant: Rows, *, k: int | None = None) -> Ranking:
    """Compute every metric of recommendations, means over users with standard errors.

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
    >>> from fastsketch import ranking
    >>> relevant = sparse.csr_array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    >>> found = ranking.evaluate([[1, 3], [2, 0], [0, 1]], relevant)
    >>> found.recall.mean, found.recall.n_users  # a half and a whole; the third user has nothing to find
    (0.75, 2)
    >>> found.coverage
    1.0
    """
    return Ranking(
        precision=mean_of(precision_at(recommended, relevant, k=k)),
        recall=mean_of(recall_at(recommended, relevant, k=k)),
        ndcg=mean_of(ndcg_at(recommended, relevant, k=k)),
        average_precision=mean_of(average_precision_at(recommended, relevant, k=k)),
        reciprocal_rank=mean_of(reciprocal_rank_at(recommended, relevant, k=k)),
        coverage=coverage_at(recommended, as_relevant(relevant)[2][1], k=k),
    )
