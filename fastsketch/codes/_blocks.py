"""Codes as the kernel scans them, for who searches the same ones again and again: packed once, not by every search."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.codes import scan as kernel
from fastsketch.codes._layout import Codes, Layout


class Blocks(NamedTuple):
    """n codes in the blocks of ``kernel.pack``; taken by ``scan`` in place of codes."""

    data: NDArray[np.uint8]
    n: int

    def __len__(self) -> int:
        return self.n


def blocks_of(codes: Codes, layout: Layout) -> Blocks:
    """The blocks of codes (n, width)."""
    return Blocks(kernel.pack(np.ascontiguousarray(codes), layout), len(codes))
