"""Item recommender that learns the linear model EASE in one pass over the events of users."""

from fastsketch.recommending._sketched_ease import SketchedEASE

__all__ = ["SketchedEASE"]
