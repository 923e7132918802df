"""A sketch for each group of rows, in one pass over the rows of all groups."""

from fastsketch.sketching._groups._sketch_groups import GroupSketches, sketch_groups

__all__ = ["GroupSketches", "sketch_groups"]
