"""The common part of the states of adaptive methods: points (learning rate, delta), each with a w of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.numbers import COUNTS, ROUND
from fastsketch.io import _checks as checks
from fastsketch.online._state import (
    OF_LOSSES,
    OF_POINTS,
    SCRATCH,
    SLOTS,
    Arrays,
    Counts,
    Floats,
    Learned,
    Zeros,
    marked,
)


@dataclass(slots=True)
class PointsState(Learned):
    """Arrays of k points in d features."""

    base: Annotated[Floats, OF_POINTS, SLOTS]  # (k, d)
    losses: Annotated[Floats, OF_POINTS, OF_LOSSES]  # cumulative, (k,)
    mistakes: Annotated[Counts, OF_POINTS]  # (k,)
    count: Counts  # entries RANK, ROWS, ROUND, OLD, TURNS
    learning_rate: Annotated[Floats, SCRATCH]  # (k,), a parameter
    delta: Annotated[Floats, OF_POINTS]  # (k,), decided with the first row, also for a later version
    # of one point that learns in units of residuals: the sums of their weighted squares, and of the weights
    residuals: Floats | None = field(default=None, kw_only=True)

    def coefs(self) -> Floats:
        """w of every point, (k, d); (k, n_slots) of sparse rows."""
        raise NotImplementedError

    def best(self) -> int:
        """The point of the smallest cumulative loss."""
        return int(np.argmin(self.losses))

    def coef(self) -> Floats:
        return self.coefs()[self.best()]

    def totals(self) -> tuple[int, float, int]:
        i = self.best()
        return int(self.count[ROUND]), float(self.losses[i]), int(self.mistakes[i])

    def give_point(self, i: int, other: Self) -> None:
        """Give `other`, the state of one point that has seen nothing, what this one has learned at point i."""
        names = _names_of_points(self)
        arrays = self.saved()
        other.take({name: (array[i : i + 1] if name in names else array).copy() for name, array in arrays.items()})

    def validate_all(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        Learned.validate_all(self, arrays)
        (k, _), rounds = self.base.shape, int(arrays["count"][ROUND])
        checks.number_within(rounds, "n_rows", 0, checks.MOST_COUNT)
        checks.sums(arrays, "losses", (k,), low=0.0)
        mistakes = checks.not_negative(arrays, "mistakes", (k,), np.dtype(np.int64))
        checks.number_within(mistakes.max(), "mistakes", 0, rounds)
        if arrays["count"].min() < 0:
            raise ValueError("its counts must not be negative")
        if not (arrays["delta"] > 0).all():
            raise ValueError(f"delta must be positive, got {arrays['delta']}")
        if self.residuals is not None:
            checks.not_negative(arrays, "residuals", (2,))


def _names_of_points(arrays: Arrays) -> set[str]:
    """Names of the arrays that have one row or entry for each point."""
    names = {item.name for item in fields(arrays) if marked(item, OF_POINTS)}
    for item in fields(arrays):
        value = getattr(arrays, item.name)
        if isinstance(value, Arrays):
            names |= _names_of_points(value)
    return names


def beginning(
    learning_rate: Floats, delta: Floats, *, d: int, sparse: bool, in_units: bool, zeros: Zeros = np.zeros
) -> dict[str, Any]:
    """The fields of a PointsState before the first row; in_units: of one point, learn in units of residuals."""
    k = len(learning_rate)
    return {
        "sparse": sparse,
        "base": zeros((k, d)),
        "regret": np.zeros(2),
        "seen": np.full(1, 0 if sparse else d),
        "losses": np.zeros(k),
        "mistakes": np.zeros(k, np.int64),
        "count": np.zeros(COUNTS, np.int64),
        "learning_rate": learning_rate,
        "delta": delta,
        "residuals": np.zeros(2) if in_units else None,
    }
