"""The read-out: one score for each class, and its probability, from the scores of one or more members.

It learns from scores that were given before their row was learned from, as a model in use gives them: so it knows how
sure they ought to be, and which member to listen to. The rounds are in _kernels/online/readout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fastsketch._kernels.online import readout as kernel
from fastsketch.online._state import Arrays, Counts, Floats, Zeros

NAMES, NAMES_OF_BLEND = ("readout_weights", "readout_information"), ("blend_sums",)  # in files


@dataclass(slots=True)
class ReadOut(Arrays):
    """Weights of the members, and an intercept where one state serves two classes."""

    readout_weights: Floats  # (q,): members, and the intercept
    readout_information: Floats  # (q, q)
    decay: float = 1.0  # what a row leaves of the information before it

    def learn(self, members: Floats, numbers: Counts, sample_weight: Floats) -> Floats:
        """The scores (k, n) of rows, each from before it was learned from.

        members (p, k, n): the scores of each member for each class; numbers (n,): 0 or 1 for the only state, else that
        of the class.
        """
        scores = np.empty(members.shape[1:])
        kernel.rounds(
            np.ascontiguousarray(members),
            np.ascontiguousarray(numbers, np.int64),
            sample_weight,
            self.readout_weights,
            self.readout_information,
            scores,
            self.decay,
        )
        return scores

    def combined(self, members: Floats) -> Floats:
        """What the weights make of (p, ...): scores without the intercept, or coefficients."""
        return np.tensordot(self.readout_weights[: len(members)], members, 1)

    def intercept(self, n_members: int) -> float:
        """What is added to the combined score: 0 for more than two classes."""
        return float(self.readout_weights[-1]) if len(self.readout_weights) > n_members else 0.0

    def fade(self, factor: float) -> None:
        """What came before counts `factor` of what it did; what was there before the first row stays."""
        if factor < 1.0:
            h = self.readout_information
            h *= factor
            at = np.arange(len(h))
            h[at, at] = np.maximum(1.0, h[at, at] + (1.0 - factor))

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rounds could have made these arrays; returns names."""
        names = self.validate(arrays)
        information = arrays["readout_information"]
        if (information != information.T).any() or (np.diagonal(information) < 1.0).any():
            raise ValueError("array 'readout_information' must be symmetric, and 1 or more on its diagonal")
        return names


@dataclass(slots=True)
class Blend(Arrays):
    """Of real targets, one score from those of two members: a + share (b - a)."""

    blend_sums: Floats  # (2,): of (b - a)(y - a) and of (b - a)^2, for the share of least squares
    decay: float = 1.0  # what a row leaves of the sums before it

    def learn(self, members: Floats, targets: Floats, sample_weight: Floats) -> Floats:
        """The scores (n,) of rows from those of the members (2, n), each from before it was learned from."""
        scores = np.empty(len(targets))
        kernel.blend_numbers(
            np.ascontiguousarray(members),
            np.ascontiguousarray(targets, np.float64),
            sample_weight,
            self.blend_sums,
            scores,
            self.decay,
        )
        return scores

    def combined(self, members: Floats) -> Floats:
        """The same for coefficients (2, ...)."""
        return members[0] + kernel.share_now(self.blend_sums) * (members[1] - members[0])

    def fade(self, factor: float) -> None:
        """What came before counts `factor` of what it did."""
        self.blend_sums *= factor

    def intercept(self, n_members: int) -> float:
        """Nothing is added to the combined score."""
        return 0.0

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rounds could have made these arrays; returns names."""
        names = self.validate(arrays)
        if arrays["blend_sums"][1] < 0:
            raise ValueError("array 'blend_sums' must end with a sum of squares")
        return names


def start(n_members: int, n_states: int, zeros: Zeros = np.zeros, *, decay: float = 1.0) -> ReadOut:
    """Before the first row: the mean of the members; with zeros=outline, one of the same shapes."""
    q = n_members + (n_states == 1)
    out = ReadOut(zeros(q), zeros((q, q)), decay)
    if zeros is np.zeros:
        out.readout_weights[:n_members] = 1.0 / n_members
        np.fill_diagonal(out.readout_information, 1.0)
    return out


def probabilities(scores: Floats) -> Floats:
    """Of scores (n,) that of the positive class, (n,); of scores (n, k) those of all, (n, k)."""
    return expit(scores) if scores.ndim == 1 else softmax(scores, axis=1)
