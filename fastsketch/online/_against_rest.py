"""The states of one stream: one for two classes or for real targets, one against the rest for each of more classes.

State k learns the class of number k: its targets are +1 for that class and -1 for the others, times its sign. The sign
lets a state serve the other of two classes as well: all that is odd in the targets is read with the other sign, and no
array is touched. So the state of two classes, copied with its sign turned, is that of the second class when a third one
appears, and a class that appears begins with nothing, at the row where it appears.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch.online import _readout
from fastsketch.online._readout import Blend, ReadOut
from fastsketch.online._state import Batch, Counts, Csr, Floats, Learned

S = TypeVar("S", bound=Learned)


def n_states(n_classes: int) -> int:
    """How many states so many classes need."""
    return n_classes if n_classes > 2 else 1


@dataclass(slots=True)
class States(Generic[S]):
    """The states, and what is known of all together."""

    held: list[S]
    signs: list[float]  # of each state
    mistakes: int = 0  # rows of a wrong score, of more than two classes or with a read-out: states count their own
    shared: float = 0.0  # the loss of two classes, which the states of both have counted
    beside: list[Learned] = field(default_factory=list[Learned])  # a second learner of each state's targets, or none
    readout: ReadOut | Blend | None = None  # what is made of the scores
    past: tuple[int, float, int] = (0, 0.0, 0)  # totals of states before these

    def copied(self) -> "States[S]":
        """The same with arrays of its own."""
        return States(
            [state.copied() for state in self.held],
            list(self.signs),
            self.mistakes,
            self.shared,
            [state.copied() for state in self.beside],
            None if self.readout is None else self.readout.copied(0),
            self.past,
        )

    def anew(self, begin: Callable[[], tuple[S, Learned | None]]) -> "States[S]":
        """States of the same classes that have learned nothing."""
        held, beside = zip(*(begin() for _ in self.held), strict=True)
        new = States(list(held), list(self.signs), beside=[state for state in beside if state is not None])
        if isinstance(self.readout, Blend):
            new.readout = Blend(np.zeros(2), self.readout.decay)
        elif self.readout is not None:
            new.readout = _readout.start(len(new.members()), len(held), decay=self.readout.decay)
        return new

    def follow(self, old: "States[S]") -> None:
        """Go on in place of others, that have learned from the same rows and from more before them."""
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
        """Whether one row is learned from in whole or not at all, so that no copy is needed."""
        lone = self.lone()
        return lone.is_atomic() if lone is not None else len(self.held) == 1 and all(s.is_atomic() for s in self.all())

    def lone(self) -> S | None:
        """The only learner, if there is but one: of it a stream of single rows asks much."""
        return self.held[0] if len(self.held) == 1 and not self.beside else None

    def all(self) -> list[Learned]:
        """All learners."""
        return [*self.held, *self.beside]

    def fade(self, factor: float) -> None:
        """What came before counts `factor` of what it did, also in the read-out."""
        for state in self.all():
            state.fade(factor)
        if self.readout is not None:
            self.readout.fade(factor)

    def members(self) -> list[list[Learned]]:
        """The learners that the read-out combines, of all states each."""
        return [list[Learned](self.held), self.beside] if self.beside else [list[Learned](self.held)]

    def totals(self) -> tuple[int, float, int]:
        """(rows seen, cumulative loss, mistakes): with several states the sum of their losses."""
        rows, loss, mistakes = self.held[0].totals()
        if len(self.held) > 1:
            loss, mistakes = sum(state.totals()[1] for state in self.held) - self.shared, self.mistakes
        elif self.readout is not None:
            mistakes = self.mistakes
        before = self.past
        return rows + before[0], loss + before[1], mistakes + before[2]

    def signed(self, values: Floats) -> Floats:
        """Scores or coefficients (k, n) of the states as those of their classes; zeros stay without a sign."""
        return values * np.array(self.signs)[:, None] + 0.0

    def add_class(self, begin: Callable[[], tuple[S, Learned | None]]) -> None:
        """One class more than two, or than there are."""
        if len(self.held) == 1:
            _, self.shared, mistakes = self.held[0].totals()
            self.mistakes = mistakes if self.readout is None else self.mistakes
            self.held.append(self.held[0].copied())
            self.beside.extend([state.copied() for state in self.beside])
            self.signs.append(-self.signs[0])
            if self.readout is not None:  # of two scores that mirror each other it knows the difference alone
                self.readout = _readout.start(len(self.members()), 3, decay=self.readout.decay)
        state, beside = begin()
        self.held.append(state)
        if beside is not None:
            self.beside.append(beside)
        self.signs.append(1.0)

    def targets(self, numbers: Counts) -> Floats:
        """What each state is to learn, (k, n)."""
        if len(self.held) == 1:
            sign = self.signs[0]
            return np.array([sign, -sign])[numbers][None, :]
        signs = np.array(self.signs)[:, None]
        return np.where(numbers == np.arange(len(signs))[:, None], signs, -signs)

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats) -> Floats:
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
        """(score, read-out, mistakes) that one row of the only state leads to; nothing is changed."""
        if self.readout is None:
            return own.item(), None, self.mistakes
        states = States(self.held, self.signs, self.mistakes, beside=self.beside, readout=self.readout.copied(0))
        members = np.concatenate([own, *others]).reshape(-1, 1, 1)
        out = states.read_out(members, target[None, :], weight).item()
        return out, states.readout, states.mistakes

    def read_out(self, scores: Floats, targets: Floats, sample_weight: Floats) -> Floats:
        """What the read-out makes of the scores (members, k, n), which it learns from: scores (k, n)."""
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
        """w of the states (k, d) from those of all learners (members k, d)."""
        if self.readout is None:
            return coefs
        return self.readout.combined(coefs.reshape(len(self.members()), len(self.held), coefs.shape[-1]))

    def intercepts(self) -> Floats:
        """What is added to the scores of all states, (k, 1)."""
        value = 0.0 if self.readout is None else self.readout.intercept(len(self.members()))
        return np.full((len(self.held), 1), value)

    def count_mistakes(self, scores: Floats, numbers: Counts, *, is_new: bool) -> None:
        """Count the rows whose class has not the largest score, of more than two; is_new: the first has a new one."""
        if len(self.held) > 1:
            self.mistakes += len(numbers) - int(np.count_nonzero(self.right(scores, numbers, is_new=is_new)))

    def right(self, scores: Floats, numbers: Counts, *, is_new: bool) -> NDArray[np.bool_]:
        """Whether the score of the own class is above all others, (n,)."""
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
    """A state has refused a row: the coefficients left the range of numbers."""

    def __init__(self, state: Learned, row: int) -> None:
        super().__init__(row)
        self.state = state
        self.row = row  # of the batch


def part_of(batch: Batch, first: int, stop: int) -> Batch:
    """Some rows of a batch; views."""
    if not isinstance(batch, Csr):
        return batch[first:stop]
    begin, end = int(batch.indptr[first]), int(batch.indptr[stop])
    return Csr(batch.data[begin:end], batch.indices[begin:end], batch.indptr[first : stop + 1] - begin)
