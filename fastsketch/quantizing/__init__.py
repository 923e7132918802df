"""Codes that stand for rows: scalar levels in a basis learned from a stream, and two factors a row."""

from fastsketch.quantizing._encoder import BookEncoder
from fastsketch.quantizing._sketch_quantizer import SketchQuantizer

__all__ = ["BookEncoder", "SketchQuantizer"]
