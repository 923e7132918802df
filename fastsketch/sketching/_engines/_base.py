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
    SketchSummary,
    ledger_arrays,
    ledger_of_size,
    put_ledger,
    summarise_buffer,
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
# precision, and the square of the rounding bound, a fourth power of entries in float64, stays within the range of
# float64; outside, everything is stored divided by a power of two. Limits: what the dtype can represent.
SAFE_EXPONENTS = {4: (-40, 40, 120), 8: (-200, 200, 1000)}
# Binary exponent of the largest numbers in float64.
MAX_EXPONENT = 1024
# A sketch that centres stores new rows unweighted, but divided by the power of two of the weighted rows. Roots of
# weights count for that power only between this limit and its inverse, so that the unweighted rows do not overflow
# either.
ROOT_EXPONENTS = {4: 80, 8: 600}

# Names of the arrays of every engine's state, in addition to those of its buffer.
SHARED_ARRAYS = ("book", "count", "lam", "gain", "mean", "mean_low", "root")


def exponent_for(top: int, dtype: np.dtype[Any]) -> int:
    """Return the exponent e of the scale 2**e by which a sketch divides its rows, or 0 if no scaling is needed.

    Squares of entries then neither overflow nor underflow. `top` is the binary exponent of the largest entry so far.
    Large rows of float64 are divided by as little as possible, so that columns of very different scales stay in range.
    """
    low, high, limit = SAFE_EXPONENTS[dtype.itemsize]
    if top >= MAX_EXPONENT:  # entries times roots of weights may be larger than float64 can tell
        return limit
    if low <= top <= high:
        return 0
    return max(-limit, min(limit, top - high if top > high and dtype.itemsize == 8 else top))


