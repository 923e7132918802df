"""Sketches of row streams: Frequent Directions and its family on one buffer-and-shrink engine, and random maps."""

from fastsketch.sketching._choose import make_engine  # noqa: F401
from fastsketch.sketching._chunk import Chunk, plain_rows  # noqa: F401
from fastsketch.sketching._combine import shrink_rows  # noqa: F401
from fastsketch.sketching._compressor import Compressor, random_normal, raw_numbers  # noqa: F401
from fastsketch.sketching._config import SketchConfig  # noqa: F401
from fastsketch.sketching._frequent_directions import FrequentDirections, RobustFrequentDirections, merge
from fastsketch.sketching._hadamard import fwht, srht
from fastsketch.sketching._rules import rows_spared  # noqa: F401
from fastsketch.sketching._sketch_file import sketch_file

# The public names; the others serve the other models of the library.
__all__ = ["Compressor", "FrequentDirections", "RobustFrequentDirections", "fwht", "merge", "sketch_file", "srht"]
