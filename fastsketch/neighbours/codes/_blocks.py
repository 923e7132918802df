"""Collections of codes: as rows, or in the blocks that the scan reads."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fastsketch._kernels.codes import scan as kernel
from fastsketch.neighbours.codes._layout import Codes, Layout
from fastsketch.neighbours.codes._search_arguments import Places

# Codes of one block.
ROWS = kernel.BLOCK_ROWS


@dataclass(frozen=True, eq=False)
class CodeRows:
    """Codes as rows: data (capacity, width), of which the first n are in use."""

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
        """Allocate n uninitialised codes."""
        return cls(layout, np.empty(cls.shape(n, layout), np.uint8), n)

    @classmethod
    def of(cls, codes: Codes, layout: Layout) -> Self:
        """Copy codes (n, width) into a new collection."""
        out = cls.empty(len(codes), layout)
        out.put(0, codes)
        return out

    @property
    def in_blocks_of(self) -> int:
        """Return the number of codes if they are stored in blocks, else -1: an argument of the kernels."""
        return -1

    def first(self, n: int) -> Self:
        """Return a view of the first n codes."""
        return replace(self, data=self.data[: self.shape(n, self.layout)[0]], n=n)

    def moved(self, n: int, capacity: int) -> Self:
        """Copy the first n codes into a new collection of the given capacity."""
        out, old = self.empty(capacity, self.layout), self.first(n).data
        out.data[: len(old)] = old
        return out

    def put(self, start: int, codes: Codes) -> None:
        """Write codes (c, width) to the positions from `start` on, and to no earlier ones."""
        self.data[start : start + len(codes)] = codes

    def part(self, start: int, stop: int) -> Codes:
        """Return the codes (stop - start, width) at positions [start, stop)."""
        return self.data[start:stop]

    def take(self, places: Places) -> Codes:
        """Return the codes (c, width) at the given positions (c,)."""
        return self.data[places]


@dataclass(frozen=True, eq=False)
class Blocks(CodeRows):
    """Codes in the blocks of ``kernel.pack``: data (blocks, bytes of a block).

    A search reads the blocks directly, where it would first have to pack rows.
    """

    @staticmethod
    def shape(n: int, layout: Layout) -> tuple[int, int]:
        """Return the shape of the data of n codes."""
        return kernel.blocks_shape(n, layout)

    @property
    def in_blocks_of(self) -> int:
        """Return the number of codes if they are stored in blocks, else -1: an argument of the kernels."""
        return self.n

    def put(self, start: int, codes: Codes) -> None:
        """Write codes (c, width) to the positions from `start` on, and to no earlier ones."""
        kernel.pack(np.ascontiguousarray(codes), self.layout, self.data, start)

    def part(self, start: int, stop: int) -> Codes:
        """Return a copy of the codes (stop - start, width) at positions [start, stop)."""
        return kernel.unpack(self.data, self.layout, start, stop)

    def take(self, places: Places) -> Codes:
        """Return the codes (c, width) at the given positions (c,)."""
        block, row = np.divmod(places, ROWS)
        # a block stores four bytes of each of its rows after one another
        fours = self.data.reshape(len(self.data), self.data.shape[1] // (4 * ROWS), ROWS, 4)[block, :, row]
        return fours.reshape(len(places), self.data.shape[1] // ROWS)[:, : self.layout.width]
