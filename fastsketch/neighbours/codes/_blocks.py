"""Storage of codes, as rows of an array or in the blocks that the search kernel reads."""

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
    """Growing collection of codes, stored as the rows of an array with unused capacity at the end.

    `data` is (capacity, width), of which the first n rows are in use.
    """

    layout: Layout
    data: Codes
    n: int

    def __len__(self) -> int:
        return self.n

    @staticmethod
    def shape(n: int, layout: Layout) -> tuple[int, int]:
        """Return the shape of the array that stores n codes as its rows."""
        return n, layout.width

    @classmethod
    def empty(cls, n: int, layout: Layout) -> Self:
        """Allocate a collection of n uninitialised codes."""
        return cls(layout, np.empty(cls.shape(n, layout), np.uint8), n)

    @classmethod
    def from_codes(cls, codes: Codes, layout: Layout) -> Self:
        """Create a collection with a copy of codes (n, width)."""
        out = cls.empty(len(codes), layout)
        out.write(0, codes)
        return out

    @property
    def in_blocks_of(self) -> int:
        """Number that tells the search kernels how codes are stored: -1 means as the rows of an array."""
        return -1

    def prefix(self, n: int) -> Self:
        """Return a collection of the first n codes that shares this one's memory."""
        return replace(self, data=self.data[: self.shape(n, self.layout)[0]], n=n)

    def copy_with_capacity(self, n: int, capacity: int) -> Self:
        """Copy the first n codes into a new collection of the given capacity."""
        out, previous = self.empty(capacity, self.layout), self.prefix(n).data
        out.data[: len(previous)] = previous
        return out

    def write(self, start: int, codes: Codes) -> None:
        """Write codes (c, width) to consecutive positions from `start` on. Earlier codes are not changed."""
        self.data[start : start + len(codes)] = codes

    def read_slice(self, start: int, stop: int) -> Codes:
        """Return a view (stop - start, width) of the codes at positions [start, stop)."""
        return self.data[start:stop]

    def take(self, positions: Places) -> Codes:
        """Return copies of the codes at the given positions, shape (c, width)."""
        return self.data[positions]


@dataclass(frozen=True, eq=False)
class Blocks(CodeRows):
    """Growing collection of codes, stored in the interleaved blocks that the search kernel reads fastest.

    `data` is (blocks, bytes of a block), in the format of ``kernel.pack``.

    A search reads the blocks directly, where it would first have to pack rows.
    """

    @staticmethod
    def shape(n: int, layout: Layout) -> tuple[int, int]:
        """Return the shape of the array that stores n codes in interleaved blocks."""
        return kernel.blocks_shape(n, layout)

    @property
    def in_blocks_of(self) -> int:
        """Number that tells the search kernels how codes are stored: the number of codes means in blocks."""
        return self.n

    def write(self, start: int, codes: Codes) -> None:
        """Write codes (c, width) to consecutive positions from `start` on. Earlier codes are not changed."""
        kernel.pack(np.ascontiguousarray(codes), self.layout, self.data, start)

    def read_slice(self, start: int, stop: int) -> Codes:
        """Return a copy (stop - start, width) of the codes at positions [start, stop)."""
        return kernel.unpack(self.data, self.layout, start, stop)

    def take(self, positions: Places) -> Codes:
        """Return copies of the codes at the given positions, shape (c, width)."""
        block, row = np.divmod(positions, ROWS)
        # a block stores four bytes of each of its rows after one another
        fours = self.data.reshape(len(self.data), self.data.shape[1] // (4 * ROWS), ROWS, 4)[block, :, row]
        return fours.reshape(len(positions), self.data.shape[1] // ROWS)[:, : self.layout.width]
