"""Tables of (user, item, value) with ids of any type, and the sparse matrices that they describe."""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from glob import has_magic
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse, require_array_like
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import as_dialect
from fastsketch.data.names._events import ColumnNames, EventColumns, read_events
from fastsketch.data.names._id_columns import is_missing
from fastsketch.data.names._id_map import IdMap, no_ids
from fastsketch.data.names._three_columns import (
    check_columns,
    events_of_mapping,
    events_of_tuples,
    has_names_of_ids,
    is_frame,
    is_mapping,
    looks_like_triples,
)

Index = NDArray[Any]


class Triples:
    """A table of (user, item, value) or (user, item) lines, equivalent to a sparse matrix of users x items.

    Models accept it in place of a matrix: ``fs.LowRankModel(10).fit(triples)``, ``fs.SketchedEASE().update(triples)``.
    Users are rows and items are columns, whatever they are called in the data. ``IdMap`` describes valid ids.

    Parameters
    ----------
    users, items : sequence, array or column of a data frame, (n,)
        Ids; None and NaN are refused.
    values : array_like (n,), optional
        Finite real numbers. Without them the value of every line is 1.

    Attributes
    ----------
    user_ids, item_ids : IdMap
        The different ids in order of first appearance: the rows and columns of ``matrix()``.
    users, items : ndarray (n,) of int32
        The positions of each line's ids in ``user_ids`` and ``item_ids``.
    values : ndarray (n,) of float32 or float64, or None

    Raises
    ------
    TypeError, ValueError
        For an invalid id or value, with its position, and for columns of different lengths.

    Examples
    --------
    >>> import fastsketch as fs
    >>> table = fs.data.Triples(["ann", "bob", "ann"], ["Heat", "Heat", "Alien"], values=[5, 3, 4])
    >>> table.matrix().toarray()
    array([[5., 4.],
           [3., 0.]])
    >>> list(table.user_ids), list(table.item_ids)
    (['ann', 'bob'], ['Heat', 'Alien'])
    """

    user_ids: IdMap
    item_ids: IdMap
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    values: NDArray[Any] | None

    def __init__(self, users: Any, items: Any, *, values: Any = None) -> None:
        self.user_ids, rows = no_ids().extended(users, "users")
        self.item_ids, columns = no_ids().extended(items, "items")
        if len(rows) != len(columns):
            raise ValueError(f"users and items must have one entry a line each, got {len(rows)} and {len(columns)}")
        self.users, self.items = rows.astype(np.int32), columns.astype(np.int32)
        self.values = None if values is None else _as_values(values, self)

    @classmethod
    def of(
        cls,
        table: Any,
        *,
        columns: ColumnNames | None = None,
        header: bool | None = None,
        separator: str | None = None,
        decimal: str = ".",
        thousands: str | None = None,
        comment: str | None = None,
        na_values: str | Sequence[str] = (),
        multiline: bool = False,
    ) -> "Triples":
        """Create Triples from a data frame, a file, a list of tuples, or a dict.

        Parameters
        ----------
        table : data frame, path, list of tuples, or dict
            A data frame (pandas, polars, pyarrow, or any with ``__arrow_c_stream__``); a path to text (csv or tsv, also
            .gz, .bz2 or .xz), whose ids are strings, or to Parquet or Arrow; a list of (user, item) or (user, item,
            value); {user: [items]} or {user: {item: value}}.
        columns : sequence of str or int, optional
            For a data frame or file: names or positions of the columns of users, items and, optionally, values. By
            default they are found by their names, or else by their order or content; the log names them if the table
            has other columns. A third column of dates or times is left out with a warning.
        header : bool, optional
            Whether the first line of text has the names of the columns. By default it has if `columns` has names, or
            if it has a word above numbers, dates or ids with digits. It has not if it holds numbers like those below,
            or if its ids occur again below. If that is undecided, an error is raised.
        separator : str, optional
            Separator of text: by default tabs, semicolons or commas, depending on the first lines.
        decimal : {".", ","}, default "."
            The decimal point of text.
        thousands, comment, na_values, multiline
            As for ``fs.open_rows``.

        Raises
        ------
        TypeError, ValueError
            For an invalid table; the message names column and entry, or the line.
        SourceError
            If the file cannot be read.
        ImportError
            For a file or data frame if polars or narwhals is not installed.
        """
        if columns is not None and not (isinstance(table, str | PathLike) or is_frame(table)):
            raise ValueError(f"columns names those of a data frame or a file, got {type(table).__name__}")
        if columns is not None:
            check_columns(columns)
        dialect = as_dialect(header, separator, decimal, thousands, comment, na_values, multiline)
        if isinstance(table, Triples):
            return table
        _refuse_several_files(table)
        if isinstance(table, str | PathLike):
            path = cast("str | PathLike[str]", table)
            columns_read = read_events(path, dialect, columns=columns)
            with _naming_file_and_line(path, columns_read):
                return cls(columns_read.users, columns_read.items, values=columns_read.values)
        if is_frame(table):
            columns_read = read_events(table, dialect, columns=columns)
        elif is_mapping(table):
            columns_read = events_of_mapping(table)
        elif isinstance(table, Sequence):
            columns_read = events_of_tuples(cast("Sequence[Any]", table))
        else:
            raise TypeError(
                "table must be a data frame, a path, a list of (user, item, value) or {user: [items]}, got "
                f"{type(table).__name__}"
            )
        out = cls(columns_read.users, columns_read.items, values=columns_read.values)
        if columns_read.all_users is not None and len(columns_read.all_users) > len(out.user_ids):
            out.user_ids = IdMap(columns_read.all_users)
            out.users = out.user_ids.places(columns_read.users).astype(np.int32)
        return out

    # -- as a matrix -------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"<Triples: {len(self):,} lines of {len(self.user_ids):,} users and {len(self.item_ids):,} items>"

    def matrix(self) -> Any:
        """Return the table as a CSR matrix (users, items) in the order of the ids; values of equal pairs are summed."""
        shape = len(self.user_ids), len(self.item_ids)
        return to_csr_matrix(self, np.arange(shape[0]), np.arange(shape[1]), shape)


