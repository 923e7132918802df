"""The engine of CSR rows for solver "gram": new rows stay sparse, retained rows are stored feature by feature.

A column gets a *slot* when it first has a nonzero entry, and everything is stored by slot: memory and time depend on
the number of columns seen, not on d. ``by_column`` scatters a result to all d columns.
"""

from dataclasses import replace
from math import ldexp
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.sparse import dense_as_csr
from fastsketch._core.validation import in_place, is_sparse
from fastsketch._frame.model import Arrays
from fastsketch._kernels.features.columns import ColumnMap
from fastsketch._kernels.sketching import sparse as kernel
from fastsketch._kernels.sketching.sparse_state import SparseState
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines._base import SHARED_ARRAYS, SketchEngine, check_gains
from fastsketch.sketching._engines._dense_engine import DenseEngine
from fastsketch.sketching._engines._ledger import LEDGER_ARRAYS, ledger_arrays, put_ledger, weaken
from fastsketch.sketching._engines._setting import EngineSetting
from fastsketch.sketching._scalars import scalars, set_scalars

# New rows per retained row. The dense part of a shrink (d l^2) is shared by all of them, and the error falls with their
# number; beyond about 6 the eigensolver of size 7 l costs more than is gained (bench/README.md).
BLOCK = 6

# With many columns nearly all of a shrink is the product that rotates the retained rows (2 d l^2): 9/10 of it for d =
# 10^6 and l = 128. If d >= WIDE, the buffer has capacity for the rows of SHRINKS shrinks, and waits for them once WIDE
# columns have been seen; all but the last shrink are then computed among coefficients (`cascade` of the kernel). With
# more of them the products with the waiting rows cost what is saved.
WIDE, SHRINKS = 1 << 17, 8

# The names of ``own_arrays``.
OWN_ARRAYS = ("columns", "z", "indptr", "indices", "data")
# indptr (n + 1,), slots, data of a slice
Csr = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]


