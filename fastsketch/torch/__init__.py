"""Sketches of tensors on their device, and optimizers with sketched matrices, for torch.

They need the extra ``torch``.
"""

from fastsketch.torch._collect import collect, load_sketches, save_sketches
from fastsketch.torch._frequent_directions import FrequentDirections
from fastsketch.torch._optimizers import AdaFD, AdaFFD
from fastsketch.torch._sketched_soap import SketchedSOAP

__all__ = ["AdaFD", "AdaFFD", "FrequentDirections", "SketchedSOAP", "collect", "load_sketches", "save_sketches"]
