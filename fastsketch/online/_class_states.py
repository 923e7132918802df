"""The learners of an online model: a single one for two classes or real targets, else one-vs-rest per class.

State k learns class number k with targets +1 for that class and -1 for the others, times its sign. A state of two
classes, copied with the opposite sign, is the state of the second class when a third class appears. The state of a new
class starts empty at the first row of the class.

A read-out calibrates the scores of a class and combines those of several learners. It learns from progressive scores,
which were computed before their row was learned. Its rounds are in _kernels/online/readout.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fastsketch._core.losses import LOSSES
from fastsketch._kernels.online import readout
from fastsketch._kernels.online.numbers import DIAGONAL
from fastsketch.data.files import _checks as checks
from fastsketch.online._adaptive_state import AdaptiveSetting, DiagonalState, start_diagonal
from fastsketch.online._decay_mix import DecayMix
from fastsketch.online._state_arrays import (
    OF_LOSSES,
    Arrays,
    Counts,
    Floats,
    LearnedState,
    RowBatch,
    Zeros,
)

S = TypeVar("S", bound=LearnedState)


# Default learning rates of the diagonal learner (AdaGrad) that scores are blended with: for labels, and for real
# targets, with steps in units of residuals.
BLEND_RATE_OF_LABELS, BLEND_RATE_OF_NUMBERS = 1.0, 0.25
# delta of AdaGrad (Duchi, Hazan and Singer 2011), which keeps the first division finite: the default `eps` of
# river's optim.AdaGrad.
ADAGRAD_DELTA = 1e-8


# -- calibration and blending of scores (the read-out) -----------------------------------------------------------------
@dataclass(slots=True)
class ScoreCalibration(Arrays):
    """Online calibration of classification scores: converts scores of one or two learners to log odds.
    Its weights are updated at every row (Platt scaling for one learner, stacking for two).

    The learners whose scores it combines are called its members: the model's main learner, and the diagonal AdaGrad
    learner of the same rows that it is blended with, if there is one.
    """

    readout_weights: Floats  # (q,): one for each member, then the intercept if there are two classes
    readout_information: Floats  # (q, q): H of the online Newton step
    decay: float = 1.0  # factor on H - I for every row

    def learn(self, members: Floats, numbers: Counts | Floats, sample_weight: Floats) -> Floats:
        """Return the calibrated scores (k, n) of rows, and update the calibration with each row's class after it.

        `members` (p, k, n) has the scores of p learners for k classes, and `numbers` (n,) the class numbers of the
        rows; for k = 1 it is positive for rows of the positive class. Rows are processed in order.
        """
        scores = np.empty(members.shape[1:])
        readout.rounds(
            np.ascontiguousarray(members),
            np.ascontiguousarray(numbers, np.float64),
            sample_weight,
            self.readout_weights,
            self.readout_information,
            scores,
            self.decay,
        )
        return scores

    def combine(self, members: Floats) -> Floats:
        """Return the weighted sum of the scores or coefficients (p, ...) of p learners, without the intercept.
        The weights are those of the calibration.
        """
        return np.tensordot(self.readout_weights[: len(members)], members, 1)

    def intercept(self, n_members: int) -> float:
        """Return the intercept of the calibration; 0 for more than two classes, which have none."""
        return float(self.readout_weights[-1]) if len(self.readout_weights) > n_members else 0.0

    def fade(self, factor: float) -> None:
        """Multiply the weight of all earlier rows by a factor, in the second-order matrix of the calibration, in place.

        The regularisation keeps its weight.
        """
        if factor < 1.0:
            h = self.readout_information
            h *= factor
            at = np.arange(len(h))
            h[at, at] = np.maximum(1.0, h[at, at] + (1.0 - factor))

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check the arrays of a calibration that were read from a state file, and return the set of their names.
        ValueError if one is invalid.
        """
        names = self.validate(arrays)
        information = arrays["readout_information"]
        if (information != information.T).any() or (np.diagonal(information) < 1.0).any():
            raise ValueError("array 'readout_information' must be symmetric, and 1 or more on its diagonal")
        return names


