"""Streams that change: a model of the latest blocks of rows alone, and what differs between two sketches."""

from fastsketch.streams._compare import Comparison, compare
from fastsketch.streams._window import Window

__all__ = ["Comparison", "Window", "compare"]
