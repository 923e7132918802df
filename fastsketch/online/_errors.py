"""Metrics of a model while it learns, each row predicted before it was learned from, and drift in its errors.

Drift is found by ADWIN (Bifet, Gavalda 2007): it keeps the errors of a window of rows in buckets, five of each size,
and drops the oldest until no cut of the window leaves two parts whose means differ by more than chance would make them.
Here a bucket of the smallest size is CHECK rows, so that the window is looked at when their number is a multiple of
that: batches do not matter. A rise that would be half as certain is a warning, at which states of their own begin to
learn from what comes; they take over when a rise is certain and they have erred less since than the old ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import frexp, inf, log, sqrt
from operator import add
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES
from fastsketch._kernels.online import metrics as kernel
from fastsketch._kernels.online.metrics import (
    ABSOLUTE,
    BINS,
    GAIN,
    LOG_LOSS,
    METRIC_SUMS,
    MOST_GAIN,
    OF_INTERCEPT,
    OF_SLOPE,
    RIGHT,
    SLOPE,
    SQUARED,
    UNIT,
    WEIGHT,
)
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import GROWS, Arrays, Counts, Floats, Zeros

# UNIT is at most this, and then made 1 again: see the kernel.
MOST_UNIT = 1e120
# Nats that a read-out which forgets must have gained on a model before its stream is said to move: by chance it gains
# so many once in e^50 rows, and while a model begins to learn up to two dozen.
SURELY_MOVED = 50.0


class MetricFigures(TypedDict):
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
    follow: bool = False  # whether a read-out that forgets learns beside, of calibrated scores of two classes

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
        """Add rows by scores (k, n) and targets (k, n) of their states, each score from before its row was learned.

        Of more than two classes, k states have signs, and rows class numbers (n,); is_new: that of row 0 is new.
        """
        several = len(scores) > 1
        if several:
            self.auc_bins = None
        sides, classes = (np.array(signs), numbers) if several else (None, None)
        follow = self.follow and weights is None
        sums, bins, how = self.metric_sums, self.auc_bins, self.how
        kernel.learn(sums, bins, scores, targets, sides, classes, weights, self.decay, how, is_new, follow)

    # -- what they say ---------------------------------------------------------------------------------------------
    def figures(self) -> MetricFigures:
        """Return all metrics by name."""
        real = self.how == kernel.REAL
        squared = self._mean(SQUARED) if real else None
        return {
            "log_loss": None if real else self._mean(LOG_LOSS),
            "accuracy": None if real else self._mean(RIGHT),
            "auc": self.auc,
            "mean_absolute_error": self._mean(ABSOLUTE) if real else None,
            "root_mean_squared_error": None if squared is None else sqrt(squared),
        }

    @property
    def moved(self) -> float | None:
        """Return the nats that a read-out which forgets has gained on the model; None where there is none."""
        return float(self.metric_sums[MOST_GAIN]) if self.follow and self.auc_bins is not None else None

    def advice(self) -> str | None:
        """Say that the stream moves, and what to do; None unless it surely does."""
        gain = self.moved or 0.0
        if gain < SURELY_MOVED:
            return None
        return (
            f"the stream moves: calibrated by its latest rows the model had lost {gain:.0f} nats less "
            "than it has; if the order of the rows is that of time, give decay='auto' or drift='restart'"
        )

    def _mean(self, entry: int) -> float | None:
        """Return a sum by the weight of the rows; None before the first of positive weight."""
        total = float(self.metric_sums[WEIGHT])
        return float(self.metric_sums[entry]) / total if 0 < total < inf else None

    @property
    def auc(self) -> float | None:
        """Return the area under the ROC curve; None unless there are two classes and rows of both."""
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
        """Raise ValueError unless these are sums that rows could have made; return their names."""
        sums = checks.sums(arrays, "metric_sums", (METRIC_SUMS,))
        for name, first, stop in (
            ("", 0, SLOPE),
            (" curvature", OF_SLOPE, OF_SLOPE + 1),
            ("", OF_INTERCEPT, METRIC_SUMS),
        ):
            checks.number_within(sums[first:stop].min(), f"sums of the metrics{name}", 0.0, inf)
        checks.require_finite(sums[SLOPE:], "metric_sums")
        checks.number_within(sums[GAIN], "gain", 0.0, sums[MOST_GAIN])
        checks.number_within(sums[UNIT], "unit of the metrics", 1.0, MOST_UNIT)
        checks.number_within(sums[RIGHT], "weight of right predictions", 0.0, sums[WEIGHT])
        if "auc_bins" not in arrays:
            return {"metric_sums"}
        checks.sums(arrays, "auc_bins", (2, BINS), low=0.0)
        return {"metric_sums", "auc_bins"}

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put in what ``saved`` gave."""
        self.metric_sums = np.ascontiguousarray(arrays["metric_sums"])
        bins = arrays.get("auc_bins")
        self.auc_bins = None if bins is None else np.ascontiguousarray(bins)


