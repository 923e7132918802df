"""States of one stream: one for two classes or for real targets, one against the rest for each of more classes.

State k learns the class of number k: its targets are +1 for that class and -1 for the others, times its sign. The sign
lets a state serve the other of two classes as well: all that is odd in the targets is read with the other sign, and no
array is touched. So the state of two classes, copied with its sign turned, is that of the second class when a third one
appears, and a class that appears begins with nothing, at the row where it appears.

A read-out makes one score for each class, and its probability, of the scores of one or more members. It learns from
scores that were given before their row was learned from, as a model in use gives them: so it knows how sure they ought
to be, and which member to listen to. Its rounds are in _kernels/online/readout.
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
    Changing,
    Counts,
    Csr,
    Floats,
    LearnedState,
    RowBatch,
    Zeros,
)

S = TypeVar("S", bound=LearnedState)


# Default learning rates of the diagonal learner (AdaGrad) that scores are blended with: of labels, and of real targets,
# where steps are in units of residuals.
BLEND_RATE_OF_LABELS, BLEND_RATE_OF_NUMBERS = 1.0, 0.25
# delta of AdaGrad (Duchi, Hazan and Singer 2011), which keeps the first division finite: the default `eps` of
# river's optim.AdaGrad.
ADAGRAD_DELTA = 1e-8


# -- the read-out ------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class ReadOut(Arrays):
    """Weights of the members, and an intercept where one state serves two classes."""

    readout_weights: Floats  # (q,): members, and the intercept
    readout_information: Floats  # (q, q)
    decay: float = 1.0  # what a row leaves of the information before it

    def arrays(self) -> list[Floats]:
        """Return what rows change."""
        return [self.readout_weights, self.readout_information]

    def learn(self, members: Floats, numbers: Counts | Floats, sample_weight: Floats) -> Floats:
        """Return the scores (k, n) of rows, each computed before its row was learned from.

        members (p, k, n): the scores of each member for each class; numbers (n,): of the only state above 0 or not,
        else those of the classes.
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

    def combined(self, members: Floats) -> Floats:
        """Combine (p, ...) by the weights: scores without the intercept, or coefficients."""
        return np.tensordot(self.readout_weights[: len(members)], members, 1)

    def intercept(self, n_members: int) -> float:
        """Return the constant term of the combined score: 0 for more than two classes."""
        return float(self.readout_weights[-1]) if len(self.readout_weights) > n_members else 0.0

    def fade(self, factor: float) -> None:
        """Multiply the weight of earlier rows by `factor`; the prior information stays."""
        if factor < 1.0:
            h = self.readout_information
            h *= factor
            at = np.arange(len(h))
            h[at, at] = np.maximum(1.0, h[at, at] + (1.0 - factor))

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rounds could have made these arrays; return names."""
        names = self.validate(arrays)
        information = arrays["readout_information"]
        if (information != information.T).any() or (np.diagonal(information) < 1.0).any():
            raise ValueError("array 'readout_information' must be symmetric, and 1 or more on its diagonal")
        return names


@dataclass(slots=True)
class Blend(Arrays):
    """One score from those of two members, for real targets: a + share (b - a)."""

    blend_sums: Floats  # (2,): of (b - a)(y - a) and of (b - a)^2, for the share of least squares
    decay: float = 1.0  # what a row leaves of the sums before it

    def arrays(self) -> list[Floats]:
        """Return what rows change."""
        return [self.blend_sums]

    def learn(self, members: Floats, targets: Floats, sample_weight: Floats) -> Floats:
        """Return scores (n,) of rows from those of the members (2, n), each from before its row was learned from."""
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

    def combined(self, members: Floats) -> Floats:
        """Combine scores or coefficients (2, ...) by the present share."""
        return members[0] + readout.share_now(self.blend_sums) * (members[1] - members[0])

    def fade(self, factor: float) -> None:
        """Multiply the weight of earlier rows by `factor`."""
        self.blend_sums *= factor

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rounds could have made these arrays; return names."""
        names = self.validate(arrays)
        if arrays["blend_sums"][1] < 0:
            raise ValueError("array 'blend_sums' must end with a sum of squares")
        return names


def start_readout(n_members: int, n_states: int, zeros: Zeros = np.zeros, *, decay: float = 1.0) -> ReadOut:
    """Return the read-out before the first row, the mean of the members; with zeros=outline, one of the same shapes."""
    q = n_members + (n_states == 1)
    out = ReadOut(zeros(q), zeros((q, q)), decay)
    if zeros is np.zeros:
        out.readout_weights[:n_members] = 1.0 / n_members
        np.fill_diagonal(out.readout_information, 1.0)
    return out