class SparseEngine(SketchEngine[SparseState, Csr]):
    """Sketch engine for sparse rows. New rows stay in CSR form, and only columns that have been nonzero are stored, in
    the order of first occurrence (slots).

    Retained rows are the columns of z (slots, l + 1), with a spare column for centring.
    """

    kind = "sparse"

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        super().__init__(setting, n_features, dtype=dtype)
        self._start_map(np.zeros(1, np.int64))  # slot 0 belongs to column 0, so that no array is empty

    def _start_map(self, columns: NDArray[np.int64]) -> None:
        self._map = ColumnMap(columns)
        self.state.make_slots(len(columns))
        self.state.seen = len(columns)

    # -- columns and their slots -----------------------------------------------------------------------------------
    @property
    def width(self) -> int:
        return self.state.seen

    @property
    def z(self) -> NDArray[Any]:
        """Return a view of the retained rows, transposed: one row per stored column, one column per retained row, and a
        spare column for centring.
        """
        return self.state.z[: self.state.seen]

    @property
    def slot_columns(self) -> NDArray[np.int64]:
        """Return the indices of the columns that the engine stores, in the order in which it stores them.

        Columns of rows that were refused are not included.
        """
        return self._map.array()[: self.state.seen]

    def columns_with(self, other: Self) -> NDArray[np.int64]:
        """Return the columns that two engines store together, for a merge: first those of this engine, then those that
        only the other one stores.
        """
        theirs = other.slot_columns
        return np.concatenate([self.slot_columns, theirs[self._map.find(theirs, self.width) == self.width]])

    def on_columns(self, columns: NDArray[np.int64]) -> Self:
        """Return an engine with the same rows that stores exactly the given columns, in this order. It is this engine
        if nothing changes.

        They must include all columns that this engine stores.
        """
        own = self.slot_columns
        if np.array_equal(own, columns):
            return self
        other = type(self)(self.setting, self.n_features, dtype=self.dtype)
        other.restore(moved_arrays(self.arrays(), ColumnMap(columns).find(own, len(columns)), columns))
        return other

    def in_slots(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return an array (..., d) restricted to the columns that the engine stores, in their order.

        Columns that have nonzero entries but are not stored yet are added to the engine first.
        """
        self._map.forget(self.width)
        self._map.add(np.flatnonzero(rows.reshape(-1, self.n_features).any(axis=0)))
        self._start_map(self._map.array())
        return rows[..., self.slot_columns]

    @classmethod
    def capacity_for(cls, setting: EngineSetting) -> int:
        if setting.buffer_size is not None:
            return setting.sketch_size + setting.buffer_size
        return setting.sketch_size + setting.shrinks * BLOCK * setting.sketch_size

    @classmethod
    def for_features(cls, setting: EngineSetting, n_features: int) -> EngineSetting:
        """Return the settings for a new stream of n_features columns. They are the given ones, except that very wide
        rows get a larger buffer.
        """
        wide = n_features >= WIDE and setting.buffer_size is None and setting.tolerance is None and not setting.center
        return replace(setting, shrinks=SHRINKS if wide else 1)

    @classmethod
    def validate_own(
        cls, arrays: Arrays, count: dict[str, int], setting: EngineSetting, width: int, *, dtype: np.dtype[Any]
    ) -> None:
        """Raise ValueError, naming the array, if saved arrays of the buffer are invalid.

        The indices of CSR rows are checked here because the kernels do not check them.
        """
        n = count["fill"] - count["kept"]
        stored = len(arrays["data"])
        z = checks.rows_of(arrays, "z", (width, count["kept"]), dtype)
        check_gains(arrays["gain"], z.T)
        # as for a dense buffer: rows that wait to be centred are not weighted yet
        (checks.finite if setting.center else checks.rows_of)(arrays, "data", (stored,), dtype)
        indptr = checks.array_of(arrays, "indptr", (n + 1,), np.dtype(np.int64))
        indices = checks.array_of(arrays, "indices", (stored,), np.dtype(np.int32))
        checks.csr_rows(indptr, indices, n_stored=stored, n_columns=width)
        checks.only(arrays, *SHARED_ARRAYS, *(LEDGER_ARRAYS if setting.keeps_ledger else ()), *OWN_ARRAYS)

    @classmethod
    def checked_width(cls, arrays: Arrays, n_features: int) -> int:
        columns = checks.array_of(arrays, "columns", arrays["columns"].shape[:1], np.dtype(np.int64))
        n = len(columns)
        checks.number_within(n, "columns that occur", 1, n_features)
        if not 0 <= columns.min() <= columns.max() < n_features or len(np.unique(columns)) < n:
            raise ValueError(f"array 'columns' must hold different columns in [0, {n_features})")
        return n

    def make_state(self) -> SparseState:
        setting = self.setting
        block = BLOCK * setting.sketch_size if setting.shrinks > 1 and setting.buffer_size is None else 0
        return SparseState(setting, self.capacity_for(setting), self.n_features, self.dtype, block, WIDE)

    def new_rows(self) -> slice:
        return slice(0, self.state.fill - self.state.kept)

    @property
    def _n_new(self) -> int:
        return self.state.fill - self.state.kept

    def measure(self, rows: Any) -> tuple[bool, int]:
        if not is_sparse(rows):
            return False, self.n_features * self.dtype.itemsize
        return True, 1 + rows.nnz * (self.dtype.itemsize + 4) // max(1, rows.shape[0])

    def cut(self, rows: Any) -> Csr:
        if not is_sparse(rows):
            rows = dense_as_csr(rows)
        self._map.forget(self.width)  # columns of rows that were refused
        indptr, indices, data = (
            in_place(rows.indptr, np.int64),
            self._map.add(in_place(rows.indices, np.int32)),
            rows.data,
        )
        if data.dtype == self.dtype:  # the context manager below takes as long as a short row
            return indptr, indices, in_place(data, self.dtype)
        with np.errstate(over="ignore"):
            return indptr, indices, in_place(data, self.dtype)

    def scan(self, piece: Csr) -> tuple[int, float]:
        indptr, _, data = piece
        return kernel.scan(indptr, data)

    def largest_weighted(self, piece: Csr, root: NDArray[np.float64]) -> float:
        indptr, _, data = piece
        return kernel.largest_weighted(indptr, data, root)

    def absorb(self, piece: Csr, weights: NDArray[np.float64] | None) -> None:
        """Add a slice of validated CSR rows to the buffer, in place. The buffer is shrunk by Frequent Directions each
        time it is full.
        """
        indptr, indices, data = piece
        state = self.state
        state.make_slots(len(self._map))
        later = self.capacity - self.setting.center - state.n_keep
        fullest = kernel.largest_block(indptr, min(self.room(), len(indptr) - 1), later)
        # the kernel allocates more if it needs more
        state.make_room(state.n_stored + (min(fullest, state.enough) if state.block else fullest))
        kernel.absorb(indptr, indices, data, weights, ldexp(1.0, -state.exponent), state)

    def part_of(self, piece: Csr, start: int, stop: int) -> Csr:
        indptr, indices, data = piece
        first, last = int(indptr[start]), int(indptr[stop])
        return indptr[start : stop + 1] - first, indices[first:last], data[first:last]

    def flush(self) -> None:
        """Apply weights, decay and centring that were postponed to the new rows, and shrink the buffer, in place."""
        kernel.flush_now(self.state.z, self.state)

    def own_arrays(self) -> Arrays:
        state, used = self.state, self.state.n_stored
        return {
            "columns": self.slot_columns,
            "z": self.z[:, : state.kept],
            "indptr": np.asarray(state.indptr)[: self._n_new + 1],
            "indices": np.asarray(state.indices)[:used],
            "data": state.data[:used],
        }

    def arrays(self, copy: bool = False) -> Arrays:
        out = super().arrays()
        if copy:
            # the whole of z: copying only its first columns takes several times as long
            out = {name: array.copy() for name, array in out.items() if name != "z"}
            out["z"] = self.z.copy()[:, : self.state.kept]
        return out

    def may_shrink(self, rows: Any) -> bool:
        return super().may_shrink(rows) or self._soon_enough(rows)

    def resized(self, sketch_size: int) -> Self:
        other = super().resized(sketch_size)
        other._map = ColumnMap(self._map.array())  # includes the columns of rows that are not absorbed yet
        return other

    def _soon_enough(self, rows: Any) -> bool:
        """Return True if this batch may cause a shrink because many rows and nonzeros are stored.
        Shrinks because the buffer is full are not considered.
        """
        state = self.state
        coming = rows.nnz if is_sparse(rows) else rows.shape[0] * rows.shape[1]
        many = self._n_new + rows.shape[0] >= state.block
        return state.block > 0 and many and state.n_stored + coming >= state.enough

    def saved_from(self, rows: Any) -> Arrays:
        """Return a copy of all arrays that adding these rows may change. ``update`` restores them if the batch fails.

        A shrink that fails does not change the retained rows, which are therefore not copied for a single row.
        """
        n, state = rows.shape[0], self.state
        later = self.capacity - self.setting.center - state.n_keep
        one = n <= state.block if self._soon_enough(rows) else n < self.room() + later
        if not one or n > self.capacity:
            return self.arrays(copy=True)
        out = super().arrays()
        del out["z"]
        return {name: array.copy() for name, array in out.items()}

    def is_past(self, saved: Arrays, n_rows: int) -> bool:
        """Return True if an interrupted batch had already been added completely and no shrink was due.
        Then ``update`` keeps the batch instead of rolling it back.
        """
        state = self.state
        due = self.room() <= 0 or (0 < state.block <= self._n_new and state.n_stored >= state.enough)
        return "z" not in saved and self.n_rows == n_rows and not due

    def put_arrays(self, own: Arrays) -> None:
        state, used, columns = self.state, len(own["data"]), own["columns"]
        state.make_room(used)
        for array in (state.z, np.asarray(state.mean), np.asarray(state.mean_low)):
            array[len(columns) : state.seen] = 0  # entries of rows that were rolled back
        if np.array_equal(self._map.array()[: len(columns)], columns):
            state.make_slots(len(columns))
            state.seen = len(columns)
        else:
            self._start_map(columns)
        if "z" in own:
            self.z[:, : own["z"].shape[1]] = own["z"]
        np.asarray(state.indptr)[: len(own["indptr"])] = own["indptr"]
        np.asarray(state.indices)[:used] = own["indices"]
        state.data[:used] = own["data"]

    def leading_squares(self) -> tuple[NDArray[np.float64], bool]:
        """Shrink the buffer, in place, and return its leading squared singular values, descending, and False.
        False means that smaller values are missing. If nothing needs a shrink, all are returned, with True.

        Retained rows are not shortened, and new rows are not made dense.
        """
        state, setting = self.state, self.setting
        if state.fill + setting.center <= setting.sketch_size or self._n_new == 0:
            return super().leading_squares()
        shrinkage = state.shrinkage * setting.decay**self._n_new
        state.n_spare = state.n_keep
        if self.ledger is not None:
            self.ledger.n_spare = state.n_keep
        self.flush()
        removed, state.shrinkage = max(0.0, state.shrinkage - shrinkage), shrinkage
        return -np.sort(-np.append(self.lam[: state.kept], removed)), False

    def columns(self) -> NDArray[Any]:
        """Return a view in which each column is one row of the sketch; scale factors of retained rows are not applied.

        For a sketch that neither centres nor grows. Changes the state: callers work on a clone that is not used for
        rows afterwards.
        """
        state, kept = self.state, self.state.kept
        if state.fill > self.most_rows(self.setting):
            self.flush()
            return self.z[:, : self.state.kept]
        h = self._n_new
        if h:
            own = self.own_arrays()
            # a row that is followed by i others has decayed by decay^i, all before by decay^h
            power = self.setting.decay ** np.arange(h, -1, -1.0)
            self.multiply_kept(float(power[0]))
            self.z[:, kept : state.fill] = 0
            owner = np.repeat(np.arange(h), np.diff(own["indptr"]))
            values = own["data"] * np.sqrt(power[1:])[owner] if self.setting.decay != 1.0 else own["data"]
            self.z[own["indices"], kept + owner] = values
        return self.z[:, : state.fill]

    def multiply_kept(self, power: float) -> None:
        """Multiply the weight of all rows up to the last shrink by a factor, in place: in the retained rows, the error
        sums and the ledger of removed squares.
        """
        if power != 1.0:
            self.multiply(float(np.sqrt(power)))
            self.state.shrinkage *= power
            self.state.rounding *= power * power
            weaken(self.ledger, power)

    def settled_rows(self) -> NDArray[Any]:
        """Return the rows of the buffer with their final values, as a new dense array over the stored columns. Decay
        and centring that were postponed are applied.

        There are at most sketch_size rows.
        """
        kept = self.state.kept
        if self._n_new and (self.setting.center or self.setting.decay != 1.0):
            # there are few rows: a dense buffer settles them, with capacity for a row between means
            room = max(1, self.state.fill + 2 - self.setting.sketch_size)
            setting = replace(self.setting, buffer_size=room)
            twin = DenseEngine(setting, self.width, dtype=self.dtype)
            mine = self.arrays()
            # in the dense buffer the newest row is first, the longest retained row last
            buffer = np.vstack([self._new_dense()[::-1], self.z[:, :kept].T[::-1]])
            twin.restore({**mine, "root": mine["root"][::-1], "buffer": buffer})
            rows = twin.settled_rows().copy()
            set_scalars(self.state, scalars(twin.state))
            self.lam[:], self.gain[:], self.mean[:], self.mean_low[:] = twin.lam, twin.gain, twin.mean, twin.mean_low
            put_ledger(self.ledger, ledger_arrays(twin.ledger))
            return rows
        gain = self.gain[:kept, np.newaxis].astype(self.dtype)
        return np.vstack([self._new_dense(), (self.z[:, :kept].T * gain)[::-1]])

    def _new_dense(self) -> NDArray[Any]:
        own, n = self.own_arrays(), self._n_new
        out = np.zeros((n, self.width), self.dtype)
        owner = np.repeat(np.arange(n), np.diff(own["indptr"]))
        out[owner, own["indices"]] = own["data"]
        return out

    def replace_rows(self, rows: NDArray[Any], *, kept: bool = True) -> None:
        """Overwrite the buffer with at most sketch_size rows, which count as retained by a shrink."""
        self.z[:, : len(rows)] = rows[::-1].T
        self.state.fill = self.state.kept = len(rows)
        self.state.age = -1  # the rows need not be orthogonal
        self.gain[:] = 1.0
        np.asarray(self.state.indptr)[0] = 0

    def new_values(self) -> NDArray[Any]:
        return self.state.data[: self.state.n_stored]


def moved_arrays(arrays: Arrays, slots: NDArray[Any], columns: NDArray[np.int64]) -> Arrays:
    """Return a saved sparse engine's arrays with stored column i moved to position slots[i] of `columns`."""

    def moved(array: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((len(columns), *array.shape[1:]), array.dtype)
        out[slots] = array
        return out

    own = {name: moved(arrays[name]) for name in ("z", "mean", "mean_low") if len(arrays[name])}
    return {**arrays, **own, "columns": columns, "indices": slots[arrays["indices"]].astype(np.int32)}


def by_column(engine: object, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array over the stored columns of a sparse engine expanded to all d columns, with zeros elsewhere.
    An array of a dense engine is returned unchanged.
    """
    if not isinstance(engine, SparseEngine):
        return array
    out = np.zeros((*array.shape[:-1], engine.n_features), array.dtype)
    out[..., columns_of(engine)] = array
    return out


def columns_of(engine: object) -> slice | NDArray[np.int64]:
    """Return the indices of the columns that an engine stores; slice(None) for a dense engine, which stores all."""
    return engine.slot_columns if isinstance(engine, SparseEngine) else slice(None)
