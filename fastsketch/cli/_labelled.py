"""Files of labelled rows as learners take them: svmlight text, tables, and streams of both."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from fastsketch._frame.parameters import TRUTH
from fastsketch.cli._flags import as_column, flag_of, listed
from fastsketch.cli._reading import dialect_of
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.names import TableRows
from fastsketch.data.names._cells import ARROW, PARQUET
from fastsketch.data.sources import Source, asked_as, comes_once, open_rows
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._identity import of_file
from fastsketch.data.sources._joined import joined
from fastsketch.data.sources._source import MAX_FEATURES, Place
from fastsketch.ridge import SketchedRidge

TABLES = (".csv", ".tsv", *PARQUET, *ARROW)
COMPRESSED = (".gz", ".bz2", ".xz")
# Flags that say how tables are read.
OF_TABLES = ("target", "header", "separator", "decimal", "categorical", "numeric", "ignore", "missing")
# Of these, what columns hold.
KINDS = ("categorical", "numeric", "ignore")
# What of that holds for all files of a job, and for those that its model is asked about.
DIALECT = ("header", "separator", "decimal")


def is_table(path: str) -> bool:
    """Return whether a file is a table by its name."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in COMPRESSED]
    return bool(suffixes) and suffixes[-1] in TABLES


class LabelledTable(Source):
    """A table as a source of rows with names, which are lists of dicts."""

    n_rows: int | None = None
    n_features = 0  # whatever the names make of them
    waits = False

    def __init__(self, path: str, table: TableRows) -> None:
        self.name, self.table, self.size = path, table, table.size
        self.beside, self.repeatable = table.schema["label"], not comes_once(path)

    @property
    def n_bytes(self) -> int:
        """See Source."""
        return self.size

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


