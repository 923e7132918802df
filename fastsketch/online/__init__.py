"""Second-order online learners on sketches."""

from fastsketch.online._newton import SketchedNewton

__all__ = ["SketchedNewton"]
