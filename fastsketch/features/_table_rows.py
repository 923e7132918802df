"""Rows of a table in text as rows with names: numbers by their column, words as "column=word"."""

import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._validation import as_choice, as_flag, as_integer
from fastsketch.io._input import InputFile, SourceError
from fastsketch.io._table import as_number, at_line, records

# Rows that decide whether a column is one of numbers.
DECIDING_ROWS = 1000
# Of a column's cells, the share that may be words in a column of numbers by mistake: whether it is one is asked.
MISTAKES = 0.05
ROWS_AT_A_TIME = 4096
# What stands for a number that is not there.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})

# Characters of numbers, of many cells at once.
_OF_NUMBERS = re.compile(r"[0-9.eE+\- \t\n]*").fullmatch

NUMERIC, CATEGORICAL = "numeric", "categorical"
Named = dict[str, float | str]
# (number of a line, its cells)
Line = tuple[int, list[str]]


class _Column(NamedTuple):
    """A column that is read."""

    name: str
    place: int  # in the line
    numeric: bool


class TableRows:
    """Rows of a csv file as dicts, one piece after another in constant memory.

    UTF-8 text (.gz, .bz2, .xz too) with tabs, semicolons or commas between columns as the first line has them; quotes
    as fastsketch.io reads them. A cell of a numeric column is its number, of a categorical column its word, without the
    blanks around it: {"age": 39.0, "city": "Paris"}, which models read as the features "age" and "city=Paris".

    A column is numeric if the first 1,000 rows have numbers in it and nothing else but empty cells (or NA, n/a, NaN,
    null, none, ?, in letters of any case); it is categorical if more than one in twenty of its other cells are no
    numbers, or none is there. In between it may be either: that is an error which names a cell.

    Parameters
    ----------
    path : str or path
        "-" is standard input, which can be read once.
    label : str, optional
        The column of labels; without it there are none.
    categorical, numeric, ignore : sequences of str
        Columns that are so whatever they hold, and columns that are not read.
    header : bool, default True
        Whether the first line has the names of the columns. A column without a name, and all columns without a header,
        are called by their numbers: "1", "2", ...
    missing : {"feature", "refuse"}, default "feature"
        What an empty cell becomes: the word "", of numeric columns too, so that a model has a weight for it; or an
        error. Of a label it is always an error.
    schema : dict, optional
        That of other TableRows, which says what each column is in place of the first rows: for more rows of one
        table, or rows to be predicted. Other columns are not read.

    Attributes
    ----------
    schema : dict
        "columns": {name: "numeric" or "categorical"}, "label": name or None, "label_kind": one of these two or None;
        as json can write it.
    size : int
        Of the file, in the units of the positions that ``chunks`` gives: bytes.

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
    >>> from fastsketch.features import TableRows
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
        path: str | PathLike[str],
        *,
        label: str | None = None,
        categorical: Iterable[str] = (),
        numeric: Iterable[str] = (),
        ignore: Iterable[str] = (),
        header: bool = True,
        missing: str = "feature",
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self._header = as_flag(header, "header")
        self._refuses = as_choice(missing, "missing", ("feature", "refuse")) == "refuse"
        if label is not None and not isinstance(label, str):
            raise TypeError(f"label must be the name of a column, got {label!r}")
        given = {"categorical": _names(categorical, "categorical"), "numeric": _names(numeric, "numeric")}
        given["ignore"] = _names(ignore, "ignore")
        self.size = 0 if self._is_input() else _size(self.path)
        self._file: InputFile | None = None  # while it is read
        self._begun, self._read = False, 0
        self._names: list[str] = []
        lines = self._lines()
        first = list(islice(lines, DECIDING_ROWS))
        if not self._names:
            raise SourceError(f"{self.path} holds no rows")
        self._once = _chained(first, lines) if self._is_input() else None
        if not self._is_input():
            lines.close()
        if schema is None:
            kinds = self._decide(first, label, given)
            label_kind = kinds.pop(label) if label is not None else None
        else:
            _must_be_empty(given)
            kinds, label_kind = _of_schema(schema, label)
        self._columns = [_Column(name, self._place(name), kind == NUMERIC) for name, kind in kinds.items()]
        self._label = None if label is None else _Column(label, self._place(label), label_kind == NUMERIC)
        self.schema: dict[str, Any] = {"columns": kinds, "label": label, "label_kind": label_kind}

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[list[Named], NDArray[Any] | None, int]]":
        """The rows from start_row on in pieces, as (rows, labels, position).

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
        lines, self._once = self._once or self._lines(), None
        rest = islice(lines, start_row, None)
        try:
            while held := list(islice(rest, ROWS_AT_A_TIME)):
                rows = self._at_once(held) or self._one_by_one(held)
                yield rows, self._labels(held), self._position()
        finally:
            lines.close()

    def line_of(self, row: int) -> int | None:
        """The line of a row, both counted as messages count them: rows from 0, lines from 1; None of standard input."""
        if self._is_input():
            return None
        with InputFile(self.path) as file:  # another reading of it may be on its way
            return next((number for number, _ in islice(records(file, 1, lambda _: self._header), row, None)), None)

    def _at_once(self, lines: list[Line]) -> list[Named] | None:
        """The rows column by column; None if a number is missing, or a cell is to be refused."""
        cells = list(zip(*(fields for _, fields in lines), strict=True))
        columns: list[list[float] | list[str]] = []
        for _, place, numeric in self._columns:
            if numeric:
                # of these characters float() reads what as_number does, and no word
                if not _OF_NUMBERS("\n".join(cells[place])):
                    return None
                try:
                    numbers = list(map(float, cells[place]))
                except ValueError:
                    return None
                if not all(map(isfinite, numbers)):
                    return None
                columns.append(numbers)
            else:
                words = [text.strip() for text in cells[place]]
                if self._refuses and "" in words:
                    return None
                columns.append(words)
        names = [column.name for column in self._columns]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _one_by_one(self, lines: list[Line]) -> list[Named]:
        """The rows line by line, so that the first one that is refused is named."""
        rows: list[Named] = []
        for number, fields in lines:
            try:
                rows.append(self._row(fields))
                if self._label is not None:
                    _label(self._label, fields[self._label.place])
            except ValueError as error:
                raise SourceError(f"{self.path}, line {number}: {error}") from None
        return rows

    def _labels(self, lines: list[Line]) -> NDArray[Any] | None:
        if self._label is None:
            return None
        labels: list[float | str] = []
        for number, fields in lines:
            try:
                labels.append(_label(self._label, fields[self._label.place]))
            except ValueError as error:
                raise SourceError(f"{self.path}, line {number}: {error}") from None
        return np.array(labels, np.float64 if self._label.numeric else np.str_)

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
                row[name] = as_number(text)
            except ValueError as error:
                if text.lower() not in MISSING:
                    raise ValueError(f"column {name!r}: {error} (categorical={[name]!r} reads words)") from None
                if self._refuses:
                    raise ValueError(f"column {name!r} is {'empty' if not text else repr(text)}") from None
                row[name] = ""
        return row

    # -- lines -----------------------------------------------------------------------------------------------------
    def _is_input(self) -> bool:
        return str(self.path) == "-"

    def _position(self) -> int:
        return self._read if self._file is None else self._file.place

    def _lines(self) -> Generator[Line]:
        """The lines but for the header."""
        if self._is_input() and self._begun:
            raise SourceError("standard input can be read only once: save it to a file first")
        self._begun = True
        with InputFile(self.path, sys.stdin.buffer if self._is_input() else None) as self._file:
            try:
                yield from records(self._file, 1, self._takes_header(self._file))
            finally:
                self._read = self._position()
                self._file = None

    def _takes_header(self, file: InputFile) -> Callable[[list[str]], bool]:
        def takes(first: list[str]) -> bool:
            names = [field.strip() for field in first] if self._header else [""] * len(first)
            for place, name in enumerate(names):
                if self._header and _is_number(name):
                    raise ValueError(f"column {place + 1} is called {name!r}: is there no header? (header=False)")
            names = [name or str(place + 1) for place, name in enumerate(names)]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"two columns are called {twice!r}")
            if self._names and names != self._names:
                raise at_line(file, 1, ValueError("the header has changed since the file was opened"))
            self._names = names
            return self._header

        return takes

    # -- columns ---------------------------------------------------------------------------------------------------
    def _place(self, name: str) -> int:
        if name not in self._names:
            raise SourceError(f"{self.path} has no column {name!r}: it has {_listed(self._names)}")
        return self._names.index(name)

    def _decide(self, first: list[Line], label: str | None, given: dict[str, list[str]]) -> dict[str, str]:
        """{name: kind} of all columns that are read, the label last."""
        for argument, names in given.items():
            for name in names:
                if name not in self._names:
                    raise ValueError(f"{argument}: {self.path} has no column {name!r}: it has {_listed(self._names)}")
        both = set(given["categorical"]) & set(given["numeric"])
        if both:
            raise ValueError(f"column {min(both)!r} stands in categorical and in numeric")
        if label is not None:
            self._place(label)
        if label in given["ignore"]:
            raise ValueError(f"ignore: {label!r} is the column of labels")
        if not first:
            raise SourceError(f"{self.path} holds a header and no rows")
        kinds: dict[str, str] = {}
        for place, name in enumerate(self._names):
            if name in given["ignore"] or name == label:
                continue
            kinds[name] = self._kind(name, place, first, given)
        if not kinds:
            raise SourceError(f"{self.path} has no column of features")
        if label is not None:
            kinds[label] = self._kind(label, self._place(label), first, given)
        return kinds

    def _kind(self, name: str, place: int, first: list[Line], given: dict[str, list[str]]) -> str:
        for kind in (CATEGORICAL, NUMERIC):
            if name in given[kind]:
                return kind
        numbers, words, example = 0, 0, (0, "")
        for line, fields in first:
            text = fields[place].strip()
            if _is_number(text):
                numbers += 1
            elif text.lower() not in MISSING:
                words += 1
                example = example if words > 1 else (line, text[:40])
        if 0 < words <= MISTAKES * (numbers + words):
            raise SourceError(
                f"{self.path}, line {example[0]}: column {name!r} holds {example[1]!r}, but numbers in most other "
                f"lines: say which it is, numeric={[name]!r} or categorical={[name]!r}"
            )
        return NUMERIC if numbers and not words else CATEGORICAL


