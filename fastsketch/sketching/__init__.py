"""Sketches of row streams: Frequent Directions and its family on one buffer-and-shrink engine."""

from fastsketch.sketching._frequent_directions import FrequentDirections, RobustFrequentDirections, merge
from fastsketch.sketching._sketch_file import sketch_file

__all__ = ["FrequentDirections", "RobustFrequentDirections", "merge", "sketch_file"]
