from typing import Protocol

import numpy as np
from numpy.typing import NDArray

class _Number(Protocol):
    @property
    def n_bytes(self) -> int: ...
    @property
    def mantissa_bits(self) -> int: ...
    @property
    def unit(self) -> float: ...

class _Layout(Protocol):
    @property
    def n_tables(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def offset(self) -> _Number: ...
    @property
    def scale(self) -> _Number: ...

BLOCK_ROWS: int

def blocks_shape(n: int, layout: _Layout) -> tuple[int, int]: ...
def pack(
    codes: NDArray[np.uint8], layout: _Layout, blocks: NDArray[np.uint8] | None = None, start: int = 0
) -> NDArray[np.uint8]: ...
def unpack(blocks: NDArray[np.uint8], layout: _Layout, start: int, stop: int) -> NDArray[np.uint8]: ...
def scores(
    table: NDArray[np.float32],
    codes: NDArray[np.uint8],
    layout: _Layout,
    *,
    alpha: float,
    beta: float,
    constant: float = 0.0,
    in_blocks_of: int = -1,
) -> NDArray[np.float32]: ...
def topk(
    tables: NDArray[np.float32],
    codes: NDArray[np.uint8],
    layout: _Layout,
    k: int,
    *,
    alpha: float,
    beta: float,
    constant: NDArray[np.float32] | None = None,
    divisor: NDArray[np.float32] | None = None,
    allow: NDArray[np.uint8] | None = None,
    ids: NDArray[np.int64] | None = None,
    in_blocks_of: int = -1,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
