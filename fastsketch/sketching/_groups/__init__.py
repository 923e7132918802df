"""One sketch a group, in one pass over rows of all groups."""

from fastsketch.sketching._groups._sketch_groups import sketch_groups
from fastsketch.sketching._groups._sketches import GroupSketches

__all__ = ["GroupSketches", "sketch_groups"]
