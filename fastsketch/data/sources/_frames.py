"""Read ranges of rows of Parquet files, Arrow IPC files and data frames as polars data frames.

polars scans files and reads of each column what the requested rows need. narwhals gives access to data frames of
pandas, polars, pyarrow and other libraries; the requested rows are copied.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._column_names import names_of_labels, unique_names
from fastsketch.data.sources._csv import partition_cells
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import refuse_lazy
from fastsketch.data.sources._stamped_file import reading

_STREAM = b"\xff\xff\xff\xff"  # the first bytes of a stream of Arrow batches
# First bytes of an Arrow file that are searched for pandas' metadata, which name the index.
NOTE_BYTES = 1 << 20


class Frames:
    """Base class of typed tables (files or data frames), whose rows are read as polars data frames.

    Attributes
    ----------
    name : str
        In messages.
    schema : dict of str to polars.DataType
    n_rows : int
    index : list of str
        The columns that were the index of a data frame of pandas.
    """

    name: str
    schema: dict[str, Any]
    n_rows: int
    index: list[str]

    def rows(self, start: int, stop: int, columns: Sequence[str]) -> Any:
        """Return rows [start, stop) of the given columns as a polars data frame."""
        raise NotImplementedError

    def column(self, name: str) -> Any:
        """Return a column as an array, a list or a polars series."""
        raise NotImplementedError

    def checked_rows(self, start: int, stop: int, columns: Sequence[str]) -> Any:
        """Return rows [start, stop) of the given columns as a polars data frame, after checking their number.

        Raise SourceError if the table has fewer rows than it states.
        """
        rows = self.rows(start, stop, columns)
        if len(rows) != stop - start:
            end = start + len(rows)
            raise SourceError(f"{self.name} is damaged: its rows end after {end:,}, it states {self.n_rows:,}")
        return rows


class FileFrames(Frames):
    """A Parquet or Arrow IPC file as a table; folders called column=value in its path are columns too (Hive
    partitions).
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self._lazy = path, name, None
        with reading(path), path.open("rb") as file:
            start = file.read(NOTE_BYTES)
        self._kind = "Parquet file" if start[:4] == b"PAR1" else "Arrow file"
        if start[:4] == b"FEA1":
            raise SourceError(f"{name} is of Feather's first version: write it again as Feather 2 or Parquet")
        self._is_stream = start[:4] == _STREAM
        pl = needs("polars", f"{self._kind}s")
        with damaged(name, self._kind):
            self.schema = dict(self.lazy().collect_schema())
            self.n_rows = int(self.lazy().select(pl.len()).collect().item())
            about = (
                pl.read_parquet_metadata(self._file()) if self._kind == "Parquet file" else {"pandas": _noted(start)}
            )
        self.index = index_of(about.get("pandas", ""), list(self.schema))

    def _file(self) -> Any:
        """Return the path for polars to open, or an open file if it is in an object store."""
        return self.path if isinstance(self.path, Path) else self.path.open("rb")

    def lazy(self) -> Any:
        """Return the file as a lazy polars data frame; a stream of Arrow batches is read into memory."""
        if self._lazy is None:
            pl = needs("polars", f"{self._kind}s")
            file = self._file()
            if self._is_stream:
                self._lazy = pl.read_ipc_stream(file).lazy()
            else:
                scan = pl.scan_parquet if self._kind == "Parquet file" else pl.scan_ipc
                frame = scan(file, glob=False, hive_partitioning=False)
                if isinstance(self.path, Path) and (cells := partition_cells(str(self.path))):
                    # polars finds the types, but would replace columns of the file that are called like a folder
                    kinds = scan(file, glob=False, hive_partitioning=True).collect_schema()
                    own = frame.collect_schema()
                    frame = frame.with_columns(
                        pl.lit(cell or None).cast(kinds.get(column, pl.String) if cell else pl.Null).alias(column)
                        for column, cell in cells.items()
                        if column not in own
                    )
                self._lazy = frame
        return self._lazy

    def rows(self, start: int, stop: int, columns: Sequence[str]) -> Any:
        """Return rows [start, stop) of the given columns as a polars data frame."""
        return self.lazy().select(columns).slice(start, stop - start).collect(engine="in-memory")

    def column(self, name: str) -> Any:
        """Return a column as a polars series."""
        return self.rows(0, self.n_rows, [name])[name]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lazy": None, "path": self.path.absolute()}


