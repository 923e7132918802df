"""One sketch a group, with all rows in memory."""

from collections.abc import Hashable, Sequence

from fastsketch.reference._frequent_directions import Array, fast_robust_frequent_directions


def group_sketches(
    a: Array, keys: Sequence[Hashable], m: int, *, alpha0: float = 0.0
) -> dict[Hashable, tuple[Array, float, float]]:
    """{key: (B, alpha, Delta)} of RFD paper, Algorithm 5, for the rows of each key in their order."""
    rows = {key: [k for k, other in enumerate(keys) if other == key] for key in dict.fromkeys(keys)}
    return {key: fast_robust_frequent_directions(a[places], m, alpha0=alpha0) for key, places in rows.items()}