def start_metrics(
    loss: str, decay: float = 1.0, zeros: Zeros = np.zeros, *, calibrated: bool = False, follow: bool = False
) -> Metrics:
    """Return the metrics before the first row: of two classes until others appear, or of real targets."""
    if LOSSES[loss].targets != "label":
        how = kernel.REAL
    elif calibrated:
        how = kernel.CALIBRATED
    else:
        how = kernel.LOG_ODDS if loss == "logistic" else kernel.HALVES
    sums = np.zeros(METRIC_SUMS)
    sums[UNIT] = 1.0
    return Metrics(how, decay, sums, None if how == kernel.REAL else zeros((2, BINS)), follow and calibrated)


# -- drift -------------------------------------------------------------------------------------------------------------
# Rows between two looks, and the rows of the smallest bucket.
CHECK = 32
# Buckets of a size: more tell more precisely where a change was, and cost as much more.
SAME_SIZE = 5
SIZES = 48  # the largest holds 2^47 CHECK rows
# Chance that one look at a window without change finds one; of warnings.
CERTAIN, WARNING = 0.002, 0.05
# Looks without a warning after which states that have begun at one are given up; looks after a certain rise at which
# they may take over.
PATIENCE, TRIAL = 32, 128
# Rows that are told: the last ones at which states have begun anew.
MOST_TOLD = 1000

# Entries of `drift_counts`.
IN_BLOCK, QUIET, CERTAIN_FOR, SINCE, RESTARTS = range(5)
# Entries of `drift_sums`: errors of the block; of the states and of the new ones since these began; |residuals| until
# the last look and their number, and since.
BLOCK, OLD, NEW, RESIDUALS, N_RESIDUALS, LATELY = range(6)


