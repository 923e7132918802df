"""Checks of parameters that only low-rank models have."""

from numbers import Real
from typing import Any, cast

from fastsketch._core.validation import as_integer, as_real
from fastsketch.lowrank._setting import LEARNED, LEARNED_RIDGE_LOSSES, Ridge


def as_ridge(value: Any, name: str) -> Ridge | None:
    """Check a ridge parameter, which is None, "learned" or a number that is not negative, and return it.
    TypeError or ValueError for anything else.
    """
    if value is None or (isinstance(value, str) and value == LEARNED):
        return value
    if isinstance(value, str):
        raise ValueError(f"{name} must be None, {LEARNED!r} or a number, got {value!r}")
    return as_real(value, name, 0.0, 1e300)


def check_learned(ridge: Ridge | None, loss: str, sweeps: int | None) -> None:
    """Raise ValueError for ridge="learned" if it cannot be learned, because the loss is not "square" or the fit has no
    sweeps.
    """
    if ridge == LEARNED and (loss not in LEARNED_RIDGE_LOSSES or sweeps == 0):
        raise ValueError(
            f"ridge={LEARNED!r} is for loss={LEARNED_RIDGE_LOSSES[0]!r} with sweeps, got loss={loss!r}, sweeps={sweeps}"
        )


def as_range(value: Any, name: str) -> tuple[float, float]:
    """Check that a value is a pair of numbers low < high, and return it. Raise TypeError or ValueError if not."""
    pair = cast("list[Any]", value) if isinstance(value, tuple | list) else []
    if len(pair) != 2:
        raise TypeError(f"{name} must be None or a pair of numbers, got {value!r}")
    low, high = (as_real(entry, name, -1e300, 1e300) for entry in pair)
    if low >= high:
        raise ValueError(f"{name} must be a pair low < high, got {(low, high)}")
    return low, high


def as_steps(value: Any, name: str) -> int | None:
    """Check that a value is None or an integer of at least 1, and return it. Raise TypeError or ValueError if not."""
    return None if value is None else as_integer(value, name, 1)


def as_share(validation: Any) -> float | None:
    """Return the argument `validation` if it is the fraction of entries to hold out, None if it is a matrix or None."""
    if isinstance(validation, bool):
        raise TypeError(f"validation must be a share of the entries, entries held out or None, got {validation}")
    if not isinstance(validation, Real):
        return None
    return as_real(validation, "validation", 0.0, 1.0, low_open=True, high_open=True)
