"""``random_state`` of every estimator, as scikit-learn has it."""

# scikit-learn has no types.
# pyright: basic

import numbers

from numpy.random import RandomState
from sklearn.utils import check_random_state

from fastsketch._validation import as_seed


def seed_of(random_state: int | RandomState | None) -> int:
    """The seed of a model: an integer is the seed itself; None and a RandomState give one at random."""
    if isinstance(random_state, numbers.Integral):
        return as_seed(random_state, "random_state")
    return int(check_random_state(random_state).randint(2**31))
