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
    """A mean over users, and how far it may be from that of all users there could be."""

    mean: float  # NaN if there are no users
    standard_error: float  # standard deviation (ddof=1) / sqrt(n_users); NaN for fewer than two
    n_users: int


class Ranking(NamedTuple):
    """What recommendations are worth, over the users who have relevant items; coverage over all."""

    precision: Mean
    recall: Mean
    ndcg: Mean
    average_precision: Mean
    reciprocal_rank: Mean
    coverage: float


def mean_of(values: ArrayLike) -> Mean:
    """The mean of a value per user and its standard error; NaN entries are users that say nothing.

    Of differences between two models it is a paired comparison: ``mean_of(ndcg_at(a, r) - ndcg_at(b, r))``.
    """
    one = np.asarray(values, np.float64).reshape(-1)
    one = one[~np.isnan(one)]
    n = len(one)
    mean = float(one.mean()) if n else float("nan")
    return Mean(mean, float(one.std(ddof=1)) / n**0.5 if n > 1 else float("nan"), n)


def evaluate(recommended: ArrayLike, relevant: Rows, *, k: int | None = None) -> Ranking:
    """Every metric of recommendations, means with standard errors.

    Parameters
    ----------
    recommended : (users, c) int
        Items of each user, best first, -1 where there is none.
    relevant : (users, items), scipy.sparse or array
        What is stored and not zero is relevant.
    k : int, optional
        The first k recommendations count; all by default.

    Examples
    --------
    >>> from scipy import sparse
    >>> relevant = sparse.csr_array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    >>> found = evaluate([[1, 3], [2, 0], [0, 1]], relevant)
    >>> found.recall.mean, found.recall.n_users, found.coverage
    (0.75, 2, 1.0)
    """
    return Ranking(
        precision=mean_of(precision_at(recommended, relevant, k=k)),
        recall=mean_of(recall_at(recommended, relevant, k=k)),
        ndcg=mean_of(ndcg_at(recommended, relevant, k=k)),
        average_precision=mean_of(average_precision_at(recommended, relevant, k=k)),
        reciprocal_rank=mean_of(reciprocal_rank_at(recommended, relevant, k=k)),
        coverage=coverage_at(recommended, as_relevant(relevant)[2][1], k=k),
    )
