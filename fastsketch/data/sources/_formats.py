"""Find the function that opens a file or an object as a source.

Functions are named "module.function" of this subpackage and imported when needed. They are called with (path, options),
for text that is read once with (path, options, stream), and for objects with (object, options). ``open_rows`` applies
`columns`, `dtype` and `fill` to the source, unless the source has selected the columns itself (``taken``).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch._core.validation import detached
from fastsketch.data.files._input import DECOMPRESSORS, SourceError
from fastsketch.data.files._table import WORKBOOK, ZIP, Dialect
from fastsketch.data.sources._source import Source


@dataclass(frozen=True)
class Options:
    """The arguments of open_rows that the readers of file formats may use."""

    columns: tuple[str | int, ...] | None = None
    named: bool = False  # whether a column or an extra column is requested by name
    numeric: bool = False  # select all columns that hold numbers
    dtype: np.dtype[Any] | None = None
    n_features: int | None = None
    zero_based: bool = False
    key: str | None = None
    dialect: Dialect = Dialect()
    beside: str | int | None = None  # see _extra_column.py
    transpose: bool | None = None  # see open_rows
    max_unpacked: int | None = None  # see max_unpacked_bytes in files/_input.py


# The function that opens a file, by suffix.
BY_SUFFIX = {
    ".npy": "_npy_source.open_npy",
    ".npz": "_npz_source.SparseMatrix",
    ".parquet": "_frame_source.open_table_file",
    ".pq": "_frame_source.open_table_file",
    ".arrow": "_frame_source.open_table_file",
    ".feather": "_frame_source.open_table_file",
    ".ipc": "_frame_source.open_table_file",
    ".arrows": "_frame_source.open_table_file",
    ".h5": "_hdf5.HdfSource",
    ".hdf5": "_hdf5.HdfSource",
    ".hdf": "_hdf5.HdfSource",
    ".h5ad": "_hdf5.HdfSource",
    ".zarr": "_zarr.ZarrSource",
}
TYPED = frozenset(suffix for suffix, name in BY_SUFFIX.items() if name.startswith("_frame_source"))
# The function that opens text, and the kind of text by suffix (before .gz and the like); "any": by its first lines.
TEXT = {
    "table": "_table_text.TableText",
    "market": "_market.open_market",
    "svmlight": "_svmlight_source.SvmlightSource",
    "any": "_streams.open_text",
}
TEXT_BY_SUFFIX = {
    ".csv": "table",
    ".tsv": "table",
    ".mtx": "market",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}
# Folders with these suffixes are one source, not folders of files.
FOLDERS_OF_ONE = frozenset({".zarr"})

# Objects: (predicate, function that opens it); the first match is used. The predicates import nothing.
Test = Callable[[Any], bool]


def known_as(module: str, *names: str) -> Test:
    """Return a function that tests whether an object is an instance of a class in `names` of a module.
    The module is not imported.
    """

    def test(x: Any) -> bool:
        return any(kind.__module__.split(".")[0] == module and kind.__name__ in names for kind in type(x).__mro__)

    return test


def _is_frame(x: Any) -> bool:
    frames = known_as("pandas", "DataFrame")(x) or known_as("polars", "LazyFrame")(x)
    return frames or hasattr(x, "__arrow_c_stream__") or hasattr(x, "__narwhals_dataframe__")


BY_KIND: list[tuple[Test, str]] = [
    (known_as("h5py", "Dataset"), "_hdf5.open_dataset"),
    (known_as("zarr", "Array"), "_zarr.open_array"),
    (known_as("anndata", "AnnData"), "_anndata.open_object"),
    (known_as("dask", "Array"), "_dask_array.open_dask"),
    (_is_frame, "_frame_source.open_frame"),
]


# Objects that are refused: (predicate, what to pass instead).
INSTEAD: list[tuple[Test, str]] = [
    (known_as("pyarrow", "Dataset"), "take its to_table(), or name the files"),
    (known_as("dask", "DataFrame"), "take its to_dask_array(lengths=True), or name the files"),
    (known_as("dask_expr", "DataFrame"), "take its to_dask_array(lengths=True), or name the files"),
    (known_as("h5py", "Group", "File"), "take a data set of it, x[key], or name the file and its key"),
    (known_as("zarr", "Group"), "take an array of it, x[key], or name the folder and its key"),
]


def function(name: str) -> Callable[..., Source]:
    """Import and return the function with this name, "module.function" of this subpackage."""
    module, attribute = name.split(".")
    return getattr(import_module(f"fastsketch.data.sources.{module}"), attribute)


# Formats by the first bytes of a file: those that are read, and those that are refused, with what the user can do.
BY_START = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"FEA1": ".feather",
    b"\x93NUMPY": ".npy",
    b"\x89HDF": ".h5",
}
TYPED_STARTS = b"PAR1", b"FEA1", b"ARROW1", b"\xff\xff\xff\xff"  # the last is that of a stream of Arrow batches
FOREIGN = {
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd, which is not read: zstd -d unpacks it",
    b"\x04\x22\x4d\x18": "it is compressed by lz4, which is not read: lz4 -d unpacks it",
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "it is a pickle, which can run any code: save arrays by numpy.save, and tables as Parquet",
    ),
    b"MATLAB 5.0": "it is a MATLAB file: scipy.io.loadmat reads it, numpy.save writes its arrays",
    b"SQLite format 3": "it is an SQLite database: polars.read_database reads a table of it",
    b"\xd0\xcf\x11\xe0": "it is an old Excel workbook: save the sheet as CSV UTF-8",
    b"Obj\x01": "it is an Avro file: polars.read_avro reads it",
    b"7z\xbc\xaf": "it is a 7z archive: 7z x unpacks it",
    b"%PDF": "it is a PDF document",
    b"<!DOCTYPE": "it is a web page, perhaps of an error: download the file itself",
    b"<html": "it is a web page, perhaps of an error: download the file itself",
}


def is_table(path: Path) -> bool:
    """Return True if a file is Parquet, Arrow, or text with the suffix .csv or .tsv."""
    return opener_of_file(path) in (TEXT["table"], BY_SUFFIX[".parquet"])


def opener_of_file(path: Path) -> str:
    """Return the name of the function that opens a file, chosen by its first bytes or else by its suffix.

    Raise SourceError for a file of an unsupported format.
    """
    suffix, start = path.suffix.lower(), b""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(16)
    for magic, of_magic in BY_START.items():
        if start.startswith(magic):
            return BY_SUFFIX[suffix if BY_SUFFIX.get(suffix) == BY_SUFFIX[of_magic] else of_magic]
    if foreign := next((magic for magic in FOREIGN if start.startswith(magic)), None):
        raise SourceError(f"{path} is not text: {FOREIGN[foreign]}")
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix]
    if start.startswith(ZIP):
        raise SourceError(f"{path} is not text: {WORKBOOK}")
    if suffix in DECOMPRESSORS:
        suffix = path.with_suffix("").suffix.lower()
    return TEXT[TEXT_BY_SUFFIX.get(suffix, "any")]


def is_typed_file(path: Path) -> bool:
    """Return True if a file is Parquet or Arrow IPC by its first bytes, or, if it is empty, by its suffix."""
    start = b""
    with suppress(OSError), path.open("rb") as file:
        start = file.read(6)
    return start.startswith(TYPED_STARTS) or (not start and path.suffix.lower() in TYPED)


def refuse_lazy(x: Any) -> None:
    """Raise TypeError for an object that must be computed or opened before it is read; the message says how."""
    detached(x, "rows")  # refuses tensors that are no arrays
    for test, advice in INSTEAD:
        if test(x):
            raise TypeError(f"a {type(x).__name__} cannot be read a chunk at a time: {advice}")


def opener_of_object(x: Any) -> str | None:
    """Return the name of the function that opens an object of this type, or None if no function does."""
    return next((name for test, name in BY_KIND if test(x)), None)
