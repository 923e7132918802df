"""Separate sketches of groups of rows: sketch_groups, and the mapping from keys to sketches that it returns."""

# pyright: reportPrivateUsage=false
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._core.progress import ProgressLine
from fastsketch._core.validation import (
    MOST_SIZE,
    as_array,
    as_choice,
    as_dtype,
    as_integer,
    as_rows,
    check_finite,
    is_sparse,
    natural_dtype,
    refuse_final_nul,
)
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._frame.parameters import choice, flag, float_dtype, integer, real
from fastsketch._kernels.guard import reads
from fastsketch._kernels.sketching.state import SketchState
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._id_columns import MIXED, convert_ids
from fastsketch.data.sources import Source, naming, open_rows, rename_beside_in_errors
from fastsketch.sketching._frequent_directions import FrequentDirections

Key = int | str

# Arrays of strings in a state file: UTF-8, and the end of each. Lone surrogates, as in file names, are kept.
_TEXT = "key_text", "key_ends", "surrogatepass"


def keys_at(values: Any, source: Source, first: int) -> list[Any]:
    """Return the group keys of one chunk as a list of Python ints or of strings.
    `first` is the index of the chunk's first row, for error messages.

    ValueError names the row if a key is missing, is neither, or has another type than the first.
    """
    with naming(source, first):
        try:
            kind, keys = convert_ids(values, "the keys of groups")
        except TypeError as error:
            raise ValueError(error) from None
        if kind == MIXED:
            kept = type(keys[0]) if isinstance(keys[0], Key) else Key
            row = next(row for row, key in enumerate(keys) if not isinstance(key, kept))
            raise ValueError(f"the keys of groups must be all integers or all strings: row {row} has {keys[row]!r}")
        refuse_final_nul(keys, "the keys of groups")
        return keys


def kind_of(keys: Iterable[Key]) -> str:
    """Return "str" if the first group key is a string, else "int". All keys of a model have the same type."""
    return "str" if isinstance(next(iter(keys), None), str) else "int"


def key_arrays(keys: Sequence[Key]) -> dict[str, NDArray[Any]]:
    """Return group keys as named arrays for a state file.
    Integers are one array, strings are UTF-8 bytes and their end positions.
    """
    if kind_of(keys) == "int":
        return {"keys": np.array(keys, np.int64)}
    return checks.text_arrays(cast("Sequence[str]", keys), *_TEXT)


def keys_from(arrays: dict[str, NDArray[Any]]) -> Sequence[Key]:
    """Convert the arrays of a state file back to the list of group keys. ValueError if they are invalid."""
    return arrays["keys"].tolist() if "keys" in arrays else checks.texts_of(arrays, *_TEXT)


# (rows, their keys, the number of the first row, position after them)
Keyed = Iterator[tuple[Any, list[Any], int, int]]


class KeyedRows:
    """Rows of a source, read in chunks with the key of each row's group.

    The argument `by` of ``sketch_groups`` is interpreted here.
    """

    def __init__(self, x: Any, by: Any, *, columns: Any, options: dict[str, Any]) -> None:
        if by is None:
            raise TypeError("by must be the name or position of a column, or the keys of the rows, got None")
        self._by: NDArray[Any] | None = None
        if isinstance(by, str | int | np.integer) and not isinstance(by, bool):
            column = by if isinstance(by, str) else as_integer(by, "by", -(1 << 62))
            with rename_beside_in_errors("by"):
                self.source = open_rows(x, columns=columns, beside=column, **options)
            return
        self.source, self._by = open_rows(x, columns=columns, **options), as_array(by, "by")
        if self._by.dtype.kind == "U" and isinstance(by, list | tuple):
            self._by = np.asarray(by, object)  # NumPy would make strings of numbers among strings, and drop final NULs
        if self._by.ndim != 1:
            raise ValueError(f"by must be a column, or the keys of the rows (n,), got shape {self._by.shape}")
        if self.source.n_rows is not None and len(self._by) != self.source.n_rows:
            raise ValueError(f"by has {len(self._by)} keys, {self.source.name} has {self.source.n_rows} rows")

    def chunks(self) -> Keyed:
        """Yield chunks as (rows, keys, index of the first row, position in the source). The rows are only valid until
        the next chunk is read.
        """
        first = 0
        for rows, values, position in self.source.chunks_beside() if self._by is None else self._beside(self._by):
            yield rows, keys_at(values, self.source, first), first, position
            first += rows.shape[0]

    def _beside(self, keys: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any], int]]:
        first = 0
        for rows, position in self.source.chunks():
            stop = first + rows.shape[0]
            if stop > len(keys):
                raise ValueError(f"by has {len(keys)} keys, {self.source.name} has more rows")
            yield rows, keys[first:stop], position
            first = stop
        if first < len(keys):
            raise ValueError(f"by has {len(keys)} keys, {self.source.name} has {first} rows")


