"""Counter-based random numbers, which depend only on key, seed and position, and the list of all keys in use.

NumPy's Philox is counter-based: any part of any stream can be computed anywhere, in any order. Only its raw 64-bit
output is used, which is the same in every version of NumPy.
"""

from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


class Key(IntEnum):
    """Purposes for which the library draws random numbers. Random numbers for different purposes are independent, even
    with the same seed.

    The number and the seed are the key of the generator. The meaning of a number never changes.
    """

    SRHT = 0
    COUNTSKETCH = 1
    SPARSE_SIGNS = 2
    GAUSSIAN = 3
    SAMPLING = 4
    RESERVOIR = 64
    NORMAL = 65
    SGH_BASES = 66
    SGH_ORDER = 67
    HELD_OUT = 68
    EPOCH = 69
    SPLIT = 80
    ARRANGEMENT = 96
    ALARM = 97


class Normal(IntEnum):
    """Numbers that identify what normal random numbers are drawn for. Each one has an independent stream.

    A value above 2**32 is the first of a family of streams, which are numbered by the lower 32 bits.
    """

    ROTATION = 0
    COMPLETION = 1
    HYPERPLANES = 2
    KRYLOV_START = 3
    LANCZOS_START = 4
    LANCZOS_CHECK = 5
    NORM_START = 6
    PURSUIT = 81 << 32


def raw_numbers(seed: int, key: Key, index: int, stream: int, n: int, *, start: int = 0) -> NDArray[np.uint64]:
    """Return n random 64-bit integers of a sequence, from position `start` on. Seed, key, index and stream select the
    sequence.
    """
    # Philox makes four numbers from each value of its counter
    generator = np.random.Philox(
        key=np.array([seed, key], np.uint64), counter=np.array([start // 4, stream, index, 0], np.uint64)
    )
    return generator.random_raw(start % 4 + n)[start % 4 :]


@lru_cache(maxsize=64)
def raw_block(seed: int, key: Key, index: int, n: int) -> NDArray[np.uint64]:
    """Return the first n random 64-bit integers of a sequence, read-only. They are cached.

    A stream of single rows needs one number at a time.
    """
    numbers = raw_numbers(seed, key, index, 0, n)
    numbers.flags.writeable = False
    return numbers


def random_normal(seed: int, stream: int, n: int) -> NDArray[np.float64]:
    """Return n standard normal numbers that depend on nothing but the arguments."""
    return as_normal(raw_numbers(seed, Key.NORMAL, 0, stream, n))


def as_normal(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Convert random 64-bit integers to standard normal numbers, by inversion of the distribution function."""
    from scipy.special import ndtri

    # uniform in the open interval (0, 1), in steps of 2**-53
    return ndtri(((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
