"""Recommender of items: EASE from a sketch of users' rows."""

from fastsketch.recommending._sketched_ease import SketchedEASE

__all__ = ["SketchedEASE"]
