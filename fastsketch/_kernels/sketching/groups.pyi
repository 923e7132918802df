from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching.dense import DenseState

def scan(rows: NDArray[Any], largest: NDArray[np.float64]) -> int: ...
def parts_of(n: int, d: int, capacity: int) -> int: ...
def absorb(
    rows: NDArray[Any],
    largest: NDArray[np.float64],
    order: NDArray[np.int64],
    start: NDArray[np.int64],
    group: NDArray[np.int64],
    *,
    book: NDArray[np.float64],
    count: NDArray[np.int64],
    record: NDArray[np.int64],
    room: NDArray[np.int64],
    tail: int,
    exponents: tuple[int, int, int],
    states: list[DenseState],
) -> None: ...
def copy(source: NDArray[np.int64], target: NDArray[np.int64], size: NDArray[np.int64]) -> None: ...
def begin_tails(address: NDArray[np.int64], n_lam: int, n_mean: int) -> None: ...
def last_numbers(
    buffers: NDArray[Any],
    *,
    book: NDArray[np.float64],
    count: NDArray[np.int64],
    rows: NDArray[np.int64],
    tail: NDArray[np.int64],
    states: list[DenseState],
) -> None: ...
