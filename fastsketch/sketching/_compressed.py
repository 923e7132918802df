"""A sketch of compressed chunks: rows -> chunk of m -> q rows -> the buffer of a dense engine (FROSH Algorithm 2)."""

from math import ldexp

import numpy as np

from fastsketch import _threads
from fastsketch.sketching._chunk import Chunk, plain_rows
from fastsketch.sketching._dense import DenseEngine

# Rows of one step through a chunk are checked and then used: together they stay in the last cache.
SLICE_BYTES = 4 << 20


class CompressedEngine:
    """A chunk in the making and the engine that takes what chunks become; the mean is kept here, not there."""

    kind = "compressed"
    accumulated = False

    def __init__(self, config, n_features, dtype):
        self.config = config
        self.n_features = n_features
        self.dtype = dtype
        compressor = config.compressor.resolved(config.sketch_size, n_features)
        block = compressor.rows_out if config.buffer_size is None else config.buffer_size
        self.inner = DenseEngine(config.uncompressed(block), n_features, dtype)
        self.chunk = Chunk(compressor, n_features, dtype, config.center, compressor.first_block)
        self.mean = np.zeros(n_features if config.center else 0)
        # of the chunks that are complete
        self.settled = 0.0
        self.rows_settled = 0

    capacity = property(lambda self: self.inner.capacity)
    exponent = property(lambda self: self.inner.exponent)

    @property
    def a(self):
        return {"book": self.inner.a["book"], "mean": self.mean * ldexp(1.0, -self.exponent)}

    @property
    def n_rows(self):
        return self.rows_settled + self.chunk.n_rows

    @property
    def weight(self):
        return self.settled + float(self.chunk.a["book"][0])

    def update(self, rows, weights):
        """All rows of a batch, or none: raises ValueError naming the first row that is not finite."""
        n = rows.shape[0]
        saved = None if n < self.chunk.room and self.chunk.fits_block(n) else self.arrays(copy=True)
        step = max(1, SLICE_BYTES // (self.n_features * self.dtype.itemsize))
        try:
            for start in range(0, n, step):
                stop = min(start + step, n)
                piece = plain_rows(rows, start, stop, self.dtype)
                done = start
                while done < stop:
                    part = None if weights is None else weights[done:stop]
                    done += self.chunk.add(piece[done - start :], part, done)
                    if self.chunk.room == 0:
                        self._settle_chunk()
        except BaseException:
            if saved is not None:
                self.restore(saved)
            _threads.settle()
            raise

    def _settle_chunk(self):
        found = self.chunk.close()
        correction = self._move_mean(found.mean, found.weight)
        self.rows_settled += found.n_rows
        if len(found.rows):
            self.inner.update(found.rows, None)
        if correction is not None:
            self.inner.update(correction, None)
        self.chunk.restart(self.chunk.index + 1)

    def _move_mean(self, mean, weight):
        """Take more weight in; returns the correction row between two means (FROSH Algorithm 1, step 7), or None."""
        before = self.settled
        self.settled += weight
        if not self.config.center or weight <= 0:
            return None
        if before == 0:
            self.mean[:] = mean
            return None
        move = mean - self.mean
        self.mean += weight / self.settled * move
        row = np.sqrt(before / self.settled) * np.sqrt(weight) * move
        return row.astype(self.dtype)[np.newaxis]

    def settle(self):
        """End the chunk in the making, whatever its length."""
        if self.chunk.n_rows:
            self._settle_chunk()

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
        correction = self._move_mean(other.mean, other.settled)
        self.rows_settled += other.rows_settled
        return correction

    def arrays(self, copy=False):
        """Everything that a resume needs, by name."""
        inner = {f"inner_{name}": array for name, array in self.inner.arrays(copy).items()}
        chunk = {f"chunk_{name}": array for name, array in self.chunk.arrays(copy).items()}
        return {
            **inner,
            **chunk,
            "mean": self.mean.copy() if copy else self.mean,
            "settled": np.array([self.settled]),
            "place": np.array([self.rows_settled, self.chunk.index]),
        }

    def restore(self, arrays):
        """Take the state that `arrays` describes; ValueError if shapes do not fit."""

        def named(prefix):
            return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}

        if arrays["mean"].shape != self.mean.shape:
            raise ValueError(f"array 'mean' has shape {arrays['mean'].shape}, expected {self.mean.shape}")
        self.mean[:] = arrays["mean"]
        self.settled = float(arrays["settled"][0])
        self.rows_settled, index = (int(value) for value in arrays["place"])
        self.inner.restore(named("inner_"))
        self.chunk.restore(named("chunk_"), index)

    def clone(self):
        other = type(self)(self.config, self.n_features, self.dtype)
        other.restore(self.arrays())
        return other
