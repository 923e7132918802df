"""What the dense and the sparse buffer have in common: scalars, slices, scale, rollback.

The kernels update arrays in place; this class owns them. A batch passes in slices: a slice is checked, then put through
the buffer in one call that no signal interrupts. A batch of a few buffers is one slice and therefore all or nothing by
itself; a longer one is undone from a copy of the buffer if a later slice is refused or interrupted.
"""

from math import frexp, ldexp

import numpy as np

from fastsketch import _threads
from fastsketch._validation import not_finite
from fastsketch.sketching._engines._layout import (
    BOOK_SIZE,
    COUNT_SIZE,
    EXPONENT,
    FILL,
    KEPT,
    N_ROWS,
    NOTHING_SEEN,
    ROUNDING,
    SETTLED_WEIGHT,
    SHRINKAGE,
    SQUARED_NORM,
    TOP,
    WEIGHT,
)

# A batch of at most this many buffers (one, where it must be converted) passes as a single slice, without a copy of the
# buffer: for longer ones that copy costs nothing beside the work.
BUFFERS_PER_SLICE = 8

# Bytes of a slice of a longer batch: it is still in the cache when it is read again after its check.
SLICE_BYTES = 4 << 20

# Binary exponents of the largest entry between which squares neither overflow nor lose the sketch's relative
# precision; outside, everything is stored divided by a power of two. Limits: what the dtype can still represent.
SAFE_EXPONENTS = {4: (-40, 40, 120), 8: (-330, 330, 1000)}