class MemoryFrames(Frames):
    """A data frame in memory, of any library that narwhals supports."""

    def __init__(self, x: Any) -> None:
        nw = needs("narwhals", "data frames")
        self.name = f"the {type(x).__name__}"
        refuse_lazy(x)
        with damaged(self.name, "table"):
            unique_names(list(map(str, names_of(x))), self.name)
            if hasattr(x, "validate") and hasattr(x, "column_names"):
                x.validate(full=True)  # pyarrow follows offsets and codes without checking them
            metadata: Any = (
                getattr(None if hasattr(x, "collect_schema") else getattr(x, "schema", None), "metadata", None) or {}
            )
            frame = nw.from_native(x, pass_through=True)
            if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
                frame = nw.from_arrow(x, backend="polars")
            if isinstance(frame, nw.LazyFrame):
                frame = frame.collect("polars")
        self._frame: Any = frame
        self.n_rows, self._names = len(frame), [str(name) for name in frame.columns]
        # only tables of pyarrow have the index as a column, named in the metadata of their schema
        self.index = index_of(metadata.get(b"pandas", b""), self._names) if metadata else []
        with damaged(self.name, "table"):
            self.schema = dict(self.rows(0, min(self.n_rows, 1000), self._names).schema)
        for name, kind in zip(self._names, frame.schema.values(), strict=True):
            if kind.is_numeric() and not self.schema[name].is_numeric():
                self.schema[name] = needs("polars", "data frames").Float64

    def named(self, columns: Sequence[str]) -> tuple[str, ...] | None:
        """Return the names of the given columns, or None if the data frame has only pandas' default column numbers."""
        labels = dict(zip(self._names, self._frame.columns, strict=True))
        if list(labels.values()) == list(range(len(labels))):
            return None
        return names_of_labels([labels[name] for name in columns], self.name)

    def rows(self, start: int, stop: int, columns: Sequence[str]) -> Any:
        """Return rows [start, stop) of the given columns as a polars data frame."""
        pl = needs("polars", "data frames")
        names = dict(zip(self._names, self._frame.columns, strict=True))
        piece = self._frame[start:stop]
        native = piece.to_native()
        if isinstance(native, pl.DataFrame):
            return native.select(columns)
        if hasattr(native, "column_names"):  # of pyarrow
            return pl.from_arrow(native.select(list(columns)))
        return pl.DataFrame({name: _series(pl, piece.get_column(names[name])) for name in columns})

    def column(self, name: str) -> Any:
        """Return a column as a NumPy array if it is numeric, otherwise as a list of objects."""
        column = self._frame.get_column(self._frame.columns[self._names.index(name)])
        values = column.to_numpy()
        return values if values.dtype.kind in "iuf" else column.to_list()


def _series(pl: Any, column: Any) -> Any:
    """Convert a narwhals column to a polars series without using pyarrow."""
    values = column.to_numpy()
    if values.dtype.kind in "fiub" and values.dtype.itemsize <= 8:
        return pl.Series(values)
    if values.dtype.kind in "mM":
        return pl.Series(column.to_list())
    return pl.Series([None if _is_na(value) else value for value in column.to_list()], strict=False)


def _is_na(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def names_of(x: Any) -> list[Any]:
    """Return the column names of a data frame of any library, or [] if it has no such attribute."""
    if hasattr(x, "collect_schema"):  # of polars, lazy ones too
        return x.collect_schema().names()
    names = getattr(x, "column_names", getattr(x, "columns", ()))
    return list(names)


def index_of(note: str | bytes, names: Sequence[str]) -> list[str]:
    """Return the columns that were the index of a pandas data frame, according to pandas' metadata."""
    try:
        noted = json.loads(note or "{}").get("index_columns", [])
    except (ValueError, AttributeError):
        noted = []
    return [name for name in names if name in noted or re.fullmatch(r"__index_level_\d+__", name)]


def _noted(start: bytes) -> str:
    """Find the entry of pandas' metadata that names the index columns, in the first bytes of an Arrow file. Return it
    as JSON.
    """
    found = re.search(rb'"index_columns": \[[^\[\]]*\]', start)
    return f"{{{found[0].decode(errors='replace')}}}" if found else ""
