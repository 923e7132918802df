"""open_rows: anything that has rows, as a source."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from numpy.typing import DTypeLike

from fastsketch._validation import as_dtype, as_flag, as_integer, as_real
from fastsketch.io._input import SourceError
from fastsketch.io._svmlight import MOST_FEATURES
from fastsketch.sources import _formats
from fastsketch.sources._arrays import ArraySource
from fastsketch.sources._files import reading
from fastsketch.sources._formats import Options
from fastsketch.sources._joined import joined
from fastsketch.sources._paths import comes_once, files_of, is_name
from fastsketch.sources._select import chosen
from fastsketch.sources._source import Source


def open_rows(
    x: Any,
    *,
    columns: Sequence[str | int] | None = None,
    dtype: DTypeLike | None = None,
    fill: float | None = None,
    n_features: int | None = None,
    zero_based: bool = False,
    key: str | None = None,
    header: bool | None = None,
) -> Source:
    """Rows from wherever they are, read a chunk at a time."""
    if n_features is not None:
        n_features = as_integer(n_features, "n_features", 1, MOST_FEATURES + 1)
    options = Options(
        columns=None if columns is None else _as_columns(columns),
        n_features=n_features,
        zero_based=as_flag(zero_based, "zero_based"),
        key=key,
        header=None if header is None else as_flag(header, "header"),
    )
    wanted = None if dtype is None else as_dtype(dtype)
    if fill is not None:
        fill = as_real(fill, "fill", -float("inf"), float("inf"))
    source = _opened(x, options)
    return chosen(source, columns=options.columns, dtype=wanted, fill=fill)


def _as_columns(columns: Sequence[str | int]) -> tuple[str | int, ...]:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names or positions, got {columns!r}: [{columns!r}] is one")
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
        return joined([_of_file(path, options) for path in files_of(x)])
    if isinstance(x, list | tuple) and x and all(is_name(item) or isinstance(item, Source) for item in cast("Any", x)):
        return joined([_opened(item, options) for item in cast("Iterable[Any]", x)])
    name = _formats.of_object(x)
    return ArraySource(x) if name is None else _formats.function(name)(x, options)


def _of_file(path: Path, options: Options) -> Source:
    with reading(path):
        if comes_once(path):
            raise SourceError(f"{path} is no regular file: rows may be read twice; save them to a file first")
        if path.is_file() and path.stat().st_size == 0:
            raise SourceError(f"{path} is empty")
        path.stat()
        return _formats.function(_formats.of_file(path))(path, options)
