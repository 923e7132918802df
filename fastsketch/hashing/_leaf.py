"""The block that a model is filling: by a random map, by Frequent Directions, or as an exact sum."""

from math import frexp, ldexp

import numpy as np

from fastsketch.hashing._forest import Node
from fastsketch.sketching import Chunk, SketchConfig, make_engine

# Binary exponent up to which squares, and sums of many, stay in the range of a double.
MOST_EXPONENT = 400


class CompressedLeaf:
    """A block that becomes q rows: FROSH and its relatives."""

    def __init__(self, compressor, n_features, dtype, index):
        self.chunk = Chunk(compressor, n_features, dtype, True, index)

    index = property(lambda self: self.chunk.index)
    dtype = property(lambda self: self.chunk.dtype)
    n_features = property(lambda self: self.chunk.a["out"].shape[1])
    n_rows = property(lambda self: self.chunk.n_rows)
    room = property(lambda self: self.chunk.room)

    def atomic(self, n):
        """Whether a batch of n rows is taken or refused as a whole."""
        return n < self.room and self.chunk.fits_block(n)

    def add(self, rows, offset):
        return self.chunk.add(rows, None, offset)

    def close(self):
        """The block as a node; its state is used up."""
        found = self.chunk.close()
        return Node(self.index, 0, found.rows, found.mean, found.n_rows, 0.0)

    def restart(self, index):
        self.chunk.restart(index)

    def copy(self):
        other = object.__new__(CompressedLeaf)
        other.chunk = self.chunk.copy()
        return other

    def arrays(self, copy=False):
        return self.chunk.arrays(copy)

    def restore(self, arrays, index):
        self.chunk.restore(arrays, index)


class EngineLeaf:
    """A block that a sketching engine takes: Frequent Directions (OSH), or the exact sum of squares."""

    def __init__(self, sketch_size, solver, block_rows, n_features, dtype, index):
        self.block_rows, self.index = block_rows, index
        self._config = SketchConfig(sketch_size, solver=solver, center=True)
        self.engine = make_engine(self._config, np.empty((0, n_features)), dtype)

    dtype = property(lambda self: self.engine.dtype)
    n_features = property(lambda self: self.engine.n_features)
    n_rows = property(lambda self: self.engine.n_rows)
    room = property(lambda self: self.block_rows - self.n_rows)

    def atomic(self, n):
        return n < self.room  # the engine sees to it

    def add(self, rows, offset):
        rows = rows[: self.room]
        if self.engine.config.solver == "exact":
            top = frexp(float(np.abs(rows).max(initial=0.0)))[1]  # a NaN or an infinity is left to the engine
            if abs(top) > MOST_EXPONENT:
                raise ValueError(
                    f"rows must lie between 2**-{MOST_EXPONENT} and 2**{MOST_EXPONENT} in magnitude for "
                    f"sketch='exact': the largest of rows {offset} to {offset + len(rows) - 1} does not"
                )
        self.engine.update(rows, None, offset)
        return len(rows)

    def close(self):
        engine = self.engine
        n, unit = engine.n_rows, ldexp(1.0, engine.exponent)
        with np.errstate(over="ignore", under="ignore"):
            if engine.config.solver == "exact":
                rows, lost = engine.gram() * unit * unit, 0.0
            else:
                rows = (engine.reduce() * unit).astype(engine.dtype)
                lost = float(engine.a["book"][0] * unit * unit)
        return Node(self.index, 0, rows, engine.a["mean"] * unit, n, lost)

    def restart(self, index):
        self.index = index
        self.engine = make_engine(self._config, np.empty((0, self.engine.n_features)), self.engine.dtype)

    def copy(self):
        other = object.__new__(EngineLeaf)
        other.__dict__.update(self.__dict__, engine=self.engine.clone())
        return other

    def arrays(self, copy=False):
        return self.engine.arrays(copy)

    def restore(self, arrays, index):
        self.index = index
        self.engine.restore(arrays)
