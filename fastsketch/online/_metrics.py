"""Metrics of an online model, where each row is predicted before it is learned (progressive validation)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import frexp, inf, sqrt
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES
from fastsketch._core.warning import warn_caller
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
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import Arrays, Counts, Floats, Zeros

# Largest possible UNIT; the kernel resets it to 1 before.
MOST_UNIT = 1e120


class MetricFigures(TypedDict):
    """Dict of metrics by name; a value is None if the metric does not apply or has no rows yet."""

    log_loss: float | None
    accuracy: float | None
    auc: float | None
    mean_absolute_error: float | None
    root_mean_squared_error: float | None


@dataclass(slots=True)
class Metrics(Arrays):
    """Running sums from which metrics are computed: log loss, accuracy, AUC and regression errors.
    Each row is scored before it is learned (progressive validation).

    Rows are weighted by ``sample_weight * decay^age``.

    The log loss clips probabilities to [2^-52, 1 - 2^-52], as scikit-learn does in float64; for more than two classes
    only from below. The AUC rounds scores to seven significant bits, and ties count half: scores beyond 32 in size are
    equal, and so are those below 2^-9, for each sign. A prediction is right if the score of the row's class is the
    largest. The first row of a new class counts as wrong, with the log loss of the new state.
    """

    how: int  # meaning of a score: LOG_ODDS, HALVES, REAL or CALIBRATED of the kernel
    decay: float
    metric_sums: Floats  # entries of _kernels/online/metrics
    auc_bins: Floats | None  # (2, BINS), for two classes only

    # -- rows ------------------------------------------------------------------------------------------------------
    def add(
        self,
        scores: Floats,
        targets: Floats,
        weights: Floats | None,
        *,
        signs: Sequence[float] = (),
        numbers: Counts | None = None,
        is_new: bool = False,
    ) -> None:
        """Update the metrics, in place, with n rows, given the scores that they had before they were learned.

        `scores` and `targets` have shape (k, n), where k is 1 for real targets and two classes. For more classes
        `signs` (k,) are the signs of the learners, and `numbers` (n,) the class numbers of the rows. With `is_new`
        row 0 is the first of its class.
        """
        several = len(scores) > 1
        if several:
            self.auc_bins = None
        sides, classes = (np.array(signs), numbers) if several else (None, None)
        sums, bins, how = self.metric_sums, self.auc_bins, self.how
        kernel.learn(sums, bins, scores, targets, sides, classes, weights, self.decay, how, is_new)

    # -- results ---------------------------------------------------------------------------------------------------
    def summary(self) -> MetricFigures:
        """Return all metrics in a dictionary by name."""
        real = self.how == kernel.REAL
        squared = self._mean(SQUARED) if real else None
        return {
            "log_loss": None if real else self._mean(LOG_LOSS),
            "accuracy": None if real else self._mean(RIGHT),
            "auc": self.auc,
            "mean_absolute_error": self._mean(ABSOLUTE) if real else None,
            "root_mean_squared_error": None if squared is None else sqrt(squared),
        }

    def _mean(self, entry: int) -> float | None:
        """Return the weighted mean of one metric over all rows so far, or None before the first row of positive weight.

        entry: the position of the metric in `metric_sums`.
        """
        total = float(self.metric_sums[WEIGHT])
        return float(self.metric_sums[entry]) / total if 0 < total < inf else None

    @property
    def auc(self) -> float | None:
        """Return the area under the ROC curve for two classes. None for more classes or real targets, and before both
        classes have rows.
        """
        if self.auc_bins is None:
            return None
        largest = float(self.auc_bins.max())
        if not 0 < largest < inf:
            return None
        # scaled by a power of 2, so that products neither overflow nor depend on the order of the classes
        negative, positive = np.ldexp(self.auc_bins, -frexp(largest)[1])
        pairs = float(negative.sum()) * float(positive.sum())
        if not pairs > 0:
            return None
        below = np.cumsum(negative) - 0.5 * negative  # ties count half
        return min(float(positive @ below) / pairs, 1.0)

    # -- files -----------------------------------------------------------------------------------------------------
    def validate(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check metric sums that were read from a state file, and return the set of their arrays' names.
        ValueError if one is invalid.
        """
        sums = checks.sums(arrays, "metric_sums", (METRIC_SUMS,))
        checks.number_within(sums.min(), "sums of the metrics", 0.0, inf)
        checks.number_within(sums[UNIT], "unit of the metrics", 1.0, MOST_UNIT)
        checks.number_within(sums[RIGHT], "weight of right predictions", 0.0, sums[WEIGHT])
        if "auc_bins" not in arrays:
            return {"metric_sums"}
        checks.sums(arrays, "auc_bins", (2, BINS), low=0.0)
        return {"metric_sums", "auc_bins"}

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite the metric sums with arrays from a state file, which have passed ``validate``."""
        self.metric_sums = np.ascontiguousarray(arrays["metric_sums"])
        bins = arrays.get("auc_bins")
        self.auc_bins = None if bins is None else np.ascontiguousarray(bins)


def start_metrics(loss: str, decay: float = 1.0, zeros: Zeros = np.zeros, *, calibrated: bool = False) -> Metrics:
    """Return metrics without rows, those of class labels or of real targets, depending on the loss.

    With labels they assume two classes until more appear.
    """
    if LOSSES[loss].targets != "label":
        how = kernel.REAL
    elif calibrated:
        how = kernel.CALIBRATED
    else:
        how = kernel.LOG_ODDS if loss == "logistic" else kernel.HALVES
    sums = np.zeros(METRIC_SUMS)
    sums[UNIT] = 1.0
    return Metrics(how, decay, sums, None if how == kernel.REAL else zeros((2, BINS)))


# Number of entries of `metric_sums` in files from before drift="restart" was removed. They also had the sums of a
# second calibration.
METRIC_SUMS_WITH_DRIFT = 13


def remove_drift_parameter(parameters: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and arrays of an old state file without the removed parameter `drift`.

    A model that was saved with drift="restart" becomes a learner that never restarts: its current states are kept, the
    window of errors and the states that had begun at a warning are dropped.

    Raises
    ------
    ValueError
        If `drift` is neither None nor "restart".

    Warns
    -----
    UserWarning
        If it is "restart".
    """
    parameters = dict(parameters)
    if (drift := parameters.pop("drift")) not in (None, "restart"):
        raise ValueError(f"drift must be None or 'restart', got {drift!r}")
    if drift is not None:
        warn_caller(
            "the model was saved with drift='restart', which has been removed: it continues without restarts. For a "
            "stream that changes learn a new model with decay='auto'; fs.DriftMonitor reports changes of its rows"
        )
    remaining = {name: array for name, array in arrays.items() if not name.startswith(("drift_", "later."))}
    sums = remaining.get("metric_sums")
    if sums is not None and sums.shape == (METRIC_SUMS_WITH_DRIFT,):
        remaining["metric_sums"] = sums[:METRIC_SUMS]
    return parameters, remaining
