"""Low-rank models of partly observed matrices, under the loss that fits them."""

from fastsketch.lowrank._baselines import ADMML1, AISImpute, AltMin, WibergL1
from fastsketch.lowrank._model import LowRankModel
from fastsketch.lowrank._queries import FoldedIn

__all__ = ["ADMML1", "AISImpute", "AltMin", "FoldedIn", "LowRankModel", "WibergL1"]