def to_csr_matrix(
    table: Triples, rows: Index, columns: Index, shape: tuple[int, int], values: NDArray[Any] | None = None
) -> Any:
    """Convert a table of events to a CSR matrix of the given shape. Values of equal pairs are summed.

    rows (users,) and columns (items,) are the position of each id; lines with an id at -1 are dropped. `values` (n,)
    replaces the values of the table.
    """
    from scipy.sparse import coo_array

    values = table.values if values is None else values
    data = np.ones(len(table)) if values is None else values
    i, j = rows.astype(np.int32)[table.users], columns.astype(np.int32)[table.items]
    in_both = (i >= 0) & (j >= 0)
    if not in_both.all():
        i, j, data = i[in_both], j[in_both], data[in_both]
    return coo_array((data, (i, j)), shape=shape).tocsr()


def select_lines(table: Triples, keep: NDArray[np.bool_], users: NDArray[np.bool_] | None = None) -> Triples:
    """Return the lines of a table where the mask `keep` (n,) is True; ids without lines are left out.

    The ids are in the order of first appearance in the remaining lines. With the mask `users` (users,), the users are
    those of the mask, with or without lines. The table itself does not change.
    """
    if keep.all() and (users is None or users.all()):
        return table
    out = copy(table)
    if users is None:
        out.user_ids, out.users = _renumber_by_appearance(table.user_ids, table.users[keep])
    else:
        out.user_ids = IdMap(table.user_ids.ids[users])
        out.users = (np.cumsum(users) - 1)[table.users[keep]].astype(np.int32)
    out.item_ids, out.items = _renumber_by_appearance(table.item_ids, table.items[keep])
    out.values = None if table.values is None else table.values[keep]
    return out


def _renumber_by_appearance(ids: IdMap, positions: NDArray[np.int32]) -> tuple[IdMap, NDArray[np.int32]]:
    """Assign new numbers to ids by first appearance. Return their IdMap and the new position of each entry."""
    used, first_entries, inverse = np.unique(positions, return_index=True, return_inverse=True)
    order = np.argsort(first_entries)
    return IdMap(ids.ids[used[order]]), np.argsort(order)[inverse].astype(np.int32)


def describe_repeated_pair(table: Triples) -> str | None:
    """Describe the first (user, item) pair that has two lines, for a message; return None if no pair has."""
    pairs = table.users.astype(np.int64) * len(table.item_ids) + table.items
    order = np.argsort(pairs, kind="stable")
    repetitions = order[1:][np.diff(pairs[order]) == 0]
    return describe_pair(table, int(repetitions.min())) if len(repetitions) else None


