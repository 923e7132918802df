"""Combination of learners with different decay rates into one score, for decay="auto".

Learners of each of the rates `decay_rates` learn side by side from the same rows, each with its read-out. For labels
the learner that forgets fastest has a second read-out, which forgets at the next slower rate. Each read-out is an
expert in the sense of prediction with expert advice. The score is the mean of their scores by their weights, so that
the model is as linear as the learners.

The weights are those of the fixed share (Herbster and Warmuth 1998, "Tracking the best expert", Machine Learning 32):
after every row a weight is multiplied by exp(-loss), for the loss of the expert's score before the row was learned
from, and the share `decay_share` of the total weight is distributed again. It is distributed as the weights were in
the beginning ("fixed share to start vector", Bousquet and Warmuth 2002, JMLR 3), which `decay_prior` sets. The rounds
are in _kernels/online/readout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any, Literal, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_real
from fastsketch._kernels.online import readout
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import Arrays, Counts, Floats, Zeros

# Maximum number of learners with different decay rates. The kernel has space for the weights of one more expert, which
# classification models add.
MAX_RATES = 7


class DriftFigures(TypedDict):
    """Summary, as a dict, of the learner with most weight in a model with decay="auto".

    half_life is in rows, and None if that learner does not decay. weight is the learner's weight.

    gain: by how much its mean loss over about the last 1 / decay_share rows was lower than that of the first learner.
    """

    half_life: float | None
    weight: float
    gain: float


def as_decay(value: Any, name: str) -> float | Literal["auto"]:
    """Validate a decay rate, and return it: a number in (0, 1] or the string "auto"."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name} must be a number in (0, 1] or 'auto', got {value!r}")
        return "auto"
    return as_real(value, name, 0.0, 1.0, low_open=True)


def as_rates(value: Any, name: str) -> tuple[float, ...]:
    """Validate 2 to 7 decay rates in (0, 1] in strictly descending order, and return them as a tuple."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise TypeError(f"{name} must be a sequence of numbers, got {value!r}")
    rates = tuple(
        as_real(rate, f"an entry of {name}", 0.0, 1.0, low_open=True) for rate in cast("Sequence[Any]", value)
    )
    if not 2 <= len(rates) <= MAX_RATES or any(slower <= faster for slower, faster in pairwise(rates)):
        raise ValueError(f"{name} must be 2 to {MAX_RATES} different numbers, the largest first, got {value!r}")
    return rates


def check_auto(*, of_labels: bool, calibrate: bool) -> None:
    """Raise ValueError if decay="auto" is used for classification without calibration."""
    if of_labels and not calibrate:
        raise ValueError("decay='auto' needs calibrate: learners are weighed by the log loss of their probabilities")


@dataclass(slots=True)
class DecayMix(Arrays):
    """Weights of learners with different decay rates, by which their scores are combined.

    The fixed-share algorithm updates the weights at every row, by the losses of the learners.
    """

    decay_weights: Floats  # (m,) of the read-outs, of sum 1: one of each rate, and of labels the second of the last
    decay_losses: Floats  # (m + 2,): means over the last 1 / share rows or so; rows; mean square of real residuals
    of_labels: bool
    rates: tuple[float, ...]
    start: tuple[float, ...]  # the weights before the first row, (m,)
    share: float

    def learn(self, scores: Floats, answers: Counts | Floats, sample_weight: Floats) -> Floats:
        """Return the weighted scores of all learners, and update the weights by the learners' losses, row by row.
        A row's score is computed before the weights are updated with it.

        `scores` (m, k, n) are calibrated. `answers` (n,) has the class numbers; for two classes (k = 1) values above 0
        mean the positive class; for real targets it has the targets. Returns the combined scores (k, n).
        """
        out = np.empty(scores.shape[1:])
        readout.mix_decays(
            np.ascontiguousarray(scores),
            np.ascontiguousarray(answers, np.float64),
            sample_weight,
            self.decay_weights,
            self.decay_losses,
            out,
            np.array(self.start),
            self.share,
            self.of_labels,
        )
        return out

    def combine(self, values: Floats) -> Any:
        """Return the weighted sum of scores or coefficients (m, ...) of the m learners. The weights do not change."""
        return np.tensordot(self.decay_weights, values, 1)

    def summary(self) -> DriftFigures:
        """Return a dict on the learner with most weight: its half-life in rows, its weight, and its gain.

        The gain is by how much its recent mean loss is lower than that of the first learner.
        """
        last = len(self.rates) - 1
        weights = np.append(self.decay_weights[:last], self.decay_weights[last:].sum())
        losses = np.append(self.decay_losses[:last], self.decay_losses[last:-2].min())
        leader = int(weights.argmax())
        half_life = log(0.5) / log(self.rates[leader]) if self.rates[leader] < 1.0 else None
        return {"half_life": half_life, "weight": float(weights[leader]), "gain": float(losses[0] - losses[leader])}

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check weights and losses that were read from a state file, and return the set of their arrays' names.
        ValueError if one is invalid.
        """
        names = self.validate(arrays)
        weights, losses = arrays["decay_weights"], arrays["decay_losses"]
        if weights.min() < self.share * min(self.start) * 0.999 or abs(weights.sum() - 1.0) > 1e-9:
            raise ValueError("array 'decay_weights' must be positive, and of sum 1")
        checks.number_within(losses.min(), "losses of each decay", 0.0, np.inf)
        return names


def start_mix(
    rates: tuple[float, ...], prior: float, share: float, zeros: Zeros = np.zeros, *, of_labels: bool
) -> DecayMix:
    """Return the initial weights with which learners of different decay rates are combined.

    The first learner has the weight `prior`, and the others have equal parts of the remainder. For labels the last
    learner has two calibrations, each with half of its weight. With zeros=outline the arrays take no memory.
    """
    other_weight = (1.0 - prior) / (len(rates) - 1)
    start = (prior, *[other_weight] * (len(rates) - 1))
    if of_labels:
        start = (*start[:-1], 0.5 * other_weight, 0.5 * other_weight)
    out = DecayMix(zeros(len(start)), zeros(len(start) + 2), of_labels, rates, start, share)
    if zeros is np.zeros:
        out.decay_weights[:] = start
    return out
