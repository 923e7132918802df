"""The common part of the dense and the sparse buffer: slices of a batch, scale, rollback, merges.

An engine owns its state (``_kernels/sketching/state.pxd``), which the kernels update in place. A batch passes in
slices: a slice is checked, then put through the buffer in one call that no signal interrupts. A batch of a few buffers
is one slice and therefore all or nothing by itself; a longer one is undone from a copy of the buffer if a later slice
is refused or interrupted.
"""

from math import frexp, ldexp, sqrt
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch import _threads
from fastsketch._kernels.sketching.dense import move_mean
from fastsketch._kernels.sketching.ledger import Ledger
from fastsketch._kernels.sketching.state import NOTHING_SEEN, REFRESH, SketchState
from fastsketch._model import Arrays
from fastsketch._validation import not_finite
from fastsketch.io import _checks as checks
from fastsketch.sketching._engines._growth import ALLOWANCE, SHARE, squares_of
from fastsketch.sketching._engines._ledger import (
    Known,
    known_of,
    ledger_arrays,
    ledger_of_size,
    put_ledger,
    validate_ledger,
    weaken,
)
from fastsketch.sketching._engines._setting import EngineSetting
from fastsketch.sketching._random_maps import Compressor
from fastsketch.sketching._scalars import scalars, set_scalars

# A batch of at most this many buffers (one, where it must be converted) passes as a single slice, without a copy of the
# buffer: for longer ones that copy costs nothing beside the work.
BUFFERS_PER_SLICE = 8

# Bytes of a slice of a longer batch: small enough to be in the cache when it is read again after its check.
SLICE_BYTES = 4 << 20

# Binary exponents of the largest entry between which squares neither overflow nor lose the sketch's relative
# precision; outside, everything is stored divided by a power of two. Limits: what the dtype can represent.
SAFE_EXPONENTS = {4: (-40, 40, 120), 8: (-330, 330, 1000)}
# New rows of a sketch that centres are stored unweighted, but divided by the same power of two as what becomes of them.
# Roots of weights up to this power of two, and down to its inverse, shift that power; beyond, what counts is that the
# rows themselves stay in the range.
ROOT_EXPONENTS = {4: 80, 8: 600}

# Arrays of every engine's state, beside its buffer.
SHARED_ARRAYS = ("book", "count", "lam", "gain", "mean", "mean_low", "root")


def exponent_for(top: int, dtype: np.dtype[Any]) -> int:
    """The exponent of the power of two that everything is divided by, from that of the largest entry."""
    low, high, limit = SAFE_EXPONENTS[dtype.itemsize]
    return 0 if low <= top <= high else max(-limit, min(limit, top))


def check_gains(gain: NDArray[np.float64], kept: NDArray[Any]) -> None:
    """Raise ValueError for kept rows (checked ones, not empty in columns) that stand for what leaves their range."""
    most = float(np.finfo(kept.dtype).max)
    for i in np.flatnonzero(gain[: len(kept)] > 1.5):  # shorter ones stay in the range of the rows as they are
        with np.errstate(over="ignore"):
            square = float(kept[i] @ kept[i]) * gain[i] * gain[i]
        if not square <= most / len(kept):
            raise ValueError(f"array 'gain' makes kept row {i} too long: {gain[i]:g} times its entries")


State = TypeVar("State", bound=SketchState)
# A slice of a batch as the kernels take it.
Piece = TypeVar("Piece")


