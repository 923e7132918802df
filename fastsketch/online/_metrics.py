"""How a model does while it learns: metrics of progressive scores, each row predicted before it was learned from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import frexp, inf, sqrt
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online import metrics as kernel
from fastsketch._kernels.online.metrics import (
    ABSOLUTE,
    BINS,
    LOG_LOSS,
    METRIC_SUMS,
    RIGHT,
    SQUARED,
    UNIT,
    WEIGHT,
)
from fastsketch._losses import LOSSES
from fastsketch.io import _checks as checks
from fastsketch.online._state import Arrays, Counts, Floats, Zeros

# UNIT is at most this, and then made 1 again: see the kernel.
MOST_UNIT = 1e120


class Figures(TypedDict):
    """Metrics by name: None for what does not belong to such targets, or is not known yet."""

    log_loss: float | None
    accuracy: float | None
    auc: float | None
    mean_absolute_error: float | None
    root_mean_squared_error: float | None


@dataclass(slots=True)
class Metrics(Arrays):
    """Sums over the rows seen, each row counting ``sample_weight * decay^age``.

    Log loss is that of probabilities clipped to [2^-52, 1 - 2^-52], as scikit-learn clips those in float64; of more
    than two classes, only from below. AUC is that of scores cut to seven significant bits (ties count half), of which
    those beyond 32 are equal and those within 2^-9 of zero are so for each sign. A row is right if the score of its
    class is above all others. The first row of a class that nobody knew is wrong, and its log loss that of a state
    that begins with it.
    """

    how: int  # what a score stands for: LOG_ODDS, HALVES or REAL of the kernel
    decay: float
    metric_sums: Floats  # entries of _kernels/online/metrics
    auc_bins: Floats | None  # (2, BINS), of two classes alone

    # -- rows ------------------------------------------------------------------------------------------------------
    def take_in(
        self,
        scores: Floats,
        targets: Floats,
        weights: Floats | None,
        *,
        signs: Sequence[float] = (),
        numbers: Counts | None = None,
        is_new: bool = False,
    ) -> None:
        """Rows with the scores (k, n) and the targets (k, n) of their states, each from before it was learned.

        Of more than two classes, k states have signs, and rows class numbers (n,); is_new: that of row 0 is new.
        """
        if self.how == kernel.REAL:
            kernel.take_real(self.metric_sums, scores[0], targets[0], weights, self.decay)
        elif len(scores) == 1:
            kernel.take_two(self.metric_sums, self.auc_bins, scores[0], targets[0], weights, self.decay, self.how)
        else:
            self.auc_bins, places = None, cast(Counts, numbers)
            kernel.take_more(self.metric_sums, scores, np.array(signs), places, weights, self.decay, self.how, is_new)

    def take_one(self, score: float, target: float, weight: float) -> None:
        """One row of one state: the same, without arrays."""
        kernel.take_one(self.metric_sums, self.auc_bins, score, target, weight, self.decay, self.how)

    # -- what they say ---------------------------------------------------------------------------------------------
    def figures(self) -> Figures:
        """All of them."""
        real = self.how == kernel.REAL
        return {
            "log_loss": None if real else self.log_loss,
            "accuracy": None if real else self.accuracy,
            "auc": self.auc,
            "mean_absolute_error": self.mean_absolute_error if real else None,
            "root_mean_squared_error": self.root_mean_squared_error if real else None,
        }

    def _mean(self, entry: int) -> float | None:
        total = float(self.metric_sums[WEIGHT])
        return float(self.metric_sums[entry]) / total if 0 < total < inf else None

    @property
    def log_loss(self) -> float | None:
        """Mean of -log(probability of the class that came); None before the first row of positive weight."""
        return self._mean(LOG_LOSS)

    @property
    def accuracy(self) -> float | None:
        """Share of the weight of rows whose class was predicted."""
        return self._mean(RIGHT)

    @property
    def mean_absolute_error(self) -> float | None:
        """Mean of |prediction - target|."""
        return self._mean(ABSOLUTE)

    @property
    def root_mean_squared_error(self) -> float | None:
        """Root of the mean of (prediction - target)^2."""
        mean = self._mean(SQUARED)
        return None if mean is None else sqrt(mean)

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve; None for other than two classes, or before rows of both have come."""
        if self.auc_bins is None:
            return None
        largest = float(self.auc_bins.max())
        if not 0 < largest < inf:
            return None
        # no product overflows, and none of counts is rounded: the order of the classes changes no bit
        negative, positive = np.ldexp(self.auc_bins, -frexp(largest)[1])
        pairs = float(negative.sum()) * float(positive.sum())
        if not pairs > 0:
            return None
        below = np.cumsum(negative) - 0.5 * negative  # ties count half
        return min(float(positive @ below) / pairs, 1.0)

    # -- keeping them ----------------------------------------------------------------------------------------------
    def validate(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless these are sums that rows could have made; returns their names."""
        sums = checks.sums(arrays, "metric_sums", (METRIC_SUMS,), low=0.0)
        checks.number_within(sums[UNIT], "unit of the metrics", 1.0, MOST_UNIT)
        checks.number_within(sums[RIGHT], "weight of right predictions", 0.0, sums[WEIGHT])
        if "auc_bins" not in arrays:
            return {"metric_sums"}
        checks.sums(arrays, "auc_bins", (2, BINS), low=0.0)
        return {"metric_sums", "auc_bins"}

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put in what ``saved`` gave."""
        self.metric_sums = np.ascontiguousarray(arrays["metric_sums"])
        bins = arrays.get("auc_bins")
        self.auc_bins = None if bins is None else np.ascontiguousarray(bins)


def start(loss: str, decay: float = 1.0, zeros: Zeros = np.zeros, *, calibrated: bool = False) -> Metrics:
    """Metrics of no rows: of two classes until others come, or of real targets."""
    if LOSSES[loss].targets != "label":
        how = kernel.REAL
    elif calibrated:
        how = kernel.CALIBRATED
    else:
        how = kernel.LOG_ODDS if loss == "logistic" else kernel.HALVES
    sums = np.zeros(METRIC_SUMS)
    sums[UNIT] = 1.0
    return Metrics(how, decay, sums, None if how == kernel.REAL else zeros((2, BINS)))
