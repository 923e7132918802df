"""Scalars of a kernel's state as arrays, in the order that the state declares: how state files hold them."""

from operator import attrgetter
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray


class HasScalars(Protocol):
    """A state whose sums (float) and counts (int) are fields."""

    SUMS: ClassVar[tuple[str, ...]]
    COUNTS: ClassVar[tuple[str, ...]]


def scalars(state: HasScalars) -> dict[str, NDArray[Any]]:
    """Return the arrays "book" (sums, float64) and "count" (int64)."""
    return {
        "book": np.array(attrgetter(*state.SUMS)(state), np.float64),
        "count": np.array(attrgetter(*state.COUNTS)(state), np.int64),
    }


def set_scalars(state: HasScalars, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the arrays that ``scalars`` gave to a state; raise ValueError if they have other lengths."""
    for array, names in ((arrays["book"], state.SUMS), (arrays["count"], state.COUNTS)):
        if array.shape != (len(names),):
            raise ValueError(f"{', '.join(names)}: expected {len(names)} numbers, got shape {array.shape}")
        for name, value in zip(names, array.tolist(), strict=True):
            setattr(state, name, value)
