"""Arguments of low-rank models that have checks of their own."""

from numbers import Real
from typing import Any, cast

from fastsketch._core.validation import as_integer, as_real
from fastsketch.lowrank._setting import LEARNED, LEARNS, Ridge


def as_ridge(value: Any, name: str) -> Ridge | None:
    """Return None, "learned" or a number of at least 0, or raise TypeError or ValueError."""
    if value is None or (isinstance(value, str) and value == LEARNED):
        return value
    if isinstance(value, str):
        raise ValueError(f"{name} must be None, {LEARNED!r} or a number, got {value!r}")
    return as_real(value, name, 0.0, 1e300)


def check_learned(ridge: Ridge | None, loss: str, sweeps: int | None) -> None:
    """Raise ValueError if a ridge is to be learned where it cannot be."""
    if ridge == LEARNED and (loss not in LEARNS or sweeps == 0):
        raise ValueError(f"ridge={LEARNED!r} is for loss={LEARNS[0]!r} with sweeps, got loss={loss!r}, sweeps={sweeps}")


def as_range(value: Any, name: str) -> tuple[float, float]:
    """Return a pair low < high, or raise TypeError or ValueError."""
    pair = cast("list[Any]", value) if isinstance(value, tuple | list) else []
    if len(pair) != 2:
        raise TypeError(f"{name} must be None or a pair of numbers, got {value!r}")
    low, high = (as_real(entry, name, -1e300, 1e300) for entry in pair)
    if low >= high:
        raise ValueError(f"{name} must be a pair low < high, got {(low, high)}")
    return low, high


def as_steps(value: Any, name: str) -> int | None:
    """Return None or a number of at least 1, or raise TypeError or ValueError."""
    return None if value is None else as_integer(value, name, 1)


def as_share(validation: Any) -> float | None:
    """Return the share of the entries to hold out; None if validation is entries, or none."""
    if isinstance(validation, bool):
        raise TypeError(f"validation must be a share of the entries, entries held out or None, got {validation}")
    if not isinstance(validation, Real):
        return None
    return as_real(validation, "validation", 0.0, 1.0, low_open=True, high_open=True)