def describe_pair(table: Triples, line: int) -> str:
    """Describe the user and item of a line for a message."""
    return f"the pair ({table.user_ids[int(table.users[line])]}, {table.item_ids[int(table.items[line])]})"


# Input of models that is a table of events; data frames are accepted as well.
Table: TypeAlias = Triples | Mapping[Any, Any] | str | PathLike[str]


def as_triples(table: Any, columns: ColumnNames | None, name: str = "X") -> Triples | None:
    """Convert a model's input to Triples if it is a table of events; return None if it is a matrix.

    Raise ValueError for a data frame that may be either, unless `columns` is given.
    """
    if isinstance(table, Triples) or columns is not None:
        return Triples.of(table, columns=columns)
    if is_sparse(table):
        return None
    _refuse_several_files(table)
    if isinstance(table, str | PathLike) or is_mapping(table):
        return Triples.of(table)
    if is_frame(table) and looks_like_triples(table):
        raise ValueError(
            f"{name} is a data frame that may be a table of users, items and values, or a matrix: fastsketch.data."
            "Triples.of(it, columns=(user, item, value)), with the names of its columns, is the table, .to_numpy() the "
            "matrix"
        )
    return None


def as_triples_of_estimator(X: Any) -> Triples | None:
    """Return the input X of an estimator as Triples if it is a table of events, and None for a matrix or data frame.

    Raise ValueError for a data frame whose column names denote users and items: its ids would be fitted as numbers.
    """
    if isinstance(X, Triples) or is_mapping(X):
        return Triples.of(X)
    return as_triples(X, None) if has_names_of_ids(X) else None


def _refuse_several_files(table: Any) -> None:
    """Raise ValueError if a table is given as a list of files or a glob pattern."""
    entries = cast("Sequence[Any]", table) if isinstance(table, list | tuple) else ()
    are_paths = len(entries) > 0 and isinstance(entries[0], str | PathLike)
    if are_paths or (isinstance(table, str) and has_magic(table) and not Path(table).exists()):
        advice = "put the files together, or update with one after another if each has users of its own"
        raise ValueError(f"a table is one file, got {table!r:.60}: {advice}")


def _as_values(values: Any, table: Triples) -> NDArray[Any]:
    """Validate the values of a table, and return them as a float array (n,)."""
    require_array_like(values, "values")
    try:
        out: NDArray[Any] = np.asarray(values)
        if out.dtype.kind == "O":  # as in pandas columns of integers with missing entries
            entries = cast("list[Any]", out.tolist())
            out = np.array([np.nan if is_missing(value) else value for value in entries])
    except ValueError as error:
        raise ValueError(f"values must be a vector of numbers: {error}") from None
    if out.dtype.kind not in "fiub":
        raise TypeError(f"values must hold real numbers, got dtype {out.dtype}")
    if out.shape != table.users.shape:
        raise ValueError(f"values must have one entry for each of the {len(table)} lines, got shape {out.shape}")
    out = np.ascontiguousarray(out, np.float32 if out.dtype.name == "float32" else np.float64)
    is_finite = np.isfinite(out)
    if not is_finite.all():
        position = int(np.argmin(is_finite))
        raise ValueError(
            f"values must be finite: entry {position}, {describe_pair(table, position)}, has {out[position]}"
        )
    return out


@contextmanager
def _naming_file_and_line(path: str | PathLike[str], event_columns: EventColumns) -> Generator[None]:
    """Add the file and, for text, the line number to errors that name an entry."""
    try:
        yield
    except (TypeError, ValueError) as error:
        entry = re.search(r"entry (\d+)", str(error))
        if entry is None or event_columns.lines is None:
            raise SourceError(f"{path}: {error}") from None
        raise SourceError(f"{path}, line {event_columns.lines[int(entry[1])]}: {error}") from None


@contextmanager
def naming_ids(rows: IdMap | None, columns: IdMap | None) -> Generator[None]:
    """Replace row and column indices by ids in errors about a matrix entry, for each IdMap that is not None."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        entry = re.search(r"entry \((\d+), (\d+)\)", message)
        if entry is None or (rows is None and columns is None):
            raise
        i, j = (
            ids[int(position)] if ids else int(position) for ids, position in ((rows, entry[1]), (columns, entry[2]))
        )
        raise type(error)(message.replace(entry[0], f"the pair ({i}, {j})")) from None
