"""Codes that stand for rows: words for every nibble in a basis learned from a stream, and an offset a row."""

from fastsketch.neighbours.quantizing._sketch_quantizer import SketchQuantizer

__all__ = ["SketchQuantizer"]
