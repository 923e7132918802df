"""Binary codes learned from a stream: FROSH, OSH and relatives."""

from fastsketch.neighbours.hashing._sketch_hash import SketchHash

__all__ = ["SketchHash"]
