"""open_rows: anything that has rows, as a source."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from fastsketch._validation import as_dtype, as_flag, as_integer, as_real, is_sparse
from fastsketch.io._input import SourceError
from fastsketch.io._svmlight import MOST_FEATURES
from fastsketch.sources import _formats
from fastsketch.sources._arrays import ArraySource
from fastsketch.sources._batches import BatchSource
from fastsketch.sources._beside import set_apart
from fastsketch.sources._files import reading
from fastsketch.sources._formats import Options
from fastsketch.sources._joined import joined
from fastsketch.sources._memmap import open_memmap
from fastsketch.sources._paths import comes_once, files_of, is_name
from fastsketch.sources._select import chosen, picked, positions
from fastsketch.sources._sliced import SlicedSource, has_slices
from fastsketch.sources._source import Source
from fastsketch.sources._streams import open_stream


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
    beside: str | int | None = None,
) -> Source:
    """Rows from wherever they are, read a chunk at a time.

    Parameters
    ----------
    x : path, array, table, iterator or source, or a list of paths, arrays or sources
        The name of a file, of a folder (all files in it, by their names) or a glob: ``.npy``, ``.npz`` of scipy,
        ``.mtx``, ``.csv``, ``.tsv``, svmlight text, ``.parquet``, ``.arrow``, ``.feather``, ``.h5``, ``.h5ad``,
        ``.zarr``; text also ``.gz``, ``.bz2``, ``.xz``. "-" is standard input, and a pipe may be named. An array or
        sparse matrix (n, d), a memory map, a dataframe, a dask array, an AnnData, anything with a shape whose slices
        are rows (a data set of h5py or Zarr), an iterator of batches of these. A source is given back with the
        options applied.
    columns : sequence of str or int, or str, optional
        Names or positions of the columns to read, in the order they are to have. Others may hold anything.
    dtype : dtype, optional
        float32 or float64; by default that of the data.
    fill : float, optional
        Number in the place of what is missing (null, NaN, an empty cell); without it that is an error.
    n_features : int, optional
        Columns of svmlight text, which is read once more to find them; needed if it comes from a pipe.
    zero_based : bool, default False
        Whether indices of svmlight text start at 0.
    key : str, optional
        The data set within HDF5 or Zarr, by default the only one of two dimensions; the layer of an AnnData.
    header : bool, optional
        Whether the first line of a table is a header; by default where its words tell.
    beside : str or int, optional
        A column of any type that the rows lack, and ``chunks_beside`` gives beside them: the key of a group.

    Returns
    -------
    fastsketch.sources.Source
        Iterating gives arrays (n, d) or csr_array of about 8 MB, all of one dtype; each holds until the next one is
        read. ``n_rows`` (None if only the end tells), ``n_features``, ``feature_names``, ``dtype``, ``sparse``.

    Raises
    ------
    TypeError
        If ``x`` is nothing that has rows.
    ValueError
        If there is no such column.
    SourceError
        If a file or what it holds cannot be read, files differ in their columns (the message names file and column),
        or a number is missing (it names file, row and column).
    ImportError
        If the package that reads such a file is not installed; the message names the extra.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> source = fs.open_rows(np.arange(12.0).reshape(4, 3), columns=[2, 0])
    >>> source
    <4 rows of 2 columns of the ndarray, float64>
    >>> [rows.shape for rows in source]
    [(4, 2)]
    """
    if n_features is not None:
        n_features = as_integer(n_features, "n_features", 1, MOST_FEATURES + 1)
    options = Options(
        columns=None if columns is None else _as_columns(columns),
        dtype=None if dtype is None else as_dtype(dtype),
        n_features=n_features,
        zero_based=as_flag(zero_based, "zero_based"),
        key=key,
        header=None if header is None else as_flag(header, "header"),
        beside=beside if beside is None or isinstance(beside, str) else as_integer(beside, "beside", -MOST_FEATURES),
    )
    if fill is not None:
        fill = as_real(fill, "fill", -float("inf"), float("inf"))
    source = _opened(x, options)
    if options.beside is not None:
        source = set_apart(source, options.beside)
    # a table takes its columns where it is opened: others may hold no numbers, and one may hold several a row
    columns = None if source.taken is not None and source.taken == options.columns else options.columns
    return chosen(source, columns=columns, dtype=options.dtype, fill=fill)


def _as_columns(columns: str | Sequence[str | int]) -> tuple[str | int, ...]:
    if isinstance(columns, str):
        return (columns,)
    found: list[str | int] = []
    for column in columns:
        found.append(column if isinstance(column, str) else as_integer(column, "columns", -MOST_FEATURES))
    if not found:
        raise ValueError("columns must name a column")
    return tuple(found)


def _opened(x: Any, options: Options) -> Source:
    if isinstance(x, Source):
        return x
    if is_name(x):
        if comes_once(x):
            return open_stream(Path(x), options)
        return _joined([_of_file(path, options) for path in files_of(x)], options)
    if isinstance(x, list | tuple) and x and all(map(_is_one, cast("Any", x))):
        return _joined([_opened(item, options) for item in cast("Iterable[Any]", x)], options)
    return _of_object(x, options)


def _joined(sources: list[Source], options: Options) -> Source:
    """Sources as one; where some have taken their columns, the others take theirs before they are joined."""
    wanted = options.columns
    if wanted is not None and any(source.taken is not None for source in sources):
        sources = [
            source if source.taken == wanted else picked(source, positions(source, wanted)) for source in sources
        ]
        out = joined(sources)
        out.taken = wanted
        return out
    return joined(sources)


def _is_one(item: Any) -> bool:
    """Whether an item of a list is a source by itself, and no row."""
    return is_name(item) or isinstance(item, Source) or len(getattr(item, "shape", ())) == 2


def _of_object(x: Any, options: Options, *, batches: bool = True) -> Source:
    if (name := _formats.of_object(x)) is not None:
        return _formats.function(name)(x, options)
    if isinstance(x, np.memmap):
        return open_memmap(cast("Any", x))
    if isinstance(x, np.ndarray | list | tuple) or is_sparse(x):
        return ArraySource(x)
    if has_slices(x):
        return SlicedSource(x)
    if hasattr(x, "__array__"):
        return ArraySource(x)
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
        return _formats.function(_formats.of_file(path))(path, options)
