"""Scalars of a kernel's state as the arrays of a state file, in the order that the state declares."""

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching.random_map import BlockState
from fastsketch._kernels.sketching.state import SketchState


def scalars(state: SketchState | BlockState) -> dict[str, NDArray[Any]]:
    """Return the arrays "book" (sums, float64) and "count" (int64)."""
    return {
        "book": np.array(attrgetter(*state.SUMS)(state), np.float64),
        "count": np.array(attrgetter(*state.COUNTS)(state), np.int64),
    }


def set_scalars(state: SketchState | BlockState, arrays: dict[str, NDArray[Any]]) -> None:
    """Set the scalars of a state from checked arrays, as ``scalars`` returns them."""
    for array, names in ((arrays["book"], state.SUMS), (arrays["count"], state.COUNTS)):
        for name, value in zip(names, array.tolist(), strict=True):
            setattr(state, name, value)
