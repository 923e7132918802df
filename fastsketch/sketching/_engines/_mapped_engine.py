"""The engine of a sketch with a compressor: a random map reduces blocks of rows before they are sketched.

Rows -> block of m -> q rows -> buffer of a dense engine (FROSH Algorithm 2).
"""

from dataclasses import replace
from math import ldexp
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core import threads as _threads
from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching.dense import move_mean
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines._dense_engine import dense_form
from fastsketch.sketching._engines._ledger import SketchSummary
from fastsketch.sketching._engines._setting import EngineSetting
from fastsketch.sketching._plain_rows import plain_rows
from fastsketch.sketching._random_maps import Compressor, MappedBlock, SizedMap, sized

# Rows of one step through a block are checked and then used: together they stay in the last cache.
SLICE_BYTES = 4 << 20


class MappedEngine:
    """Sketch engine that first compresses the rows. A random map reduces every block of m rows to q rows, which a dense
    engine then sketches.

    The mean is stored here, not in the dense engine.
    """

    kind = "mapped"

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        compressor = setting.compressor
        assert compressor is not None  # or another engine is chosen
        self.setting = setting
        self.n_features = n_features
        self.dtype = dtype
        sized_map = self.map_for(setting, n_features)
        self.compressor: Compressor | None = replace(
            compressor, rows_out=sized_map.rows_out, block_rows=sized_map.block_rows
        )
        inner = self.inner_setting(setting, sized_map)
        self.inner = dense_form(inner)(inner, n_features, dtype=dtype)
        self.block = MappedBlock(
            sized_map, n_features, dtype=dtype, center=setting.center, index=compressor.first_block
        )
        # of the blocks that are complete
        self._settled_mean = np.zeros(n_features if setting.center else 0)
        self._settled_low = np.zeros_like(self._settled_mean)  # the mean is a sum of two: see csrc/fs_rows.h
        self._settled_weight = 0.0
        self._settled_rows = 0

    @staticmethod
    def map_for(setting: EngineSetting, n_features: int) -> SizedMap:
        """Return the random map with which the compressor of these settings reduces every block of rows."""
        assert setting.compressor is not None
        return sized(setting.compressor, rows_out=setting.sketch_size, n_features=n_features)

    @staticmethod
    def inner_setting(setting: EngineSetting, sized_map: SizedMap) -> EngineSetting:
        """Return the settings of the inner dense engine, which sketches the compressed rows. It neither compresses nor
        centres.
        """
        buffer_size = sized_map.rows_out if setting.buffer_size is None else setting.buffer_size
        return replace(setting, buffer_size=buffer_size, center=False, compressor=None)  # blocks are centred

    # -- the state, in the units of the inner engine ---------------------------------------------------------------
    capacity = property(attrgetter("inner.capacity"))
    exponent = property(attrgetter("inner.exponent"))
    shrinkage = property(attrgetter("inner.shrinkage"))
    squared_norm = property(attrgetter("inner.squared_norm"))  # of the mapped rows
    rounding = property(attrgetter("inner.rounding"))

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return the mean of the rows in complete blocks; it is empty without centring."""
        return self._settled_mean * ldexp(1.0, -self.exponent)

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen."""
        return self._settled_rows + self.block.n_rows

    @property
    def weight(self) -> float:
        """Return the sum of the weights of all rows seen."""
        return self._settled_weight + self.block.weight

    # -- a batch ---------------------------------------------------------------------------------------------------
    def update(self, rows: Any, weights: NDArray[np.float64] | None = None) -> None:
        """Add a batch of rows. If a row is refused, the state is unchanged.

        ValueError names the first row that is not finite.
        """
        n, block = rows.shape[0], self.block
        saved = None if n < block.room and block.fits_step(n) else self.arrays(copy=True)
        step = max(1, SLICE_BYTES // (self.n_features * self.dtype.itemsize))
        try:
            for start in range(0, n, step):
                stop = min(start + step, n)
                piece = plain_rows(rows[start:stop], self.dtype)
                done = start
                while done < stop:
                    part = None if weights is None else weights[done:stop]
                    done += block.add(piece[done - start :], part, offset=done)
                    if block.room == 0:
                        self._settle_block()
        except BaseException:
            if saved is not None:
                self.restore(saved)
            _threads.end_interrupted_limits()
            raise

    def _settle_block(self) -> None:
        block = self.block.close()
        correction = self._move_mean(block.mean, block.mean_low, block.weight)
        self._settled_rows += block.n_rows
        if len(block.rows):
            self.inner.update(block.rows)
        if correction is not None:
            self.inner.update(correction)
        self.block.restart(self.block.index + 1)

    def _move_mean(
        self, mean: NDArray[np.float64] | None, low: NDArray[np.float64] | None, weight: float
    ) -> NDArray[Any] | None:
        """Add further rows to the stored mean, in place, and return the row that corrects the sketch for it, or None.

        The row must be added to the sketch because the two means differ. FROSH Algorithm 1, step 7.
        """
        before = self._settled_weight
        self._settled_weight += weight
        if mean is None or low is None or not mean.size or weight <= 0:
            return None
        row = mean.copy()
        move_mean(self._settled_mean, self._settled_low, before, base=row, shift=low, block_weight=weight)
        return row.astype(self.dtype)[np.newaxis] if before > 0 else None

    def settle(self) -> None:
        """Compress the rows of the current block now, although it may not be full, and add the result to the sketch. A
        new block begins.
        """
        if self.block.n_rows:
            self._settle_block()

    def reduce(self) -> NDArray[Any]:
        """Complete the current block, and return the rows of the sketch, at most sketch_size; the state changes.

        Callers work on a clone.
        """
        self.settle()
        return self.inner.reduce()

    def summary(self, most: int | None = None) -> SketchSummary:
        """Complete the current block, and return the SketchSummary of the compressed rows' sketch; the state changes.

        Callers work on a clone.
        """
        self.settle()
        return self.inner.summary(most)

    def fade(self, factor: float) -> None:
        """Multiply the weight of all rows seen so far by a factor, in place. The current block is completed first, so
        that later rows start a new one.
        """
        self.settle()
        self.inner.fade(factor)
        self._settled_weight *= factor

    def add_sums(self, other: "MappedEngine") -> NDArray[Any] | None:
        """Add the mean, weight and number of rows of another engine to this one's, in place, for a merge.
        Return the row by which the sketch must be extended because the two means differ, or None.

        The sketches are left to the caller. The other engine is settled.
        """
        correction = self._move_mean(other._settled_mean, other._settled_low, other._settled_weight)
        self._settled_rows += other._settled_rows
        return correction

    # -- copies ----------------------------------------------------------------------------------------------------
    def arrays(self, copy: bool = False) -> Arrays:
        """Return the complete state as a dict of named arrays, as views where possible or as copies."""
        inner = {f"inner_{name}": array for name, array in self.inner.arrays(copy).items()}
        block = {f"block_{name}": array for name, array in self.block.arrays(copy).items()}
        return {
            **inner,
            **block,
            "mean": self._settled_mean.copy() if copy else self._settled_mean,
            "mean_low": self._settled_low.copy() if copy else self._settled_low,
            "settled": np.array([self._settled_weight]),
            "place": np.array([self._settled_rows, self.block.index]),
        }

    @classmethod
    def validate(cls, arrays: Arrays, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        """Raise ValueError unless these arrays are a valid saved state of an engine with these settings.

        Allocates nothing of the engine's size.
        """
        sized_map, compressor = cls.map_for(setting, n_features), setting.compressor
        assert compressor is not None  # or there would be no map
        inner = cls.inner_setting(setting, sized_map)
        dense_form(inner).validate(_without_prefix(arrays, "inner_"), inner, n_features, dtype=dtype)
        MappedBlock.validate(
            _without_prefix(arrays, "block_"), sized_map, n_features, dtype=dtype, center=setting.center
        )
        checks.finite(arrays, "mean", (n_features if setting.center else 0,))
        checks.finite(arrays, "mean_low", (n_features if setting.center else 0,))
        checks.not_negative(arrays, "settled", (1,))
        n_rows, index = checks.array_of(arrays, "place", (2,), np.dtype(np.int64)).tolist()
        checks.as_count(n_rows, "rows in complete blocks")
        checks.number_within(index, "index of the block", compressor.first_block, 2.0**63 - 2**32)
        others = [name for name in arrays if not name.startswith(("inner_", "block_"))]
        checks.only({name: arrays[name] for name in others}, "mean", "mean_low", "settled", "place")

    def restore(self, arrays: Arrays) -> None:
        """Set the engine's state from named arrays that come from ``arrays`` or have passed ``validate``."""
        self._settled_mean[:] = arrays["mean"]
        self._settled_low[:] = arrays["mean_low"]
        self._settled_weight = float(arrays["settled"][0])
        self._settled_rows, index = (int(value) for value in arrays["place"])
        self.inner.restore(_without_prefix(arrays, "inner_"))
        self.block.restore(_without_prefix(arrays, "block_"), index)

    def clone(self) -> Self:
        """Return an independent copy of the engine."""
        other = type(self)(self.setting, self.n_features, dtype=self.dtype)
        other.restore(self.arrays())
        return other


def _without_prefix(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
