"""Reference implementations of the papers' algorithms in plain NumPy, line by line, for tests and benchmarks."""

from fastsketch.reference._adaptive import (
    adaptive_diagonal,
    adaptive_fast_frequent_directions,
    adaptive_frequent_directions,
    adaptive_full,
    follow_the_sketched_leader,
    sketched_newton_subgradient,
)
from fastsketch.reference._covariance import (
    ledoit_wolf_shrinkage,
    mrcd_distances,
    oracle_approximating_shrinkage,
    pooled_covariance,
)
from fastsketch.reference._frequent_directions import (
    fast_frequent_directions,
    fast_robust_frequent_directions,
    frequent_directions,
    greedy_low_rank,
    robust_frequent_directions,
    robust_frequent_directions_blocks,
)
from fastsketch.reference._gaussian_gaps import expectation_step, maximization_step
from fastsketch.reference._groups import group_sketches
from fastsketch.reference._hashing import (
    distributed_frosh,
    faster_frequent_directions,
    frosh_sketch,
    hadamard,
    online_sketching_hashing,
    subsampled_hadamard,
    top_directions,
)
from fastsketch.reference._item_model import ease, sketched_ease
from fastsketch.reference._low_rank import (
    greedy_low_rank_nonsmooth,
    greedy_low_rank_smooth,
    rank_one_matrix_pursuit,
)
from fastsketch.reference._newton import (
    fast_online_newton,
    full_online_newton,
    oja_newton,
    online_newton,
    random_projection_newton,
)
from fastsketch.reference._rivals import adam, adaptive_low_rank, online_gradient_descent, radagrad
from fastsketch.reference._scan import code_number, code_scores, least_scores
from fastsketch.reference._second_pass import second_pass
from fastsketch.reference._tracked import Tracked, tracked_empty, tracked_frequent_directions, tracked_merge
from fastsketch.reference._variants import (
    compensative_frequent_directions,
    growing_frequent_directions,
    parameterized_frequent_directions,
)

__all__ = [
    "Tracked",
    "adam",
    "adaptive_diagonal",
    "adaptive_fast_frequent_directions",
    "adaptive_frequent_directions",
    "adaptive_full",
    "adaptive_low_rank",
    "code_number",
    "code_scores",
    "compensative_frequent_directions",
    "distributed_frosh",
    "ease",
    "expectation_step",
    "fast_frequent_directions",
    "fast_online_newton",
    "fast_robust_frequent_directions",
    "faster_frequent_directions",
    "frequent_directions",
    "frosh_sketch",
    "full_online_newton",
    "greedy_low_rank",
    "growing_frequent_directions",
    "greedy_low_rank_nonsmooth",
    "greedy_low_rank_smooth",
    "group_sketches",
    "hadamard",
    "least_scores",
    "ledoit_wolf_shrinkage",
    "maximization_step",
    "mrcd_distances",
    "oja_newton",
    "online_gradient_descent",
    "online_newton",
    "online_sketching_hashing",
    "oracle_approximating_shrinkage",
    "parameterized_frequent_directions",
    "pooled_covariance",
    "radagrad",
    "random_projection_newton",
    "rank_one_matrix_pursuit",
    "robust_frequent_directions",
    "robust_frequent_directions_blocks",
    "second_pass",
    "sketched_ease",
    "follow_the_sketched_leader",
    "sketched_newton_subgradient",
    "subsampled_hadamard",
    "top_directions",
    "tracked_empty",
    "tracked_frequent_directions",
    "tracked_merge",
]
