"""Tables as rows of cells in text, whatever holds them: text, files of Parquet and Arrow, data frames."""

import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, cast

from fastsketch.data.files._input import InputFile, SourceError
from fastsketch.data.files._table import Cells, Dialect, Row, text_cells
from fastsketch.data.names._id_columns import is_missing
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import refuse_lazy
from fastsketch.data.sources._table_columns import index_columns

PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
# Rows of a table with types whose cells are made at a time.
ROWS_AT_A_TIME = 4096
# Floats up to here that are whole are written as integers: an id that had missing ones beside it is no 7.0.
EXACT = 2.0**53


@contextmanager
def open_cells(table: Any, dialect: Dialect, *, wanted: int = 1, held: bool = False) -> Generator[Cells]:
    """Open a table as rows of cells: text (also compressed; "-" is standard input), Parquet, Arrow, or a data frame.

    Parameters
    ----------
    table : str, path or data frame
        A file of Parquet or Arrow by its suffix.
    dialect : Dialect
        Of text.
    wanted : int, default 1
        Columns that there are at least.
    held : bool, default False
        Whether the rows will be in memory as a whole: text may not unpack to much more than its length then.

    Raises
    ------
    SourceError
        If the file is missing, damaged or no table.
    ImportError
        For a file that takes pyarrow, which is not there.
    """
    if not isinstance(table, str | PathLike):
        refuse_lazy(table)
        if not hasattr(table, "columns") and not hasattr(table, "column_names"):
            raise TypeError(f"path must be a path or a data frame, got {type(table).__name__}")
        if hasattr(table, "drop_columns"):  # of pyarrow, with the index of a table of pandas
            table = table.drop_columns(_index_of(table.schema))
        slices = (rows_of(table, start, ROWS_AT_A_TIME) for start in range(0, len(table), ROWS_AT_A_TIME))
        yield _typed_cells(f"the {type(table).__name__}", names_of(table), slices, len(table), wanted)
        return
    path = Path(cast("str | PathLike[str]", table))
    if path.suffix.lower() in (*PARQUET, *ARROW):
        with ExitStack() as stack:
            names, batches, n = _arrow(path, stack)
            yield _typed_cells(str(path), names, batches, n, wanted)
        return
    standard = str(path) == "-"
    with InputFile(path, sys.stdin.buffer if standard else None) as file:
        size = 0 if standard else path.stat().st_size
        yield text_cells(file.held() if held else file, dialect, size=size, wanted=wanted)


def _arrow(path: Path, stack: ExitStack) -> tuple[list[str], Iterator[Any], int]:
    """Return (names of columns, batches, rows) of a file of Parquet or Arrow.

    The index of a pandas table is left out.
    """
    with damaged(path, "table of Arrow"):
        if path.suffix.lower() in PARQUET:
            file = stack.enter_context(needs("pyarrow", "Parquet files", "pyarrow.parquet").ParquetFile(path))
            schema, n = file.schema_arrow, file.metadata.num_rows
        else:
            file = needs("pyarrow", "Arrow files", "pyarrow.feather").read_table(path)
            file.validate(full=True)  # where strings begin and end: pyarrow follows them
            schema, n = file.schema, len(file)
        index = _index_of(schema)
        names = [name for name in schema.names if name not in index]
        if len(set(names)) < len(names):
            raise SourceError(f"{path}: two columns are called {next(n for n in names if names.count(n) > 1)!r}")
        if path.suffix.lower() in PARQUET:
            return names, _read(path, file.iter_batches(ROWS_AT_A_TIME, columns=names)), n
        return names, _read(path, iter(file.select(names).to_batches(ROWS_AT_A_TIME))), n


def _index_of(schema: Any) -> list[str]:
    return index_columns(schema.metadata, schema.names)


def _read(path: Path, batches: Iterator[Any]) -> Iterator[Any]:
    with damaged(path, "table of Arrow"):
        for batch in batches:
            batch.validate(full=True)
            yield batch


# -- tables with types -------------------------------------------------------------------------------------------------
def names_of(frame: Any) -> list[Any]:
    """Return the names of the columns of a data frame of pandas, polars, pyarrow and their like."""
    names = getattr(frame, "column_names", None)
    return list(frame.columns if names is None else names)


def column_of(frame: Any, place: int) -> Any:
    """Return a column of a data frame by its number."""
    if hasattr(frame, "iloc"):  # pandas, whose names may be anything
        return frame.iloc[:, place]
    if hasattr(frame, "column"):  # pyarrow, which follows offsets and codes without a look at them
        frame.column(place).validate(full=True)
        return frame.column(place)
    return frame[names_of(frame)[place]]


def rows_of(frame: Any, start: int, n: int) -> Any:
    """Return some rows of a data frame, as one."""
    return frame.iloc[start : start + n] if hasattr(frame, "iloc") else frame.slice(start, n)


def _typed_cells(name: str, names: Iterable[Any], pieces: Iterator[Any], n: int, wanted: int) -> Cells:
    """Return the rows of a table that comes in pieces: numbers as Python writes them, missing values as empty cells."""
    heads, done = [str(head) for head in names], 0

    def rows() -> Iterator[Row]:
        nonlocal done
        yield -1, heads
        for piece in pieces:
            columns = [_texts(column_of(piece, k), f"{name}: column {head!r}") for k, head in enumerate(heads)]
            for cells in zip(*columns, strict=True):
                done += 1
                yield done - 1, list(cells)

    return Cells(name, rows(), Dialect(header=True), position=lambda: done, size=n, unit="row", wanted=wanted)


def _texts(column: Any, where: str) -> list[str]:
    values: Sequence[Any] = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    try:
        return [value if type(value) is str else _text(value) for value in values]
    except TypeError as error:
        raise SourceError(f"{where} holds {error}, no numbers or text") from None


def _text(value: Any) -> str:
    if is_missing(value):
        return ""
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if abs(value) <= EXACT and value.is_integer() else repr(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if hasattr(value, "__iter__") and not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} such as {value!r:.40}")
    return str(value)
