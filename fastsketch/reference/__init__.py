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
from fastsketch.reference._hashing import (
    distributed_frosh,
    faster_frequent_directions,
    frosh_sketch,
    hadamard,
    online_sketching_hashing,
    subsampled_hadamard,
    top_directions,
)

__all__ = [
    "compensative_frequent_directions",
    "distributed_frosh",
    "fast_frequent_directions",
    "fast_robust_frequent_directions",
    "faster_frequent_directions",
    "frequent_directions",
    "frosh_sketch",
    "greedy_low_rank",
    "hadamard",
    "online_sketching_hashing",
    "parameterized_frequent_directions",
    "robust_frequent_directions",
    "robust_frequent_directions_blocks",
    "subsampled_hadamard",
    "top_directions",
]