@dataclass(slots=True)
class DriftWatch(Arrays):
    """Window of errors, each within [0, 1], and counts since a warning."""

    drift_buckets: Floats  # sums of errors, the oldest bucket of a size first, (SIZES, SAME_SIZE + 1)
    drift_used: Counts  # buckets of each size, (SIZES,)
    drift_counts: Counts
    drift_sums: Floats
    drift_rows: Annotated[Counts, GROWS]  # numbers of the rows at which states have begun anew

    # -- errors ----------------------------------------------------------------------------------------------------
    def errors(self, scores: Floats, targets: Floats, right: NDArray[np.bool_] | None) -> Floats:
        """Return the errors of rows (n,): 0 or 1 by `right`, or r / (r + mean |residual| until the last look)."""
        if right is not None:
            return np.where(right, 0.0, 1.0)
        sizes, n = np.abs(scores - targets), self.drift_sums[N_RESIDUALS]
        usual = self.drift_sums[RESIDUALS] / n if n else 0.0
        with np.errstate(all="ignore"):
            shares = sizes / (sizes + usual)
        return np.where(np.isfinite(shares), shares, 0.5 if n else 0.0)

    def until_look(self) -> int:
        """Return the number of rows until the next look, 0 where it is due."""
        return CHECK - int(self.drift_counts[IN_BLOCK])

    def add(self, errors: Floats, theirs: Floats | None, sizes: Floats | None) -> None:
        """Add the errors of rows of one block, and those of the new states; `sizes` of residuals, for real targets."""
        sums, counts = self.drift_sums, self.drift_counts
        # one after the other, so that a split into batches changes no bit; sum() compensates from Python 3.12 on
        since = None if theirs is None else errors
        for entry, values in ((BLOCK, errors), (OLD, since), (NEW, theirs), (LATELY, sizes)):
            if values is not None:
                sums[entry] = reduce(add, values.tolist(), float(sums[entry]))
        counts[IN_BLOCK] += len(errors)
        if sizes is not None and counts[IN_BLOCK] == CHECK:
            sums[RESIDUALS] += sums[LATELY]
            sums[N_RESIDUALS] += CHECK
            sums[LATELY] = 0.0

    # -- the window ------------------------------------------------------------------------------------------------
    def look(self) -> tuple[bool, bool]:
        """Close a block, and return whether errors have risen enough for a warning, and for certainty."""
        self._add_bucket(float(self.drift_sums[BLOCK]))
        self.drift_sums[BLOCK], self.drift_counts[IN_BLOCK] = 0.0, 0
        warned = certain = False
        while True:
            cut, rise, warning = self._cut()
            warned, certain = warned or warning, certain or rise
            if not cut:
                return warned, certain
            self._drop()

    def _add_bucket(self, total: float) -> None:
        for buckets, i in zip(self.drift_buckets, range(SIZES), strict=True):
            used = int(self.drift_used[i])
            buckets[used] = total
            if used < SAME_SIZE:
                self.drift_used[i] = used + 1
                return
            total = float(buckets[0] + buckets[1])
            buckets[: SAME_SIZE - 1] = buckets[2:].copy()
            self.drift_used[i] = SAME_SIZE - 1

    def _drop(self) -> None:
        """Drop the oldest bucket."""
        i = int(np.flatnonzero(self.drift_used)[-1])
        used = int(self.drift_used[i])
        self.drift_buckets[i, : used - 1] = self.drift_buckets[i, 1:used].copy()
        self.drift_used[i] = used - 1

    def _cut(self) -> tuple[bool, bool, bool]:
        """Return whether a cut has parts that differ, whether by a rise, and whether a rise would be a warning."""
        used = self.drift_used.tolist()
        blocks = [
            (2**i, total)
            for i in range(SIZES - 1, -1, -1)
            if used[i]
            for total in self.drift_buckets[i, : used[i]].tolist()
        ]
        n, all_errors = sum(size for size, _ in blocks), sum(total for _, total in blocks)
        if n < 2:
            return False, False, False
        mean = all_errors / (n * CHECK)
        variance = max(mean * (1.0 - mean), 0.0)
        sure, half_sure = (log(2.0 * log(n * CHECK) / chance) for chance in (CERTAIN, WARNING))
        before, errors, warning = 0, 0.0, False
        for size, total in blocks[:-1]:
            before += size
            errors += total
            share = 1.0 / (before * CHECK) + 1.0 / ((n - before) * CHECK)
            rise = (all_errors - errors) / ((n - before) * CHECK) - errors / (before * CHECK)
            if abs(rise) > sqrt(2.0 * variance * sure * share) + 2.0 / 3.0 * sure * share:
                return True, rise > 0, warning or rise > 0
            warning = warning or rise > sqrt(2.0 * variance * half_sure * share) + 2.0 / 3.0 * half_sure * share
        return False, False, warning

    # -- what follows ----------------------------------------------------------------------------------------------
    def decide(self, beginning: bool, n_rows: int) -> str:
        """Look, and return "begin" (new states), "take" (them in place of the old ones), "drop" (them), or "".

        beginning: whether there are new states.
        """
        warned, certain = self.look()
        counts, sums = self.drift_counts, self.drift_sums
        if not beginning:
            if not warned:
                return ""
            counts[QUIET], counts[SINCE], counts[CERTAIN_FOR] = 0, n_rows, TRIAL if certain else 0
            sums[OLD] = sums[NEW] = 0.0
            return "begin"
        counts[QUIET] = 0 if warned else counts[QUIET] + 1
        counts[CERTAIN_FOR] = TRIAL if certain else max(counts[CERTAIN_FOR] - 1, 0)
        if counts[CERTAIN_FOR] and sums[NEW] < sums[OLD]:
            self.drift_used[:], self.drift_buckets[:] = 0, 0.0
            sums[RESIDUALS] = sums[N_RESIDUALS] = 0.0
            counts[RESTARTS] += 1
            self.drift_rows = np.append(self.drift_rows, n_rows)[-MOST_TOLD:]
            return "take"
        return "drop" if counts[QUIET] >= PATIENCE and not counts[CERTAIN_FOR] else ""

    # -- keeping it ------------------------------------------------------------------------------------------------
    def validate_rows(self, arrays: Mapping[str, NDArray[Any]], n_rows: int) -> None:
        """Raise ValueError unless the errors of so many rows could have made these arrays."""
        used, counts, rows = arrays["drift_used"], arrays["drift_counts"], arrays["drift_rows"]
        checks.number_within(used.min(), "buckets of a size", 0, SAME_SIZE)
        checks.number_within(used.max(), "buckets of a size", 0, SAME_SIZE)
        checks.not_negative(arrays, "drift_buckets", (SIZES, SAME_SIZE + 1))
        checks.not_negative(arrays, "drift_sums", self.drift_sums.shape)
        checks.number_within(counts[IN_BLOCK], "rows since the last look", 0, CHECK - 1)
        checks.number_within(counts.min(), "counts of drift", 0, checks.MOST_COUNT)
        checks.number_within(counts[SINCE], "row of a warning", 0, n_rows)
        checks.number_within(len(rows), "rows of restarts", 0, MOST_TOLD)
        if (np.diff(rows) <= 0).any() or (len(rows) and not 0 < rows[0] <= rows[-1] <= n_rows):
            raise ValueError(f"the rows at which states began anew are out of order: {rows}")


def start_watch() -> DriftWatch:
    """Return a watch that has seen no rows."""
    return DriftWatch(
        drift_buckets=np.zeros((SIZES, SAME_SIZE + 1)),
        drift_used=np.zeros(SIZES, np.int64),
        drift_counts=np.zeros(5, np.int64),
        drift_sums=np.zeros(6),
        drift_rows=np.zeros(0, np.int64),
    )
