"""Select the columns of a Parquet file, Arrow file or data frame that are read as rows of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import listed
from fastsketch.data.sources._column_names import positions_of
from fastsketch.data.sources._foreign import needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._frames import Frames

# Limit of the number of columns that lists are expanded to: a few bytes of a file can state any length.
MOST_ENTRIES = 1 << 20
# What the user can do if some columns hold no numbers.
CHOOSE = "columns='numeric' (--columns numeric) leaves them out, columns= (--columns) names others"


@dataclass(frozen=True)
class Chosen:
    """The columns of a table that are read as rows of numbers, with their widths and dtype.

    Attributes
    ----------
    columns : tuple of str
        Their names, in the requested order.
    widths : tuple of int or None
        The length of the lists in each; None for a column of numbers.
    dtype : dtype
        Of the rows.
    named : bool
        Whether the columns have names of their own.
    beside : str or None
        The extra column.
    """

    columns: tuple[str, ...]
    widths: tuple[int | None, ...]
    dtype: np.dtype[Any]
    named: bool = True
    beside: str | None = None

    @property
    def n_features(self) -> int:
        """Number of features in a row, where a column of lists counts once for each entry."""
        return sum(width or 1 for width in self.widths)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None. Entries of a column of lists are called name[0], name[1] and so on."""
        if not self.named or (len(self.widths) == 1 and (self.widths[0] or 1) > 1):
            return None
        return tuple(
            name if width is None or width == 1 else f"{name}[{k}]"
            for name, width in zip(self.columns, self.widths, strict=True)
            for k in range(width or 1)
        )

    def only(self, features: Sequence[int]) -> "Chosen | None":
        """Return a choice of only the features at these positions. Return None if that is impossible, because a column
        holds lists.
        """
        if any(width not in (None, 1) for width in self.widths):
            return None
        columns, widths = zip(*((self.columns[k], self.widths[k]) for k in features), strict=True)
        return replace(self, columns=columns, widths=widths)


def choose(frames: Frames, options: Options) -> Chosen:
    """Return the columns of a table that the options of ``open_rows`` request. The default is all except the index of a
    pandas data frame.

    Raises
    ------
    SourceError
        If columns hold no numbers: it names all of them.
    ValueError
        If a requested column does not exist, or is requested twice.
    """
    names, of = list(frames.schema), frames.name
    beside = (
        None if options.beside is None else names[positions_of([options.beside], names, len(names), of, "beside")[0]]
    )
    if options.columns is None:
        chosen = [name for name in names if name not in frames.index and name != beside]
        if options.numeric:
            chosen = [name for name in chosen if _other_than_numbers(frames.schema[name]) is None]
    else:
        chosen = [names[k] for k in positions_of(options.columns, names, len(names), of)]
    if not chosen:
        raise SourceError(f"{of} has no columns{' of numbers' if options.numeric else ''}")
    others = [name for name in chosen if _other_than_numbers(frames.schema[name]) is not None]
    if others:
        first = f": column {others[0]!r} holds {_other_than_numbers(frames.schema[others[0]])}, not numbers"
        if options.columns is not None:
            raise SourceError(f"{of}{first}")
        refuse_columns(of, others, first, some=len(others) < len(chosen))
    widths = tuple(_width(frames, name) for name in chosen)
    if (total := sum(width or 1 for width in widths)) > MOST_ENTRIES + len(widths):
        raise SourceError(f"{of}: its lists have {total:,} entries a row, too many for columns")
    pl = needs("polars", "tables")
    inner = [getattr(frames.schema[name], "inner", None) or frames.schema[name] for name in chosen]
    narrow = all(kind in (pl.Float16, pl.Float32) for kind in inner)
    dtype = options.dtype or np.dtype(np.float32 if narrow else np.float64)
    return Chosen(tuple(chosen), widths, dtype, beside=beside)


def _width(frames: Frames, name: str) -> int | None:
    """Return the length of the lists in a column, judged by the first list, or None for a column of numbers."""
    kind = frames.schema[name]
    if not kind.is_nested():
        return None
    width = getattr(kind, "size", None)
    if width is None:
        first = frames.rows(0, min(16, frames.n_rows), [name])[name].list.len().drop_nulls()
        width = int(first[0]) if len(first) else 1
    if width < 1:
        raise SourceError(f"{frames.name}: column {name!r} holds lists without entries")
    return int(width)


def refuse_columns(of: str, others: Sequence[str], said: str, *, some: bool) -> NoReturn:
    """Raise SourceError that names all columns without numbers and the option that leaves them out.

    `said` describes what the first of these columns holds and where. `some` is True if other columns hold numbers.
    """
    if not some:
        raise SourceError(f"{of}{said}")
    several = f"; columns that do not hold numbers alone: {listed(others, 20)}" if len(others) > 1 else ""
    raise SourceError(f"{of}{said}{several}: {CHOOSE}")


def _other_than_numbers(kind: Any) -> str | None:
    """Return a description of what a column of this polars type holds, for an error message. Return None if it holds
    numbers.
    """
    pl = needs("polars", "tables")
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return None
    if kind in (pl.List, pl.Array):
        inner = _other_than_numbers(kind.inner)
        return None if inner is None and not kind.inner.is_nested() else f"lists of {inner or 'lists'}"
    names = {pl.String: "strings", pl.Binary: "bytes", pl.Date: "dates", pl.Datetime: "times", pl.Time: "times of day"}
    names |= {pl.Duration: "durations", pl.Categorical: "categories", pl.Enum: "categories", pl.Struct: "structures"}
    return names.get(kind.base_type(), f"data of type {kind}")