def check_gains(gain: NDArray[np.float64], kept: NDArray[Any]) -> None:
    """Raise ValueError if a retained row times its factor in `gain`, read from a file, has an overflowing square."""
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
    """Base class of sketch engines, which store a buffer of rows, add batches to it, and merge it with others.

    Subclasses define how rows are stored: dense, sparse, or as a matrix A'A.
    """

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
        """Return the number of rows for which an engine with these settings allocates its buffer."""

    @classmethod
    @abstractmethod
    def validate_own(
        cls, arrays: Arrays, count: dict[str, int], setting: EngineSetting, width: int, *, dtype: np.dtype[Any]
    ) -> None:
        """Validate the arrays of the buffer in a saved state, after the counts have been validated. ValueError names an
        invalid array.
        """

    @abstractmethod
    def make_state(self) -> State:
        """Create the object that stores the arrays and counts of an empty sketch. Compiled kernels read it and update
        it in place.
        """

    @abstractmethod
    def measure(self, rows: Any) -> tuple[bool, int]:
        """Return (whether the compiled kernel reads these rows without a copy, bytes of an average row).

        ``step`` uses both to choose the size of slices.
        """

    @abstractmethod
    def cut(self, rows: Any) -> Piece:
        """Return a slice of a batch as the arrays that the compiled kernel reads."""

    @abstractmethod
    def scan(self, piece: Piece) -> tuple[int, float]:
        """Return (index of the first row with NaN or infinity, or -1; largest absolute entry of the rows before it)."""

    @abstractmethod
    def largest_weighted(self, piece: Piece, root: NDArray[np.float64]) -> float:
        """Return the largest absolute entry that a converted slice has when its rows are weighted.

        `root` are the square roots of the weights. The scale of the sketch is chosen from the result before the rows
        are added. The slice does not change.
        """

    @abstractmethod
    def absorb(self, piece: Piece, weights: NDArray[np.float64] | None) -> None:
        """Add a slice of validated rows to the buffer, in place. The buffer is shrunk by Frequent Directions each time
        it is full.
        """

    @abstractmethod
    def part_of(self, piece: Piece, start: int, stop: int) -> Piece:
        """Return rows [start, stop) of a slice that ``cut`` has converted, in the same form."""

    @abstractmethod
    def flush(self) -> None:
        """Empty the buffer of new rows, in place: apply their weights, decay and centring, then shrink the buffer, or
        in an exact engine add the rows to A'A.
        """

    @abstractmethod
    def settled_rows(self) -> NDArray[Any]:
        """Return all rows of the buffer with their final values. Weights, decay, centring and scale factors that were
        postponed are applied to the buffer first, in place.
        """

    @abstractmethod
    def replace_rows(self, rows: NDArray[Any], *, kept: bool = True) -> None:
        """Overwrite the buffer with other rows. With `kept` they count as retained by a shrink, otherwise as new rows.

        Rows left by a shrink are at most sketch_size.
        """

    @abstractmethod
    def new_rows(self) -> slice:
        """Return the slice of ``root`` (and of a dense buffer) at which the rows since the last shrink are stored."""

    @abstractmethod
    def new_values(self) -> NDArray[Any]:
        """Return a view of the stored entries of the rows added since the last shrink, so that a caller can change them
        in place.
        """

    @abstractmethod
    def own_arrays(self) -> Arrays:
        """Return the arrays of the buffer by name, as views, for copies and state files. Sums and counts are not
        included; ``arrays`` adds them.
        """

    @abstractmethod
    def put_arrays(self, own: Arrays) -> None:
        """Overwrite the buffer with arrays that ``own_arrays`` returned; the counts have been set before."""

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
        """Return a copy of all arrays that adding these rows may change.
        With it ``update`` rolls a failed batch back.
        """
        return self.arrays(copy=True)

    def is_past(self, saved: Arrays, n_rows: int) -> bool:
        """Return True if an interrupted batch was added completely, so that ``update`` must not roll it back.
        The base class returns False, so that every interrupted batch is rolled back.
        """
        return False

    def step(self, rows: Any) -> int:
        """Return how many rows of a batch ``update`` passes to the kernel at a time.
        These are all rows, unless they fill more than a few buffers.
        """
        n = rows.shape[0]
        if n <= self.capacity:
            return max(n, 1)
        fits, row_bytes = self.measure(rows)
        most = self.capacity * (BUFFERS_PER_SLICE if fits else 1)
        return n if n <= most else min(most, max(1, SLICE_BYTES // row_bytes))

    def checked(self, rows: Any, weights: NDArray[np.float64] | None, *, offset: int) -> Piece:
        """Return a slice of rows converted for the kernel; ValueError if an entry is not finite.

        If an entry is far larger than all before, the stored rows are rescaled in place.
        """
        piece = self.cut(rows)
        bad, largest = self.scan(piece)
        if bad >= 0:
            raise not_finite(offset + bad, self.dtype)
        self._fit_scale(piece, largest, weights)
        return piece

    def resized(self, sketch_size: int) -> Self:
        """Return a copy of the engine with another sketch size, into which all retained rows must fit."""
        other = type(self)(self.setting.of_size(sketch_size), self.n_features, dtype=self.dtype)
        arrays = self.arrays()
        for name, fill in (("lam", 0.0), ("gain", 1.0)):
            longer = np.full(sketch_size + 1, fill)
            longer[: min(sketch_size, self.setting.sketch_size) + 1] = arrays[name][: sketch_size + 1]
            arrays[name] = longer
        other.restore({**arrays, **ledger_of_size(self.ledger, sketch_size)})
        return other

    def leading_squares(self) -> tuple[NDArray[np.float64], bool]:
        """Return (squared singular values of the buffer's rows, descending; True if none is missing).

        A sparse engine may return only the leading ones.
        """
        return squares_of(self.settled_rows()), True

    def room(self) -> int:
        """Return how many more rows the buffer accepts before it must be shrunk."""
        return self.capacity - self.setting.center - self.state.fill

    def _fit_scale(self, piece: Piece, largest: float, weights: NDArray[np.float64] | None) -> None:
        """Rescale the stored rows in place, by a power of two, if a square of the new slice could overflow.

        `largest` is the largest absolute entry of the slice before weighting.
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
        """Multiply the retained rows by a factor, in place, and their stored squared norms by its square."""
        self.gain *= factor
        for _ in range(2):  # the square of a factor may overflow where the product does not
            self.lam *= factor

    def multiply_new(self, factor: float) -> None:
        """Multiply the rows added since the last shrink by a factor."""
        values = self.new_values()
        values *= self.dtype.type(factor)

    def scale_all(self, factor: float) -> None:
        """Multiply all stored rows and means by a power of two, and all stored squares by its square, in place. The
        matrix that the sketch represents does not change if the caller adjusts ``exponent``.
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
        """Multiply the weight of all rows seen so far by a factor, in place. Retained and new rows, sums of squares and
        the ledger of removed squares are rescaled.
        """
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
        """Return the complete state of the engine as a dict of named arrays, for state files and copies. They are views
        where possible, or copies with `copy`.
        """
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
        """Validate the arrays of a saved state, which may come from an untrusted file. ValueError unless an engine with
        these settings can have this state.

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
        """Overwrite the state of the engine with named arrays. They must come from ``arrays`` or have passed
        ``validate``.
        """
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
    def summary(self, most: int | None = None, *, reduced: bool = True) -> SketchSummary:
        """Return the singular directions of the sketch, with an estimate of the sum of squares of all rows along each
        direction.

        The directions are those of the reduced sketch, or with reduced=False those of all rows of the buffer. The state
        changes as by ``reduce`` or ``settled_rows``. `most` is the number of pairs that an engine with an exact sum
        computes.
        """
        rows = (self.reduce() if reduced else self.settled_rows()).astype(np.float64)
        kept = self.state.kept
        # new rows first, then the retained ones, the longest last
        new, old = rows[: len(rows) - kept], rows[len(rows) - kept :][::-1]
        return summarise_buffer(new, old, self.ledger, n_features=self.n_features)

    def reduce(self) -> NDArray[Any]:
        """Return the rows of the sketch, after shrinking the buffer, in place, if it has too many.

        Changes the state, though not the matrix that it represents. Callers work on a clone; with a tolerance, on the
        result of ``copy_to_read``.
        """
        state = self.state
        if state.fill + (self.setting.center and state.fill > state.kept) > self.most_rows(self.setting):
            self.flush()
        return self.settled_rows()

    def align(self, other: "AnyBuffer") -> None:
        """Rescale the stored rows of this or another engine, in place, so that both have the same scale.
        A merge needs this. The scale is a power of two, and the rows with smaller entries change.
        """
        first, second = (self, other) if self.state.top >= other.state.top else (other, self)
        second._rescale_to(first.exponent, first.state.top)

    def add_sums(self, other: "AnyBuffer") -> NDArray[Any] | None:
        """Add the sums, counts and mean of another engine to this one's, in place, and return a correction row or None.

        The rows of the other engine are left to the caller. The other engine must be reduced and have the same scale.
        The row (1, d) must be added to the sketch because the two means differ. It is None if nothing is centred or the
        other engine is empty.
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
        """Return the squared rounding error bound of this engine after it is merged with other rows.

        `other` is the squared bound of these. The errors add up, not their squares.
        """
        allowance = sqrt(self.state.rounding) + sqrt(other)
        return allowance * allowance


AnyBuffer = SketchEngine[Any, Any]
