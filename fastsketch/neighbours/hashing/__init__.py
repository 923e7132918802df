"""Binary hash codes learned from a stream: FROSH, OSH and related methods."""

from fastsketch.neighbours.hashing._sketch_hash import SketchHash

__all__ = ["SketchHash"]