def probabilities(scores: Floats) -> Floats:
    """Return the probability of the positive class (n,) for scores (n,), of every class (n, k) for scores (n, k)."""
    return expit(scores) if scores.ndim == 1 else softmax(scores, axis=1)


# -- the learner beside a state ----------------------------------------------------------------------------------------
def start_beside(
    loss: str, decay: float, n_slots: int, sparse: bool, zeros: Zeros = np.zeros, rate: float | None = None
) -> DiagonalState:
    """Return the diagonal learner with whose scores to blend, before the first row; n_slots: or columns.

    Of labels it has the logistic loss. rate: its learning rate, None for the default.
    """
    of_labels = LOSSES[loss].targets == "label"
    number = LOSSES["logistic" if of_labels else loss].number
    if rate is None:
        rate = BLEND_RATE_OF_LABELS if of_labels else BLEND_RATE_OF_NUMBERS
    setting = AdaptiveSetting(method=DIAGONAL, loss=number, learning_rate=rate, decay=decay, in_units=not of_labels)
    return start_diagonal(setting, ADAGRAD_DELTA, d=n_slots, sparse=sparse, zeros=zeros)


def pace_name(number: int) -> str:
    """Return what the names of arrays begin with in states of the decay of this number."""
    return f"decay{number}." if number else ""


# -- the states --------------------------------------------------------------------------------------------------------
def n_states(n_classes: int) -> int:
    """Return how many states a number of classes needs."""
    return n_classes if n_classes > 2 else 1


# Entries of a tally: rows of a wrong score, of more than two classes or with a read-out (states count their own); the
# loss of two classes, which the states of both have counted; totals of what these states have not counted: the first
# real target, and in files that were saved with drift="restart", which is gone, the rows before a restart.
MISTAKES, SHARED, PAST_ROWS, PAST_LOSS, PAST_MISTAKES, TALLIES = range(6)


