"""The papers' numbered algorithms in plain NumPy, line for line: the oracle of tests and benches, not fast."""

from fastsketch.reference._frequent_directions import (
    compensative_frequent_directions,
    fast_frequent_directions,
    fast_robust_frequent_directions,
    frequent_directions,
    greedy_low_rank,
    parameterized_frequent_directions,
    robust_frequent_directions,
    robust_frequent_directions_blocks,
)

__all__ = [
    "compensative_frequent_directions",
    "fast_frequent_directions",
    "fast_robust_frequent_directions",
    "frequent_directions",
    "greedy_low_rank",
    "parameterized_frequent_directions",
    "robust_frequent_directions",
    "robust_frequent_directions_blocks",
]
