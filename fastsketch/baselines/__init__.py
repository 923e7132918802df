"""What the models of the library are compared with: hashes (LSH, PCAHash, ITQ, SGH)."""

from fastsketch.baselines._lsh import LSH
from fastsketch.baselines._pca import ITQ, PCAHash
from fastsketch.baselines._sgh import SGH

__all__ = ["ITQ", "LSH", "SGH", "PCAHash"]
