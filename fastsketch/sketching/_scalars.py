"""Conversion between the scalar fields of a sketch's state and the arrays in which they are saved."""

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching.random_map import BlockState
from fastsketch._kernels.sketching.state import SketchState


def scalars(state: SketchState | BlockState) -> dict[str, NDArray[Any]]:
    """Return the scalar fields of a sketch state as two arrays for a state file: "book" has the float64 sums, "count"
    the int64 counts.
    """
    return {
        "book": np.array(attrgetter(*state.SUMS)(state), np.float64),
        "count": np.array(attrgetter(*state.COUNTS)(state), np.int64),
    }


def set_scalars(state: SketchState | BlockState, arrays: dict[str, NDArray[Any]]) -> None:
    """Set the scalar fields of a sketch state, in place, from the arrays "book" and "count" that ``scalars``
    returned.
    """
    for array, names in ((arrays["book"], state.SUMS), (arrays["count"], state.COUNTS)):
        for name, value in zip(names, array.tolist(), strict=True):
            setattr(state, name, value)
