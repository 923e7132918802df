"""Which features weigh most."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastsketch.online._state import Counts, Floats

# A feature by its name, or by its column where names are not kept, and its weight.
Weighed = tuple[str | int, float]


def largest(
    weights: Floats, columns: Counts, n: int, *, names: Sequence[str] | None, scales: Floats | None = None
) -> list[Weighed]:
    """The n features of the largest |weight|, times their scales if there are such; those of weight 0 are none.

    weights, columns, scales : (m,)
    Equal ones come in the order of their columns.
    """
    size = np.abs(weights if scales is None else weights * scales)
    there = np.flatnonzero(size > 0)
    if n < there.size:  # those that may be among the first n
        there = there[size[there] >= np.partition(size[there], -n)[-n]]
    order = there[np.lexsort((columns[there], -size[there]))][:n]
    found: NDArray[np.int64] = columns[order]
    return [
        (column if names is None else names[column], weight)
        for column, weight in zip(found.tolist(), weights[order].tolist(), strict=True)
    ]
