"""Low-rank models of partly observed matrices, under the loss that fits them."""

from fastsketch.lowrank._model import FoldedIn, LowRankModel

__all__ = ["FoldedIn", "LowRankModel"]
