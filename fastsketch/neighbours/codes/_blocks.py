"""Codes as a search takes them: as rows, or, to be searched again and again, in the blocks that are scanned.

Either has the same methods, so that who keeps codes holds them once and need not know how they lie.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fastsketch._kernels.codes import scan as kernel
from fastsketch.neighbours.codes._layout import Codes, Layout
from fastsketch.neighbours.codes._search_arguments import Places

# Rows of a block.
ROWS = kernel.BLOCK_ROWS


@dataclass(frozen=True, eq=False)
class CodeRows:
    """Codes as rows: data (n, width)."""

    layout: Layout
    data: Codes
    n: int

    def __len__(self) -> int:
        return self.n

    @staticmethod
    def shape(n: int, layout: Layout) -> tuple[int, int]:
        """Return the shape of the data of n codes."""
        return n, layout.width

    @classmethod
    def empty(cls, n: int, layout: Layout) -> Self:
        """Return room for n codes, uninitialised."""
        return cls(layout, np.empty(cls.shape(n, layout), np.uint8), n)

    @classmethod
    def of(cls, codes: Codes, layout: Layout) -> Self:
        """Return a copy of codes (n, width)."""
        out = cls.empty(len(codes), layout)
        out.put(0, codes)
        return out

    @property
    def in_blocks_of(self) -> int:
        """Return the number of codes if they lie in blocks, else -1."""
        return -1

    def first(self, n: int) -> Self:
        """Return the first n, no copy."""
        return replace(self, data=self.data[: self.shape(n, self.layout)[0]], n=n)

    def moved(self, n: int, capacity: int) -> Self:
        """Return a copy of the first n, with room for `capacity` in all."""
        out, old = self.empty(capacity, self.layout), self.first(n).data
        out.data[: len(old)] = old
        return out

    def own(self) -> Self:
        """Return the same, in which nothing else can be written; a copy only where that is needed."""
        return self

    def put(self, start: int, codes: Codes) -> None:
        """Write codes (c, width) to the places from `start` on; those before are only read meanwhile."""
        self.data[start : start + len(codes)] = codes

    def part(self, start: int, stop: int) -> Codes:
        """Return codes (stop - start, width)."""
        return self.data[start:stop]

    def take(self, places: Places) -> Codes:
        """Return codes (c, width) at places (c,)."""
        return self.data[places]


@dataclass(frozen=True, eq=False)
class Blocks(CodeRows):
    """Codes in the blocks of ``kernel.pack``: data (blocks, bytes of a block).

    Nothing is packed by a search, and mapped from a file they are read as they lie there.
    """

    @staticmethod
    def shape(n: int, layout: Layout) -> tuple[int, int]:
        """Return the shape of the data of n codes."""
        return kernel.blocks_shape(n, layout)

    @property
    def in_blocks_of(self) -> int:
        """Return the number of codes if they lie in blocks, else -1."""
        return self.n

    def own(self) -> Self:
        """Return the same, in which nothing else can be written; a copy only where the last block has room."""
        if self.n % ROWS == 0:
            return self
        out = replace(self, data=self.data.copy())
        # rows that are none are zeros, whatever somebody has written there
        out.data.reshape(len(out.data), -1, ROWS, 4)[-1, :, self.n % ROWS :] = 0
        return out

    def put(self, start: int, codes: Codes) -> None:
        """Write codes (c, width) to the places from `start` on; those before are only read meanwhile."""
        kernel.pack(np.ascontiguousarray(codes), self.layout, self.data, start)

    def part(self, start: int, stop: int) -> Codes:
        """Return codes (stop - start, width)."""
        return kernel.unpack(self.data, self.layout, start, stop)

    def take(self, places: Places) -> Codes:
        """Return codes (c, width) at places (c,)."""
        block, row = np.divmod(places, ROWS)
        # four bytes of each row stand together
        fours = self.data.reshape(len(self.data), self.data.shape[1] // (4 * ROWS), ROWS, 4)[block, :, row]
        return fours.reshape(len(places), self.data.shape[1] // ROWS)[:, : self.layout.width]
