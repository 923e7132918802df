"""Online linear learners: second order on sketches, and adaptive subgradients."""

from fastsketch.online._adaptive_subgradient import AdaptiveSubgradient
from fastsketch.online._sketched_newton import SketchedNewton

__all__ = ["AdaptiveSubgradient", "SketchedNewton"]
