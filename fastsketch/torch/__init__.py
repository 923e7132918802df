"""Optimisers for torch: Adam in sketched directions, adaptive subgradients with a sketched matrix (extra: torch)."""

from fastsketch.torch._optimizers import AdaFD, AdaFFD
from fastsketch.torch._sketched_soap import SketchedSOAP

__all__ = ["AdaFD", "AdaFFD", "SketchedSOAP"]
