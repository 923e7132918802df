"""scikit-learn estimators on the sketches (extra: sklearn)."""

from fastsketch.sklearn._covariance import SketchedCovariance
from fastsketch.sklearn._pca import SketchedPCA

__all__ = ["SketchedCovariance", "SketchedPCA"]
