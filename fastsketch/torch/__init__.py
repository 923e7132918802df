"""Optimisers for torch: adaptive subgradients with a sketched matrix (extra: torch)."""

from fastsketch.torch._optimizers import AdaFD, AdaFFD

__all__ = ["AdaFD", "AdaFFD"]