def _names(names: Iterable[str], argument: str) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"{argument} must be a sequence of names, got {names!r}: [{names!r}] is one")
    try:
        found = list(names)
    except TypeError:
        raise TypeError(f"{argument} must be a sequence of names, got {names!r}") from None
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must hold names of columns, got {name!r}")
    return found


def _must_be_empty(given: dict[str, list[str]]) -> None:
    for argument, names in given.items():
        if names:
            raise ValueError(f"{argument} does not go with schema, which says what each column is")


def _of_schema(schema: Mapping[str, Any], label: str | None) -> tuple[dict[str, str], str | None]:
    """({name: kind} of the features, kind of the label)."""
    if not isinstance(schema, Mapping):
        raise TypeError(f"schema must be that of other TableRows, a dict, got {type(schema).__name__}")
    try:
        kinds, known, kind = dict(schema["columns"]), schema["label"], schema["label_kind"]
    except (TypeError, KeyError, ValueError):
        raise ValueError("schema must be that of other TableRows: columns, label, label_kind") from None
    for name, found in [*kinds.items(), *([] if known is None else [(known, kind)])]:
        if not isinstance(name, str) or found not in (NUMERIC, CATEGORICAL):
            raise ValueError(f"schema must say 'numeric' or 'categorical' of each column, got {name!r}: {found!r}")
    if label is not None and label != known:
        raise ValueError(f"label={label!r} is not the label of the schema, which is {known!r}")
    if not kinds:
        raise ValueError("schema must have a column")
    return kinds, None if label is None else kind


def _label(column: _Column, cell: str) -> float | str:
    text = cell.strip()
    if not text:
        raise ValueError(f"column {column.name!r}, the label, is empty")
    if not column.numeric:
        return text
    try:
        return as_number(text)
    except ValueError as error:
        raise ValueError(f"column {column.name!r}, the label: {error}") from None


def _is_number(text: str) -> bool:
    try:
        as_number(text)
    except ValueError:
        return False
    return True


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            raise SourceError(f"{path} is a directory")
        if path.exists() and not path.is_file():
            raise SourceError(f"{path} is no regular file: rows may be read twice; save them to a file first")
        return path.stat().st_size
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _chained(first: list[Line], rest: Generator[Line]) -> Generator[Line]:
    """The lines that were read to decide, and the others."""
    try:
        yield from first
        yield from rest
    finally:
        rest.close()
