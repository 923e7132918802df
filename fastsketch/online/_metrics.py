"""How a model does while it learns: metrics of progressive scores, each row predicted before it was learned from."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

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
from fastsketch.io import _checks as checks
from fastsketch.online._state import Arrays, Counts, Floats, Zeros

# UNIT is at most this, and then made 1 again: see the kernel.
MOST_UNIT = 1e120


@dataclass(slots=True)
class Metrics(Arrays):
    """Sums over the rows seen, each row counting ``sample_weight * decay^age``.

    Log loss is that of probabilities clipped to [2^-52, 1 - 2^-52], as scikit-learn clips those in float64; of more
    than two classes, only from below. AUC is that of log odds cut to seven significant bits (ties count half), of
    which those beyond 32 are equal and those within 2^-9 of zero are so for each sign.
    """

    metric_sums: Floats  # entries of _kernels/online/metrics
    auc_bins: Floats | None  # (2, BINS), of two classes alone

    # -- rows ------------------------------------------------------------------------------------------------------
    def take_two(
        self, log_odds: Floats, targets: Floats, weights: Floats | None = None, *, decay: float = 1.0, probable: bool
    ) -> None:
        """Rows of two classes, targets -1 and +1; `probable` if log_odds are such and not just scores."""
        kernel.take_two(self.metric_sums, self.auc_bins, log_odds, targets, weights, decay, probable)

    def take_more(
        self, shares: Floats, classes: Counts, weights: Floats | None = None, *, decay: float = 1.0, probable: bool
    ) -> None:
        """Rows of K classes (n, K), of which the largest is predicted; class -1 is one that had no column yet."""
        self.auc_bins = None
        kernel.take_more(self.metric_sums, np.ascontiguousarray(shares), classes, weights, decay, probable)

    def take_real(
        self, predicted: Floats, targets: Floats, weights: Floats | None = None, *, decay: float = 1.0
    ) -> None:
        """Rows of real targets."""
        kernel.take_real(self.metric_sums, predicted, targets, weights, decay)

    def mirror(self) -> None:
        """What was called the positive class is the negative one from here on."""
        if self.auc_bins is not None:
            self.auc_bins = np.ascontiguousarray(self.auc_bins[::-1, ::-1])

    # -- what they say ---------------------------------------------------------------------------------------------
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
        negative, positive = self.auc_bins / largest  # no product overflows
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
        """Put in what ``saved`` gave; those of a file that has none begin with the next row."""
        if "metric_sums" in arrays:
            self.metric_sums = np.ascontiguousarray(arrays["metric_sums"])
            bins = arrays.get("auc_bins")
            self.auc_bins = None if bins is None else np.ascontiguousarray(bins)


def start(labels: bool, zeros: Zeros = np.zeros) -> Metrics:
    """Metrics of no rows: of two classes until others come, or of real targets."""
    sums = np.zeros(METRIC_SUMS)
    sums[UNIT] = 1.0
    return Metrics(metric_sums=sums, auc_bins=zeros((2, BINS)) if labels else None)
