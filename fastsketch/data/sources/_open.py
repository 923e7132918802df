"""open_rows: open anything that has rows as a source."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from fastsketch._core.validation import as_dtype, as_flag, as_integer, as_real, is_sparse, to_numpy
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import as_dialect
from fastsketch.data.sources import _formats
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._batches import BatchSource
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._extra_column import split_off_columns
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._joined import concatenate
from fastsketch.data.sources._npy_source import open_memmap
from fastsketch.data.sources._paths import comes_once, files_of, is_name
from fastsketch.data.sources._remote import is_url, remote_files
from fastsketch.data.sources._select import chosen, picked
from fastsketch.data.sources._sliced import SlicedSource, has_slices
from fastsketch.data.sources._source import MAX_FEATURES, Beside, Source
from fastsketch.data.sources._stamped_file import reading
from fastsketch.data.sources._streams import open_stream


def open_rows(
    x: Any,
    *,
    columns: str | Sequence[str | int] | None = None,
    dtype: DTypeLike | None = None,
    fill: float | None = None,
    n_features: int | None = None,
    zero_based: bool = False,
    key: str | None = None,
    header: bool | None = None,
    separator: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
    comment: str | None = None,
    na_values: str | Sequence[str] = (),
    multiline: bool = False,
    beside: str | int | Sequence[str | int] | None = None,
    transpose: bool | None = None,
    max_unpacked: int | None = None,
) -> Source:
    """Open files, arrays, tables and iterators as a source of rows that is read in chunks.

    Parameters
    ----------
    x : path, glob, folder, "-", array, table, ... or a list of these
        Files: .npy, .npz of scipy (CSR, CSC, COO), .csv and .tsv (extra: files), .mtx and svmlight text (any other
        name; extra: sklearn), where text may be compressed as .gz, .bz2 or .xz; .parquet, .arrow, .feather and .ipc
        (files), .h5, .hdf5 and .h5ad (hdf5), .zarr (zarr). A folder denotes its files in the order of their names,
        without hidden ones and those that begin with "_"; the items of a list are concatenated. "-" is standard input;
        for it and other pipes the first bytes decide the format, and they can be read once. csv, Parquet and Arrow
        files may be named by a protocol that fsspec supports (s3://bucket/rows.csv).
        Objects: arrays, sparse matrices, memory maps, objects with a shape and slices (h5py, Zarr), AnnData, Dask
        arrays, data frames (of any library that narwhals supports), iterators of batches, and sources.
    columns : str, or sequence of str or int, optional
        Names or positions of the columns to read, in this order. A number that is no position may be a name, such as a
        year. "numeric" selects all columns that hold numbers; in text the first lines decide, and a warning names the
        other columns. ``feature_names`` of the source lists the selected ones. A column of lists of numbers (an
        embedding) becomes one column for each entry.
    dtype : {float32, float64}, optional
        Dtype of the rows. By default that of the data; for columns of several types the smallest that holds all.
    fill : float, optional
        Replaces missing numbers (NaN, nulls, empty cells). By default they are an error.
    n_features : int, optional
        Number of columns of svmlight text. Without it files are read once in advance; streams need it.
    zero_based : bool, default False
        Whether the features of svmlight text count from 0.
    key : str, optional
        Name of the matrix in an HDF5 file or a Zarr group; required if there are several. For AnnData the default is
        X, and `key` may be a layer or another matrix ("obsm/X_pca", "raw/X").
    header : bool, optional
        Whether the first line of a csv file has the names of the columns. By default it has if a column is requested
        by name, if it has a word above numbers or dates, or if it numbers the columns (0, 1, ..., years). If that is
        undecided, an error is raised.
    separator : str, optional
        Separator of a csv file: by default tabs, semicolons or commas, depending on the first lines.
    decimal : {".", ","}, default "."
        The decimal point of a csv file.
    thousands : {",", ".", " ", "'", "_"}, optional
        The character between groups of three digits.
    comment : str, optional
        Lines of text that begin with it are skipped.
    na_values : str or sequence of str, default ()
        Cells that denote a missing number, in any case, in addition to empty cells, NA, n/a, NaN, null, none and ?.
    multiline : bool, default False
        Whether quoted cells of text may contain line ends. Such a file is not split into parts.
    beside : str or int, or list of these, optional
        An extra column, of any type, that is not part of the rows: see ``Source.chunks_beside``. Several extra columns
        must hold numbers.
    transpose : bool, optional
        Whether the columns of a Matrix Market file are read as rows. By default they are, with a warning, if the files
        of 10x Genomics with the names of genes and cells (features.tsv or genes.tsv, and barcodes.tsv) are in the same
        folder and match its rows and columns. The ids of genes are then the names of the columns.
    max_unpacked : int, optional
        Limit of the bytes that a file unpacks to if it is held in memory (.npz, .mtx.gz), and of the size of one row
        of HDF5 or Zarr. By default 16 MiB plus 32 times the length of the file. More is an error.

    Returns
    -------
    source : fastsketch.data.Source
        An iterable of chunks: arrays (k, d), or CSR matrices, of one dtype and width, each valid until the next one is
        read. It has ``n_rows`` (None if unknown), ``n_features``, ``feature_names`` and ``parts``. A thread reads at
        most two chunks ahead.

    Raises
    ------
    SourceError
        If the input is missing, damaged or of an unsupported format, or if files differ in their columns. While rows
        are read, for a missing number, and for a file that has changed since it was opened. The message names the file,
        and the row, line and column if known.
    ImportError
        If a format needs a package that is not installed: the message names the extra.
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> source = fs.open_rows([np.zeros((3, 2)), np.ones((4, 2))])
    >>> source.n_rows, source.n_features
    (7, 2)
    >>> float(sum(rows.sum() for rows in source))
    8.0
    """
    if n_features is not None:
        n_features = as_integer(n_features, "n_features", 1, MAX_FEATURES + 1)
    numeric = isinstance(columns, str) and columns == "numeric"
    apart: Beside | None = None
    if beside is not None:
        if isinstance(beside, list | tuple):
            apart = _as_columns(cast("Sequence[str | int]", beside), "beside")
        else:
            (apart,) = _as_columns((cast("str | int", beside),), "beside")
    wanted = None if columns is None or numeric else _as_columns(columns)
    asked = (*(wanted or ()), *(apart if isinstance(apart, tuple) else (apart,)))
    options = Options(
        columns=wanted,
        named=any(isinstance(column, str) for column in asked),
        numeric=numeric,
        dtype=None if dtype is None else as_dtype(dtype),
        n_features=n_features,
        zero_based=as_flag(zero_based, "zero_based"),
        key=key,
        dialect=as_dialect(header, separator, decimal, thousands, comment, na_values, multiline),
        max_unpacked=None if max_unpacked is None else as_integer(max_unpacked, "max_unpacked", 1),
        transpose=None if transpose is None else as_flag(transpose, "transpose"),
        beside=apart if isinstance(apart, str | int) else None,
    )
    if fill is not None:
        fill = as_real(fill, "fill", -float("inf"), float("inf"))
    if wanted is not None and isinstance(apart, tuple):  # selected with the others, split off below
        wanted = tuple(dict.fromkeys((*wanted, *apart)))
        options = replace(options, columns=wanted)
    source = _opened(x, options)
    # A table selects its columns itself, since others may hold no numbers, and a column of lists is several features.
    columns = None if source.taken is not None and source.taken == wanted else wanted
    if isinstance(apart, tuple) and wanted is not None:
        source = chosen(source, columns=columns, dtype=None, fill=None)
        apart = tuple(one if isinstance(one, str) else wanted.index(one) for one in apart)
        columns = None
    if apart is not None:
        source = split_off_columns(source, apart)
    return chosen(source, columns=columns, dtype=options.dtype, fill=fill)


def _as_columns(columns: str | Sequence[str | int], name: str = "columns") -> tuple[str | int, ...]:
    if isinstance(columns, str):
        return (columns,)
    out: list[str | int] = []
    for column in columns:
        out.append(column if isinstance(column, str) else as_integer(column, name, -MAX_FEATURES))
    if not out:
        raise ValueError(f"{name} must name a column")
    return tuple(out)


def _opened(x: Any, options: Options) -> Source:
    if isinstance(x, Source):
        return x
    if is_url(x):
        files: list[Any] = list(remote_files(x))
        return _of_files(files, Path(x), options)
    if is_name(x):
        if comes_once(x):
            return open_stream(Path(x), options)
        return _of_files(files_of(x), Path(x), options)
    if isinstance(x, list | tuple) and x and all(map(_is_one, cast("Any", x))):
        return _joined([_opened(item, options) for item in cast("Iterable[Any]", x)], options)
    return _of_object(x, options)


def _of_files(files: list[Path], name: Path, options: Options) -> Source:
    try:
        return _joined([_of_file(path, options) for path in files], options)
    except SourceError as error:
        kinds = Counter(path.suffix for path in files)
        if len(kinds) == 1 or not name.is_dir():
            raise
        of_one = name / f"*{kinds.most_common(1)[0][0]}"
        raise SourceError(f"{error}; the folder has files of several kinds: '{of_one}' names those of one") from None


def _joined(sources: list[Source], options: Options) -> Source:
    """Return one source of all given ones, after selecting the requested columns where necessary.

    If some sources have selected their columns themselves, the others select theirs first. Columns with the same names
    in another order are reordered as in the first source.

    Sources with the same column names in another order are reordered as the first.
    """
    wanted = options.columns
    if wanted is not None and any(source.taken is not None for source in sources):
        sources = [
            source if source.taken == wanted else picked(source, positions(source, wanted)) for source in sources
        ]
        out = concatenate(sources)
        out.taken = wanted
        return out
    names = sources[0].feature_names if sources else None
    if names is not None and len(set(names)) == len(names):  # reorder the columns of the other sources as in the first
        sources = [
            picked(source, positions(source, names))
            if source.feature_names is not None and sorted(source.feature_names) == sorted(names)
            else source
            for source in sources
        ]
    return concatenate(sources)


def _is_one(item: Any) -> bool:
    """Return True if an item of a list is itself a source, path or matrix, rather than a row."""
    return is_name(item) or isinstance(item, Source) or len(getattr(item, "shape", ())) == 2


def _of_object(x: Any, options: Options, *, batches: bool = True) -> Source:
    if type(x) is np.ndarray:
        return ArraySource(x)
    _formats.refuse_lazy(x)
    if (name := _formats.opener_of_object(x)) is not None:
        return _formats.function(name)(x, options)
    if isinstance(x, np.memmap):
        return open_memmap(cast("Any", x))
    if isinstance(x, np.ndarray | list | tuple) or is_sparse(x):
        return ArraySource(x)
    if has_slices(x):
        return SlicedSource(x)
    if hasattr(x, "__array__") or hasattr(x, "__dlpack__"):
        return ArraySource(to_numpy(x, "rows"))
    if batches and hasattr(x, "__iter__") and type(x) not in (bytes, bytearray, dict):
        one = partial(_of_object, options=options, batches=False)
        return BatchSource(x, one, any_dtype=options.dtype is not None)
    if not batches:
        raise TypeError(f"it must be an array, a sparse matrix or a table, got {type(x).__name__}")
    raise TypeError(f"rows must be a path, an array, an iterator of batches or another source, got {type(x).__name__}")


def _of_file(path: Path, options: Options) -> Source:
    with reading(path):
        if path.is_file() and path.stat().st_size == 0:
            raise SourceError(f"{path} is empty")
        path.stat()
        if not isinstance(path, Path) and not _formats.is_table(path):
            raise SourceError(f"{path}: of files by a protocol only csv, Parquet and Arrow are read: download it first")
        return _formats.function(_formats.opener_of_file(path))(path, options)