MAX_FLOAT = float(np.finfo(np.float64).max)
# Without "tfd": its l x l log of the mass removed in each direction is as large as the rows of a small sketch.
GroupMethod = Literal["rfd", "fd", "pfd", "cfd", "isvd"]
FILL, KEPT = SketchState.COUNTS.index("fill"), SketchState.COUNTS.index("kept")


class GroupSketches(Mapping[Key, FrequentDirections], MergeableModel):
    """A mapping from the key of each group of rows to its FrequentDirections sketch.

    It is the result of ``fs.sketch_groups``.

    ``groups[key]`` is a copy of a ``FrequentDirections(sketch_size, solver="gram", ...)`` that has seen the rows of
    this group only, in their order. It can be saved, merged, updated and read like any sketch. Groups are in the order
    of their first rows.

    Parameters
    ----------
    sketch_size : int, default 16
        l >= 2 of every sketch. The sketch of a group with fewer rows than the buffer is exact.
    method : {"rfd", "fd", "pfd", "cfd", "isvd"}, default "rfd"
    alpha0, beta, buffer_size, center, dtype
        As for FrequentDirections.

    Attributes
    ----------
    n_rows, n_features : int
        Number of rows of all groups, and of columns d; n_features is None if there are no rows.
    group_keys : ndarray (n_groups,)
        int64, or strings.
    group_rows : ndarray (n_groups,), int64
        Number of rows of each group.
    squared_norms, shrinkages : ndarray (n_groups,), float64
        ``squared_norm`` and ``shrinkage`` of each group's sketch.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Two GroupSketches merge group by group. All groups are in memory: each takes (l + b) d numbers, b the buffer size,
    however few rows it has. A file holds only the rows in use.

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

    sketch_size: int = integer(default=16, at_least=2, below=MOST_SIZE, kw_only=False)
    method: GroupMethod = choice(get_args(GroupMethod), default="rfd")
    alpha0: float = real(default=0.0, high=MAX_FLOAT)
    beta: float | None = real(default=None, high=1.0)
    buffer_size: int | None = integer(default=None, below=MOST_SIZE)
    center: bool = flag(default=False)
    dtype: DTypeLike | None = float_dtype(default=None)

    def __eq__(self, other: object) -> bool:
        return self is other  # that of a mapping would compare sketch by sketch

    def __hash__(self) -> int:
        return object.__hash__(self)

    def _check(self) -> None:
        # an empty sketch, whose constructor refuses parameters that contradict each other
        self._empty = FrequentDirections(**self.parameters, solver="gram")

    def _begin(self) -> None:
        self._sketches: dict[Key, FrequentDirections] = {}

    def _add_rows(self, key: Key, rows: Any) -> None:
        """Add rows to the sketch of one group, which is created if the key is new.

        The rows of all groups have the same dtype.
        """
        if key not in self._sketches:
            self._sketches[key] = self._empty.copy()
        self._sketches[key].update(rows)

    @property
    def _first(self) -> FrequentDirections:
        return next(iter(self._sketches.values()))

    # -- a mapping -----------------------------------------------------------------------------------------------------
    @reads
    def __getitem__(self, key: Key) -> FrequentDirections:
        sketch = self._sketches[key].copy()
        sketch._feature_names = self._feature_names
        return sketch

    def __iter__(self) -> Iterator[Key]:
        return iter(self._sketches)

    def __len__(self) -> int:
        return len(self._sketches)

    def __contains__(self, key: object) -> bool:
        return key in self._sketches

    # -- arrays --------------------------------------------------------------------------------------------------------
    @property
    @reads
    def group_keys(self) -> NDArray[Any]:
        """Return the keys of all groups, as an array of int64 or strings."""
        return np.array([*self._sketches], np.int64 if kind_of(self._sketches) == "int" else np.str_)

    @property
    @reads
    def group_rows(self) -> NDArray[np.int64]:
        """Return the number of rows of each group, as an int64 array."""
        return np.array([sketch.n_rows for sketch in self._sketches.values()], np.int64)

    @property
    @reads
    def squared_norms(self) -> NDArray[np.float64]:
        """Return the sum of squares of each group's rows, after any centring.

        ``squared_norm`` of each sketch, (n_groups,).
        """
        return np.array([sketch.squared_norm for sketch in self._sketches.values()])

    @property
    @reads
    def shrinkages(self) -> NDArray[np.float64]:
        """Return the total that shrinks have subtracted in each group's sketch.

        ``shrinkage`` of each sketch, (n_groups,). It bounds the error of each B'B, apart from rounding; for "rfd" the
        bound is half of it.
        """
        return np.array([sketch.shrinkage for sketch in self._sketches.values()])

    # -- required by the frame -----------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Return the total number of rows of all groups."""
        return sum(sketch.n_rows for sketch in self._sketches.values())

    @property
    def n_features(self) -> int | None:
        """Return the number of columns, or None if there are no rows."""
        return self._first.n_features if self._sketches else None

    def _resolved(self) -> dict[str, Any]:
        if not self._sketches:
            return {}
        return {name: self._first.resolved[name] for name in ("beta", "buffer_size", "dtype")}

    def _seen(self) -> str:
        return "no rows yet" if self.n_features is None else f"{len(self)} groups, {super()._seen()}"

    def _facts(self) -> dict[str, Any]:
        sketches, rows = self._sketches.values(), [sketch.n_rows for sketch in self._sketches.values()]
        return {
            "n_groups": len(self),
            "rows_of_smallest_group": min(rows, default=0),
            "rows_of_largest_group": max(rows, default=0),
            "squared_norm": float(sum(sketch.squared_norm for sketch in sketches)),
            "largest_error_bound": max((sketch.error_bound for sketch in sketches), default=0.0),
        }

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if not self._sketches:
            return {"n_groups": 0}, {}
        first, of_each = self._first, [sketch._seen_engine().arrays() for sketch in self._sketches.values()]
        tails = [
            np.concatenate([arrays[name] for name in ("lam", "gain", "mean", "mean_low")])
            for arrays in of_each
            if arrays["count"][KEPT]
        ]
        state = {
            "n_groups": len(self),
            "n_features": first.n_features,
            "buffer_size": first.resolved["buffer_size"],
            "dtype": np.dtype(first.resolved["dtype"]).name,
            "keys": kind_of(self._sketches),
        }
        return state, {
            **key_arrays([*self._sketches]),
            "book": np.stack([arrays["book"] for arrays in of_each]),
            "count": np.stack([arrays["count"] for arrays in of_each]),
            "rows": np.concatenate([arrays["buffer"] for arrays in of_each]),
            "tails": np.stack(tails) if tails else np.empty((0, self._tail_size(state))),
        }

    def _tail_size(self, state: dict[str, Any]) -> int:
        """Return the number of floats that a state file stores for each shrunk group besides its sketch's rows."""
        return 2 * (self.sketch_size + 1 + (state["n_features"] if self.center else 0))

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_groups"], "n_groups")
        if not n:
            checks.only(arrays)
            return
        dtype = np.dtype(as_dtype(state["dtype"]))
        if self.dtype is not None and dtype != self.dtype:
            raise ValueError(f"its rows have dtype={dtype}, its parameters dtype={self.dtype}")
        d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        buffer_size = as_integer(state["buffer_size"], "buffer_size", 1 if self.center else 0)
        if self.buffer_size is not None and buffer_size != self.buffer_size:
            raise ValueError(f"its rows have buffer_size={buffer_size}, its parameters buffer_size={self.buffer_size}")
        text = as_choice(state["keys"], "keys", ("int", "str")) == "str"
        checks.only(arrays, *(("key_text", "key_ends") if text else ("keys",)), "book", "count", "rows", "tails")
        if text:
            ends = checks.array_of(arrays, "key_ends", (n,), checks.INT64)
            if (np.diff(ends, prepend=0) < 0).any() or arrays["key_text"].shape != (int(ends[-1]),):
                raise ValueError("array 'key_ends' must rise to the end of 'key_text'")
            checks.array_of(arrays, "key_text", (int(ends[-1]),), np.dtype(np.uint8))
        else:
            checks.array_of(arrays, "keys", (n,), checks.INT64)
        if len(set(keys_from(arrays))) < n:
            raise ValueError("a key comes twice")
        # ``_restore`` checks every sketch as one of a file of its own, once it is known which rows are whose
        count = checks.array_of(arrays, "count", (n, len(SketchState.COUNTS)), checks.INT64)
        checks.array_of(arrays, "book", (n, len(SketchState.SUMS)))
        fill, kept = count[:, FILL], count[:, KEPT]
        checks.number_within(int(fill.min()), "fill", 0, self.sketch_size + buffer_size)
        checks.number_within(int(fill.max()), "fill", 0, self.sketch_size + buffer_size)
        checks.array_of(arrays, "rows", (int(fill.sum()), d), dtype)
        checks.array_of(arrays, "tails", (int((kept > 0).sum()), self._tail_size(state)))

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._begin()
        if not state["n_groups"]:
            return
        d, l1 = (state["n_features"] if self.center else 0), self.sketch_size + 1
        engine = {
            "kind": "dense",
            "solver": "gram",
            "n_features": state["n_features"],
            "sketch_size": self.sketch_size,
            "buffer_size": state["buffer_size"],
            "dtype": state["dtype"],
        }
        unshrunk = np.concatenate([np.zeros(l1), np.ones(l1), np.zeros(2 * d)])
        row = tail = 0
        for key, book, count in zip(keys_from(arrays), arrays["book"], arrays["count"], strict=True):
            fill, kept = int(count[FILL]), int(count[KEPT])
            of_group = arrays["tails"][tail] if kept else unshrunk
            lam, gain, mean, low = (part.copy() for part in np.split(of_group, [l1, 2 * l1, 2 * l1 + d]))
            own = {"lam": lam, "gain": gain, "mean": mean, "mean_low": low, "root": np.ones(fill - kept)}
            own |= {"book": book.copy(), "count": count.copy(), "buffer": arrays["rows"][row : row + fill].copy()}
            # each sketch is checked as if it had a file of its own
            parameters = {**self.parameters, "solver": "gram"}
            self._sketches[key] = FrequentDirections._built(parameters, {}, {"engine": engine}, own, trusted=False)
            row, tail = row + fill, tail + (kept > 0)

    def _merge(self, other: "GroupSketches") -> None:
        mine, theirs = kind_of(self._sketches), kind_of(other._sketches)
        if mine != theirs:
            raise ValueError(f"other has keys of type {theirs}, this model of {mine}")
        merged = dict(self._sketches)
        for key, sketch in other._sketches.items():
            merged[key] = merged[key].copy().merge(sketch) if key in merged else sketch.copy()
        self._sketches = merged


