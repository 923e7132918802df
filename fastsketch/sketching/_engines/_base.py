"""The base class of sketch engines: batches, scaling, rollback, saved state and merges.

An engine owns the arrays of a sketch (its *state*, ``_kernels/sketching/state.pxd``), which the kernels update in
place. A batch passes in slices: a slice is checked, then put through the buffer in one call that no signal interrupts.
A batch of a few buffers is one slice and therefore atomic. A longer one is rolled back, from a copy of the buffer, if a
later slice is refused or interrupted.
"""

from abc import ABC, abstractmethod
from math import frexp, ldexp, sqrt
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._core import threads as _threads
from fastsketch._core.validation import not_finite
from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching.dense import move_mean
from fastsketch._kernels.sketching.ledger import Ledger
from fastsketch._kernels.sketching.state import NOTHING_SEEN, REFRESH, SketchState
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines._ledger import (
    Known,
    known_of,
    ledger_arrays,
    ledger_of_size,
    put_ledger,
    validate_ledger,
    weaken,
)
from fastsketch.sketching._engines._setting import EngineSetting, squares_of
from fastsketch.sketching._random_maps import Compressor
from fastsketch.sketching._scalars import scalars, set_scalars

# A batch of at most this many buffers (one, if it must be converted) passes as a single slice, without a copy of the
# buffer. For longer batches the cost of the copy is negligible.
BUFFERS_PER_SLICE = 8

# Bytes of a slice of a longer batch: small enough to be in the cache when it is read again after its check.
SLICE_BYTES = 4 << 20

# Binary exponents of the largest entry between which squares neither overflow nor lose the sketch's relative
# precision; outside, everything is stored divided by a power of two. Limits: what the dtype can represent.
SAFE_EXPONENTS = {4: (-40, 40, 120), 8: (-330, 330, 1000)}
# A sketch that centres stores new rows unweighted, but divided by the power of two of the weighted rows. Roots of
# weights count for that power only between this limit and its inverse, so that the unweighted rows do not overflow
# either.
ROOT_EXPONENTS = {4: 80, 8: 600}

# Names of the arrays of every engine's state, in addition to those of its buffer.
SHARED_ARRAYS = ("book", "count", "lam", "gain", "mean", "mean_low", "root")


def exponent_for(top: int, dtype: np.dtype[Any]) -> int:
    """Choose the power of two by which a sketch divides its rows, given the binary exponent of the largest entry.
    Return its exponent.
    """
    low, high, limit = SAFE_EXPONENTS[dtype.itemsize]
    return 0 if low <= top <= high else max(-limit, min(limit, top))


def check_gains(gain: NDArray[np.float64], kept: NDArray[Any]) -> None:
    """Raise ValueError if multiplying the retained rows by the factors in `gain` makes one of them overflow."""
    most = float(np.finfo(kept.dtype).max)
    for i in np.flatnonzero(gain[: len(kept)] > 1.5):  # with smaller factors rows in range cannot overflow
        with np.errstate(over="ignore"):
            square = float(kept[i] @ kept[i]) * gain[i] * gain[i]
        if not square <= most / len(kept):
            raise ValueError(f"array 'gain' makes kept row {i} too long: {gain[i]:g} times its entries")


State = TypeVar("State", bound=SketchState)
# A slice of a batch as the kernels take it.
Piece = TypeVar("Piece")


