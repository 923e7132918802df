"""Ridge regression in one pass over the rows, with the penalty chosen by cross-validation."""

from fastsketch.ridge._sketched_ridge import SketchedRidge

__all__ = ["SketchedRidge"]
