"""Sketches of row streams: Frequent Directions and its family on one buffer-and-shrink engine, and random maps."""

from fastsketch.sketching._frequent_directions import FrequentDirections, RobustFrequentDirections, SecondPass
from fastsketch.sketching._hadamard import fwht, srht
from fastsketch.sketching._random_maps import Compressor
from fastsketch.sketching._sketch_groups import GroupSketches, sketch_groups

__all__ = [
    "Compressor",
    "FrequentDirections",
    "GroupSketches",
    "RobustFrequentDirections",
    "SecondPass",
    "fwht",
    "sketch_groups",
    "srht",
]
