"""scikit-learn estimators on the sketches, hashes, online learners and low-rank models (extra: sklearn)."""

from fastsketch.sklearn._adaptive import AdaptiveSubgradientClassifier, AdaptiveSubgradientRegressor
from fastsketch.sklearn._completer import LowRankCompleter
from fastsketch.sklearn._covariance import SketchedCovariance
from fastsketch.sklearn._hasher import SketchHasher
from fastsketch.sklearn._newton import SketchedNewtonClassifier, SketchedNewtonRegressor
from fastsketch.sklearn._pca import SketchedPCA

__all__ = [
    "AdaptiveSubgradientClassifier",
    "AdaptiveSubgradientRegressor",
    "LowRankCompleter",
    "SketchHasher",
    "SketchedCovariance",
    "SketchedNewtonClassifier",
    "SketchedNewtonRegressor",
    "SketchedPCA",
]
