"""One score of learners that forget at different rates: decay="auto".

States of each of DECAYS learn side by side from the same rows. Each has a weight, and the score is the mean of theirs
by these weights, so that the model is as linear as they are. With every row a weight is multiplied by exp(-loss), for
the loss that its score had before the row was learned from, and SHARE of all is dealt out anew as in the beginning: the
fixed share of Herbster and Warmuth (1998), which follows the best of them from one stretch of the stream to the next.
Its rounds are in _kernels/online/readout.
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
FIRST_WEIGHTS: Final = np.array([0.8, 0.1, 0.1])
FIRST_WEIGHTS.flags.writeable = False
SHARE = 1e-3

# Entries of `decay_losses` after the losses: rows; the mean square of residuals, for real targets.
ROWS, SQUARE = len(DECAYS), len(DECAYS) + 1


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


def check_auto(drift: str | None, *, of_labels: bool, calibrate: bool) -> None:
    """Raise ValueError unless decay="auto" goes with these parameters."""
    if drift is not None:
        raise ValueError(f"drift={drift!r} goes with a number as decay: decay='auto' follows changes by itself")
    if of_labels and not calibrate:
        raise ValueError("decay='auto' needs calibrate: learners are weighed by the log loss of their probabilities")


@dataclass(slots=True)
class DecayMix(Arrays):
    """Weights of the learners, and their losses lately."""

    decay_weights: Floats  # (DECAYS,), of sum 1
    decay_losses: Floats  # (DECAYS + 2,): means of the last 1 / SHARE rows or so, and the entries ROWS and SQUARE
    of_labels: bool = True

    def arrays(self) -> list[Floats]:
        """Return what rows change."""
        return [self.decay_weights, self.decay_losses]

    def learn(self, scores: Floats, answers: Counts | Floats, sample_weight: Floats) -> Floats:
        """Return the scores (k, n) of rows from those of each learner (DECAYS, k, n), from before each row's loss.

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
            FIRST_WEIGHTS,
            SHARE,
            self.of_labels,
        )
        return out

    def combined(self, each: Floats) -> Any:
        """Combine scores or coefficients (DECAYS, ...) by the weights."""
        return np.tensordot(self.decay_weights, each, 1)

    def figures(self) -> DriftFigures:
        """Return which half-life leads, and by how much."""
        leader = int(self.decay_weights.argmax())
        half_life = log(0.5) / log(DECAYS[leader]) if DECAYS[leader] < 1.0 else None
        gain = float(self.decay_losses[0] - self.decay_losses[leader])
        return {"half_life": half_life, "weight": float(self.decay_weights[leader]), "gain": gain}

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rounds could have made these arrays; return names."""
        names = self.validate(arrays)
        weights, losses = arrays["decay_weights"], arrays["decay_losses"]
        if weights.min() < SHARE * FIRST_WEIGHTS.min() * 0.999 or abs(weights.sum() - 1.0) > 1e-9:
            raise ValueError("array 'decay_weights' must be positive, and of sum 1")
        checks.number_within(losses.min(), "losses of each decay", 0.0, np.inf)
        return names


def start_mix(zeros: Zeros = np.zeros, *, of_labels: bool) -> DecayMix:
    """Return the weights before the first row; with zeros=outline, arrays of the same shapes."""
    out = DecayMix(zeros(len(DECAYS)), zeros(len(DECAYS) + 2), of_labels)
    if zeros is np.zeros:
        out.decay_weights[:] = FIRST_WEIGHTS
    return out
