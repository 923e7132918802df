"""Read tables with numeric and categorical columns as rows of named features."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_choice, as_integer, refuse_final_nul
from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import (
    DATE,
    DECIDING_LINES,
    LOGGER,
    MAX_MISTAKE_SHARE,
    MIN_IDS,
    NUMBER,
    SEPARATOR_HINT,
    WORD,
    as_dialect,
    kind_of,
    log_id_like_columns,
    remedy,
)
from fastsketch.data.names._tables import Table, open_table
from fastsketch.data.sources._column_names import unique_names
from fastsketch.data.sources._csv import first_cells

ROWS_AT_A_TIME = 4096

NUMERIC, CATEGORICAL = "numeric", "categorical"
# A text column with a larger share of distinct values is reported, since its values are hardly categories.
DISTINCT_SHARE = 0.9
Named = dict[str, float | str]


class _Column(NamedTuple):
    """A column that is read: its name, its position and whether it is numeric."""

    name: str
    position: int  # position of the column
    numeric: bool


class TableRows:
    """A reader of tables with numeric and categorical columns, which yields rows as dicts in constant memory.

    The table is UTF-8 text (.gz, .bz2, .xz too) as ``fs.open_rows`` reads it, a Parquet or Arrow file, or a data frame
    of any library (extra: files). A cell of a numeric column is a number, a cell of a categorical column a string
    without surrounding blanks: {"age": 39.0, "city": "Paris"}. Models read this as the features "age" and "city=Paris".

    A column is numeric if its first 1,000 cells are numbers or missing (empty, NA, n/a, NaN, null, none, ?, in any
    case). It is categorical if none of them is a number, or if more than one in twenty of those that are not missing
    are no numbers. In between, an error names such a cell. Columns of percentages and of amounts of money are an error
    unless they are listed as categorical. Columns of dates and times are left out with a warning that names them. If
    the first 1,000 cells are all missing, the first ones that are not decide.

    Parameters
    ----------
    path : str, path or data frame
        "-" is standard input, which can be read only once.
    label : str or int, optional
        The column of labels, by name or position from 0. By default that of `schema`, if the table has this column;
        otherwise there are no labels.
    categorical, numeric, ignore : sequences of str or int
        Columns whose kind is given, whatever they hold, and columns that are not read.
    header : bool, optional
        Whether the first line has the names of the columns. By default it has if a name is given above, or if it has a
        word above numbers or dates. If that is undecided, an error is raised. Columns without names are called "1",
        "2", ... by their position.
    separator : str, optional
        Separator of text: by default tabs, semicolons or commas, depending on the first lines.
    decimal : {".", ","}, default "."
        The decimal point of text.
    thousands, comment, na_values, multiline
        As for ``fs.open_rows``.
    missing : {"feature", "refuse"}, default "feature"
        "feature": a missing cell becomes the string "", in numeric columns too, so that a model learns a weight for it.
        "refuse": it is an error. A missing label is always an error.
    schema : dict, optional
        The ``schema`` of other TableRows, which determines the kind of each column and the labels: for more rows of
        the same table, or for rows to predict. Other columns are not read. ``{**schema, "label": None}`` reads no
        labels, for example if their cells are empty.

    Attributes
    ----------
    schema : dict
        JSON values. "columns": {name: "numeric" or "categorical"}, "label": name or None, "label_kind": "numeric",
        "categorical" or None.
    header : bool
        Whether the table has a header.
    size : int
        Size of the table in the units of the positions that ``chunks`` yields: bytes of text, otherwise rows.

    Raises
    ------
    SourceError
        If the file is missing, damaged or empty, or a cell does not fit its column; with file, line and column.
    TypeError, ValueError
        If an argument is invalid or names no column.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fastsketch.data.names import TableRows
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "people.csv")
    >>> _ = path.write_text("age,city,buys\\n31,Paris,yes\\n44,Rome,no\\n,Rome,no\\n")
    >>> table = TableRows(path, label="buys")
    >>> table.schema["columns"]
    {'age': 'numeric', 'city': 'categorical'}
    >>> for rows, labels, position in table.chunks():
    ...     print(rows, labels)
    [{'age': 31.0, 'city': 'Paris'}, {'age': 44.0, 'city': 'Rome'}, {'age': '', 'city': 'Rome'}] ['yes' 'no' 'no']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | PathLike[str] | Any,
        *,
        label: str | int | None = None,
        categorical: Iterable[str | int] = (),
        numeric: Iterable[str | int] = (),
        ignore: Iterable[str | int] = (),
        header: bool | None = None,
        separator: str | None = None,
        decimal: str = ".",
        thousands: str | None = None,
        comment: str | None = None,
        na_values: str | Sequence[str] = (),
        multiline: bool = False,
        missing: str = "feature",
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self.path: Any = Path(cast("str", path)) if isinstance(path, str | PathLike) else path
        self._header_given = header is not None
        self._dialect = as_dialect(header, separator, decimal, thousands, comment, na_values, multiline)
        self._refuse_missing_cells = as_choice(missing, "missing", ("feature", "refuse")) == "refuse"
        requested = {"categorical": categorical, "numeric": numeric, "ignore": ignore}
        columns: dict[str, Any] = {
            argument: _check_columns(entries, argument) for argument, entries in requested.items()
        }
        has_names = any(isinstance(column, str) for entries in (*columns.values(), [label]) for column in entries)
        if header is None and (has_names or schema is not None):
            self._dialect = self._dialect._replace(header=True)
        if isinstance(self.path, Path) and self.path.exists() and not (self.path.is_file() or self.path.is_dir()):
            raise SourceError(f"{path} is no regular file: rows may be read twice; save them to a file first")
        self._open_input: Table | None = None
        with open_table(self.path, self._dialect) as table:
            self.name, self.size, self.header = table.name, table.size, table.names is not None
            self._names = self._column_names_of(table)
            self._positions = {name: position for position, name in enumerate(self._names)}
            self._dialect = self._dialect._replace(header=self.header)
            target = None if label is None else self._name_of(_check_columns([label], "label")[0])
            if schema is None:
                requested_names = {argument: list(map(self._name_of, entries)) for argument, entries in columns.items()}
                kinds = self._decide_kinds(table, target, requested_names)
                label_kind = kinds.pop(target) if target is not None else None
            elif refused := [argument for argument, entries in columns.items() if entries]:
                raise ValueError(f"{refused[0]} does not go with schema, which says what each column is")
            else:
                schema_label: Any = schema["label"] if isinstance(schema, Mapping) and "label" in schema else None
                schema_label = self._name_of(schema_label) if isinstance(schema_label, int) else schema_label
                checked_schema = {**schema, "label": schema_label} if isinstance(schema, Mapping) else schema
                target = schema_label if target is None and schema_label in self._names else target
                kinds, label_kind = _kinds_of_schema(checked_schema, target)
            if self._is_standard_input():
                self._open_input = table
        self._columns = [_Column(name, self._position_of(name), kind == NUMERIC) for name, kind in kinds.items()]
        self._label = None if target is None else _Column(target, self._position_of(target), label_kind == NUMERIC)
        self.schema: dict[str, Any] = {"columns": kinds, "label": target, "label_kind": label_kind}

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[list[Named], NDArray[Any] | None, int]]":
        """Yield pieces of the table as (rows, labels, position), from row start_row on.

        Parameters
        ----------
        start_row : int, default 0

        Yields
        ------
        rows : list of dict
        labels : ndarray (n,) of float64 or of str, or None
        position : int
            How much of ``size`` has been read.

        Raises
        ------
        SourceError
            For an invalid line, with its number and column.
        """
        start_row = as_integer(start_row, "start_row", 0)
        read_columns = [*self._columns, *([] if self._label is None else [self._label])]
        numbers, texts = (
            [column.position for column in read_columns if column.numeric is kind] for kind in (True, False)
        )
        with self._reading() as table:
            table.hint = self._hint
            for frame, numbered in table.frames(numbers, texts):
                for start in range(start_row, len(frame), ROWS_AT_A_TIME):
                    block = frame.slice(start, ROWS_AT_A_TIME)

                    def line_of(row: int, start: int = start, numbered: Any = numbered) -> int:
                        return int(numbered()[start + row])

                    self._refuse_missing(table, block, line_of)
                    yield *self._rows(block), table.position()
                start_row = max(0, start_row - len(frame))

    @contextmanager
    def _reading(self) -> Generator[Table]:
        """Open the table for a ``with`` block, and yield it.

        Raise SourceError if standard input has been read before, or if the header of the file has changed.
        """
        if self._is_standard_input():
            table, self._open_input = self._open_input, None
            if table is None:
                raise SourceError("standard input can be read only once: save it to a file first")
            yield table
            return
        with open_table(self.path, self._dialect) as table:
            if self._column_names_of(table) != self._names:
                raise SourceError(f"{self.name}: the header has changed since the file was opened")
            yield table

    def line_of(self, row: int) -> int | None:
        """Return the line (from 1) of a row (from 0), or None for standard input or a table that is not text."""
        row = as_integer(row, "row", 0)
        if self._is_standard_input():
            return None
        with open_table(self.path, self._dialect) as table:  # opened again, because chunks() may be active
            for frame, numbered in table.frames([], [0]) if table.unit == "line" else ():
                if row < len(frame):
                    return int(numbered()[row])
                row -= len(frame)
        return None

    def _hint(self, column: int) -> str:
        """Return the end of an error message about a word in a numeric column."""
        name = self._names[column]
        return "" if self._label and column == self._label.position else f" ({_categorical_hint(name)})"

    def _refuse_missing(self, table: Table, frame: Any, line_of: Callable[[int], int]) -> None:
        """Raise SourceError for the first row with a missing label or, if missing="refuse", with any missing cell."""
        refused = [
            *(self._columns if self._refuse_missing_cells else ()),
            *([] if self._label is None else [self._label]),
        ]
        empty = [
            (int(cells.is_null().arg_max()), column)
            for column, cells in ((column, frame[str(column.position)]) for column in refused)
            if cells.null_count()
        ]
        for row, column in sorted(empty)[:1]:
            explanation = (
                ", the label, is empty" if column is self._label else " is empty, or stands for a missing value"
            )
            raise table.error(line_of(row), f"column {column.name!r}{explanation}")

    def _rows(self, frame: Any) -> tuple[list[Named], NDArray[Any] | None]:
        """Convert a polars data frame to (rows as dicts, array of labels or None)."""
        columns = [_values_of_column(frame[str(column.position)]) for column in self._columns]
        names = [column.name for column in self._columns]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if self._label is None:
            return rows, None
        labels = _values_of_column(frame[str(self._label.position)])
        refuse_final_nul(labels, f"{self.name}: column {self._label.name!r}, the label")
        return rows, np.array(labels)

    def _is_standard_input(self) -> bool:
        """Return True if the table is read from standard input."""
        return isinstance(self.path, Path) and str(self.path) == "-"

    # -- columns ---------------------------------------------------------------------------------------------------
    def _name_of(self, column: str | int) -> str:
        """Return the name of a column that is given by its name or its position."""
        if isinstance(column, str):
            return column
        if column >= len(self._names) and str(column) in self._names:
            return str(column)  # a year
        if not 0 <= column < len(self._names):
            raise SourceError(f"{self.name} has {len(self._names)} columns, numbered from 0: {column} is none of them")
        return self._names[column]

    def _position_of(self, name: str) -> int:
        """Return the position of a column. SourceError if there is no such column."""
        if name not in self._positions:
            hint = "" if len(self._names) > 1 else f" ({SEPARATOR_HINT})"
            raise SourceError(f"{self.name} has no column {name!r}: it has {_list_names(self._names)}{hint}")
        return self._positions[name]

    def _column_names_of(self, table: Table) -> list[str]:
        """Return the column names of an open table, made unique; without a header they are numbered.

        SourceError if the table is empty, or if a name is a number, so that the first line is probably no header.
        """
        if not table.width:
            raise SourceError(f"{table.name} holds no rows")
        numbers = [name for name in table.names or () if kind_of(name) == NUMBER]
        if numbers and table.unit == "line" and not (self._header_given or table.numbered):
            hint = "is there no header? (--set header=no, header=False)"
            raise table.error(table.begins, f"a column is called {numbers[0]!r}: {hint}")
        location = table.name if table.begins < 0 else f"{table.name}, line {table.begins}"
        return list(unique_names(table.names or [""] * table.width, location))

    def _decide_kinds(self, table: Table, label: str | None, requested_names: dict[str, list[str]]) -> dict[str, str]:
        """Decide whether each column is numeric or categorical. Return {name: kind} of the columns to read.

        `requested_names` has the names of the arguments categorical, numeric and ignore. The label comes last. Columns
        of dates are dropped with a warning. SourceError lists the columns on which the user must decide.
        """
        for argument, names in requested_names.items():
            for name in names:
                if name not in self._positions:
                    raise ValueError(
                        f"{argument}: {self.name} has no column {name!r}: it has {_list_names(self._names)}"
                    )
        in_both = set(requested_names["categorical"]) & set(requested_names["numeric"])
        if in_both:
            raise ValueError(f"column {min(in_both)!r} stands in categorical and in numeric")
        if label is not None:
            self._position_of(label)
        if label in requested_names["ignore"]:
            raise ValueError(f"ignore: {label!r} is the column of labels")
        if not table.first:
            raise SourceError(f"{self.name} holds a header and no rows")
        kinds: dict[str, str] = {}
        problems: dict[str, str] = {}
        dates: list[str] = []
        requested_kinds = {name: kind for kind in (CATEGORICAL, NUMERIC) for name in requested_names[kind]}
        ignored = set(requested_names["ignore"])
        cells = {name: [row[position] for _, row in table.first] for name, position in self._positions.items()}
        cells |= self._late_cells(
            table, {name: cells[name] for name in cells if name not in requested_kinds and name not in ignored}
        )
        for name in [*(name for name in self._names if name != label), *([] if label is None else [label])]:
            if name in ignored:
                continue
            kinds[name] = requested_kinds.get(name) or self._kind(name, cells[name])
            if kinds[name] == DATE and name != label:
                dates.append(name)
                del kinds[name]
            elif kinds[name] not in (CATEGORICAL, NUMERIC):
                problems[name] = self._problem_message(name, table, kinds[name])
            elif name not in requested_kinds and name != label and kinds[name] == CATEGORICAL:
                self._log_distinct_texts(name, [cell.strip() for cell in cells[name]])
        if problems:
            first, *others = problems
            and_more = f"; so do {_list_names(others)}, or hold other figures" if others else ""
            raise SourceError(
                f"{problems[first]}{and_more}; --ignore {' '.join(problems)} leaves {'them' if others else 'it'} out "
                f"(ignore={list(problems)!r}), {_categorical_hint(first)}"
            )
        if dates:
            subject = "a column" if len(dates) == 1 else "columns"
            message = f"{self.name}: {subject} of dates or times, which teach a model nothing as they are, left out: "
            warn_caller(f"{message}{_list_names(dates)} (categorical={dates!r} reads words)")
        if not set(kinds) - {label}:
            raise SourceError(f"{self.name} has no column of features")
        return kinds

    def _late_cells(self, table: Table, cells: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return later cells of the columns whose first 1,000 cells are all missing, read from the table again."""
        dialect = table.dialect
        empty = [name for name, column in cells.items() if all(kind_of(cell, dialect) is None for cell in column)]
        if not empty or self._is_standard_input() or len(table.first) < DECIDING_LINES - 1:
            return {}
        column_positions = [self._positions[name] for name in empty]
        with open_table(self.path, self._dialect) as reopened:
            cells_by_position = first_cells(
                (frame for frame, _ in reopened.frames([], column_positions)), column_positions, dialect
            )
        return {name: cells_by_position[position] for name, position in zip(empty, column_positions, strict=True)}

    def _log_distinct_texts(self, name: str, cells: list[str]) -> None:
        """Log a warning if a text column has a different value in nearly every row."""
        texts = [text for text in cells if text]
        if len(texts) >= MIN_IDS and len(set(texts)) > DISTINCT_SHARE * len(texts):
            LOGGER.warning(
                "%s: column %r holds another text in nearly every row, such as %r, and as categories they teach "
                "nothing: --ignore %s leaves it out (ignore=[%r]), --categorical %s keeps it (categorical=[%r]); in "
                "Python its words can be features",
                *(self.name, name, texts[0][:40], name, name, name, name),
            )

    def _kind(self, name: str, cells: Sequence[str]) -> str:
        """Return the kind of a column: NUMERIC, CATEGORICAL, or another kind on which the user must decide.

        Other kinds are DATE, percentages and the like. NUMBER means that a few cells of a numeric column are not
        numbers, which may be mistakes.
        """
        counts = Counter(kind for kind in (kind_of(cell, self._dialect) for cell in cells) if kind is not None)
        words = counts.total() - counts[NUMBER]
        figures = (
            counts[WORD] <= MAX_MISTAKE_SHARE * counts.total() < words
        )  # numbers and figures, but hardly any words
        for kind, count in counts.items():
            if kind not in (NUMBER, WORD) and (figures or 2 * count > counts.total()):
                return kind
        if 0 < words <= MAX_MISTAKE_SHARE * counts.total():
            return NUMBER
        if words and counts[NUMBER]:
            LOGGER.info("%s: column %r holds words beside numbers, and is read as words", self.name, name)
        if words or not counts[NUMBER]:
            return CATEGORICAL
        log_id_like_columns(self.name, {name: cells}, f"--ignore {name}, ignore={[name]!r}, leaves it out")
        return NUMERIC

    def _problem_message(self, name: str, table: Table, kind: str) -> str:
        """Return the error message for a column that is neither numeric nor categorical; it quotes the first wrong
        cell.
        """
        position = self._positions[name]
        matching_cells = (
            (number, row[position]) for number, row in table.first if self._is_problem_cell(row[position], kind)
        )
        number, cell = next(matching_cells, (table.begins, ""))
        description = f"column {name!r} holds {cell.strip()[:40]!r}"
        if kind == NUMBER:
            numeric = f"--numeric {name} (numeric={[name]!r}) refuses such cells"
            return str(table.error(number, f"{description}, but numbers in most others: {numeric}"))
        return str(table.error(number, f"{description}, {kind}: {remedy(kind)}"))

    def _is_problem_cell(self, cell: str, kind: str) -> bool:
        """Return True if a cell is wrong in the given way. With kind=NUMBER a cell without a number is wrong."""
        cell_kind = kind_of(cell, self._dialect)
        return cell_kind not in (None, NUMBER) if kind == NUMBER else cell_kind == kind


def _categorical_hint(name: str) -> str:
    """Return the end of a message that says how to read a column as categories."""
    return f"--categorical {name} reads words (categorical={[name]!r})"


def _values_of_column(cells: Any) -> list[Any]:
    """Convert a polars column to a list, with "" for null."""
    values = cells.to_list()
    return ["" if value is None else value for value in values] if cells.null_count() else values


def _check_columns(columns: Iterable[str | int], argument: str) -> list[str | int]:
    """Validate the columns that an argument names, and return them as a list. TypeError for other values."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        hint = f": [{columns!r}] is one" if isinstance(columns, str) else ""
        raise TypeError(f"{argument} must be a sequence of names, got {columns!r}{hint}")
    listed = list(columns)
    for column in listed:
        if not isinstance(column, str | int) or isinstance(column, bool):
            raise TypeError(f"{argument} must be columns by name, or number from 0, got {column!r}")
    return listed


def _kinds_of_schema(schema: Mapping[str, Any], label: str | None) -> tuple[dict[str, str], str | None]:
    """Validate a schema. Return ({name: kind} of the features, kind of the label).

    `label` is the column of labels to read, None for none. ValueError or TypeError if the schema is invalid.
    """
    if not isinstance(schema, Mapping):
        raise TypeError(f"schema must be that of other TableRows, a dict, got {type(schema).__name__}")
    try:
        kinds, schema_label, kind = dict(schema["columns"]), schema["label"], schema["label_kind"]
    except (TypeError, KeyError, ValueError):
        raise ValueError("schema must be that of other TableRows: columns, label, label_kind") from None
    for name, column_kind in [*kinds.items(), *([] if schema_label is None else [(schema_label, kind)])]:
        if not isinstance(name, str) or column_kind not in (NUMERIC, CATEGORICAL):
            raise ValueError(
                f"schema must say 'numeric' or 'categorical' of each column, got {name!r}: {column_kind!r}"
            )
    if label is not None and label != schema_label:
        raise ValueError(f"label={label!r} is not the label of the schema, which is {schema_label!r}")
    if not kinds:
        raise ValueError("schema must have a column")
    return kinds, None if label is None else kind


def _list_names(names: list[str]) -> str:
    """Format at most 20 column names for a message."""
    return ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
