"""States of one stream: one for two classes or for real targets, one against the rest for each of more classes.

State k learns the class of number k: its targets are +1 for that class and -1 for the others, times its sign. The sign
lets a state serve the other of two classes as well: all that is odd in the targets is read with the other sign, and no
array is touched. So the state of two classes, copied with its sign turned, is that of the second class when a third one
appears, and a class that appears begins with nothing, at the row where it appears.

A read-out makes one score for each class, and its probability, of the scores of one or more members. It learns from
scores that were given before their row was learned from, as a model in use gives them: so it knows how sure they ought
to be, and which member to listen to. Its rounds are in _kernels/online/readout.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fastsketch._core.losses import LOSSES
from fastsketch._kernels.losses import NO_PENALTY
from fastsketch._kernels.online import readout
from fastsketch._kernels.online.numbers import DIAGONAL
from fastsketch.online._adaptive_state import DiagonalSetting, DiagonalState, start_diagonal
from fastsketch.online._state_arrays import Arrays, Counts, Csr, Floats, LearnedState, RowBatch, Zeros

NAMES, NAMES_OF_BLEND = ("readout_weights", "readout_information"), ("blend_sums",)  # in files
S = TypeVar("S", bound=LearnedState)


# Of the diagonal learner that scores are blended with; it takes the logistic loss.
RATE_BESIDE, DELTA_BESIDE = 1.0, 1e-8
# Learning rate of real targets, where steps are in units of residuals: by progressive losses of four sets.
RATE_OF_NUMBERS = 0.25


# -- the read-out ------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class ReadOut(Arrays):
    """Weights of the members, and an intercept where one state serves two classes."""

    readout_weights: Floats  # (q,): members, and the intercept
    readout_information: Floats  # (q, q)
    decay: float = 1.0  # what a row leaves of the information before it

    def learn(self, members: Floats, numbers: Counts, sample_weight: Floats) -> Floats:
        """Return the scores (k, n) of rows, each computed before its row was learned from.

        members (p, k, n): the scores of each member for each class; numbers (n,): 0 or 1 for the only state, else that
        of the class.
        """
        scores = np.empty(members.shape[1:])
        readout.rounds(
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

    def intercept(self, n_members: int) -> float:
        """Return 0: a blend has no constant term."""
        return 0.0

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
def start_beside(loss: str, decay: float, n_slots: int, sparse: bool, zeros: Zeros = np.zeros) -> DiagonalState:
    """Return the diagonal learner with whose scores to blend, before the first row; n_slots: or columns."""
    of_labels = LOSSES[loss].targets == "label"
    number = LOSSES["logistic" if of_labels else loss].number
    setting = DiagonalSetting(DIAGONAL, number, NO_PENALTY, False, 0.0, decay, in_units=not of_labels)
    rate = np.array([RATE_BESIDE if of_labels else RATE_OF_NUMBERS])
    return start_diagonal(setting, rate, np.array([DELTA_BESIDE]), d=n_slots, sparse=sparse, zeros=zeros)


# -- the states --------------------------------------------------------------------------------------------------------
def n_states(n_classes: int) -> int:
    """Return how many states a number of classes needs."""
    return n_classes if n_classes > 2 else 1


@dataclass(slots=True)
class States(Generic[S]):
    """States of all classes, with the learners beside them and their read-out."""

    held: list[S]
    signs: list[float]  # of each state
    mistakes: int = 0  # rows of a wrong score, of more than two classes or with a read-out: states count their own
    shared: float = 0.0  # the loss of two classes, which the states of both have counted
    beside: list[LearnedState] = field(
        default_factory=list[LearnedState]
    )  # a second learner of each state's targets, or none
    readout: ReadOut | Blend | None = None  # what is made of the scores
    past: tuple[int, float, int] = (0, 0.0, 0)  # totals of states before these

    def copied(self) -> "States[S]":
        """Return a copy with arrays of its own."""
        return States(
            [state.copied() for state in self.held],
            list(self.signs),
            self.mistakes,
            self.shared,
            [state.copied() for state in self.beside],
            None if self.readout is None else self.readout.copied(0),
            self.past,
        )

    def anew(self, begin: Callable[[], tuple[S, LearnedState | None]]) -> "States[S]":
        """Return states of the same classes that have learned nothing."""
        held, beside = zip(*(begin() for _ in self.held), strict=True)
        new = States(list(held), list(self.signs), beside=[state for state in beside if state is not None])
        if isinstance(self.readout, Blend):
            new.readout = Blend(np.zeros(2), self.readout.decay)
        elif self.readout is not None:
            new.readout = start_readout(len(new.members()), len(held), decay=self.readout.decay)
        return new

    def follow(self, old: "States[S]") -> None:
        """Take the place of other states, which have learned from the same rows and from more before them."""
        rows, loss, mistakes = old.totals()
        own_rows, own_loss, own_mistakes = self.totals()
        left = loss - own_loss
        self.past = rows - own_rows, left if isfinite(left) else loss, mistakes - own_mistakes
        for state, other in zip(self.all(), old.all(), strict=True):
            state.regret[:] = other.regret
            # slots stay what they are, also those that these have not met
            state.make_slots(other.n_slots)
            state.seen[0] = max(int(state.seen[0]), other.n_slots)

    def is_atomic(self) -> bool:
        """Return whether one row is learned from in whole or not at all, so that no copy is needed."""
        lone = self.lone()
        return lone.is_atomic() if lone is not None else len(self.held) == 1 and all(s.is_atomic() for s in self.all())

    def lone(self) -> S | None:
        """Return the only learner, or None: streams of single rows call this often."""
        return self.held[0] if len(self.held) == 1 and not self.beside else None

    def all(self) -> list[LearnedState]:
        """Return all learners."""
        return [*self.held, *self.beside]

    def fade(self, factor: float) -> None:
        """Multiply the weight of earlier rows by `factor`, also in the read-out."""
        for state in self.all():
            state.fade(factor)
        if self.readout is not None:
            self.readout.fade(factor)

    def members(self) -> list[list[LearnedState]]:
        """Return the learners that the read-out combines, a list with one for each state for every member."""
        return [list[LearnedState](self.held), self.beside] if self.beside else [list[LearnedState](self.held)]

    def totals(self) -> tuple[int, float, int]:
        """Return (rows seen, cumulative loss, mistakes); with several states the loss is the sum of theirs."""
        rows, loss, mistakes = self.held[0].totals()
        if len(self.held) > 1:
            loss, mistakes = sum(state.totals()[1] for state in self.held) - self.shared, self.mistakes
        elif self.readout is not None:
            mistakes = self.mistakes
        before = self.past
        return rows + before[0], loss + before[1], mistakes + before[2]

    def signed(self, values: Floats) -> Floats:
        """Return scores or coefficients (k, n) of the states as those of their classes; zeros stay without a sign."""
        return values * np.array(self.signs)[:, None] + 0.0

    def add_class(self, begin: Callable[[], tuple[S, LearnedState | None]]) -> None:
        """Add a class: the third, or one more."""
        if len(self.held) == 1:
            _, self.shared, mistakes = self.held[0].totals()
            self.mistakes = mistakes if self.readout is None else self.mistakes
            self.held.append(self.held[0].copied())
            self.beside.extend([state.copied() for state in self.beside])
            self.signs.append(-self.signs[0])
            if self.readout is not None:  # of two scores that mirror each other it knows the difference alone
                self.readout = start_readout(len(self.members()), 3, decay=self.readout.decay)
        state, beside = begin()
        self.held.append(state)
        if beside is not None:
            self.beside.append(beside)
        self.signs.append(1.0)

    def targets(self, numbers: Counts) -> Floats:
        """Return the targets of each state, (k, n)."""
        if len(self.held) == 1:
            sign = self.signs[0]
            return np.array([sign, -sign])[numbers][None, :]
        signs = np.array(self.signs)[:, None]
        return np.where(numbers == np.arange(len(signs))[:, None], signs, -signs)

    def learn(self, batch: RowBatch, targets: Floats, sample_weight: Floats) -> Floats:
        """Learn from targets (k, n): the scores (k, n) of the states, each from before its row was learned from.

        Unlearned says which row was refused.
        """
        members = self.members()
        scores = np.full((len(members), *targets.shape), np.nan)
        before = [[state.totals()[0] for state in learners] for learners in members]
        for learners, of_member in zip(members, scores, strict=True):
            for state in learners:
                state.prepare(batch)
            type(learners[0]).learn_together(learners, batch, targets, sample_weight, of_member)
        refused = ~np.isfinite(scores).all(axis=2)
        if refused.any():
            row, k = min((members[p][k].totals()[0] - before[p][k], k) for p, k in np.argwhere(refused).tolist())
            raise Unlearned(self.held[k], row)
        return self.read_out(scores, targets, sample_weight)

    def after_one(
        self, own: Floats, others: list[Floats], target: Floats, weight: Floats
    ) -> tuple[float, ReadOut | Blend | None, int]:
        """Return the (score, read-out, mistakes) that one row of the only state leads to; nothing is changed."""
        if self.readout is None:
            return own.item(), None, self.mistakes
        states = States(self.held, self.signs, self.mistakes, beside=self.beside, readout=self.readout.copied(0))
        members = np.concatenate([own, *others]).reshape(-1, 1, 1)
        out = states.read_out(members, target[None, :], weight).item()
        return out, states.readout, states.mistakes

    def read_out(self, scores: Floats, targets: Floats, sample_weight: Floats) -> Floats:
        """Return scores (k, n) made of those of the members (members, k, n), and let the read-out learn from them."""
        if self.readout is None:
            return scores[0]
        if isinstance(self.readout, Blend):
            out = self.readout.learn(scores[:, 0], targets[0], sample_weight)[None, :]
            self.mistakes += int(np.count_nonzero(out * targets <= 0))
            return out
        if len(self.held) == 1:
            out = self.readout.learn(scores, (targets[0] > 0).astype(np.int64), sample_weight)
            self.mistakes += int(np.count_nonzero(out * targets <= 0))
            return out
        signs = np.array(self.signs)[:, None]
        return self.readout.learn(scores * signs, (targets * signs).argmax(axis=0), sample_weight) * signs

    def combined(self, coefs: Floats) -> Floats:
        """Return w of the states (k, d) from those of all learners (members k, d)."""
        if self.readout is None:
            return coefs
        return self.readout.combined(coefs.reshape(len(self.members()), len(self.held), coefs.shape[-1]))

    def intercepts(self) -> Floats:
        """Return the constant terms of the scores of all states, (k, 1)."""
        value = 0.0 if self.readout is None else self.readout.intercept(len(self.members()))
        return np.full((len(self.held), 1), value)

    def count_mistakes(self, scores: Floats, numbers: Counts, *, is_new: bool) -> None:
        """Count the rows whose class has not the largest score, of more than two; is_new: the first has a new one."""
        if len(self.held) > 1:
            self.mistakes += len(numbers) - int(np.count_nonzero(self.right(scores, numbers, is_new=is_new)))

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
    """Error of a state that has refused a row: the coefficients left the range of numbers."""

    def __init__(self, state: LearnedState, row: int) -> None:
        super().__init__(row)
        self.state = state
        self.row = row  # of the batch


def part_of(batch: RowBatch, first: int, stop: int) -> RowBatch:
    """Return rows first to stop - 1 of a batch; views."""
    if not isinstance(batch, Csr):
        return batch[first:stop]
    begin, end = int(batch.indptr[first]), int(batch.indptr[stop])
    return Csr(batch.data[begin:end], batch.indices[begin:end], batch.indptr[first : stop + 1] - begin)