def schema_in(notes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (schema, dialect) in the notes of a model or a partial result; StateError for what is none."""
    read = notes.get("table")
    if not isinstance(read, dict):
        raise StateError("the notes do not say how tables were read")
    known = cast(dict[str, Any], read)
    schema, header = {name: known.get(name) for name in ("columns", "label", "label_kind")}, known.get("header")
    if not isinstance(schema["columns"], dict) or not isinstance(header, bool):
        raise StateError(f"the notes do not say how tables were read: {known!r:.200}")
    return schema, {"header": header, "separator": known.get("separator"), "decimal": known.get("decimal", ".")}


# -- which of the two --------------------------------------------------------------------------------------------------
def rows_to_learn(args: Namespace) -> tuple[Source, dict[str, Any]]:
    """Return (the labelled rows that the flags of `learn` name, notes of how they are read, as json can write them)."""
    tables = [path for path in args.inputs if is_table(path)]
    given = [name for name in OF_TABLES if getattr(args, name) not in (None, "feature")]
    if not tables and not (given and all(map(comes_once, args.inputs))):
        if given:
            raise ValueError(
                f"{flag_of(args, given[0])} is of tables ({', '.join(TABLES[:3])}): {args.inputs[0]} is read as "
                "svmlight text"
            )
        any_width = TRUTH.get(args.settings.get("open_columns", "no"), False)
        return _text(args, MAX_FEATURES if any_width else args.n_features), {}
    if tables and len(tables) < len(args.inputs):
        raise ValueError("inputs must be all tables or all svmlight text")
    if args.target is None:
        raise ValueError(f"{args.inputs[0]} is a table: --target names the column of labels")
    kinds = {name: list(map(as_column, getattr(args, name) or ())) for name in KINDS}
    source, read = _tables(args.inputs, {"label": args.target, **dialect_of(args), "missing": args.missing, **kinds})
    return source, {"table": read}


def rows_as_learned(model: Any, args: Namespace, *, labelled: bool) -> Source:
    """Return the rows of args.inputs as a model has learned them; `labelled`: with labels, by --target if given."""
    target = getattr(args, "target", None)
    if isinstance(model, SketchedRidge):
        return rows_with_targets(args, model, labelled=labelled)
    if "table" in model.notes:
        schema, dialect = schema_in(model.notes)
        dialect |= {name: getattr(args, name) for name in DIALECT if getattr(args, name) is not None}
        label = None if not labelled else schema["label"] if target is None else target
        options = {"label": label, "missing": "feature", **dialect}
        return _tables(args.inputs, options, schema, relabelled=target is not None)[0]
    if any(map(is_table, args.inputs)):
        raise ValueError(f"{args.inputs[0]} is a table, and the model was learned from svmlight text")
    return _text(args, model.n_features or MAX_FEATURES)


@asked_as("--target")
def rows_with_targets(args: Namespace, model: Any = None, *, labelled: bool = True) -> Source:
    """Return the rows of args.inputs, all of numbers, with real targets beside them; for a model its columns."""
    target, inputs = getattr(args, "target", None), list(args.inputs)
    notes: dict[str, Any] = {} if model is None else model.notes
    target = notes.get("target") if target is None else targets_in(target)
    how: dict[str, Any] = {**dialect_of(args), "zero_based": args.zero_based}
    if target is None and not any(map(is_table, inputs)):
        return open_rows(inputs, **how, n_features=args.n_features if model is None else model.n_features)
    if labelled and target is None:
        raise ValueError(f"{inputs[0]} is a table: --target names the column of targets")
    how |= {"fill": args.fill if model is None else notes.get("fill"), "beside": target if labelled else None}
    if model is None:
        return open_rows(inputs, **how, columns=columns_to_learn(args))
    if model.feature_names is not None:
        return open_rows(inputs, **how, columns=list(model.feature_names))
    columns: Any = notes.get("columns")
    if not labelled:  # the rows may have their targets, or lack them
        table = None if comes_once(inputs[0]) else open_rows(inputs, **how)
        if table is None or table.n_features == model.n_features:
            return table or open_rows(inputs, **how)
        apart = positions(table, as_list(target), "--target")
        rest = [k for k in range(table.n_features) if k not in apart]
        columns = rest if columns is None else [rest[k] for k in columns if k < len(rest)]
    return open_rows(inputs, **how, columns=columns)


def targets_in(target: str | int) -> Any:
    """Return the column of a target, or the list of several between commas."""
    names = [as_column(name) for name in listed(target)] if isinstance(target, str) else [target]
    return names if len(names) > 1 else names[0]


def as_list(target: Any) -> list[str | int]:
    """Return the columns of one target, or of several."""
    return cast("list[str | int]", target) if isinstance(target, list) else [target]


def columns_to_learn(args: Namespace) -> list[str | int] | None:
    """Return the columns of --numeric, or all but those of --ignore, as open_rows counts them beside the target."""
    numeric = None if args.numeric is None else list(map(as_column, args.numeric))
    if args.ignore is None and all(isinstance(name, str) for name in numeric or ()):
        return numeric
    if comes_once(args.inputs[0]):
        raise ValueError(f"{args.inputs[0]} is read once: --numeric names the columns that are read")
    table, target = open_rows(args.inputs[0], **dialect_of(args)), targets_in(args.target)
    apart = positions(table, as_list(target), "--target")
    ignored = positions(table, list(map(as_column, args.ignore or ())), "--ignore")
    read = range(table.n_features) if numeric is None else positions(table, numeric, "--numeric")
    return [k - sum(other < k for other in apart) for k in read if k not in {*apart, *ignored}]


def require_labels(source: Source) -> None:
    """Raise SourceError for the first of the sources that has rows without labels."""
    for one in source.each():
        if one.beside is None and not one.labelled:
            raise SourceError(f"{one.name} holds no labels: they are read from svmlight text and tables")


def _text(args: Namespace, n_features: int | None) -> Source:
    """Return svmlight text, all files of one width; where no labels are needed .npy and .npz too."""
    streams = [path for path in args.inputs if comes_once(path)]
    if streams and n_features is None:
        raise SourceError(
            f"{streams[0]} is no regular file, and is read once: how wide its rows are must be known (--set "
            "n_features=N or --set open_columns=yes)"
        )
    return open_rows(list(args.inputs), n_features=n_features, zero_based=args.zero_based)


def _tables(
    paths: Sequence[str],
    options: dict[str, Any],
    schema: dict[str, Any] | None = None,
    *,
    relabelled: bool = False,
) -> tuple[Source, dict[str, Any]]:
    """Return (tables as rows with names, how they were read); without a schema the first says what each column is.

    options: what TableRows takes beside a schema; relabelled: their label is not that of the schema.
    """
    tables: list[Source] = []
    for path in paths:
        if schema is None:
            table = TableRows(path, **options)
            schema, kept = table.schema, (*DIALECT, "missing")
            options = {**{name: options[name] for name in kept}, "header": table.header, "label": schema["label"]}
        else:
            other = relabelled or options["label"] is None
            table = TableRows(path, **options, schema={**schema, "label": options["label"]} if other else schema)
        tables.append(LabelledTable(path, table))
    return joined(tables), {**(schema or {}), **{name: options[name] for name in DIALECT}}
