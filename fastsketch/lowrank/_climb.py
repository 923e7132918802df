"""Rank after rank, with a history of what each has gained, until enough are found."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fastsketch._validation import as_integer
from fastsketch.lowrank._fitted import HistoryLine

Callback = Callable[[HistoryLine], object]


class Climbing(Protocol):
    """What is asked of a pursuit."""

    objective: float

    @property
    def rank(self) -> int: ...

    def mean_loss(self) -> float:
        """Of the entries held out."""
        ...

    def add(self, step: int, most: int) -> bool:
        """One more rank, or at most `most`; False if there is none."""
        ...


class Watch:
    """The history of a fit, and whether it may end early."""

    def __init__(
        self,
        *,
        held: bool,
        patience: Any,
        callback: Callback | None,
        history: list[HistoryLine] | None = None,
    ) -> None:
        """held: whether entries are held out. A `history` that is given is continued; `patience` is checked."""
        if patience is not None:
            patience = as_integer(patience, "patience", 1)
            if not held:
                raise ValueError("patience needs a validation set")
        self.held, self.patience, self.callback = held, patience, callback
        self.history = list(history or [])
        self.began = time.perf_counter() - (self.history[-1]["seconds"] if self.history else 0.0)

    def record(self, pursuit: Climbing) -> bool:
        """Add a line for the present rank and show it to the callback; whether to end here."""
        line = HistoryLine(
            rank=pursuit.rank,
            objective=float(pursuit.objective),
            seconds=self.seconds(),
            validation=pursuit.mean_loss() if self.held else None,
        )
        self.history.append(line)
        asked = bool(self.callback(line.copy())) if self.callback is not None else False
        return asked or self._out_of_patience()

    def seconds(self) -> float:
        """Since the fit began."""
        return time.perf_counter() - self.began

    def _out_of_patience(self) -> bool:
        return self.patience is not None and len(self.history) - 1 - self._best_place() >= self.patience

    def _best_place(self) -> int:
        scores = [line["validation"] if self.held else line["objective"] for line in self.history]
        return int(np.argmin(scores))  # type: ignore[arg-type]

    def selected_rank(self) -> int:
        """The rank of the best validation score; without validation the last, or a lower one that fits better."""
        best, last = self.history[self._best_place()], self.history[-1]
        if not self.held and not best["objective"] < last["objective"]:
            return last["rank"]  # equal objectives happen: the printed step alone can make one grow
        return best["rank"]


def climb(pursuit: Climbing, rank: int, watch: Watch) -> None:
    """Ranks up to `rank`; fewer if the gradient vanishes or the watch ends it."""
    if not watch.history:
        watch.record(pursuit)
    while pursuit.rank < rank:
        if not pursuit.add(len(watch.history), rank - pursuit.rank):
            return
        if watch.record(pursuit):
            return
