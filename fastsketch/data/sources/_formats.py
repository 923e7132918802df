"""Which function opens what: files by the suffix of their name, objects by what they are.

A function is named "module.function" of this room and imported when it is needed. One of a file is called with
(path, options), of text that is read once with the stream as well, one of an object with (object, options): Options has
what was asked for. It gives a Source; `columns`, `dtype` and `fill` are applied to that by ``open_rows``, unless the
source takes the columns itself (``only``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch.data.files._input import DECOMPRESSORS
from fastsketch.data.files._table import Dialect
from fastsketch.data.sources._source import Source


@dataclass(frozen=True)
class Options:
    """Arguments of open_rows that a format may look at."""

    columns: tuple[str | int, ...] | None = None
    named: bool = False  # one of the columns, or of those beside the rows, is asked for by its name
    numeric: bool = False  # all columns that hold numbers, in place of `columns`
    dtype: np.dtype[Any] | None = None
    n_features: int | None = None
    zero_based: bool = False
    key: str | None = None
    dialect: Dialect = Dialect()
    beside: str | int | None = None  # see _beside.py
    transpose: bool | None = None  # see open_rows
    max_unpacked: int | None = None  # see most_unpacked of io/_input.py


# Files by suffix.
BY_SUFFIX = {
    ".npy": "_npy_source.open_npy",
    ".npz": "_npz_source.SparseMatrix",
    ".parquet": "_parquet.ParquetSource",
    ".pq": "_parquet.ParquetSource",
    ".arrow": "_ipc.IpcSource",
    ".feather": "_ipc.IpcSource",
    ".ipc": "_ipc.IpcSource",
    ".arrows": "_ipc.IpcSource",
    ".h5": "_hdf5.HdfSource",
    ".hdf5": "_hdf5.HdfSource",
    ".hdf": "_hdf5.HdfSource",
    ".h5ad": "_hdf5.HdfSource",
    ".zarr": "_zarr.ZarrSource",
}
# Text, which may be compressed, and by the suffix before that of compression; of any other name by its first lines.
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
# Names that end in one of these are folders which are one source, not folders of files.
FOLDERS_OF_ONE = frozenset({".zarr"})

# Objects: (whether it is one, what opens it); the first that knows an object has it. The tests import nothing.
Test = Callable[[Any], bool]


def known_as(module: str, *names: str) -> Test:
    """Return a test for objects whose class, or a class it descends from, has this name in this package."""

    def test(x: Any) -> bool:
        return any(kind.__module__.split(".")[0] == module and kind.__name__ in names for kind in type(x).__mro__)

    return test


def _gives_batches(x: Any) -> bool:
    return hasattr(x, "__arrow_c_stream__") or known_as("pyarrow", "RecordBatch")(x)


BY_KIND: list[tuple[Test, str]] = [
    (known_as("pandas", "DataFrame"), "_pandas.open_frame"),
    (known_as("h5py", "Dataset"), "_hdf5.open_dataset"),
    (known_as("zarr", "Array"), "_zarr.open_array"),
    (known_as("anndata", "AnnData"), "_anndata.open_object"),
    (known_as("dask", "Array"), "_dask_array.open_dask"),
    (_gives_batches, "_dataframes.open_table"),
]


# What holds rows, and is none: (whether it is one, what to give in its place).
INSTEAD: list[tuple[Test, str]] = [
    (known_as("polars", "LazyFrame"), "collect() it, or name the files"),
    (known_as("pyarrow", "Dataset"), "take its to_table(), or name the files"),
    (known_as("dask", "DataFrame"), "take its to_dask_array(lengths=True), or name the files"),
    (known_as("dask_expr", "DataFrame"), "take its to_dask_array(lengths=True), or name the files"),
    (known_as("h5py", "Group", "File"), "take a data set of it, x[key], or name the file and its key"),
    (known_as("zarr", "Group"), "take an array of it, x[key], or name the folder and its key"),
]


def function(name: str) -> Callable[..., Source]:
    """Return the function that "module.function" of this room names."""
    module, attribute = name.split(".")
    return getattr(import_module(f"fastsketch.data.sources.{module}"), attribute)


def of_file(path: Path) -> str:
    """Return the name of the function that opens a file of this name."""
    suffix = path.suffix.lower()
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix]
    if suffix in DECOMPRESSORS:
        suffix = path.with_suffix("").suffix.lower()
    return TEXT[TEXT_BY_SUFFIX.get(suffix, "any")]


def refuse_lazy(x: Any) -> None:
    """Raise TypeError for an object that stands for rows and has none by itself, with what to give in its place."""
    for test, advice in INSTEAD:
        if test(x):
            raise TypeError(f"a {type(x).__name__} cannot be read a chunk at a time: {advice}")


def of_object(x: Any) -> str | None:
    """Return the name of the function that opens an object; None if no one knows it."""
    return next((name for test, name in BY_KIND if test(x)), None)