def sketch_groups(
    source: Any,
    *,
    by: str | int | ArrayLike,
    sketch_size: int = 16,
    method: GroupMethod = "rfd",
    alpha0: float = 0.0,
    beta: float | None = None,
    buffer_size: int | None = None,
    center: bool = False,
    dtype: DTypeLike | None = None,
    columns: str | Sequence[str | int] | None = None,
    fill: float | None = None,
    key: str | None = None,
    header: bool | None = None,
    separator: str | None = None,
    decimal: str = ".",
    n_features: int | None = None,
    zero_based: bool = False,
    progress: bool | None = None,
) -> GroupSketches:
    """Sketch every group of rows separately, in one pass over rows in any order.

    The rows of each chunk are sorted by key, stably, and each group's sketch is updated once a chunk.

    Parameters
    ----------
    source
        Whatever ``fs.open_rows`` takes. Of sparse rows, a chunk's rows of one group at a time are made dense.
    by : str, int, or array_like (n,)
        The column whose values are the keys of the groups, by name or position; it is then not part of the rows. Or the
        keys of the rows. Keys are 64-bit integers or strings; those of csv text are always strings.
    sketch_size, method, alpha0, beta, buffer_size, center, dtype
        Of every sketch: see ``GroupSketches``. Without a dtype, that of the first chunk of rows.
    columns, fill, key, header, separator, decimal, n_features, zero_based
        As for ``fs.open_rows``; positions in columns count the columns without that of the keys.
    progress : bool, optional
        Whether a line on standard error shows the progress, by default on a terminal.

    Returns
    -------
    GroupSketches

    Raises
    ------
    TypeError, ValueError
        For invalid rows or keys; the message names the file and row of a missing key (null).

    Notes
    -----
    ``groups[key]`` equals, bit for bit, a ``FrequentDirections(sketch_size, solver="gram", ...)`` that was updated with
    the rows of this group only, in their order. All groups are in memory: (l + b) d numbers each, b the buffer size. If
    that is too much, sketch parts that each have a share of the keys, and combine them with ``fs.merge``.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 12))
    >>> shops = np.where(np.arange(1000) % 10 < 7, "north", "south")
    >>> groups = fs.sketch_groups(rows, by=shops, sketch_size=4)
    >>> {key: sketch.n_rows for key, sketch in groups.items()}
    {'north': 700, 'south': 300}
    """
    groups = GroupSketches(
        sketch_size, method=method, alpha0=alpha0, beta=beta, buffer_size=buffer_size, center=center, dtype=dtype
    )
    options: dict[str, Any] = {
        "fill": fill,
        "key": key,
        "header": header,
        "separator": separator,
        "decimal": decimal,
        "n_features": n_features,
        "zero_based": zero_based,
    }
    rows = KeyedRows(source, by, columns=columns, options=options)
    numbers, line, n_rows = dict[Key, int](), ProgressLine(rows.source.name, progress), 0
    for batch, keys, first, position in rows.chunks():
        if not keys:
            continue
        if numbers and kind_of(keys) != kind_of(numbers):
            raise ValueError(
                f"{rows.source.where(first)}: the key {keys[0]!r}, after {next(iter(numbers))!r}: "
                "keys must be all integers or all strings"
            )
        checked = as_rows(batch, groups.n_features)
        dtype = groups._first.resolved["dtype"] if len(groups) else groups.dtype or natural_dtype(checked.dtype)
        group = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(keys))
        with naming(rows.source, first):
            _update(groups, checked, group, keys, np.dtype(dtype))
        n_rows = first + checked.shape[0]
        fraction = min(1.0, position / rows.source.size) if rows.source.size else 0.0
        line.show(fraction, n_rows, extra_entries={"groups": len(groups)})
    if len(groups):
        groups._feature_names = rows.source.feature_names
    line.show(1.0, n_rows, final=True, extra_entries={"groups": len(groups)})
    return groups


def _update(
    groups: GroupSketches, batch: Any, numbers: NDArray[np.int64], keys: list[Any], dtype: np.dtype[Any]
) -> None:
    """Add the rows of one chunk, sorted by group, to the sketches of their groups, in place.
    ValueError names a row that is not finite. `numbers` has the group of each row.
    """
    check_finite(batch)
    with np.errstate(over="ignore"):
        converted = batch.astype(dtype, copy=False)
    check_finite(converted, dtype=dtype)
    order = np.argsort(numbers, kind="stable")
    first_of_group = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    for positions in np.split(order, first_of_group[1:]):
        rows = converted[positions]
        groups._add_rows(keys[positions[0]], rows.toarray() if is_sparse(rows) else rows)
