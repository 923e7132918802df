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
    MANY,
    MISTAKES,
    NUMBER,
    UNDIVIDED,
    WORD,
    as_dialect,
    kind_of,
    remedy,
    say_ids,
)
from fastsketch.data.names._tables import Table, open_table
from fastsketch.data.sources._column_names import unique_names
from fastsketch.data.sources._csv import first_cells

ROWS_AT_A_TIME = 4096

NUMERIC, CATEGORICAL = "numeric", "categorical"
# A text column with a larger share of distinct values is reported, since its values are hardly categories.
DIFFERENT = 0.9
Named = dict[str, float | str]


class _Column(NamedTuple):
    """A column that is read: its name, its position and whether it is numeric."""

    name: str
    place: int  # position of the column
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
        self._said = header is not None
        self._dialect = as_dialect(header, separator, decimal, thousands, comment, na_values, multiline)
        self._refuses = as_choice(missing, "missing", ("feature", "refuse")) == "refuse"
        asked = {"categorical": categorical, "numeric": numeric, "ignore": ignore}
        columns: dict[str, Any] = {argument: _columns(some, argument) for argument, some in asked.items()}
        named = any(isinstance(column, str) for some in (*columns.values(), [label]) for column in some)
        if header is None and (named or schema is not None):
            self._dialect = self._dialect._replace(header=True)
        if isinstance(self.path, Path) and self.path.exists() and not (self.path.is_file() or self.path.is_dir()):
            raise SourceError(f"{path} is no regular file: rows may be read twice; save them to a file first")
        self._once: Table | None = None
        with open_table(self.path, self._dialect) as table:
            self.name, self.size, self.header = table.name, table.size, table.names is not None
            self._names = self._names_in(table)
            self._places = {name: place for place, name in enumerate(self._names)}
            self._dialect = self._dialect._replace(header=self.header)
            target = None if label is None else self._name_of(_columns([label], "label")[0])
            if schema is None:
                given = {argument: list(map(self._name_of, some)) for argument, some in columns.items()}
                kinds = self._decide(table, target, given)
                label_kind = kinds.pop(target) if target is not None else None
            elif refused := [argument for argument, some in columns.items() if some]:
                raise ValueError(f"{refused[0]} does not go with schema, which says what each column is")
            else:
                known: Any = schema["label"] if isinstance(schema, Mapping) and "label" in schema else None
                known = self._name_of(known) if isinstance(known, int) else known
                stated = {**schema, "label": known} if isinstance(schema, Mapping) else schema
                target = known if target is None and known in self._names else target
                kinds, label_kind = _of_schema(stated, target)
            if self._is_input():
                self._once = table
        self._columns = [_Column(name, self._place(name), kind == NUMERIC) for name, kind in kinds.items()]
        self._label = None if target is None else _Column(target, self._place(target), label_kind == NUMERIC)
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
        read = [*self._columns, *([] if self._label is None else [self._label])]
        numbers, texts = ([column.place for column in read if column.numeric is kind] for kind in (True, False))
        with self._reading() as table:
            table.hint = self._hint
            for frame, numbered in table.frames(numbers, texts):
                for first in range(start_row, len(frame), ROWS_AT_A_TIME):
                    some = frame.slice(first, ROWS_AT_A_TIME)

                    def line_of(row: int, first: int = first, numbered: Any = numbered) -> int:
                        return int(numbered()[first + row])

                    self._refuse_missing(table, some, line_of)
                    yield *self._rows(some), table.position()
                start_row = max(0, start_row - len(frame))

    @contextmanager
    def _reading(self) -> Generator[Table]:
        """Open the table and yield it.

        Raise SourceError if standard input has been read before, or if the header of the file has changed.
        """
        if self._is_input():
            table, self._once = self._once, None
            if table is None:
                raise SourceError("standard input can be read only once: save it to a file first")
            yield table
            return
        with open_table(self.path, self._dialect) as table:
            if self._names_in(table) != self._names:
                raise SourceError(f"{self.name}: the header has changed since the file was opened")
            yield table

    def line_of(self, row: int) -> int | None:
        """Return the line (from 1) of a row (from 0), or None for standard input or a table that is not text."""
        row = as_integer(row, "row", 0)
        if self._is_input():
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
        return "" if self._label and column == self._label.place else f" ({_as_words(name)})"

    def _refuse_missing(self, table: Table, frame: Any, number: Callable[[int], int]) -> None:
        """Raise SourceError for the first row with a missing label or, if missing="refuse", with any missing cell."""
        refused = [*(self._columns if self._refuses else ()), *([] if self._label is None else [self._label])]
        empty = [
            (int(cells.is_null().arg_max()), column)
            for column, cells in ((column, frame[str(column.place)]) for column in refused)
            if cells.null_count()
        ]
        for row, column in sorted(empty)[:1]:
            what = ", the label, is empty" if column is self._label else " is empty, or stands for a missing value"
            raise table.error(number(row), f"column {column.name!r}{what}")

    def _rows(self, frame: Any) -> tuple[list[Named], NDArray[Any] | None]:
        """Convert a polars data frame to (rows as dicts, array of labels or None)."""
        columns = [_values(frame[str(column.place)]) for column in self._columns]
        names = [column.name for column in self._columns]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if self._label is None:
            return rows, None
        labels = _values(frame[str(self._label.place)])
        refuse_final_nul(labels, f"{self.name}: column {self._label.name!r}, the label")
        return rows, np.array(labels)

    def _is_input(self) -> bool:
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

    def _place(self, name: str) -> int:
        if name not in self._places:
            divided = "" if len(self._names) > 1 else f" ({UNDIVIDED})"
            raise SourceError(f"{self.name} has no column {name!r}: it has {_listed(self._names)}{divided}")
        return self._places[name]

    def _names_in(self, table: Table) -> list[str]:
        if not table.width:
            raise SourceError(f"{table.name} holds no rows")
        numbers = [name for name in table.names or () if kind_of(name) == NUMBER]
        if numbers and table.unit == "line" and not (self._said or table.numbered):
            hint = "is there no header? (--set header=no, header=False)"
            raise table.error(table.begins, f"a column is called {numbers[0]!r}: {hint}")
        where = table.name if table.begins < 0 else f"{table.name}, line {table.begins}"
        return list(unique_names(table.names or [""] * table.width, where))

    def _decide(self, table: Table, label: str | None, given: dict[str, list[str]]) -> dict[str, str]:
        """Decide whether each column is numeric or categorical; return {name: kind} of the columns to read, the label
        last.
        """
        for argument, names in given.items():
            for name in names:
                if name not in self._places:
                    raise ValueError(f"{argument}: {self.name} has no column {name!r}: it has {_listed(self._names)}")
        both = set(given["categorical"]) & set(given["numeric"])
        if both:
            raise ValueError(f"column {min(both)!r} stands in categorical and in numeric")
        if label is not None:
            self._place(label)
        if label in given["ignore"]:
            raise ValueError(f"ignore: {label!r} is the column of labels")
        if not table.first:
            raise SourceError(f"{self.name} holds a header and no rows")
        kinds: dict[str, str] = {}
        problems: dict[str, str] = {}
        dates: list[str] = []
        asked = {name: kind for kind in (CATEGORICAL, NUMERIC) for name in given[kind]}
        ignored = set(given["ignore"])
        cells = {name: [row[place] for _, row in table.first] for name, place in self._places.items()}
        cells |= self._late_cells(
            table, {name: cells[name] for name in cells if name not in asked and name not in ignored}
        )
        for name in [*(name for name in self._names if name != label), *([] if label is None else [label])]:
            if name in ignored:
                continue
            kinds[name] = asked.get(name) or self._kind(name, cells[name])
            if kinds[name] == DATE and name != label:
                dates.append(name)
                del kinds[name]
            elif kinds[name] not in (CATEGORICAL, NUMERIC):
                problems[name] = self._problem(name, table, kinds[name])
            elif name not in asked and name != label and kinds[name] == CATEGORICAL:
                self._say_texts(name, [cell.strip() for cell in cells[name]])
        if problems:
            first, *others = problems
            more = f"; so do {_listed(others)}, or hold other figures" if others else ""
            raise SourceError(
                f"{problems[first]}{more}; --ignore {' '.join(problems)} leaves {'them' if others else 'it'} out "
                f"(ignore={list(problems)!r}), {_as_words(first)}"
            )
        if dates:
            what = "a column" if len(dates) == 1 else "columns"
            said = f"{self.name}: {what} of dates or times, which teach a model nothing as they are, left out: "
            warn_caller(f"{said}{_listed(dates)} (categorical={dates!r} reads words)")
        if not set(kinds) - {label}:
            raise SourceError(f"{self.name} has no column of features")
        return kinds

    def _late_cells(self, table: Table, cells: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return later cells of the columns whose first 1,000 cells are all missing, read from the table again."""
        dialect = table.dialect
        empty = [name for name, column in cells.items() if all(kind_of(cell, dialect) is None for cell in column)]
        if not empty or self._is_input() or len(table.first) < DECIDING_LINES - 1:
            return {}
        places = [self._places[name] for name in empty]
        with open_table(self.path, self._dialect) as again:
            found = first_cells((frame for frame, _ in again.frames([], places)), places, dialect)
        return {name: found[place] for name, place in zip(empty, places, strict=True)}

    def _say_texts(self, name: str, cells: list[str]) -> None:
        """Log a warning if a text column has a different value in nearly every row."""
        texts = [text for text in cells if text]
        if len(texts) >= MANY and len(set(texts)) > DIFFERENT * len(texts):
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
        figures = counts[WORD] <= MISTAKES * counts.total() < words  # numbers and figures, but hardly any words
        for kind, count in counts.items():
            if kind not in (NUMBER, WORD) and (figures or 2 * count > counts.total()):
                return kind
        if 0 < words <= MISTAKES * counts.total():
            return NUMBER
        if words and counts[NUMBER]:
            LOGGER.info("%s: column %r holds words beside numbers, and is read as words", self.name, name)
        if words or not counts[NUMBER]:
            return CATEGORICAL
        say_ids(self.name, {name: cells}, f"--ignore {name}, ignore={[name]!r}, leaves it out")
        return NUMERIC

    def _problem(self, name: str, table: Table, kind: str) -> str:
        """Return the error message for a column of a kind that needs a decision, quoting the first such cell."""
        place = self._places[name]
        odd = ((number, row[place]) for number, row in table.first if self._shows(row[place], kind))
        number, cell = next(odd, (table.begins, ""))
        said = f"column {name!r} holds {cell.strip()[:40]!r}"
        if kind == NUMBER:
            numeric = f"--numeric {name} (numeric={[name]!r}) refuses such cells"
            return str(table.error(number, f"{said}, but numbers in most others: {numeric}"))
        return str(table.error(number, f"{said}, {kind}: {remedy(kind)}"))

    def _shows(self, cell: str, kind: str) -> bool:
        found = kind_of(cell, self._dialect)
        return found not in (None, NUMBER) if kind == NUMBER else found == kind


def _as_words(name: str) -> str:
    return f"--categorical {name} reads words (categorical={[name]!r})"


def _values(cells: Any) -> list[Any]:
    """Convert a polars column to a list, with "" for null."""
    values = cells.to_list()
    return ["" if value is None else value for value in values] if cells.null_count() else values


def _columns(columns: Iterable[str | int], argument: str) -> list[str | int]:
    """Return column names or positions as a list. Raise TypeError for other values."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        hint = f": [{columns!r}] is one" if isinstance(columns, str) else ""
        raise TypeError(f"{argument} must be a sequence of names, got {columns!r}{hint}")
    listed = list(columns)
    for column in listed:
        if not isinstance(column, str | int) or isinstance(column, bool):
            raise TypeError(f"{argument} must be columns by name, or number from 0, got {column!r}")
    return listed


def _of_schema(schema: Mapping[str, Any], label: str | None) -> tuple[dict[str, str], str | None]:
    """Return ({name: kind} of the features, kind of the label) from a schema. Raise ValueError if the schema is
    invalid.
    """
    if not isinstance(schema, Mapping):
        raise TypeError(f"schema must be that of other TableRows, a dict, got {type(schema).__name__}")
    try:
        kinds, known, kind = dict(schema["columns"]), schema["label"], schema["label_kind"]
    except (TypeError, KeyError, ValueError):
        raise ValueError("schema must be that of other TableRows: columns, label, label_kind") from None
    for name, stated in [*kinds.items(), *([] if known is None else [(known, kind)])]:
        if not isinstance(name, str) or stated not in (NUMERIC, CATEGORICAL):
            raise ValueError(f"schema must say 'numeric' or 'categorical' of each column, got {name!r}: {stated!r}")
    if label is not None and label != known:
        raise ValueError(f"label={label!r} is not the label of the schema, which is {known!r}")
    if not kinds:
        raise ValueError("schema must have a column")
    return kinds, None if label is None else kind


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
