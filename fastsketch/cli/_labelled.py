"""Files of labelled rows as learners take them: svmlight text, tables, and streams of both."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from fastsketch._frame.parameters import TRUTH
from fastsketch.cli._flags import as_column, flag_of
from fastsketch.cli._reading import dialect_of, open_all
from fastsketch.cli._row_by_row import InTurn
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.files._svmlight import MOST_FEATURES
from fastsketch.data.files._table import Dialect
from fastsketch.data.names import TableRows
from fastsketch.data.names._cells import ARROW, PARQUET, open_cells
from fastsketch.data.sources import Source, comes_once
from fastsketch.data.sources._identity import of_file
from fastsketch.data.sources._joined import joined
from fastsketch.data.sources._source import Place
from fastsketch.data.sources._svmlight_source import SvmlightSource

TABLES = (".csv", ".tsv", *PARQUET, *ARROW)
COMPRESSED = (".gz", ".bz2", ".xz")
# Flags that say how tables are read.
OF_TABLES = ("target", "header", "separator", "decimal", "categorical", "numeric", "ignore", "missing")
# Of these, what columns hold.
KINDS = ("categorical", "numeric", "ignore")
# What of that holds for all files of a job, and for those that its model is asked about.
DIALECT = ("header", "separator", "decimal")

# (rows, labels, position)
Labelled = tuple[Any, NDArray[Any], int]


def is_table(path: str) -> bool:
    """Return whether a file is a table by its name."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in COMPRESSED]
    return bool(suffixes) and suffixes[-1] in TABLES


class TextReading:
    """svmlight text as rows and labels, all files of one width; without labels also .npy and .npz."""

    def __init__(self, *, n_features: int | None, zero_based: bool) -> None:
        self._n_features = n_features
        self._zero_based = zero_based

    def notes(self) -> dict[str, Any]:
        """Return what has been settled, as json can write it."""
        return {}

    def take(self, notes: dict[str, Any]) -> None:
        """Take up the notes of a partial result."""

    def labels_are_numbers(self, paths: Sequence[str]) -> bool:
        """Return whether labels are numbers, and not words."""
        return True

    def open(self, paths: Sequence[str]) -> list[Source]:
        """Return sources that go together."""
        streams = [path for path in paths if comes_once(path)]
        if streams and self._n_features is None:
            raise SourceError(
                f"{streams[0]} is no regular file, and is read once: how wide its rows are must be known (--set "
                "n_features=N or --set open_columns=yes)"
            )
        return open_all(paths, self._n_features, zero_based=self._zero_based)

    def whole(self, paths: Sequence[str]) -> Source:
        """Return all rows as one source."""
        return joined(self.open(paths))

    def labelled(self, source: Source, start_row: int = 0) -> Iterator[Labelled]:
        """Yield rows from start_row on with their labels."""
        if not isinstance(source, SvmlightSource):
            raise SourceError(f"{source.name} holds no labels: they are read from svmlight text and tables")
        yield from source.read_beside(start_row)


class LabelledTable(Source):
    """A table as a source of rows with names, which are lists of dicts."""

    n_rows: int | None = None
    n_features = 0  # whatever the names make of them
    waits = False

    def __init__(self, path: str, table: TableRows) -> None:
        self.name, self.table, self.size = path, table, table.size
        self.beside, self.repeatable = table.schema["label"], not comes_once(path)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source."""
        for rows, _, position in self.table.chunks(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """See Source: the values are the labels."""
        return cast("Any", self.table.chunks(start_row))

    def place(self, row: int) -> Place:
        """See Source."""
        return Place(self.name, row, self.table.line_of(row))

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return of_file(self.table.path)


class TableReading:
    """Tables as rows with names and labels; the first file that is read, or a model, says what each column is."""

    def __init__(
        self, options: dict[str, Any], schema: dict[str, Any] | None = None, *, relabelled: bool = False
    ) -> None:
        self._options: dict[str, Any] = options  # what TableRows takes beside a schema
        self._schema, self._relabelled = schema, relabelled  # relabelled: the label is not that of the schema
        self._first: TableRows | None = None

    def labels_are_numbers(self, paths: Sequence[str]) -> bool:
        """See TextReading; begins to read the first file."""
        self._first = self._table(paths[0])
        return (self._schema or {})["label_kind"] == "numeric"

    def notes(self) -> dict[str, Any]:
        """Return what has been settled, as json can write it."""
        return {"table": {**(self._schema or {}), **{name: self._options[name] for name in DIALECT}}}

    def take(self, notes: dict[str, Any]) -> None:
        """Take up the notes of a partial result; StateError if they are none of it."""
        self._schema, dialect = schema_in(notes)
        self._options = {"label": self._options["label"], "missing": self._options["missing"], **dialect}

    def open(self, paths: Sequence[str]) -> list[Source]:
        """Return sources that go together: all have the columns of the first."""
        first = self._first or self._table(paths[0])
        tables = [first, *map(self._table, paths[1:])]
        return [LabelledTable(path, table) for path, table in zip(paths, tables, strict=True)]

    def whole(self, paths: Sequence[str]) -> Source:
        """Return all rows as one source."""
        return InTurn(self.open(paths))

    def _table(self, path: str) -> TableRows:
        options = _by_name(path, self._options)
        if self._schema is not None:
            schema = {**self._schema, "label": options["label"]} if self._relabelled else self._schema
            return TableRows(path, **options, schema=schema)
        table = TableRows(path, **options)
        kept = {name: options[name] for name in (*DIALECT, "missing", "label")}
        self._options, self._schema = {**kept, "header": table.header}, table.schema
        return table

    def labelled(self, source: Source, start_row: int = 0) -> Iterator[Labelled]:
        """Yield rows from start_row on with their labels."""
        for rows, labels, position in cast(LabelledTable, source).table.chunks(start_row):
            if labels is None:
                raise SourceError(f"{source.name}: --target names the column of labels")
            yield rows, labels, position


Reading = TextReading | TableReading


def _by_name(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with names in the place of columns that are given by number, from 0."""
    given = [options["label"], *(column for kind in KINDS for column in options.get(kind, ()))]
    if not any(isinstance(column, int) for column in given):
        return options
    names, header = _names_in(path, options)

    def name_of(column: Any) -> Any:
        if not isinstance(column, int):
            return column
        if names is None:
            return str(column + 1)  # as a column without a name is called
        if column >= len(names) and str(column) in names:
            return str(column)  # a year
        if not 0 <= column < len(names):
            raise SourceError(f"{path} has {len(names)} columns, numbered from 0: {column} is none of them")
        return names[column]

    kinds = {kind: list(map(name_of, options[kind])) for kind in KINDS if kind in options}
    return {**options, **kinds, "label": name_of(options["label"]), "header": header}


