"""Optimisers for torch: Adam in sketched directions, and adaptive subgradient methods with sketched matrices.

They need the extra ``torch``.
"""

from fastsketch.torch._optimizers import AdaFD, AdaFFD
from fastsketch.torch._sketched_soap import SketchedSOAP

__all__ = ["AdaFD", "AdaFFD", "SketchedSOAP"]
