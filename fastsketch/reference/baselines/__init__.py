"""Baseline models of other papers: hashing and matrix completion methods."""

from fastsketch.reference.baselines._absolute_completion import ADMML1, WibergL1
from fastsketch.reference.baselines._lsh import LSH
from fastsketch.reference.baselines._pca import ITQ, PCAHash
from fastsketch.reference.baselines._sgh import SGH
from fastsketch.reference.baselines._smooth_completion import AISImpute, AltMin

__all__ = ["ADMML1", "ITQ", "LSH", "SGH", "AISImpute", "AltMin", "PCAHash", "WibergL1"]