def _names_in(path: str, options: dict[str, Any]) -> tuple[list[str] | None, bool | None]:
    """Return (names of the columns of a table, whether it has a header); (None, ...) where it can be read but once."""
    if comes_once(path):
        return None, options["header"]
    with open_cells(path, Dialect(*(options[name] for name in DIALECT))) as cells:
        names = cells.names or [""] * cells.width
        return [name or str(number) for number, name in enumerate(names, 1)], cells.names is not None


def schema_in(notes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (schema, dialect) in the notes of a model or a partial result; StateError for what is none."""
    found = notes.get("table")
    if not isinstance(found, dict):
        raise StateError("the notes do not say how tables were read")
    known = cast(dict[str, Any], found)
    schema, header = {name: known.get(name) for name in ("columns", "label", "label_kind")}, known.get("header")
    if not isinstance(schema["columns"], dict) or not isinstance(header, bool):
        raise StateError(f"the notes do not say how tables were read: {known!r:.200}")
    return schema, {"header": header, "separator": known.get("separator"), "decimal": known.get("decimal", ".")}


# -- which of the two --------------------------------------------------------------------------------------------------
def reading_to_learn(args: Namespace) -> Reading:
    """Return the reading that the flags of `learn` ask for."""
    tables = [path for path in args.inputs if is_table(path)]
    given = [name for name in OF_TABLES if getattr(args, name) not in (None, "feature")]
    if not tables and not (given and all(map(comes_once, args.inputs))):
        if given:
            raise ValueError(
                f"{flag_of(args, given[0])} is of tables ({', '.join(TABLES[:3])}): {args.inputs[0]} is read as "
                "svmlight text"
            )
        any_width = TRUTH.get(args.settings.get("open_columns", "no"), False)
        return TextReading(n_features=MOST_FEATURES if any_width else args.n_features, zero_based=args.zero_based)
    if tables and len(tables) < len(args.inputs):
        raise ValueError("inputs must be all tables or all svmlight text")
    if args.target is None:
        raise ValueError(f"{args.inputs[0]} is a table: --target names the column of labels")
    kinds = {name: list(map(as_column, getattr(args, name) or ())) for name in KINDS}
    return TableReading({"label": args.target, **dialect_of(args), "missing": args.missing, **kinds})


def reading_as_learned(model: Any, args: Namespace, *, labelled: bool) -> Reading:
    """Return the reading that a model has learned by; `labelled`: with labels, of the column of --target if given."""
    target = getattr(args, "target", None)
    if "table" in model.notes:
        schema, dialect = schema_in(model.notes)
        dialect |= {name: getattr(args, name) for name in DIALECT if getattr(args, name) is not None}
        label = None if not labelled else schema["label"] if target is None else target
        options = {"label": label, "missing": "feature", **dialect}
        return TableReading(options, schema, relabelled=target is not None)
    if any(map(is_table, args.inputs)):
        raise ValueError(f"{args.inputs[0]} is a table, and the model was learned from svmlight text")
    return TextReading(n_features=model.n_features or MOST_FEATURES, zero_based=args.zero_based)
