"""One score of learners that forget at different rates: decay="auto".

States of each of DECAYS learn side by side from the same rows, each with its read-out. Of labels those that forget
fastest have a second one, which forgets as slowly as the middle ones: it tells how sure they are by more rows, and is
better on streams that move fast all the time, where the other is better after a jump. Each read-out has a weight, and
the score is the mean of theirs by these weights, so that the model is as linear as they are. With every row a weight is
multiplied by exp(-loss), for the loss that its score had before the row was learned from, and SHARE of all is dealt out
anew as in the beginning: the fixed share of Herbster and Warmuth (1998), which follows the best of them from one
stretch of the stream to the next. Its rounds are in _kernels/online/readout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any, Final, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_real
from fastsketch._kernels.online import readout
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import Arrays, Counts, Floats, Zeros

# Half-lives of no end, 693 rows and 34 rows, the weights in the beginning, and the share that is dealt out anew: chosen
# on generated streams and on training rows of eight shuffled sets, by the losses from before each row was learned from.
# Without the middle one slow turns of the truth cost more, with equal weights rows that stand still.
DECAYS: Final = (1.0, 0.999, 0.98)
# The second read-out of the last was chosen on generated streams; shorter half-lives, 14 and 7 rows, larger shares, a
# read-out of the mixed score and one more for the middle one were no better there.
FIRST_WEIGHTS: Final = np.array([0.8, 0.1, 0.1])
FIRST_OF_LABELS: Final = np.array([0.8, 0.1, 0.05, 0.05])
FIRST_WEIGHTS.flags.writeable = FIRST_OF_LABELS.flags.writeable = False
SHARE = 1e-3


class DriftFigures(TypedDict):
    """Half-life in rows of the learner of the largest weight, None where it forgets nothing, and what it gains.

    gain: by how much its loss was lower than that of the learner that forgets nothing, a row, about the last thousand.
    """

    half_life: float | None
    weight: float
    gain: float


def as_decay(value: Any, name: str) -> float | Literal["auto"]:
    """Return a number within (0, 1], or "auto"."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name} must be a number in (0, 1] or 'auto', got {value!r}")
        return "auto"
    return as_real(value, name, 0.0, 1.0, low_open=True)


def check_auto(*, of_labels: bool, calibrate: bool) -> None:
    """Raise ValueError unless decay="auto" goes with these parameters."""
    if of_labels and not calibrate:
        raise ValueError("decay='auto' needs calibrate: learners are weighed by the log loss of their probabilities")


@dataclass(slots=True)
class DecayMix(Arrays):
    """Weights of the learners, and their losses lately."""

    decay_weights: Floats  # (m,) of the read-outs, of sum 1: those of DECAYS, and of labels the second of the last
    decay_losses: Floats  # (m + 2,): means of the last 1 / SHARE rows or so; rows; mean square of real residuals
    of_labels: bool = True

    def arrays(self) -> list[Floats]:
        """Return what rows change."""
        return [self.decay_weights, self.decay_losses]

    def learn(self, scores: Floats, answers: Counts | Floats, sample_weight: Floats) -> Floats:
        """Return the scores (k, n) of rows from those of each read-out (m, k, n), from before each row's loss.

        answers (n,): numbers of classes, of one state for two classes above 0 or not, or real targets.
        """
        out = np.empty(scores.shape[1:])
        readout.mix_decays(
            np.ascontiguousarray(scores),
            np.ascontiguousarray(answers, np.float64),
            sample_weight,
            self.decay_weights,
            self.decay_losses,
            out,
            FIRST_OF_LABELS if self.of_labels else FIRST_WEIGHTS,
            SHARE,
            self.of_labels,
        )
        return out

    def combined(self, each: Floats) -> Any:
        """Combine scores or coefficients (m, ...) by the weights."""
        return np.tensordot(self.decay_weights, each, 1)

    def figures(self) -> DriftFigures:
        """Return which half-life leads, and by how much."""
        last = len(DECAYS) - 1
        weights = np.append(self.decay_weights[:last], self.decay_weights[last:].sum())
        losses = np.append(self.decay_losses[:last], self.decay_losses[last:-2].min())
        leader = int(weights.argmax())
        half_life = log(0.5) / log(DECAYS[leader]) if DECAYS[leader] < 1.0 else None
        return {"half_life": half_life, "weight": float(weights[leader]), "gain": float(losses[0] - losses[leader])}

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rounds could have made these arrays; return names."""
        names = self.validate(arrays)
        weights, losses = arrays["decay_weights"], arrays["decay_losses"]
        if weights.min() < SHARE * FIRST_OF_LABELS.min() * 0.999 or abs(weights.sum() - 1.0) > 1e-9:
            raise ValueError("array 'decay_weights' must be positive, and of sum 1")
        checks.number_within(losses.min(), "losses of each decay", 0.0, np.inf)
        return names


def start_mix(zeros: Zeros = np.zeros, *, of_labels: bool) -> DecayMix:
    """Return the weights before the first row; with zeros=outline, arrays of the same shapes."""
    first = FIRST_OF_LABELS if of_labels else FIRST_WEIGHTS
    out = DecayMix(zeros(len(first)), zeros(len(first) + 2), of_labels)
    if zeros is np.zeros:
        out.decay_weights[:] = first
    return out