class Engine:
    """Scalars of one sketch in two small arrays (see _layout), and the rules by which batches change them."""

    kind = None
    compressor = None

    def __init__(self, setting, n_features, *, dtype, capacity):
        self.setting = setting
        self.n_features = n_features
        self.dtype = dtype
        self.capacity = capacity
        centred = n_features if setting.center else 0
        self.a = {
            "n_keep": setting.sketch_size - 1,
            "n_spare": setting.rows_spared,
            "centre": setting.center,
            "decay": setting.decay,
            "lam": np.zeros(setting.sketch_size + 1),
            # kept row i stands for gain[i] times what is stored
            "gain": np.ones(setting.sketch_size + 1),
            "mean": np.zeros(centred),
            "shift": np.zeros(centred),
            "root": np.ones(capacity + 1),
            "book": np.zeros(BOOK_SIZE),
            "count": np.zeros(COUNT_SIZE, np.int64),
        }
        self.a["count"][TOP] = NOTHING_SEEN

    # -- a batch ---------------------------------------------------------------------------------------------------
    def update(self, rows, weights=None, *, offset=0):
        """All rows of a batch, or none: raises ValueError naming the first row, counted from -offset, that is not
        finite."""
        n = rows.shape[0]
        step = self.capacity * (BUFFERS_PER_SLICE if self.fits(rows) else 1)
        saved = None
        if n > step:
            saved = self.arrays(copy=True)
            step = min(step, max(1, SLICE_BYTES // self.bytes_per_row(rows)))
        try:
            for start in range(0, n, step):
                stop = min(start + step, n)
                self._slice(rows, start, stop, None if weights is None else weights[start:stop], offset)
        except BaseException:
            if saved is not None:
                self.restore(saved)
            _threads.settle()
            raise

    def _slice(self, rows, start, stop, weights, offset):
        piece = self.cut(rows[start:stop])
        bad, largest = self.scan(piece)
        if bad >= 0:
            raise not_finite(offset + start + bad, self.dtype)
        self._fit_scale(largest, weights)
        scale = ldexp(1.0, -self.exponent)
        if self.room() > stop - start:  # no shrink will come: the limit on BLAS need not be touched
            self.absorb(piece, weights, scale)
        else:
            with _threads.blas_for(self.capacity):
                self.absorb(piece, weights, scale)

    def room(self):
        """New rows that the buffer takes before it shrinks."""
        return self.capacity - self.setting.center - int(self.a["count"][FILL])

    def _fit_scale(self, largest, weights):
        """Choose the power of two that everything is divided by, from the largest entry seen so far."""
        if weights is not None and weights.size:
            largest *= min(float(np.sqrt(weights.max())), 1e150)
        if largest == 0.0:
            return
        top = max(frexp(min(largest, 1e308))[1], int(self.a["count"][TOP]))
        low, high, limit = SAFE_EXPONENTS[self.dtype.itemsize]
        wanted = 0 if low <= top <= high else max(-limit, min(limit, top))
        self._rescale_to(wanted, top)

    def _rescale_to(self, exponent, top):
        if exponent != self.exponent:
            self.scale_all(ldexp(1.0, max(-1022, min(1022, self.exponent - exponent))))
            self.a["count"][EXPONENT] = exponent
        self.a["count"][TOP] = top

    def scale_all(self, factor):
        """Store everything multiplied by a power of two: rows, mean, and squares by its square."""
        with np.errstate(under="ignore", over="ignore"):
            self.multiply(factor)
            self.a["mean"] *= factor
            # one factor after the other: its square may leave the range though the product does not
            for entry, power in ((SHRINKAGE, 2), (SQUARED_NORM, 2), (ROUNDING, 4)):
                for _ in range(power):
                    self.a["book"][entry] *= factor

    def fade(self, factor):
        """Multiply the weight of all rows so far by a factor."""
        root = float(np.sqrt(factor))
        self.multiply(root)
        self.a["root"][self.root_slice()] *= root
        self.a["book"] *= factor
        self.a["book"][ROUNDING] *= factor

    # -- scalars, in the units of the rows -------------------------------------------------------------------------
    @property
    def exponent(self):
        return int(self.a["count"][EXPONENT])

    @property
    def n_rows(self):
        return int(self.a["count"][N_ROWS])

    @property
    def fill(self):
        return int(self.a["count"][FILL])

    @property
    def weight(self):
        return float(self.a["book"][WEIGHT])

    # as they are stored: rows divided by 2**exponent, squares by 4**exponent
    @property
    def shrinkage(self):
        return float(self.a["book"][SHRINKAGE])

    @property
    def squared_norm(self):
        return float(self.a["book"][SQUARED_NORM])

    @property
    def rounding(self):
        return float(self.a["book"][ROUNDING])

    @property
    def mean(self):
        return self.a["mean"]

    # -- copies ----------------------------------------------------------------------------------------------------
    def arrays(self, copy=False):
        """Everything that a resume needs, by name: views, or copies that later updates do not touch."""
        out = {
            "book": self.a["book"],
            "count": self.a["count"],
            "lam": self.a["lam"],
            "gain": self.a["gain"],
            "mean": self.a["mean"],
            "root": self.a["root"][self.root_slice()],
            **self.own_arrays(),
        }
        return {name: array.copy() for name, array in out.items()} if copy else out

    def restore(self, arrays):
        """Take the state that `arrays` describes; ValueError if shapes do not fit."""
        count = arrays["count"]
        if count.shape != (COUNT_SIZE,) or not 0 <= count[KEPT] <= count[FILL] <= self.capacity:
            raise ValueError("the counts do not fit the buffer")
        for name in ("book", "count", "lam", "gain", "mean"):
            if arrays[name].shape != self.a[name].shape:
                raise ValueError(f"array {name!r} has shape {arrays[name].shape}, expected {self.a[name].shape}")
            self.a[name][:] = arrays[name]
        self.a["root"][self.root_slice()] = arrays["root"]
        self.put_arrays(arrays)

    def clone(self):
        other = type(self)(self.setting, self.n_features, dtype=self.dtype)
        other.restore(self.arrays())
        return other

    # -- reading and merging ---------------------------------------------------------------------------------------
    def reduce(self):
        """Settle the buffer and, if it holds more than sketch_size rows, shrink it; return its rows.

        Changes the state, though not what it stands for: callers work on a clone.
        """
        new = self.fill - int(self.a["count"][KEPT])
        if self.fill + (self.setting.center and new > 0) > self.setting.sketch_size:
            with _threads.blas_for(self.capacity):
                self.flush()
        return self.settled_rows()

    def align(self, other):
        """Bring two engines to one scale; both stand for the same rows as before."""
        first, second = (self, other) if self.a["count"][TOP] >= other.a["count"][TOP] else (other, self)
        second._rescale_to(first.exponent, int(first.a["count"][TOP]))

    def take_over(self, other):
        """Add the scalars of another reduced engine of the same scale; return the correction row, or None."""
        book, theirs = self.a["book"], other.a["book"]
        correction = None
        if self.setting.center:
            w, h = float(book[SETTLED_WEIGHT]), float(theirs[SETTLED_WEIGHT])
            if h > 0:
                # sqrt(w h / (w + h)) (mean' - mean): FROSH Algorithm 3, as exact as the two means are
                move = other.a["mean"] - self.a["mean"]
                correction = np.sqrt(w / (w + h)) * np.sqrt(h) * move
                book[SQUARED_NORM] += correction @ correction
                self.a["mean"][:] = self.a["mean"] + h / (w + h) * move if w > 0 else other.a["mean"]
                correction = correction.astype(self.dtype)
        book += theirs
        self.a["count"][N_ROWS] += other.a["count"][N_ROWS]
        return correction
