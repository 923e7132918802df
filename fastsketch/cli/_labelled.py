"""Open files of labelled rows for the subcommands learn and predict: svmlight text, and tables of words or numbers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from numpy.typing import NDArray

from fastsketch.cli._flags import TABLE_OPTIONS, as_column, split_names
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.files._input import InputFile
from fastsketch.data.names import TableRows
from fastsketch.data.sources import Source, comes_once, open_rows
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._identity import fingerprint_of_file
from fastsketch.data.sources._joined import concatenate
from fastsketch.data.sources._paths import files_of
from fastsketch.data.sources._source import Place
from fastsketch.data.sources._streams import HEAD_BYTES, text_format

# Options of tables of text that all files of a command share, and that a model remembers.
DIALECT_OPTIONS = TABLE_OPTIONS
# A line of svmlight text. First bytes of tables that are not text, and of other binary files.
SVMLIGHT_LINE = re.compile(rb"\s*[^\s:,;|]+(\s+[^\s:,;|]+:\S+)+\s*")
BINARY_TABLES, OTHER_BINARY = (b"PAR1", b"ARROW1"), (b"\x93NUMPY", b"PK\x03\x04", b"\x89HDF")


def detect_format(path: str) -> str:
    """Return which format the first bytes of a file indicate: "table", "svmlight", or "" for any other.

    "table" stands for Parquet, Arrow and text with tabs, semicolons or commas. "" is also returned for streams, from
    which nothing is read. For a folder or glob, the first file decides.
    """
    if comes_once(path):
        return ""
    first_file = files_of(path)[0]
    if not first_file.is_file():
        return ""
    with InputFile(first_file) as file:
        first_bytes = file.read(HEAD_BYTES)
    if first_bytes.startswith(BINARY_TABLES):
        return "table"
    if first_bytes.startswith(OTHER_BINARY) or text_format(first_bytes) == "market":
        return ""
    line = next((line for line in first_bytes.splitlines() if line.split(b"#")[0].strip()), b"")
    if SVMLIGHT_LINE.fullmatch(line.split(b"#")[0]):
        return "svmlight"
    return "table" if text_format(first_bytes) == "table" else ""


def require_labels(source: Source) -> None:
    """Raise SourceError if a source has no labels."""
    for one_source in source.each():
        if one_source.beside is None and not one_source.labelled:
            raise SourceError(f"{one_source.name} holds no labels: they are read from svmlight text and tables")


def parse_target(target: str | int) -> Any:
    """Convert the value of --target to a column (name or position), or to a list of columns if it has commas."""
    names = [as_column(name) for name in split_names(target)] if isinstance(target, str) else [target]
    return names if len(names) > 1 else names[0]


def as_list(target: Any) -> list[str | int]:
    """Return a list of targets: the given list, or a list with the single target."""
    return cast("list[str | int]", target) if isinstance(target, list) else [target]


# -- tables with words -------------------------------------------------------------------------------------------------
class LabelledTable(Source):
    """A source that reads labelled tables as named rows: each chunk is a list of dicts {feature name: value}.

    The label column is the source's extra column (``beside``).
    """

    n_rows: int | None = None
    n_features = 0  # not known: the model gives columns to names
    waits = False

    def __init__(self, path: str, table: TableRows) -> None:
        self.name, self.table, self.size = path, table, table.size
        self.beside, self.repeatable = table.schema["label"], not comes_once(path)

    @property
    def n_bytes(self) -> int:
        """Size of the table: its length in bytes if it is text, otherwise its number of rows."""
        return self.size

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield (rows, position in the source) for each chunk, from row `start_row` on."""
        for rows, _, position in self.table.chunks(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """Return an iterator over (rows, labels, position in the source) for each chunk."""
        return cast("Any", self.table.chunks(start_row))

    def place(self, row: int) -> Place:
        """Return a ``Place`` with the file name, row number and line number of a row, for messages."""
        return Place(self.name, row, self.table.line_of(row))

    def identity(self) -> dict[str, Any]:
        """Return a dict of JSON values that identify the file: its path, size, time of change and digest."""
        return fingerprint_of_file(self.table.path)


def open_tables_to_learn(paths: Sequence[str], options: Mapping[str, Any]) -> tuple[Source, dict[str, Any]]:
    """Open tables for learning; return (source of named rows, note that describes how to read later tables).

    `options` are those of ``TableRows``, without a schema. The first table decides the kind of each column; columns of
    the others are matched by name. The note consists of JSON values.
    """
    first_table = TableRows(paths[0], **options)
    shared_options: dict[str, Any] = {
        **{name: options[name] for name in (*DIALECT_OPTIONS, "missing") if name in options},
        "header": first_table.header,
    }
    other_tables = [
        TableRows(path, **shared_options, label=first_table.schema["label"], schema=first_table.schema)
        for path in paths[1:]
    ]
    source = concatenate(
        [LabelledTable(path, table) for path, table in zip(paths, [first_table, *other_tables], strict=True)]
    )
    return source, {
        **first_table.schema,
        **{name: shared_options[name] for name in DIALECT_OPTIONS if name in shared_options},
    }


def reopen_tables(
    paths: Sequence[str], notes: Mapping[str, Any], reading: Mapping[str, Any], label: Any, *, labelled: bool
) -> Source:
    """Open tables, with the options by which the model's training tables were read, and return them as a source.

    Parameters
    ----------
    paths : sequence of str
    notes : dict
        Notes of the model. StateError if they do not describe a table.
    reading : dict
        Options from the command line; they override the notes.
    label : str, int or None
        The column of labels; None for that of the notes.
    labelled : bool
        Whether to read labels.
    """
    note = notes.get("table")
    if not isinstance(note, dict):
        raise StateError("the notes do not say how tables were read")
    table_note = cast("dict[str, Any]", note)
    schema, header = (
        {name: table_note.get(name) for name in ("columns", "label", "label_kind")},
        table_note.get("header"),
    )
    if not isinstance(schema["columns"], dict) or not isinstance(header, bool):
        raise StateError(f"the notes do not say how tables were read: {table_note!r:.200}")
    options: dict[str, Any] = {name: table_note[name] for name in DIALECT_OPTIONS if table_note.get(name) is not None}
    options |= {name: reading[name] for name in DIALECT_OPTIONS if reading.get(name) is not None}
    options["label"] = (schema["label"] if label is None else label) if labelled else None
    if label is not None or not labelled:
        schema["label"] = options["label"]
    return concatenate([LabelledTable(path, TableRows(path, **options, schema=schema)) for path in paths])


# -- tables of numbers -------------------------------------------------------------------------------------------------
def select_number_columns(
    paths: Sequence[str], dialect: dict[str, Any], target: Any, numeric: Any, ignored: Any
) -> Any:
    """Return the columns to learn from: those of --numeric, or all, without those of --ignore and --target.

    Return names, or indices among the columns that are not targets, as ``open_rows`` counts them; None for all columns.
    """
    if ignored is None and all(isinstance(name, str) for name in numeric or ()):
        return numeric
    if comes_once(paths[0]):
        raise ValueError(f"{paths[0]} is read once: --numeric names the columns that are read")
    table = open_rows(paths[0], **dialect)
    target_positions = positions(table, as_list(target), "--target")
    ignored_positions = positions(table, ignored or (), "--ignore")
    read_positions = range(table.n_features) if numeric is None else positions(table, numeric, "--numeric")
    return [
        k - sum(target_position < k for target_position in target_positions)
        for k in read_positions
        if k not in {*target_positions, *ignored_positions}
    ]


def open_unlabelled_numbers(
    paths: Sequence[str], options: dict[str, Any], n_features: int, columns: Any, target: Any
) -> Source:
    """Open tables of numbers without column names, and return a source of the columns that the model has learned.

    A table with as many columns as the model has features is read unchanged. Otherwise the targets are removed first.

    Parameters
    ----------
    paths : sequence of str
    options : dict
        Options of ``open_rows``.
    n_features : int
        Columns that the model has learned.
    columns, target
        As they were learned, by index.
    """
    table = None if comes_once(paths[0]) else open_rows(list(paths), **options)
    if table is None or table.n_features == n_features:
        return table or open_rows(list(paths), **options)
    target_positions = positions(table, as_list(target), "--target")
    other_positions = [k for k in range(table.n_features) if k not in target_positions]
    selected: list[int] = (
        other_positions if columns is None else [other_positions[k] for k in columns if k < len(other_positions)]
    )
    return open_rows(list(paths), **options, columns=selected)
