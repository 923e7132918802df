"""What the models of the library are compared with: hashes, and methods of matrix completion."""

from fastsketch.baselines._absolute_completion import ADMML1, WibergL1
from fastsketch.baselines._lsh import LSH
from fastsketch.baselines._pca import ITQ, PCAHash
from fastsketch.baselines._sgh import SGH
from fastsketch.baselines._smooth_completion import AISImpute, AltMin

__all__ = ["ADMML1", "ITQ", "LSH", "SGH", "AISImpute", "AltMin", "PCAHash", "WibergL1"]
