"""The sketches of groups as one model: a mapping from keys to FrequentDirections."""

# pyright: reportPrivateUsage=false

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastsketch._core.validation import as_choice, as_dtype, as_integer
from fastsketch._frame.model import Arrays, MergeableModel, about_of
from fastsketch._frame.parameters import choice, flag, float_dtype, integer, real
from fastsketch._kernels.guard import reads
from fastsketch._kernels.sketching.state import NOTHING_SEEN, REFRESH, SketchState
from fastsketch.data.files import _checks as checks
from fastsketch.data.files import _state as files
from fastsketch.data.files._replacing import replacing
from fastsketch.sketching._engines import exponent_for
from fastsketch.sketching._frequent_directions import FrequentDirections
from fastsketch.sketching._groups._keys import Key, key_arrays, keys_from, kind_of
from fastsketch.sketching._groups._packed_groups import Packed
from fastsketch.sketching._groups._store import EXPONENT, FILL, KEPT, N_ROWS, TOP, RecordLayout
from fastsketch.sketching._methods import METHODS

MOST = float(np.finfo(np.float64).max)
# A ledger is as large again as the rows of a small sketch: "tfd" is for one sketch.
GroupMethod = Literal["rfd", "fd", "pfd", "cfd", "isvd"]


class GroupSketches(Mapping[Key, FrequentDirections], MergeableModel):
    """One FrequentDirections for each group of rows, by the group's key: what ``fs.sketch_groups`` returns.

    ``groups[key]`` is ``FrequentDirections(sketch_size, solver="gram", ...)`` that has seen the rows of this group, in
    their order, and no others: bit for bit, so that it can be saved, merged, updated and read like any sketch. It is
    made when it is asked for, and is the caller's own. Groups come in the order in which their first rows came.

    Parameters
    ----------
    sketch_size : int, default 16
        l >= 2 of every sketch. A group with fewer rows than the buffer is exact, and takes up its rows alone.
    method : {"rfd", "fd", "pfd", "cfd", "isvd"}, default "rfd"
    alpha0, beta, buffer_size, center, dtype
        As for FrequentDirections.

    Attributes
    ----------
    n_rows, n_features : int
        Rows of all groups, and columns d; n_features is None if there are none.
    group_keys : ndarray (n_groups,)
        int64, or strings.
    group_rows : ndarray (n_groups,), int64
        Rows of each group.
    squared_norms, shrinkages : ndarray (n_groups,), float64
        ``squared_norm`` and ``shrinkage`` of each group's sketch.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Two merge as their sketches do, group by group. A file that is loaded is in memory as a whole; of a pass whose
    groups did not fit into memory rows are in a temporary file, from which ``save`` and ``groups[key]`` read them.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((600, 20))
    >>> groups = fs.sketch_groups(rows, by=np.arange(600) % 3, sketch_size=8)
    >>> len(groups), groups[2].n_rows, groups[2].sketch().shape
    (3, 200, (7, 20))
    >>> alone = fs.FrequentDirections(8, solver="gram").update(rows[2::3])
    >>> np.array_equal(groups[2].sketch(), alone.sketch())
    True
    """

    sketch_size: int = integer(default=16, at_least=2, kw_only=False)
    method: GroupMethod = choice(get_args(GroupMethod), default="rfd")
    alpha0: float = real(default=0.0, high=MOST)
    beta: float | None = real(default=None, high=1.0)
    buffer_size: int | None = integer(default=None)
    center: bool = flag(default=False)
    dtype: DTypeLike | None = float_dtype(default=None)

    def __eq__(self, other: object) -> bool:
        return self is other  # a mapping would compare sketch by sketch

    def __hash__(self) -> int:
        return object.__hash__(self)

    def _check(self) -> None:
        # the sketch of a group without rows, which says what does not go together
        self._empty = FrequentDirections(**self.parameters, solver="gram")

    def _begin(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._packed: Packed | None = None
        self._last: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def _layout(self, n_features: int, *, dtype: np.dtype[Any]) -> RecordLayout:
        return RecordLayout(self._empty._setting, n_features, dtype=dtype)

    def _take_packed(self, numbers: dict[Key, int], packed: Packed) -> None:
        self._numbers, self._packed, self._last = numbers, packed, None

    # -- a mapping -----------------------------------------------------------------------------------------------------
    @reads
    def __getitem__(self, key: Key) -> FrequentDirections:
        return self._sketch_at(self._numbers[key])

    def __iter__(self) -> Iterator[Key]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def _sketch_at(self, number: int) -> FrequentDirections:
        assert self._packed is not None
        layout = self._packed.layout
        about = {
            "kind": "dense",
            "solver": "gram",
            "n_features": layout.n_features,
            "sketch_size": self.sketch_size,
            "buffer_size": layout.capacity - self.sketch_size,
            "dtype": layout.dtype.name,
        }
        # what a stranger's file holds of this group is checked now
        return FrequentDirections._built(
            {**self.parameters, "solver": "gram"},
            {},
            {"engine": about},
            self._packed.one(number),
            feature_names=self._feature_names,
            trusted=False,
        )

    # -- arrays --------------------------------------------------------------------------------------------------------
    @property
    @reads
    def group_keys(self) -> NDArray[Any]:
        """Return the keys, (n_groups,): int64, or strings."""
        return np.array([*self._numbers], np.int64 if kind_of(self._numbers) == "int" else np.str_)

    @property
    @reads
    def group_rows(self) -> NDArray[np.int64]:
        """Return the number of rows of each group, (n_groups,)."""
        return np.empty(0, np.int64) if self._packed is None else self._packed.count[:, N_ROWS].copy()

    @property
    def squared_norms(self) -> NDArray[np.float64]:
        """Return ``squared_norm`` of each group's sketch, (n_groups,): sums over its rows, centred with ``center``."""
        return self._last_numbers()[1].copy()

    @property
    def shrinkages(self) -> NDArray[np.float64]:
        """Return ``shrinkage`` of each group's sketch, (n_groups,): certificates before rounding; "rfd": twice."""
        return self._last_numbers()[0].copy()

    @reads
    def _last_numbers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._packed is None:
            return np.empty(0), np.empty(0)
        if self._last is None:
            self._last = self._packed.last_numbers()
        return self._last

    def to_parquet(self, path: str | PathLike[str] | BinaryIO) -> None:
        """Write a table of one row for each group (needs the extra "arrow").

        Parameters
        ----------
        path : str, path or binary file
            Its columns: key (int64 or string), n_rows (int64), squared_norm, shrinkage, alpha and error_bound
            (float64), and sketch, the rows of B as a list of lists of d numbers. With ``center`` also mean.

        Raises
        ------
        ImportError
            Without pyarrow.
        OSError
            If the file cannot be written; what was there before is then as it was.
        """
        from fastsketch.sketching._groups._groups_parquet import write_parquet

        if isinstance(path, str | PathLike):
            with replacing(path) as file:
                write_parquet(self, file)
        else:
            write_parquet(self, path)

    # -- required by the frame -----------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Return the number of rows of all groups."""
        return 0 if self._packed is None else int(self._packed.count[:, N_ROWS].sum())

    @property
    def n_features(self) -> int | None:
        """Return the number d of columns; None if there are no rows."""
        return None if self._packed is None else self._packed.layout.n_features

    def _resolved(self) -> dict[str, Any]:
        if self._packed is None:
            return {}
        layout = self._packed.layout
        return {
            "beta": self._empty.resolved["beta"],
            "buffer_size": layout.capacity - self.sketch_size,
            "dtype": layout.dtype,
        }

    def _seen(self) -> str:
        return "no rows yet" if self.n_features is None else f"{len(self)} groups, {super()._seen()}"

    def _facts(self) -> dict[str, Any]:
        rows, (shrinkages, squares) = self.group_rows, self._last_numbers()
        total = float(squares.sum())
        bounds = np.array([METHODS[self.method].error_bound(1.0)]) * shrinkages
        return {
            "n_groups": len(self),
            "rows_of_smallest_group": int(rows.min(initial=0) if not len(rows) else rows.min()),
            "rows_of_largest_group": int(rows.max(initial=0)),
            "squared_norm": total,
            "largest_error_bound": float(bounds.max(initial=0.0)),
        }

    def _parts_of_state(self) -> tuple[dict[str, Any], Arrays]:
        assert self._packed is not None
        layout = self._packed.layout
        state = {
            "n_groups": len(self),
            "n_features": layout.n_features,
            "buffer_size": layout.capacity - self.sketch_size,
            "dtype": layout.dtype.name,
            "keys": kind_of(self._numbers),
        }
        return state, key_arrays([*self._numbers])

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._packed is None:
            return {"n_groups": 0}, {}
        state, arrays = self._parts_of_state()
        return state, {**arrays, **self._packed.arrays()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file that ``fs.load`` reads: whole or not at all, in pieces of a few megabytes.

        Parameters
        ----------
        path : str or path
        """
        with replacing(path) as file:
            self._write(file)

    @reads
    def _write(self, file: BinaryIO) -> None:
        packed = self._packed
        if packed is None:
            file.write(self.to_bytes())
            return
        state, arrays = self._parts_of_state()
        tailed = int(packed.has_tail.sum())
        files.pack_into(
            file,
            about_of(self, state),
            {
                **arrays,
                "book": packed.book,
                "count": packed.count,
                "rows": files.Pieces((packed.rows.n, packed.rows.width), packed.rows.dtype, packed.row_pieces),
                "tails": files.Pieces((tailed, packed.tails.width), packed.tails.dtype, packed.tail_pieces),
            },
        )

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_groups"], "n_groups")
        if not n:
            checks.only(arrays)
            return
        dtype, layout = as_dtype(state["dtype"]), self._layout_of(state)
        if self.dtype is not None and dtype != self.dtype:
            raise ValueError(f"its rows have dtype={dtype}, its parameters dtype={self.dtype}")
        text = as_choice(state["keys"], "keys", ("int", "str")) == "str"
        own = ("key_text", "key_ends") if text else ("keys",)
        checks.only(arrays, *own, "book", "count", "rows", "tails")
        if text:
            ends = checks.array_of(arrays, "key_ends", (n,), checks.INT64)
            if (np.diff(ends, prepend=0) < 0).any() or arrays["key_text"].shape != (int(ends[-1]),):
                raise ValueError("array 'key_ends' must rise to the end of 'key_text'")
            checks.array_of(arrays, "key_text", (int(ends[-1]),), np.dtype(np.uint8))
        else:
            checks.array_of(arrays, "keys", (n,), checks.INT64)
        if len(set(keys_from(arrays))) < n:
            raise ValueError("a key comes twice")
        _validate_tables(arrays, layout, n)

    def _layout_of(self, state: dict[str, Any]) -> RecordLayout:
        d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        layout = self._layout(d, dtype=np.dtype(as_dtype(state["dtype"])))
        # as it was, also where a later version has another default
        buffer_size = as_integer(state["buffer_size"], "buffer_size", 1 if self.center else 0)
        if self.buffer_size is not None and buffer_size != self.buffer_size:
            raise ValueError(f"its rows have buffer_size={buffer_size}, its parameters buffer_size={self.buffer_size}")
        if layout.capacity != self.sketch_size + buffer_size:
            layout = RecordLayout(layout.setting.resolved("gram", buffer_size), d, dtype=layout.dtype)
        return layout

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._begin()
        if state["n_groups"]:
            numbers = {key: number for number, key in enumerate(keys_from(arrays))}
            self._take_packed(numbers, Packed.of(self._layout_of(state), arrays))

    def _merge(self, other: "GroupSketches") -> None:
        assert self._packed is not None and other._packed is not None
        mine, theirs = kind_of(self._numbers), kind_of(other._numbers)
        if mine != theirs:
            raise ValueError(f"other has keys of type {theirs}, this model of {mine}")
        new = [key for key in other._numbers if key not in self._numbers]
        numbers = {**self._numbers, **{key: len(self) + place for place, key in enumerate(new)}}
        packed = Packed(self._packed.layout)
        packed.reserve(len(numbers))
        if not (self._packed.rows.in_memory and other._packed.rows.in_memory):
            packed.to_file(self._packed.rows.folder or other._packed.rows.folder)
        alone = np.array([number for key, number in self._numbers.items() if key not in other._numbers], np.int64)
        packed.take(self._packed, alone, alone)
        added = np.array([other._numbers[key] for key in new], np.int64)
        packed.take(other._packed, added, len(self) + np.arange(len(added)))
        for key, number in self._numbers.items():
            if key in other._numbers:
                both = self._sketch_at(number).merge(other._sketch_at(other._numbers[key]))
                packed.take_one(number, both._seen_engine().arrays())
        self._take_packed(numbers, packed)


def _validate_tables(arrays: Arrays, layout: RecordLayout, n: int) -> None:
    """Return the rules of an engine's state, for all groups at once: kernels look at no count."""
    setting = layout.setting
    count = checks.array_of(arrays, "count", (n, len(SketchState.COUNTS)), checks.INT64)
    book = checks.array_of(arrays, "book", (n, len(SketchState.SUMS)))
    if np.isnan(book).any():
        raise ValueError("array 'book' must hold sums, got nan")
    fill, kept, top = count[:, FILL], count[:, KEPT], count[:, TOP]
    age = count[:, SketchState.COUNTS.index("age")]
    for name, column, low, high in (
        ("fill", fill, 0, layout.capacity - setting.center - 1),
        ("kept", kept, 0, setting.sketch_size),
        ("n_rows", count[:, N_ROWS], 0, checks.MOST_COUNT),
        ("age", age, -1, REFRESH),
        ("top", top, NOTHING_SEEN, 1025),
    ):
        checks.number_within(int(column.min()), name, low, high)
        checks.number_within(int(column.max()), name, low, high)
    if (kept > fill).any() or (count[:, N_ROWS] < fill - kept).any():
        raise ValueError("a group has more rows in its buffer than it has seen")
    seen = {value: exponent_for(value, layout.dtype) for value in np.unique(top).tolist()}
    seen[NOTHING_SEEN] = 0
    if any((count[top == value, EXPONENT] != exponent).any() for value, exponent in seen.items()):
        raise ValueError("array 'count' has an exponent that is not that of its largest entry")
    checks.finite(arrays, "rows", (int(fill.sum()), layout.n_features), layout.dtype)
    tails = checks.finite(arrays, "tails", (int((kept > 0).sum()), layout.tail_size))
    if tails[:, : 2 * layout.n_lam].min(initial=0.0) < 0:
        raise ValueError("array 'tails' has a negative length of a row")