@dataclass(slots=True)
class Tally(Arrays):
    """What belongs to no single state."""

    tally: Annotated[Floats, OF_LOSSES]  # (TALLIES,)

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Raise ValueError unless rows could have made this; return names."""
        names, tally = self.validate(arrays), arrays["tally"].tolist()
        checks.number_within(tally[MISTAKES], "mistakes", 0, 2**53)
        checks.number_within(tally[SHARED], "loss of two states", 0.0, np.inf)
        checks.number_within(tally[PAST_ROWS], "rows before a restart", 0, 2**53)
        checks.number_within(tally[PAST_MISTAKES], "mistakes before a restart", -(2**53), 2**53)
        return names


# Of one row: its target by its side, and its scores before anyone has learned from it.
PLUS, MINUS, UNREAD = np.array([[1.0]]), np.array([[-1.0]]), np.full((2, 1, 1), np.nan)
PLUS.flags.writeable = MINUS.flags.writeable = False


@dataclass(slots=True)
class States(Generic[S]):
    """States of all classes, with the learners beside them and their read-out."""

    held: list[S]
    signs: list[float]  # of each state
    beside: list[LearnedState] = field(default_factory=list[LearnedState])  # a second learner of each, or none
    readout: ReadOut | Blend | None = None  # what is made of the scores
    counted: Tally = field(default_factory=lambda: Tally(np.zeros(TALLIES)))
    decay: float = 1.0
    # with decay="auto": states of the same classes that forget faster, and what makes one score of all
    faster: list["States[S]"] = field(default_factory=list["States[S]"])
    mix: DecayMix | None = None
    steady: ReadOut | None = None  # of those that forget fastest: another one of the same scores, that forgets slowly

    @property
    def paces(self) -> list["States[S]"]:
        """Return these states and those that forget faster."""
        return [self, *self.faster]

    @property
    def readouts(self) -> list[tuple[int, ReadOut | Blend | None]]:
        """Return all read-outs, in the order of the mix, each with the number of the pace whose scores it reads."""
        every = [(g, one.readout) for g, one in enumerate(self.paces)]
        return every + [(g, one.steady) for g, one in enumerate(self.paces) if one.steady is not None]

    def parts(self) -> Iterator[tuple[str, Arrays]]:
        """Return everything in a file, each with what its names begin with."""
        yield "", self.counted
        if self.readout is not None:
            yield "", self.readout
        if self.steady is not None:
            yield "steady.", self.steady
        both: list[tuple[Sequence[LearnedState], str]] = [(self.held, ""), (self.beside, "beside.")]
        for learners, name in both:
            for k, state in enumerate(learners):
                yield f"{k}.{name}", state
        if self.mix is not None:
            yield "", self.mix
        for number, states in enumerate(self.faster, 1):
            for prefix, part in states.parts():
                yield pace_name(number) + prefix, part

    def copied(self) -> "States[S]":
        """Return a copy with arrays of its own."""
        return States(
            [state.copied() for state in self.held],
            list(self.signs),
            [state.copied() for state in self.beside],
            None if self.readout is None else self.readout.copied(),
            self.counted.copied(),
            self.decay,
            [states.copied() for states in self.faster],
            None if self.mix is None else self.mix.copied(),
            None if self.steady is None else self.steady.copied(),
        )

    def all(self) -> list[LearnedState]:
        """Return all learners: of each pace those held, then those beside."""
        if not self.faster:
            return [*self.held, *self.beside]
        held: list[LearnedState] = [state for states in self.paces for state in states.held]
        return [*held, *(state for states in self.paces for state in states.beside)]

    def fade(self, factor: float) -> None:
        """Multiply the weight of earlier rows by `factor`, also in the read-out."""
        for state in self.all():
            state.fade(factor)
        for _, one in self.readouts:
            if one is not None:
                one.fade(factor)

    @property
    def n_members(self) -> int:
        """Return the number of learners of each state that the read-out combines."""
        return 2 if self.beside else 1

    def totals(self) -> tuple[int, float, int]:
        """Return (rows seen, cumulative loss, mistakes); with several states the loss is the sum of theirs."""
        rows, loss, mistakes = self.held[0].totals()
        own, shared, past_rows, past_loss, past_mistakes = self.counted.tally.tolist()
        if len(self.held) > 1:
            loss = sum(state.totals()[1] for state in self.held) - shared
        if len(self.held) > 1 or self.readout is not None or self.mix is not None:
            mistakes = int(own)
        return rows + int(past_rows), loss + past_loss, mistakes + int(past_mistakes)

    def signed(self, values: Floats) -> Floats:
        """Return scores or coefficients (k, n) of the states as those of their classes; zeros stay without a sign."""
        return values * np.array(self.signs)[:, None] + 0.0

    def add_class(self, begin: Callable[[float], tuple[S, LearnedState | None]]) -> None:
        """Add a class: the third, or one more."""
        for states in self.faster:
            states.add_class(begin)
        if len(self.held) == 1:
            _, loss, mistakes = self.held[0].totals()
            self.counted.tally[SHARED] = loss
            if self.readout is None:
                self.counted.tally[MISTAKES] = mistakes
            self.held.append(self.held[0].copied())
            self.beside.extend([state.copied() for state in self.beside])
            self.signs.append(-self.signs[0])
            if self.readout is not None:  # of two scores that mirror each other it knows the difference alone
                self.readout = start_readout(self.n_members, 3, decay=self.readout.decay)
            if self.steady is not None:
                self.steady = start_readout(self.n_members, 3, decay=self.steady.decay)
        state, beside = begin(self.decay)
        self.held.append(state)
        if beside is not None:
            self.beside.append(beside)
        self.signs.append(1.0)

    def targets(self, numbers: Counts) -> Floats:
        """Return the targets of each state, (k, n)."""
        if len(self.held) == 1:
            sign = self.signs[0]
            if len(numbers) == 1:  # sooner
                return MINUS if (sign > 0) == numbers.item() else PLUS
            return np.array([sign, -sign])[numbers][None]
        signs = np.array(self.signs)[:, None]
        return np.where(numbers == np.arange(len(signs))[:, None], signs, -signs)

    def unread(self, targets: Floats) -> Floats:
        """Return the scores (members, paces k, n) of rows that nobody has learned from yet: NaN."""
        if targets.size == 1 and not self.faster:  # sooner
            return UNREAD[: 2 if self.beside else 1].copy()
        return np.full((2 if self.beside else 1, len(self.paces) * len(targets), targets.shape[1]), np.nan)

    def following(self) -> Changing:
        """Return what is no state's, and changes when the states have learned."""
        if self.readout is None and self.mix is None:
            return [] if len(self.held) == 1 else [(self.counted.tally, ...)]
        arrays = [] if self.mix is None else self.mix.arrays()
        arrays += [array for _, one in self.readouts if one is not None for array in one.arrays()]
        return [(self.counted.tally, ...), *((array, ...) for array in arrays)]

    def learn(self, batch: RowBatch, targets: Floats, sample_weight: Floats, scores: Floats) -> None:
        """Learn from targets (k, n), and fill in the scores (members, paces k, n), each from before its row.

        Unlearned says which row was refused. The learners beside come first: they are quickly put back.
        """
        n, held, beside = len(sample_weight), self.held, self.beside
        if self.faster:
            learners, at = self.all(), len(self.paces) * len(held)
            held, beside = cast(list[S], learners[:at]), learners[at:]
            targets = np.tile(targets, (len(self.paces), 1))
        if beside and n:
            type(beside[0]).learn(beside, batch, targets, sample_weight, scores[1])
        if n > 1 or (n and (not beside or all(map(isfinite, scores[1].ravel().tolist())))):
            type(held[0]).learn(held, batch, targets, sample_weight, scores[0])
        if not all(map(isfinite, scores[..., -1:].ravel().tolist())):
            refused: NDArray[np.bool_] = ~np.asarray(np.isfinite(scores).all(axis=0))  # (k, n)
            row = int(refused.any(axis=0).argmax())
            raise Unlearned(row, held[int(refused[:, row].argmax())])

    def read_out(
        self, scores: Floats, targets: Floats, sample_weight: Floats, numbers: Counts, *, is_new: bool = False
    ) -> Floats:
        """Return scores (k, n) made of those of the members (members, paces k, n), which the read-outs learn from.

        Rows whose class (n,) has not the largest score are mistakes; is_new: nobody could have said that of row 0.
        """
        if self.mix is None:
            out = self._read(self.readout, scores, targets, sample_weight)
        else:
            k, n = targets.shape
            sides = scores.reshape(len(scores), len(self.paces), k, n)
            each = [self._read(one, sides[:, g], targets, sample_weight) for g, one in self.readouts]
            if k == 1:
                out = self.mix.learn(np.array(each), targets[0], sample_weight)
            else:
                signs = np.array(self.signs)[:, None]
                answers = (targets * signs).argmax(axis=0)
                out = self.mix.learn(np.array(each) * signs, answers, sample_weight) * signs
        if len(self.held) > 1:
            self.counted.tally[MISTAKES] += len(numbers) - np.count_nonzero(self.right(out, numbers, is_new=is_new))
            return out
        if self.readout is None and self.mix is None:
            return out
        if out.size == 1:  # many times as fast
            self.counted.tally[MISTAKES] += out.item() * targets.item() <= 0
        else:
            self.counted.tally[MISTAKES] += np.count_nonzero(out * targets <= 0)
        return out

    def _read(self, readout: ReadOut | Blend | None, scores: Floats, targets: Floats, sample_weight: Floats) -> Floats:
        """Return the scores (k, n) that a read-out makes of those of the members of its pace (members, k, n)."""
        if readout is None:
            return scores[0]
        if len(self.held) > 1:
            signs = np.array(self.signs)[:, None]
            return readout.learn(scores * signs, (targets * signs).argmax(axis=0), sample_weight) * signs
        if isinstance(readout, Blend):
            return readout.learn(scores[:, 0], targets[0], sample_weight)[None, :]
        return readout.learn(scores, targets[0], sample_weight)

    def combined(self, coefs: Floats) -> Floats:
        """Return w of the states (k, d) from those of all learners (members paces k, d)."""
        sides = coefs.reshape(self.n_members, len(self.paces), len(self.held), coefs.shape[-1])
        each = [sides[0, g] if one is None else one.combined(sides[:, g]) for g, one in self.readouts]
        return each[0] if self.mix is None else self.mix.combined(np.stack(each))

    def intercepts(self) -> Floats:
        """Return the constant terms of the scores of all states, (k, 1)."""
        each = [one.intercept(self.n_members) if isinstance(one, ReadOut) else 0.0 for _, one in self.readouts]
        value = each[0] if self.mix is None else float(self.mix.combined(np.array(each)))
        return np.full((len(self.held), 1), value)

    def right(self, scores: Floats, numbers: Counts, *, is_new: bool) -> NDArray[np.bool_]:
        """Return whether the score of the row's class is above all others, (n,)."""
        if len(self.held) == 1:
            return scores[0] * self.targets(numbers)[0] > 0
        signed = self.signed(scores)
        places = numbers, np.arange(len(numbers))
        own = signed[places]
        signed[places] = -np.inf
        right = own > signed.max(axis=0)
        if is_new:
            right[0] = False  # nobody could have said it
        return right


class Unlearned(ArithmeticError):
    """Error of a row of the batch that a state has refused: the coefficients left the range of numbers."""

    def __init__(self, row: int, state: LearnedState | None = None) -> None:
        super().__init__(row)
        self.row = row
        self.state = state  # None: the squares of the row's features did, before any state has had it

    def told(self, n_rows: int, cause: str | None) -> str:
        """Say what left the range of numbers, in which row after n_rows others; `cause`: of coefficients."""
        what = "squares of the features" if cause is None else "coefficients"
        return f"the {what} left the range of numbers in row {n_rows + self.row + 1}" + (f": {cause}" if cause else "")


def part_of(batch: RowBatch, first: int, stop: int) -> RowBatch:
    """Return rows first to stop - 1 of a batch; views."""
    if not isinstance(batch, Csr):
        return batch[first:stop]
    begin, end = int(batch.indptr[first]), int(batch.indptr[stop])
    return Csr(batch.data[begin:end], batch.indices[begin:end], batch.indptr[first : stop + 1] - begin)
