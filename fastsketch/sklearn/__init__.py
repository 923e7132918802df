"""Estimators with the scikit-learn interface on fastsketch's sketches, hashes, linear learners and low-rank models.

They need the extra ``sklearn``.
"""

from fastsketch.sklearn._coders import SketchCoder, SketchHasher
from fastsketch.sklearn._completer import LowRankCompleter, LowRankFactors
from fastsketch.sklearn._online import (
    AdaptiveSubgradientClassifier,
    AdaptiveSubgradientRegressor,
    SketchedNewtonClassifier,
    SketchedNewtonRegressor,
)
from fastsketch.sklearn._recommender import EASERecommender
from fastsketch.sklearn._ridge import SketchedRidge, SketchedRidgeClassifier
from fastsketch.sklearn._sketched_covariance import SketchedCovariance
from fastsketch.sklearn._sketched_pca import SketchedPCA

__all__ = [
    "AdaptiveSubgradientClassifier",
    "AdaptiveSubgradientRegressor",
    "EASERecommender",
    "LowRankCompleter",
    "LowRankFactors",
    "SketchCoder",
    "SketchHasher",
    "SketchedCovariance",
    "SketchedNewtonClassifier",
    "SketchedNewtonRegressor",
    "SketchedPCA",
    "SketchedRidge",
    "SketchedRidgeClassifier",
]
