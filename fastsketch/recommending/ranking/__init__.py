"""Metrics of recommendations, and splits into training and held-out events."""

from fastsketch.recommending.ranking._metrics import (
    Mean,
    Ranking,
    average_precision_at,
    coverage_at,
    evaluate,
    mean_of,
    ndcg_at,
    precision_at,
    recall_at,
    reciprocal_rank_at,
)
from fastsketch.recommending.ranking._splits import (
    Split,
    TimeSplit,
    UserSplit,
    leave_one_out,
    random_split,
    time_split,
    user_split,
)
from fastsketch.recommending.ranking._top import top_items

__all__ = [
    "Mean",
    "Ranking",
    "Split",
    "TimeSplit",
    "UserSplit",
    "average_precision_at",
    "coverage_at",
    "evaluate",
    "leave_one_out",
    "mean_of",
    "ndcg_at",
    "precision_at",
    "random_split",
    "recall_at",
    "reciprocal_rank_at",
    "time_split",
    "top_items",
    "user_split",
]