@dataclass(slots=True)
class Blend(Arrays):
    """Weighted average of the scores of two regression learners.

    The weight of the second learner is fitted by least squares to all rows so far, and updated at every row.
    """

    blend_sums: Floats  # (2,): sums of (b - a)(y - a) and of (b - a)^2; the share is their ratio, least squares
    decay: float = 1.0  # factor on the sums for every row

    def learn(self, members: Floats, targets: Floats, sample_weight: Floats) -> Floats:
        """Return the blended scores (n,) of rows, and update the blend with each row's target after its score.

        `members` (2, n) has the scores of the two learners.
        """
        scores = np.empty(len(targets))
        readout.blend_numbers(
            np.ascontiguousarray(members),
            np.ascontiguousarray(targets, np.float64),
            sample_weight,
            self.blend_sums,
            scores,
            self.decay,
        )
        return scores

    def combine(self, members: Floats) -> Floats:
        """Return the weighted average of the scores or coefficients (2, ...) of the two learners; nothing changes."""
        return members[0] + readout.share_now(self.blend_sums) * (members[1] - members[0])

    def fade(self, factor: float) -> None:
        """Multiply the weight of all earlier rows by a factor, in the sums that determine the average, in place."""
        self.blend_sums *= factor

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check the sums of a blend that were read from a state file, and return the set of their names.
        ValueError if one is invalid.
        """
        names = self.validate(arrays)
        if arrays["blend_sums"][1] < 0:
            raise ValueError("array 'blend_sums' must end with a sum of squares")
        return names


def start_calibration(
    n_members: int, n_states: int, zeros: Zeros = np.zeros, *, decay: float = 1.0
) -> ScoreCalibration:
    """Return a new calibration for `n_members` learners and `n_states` classes.
    Before it has learned, it averages the learners' scores.

    With zeros=outline it has the right shapes but takes no memory.
    """
    q = n_members + (n_states == 1)
    out = ScoreCalibration(zeros(q), zeros((q, q)), decay)
    if zeros is np.zeros:
        out.readout_weights[:n_members] = 1.0 / n_members
        np.fill_diagonal(out.readout_information, 1.0)
    return out


def probabilities(scores: Floats) -> Floats:
    """Convert calibrated scores to probabilities: logistic function for two classes, softmax for more.

    Scores (n,) give the probability of the positive class (n,), scores (n, k) those of all classes (n, k).
    """
    return expit(scores) if scores.ndim == 1 else softmax(scores, axis=1)


# -- the diagonal learner that scores are blended with -----------------------------------------------------------------
def start_diagonal_learner(
    loss: str, decay: float, n_slots: int, sparse: bool, zeros: Zeros = np.zeros, rate: float | None = None
) -> DiagonalState:
    """Return a new diagonal AdaGrad learner, whose scores a model blends with those of its main learner.

    For labels it has the logistic loss. n_slots: capacity in slots, or columns of dense rows. rate: its learning rate,
    None for the default.
    """
    of_labels = LOSSES[loss].targets == "label"
    number = LOSSES["logistic" if of_labels else loss].number
    if rate is None:
        rate = BLEND_RATE_OF_LABELS if of_labels else BLEND_RATE_OF_NUMBERS
    setting = AdaptiveSetting(method=DIAGONAL, loss=number, learning_rate=rate, decay=decay, in_units=not of_labels)
    return start_diagonal(setting, ADAGRAD_DELTA, d=n_slots, sparse=sparse, zeros=zeros)


def decay_prefix(number: int) -> str:
    """Return the prefix by which a state file distinguishes the arrays of learners with different decay rates; "" for
    the first rate.
    """
    return f"decay{number}." if number else ""


# -- the states --------------------------------------------------------------------------------------------------------
def n_states(n_classes: int) -> int:
    """Return how many main learners a model with this number of classes has: one for up to two classes, else one per
    class.
    """
    return n_classes if n_classes > 2 else 1


# Entries of `tally`: mistakes, for more than two classes or with a read-out (otherwise the state counts them); the loss
# before a third class came, which two states have counted; rows, loss and mistakes that no state has counted: of the
# first real target, and in files saved with drift="restart", which was removed, of the rows before a restart.
MISTAKES, SHARED, PAST_ROWS, PAST_LOSS, PAST_MISTAKES, TALLIES = range(6)


@dataclass(slots=True)
class Tally(Arrays):
    """Counts of rows, losses and mistakes of a whole model, which no single learner's state contains."""

    tally: Annotated[Floats, OF_LOSSES]  # (TALLIES,)

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Check the counts that were read from a state file, and return the set of their arrays' names.
        ValueError if one is out of range.
        """
        names, tally = self.validate(arrays), arrays["tally"].tolist()
        checks.number_within(tally[MISTAKES], "mistakes", 0, 2**53)
        checks.number_within(tally[SHARED], "loss of two states", 0.0, np.inf)
        checks.number_within(tally[PAST_ROWS], "rows before a restart", 0, 2**53)
        checks.number_within(tally[PAST_MISTAKES], "mistakes before a restart", -(2**53), 2**53)
        return names


# For a single row: targets of the two classes, and scores to be filled in.
PLUS, MINUS, UNREAD = np.array([[1.0]]), np.array([[-1.0]]), np.full((2, 1, 1), np.nan)
PLUS.flags.writeable = MINUS.flags.writeable = False


@dataclass(slots=True)
class States(Generic[S]):
    """All learners of a model: those of each class and decay rate, and the calibrations that combine their scores."""

    main_learners: list[S]  # one for two classes or real targets, else one for each class
    signs: list[float]  # of each state: the target of its class
    diagonal_learners: list[LearnedState] = field(
        default_factory=list[LearnedState]
    )  # a diagonal learner for each, or none
    readout: ScoreCalibration | Blend | None = None
    counted: Tally = field(default_factory=lambda: Tally(np.zeros(TALLIES)))
    decay: float = 1.0
    # with decay="auto": learners with the other decay rates, and the weights of all
    faster: list["States[S]"] = field(default_factory=list["States[S]"])
    mix: DecayMix | None = None
    steady: ScoreCalibration | None = None  # for the last decay rate: a second read-out, with the rate before it

    @property
    def by_decay_rate(self) -> list["States[S]"]:
        """Return a list with one ``States`` object for each decay rate. The first one is this object."""
        return [self, *self.faster]

    @property
    def readouts(self) -> list[tuple[int, ScoreCalibration | Blend | None]]:
        """Return pairs (index of a decay rate, calibration or None): how the scores of each decay rate are calibrated.

        There is one pair for each weight in ``mix``, in the same order.
        """
        pairs = [(g, states.readout) for g, states in enumerate(self.by_decay_rate)]
        return pairs + [(g, states.steady) for g, states in enumerate(self.by_decay_rate) if states.steady is not None]

    def parts(self) -> Iterator[tuple[str, Arrays]]:
        """Yield pairs (prefix of array names in a state file, dataclass of arrays) that together are all the state."""
        yield "", self.counted
        if self.readout is not None:
            yield "", self.readout
        if self.steady is not None:
            yield "steady.", self.steady
        groups: list[tuple[Sequence[LearnedState], str]] = [
            (self.main_learners, ""),
            (self.diagonal_learners, "beside."),
        ]
        for learners, name in groups:
            for k, state in enumerate(learners):
                yield f"{k}.{name}", state
        if self.mix is not None:
            yield "", self.mix
        for number, states in enumerate(self.faster, 1):
            for prefix, part in states.parts():
                yield decay_prefix(number) + prefix, part

    def copied(self) -> "States[S]":
        """Return a deep copy of all learners and calibrations."""
        return States(
            [state.copied() for state in self.main_learners],
            list(self.signs),
            [state.copied() for state in self.diagonal_learners],
            None if self.readout is None else self.readout.copied(),
            self.counted.copied(),
            self.decay,
            [states.copied() for states in self.faster],
            None if self.mix is None else self.mix.copied(),
            None if self.steady is None else self.steady.copied(),
        )

    def all(self) -> list[LearnedState]:
        """Return the states of all learners as a list: first the main learners of every decay rate, then the diagonal
        AdaGrad learners.
        """
        if not self.faster:
            return [*self.main_learners, *self.diagonal_learners]
        main_learners: list[LearnedState] = [state for states in self.by_decay_rate for state in states.main_learners]
        return [*main_learners, *(state for states in self.by_decay_rate for state in states.diagonal_learners)]

    def fade(self, factor: float) -> None:
        """Multiply the weight of all earlier rows by a factor, in place, in every learner and calibration."""
        for state in self.all():
            state.fade(factor)
        for _, calibration in self.readouts:
            if calibration is not None:
                calibration.fade(factor)

    @property
    def n_members(self) -> int:
        """Return how many learners score each row for one class: 2 if there is a diagonal AdaGrad learner, else 1."""
        return 2 if self.diagonal_learners else 1

    def totals(self) -> tuple[int, float, int]:
        """Return (rows seen, cumulative loss, mistakes); the loss is summed over the learners of all classes."""
        rows, loss, mistakes = self.main_learners[0].totals()
        n_mistakes, shared, past_rows, past_loss, past_mistakes = self.counted.tally.tolist()
        if len(self.main_learners) > 1:
            loss = sum(state.totals()[1] for state in self.main_learners) - shared
        if len(self.main_learners) > 1 or self.readout is not None or self.mix is not None:
            mistakes = int(n_mistakes)
        return rows + int(past_rows), loss + past_loss, mistakes + int(past_mistakes)

    def signed(self, values: Floats) -> Floats:
        """Return the scores or coefficients (k, n) of k learners, each times the learner's sign.

        A positive score then always means the learner's own class. Negative zeros become positive.
        """
        return values * np.array(self.signs)[:, None] + 0.0

    def add_class(self, begin: Callable[[float], tuple[S, LearnedState | None]]) -> None:
        """Add a learner for a new class, in place, when the third or a later class appears (one-vs-rest).

        At the third class the learner of two classes is first copied with the opposite sign. begin(decay) must return a
        new main learner, and a diagonal learner or None.
        """
        for states in self.faster:
            states.add_class(begin)
        if len(self.main_learners) == 1:
            _, loss, mistakes = self.main_learners[0].totals()
            self.counted.tally[SHARED] = loss
            if self.readout is None:
                self.counted.tally[MISTAKES] = mistakes
            self.main_learners.append(self.main_learners[0].copied())
            self.diagonal_learners.extend([state.copied() for state in self.diagonal_learners])
            self.signs.append(-self.signs[0])
            if self.readout is not None:  # it has learned from one score, not from one for each class
                self.readout = start_calibration(self.n_members, 3, decay=self.readout.decay)
            if self.steady is not None:
                self.steady = start_calibration(self.n_members, 3, decay=self.steady.decay)
        state, diagonal_learner = begin(self.decay)
        self.main_learners.append(state)
        if diagonal_learner is not None:
            self.diagonal_learners.append(diagonal_learner)
        self.signs.append(1.0)

    def targets(self, numbers: Counts) -> Floats:
        """Return the targets +1 or -1 of rows for each of the k learners, shape (k, n), given class numbers (n,)."""
        if len(self.main_learners) == 1:
            sign = self.signs[0]
            if len(numbers) == 1:  # sooner
                return MINUS if (sign > 0) == numbers.item() else PLUS
            return np.array([sign, -sign])[numbers][None]
        signs = np.array(self.signs)[:, None]
        return np.where(numbers == np.arange(len(signs))[:, None], signs, -signs)

    def allocate_scores(self, targets: Floats) -> Floats:
        """Return a new array of NaN, into which ``learn`` writes the scores of the rows.

        Its shape is (members, decay rates * k, n).
        """
        if targets.size == 1 and not self.faster:  # sooner
            return UNREAD[: 2 if self.diagonal_learners else 1].copy()
        return np.full(
            (2 if self.diagonal_learners else 1, len(self.by_decay_rate) * len(targets), targets.shape[1]), np.nan
        )

    def learn(self, batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Train all learners on a batch, in place. Each row's score, computed before that row was learned, is written
        to `scores`.

        `targets` has shape (k, n), and `scores` (members, decay rates * k, n). Raises RowNotLearned with the number of
        the first row that makes a learner overflow.
        """
        n, main_learners, diagonal_learners = len(sample_weight), self.main_learners, self.diagonal_learners
        if self.faster:
            learners, n_main = self.all(), len(self.by_decay_rate) * len(main_learners)
            main_learners, diagonal_learners = cast(list[S], learners[:n_main]), learners[n_main:]
            targets = np.tile(targets, (len(self.by_decay_rate), 1))
        if diagonal_learners and n:
            type(diagonal_learners[0]).learn(diagonal_learners, batch, targets, sample_weight, scores[1])
        if n > 1 or (n and (not diagonal_learners or all(map(isfinite, scores[1].ravel().tolist())))):
            type(main_learners[0]).learn(main_learners, batch, targets, sample_weight, scores[0])
        if not all(map(isfinite, scores[..., -1:].ravel().tolist())):
            refused: NDArray[np.bool_] = ~np.asarray(np.isfinite(scores).all(axis=0))  # (k, n)
            row = int(refused.any(axis=0).argmax())
            raise RowNotLearned(row, main_learners[int(refused[:, row].argmax())])

    def read_out(
        self, scores: Floats, targets: Floats, sample_weight: Floats, numbers: Counts, *, is_new: bool = False
    ) -> Floats:
        """Return the calibrated scores (k, n) of rows just learned, combined from the scores of all learners.
        Calibrations, the weights of the learners and the number of mistakes are updated in place.

        `scores` has shape (members, decay rates * k, n). Each score was computed before its row was learned. A row is a
        mistake if its class (`numbers`, (n,)) does not have the largest score, or with one learner if its score has the
        wrong sign. With `is_new` row 0 is the first of its class, and a mistake.
        """
        if self.mix is None:
            combined_scores = self._apply_readout(self.readout, scores, targets, sample_weight)
        else:
            k, n = targets.shape
            scores_by_rate = scores.reshape(len(scores), len(self.by_decay_rate), k, n)
            scores_by_readout = [
                self._apply_readout(readout, scores_by_rate[:, g], targets, sample_weight)
                for g, readout in self.readouts
            ]
            if k == 1:
                combined_scores = self.mix.learn(np.array(scores_by_readout), targets[0], sample_weight)
            else:
                signs = np.array(self.signs)[:, None]
                answers = (targets * signs).argmax(axis=0)
                combined_scores = self.mix.learn(np.array(scores_by_readout) * signs, answers, sample_weight) * signs
        if len(self.main_learners) > 1:
            self.counted.tally[MISTAKES] += len(numbers) - np.count_nonzero(
                self.is_correct(combined_scores, numbers, is_new=is_new)
            )
            return combined_scores
        if self.readout is None and self.mix is None:
            return combined_scores
        if combined_scores.size == 1:  # much faster than NumPy
            self.counted.tally[MISTAKES] += combined_scores.item() * targets.item() <= 0
        else:
            self.counted.tally[MISTAKES] += np.count_nonzero(combined_scores * targets <= 0)
        return combined_scores

    def _apply_readout(
        self, readout: ScoreCalibration | Blend | None, scores: Floats, targets: Floats, sample_weight: Floats
    ) -> Floats:
        """Combine the learners' `scores` (members, k, n) by a calibration or blend, and return the result (k, n).

        The calibration is then updated with the targets, in place.
        """
        if readout is None:
            return scores[0]
        if len(self.main_learners) > 1:
            signs = np.array(self.signs)[:, None]
            return readout.learn(scores * signs, (targets * signs).argmax(axis=0), sample_weight) * signs
        if isinstance(readout, Blend):
            return readout.learn(scores[:, 0], targets[0], sample_weight)[None, :]
        return readout.learn(scores, targets[0], sample_weight)

    def combine(self, coefs: Floats) -> Floats:
        """Return the coefficients of the calibrated scores, combined from the coefficients of all learners.

        coefs has shape (members * decay rates * k, d), the result (k, d).
        """
        coefs_by_rate = coefs.reshape(self.n_members, len(self.by_decay_rate), len(self.main_learners), coefs.shape[-1])
        combined_by_readout = [
            coefs_by_rate[0, g] if readout is None else readout.combine(coefs_by_rate[:, g])
            for g, readout in self.readouts
        ]
        return combined_by_readout[0] if self.mix is None else self.mix.combine(np.stack(combined_by_readout))

    def intercepts(self) -> Floats:
        """Return the intercept that calibration adds to the scores, once for each main learner, shape (k, 1)."""
        intercepts = [
            readout.intercept(self.n_members) if isinstance(readout, ScoreCalibration) else 0.0
            for _, readout in self.readouts
        ]
        value = intercepts[0] if self.mix is None else float(self.mix.combine(np.array(intercepts)))
        return np.full((len(self.main_learners), 1), value)

    def is_correct(self, scores: Floats, numbers: Counts, *, is_new: bool) -> NDArray[np.bool_]:
        """Return a mask (n,) of the rows whose own class has the largest score, or with one learner the right sign.

        False for row 0 if is_new: no learner knew its class.
        """
        if len(self.main_learners) == 1:
            return scores[0] * self.targets(numbers)[0] > 0
        signed = self.signed(scores)
        class_entries = numbers, np.arange(len(numbers))
        own_scores = signed[class_entries]
        signed[class_entries] = -np.inf
        is_right = own_scores > signed.max(axis=0)
        if is_new:
            is_right[0] = False
        return is_right


# Remedy for squares of features that overflow or underflow: about the square roots of the limits of float64.
SQUARES_REMEDY = "scale the features so that their values are 0 or from 1e-150 to 1e150 in size"


class RowNotLearned(ArithmeticError):
    """Raised if a row cannot be learned because coefficients or squared features overflow, or squared features
    underflow. `row` is the number of that row in the batch.
    """

    def __init__(self, row: int, state: LearnedState | None = None) -> None:
        super().__init__(row)
        self.row = row
        self.state = state  # None: squares of features left the range, before a state could learn the row

    def message(self, n_rows: int, cause: str | None) -> str:
        """Return the error message for the user; n_rows rows were learned before the batch.

        `cause` explains why coefficients overflowed. It is None if squares of features left the range.
        """
        subject, row = "squares of the features" if cause is None else "coefficients", n_rows + self.row + 1
        return f"the {subject} left the range of numbers in row {row}: {cause or SQUARES_REMEDY}"
