"""A sketch of compressed chunks: rows -> chunk of m -> q rows -> the buffer of a dense engine (FROSH Algorithm 2)."""

from dataclasses import replace
from math import ldexp

import numpy as np

from fastsketch import _threads
from fastsketch.sketching._engines._dense import DenseEngine
from fastsketch.sketching._mapped_block import MappedBlock, plain_rows
from fastsketch.sketching._random_maps import sized

# Rows of one step through a chunk are checked and then used: together they stay in the last cache.
SLICE_BYTES = 4 << 20


class MappedEngine:
    """A chunk in the making and the engine that takes what chunks become; the mean is kept here, not there."""

    kind = "mapped"
    accumulated = False

    def __init__(self, setting, n_features, *, dtype):
        self.setting = setting
        self.n_features = n_features
        self.dtype = dtype
        sized_map = sized(setting.compressor, rows_out=setting.sketch_size, n_features=n_features)
        block = sized_map.rows_out if setting.buffer_size is None else setting.buffer_size
        self.inner = DenseEngine(setting.behind_map(block), n_features, dtype=dtype)
        self.block = MappedBlock(
            sized_map, n_features, dtype=dtype, center=setting.center, index=setting.compressor.first_block
        )
        self.block_mean = np.zeros(n_features if setting.center else 0)
        # of the chunks that are complete
        self.settled = 0.0
        self.rows_settled = 0

    @property
    def compressor(self):
        """The random map with all sizes known."""
        return replace(self.setting.compressor, rows_out=self.block.map.rows_out, block_rows=self.block.map.block_rows)

    capacity = property(lambda self: self.inner.capacity)
    exponent = property(lambda self: self.inner.exponent)

    shrinkage = property(lambda self: self.inner.shrinkage)
    squared_norm = property(lambda self: self.inner.squared_norm)
    rounding = property(lambda self: self.inner.rounding)

    @property
    def mean(self):
        return self.block_mean * ldexp(1.0, -self.exponent)

    @property
    def n_rows(self):
        return self.rows_settled + self.block.n_rows

    @property
    def weight(self):
        return self.settled + self.block.weight

    def update(self, rows, weights=None):
        """All rows of a batch, or none: raises ValueError naming the first row that is not finite."""
        n = rows.shape[0]
        saved = None if n < self.block.room and self.block.fits_step(n) else self.arrays(copy=True)
        step = max(1, SLICE_BYTES // (self.n_features * self.dtype.itemsize))
        try:
            for start in range(0, n, step):
                stop = min(start + step, n)
                piece = plain_rows(rows[start:stop], self.dtype)
                done = start
                while done < stop:
                    part = None if weights is None else weights[done:stop]
                    done += self.block.add(piece[done - start :], part, offset=done)
                    if self.block.room == 0:
                        self._settle_block()
        except BaseException:
            if saved is not None:
                self.restore(saved)
            _threads.settle()
            raise

    def _settle_block(self):
        found = self.block.close()
        correction = self._move_mean(found.mean, found.weight)
        self.rows_settled += found.n_rows
        if len(found.rows):
            self.inner.update(found.rows)
        if correction is not None:
            self.inner.update(correction)
        self.block.restart(self.block.index + 1)

    def _move_mean(self, mean, weight):
        """Take more weight in; returns the correction row between two means (FROSH Algorithm 1, step 7), or None."""
        before = self.settled
        self.settled += weight
        if not self.setting.center or weight <= 0:
            return None
        if before == 0:
            self.block_mean[:] = mean
            return None
        move = mean - self.block_mean
        self.block_mean += weight / self.settled * move
        row = np.sqrt(before / self.settled) * np.sqrt(weight) * move
        return row.astype(self.dtype)[np.newaxis]

    def settle(self):
        """End the chunk in the making, whatever its length."""
        if self.block.n_rows:
            self._settle_block()

    def reduce(self):
        """Settle, and return the rows, at most sketch_size. Callers work on a clone."""
        self.settle()
        return self.inner.reduce()

    def fade(self, factor):
        """Multiply the weight of all rows so far by a factor; ends the chunk."""
        self.settle()
        self.inner.fade(factor)
        self.settled *= factor

    def take_over(self, other):
        """Add the means and counts of another settled engine; return the correction row, or None."""
        correction = self._move_mean(other.block_mean, other.settled)
        self.rows_settled += other.rows_settled
        return correction

    def arrays(self, copy=False):
        """Everything that a resume needs, by name."""
        inner = {f"inner_{name}": array for name, array in self.inner.arrays(copy).items()}
        block = {f"block_{name}": array for name, array in self.block.arrays(copy).items()}
        return {
            **inner,
            **block,
            "mean": self.block_mean.copy() if copy else self.block_mean,
            "settled": np.array([self.settled]),
            "place": np.array([self.rows_settled, self.block.index]),
        }

    def restore(self, arrays):
        """Take the state that `arrays` describes; ValueError if shapes do not fit."""

        def named(prefix):
            return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}

        if arrays["mean"].shape != self.block_mean.shape:
            raise ValueError(f"array 'mean' has shape {arrays['mean'].shape}, expected {self.block_mean.shape}")
        self.block_mean[:] = arrays["mean"]
        self.settled = float(arrays["settled"][0])
        self.rows_settled, index = (int(value) for value in arrays["place"])
        self.inner.restore(named("inner_"))
        self.block.restore(named("block_"), index)

    def clone(self):
        other = type(self)(self.setting, self.n_features, dtype=self.dtype)
        other.restore(self.arrays())
        return other