class SketchEngine(ABC, Generic[State, Piece]):
    """Base class of the engines behind a sketch, which hold a buffer of rows and update it by batches and merges."""

    kind: ClassVar[str]
    compressor: Compressor | None = None

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        self.setting = setting
        self.n_features = n_features
        self.dtype = dtype
        state = self.make_state()
        self.state = state
        self.capacity: int = state.capacity  # rows of the buffer
        self.ledger: Ledger | None = None  # None for an exact sum, which loses nothing
        if setting.keeps_ledger:
            self.ledger = Ledger(state.n_keep, state.capacity, n_spare=setting.rows_spared)
            state.ledger = self.ledger
        # views of the arrays of the state, which _kernels/sketching/state.pxd describes
        self.lam: NDArray[np.float64] = np.asarray(state.lam)
        self.gain: NDArray[np.float64] = np.asarray(state.gain)
        self.root: NDArray[np.float64] = np.asarray(state.root)

    @property
    def width(self) -> int:
        """Return the number of stored columns."""
        return self.n_features

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return a view of the mean of all rows that have been centred so far; it is empty without centring."""
        return np.asarray(self.state.mean)[: self.width]

    @property
    def mean_low(self) -> NDArray[np.float64]:
        """Return a view of the part of the mean that ``mean`` loses to rounding."""
        return np.asarray(self.state.mean_low)[: self.width]

    # -- what a subclass defines -----------------------------------------------------------------------------------
    @classmethod
    @abstractmethod
    def capacity_for(cls, setting: EngineSetting) -> int:
        """Return the number of rows that the buffer has space for with these settings."""

    @classmethod
    @abstractmethod
    def validate_own(
        cls, arrays: Arrays, count: dict[str, int], setting: EngineSetting, width: int, *, dtype: np.dtype[Any]
    ) -> None:
        """Raise ValueError, naming the array, if saved arrays of the buffer are invalid. The counts have been checked
        before.
        """

    @abstractmethod
    def make_state(self) -> State:
        """Create the empty state that the compiled kernels update."""

    @abstractmethod
    def measure(self, rows: Any) -> tuple[bool, int]:
        """Return whether the compiled kernel can read rows without a copy, and how many bytes of a row it reads."""

    @abstractmethod
    def cut(self, rows: Any) -> Piece:
        """Convert a slice of rows to the form that the compiled kernel reads."""

    @abstractmethod
    def scan(self, piece: Piece) -> tuple[int, float]:
        """Find the first row that is not finite. Return its index, or -1, and the largest absolute entry before it."""

    @abstractmethod
    def largest_weighted(self, piece: Piece, root: NDArray[np.float64]) -> float:
        """Return the largest absolute entry of a slice of rows after row i was multiplied by root[i]."""

    @abstractmethod
    def absorb(self, piece: Piece, weights: NDArray[np.float64] | None) -> None:
        """Add a validated slice of rows to the buffer, which is shrunk whenever it is full."""

    @abstractmethod
    def part_of(self, piece: Piece, start: int, stop: int) -> Piece:
        """Return rows [start, stop) of a converted slice."""

    @abstractmethod
    def flush(self) -> None:
        """Apply pending weights, decay and centring to the buffer, then shrink it, or add its rows to the exact sum
        A'A.
        """

    @abstractmethod
    def settled_rows(self) -> NDArray[Any]:
        """Apply decay, centring and row factors that are still pending, and return the rows of the buffer."""

    @abstractmethod
    def replace_rows(self, rows: NDArray[Any], *, kept: bool = True) -> None:
        """Replace the rows of the buffer: by rows that a shrink has left if `kept` is True, else by new rows.

        Rows left by a shrink are at most sketch_size.
        """

    @abstractmethod
    def new_rows(self) -> slice:
        """Return the positions of the rows added since the last shrink, a slice of ``root`` and of a dense buffer."""

    @abstractmethod
    def new_values(self) -> NDArray[Any]:
        """Return a view of the entries of the rows added since the last shrink."""

    @abstractmethod
    def own_arrays(self) -> Arrays:
        """Return the arrays of the buffer by name, as views, without sums and counts."""

    @abstractmethod
    def put_arrays(self, own: Arrays) -> None:
        """Set the buffer to the arrays that ``own_arrays`` returned."""

    @classmethod
    def most_rows(cls, setting: EngineSetting) -> int:
        """Return the largest number of rows that the sketch may have without another shrink.

        It is sketch_size, if there is capacity for one more row.
        """
        return min(setting.sketch_size, cls.capacity_for(setting) - 1 - setting.center)

    # -- a batch ---------------------------------------------------------------------------------------------------
    def update(self, rows: Any, weights: NDArray[np.float64] | None = None, *, offset: int = 0) -> None:
        """Add a batch of rows. If a row is refused, the state is unchanged.

        ValueError names the first row, counted from -offset, that is not finite.
        """
        n, step = rows.shape[0], self.step(rows)
        saved, rows_then = None, self.state.n_rows
        if step < n or self.may_shrink(rows):  # whose eigensolver may fail
            saved = self.saved_from(rows)
        try:
            for start in range(0, n, step):
                part = None if weights is None else weights[start : start + step]
                # scipy takes 12 us for a slice, half of what one row costs
                piece = self.checked(rows[start : start + step] if step < n else rows, part, offset=offset + start)
                self.absorb(piece, part)
        except BaseException:
            if saved is not None and not self.is_past(saved, rows_then + n):
                self.restore(saved)
            _threads.end_interrupted_limits()
            raise

    def may_shrink(self, rows: Any) -> bool:
        """Return True if adding these rows may cause a shrink."""
        return bool(rows.shape[0] >= self.room())

    def saved_from(self, rows: Any) -> Arrays:
        """Copy everything that a batch may change, so that the batch can be rolled back."""
        return self.arrays(copy=True)

    def is_past(self, saved: Arrays, n_rows: int) -> bool:
        """Return True if a batch was complete when it was interrupted, so that it must not be rolled back."""
        return False

    def step(self, rows: Any) -> int:
        """Return how many rows of a batch to process at a time: all rows if they fill at most a few buffers."""
        n = rows.shape[0]
        if n <= self.capacity:
            return max(n, 1)
        fits, row_bytes = self.measure(rows)
        most = self.capacity * (BUFFERS_PER_SLICE if fits else 1)
        return n if n <= most else min(most, max(1, SLICE_BYTES // row_bytes))

    def checked(self, rows: Any, weights: NDArray[np.float64] | None, *, offset: int) -> Piece:
        """Convert a slice of rows for the kernel and check that it is finite. The engine's scale follows the largest
        entry.
        """
        piece = self.cut(rows)
        bad, largest = self.scan(piece)
        if bad >= 0:
            raise not_finite(offset + bad, self.dtype)
        self._fit_scale(piece, largest, weights)
        return piece

    def resized(self, sketch_size: int) -> Self:
        """Return a copy of the engine with another sketch size, which must be at least the number of retained rows."""
        other = type(self)(self.setting.of_size(sketch_size), self.n_features, dtype=self.dtype)
        arrays = self.arrays()
        for name, fill in (("lam", 0.0), ("gain", 1.0)):
            longer = np.full(sketch_size + 1, fill)
            longer[: min(sketch_size, self.setting.sketch_size) + 1] = arrays[name][: sketch_size + 1]
            arrays[name] = longer
        other.restore({**arrays, **ledger_of_size(self.ledger, sketch_size)})
        return other

    def leading_squares(self) -> tuple[NDArray[np.float64], bool]:
        """Compute squared singular values of the buffer's rows. Return them, descending, and whether they are all."""
        return squares_of(self.settled_rows()), True

    def room(self) -> int:
        """Return how many more rows fit into the buffer before it is shrunk."""
        return self.capacity - self.setting.center - self.state.fill

    def _fit_scale(self, piece: Piece, largest: float, weights: NDArray[np.float64] | None) -> None:
        """Increase the power of two by which the engine divides its rows, if a slice of rows has a larger entry than
        before.
        """
        if weights is not None and weights.size:
            root, low, high = float(np.sqrt(weights.max())), 0.0, 1e150
            if self.setting.center:
                most = ldexp(1.0, ROOT_EXPONENTS[self.dtype.itemsize])
                low, high = 1 / most, min(most, high)
            root = low if root < low else high if root > high else root
            bound = largest * root
            if len(weights) > 1 and frexp(min(bound, 1e308))[1] > self.state.top:  # row by row: batches do not matter
                with np.errstate(over="ignore"):
                    bound = self.largest_weighted(piece, np.maximum(np.minimum(np.sqrt(weights), root), low))
            largest = bound
        if largest == 0.0:
            return
        top = max(frexp(min(largest, 1e308))[1], self.state.top)
        self._rescale_to(exponent_for(top, self.dtype), top)

    def _rescale_to(self, exponent: int, top: int) -> None:
        state = self.state
        if exponent != state.exponent:
            self.scale_all(ldexp(1.0, max(-1022, min(1022, state.exponent - exponent))))
            state.exponent = exponent
        state.top = top

    def multiply(self, factor: float) -> None:
        """Multiply the retained rows by a factor, and their stored squared lengths by its square."""
        self.gain *= factor
        for _ in range(2):  # the square of a factor may overflow where the product does not
            self.lam *= factor

    def multiply_new(self, factor: float) -> None:
        """Multiply the rows added since the last shrink by a factor."""
        values = self.new_values()
        values *= self.dtype.type(factor)

    def scale_all(self, factor: float) -> None:
        """Change the scale of the engine: multiply stored rows and means by a power of two, and stored squares by its
        square.
        """
        state = self.state
        with np.errstate(under="ignore", over="ignore"):
            self.multiply(factor)
            self.multiply_new(factor)
            for mean in (self.mean, self.mean_low):
                mean *= factor
            for _ in range(2):
                weaken(self.ledger, factor)
        # one factor after the other: its square may overflow where the product does not
        state.shrinkage = state.shrinkage * factor * factor
        state.squared_norm = state.squared_norm * factor * factor
        state.rounding = state.rounding * factor * factor * factor * factor

    def fade(self, factor: float) -> None:
        """Multiply the weight of all rows seen so far by a factor."""
        root, state = float(np.sqrt(factor)), self.state
        self.multiply(root)
        if not self.setting.center:  # otherwise they are not weighted yet
            self.multiply_new(root)
        self.root[self.new_rows()] *= root
        for name in state.SUMS:
            setattr(state, name, getattr(state, name) * factor)
        state.rounding *= factor
        weaken(self.ledger, factor)

    # -- the state, in stored units: rows divided by 2**exponent, squares by 4**exponent ---------------------------
    exponent = property(attrgetter("state.exponent"))
    n_rows = property(attrgetter("state.n_rows"))  # seen
    weight = property(attrgetter("state.weight"))  # sum of the (decayed) weights of all rows seen
    shrinkage = property(attrgetter("state.shrinkage"))  # Delta
    squared_norm = property(attrgetter("state.squared_norm"))  # of the rows
    rounding = property(attrgetter("state.rounding"))  # square of the allowance for rounding in the certificate

    # -- copies ----------------------------------------------------------------------------------------------------
    def arrays(self, copy: bool = False) -> Arrays:
        """Return the complete state as a dict of named arrays, as views where possible or as copies."""
        out = {
            **scalars(self.state),
            "lam": self.lam,
            "gain": self.gain,
            "mean": self.mean,
            "mean_low": self.mean_low,
            "root": self.root[self.new_rows()],
            **ledger_arrays(self.ledger),
            **self.own_arrays(),
        }
        return {name: array.copy() for name, array in out.items()} if copy else out

    @classmethod
    def validate(cls, arrays: Arrays, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        """Raise ValueError unless these arrays are a valid saved state of an engine with these settings.

        Allocates nothing of the engine's size.
        """
        size, capacity, width = setting.sketch_size, cls.capacity_for(setting), cls.checked_width(arrays, n_features)
        checks.not_negative(arrays, "lam", (size + 1,))
        checks.not_negative(arrays, "gain", (size + 1,))
        count = checks.named_numbers(arrays, "count", SketchState.COUNTS, np.int64)
        fill, kept, n_rows = (count[name] for name in ("fill", "kept", "n_rows"))
        # A full buffer is shrunk before a call ends, and centring needs one more row before the new ones.
        checks.number_within(fill, "fill", 0, capacity - setting.center - 1)
        checks.number_within(kept, "kept", 0, min(fill, size))
        checks.number_within(n_rows, "n_rows", fill - kept, checks.MOST_COUNT)
        checks.number_within(count["age"], "age", -1, REFRESH)
        checks.number_within(count["top"], "top", NOTHING_SEEN, 1025)
        expected = exponent_for(count["top"], dtype) if count["top"] != NOTHING_SEEN else 0
        checks.number_within(count["exponent"], "exponent", expected, expected)
        # sums of squares may be infinite, where they have overflowed
        sums = checks.array_of(arrays, "book", (len(SketchState.SUMS),)).tolist()
        book = dict(zip(SketchState.SUMS, sums, strict=True))
        # a centred sum of squares is a difference: of equal rows it may be negative by rounding
        slack = ldexp(n_rows * n_features * 2.0**-20, 2 * (count["top"] - expected)) if setting.center else 0.0
        for name, value in book.items():
            checks.number_within(value, name, 0.0 - slack if name == "squared_norm" else 0.0, np.inf)
        checks.finite(arrays, "mean", (width if setting.center else 0,))
        checks.finite(arrays, "mean_low", (width if setting.center else 0,))
        checks.rows_of(arrays, "root", (fill - kept,), np.dtype(np.float64))
        checks.not_negative(arrays, "root", (fill - kept,))
        if setting.keeps_ledger:
            validate_ledger(arrays, size)
        cls.validate_own(arrays, count, setting, width, dtype=dtype)

    @classmethod
    def checked_width(cls, arrays: Arrays, n_features: int) -> int:
        """Return the number of columns in a saved state. Raise ValueError if it is invalid."""
        return n_features

    def restore(self, arrays: Arrays) -> None:
        """Set the engine's state from named arrays that come from ``arrays`` or have passed ``validate``."""
        set_scalars(self.state, arrays)
        self.put_arrays(arrays)
        self.lam[:], self.gain[:] = arrays["lam"], arrays["gain"]
        self.mean[:], self.mean_low[:] = arrays["mean"], arrays["mean_low"]
        self.root[self.new_rows()] = arrays["root"]
        put_ledger(self.ledger, arrays)

    def clone(self) -> Self:
        """Return an independent copy of the engine."""
        other = type(self)(self.setting, self.n_features, dtype=self.dtype)
        other.restore(self.arrays())
        return other

    # -- reading and merging ---------------------------------------------------------------------------------------
    def known(self, most: int | None = None, *, reduced: bool = True) -> Known:
        """Compute the sketch's singular directions, and estimate the stream's mass (sum of squares) along each.

        The directions are those of the reduced sketch, or with reduced=False those of all rows of the buffer. The state
        changes as by ``reduce`` or ``settled_rows``. `most` is the number of pairs that an engine with an exact sum
        computes.
        """
        rows = (self.reduce() if reduced else self.settled_rows()).astype(np.float64)
        kept = self.state.kept
        # new rows first, then the retained ones, the longest last
        new, old = rows[: len(rows) - kept], rows[len(rows) - kept :][::-1]
        return known_of(new, old, self.ledger, n_features=self.n_features)

    def reduce(self) -> NDArray[Any]:
        """Reduce the buffer to the rows of the sketch, by a shrink if there are too many, and return them.

        Changes the state, though not the matrix that it represents. Callers work on a clone; with a tolerance, on the
        result of ``copy_to_read``.
        """
        state = self.state
        if state.fill + (self.setting.center and state.fill > state.kept) > self.most_rows(self.setting):
            self.flush()
        return self.settled_rows()

    def align(self, other: "AnyBuffer") -> None:
        """Bring two engines to the same scale, by rescaling the one with the smaller entries."""
        first, second = (self, other) if self.state.top >= other.state.top else (other, self)
        second._rescale_to(first.exponent, first.state.top)

    def add_sums(self, other: "AnyBuffer") -> NDArray[Any] | None:
        """Add the sums, counts and mean of another engine, but not its rows, to this one.

        The other engine must be reduced and have the same scale. Returns the row (1, d) by which the sketch must be
        extended because the two means differ, or None if nothing is centred or the other engine is empty.
        """
        mine, theirs = self.state, other.state
        correction = None
        if self.setting.center:
            w, h = mine.settled_weight, theirs.settled_weight
            if h > 0:
                # sqrt(w h / (w + h)) (mean' - mean): FROSH Algorithm 3, as exact as the two means are
                row = other.mean.copy()
                move_mean(self.mean, self.mean_low, w, base=row, shift=other.mean_low, block_weight=h)
                mine.squared_norm += float(row @ row)
                correction = row.astype(self.dtype)[np.newaxis]
        rounding = self.joint_rounding(theirs.rounding)
        for name in mine.SUMS:
            setattr(mine, name, getattr(mine, name) + getattr(theirs, name))
        mine.rounding = rounding
        mine.n_rows += theirs.n_rows
        return correction

    def joint_rounding(self, other: float) -> float:
        """Add the rounding errors of this engine and of other rows. `other` and the result are squares of errors."""
        allowance = sqrt(self.state.rounding) + sqrt(other)
        return allowance * allowance


AnyBuffer = SketchEngine[Any, Any]
