"""Which features weigh most."""

from collections.abc import Sequence

import numpy as np

from fastsketch.online._state import Counts, Floats

# A feature by its name, or by its column where names are not kept, and its weight.
Weighed = tuple[str | int, float]


def largest(weights: Floats, sizes: Floats, columns: Counts, n: int, *, names: Sequence[str] | None) -> list[Weighed]:
    """The n features of the largest sizes (m,) and their weights (m,); those of weight 0 are none.

    Equal ones come in the order of their columns (m,).
    """
    there = np.flatnonzero((sizes > 0) & (weights != 0))
    if n < there.size:  # those that may be among the first n
        there = there[sizes[there] >= np.partition(sizes[there], -n)[-n]]
    order = there[np.lexsort((columns[there], -sizes[there]))][:n]
    found: list[int] = columns[order].tolist()
    shown: Sequence[str | int] = found if names is None else [names[column] for column in found]
    of_weights: list[float] = weights[order].tolist()
    return list(zip(shown, of_weights, strict=True))
