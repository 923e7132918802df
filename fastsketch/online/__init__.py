"""Online linear models: SketchedNewton (sketched second-order steps) and AdaptiveSubgradient (AdaGrad family)."""

from fastsketch.online._adaptive_subgradient import AdaptiveSubgradient
from fastsketch.online._sketched_newton import SketchedNewton

__all__ = ["AdaptiveSubgradient", "SketchedNewton"]
