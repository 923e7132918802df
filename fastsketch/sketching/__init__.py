"""Sketches of streams of rows: the Frequent Directions family, random maps, and separate sketches of groups."""

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
