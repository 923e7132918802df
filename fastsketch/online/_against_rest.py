"""The states of one stream: one for two classes or for real targets, one against the rest for each of more classes.

State k learns the class of number k: its targets are +1 for that class and -1 for the others, times its sign. The sign
lets a state serve the other of two classes as well: all that is odd in the targets is read with the other sign, and no
array is touched. So the state of two classes, copied with its sign turned, is that of the second class when a third one
appears, and a class that appears begins with nothing, at the row where it appears.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._validation import all_finite
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
    mistakes: int = 0  # rows of more than two classes whose own had not the largest score
    shared: float = 0.0  # the loss of two classes, which the states of both have counted
    past: tuple[int, float, int] = (0, 0.0, 0)  # totals of states before these

    def copied(self) -> "States[S]":
        """The same with arrays of its own."""
        return States([state.copied() for state in self.held], list(self.signs), self.mistakes, self.shared, self.past)

    def anew(self, begin: Callable[[], S]) -> "States[S]":
        """States of the same classes that have learned nothing."""
        return States([begin() for _ in self.held], list(self.signs))

    def follow(self, old: "States[S]") -> None:
        """Go on in place of others, that have learned from the same rows and from more before them."""
        rows, loss, mistakes = old.totals()
        own_rows, own_loss, own_mistakes = self.totals()
        left = loss - own_loss
        self.past = rows - own_rows, left if isfinite(left) else loss, mistakes - own_mistakes
        for state, other in zip(self.held, old.held, strict=True):
            state.regret[:] = other.regret
            # slots stay what they are, also those that these have not met
            state.make_slots(other.n_slots)
            state.seen[0] = max(int(state.seen[0]), other.n_slots)

    def is_atomic(self) -> bool:
        """Whether one row is learned from in whole or not at all, so that no copy is needed."""
        return len(self.held) == 1 and self.held[0].is_atomic()

    def totals(self) -> tuple[int, float, int]:
        """(rows seen, cumulative loss, mistakes): with several states the sum of their losses."""
        rows, loss, mistakes = self.held[0].totals()
        if len(self.held) > 1:
            loss, mistakes = sum(state.totals()[1] for state in self.held) - self.shared, self.mistakes
        before = self.past
        return rows + before[0], loss + before[1], mistakes + before[2]

    def signed(self, values: Floats) -> Floats:
        """Scores or coefficients (k, n) of the states as those of their classes; zeros stay without a sign."""
        return values * np.array(self.signs)[:, None] + 0.0

    def add_class(self, begin: Callable[[], S]) -> None:
        """One class more than two, or than there are."""
        if len(self.held) == 1:
            _, self.shared, self.mistakes = self.held[0].totals()
            self.held.append(self.held[0].copied())
            self.signs.append(-self.signs[0])
        self.held.append(begin())
        self.signs.append(1.0)

    def targets(self, numbers: Counts) -> Floats:
        """What each state is to learn, (k, n)."""
        if len(self.held) == 1:
            sign = self.signs[0]
            return np.where(numbers == 0, sign, -sign)[None, :]
        signs = np.array(self.signs)[:, None]
        return np.where(numbers == np.arange(len(signs))[:, None], signs, -signs)

    def learn(self, batch: Batch, targets: Floats, sample_weight: Floats) -> Floats:
        """Learn from targets (k, n); returns the scores (k, n) of the states, each from before its row was learned.

        Unlearned says which row was refused.
        """
        scores = np.full(targets.shape, np.nan)
        for state, y, out in zip(self.held, targets, scores, strict=True):
            before = state.totals()[0]
            state.prepare(batch)
            try:
                state.learn(batch, y, sample_weight, out)
            except np.linalg.LinAlgError:
                out[-1] = np.nan  # numbers of such sizes that no factorisation is left
            if not all_finite(out):
                raise Unlearned(state, state.totals()[0] - before)
        return scores

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
