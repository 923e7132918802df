"""What the models of the library are compared with: matrix completion (AISImpute, AltMin, ADMML1, WibergL1)."""

from fastsketch.baselines._absolute_completion import ADMML1, WibergL1
from fastsketch.baselines._smooth_completion import AISImpute, AltMin

__all__ = ["ADMML1", "AISImpute", "AltMin", "WibergL1"]
