"""Ridge regression from one pass: a sketch of the rows, exact products with the targets, a penalty chosen on rows."""

from fastsketch.ridge._sketched_ridge import SketchedRidge

__all__ = ["SketchedRidge"]
