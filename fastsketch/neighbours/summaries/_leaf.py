"""Sketches of the last block of a stream, to which rows are still added."""

from math import frexp, ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.summaries._forest import BlockNode
from fastsketch.sketching._engines import EngineSetting, ExactEngine, dense_form
from fastsketch.sketching._random_maps import MappedBlock, SizedMap

Arrays = dict[str, NDArray[Any]]

# The largest binary exponent for which sums of many squares do not overflow float64.
MAX_EXPONENT = 400


class MappedLeaf(MappedBlock):
    """The incomplete last block of a stream. A random map compresses its rows as they arrive, as in FROSH.

    The map reduces the rows of the block to q rows, as in FROSH.
    """

    def __init__(self, sized_map: SizedMap, n_features: int, *, dtype: np.dtype[Any], index: int) -> None:
        super().__init__(sized_map, n_features, dtype=dtype, center=True, index=index)
        self.block_rows = sized_map.block_rows

    def atomic(self, n: int) -> bool:
        return n < self.room and self.fits_step(n)

    def node(self) -> BlockNode:
        mapped = self.close()
        assert mapped.mean is not None  # the block is centred
        return BlockNode(self.index, 0, mapped.rows, mapped.mean, mapped.n_rows, 0.0)


class EngineLeaf:
    """The incomplete last block of a stream. Its rows are sketched by Frequent Directions, or their products are summed
    exactly.

    The first is the method OSH, the second is ``method="exact"``.
    """

    def __init__(
        self, setting: EngineSetting, n_features: int, *, block_rows: int, dtype: np.dtype[Any], index: int
    ) -> None:
        self.block_rows, self.index = block_rows, index
        self._setting = setting
        self._engine = dense_form(setting)(setting, n_features, dtype=dtype)

    @property
    def n_rows(self) -> int:
        return self._engine.n_rows

    def atomic(self, n: int) -> bool:
        """Return True if ``add`` takes all of n rows or none, and leaves the block incomplete.
        The caller then needs no copy of the block.
        """
        return n < self.block_rows - self.n_rows

    def add(self, rows: NDArray[Any], *, offset: int = 0) -> int:
        """Add rows to the block, at most until it is complete. Return the number of rows that were added.

        ValueError names the first invalid row; `offset` is the index of the first row in messages.
        """
        rows = rows[: self.block_rows - self.n_rows]
        if isinstance(self._engine, ExactEngine):
            top = frexp(float(np.abs(rows).max(initial=0.0)))[1]  # the engine refuses NaN and infinity
            if abs(top) > MAX_EXPONENT:
                raise ValueError(
                    f"rows must lie between 2**-{MAX_EXPONENT} and 2**{MAX_EXPONENT} in magnitude for "
                    f"method='exact': the largest of rows {offset} to {offset + len(rows) - 1} does not"
                )
        self._engine.update(rows, offset=offset)
        return len(rows)

    def node(self) -> BlockNode:
        """Return the sketch and the mean of the block as a BlockNode.
        Call ``restart`` before adding rows again.
        """
        engine = self._engine
        n, unit = engine.n_rows, ldexp(1.0, engine.exponent)
        with np.errstate(over="ignore", under="ignore"):
            if isinstance(engine, ExactEngine):
                rows, lost = engine.gram() * unit * unit, 0.0
            else:
                rows = (engine.reduce() * unit).astype(engine.dtype)
                lost = engine.shrinkage * unit * unit
        return BlockNode(self.index, 0, rows, engine.mean * unit, n, lost)

    def restart(self, index: int) -> None:
        self.index = index
        self._engine = type(self._engine)(self._setting, self._engine.n_features, dtype=self._engine.dtype)

    def copy(self) -> "EngineLeaf":
        duplicate = object.__new__(EngineLeaf)
        duplicate.__dict__.update(self.__dict__, _engine=self._engine.clone())
        return duplicate

    def arrays(self) -> Arrays:
        return self._engine.arrays()

    def restore(self, arrays: Arrays, index: int) -> None:
        self.index = index
        self._engine.restore(arrays)


# An incomplete block of at most `block_rows` rows.
Leaf = MappedLeaf | EngineLeaf
