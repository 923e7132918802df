"""Rows of a table in text as rows with names: numbers by their column, words as "column=word"."""

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_choice, as_integer
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import (
    LOGGER,
    MANY,
    MISSING,
    MISTAKES,
    NUMBER,
    UNDIVIDED,
    WORD,
    Cells,
    Row,
    as_dialect,
    as_number,
    kind_of,
    remedy,
    say_ids,
)
from fastsketch.data.names._cells import open_cells

ROWS_AT_A_TIME = 4096

# Characters of numbers, of many cells at once.
_OF_NUMBERS = re.compile(r"[0-9.eE+\- \t\n]*").fullmatch

NUMERIC, CATEGORICAL = "numeric", "categorical"
# Share of the texts of a column that are different where none is a category that comes again.
DIFFERENT = 0.9
Named = dict[str, float | str]


class _Column(NamedTuple):
    """A column that is read."""

    name: str
    place: int  # in the line
    numeric: bool


class TableRows:
    """Rows of a table with words as dicts, one piece after another in constant memory.

    UTF-8 text (.gz, .bz2, .xz too), as ``fs.open_rows`` reads it; files of Parquet and Arrow (extra: arrow), and data
    frames. A cell of a numeric column is its number, of a categorical column its word, without the blanks around it:
    {"age": 39.0, "city": "Paris"}, which models read as the features "age" and "city=Paris".

    A column is numeric if the first 1,000 rows have numbers in it and nothing else but empty cells (or NA, n/a, NaN,
    null, none, ?, in letters of any case); it is categorical if more than one in twenty of its other cells are no
    numbers, or none is there. In between it may be either: that is an error which names a cell. So are columns of
    dates, times, percentages and amounts of money that nobody has called categorical.

    Parameters
    ----------
    path : str, path or data frame
        "-" is standard input, which can be read once.
    label : str or int, optional
        The column of labels, by name or number from 0. If not given, it is that of `schema` where the table has such a
        column, and else there are none.
    categorical, numeric, ignore : sequences of str or int
        Columns that are so whatever they hold, and columns that are not read.
    header : bool, optional
        Whether the first line has the names of the columns; by default it has where a name is given above, and else
        where a word in it stands above numbers or dates: where nothing tells, that is an error. A column without a
        name, and all columns without a header, are called by their numbers: "1", "2", ...
    separator : str, optional
        What divides columns of text: by default tabs, semicolons or commas, as the first lines have them.
    decimal : {".", ","}, default "."
        The decimal point of text.
    missing : {"feature", "refuse"}, default "feature"
        What an empty cell becomes: the word "", of numeric columns too, so that a model has a weight for it; or an
        error. Of a label it is always an error.
    schema : dict, optional
        That of other TableRows, which says what each column is in place of the first rows, and which one the labels
        are: for more rows of one table, or rows to be predicted. Other columns are not read.
        ``{**schema, "label": None}`` reads no labels, as where their cells are empty.

    Attributes
    ----------
    schema : dict
        "columns": {name: "numeric" or "categorical"}, "label": name or None, "label_kind": one of these two or None;
        as json can write it.
    header : bool
        Whether there is one.
    size : int
        Of the table, in the units of the positions that ``chunks`` gives: bytes of text, else rows.

    Raises
    ------
    SourceError
        If the file is missing, damaged or empty, or a cell is not what its column says: with file, line and column.
    TypeError, ValueError
        If an argument is none of these, or names no column.

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
        missing: str = "feature",
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self.path: Any = Path(cast("str", path)) if isinstance(path, str | PathLike) else path
        self._dialect, self._said = as_dialect(header, separator, decimal), header is not None
        self._refuses = as_choice(missing, "missing", ("feature", "refuse")) == "refuse"
        asked = {"categorical": categorical, "numeric": numeric, "ignore": ignore}
        columns: dict[str, Any] = {argument: _columns(some, argument) for argument, some in asked.items()}
        named = any(isinstance(column, str) for some in (*columns.values(), [label]) for column in some)
        if header is None and (named or schema is not None):
            self._dialect = self._dialect._replace(header=True)
        if isinstance(self.path, Path) and self.path.exists() and not (self.path.is_file() or self.path.is_dir()):
            raise SourceError(f"{path} is no regular file: rows may be read twice; save them to a file first")
        self._once: Cells | None = None
        with open_cells(self.path, self._dialect) as cells:
            self.name, self.size, self.header = cells.name, cells.size, cells.names is not None
            self._names = self._names_in(cells)
            self._dialect = self._dialect._replace(header=self.header)
            target = None if label is None else self._name_of(_columns([label], "label")[0])
            if schema is None:
                given = {argument: list(map(self._name_of, some)) for argument, some in columns.items()}
                kinds = self._decide(cells, target, given)
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
                self._once = cells
        self._columns = [_Column(name, self._place(name), kind == NUMERIC) for name, kind in kinds.items()]
        self._label = None if target is None else _Column(target, self._place(target), label_kind == NUMERIC)
        self.schema: dict[str, Any] = {"columns": kinds, "label": target, "label_kind": label_kind}

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[list[Named], NDArray[Any] | None, int]]":
        """Yield the rows from start_row on in pieces, as (rows, labels, position).

        Parameters
        ----------
        start_row : int, default 0

        Yields
        ------
        rows : list of dict
        labels : ndarray (n,) of float64 or of str, or None
        position : int
            Bytes of the file that have been read.

        Raises
        ------
        SourceError
            For a line that does not fit, with its number and column.
        """
        start_row = as_integer(start_row, "start_row", 0)
        with self._reading() as cells:
            rest = islice(cells, start_row, None)
            while held := list(islice(rest, ROWS_AT_A_TIME)):
                yield *(self._at_once(held) or self._one_by_one(held, cells)), cells.position()

    @contextmanager
    def _reading(self) -> Generator[Cells]:
        """Yield the rows from the first on; those of standard input once."""
        if self._is_input():
            cells, self._once = self._once, None
            if cells is None:
                raise SourceError("standard input can be read only once: save it to a file first")
            yield cells
            return
        with open_cells(self.path, self._dialect) as cells:
            if self._names_in(cells) != self._names:
                raise SourceError(f"{self.name}: the header has changed since the file was opened")
            yield cells

    def line_of(self, row: int) -> int | None:
        """Return the line of a row, both counted as messages count them.

        Rows from 0, lines from 1; None if it has none.
        """
        if self._is_input():
            return None
        with open_cells(self.path, self._dialect) as cells:  # another reading of it may be on its way
            return next((number for number, _ in islice(cells, row, None)), None) if cells.unit == "line" else None

    def _at_once(self, lines: list[Row]) -> tuple[list[Named], NDArray[Any] | None] | None:
        """Return (rows, labels), column by column; None if a number is missing, or a cell is to be refused."""
        cells = list(zip(*[fields for _, fields in lines], strict=True))
        columns = [
            _as_column(cells[place], self._dialect.decimal if numeric else "") for _, place, numeric in self._columns
        ]
        label = self._label
        labels = (
            None if label is None else _as_column(cells[label.place], self._dialect.decimal if label.numeric else "")
        )
        refused = None in columns or (self._refuses and any("" in column for column in columns if column))
        if refused or (label is not None and (labels is None or "" in labels)):
            return None
        names = [column.name for column in self._columns]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*cast("Any", columns), strict=True)]
        return rows, None if labels is None else np.array(labels)

    def _one_by_one(self, lines: list[Row], of: Cells) -> tuple[list[Named], NDArray[Any] | None]:
        """Return (rows, labels), line by line, so that the first one that is refused is named."""
        rows: list[Named] = []
        labels: list[float | str] = []
        for number, fields in lines:
            try:
                rows.append(self._row(fields))
                if self._label is not None:
                    labels.append(_label(self._label, fields[self._label.place], of.decimal))
            except ValueError as error:
                raise of.error(number, error) from None
        return rows, None if self._label is None else np.array(labels)

    def _row(self, fields: list[str]) -> Named:
        row: Named = {}
        for name, place, numeric in self._columns:
            text = fields[place].strip()
            if not numeric:
                if not text and self._refuses:
                    raise ValueError(f"column {name!r} is empty")
                row[name] = text
                continue
            try:
                row[name] = as_number(text, self._dialect.decimal)
            except ValueError as error:
                if text.lower() not in MISSING:
                    hint = f"--categorical {name}, categorical={[name]!r}, reads words"
                    raise ValueError(f"column {name!r}: {error} ({hint})") from None
                if self._refuses:
                    raise ValueError(f"column {name!r} is {'empty' if not text else repr(text)}") from None
                row[name] = ""
        return row

    def _is_input(self) -> bool:
        return isinstance(self.path, Path) and str(self.path) == "-"

    # -- columns ---------------------------------------------------------------------------------------------------
    def _name_of(self, column: str | int) -> str:
        """Return the name of a column that is given by its name, or by its number from 0."""
        if isinstance(column, str):
            return column
        if column >= len(self._names) and str(column) in self._names:
            return str(column)  # a year
        if not 0 <= column < len(self._names):
            raise SourceError(f"{self.name} has {len(self._names)} columns, numbered from 0: {column} is none of them")
        return self._names[column]

    def _place(self, name: str) -> int:
        if name not in self._names:
            divided = "" if len(self._names) > 1 else f" ({UNDIVIDED})"
            raise SourceError(f"{self.name} has no column {name!r}: it has {_listed(self._names)}{divided}")
        return self._names.index(name)

    def _names_in(self, cells: Cells) -> list[str]:
        if not cells.width:
            raise SourceError(f"{cells.name} holds no rows")
        names = [name or str(place) for place, name in enumerate(cells.names or [""] * cells.width, 1)]
        for place, name in enumerate(cells.names or (), 1):
            if not self._said and cells.unit == "line" and kind_of(name) == NUMBER:
                hint = "is there no header? (--set header=no, header=False)"
                raise cells.error(cells.begins, f"column {place} is called {name!r}: {hint}")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise cells.error(cells.begins, f"two columns are called {twice!r}: rename one of them")
        return names

    def _decide(self, cells: Cells, label: str | None, given: dict[str, list[str]]) -> dict[str, str]:
        """Return {name: kind} of all columns that are read, the label last."""
        for argument, names in given.items():
            for name in names:
                if name not in self._names:
                    raise ValueError(f"{argument}: {self.name} has no column {name!r}: it has {_listed(self._names)}")
        both = set(given["categorical"]) & set(given["numeric"])
        if both:
            raise ValueError(f"column {min(both)!r} stands in categorical and in numeric")
        if label is not None:
            self._place(label)
        if label in given["ignore"]:
            raise ValueError(f"ignore: {label!r} is the column of labels")
        if not cells.first:
            raise SourceError(f"{self.name} holds a header and no rows")
        last = [] if label is None else [label]
        wanted = [name for name in self._names if name not in given["ignore"] and name != label]
        if not wanted:
            raise SourceError(f"{self.name} has no column of features")
        kinds = {name: self._kind(name, cells, given) for name in (*wanted, *last)}
        for name in wanted:
            if kinds[name] == CATEGORICAL and name not in given["categorical"]:
                self._say_texts(name, [fields[self._names.index(name)].strip() for _, fields in cells.first])
        return kinds

    def _say_texts(self, name: str, cells: list[str]) -> None:
        """Warn of a column of texts which are no categories: nearly every row has another one."""
        texts = [text for text in cells if text]
        if len(texts) >= MANY and len(set(texts)) > DIFFERENT * len(texts):
            LOGGER.warning(
                "%s: column %r holds another text in nearly every row, such as %r, and as categories they teach "
                "nothing: --ignore %s leaves it out (ignore=[%r]), --categorical %s keeps it (categorical=[%r]); in "
                "Python its words can be features",
                *(self.name, name, texts[0][:40], name, name, name, name),
            )

    def _kind(self, name: str, cells: Cells, given: dict[str, list[str]]) -> str:
        for kind in (CATEGORICAL, NUMERIC):
            if name in given[kind]:
                return kind
        place = self._names.index(name)
        column = [fields[place] for _, fields in cells.first]
        kinds = (
            [kind_of(cell, cells.decimal) for cell in column] if _as_column(column, cells.decimal) is None else [NUMBER]
        )
        counts = Counter(filter(None, kinds))
        words = counts.total() - counts[NUMBER]
        figures = counts[WORD] <= MISTAKES * counts.total() < words  # some numbers are written in another way
        for kind, count in counts.items():
            if kind not in (NUMBER, WORD) and (figures or 2 * count > counts.total()):
                number, fields = cells.first[kinds.index(kind)]
                raise cells.error(
                    number,
                    f"column {name!r} holds {fields[place].strip()[:40]!r}, {kind}: {remedy(kind)}; --ignore {name} "
                    f"leaves it out (ignore={[name]!r}), --categorical {name} reads words (categorical={[name]!r})",
                )
        if 0 < words <= MISTAKES * counts.total():
            number, fields = next(
                row for row, kind in zip(cells.first, kinds, strict=True) if kind not in (None, NUMBER)
            )
            raise cells.error(
                number,
                f"column {name!r} holds {fields[place].strip()[:40]!r}, but numbers in most others: say which "
                f"it is, --numeric {name} or --categorical {name} (numeric={[name]!r}, categorical={[name]!r})",
            )
        if words and counts[NUMBER]:
            LOGGER.info("%s: column %r holds words beside numbers, and is read as words", self.name, name)
        if words or not counts[NUMBER]:
            return CATEGORICAL
        say_ids(self.name, {name: column}, f"--ignore {name}, ignore={[name]!r}, leaves it out")
        return NUMERIC


def _columns(columns: Iterable[str | int], argument: str) -> list[str | int]:
    """Return columns as a list; TypeError unless they are names or numbers."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        hint = f": [{columns!r}] is one" if isinstance(columns, str) else ""
        raise TypeError(f"{argument} must be a sequence of names, got {columns!r}{hint}")
    listed = list(columns)
    for column in listed:
        if not isinstance(column, str | int) or isinstance(column, bool):
            raise TypeError(f"{argument} must be columns by name, or number from 0, got {column!r}")
    return listed


def _as_column(cells: Sequence[str], decimal: str) -> list[float] | list[str] | None:
    """Return cells as numbers, None if one has to be looked at by itself; as words where there is no decimal point."""
    if not decimal:
        return [text.strip() for text in cells]
    # of these characters float() reads what as_number does, and no word
    if decimal != "." or not _OF_NUMBERS("\n".join(cells)):
        return None
    try:
        numbers = list(map(float, cells))
    except ValueError:
        return None
    return numbers if all(map(isfinite, numbers)) else None


def _of_schema(schema: Mapping[str, Any], label: str | None) -> tuple[dict[str, str], str | None]:
    """Return ({name: kind} of the features, kind of the label)."""
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


def _label(column: _Column, cell: str, decimal: str) -> float | str:
    text = cell.strip()
    if not text:
        raise ValueError(f"column {column.name!r}, the label, is empty")
    if not column.numeric:
        return text
    try:
        return as_number(text, decimal)
    except ValueError as error:
        raise ValueError(f"column {column.name!r}, the label: {error}") from None


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