class Engine(Generic[State, Piece]):
    """A state, and the rules by which batches, scales and merges change it."""

    kind: ClassVar[str]
    compressor: Compressor | None = None

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        self.setting = setting
        self.n_features = n_features
        self.dtype = dtype
        # whether l follows a tolerance: a sum needs none
        self.grows = setting.growth is not None and setting.solver != "exact"
        state = self.make_state()
        self.state = state
        self.ledger: Ledger | None = None  # of a sum nothing is ever lost
        if setting.keeps_ledger:
            self.ledger = Ledger(state.n_keep, state.capacity, n_spare=setting.rows_spared)
            state.ledger = self.ledger
        # arrays of the state, in its own memory: their meaning is in _kernels/sketching/state.pxd
        self.lam: NDArray[np.float64] = np.asarray(state.lam)
        self.gain: NDArray[np.float64] = np.asarray(state.gain)
        self.mean: NDArray[np.float64] = np.asarray(state.mean)
        self.mean_low: NDArray[np.float64] = np.asarray(state.mean_low)
        self.root: NDArray[np.float64] = np.asarray(state.root)

    # -- defined by subclasses --------------------------------------------------------------------------------------
    @classmethod
    def capacity_for(cls, setting: EngineSetting) -> int:
        """Rows of the buffer."""
        raise NotImplementedError

    @classmethod
    def validate_own(
        cls, arrays: Arrays, count: dict[str, int], setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]
    ) -> None:
        """The rules of ``own_arrays``, where the counts have passed: ValueError names the array."""
        raise NotImplementedError

    def make_state(self) -> State:
        """The state of an engine that has seen no rows."""
        raise NotImplementedError

    def fits(self, rows: Any) -> bool:
        """Whether the kernel can read the batch where it lies."""
        raise NotImplementedError

    def bytes_per_row(self, rows: Any) -> int:
        """Of the batch, as the kernel takes it."""
        raise NotImplementedError

    def cut(self, rows: Any) -> Piece:
        """A slice of rows as the kernel takes it."""
        raise NotImplementedError

    def scan(self, piece: Piece) -> tuple[int, float]:
        """(index of the first row that is not finite, or -1; largest |entry| before it)."""
        raise NotImplementedError

    def largest_weighted(self, piece: Piece, root: NDArray[np.float64]) -> float:
        """Largest |entry| of a checked slice whose rows are multiplied by these numbers."""
        raise NotImplementedError

    def absorb(self, piece: Piece, weights: NDArray[np.float64] | None, *, scale: float) -> None:
        """Put a checked slice through the buffer."""
        raise NotImplementedError

    def length(self, piece: Piece) -> int:
        """Rows of a slice."""
        raise NotImplementedError

    def part_of(self, piece: Piece, start: int, stop: int) -> Piece:
        """Some rows of a slice, as the kernel takes them."""
        raise NotImplementedError

    def flush(self) -> None:
        """Settle and shrink all that the buffer holds."""
        raise NotImplementedError

    def settled_rows(self) -> NDArray[Any]:
        """Rows of the buffer after decay and centring, at their true length."""
        raise NotImplementedError

    def replace_rows(self, rows: NDArray[Any], *, kept: bool = True) -> None:
        """Make these settled rows the whole buffer: as kept ones (at most sketch_size), or as new ones."""
        raise NotImplementedError

    def multiply(self, factor: float) -> None:
        """Multiply all that is settled by a factor (rows; squares by its square)."""
        raise NotImplementedError

    def multiply_new(self, factor: float) -> None:
        """Multiply the new rows by a factor."""
        raise NotImplementedError

    def new_rows(self) -> slice:
        """Entries of ``root`` that belong to the new rows of the buffer."""
        raise NotImplementedError

    def own_arrays(self) -> Arrays:
        """The buffer: views."""
        raise NotImplementedError

    def put_arrays(self, own: Arrays) -> None:
        """The inverse of ``own_arrays``."""
        raise NotImplementedError

    def unweighted(self, own: Arrays, root: NDArray[np.float64]) -> Arrays:
        """``own_arrays`` whose new rows are divided by the roots of their weights; rows of weight 0 stay."""
        raise NotImplementedError

    @classmethod
    def most_rows(cls, setting: EngineSetting) -> int:
        """Rows that may stay in the buffer as they are: l, where another one has room beside them."""
        return min(setting.sketch_size, cls.capacity_for(setting) - 1 - setting.center)

    # -- a batch ---------------------------------------------------------------------------------------------------
    def update(self, rows: Any, weights: NDArray[np.float64] | None = None, *, offset: int = 0) -> None:
        """All rows of a batch, or none: raises ValueError naming the first row, counted from -offset, that is not
        finite."""
        n = rows.shape[0]
        step = self.capacity * (BUFFERS_PER_SLICE if self.fits(rows) else 1)
        saved = None
        if n > step or self.may_shrink(rows):  # and no eigensolver is sure to end
            saved = self.saved_from(rows)
        before, rows_then = self.__dict__ if saved is not None and self.grows else None, self.state.n_rows
        if n > step:
            step = min(step, max(1, SLICE_BYTES // self.bytes_per_row(rows)))
        try:
            for start in range(0, n, step):
                stop = min(start + step, n)
                part = None if weights is None else weights[start:stop]
                # scipy takes 12 us for a slice, half of what one row costs
                self._slice(rows if stop - start == n else rows[start:stop], part, offset=offset + start)
        except BaseException:
            if before is not None:
                self.__dict__ = before  # without taking memory
            if saved is not None and not self.is_past(saved, rows_then + n):
                self.restore(saved)
            _threads.settle()
            raise

    def may_shrink(self, rows: Any) -> bool:
        """Whether a batch may bring a shrink."""
        return bool(rows.shape[0] >= self.room())

    def saved_from(self, rows: Any) -> Arrays:
        """Copies of all that a batch may change before it is in."""
        return self.arrays(copy=True)

    def is_past(self, saved: Arrays, n_rows: int) -> bool:
        """Whether a batch is in that ends with so many rows, and can no longer be undone from what was saved."""
        return False

    def _slice(self, rows: Any, weights: NDArray[np.float64] | None, *, offset: int) -> None:
        piece = self.cut(rows)
        bad, largest = self.scan(piece)
        if bad >= 0:
            raise not_finite(offset + bad, self.dtype)
        self._fit_scale(piece, largest, weights)
        scale = ldexp(1.0, -self.exponent)
        if not self.grows or self.room() > rows.shape[0]:
            self.absorb(piece, weights, scale=scale)
        else:
            self._absorb_growing(piece, weights, scale=scale)

    def _absorb_growing(self, piece: Piece, weights: NDArray[np.float64] | None, *, scale: float) -> None:
        """As ``absorb``, in parts of one shrink at most; one that removes too much is taken back."""
        n, start = self.length(piece), 0
        while start < n:
            start = self._absorb_until_growth(piece, weights, start, scale=scale)

    def _absorb_until_growth(
        self, piece: Piece, weights: NDArray[np.float64] | None, start: int, *, scale: float
    ) -> int:
        """Rows of a slice from `start` on, until l grows or they are all in; return the first that is not."""
        n = self.length(piece)
        while start < n:
            room = max(1, self.room())
            stop = min(n, start + room) if self.grows else n
            part = self.part_of(piece, start, stop)
            part_weights = None if weights is None else weights[start:stop]
            saved = self.arrays(copy=True) if self.grows and stop - start == room else None
            self.absorb(part, part_weights, scale=scale)
            start = stop
            if saved is not None and self._too_much():
                self.restore(saved)
                self._make_room(part, part_weights, scale=scale)
                break
        return start

    def _too_much(self) -> bool:
        """Whether shrinks have removed more than the tolerance leaves to them, though l may still grow."""
        growth, state, size = self.setting.growth, self.state, self.setting.sketch_size
        if growth is None or growth.bounded(size + 1, self.n_features) <= size:
            return False
        return growth.spent(state.shrinkage, state.squared_norm, float(self.lam[: state.kept].max(initial=0.0)))

    def misses_tolerance(self) -> bool:
        """Whether shrinks alone have removed more than the whole tolerance."""
        growth, state = self.setting.growth, self.state
        if growth is None or not self.grows:
            return False
        top = float(self.lam[: state.kept].max(initial=0.0))
        return growth.spent(state.shrinkage, state.squared_norm, top, share=1.0)

    def _make_room(self, part: Piece, weights: NDArray[np.float64] | None, *, scale: float) -> None:
        """Take a part that would lead to a shrink into a larger buffer instead."""
        growth, size = self.setting.growth, self.setting.sketch_size
        assert growth is not None
        self.become(self.setting.of_size(growth.bounded(growth.next_size(size), self.n_features)))
        self.absorb(part, weights, scale=scale)
        settled = self.clone()
        squares, whole = settled.leading_squares()
        state = settled.state
        wanted = growth.smallest(
            squares, shrinkage=state.shrinkage, squared_norm=state.squared_norm, rounding=0.0, share=SHARE
        )
        if not whole and wanted > len(squares):  # the next shrink will say more
            wanted = size
        self.enlarge(max(self.setting.sketch_size, growth.bounded(wanted, self.n_features)))

    def leading_squares(self) -> tuple[NDArray[np.float64], bool]:
        """Squared singular values of the settled rows, descending, and whether these are all. Changes the state."""
        return squares_of(self.settled_rows()), True

    def enlarge(self, sketch_size: int) -> None:
        """Go on with at least as large an l; the rows and all that is known of them stay as they are."""
        if sketch_size > self.setting.sketch_size:
            self.become(self.setting.of_size(sketch_size))

    def become(self, setting: EngineSetting) -> None:
        """Go on under a setting that differs in l, of which at most as many rows are kept."""
        other = type(self)(setting, self.n_features, dtype=self.dtype)
        size, arrays = setting.sketch_size, self.arrays()
        for name, fill in (("lam", 0.0), ("gain", 1.0)):
            longer = np.full(size + 1, fill)
            longer[: min(size, self.setting.sketch_size) + 1] = arrays[name][: size + 1]
            arrays[name] = longer
        other.restore({**arrays, **ledger_of_size(self.ledger, size)})
        self.__dict__ = other.__dict__

    def room(self) -> int:
        """New rows that the buffer takes before it shrinks."""
        return self.capacity - self.setting.center - self.state.fill

    def _fit_scale(self, piece: Piece, largest: float, weights: NDArray[np.float64] | None) -> None:
        """Choose the power of two that everything is divided by, from the largest entry seen so far."""
        if weights is not None and weights.size:
            root, low, high = float(np.sqrt(weights.max())), 0.0, 1e150
            if self.setting.center:
                most = ldexp(1.0, ROOT_EXPONENTS[self.dtype.itemsize])
                low, high = 1 / most, min(most, high)
            root = low if root < low else high if root > high else root
            bound = largest * root
            if len(weights) > 1 and frexp(min(bound, 1e308))[1] > self.state.top:  # row by row: no cut has a say
                with np.errstate(over="ignore"):
                    bound = self.largest_weighted(piece, np.maximum(np.minimum(np.sqrt(weights), root), low))
            largest = bound
        if largest == 0.0:
            return
        top = max(frexp(min(largest, 1e308))[1], self.state.top)
        self._rescale_to(exponent_for(top, self.dtype), top)

    def _rescale_to(self, exponent: int, top: int) -> None:
        if exponent != self.exponent:
            self.scale_all(ldexp(1.0, max(-1022, min(1022, self.exponent - exponent))))
            self.state.exponent = exponent
        self.state.top = top

    def scale_all(self, factor: float) -> None:
        """Store everything multiplied by a power of two: rows, mean, and squares by its square."""
        state = self.state
        with np.errstate(under="ignore", over="ignore"):
            self.multiply(factor)
            self.multiply_new(factor)
            self.mean *= factor
            self.mean_low *= factor
            for _ in range(2):
                weaken(self.ledger, factor)
        # one factor after the other: its square may leave the range though the product does not
        state.shrinkage = state.shrinkage * factor * factor
        state.squared_norm = state.squared_norm * factor * factor
        state.rounding = state.rounding * factor * factor * factor * factor

    def fade(self, factor: float) -> None:
        """Multiply the weight of all rows so far by a factor."""
        root, state = float(np.sqrt(factor)), self.state
        self.multiply(root)
        if not self.setting.center:  # else they are not weighted yet
            self.multiply_new(root)
        self.root[self.new_rows()] *= root
        for name in state.SUMS:
            setattr(state, name, getattr(state, name) * factor)
        state.rounding *= factor
        weaken(self.ledger, factor)

    # -- the state, in stored units: rows divided by 2**exponent, squares by 4**exponent ---------------------------
    @property
    def capacity(self) -> int:
        """Rows of the buffer."""
        return self.state.capacity

    @property
    def exponent(self) -> int:
        """Everything is stored divided by two to this power."""
        return self.state.exponent

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return self.state.n_rows

    @property
    def weight(self) -> float:
        """Sum of the (decayed) weights of all rows seen."""
        return self.state.weight

    @property
    def shrinkage(self) -> float:
        """Delta."""
        return self.state.shrinkage

    @property
    def squared_norm(self) -> float:
        """Sum of the squared norms of the rows."""
        return self.state.squared_norm

    @property
    def rounding(self) -> float:
        """Square of the allowance for rounding in the certificate."""
        return self.state.rounding

    # -- copies ----------------------------------------------------------------------------------------------------
    def arrays(self, copy: bool = False) -> Arrays:
        """Everything that a resume needs, by name: views where there are any, or copies."""
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
        """Raise ValueError unless such an engine could have these arrays; takes no memory of its size."""
        size, capacity = setting.sketch_size, cls.capacity_for(setting)
        checks.not_negative(arrays, "lam", (size + 1,))
        checks.not_negative(arrays, "gain", (size + 1,))
        count = checks.named_numbers(arrays, "count", SketchState.COUNTS, np.int64)
        fill, kept, n_rows = (count[name] for name in ("fill", "kept", "n_rows"))
        # A full buffer is shrunk before a call ends, and centring writes one row more before the new ones.
        checks.number_within(fill, "fill", 0, capacity - setting.center - 1)
        checks.number_within(kept, "kept", 0, min(fill, size))
        checks.number_within(n_rows, "n_rows", fill - kept, checks.MOST_COUNT)
        checks.number_within(count["age"], "age", -1, REFRESH)
        checks.number_within(count["top"], "top", NOTHING_SEEN, 1025)
        expected = exponent_for(count["top"], dtype) if count["top"] != NOTHING_SEEN else 0
        checks.number_within(count["exponent"], "exponent", expected, expected)
        # sums of squares may have left the range: they are infinite then, and say so
        sums = checks.array_of(arrays, "book", (len(SketchState.SUMS),)).tolist()
        book = dict(zip(SketchState.SUMS, sums, strict=True))
        # a centred sum of squares is a difference: rounding may leave one of equal rows below zero
        slack = ldexp(n_rows * n_features * 2.0**-20, 2 * (count["top"] - expected)) if setting.center else 0.0
        for name, value in book.items():
            checks.number_within(value, name, 0.0 - slack if name == "squared_norm" else 0.0, np.inf)
        checks.finite(arrays, "mean", (n_features if setting.center else 0,))
        if "mean_low" in arrays:  # not in files of schema 1 and 2
            checks.finite(arrays, "mean_low", (n_features if setting.center else 0,))
        checks.rows_of(arrays, "root", (fill - kept,), np.dtype(np.float64))
        checks.not_negative(arrays, "root", (fill - kept,))
        if setting.keeps_ledger:
            validate_ledger(arrays, size)
        cls.validate_own(arrays, count, setting, n_features, dtype=dtype)

    def restore(self, arrays: Arrays) -> None:
        """Take arrays that another engine of this setting gave, or that have passed ``validate``."""
        set_scalars(self.state, arrays)
        if "mean_low" not in arrays:
            # of schema 1 or 2: no second part of the mean, and new rows were weighted before they were centred
            arrays = {**arrays, "mean_low": np.zeros_like(self.mean)}
            if self.setting.center:
                rows = self.unweighted(arrays, arrays["root"])
                for name, array in rows.items():
                    checks.require_finite(array, name)
                arrays |= rows
        self.lam[:], self.gain[:] = arrays["lam"], arrays["gain"]
        self.mean[:], self.mean_low[:] = arrays["mean"], arrays["mean_low"]
        self.root[self.new_rows()] = arrays["root"]
        put_ledger(self.ledger, arrays)
        self.put_arrays(arrays)

    def clone(self) -> Self:
        """An independent engine in the same state."""
        other = type(self)(self.setting, self.n_features, dtype=self.dtype)
        other.restore(self.arrays())
        return other

    # -- reading and merging ---------------------------------------------------------------------------------------
    def known(self, most: int | None = None, *, reduced: bool = True) -> Known:
        """What is known of the rows in the basis of the reduced sketch, or of all rows of the buffer.

        Changes the state as ``reduce`` does, or settles it. `most`: of an exact sum, the pairs that are wanted.
        """
        rows = (self.reduce() if reduced else self.settled_rows()).astype(np.float64)
        kept = self.state.kept
        # new rows first, then the kept ones, the longest last
        return known_of(rows[: len(rows) - kept], rows[len(rows) - kept :][::-1], self.ledger)

    def reduce(self) -> NDArray[Any]:
        """Settle the buffer and, if it holds more rows than may stay there, shrink it; return its rows.

        With a tolerance, sketch_size becomes the smallest that meets it. Changes the state, though not the matrix it
        stands for: callers work on a clone.
        """
        setting = self.setting
        if setting.growth is not None:
            setting = setting.of_size(self._smallest_size())
            if setting.sketch_size > self.setting.sketch_size:  # there are arrays for as many rows first
                self.become(setting)
            self._shrink_to(setting)
        state = self.state
        new = state.fill - state.kept
        if state.fill + (setting.center and new > 0) > self.most_rows(setting):
            self.flush()
        if setting is not self.setting:
            self.become(setting)
        return self.settled_rows()

    def _shrink_to(self, setting: EngineSetting) -> None:
        """Let the next shrink leave as many rows as under another setting, of no larger l: a last one."""
        state, ledger = self.state, self.ledger
        state.n_keep, state.n_spare = setting.sketch_size - 1, setting.rows_spared
        if ledger is not None:
            ledger.n_spare = min(state.n_spare, state.n_keep)

    def _smallest_size(self) -> int:
        """The smallest l that meets the tolerance, or the largest there is."""
        growth, settled = self.setting.growth, self.clone()
        assert growth is not None
        squares, whole = settled.leading_squares()
        size = self._smallest_for(squares, settled)
        if not whole and size > len(squares):
            settled = self.clone()
            size = self._smallest_for(squares_of(settled.settled_rows()), settled)
        return growth.bounded(size, self.n_features)

    def _smallest_for(self, squares: NDArray[np.float64], settled: Self) -> int:
        growth, state = self.setting.growth, settled.state
        assert growth is not None
        eps, top = float(np.finfo(self.dtype).eps), float(squares.max(initial=0.0))
        return growth.smallest(
            squares,
            shrinkage=state.shrinkage,
            squared_norm=state.squared_norm,
            rounding=sqrt(state.rounding) + ALLOWANCE[self.dtype.itemsize] * eps * top,
        )

    def align(self, other: "AnyBuffer") -> None:
        """Bring two engines to one scale; both stand for the same rows as before."""
        first, second = (self, other) if self.state.top >= other.state.top else (other, self)
        second._rescale_to(first.exponent, first.state.top)

    def take_over(self, other: "AnyBuffer") -> NDArray[Any] | None:
        """Add the scalars of another reduced engine of the same scale; return the correction row, or None."""
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
        """The square of the allowance with that of other rows: as within a stream, see ``flush`` of the kernels."""
        mine = self.state.rounding
        if self.kind == "dense" and self.setting.solver == "gram" and self.dtype == np.float32:
            return mine + other
        allowance = sqrt(mine) + sqrt(other)
        return allowance * allowance


AnyBuffer = Engine[Any, Any]
