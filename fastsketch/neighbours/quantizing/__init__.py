"""Quantizers of rows: transform coding in a basis learned from a stream."""

from fastsketch.neighbours.quantizing._sketch_quantizer import SketchQuantizer

__all__ = ["SketchQuantizer"]
