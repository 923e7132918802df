"""scikit-learn estimators on the sketches and hashes (extra: sklearn)."""

from fastsketch.sklearn._covariance import SketchedCovariance
from fastsketch.sklearn._hasher import SketchHasher
from fastsketch.sklearn._pca import SketchedPCA

__all__ = ["SketchHasher", "SketchedCovariance", "SketchedPCA"]
