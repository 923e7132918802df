"""Low-rank models for matrix completion, under losses for numbers, labels and counts."""

from fastsketch.lowrank._fitted import HistoryLine
from fastsketch.lowrank._gap_moments import GapMoments as GapMoments  # so that state files of it can be loaded
from fastsketch.lowrank._model import LowRankModel
from fastsketch.lowrank._queries import FoldedIn

__all__ = ["FoldedIn", "HistoryLine", "LowRankModel"]
