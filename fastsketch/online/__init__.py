"""Online linear learners: second order on sketches, and adaptive subgradients."""

from fastsketch.online._adaptive import AdaptiveGrid, AdaptiveSubgradient
from fastsketch.online._newton import SketchedNewton

__all__ = ["AdaptiveGrid", "AdaptiveSubgradient", "SketchedNewton"]
