"""Columns of tables as Arrow describes them: which are taken, how many numbers a row has, and in which dtype."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._file_sources import FileSource
from fastsketch.data.sources._source import Source

# (name, format, format of what lists hold or None, whether it is encoded by a dictionary): _kernels/io/arrow.pyx
Field = tuple[str, str, str | None, bool]

# What holds no numbers, by the first letters of its format.
_OTHERS = {
    "u": "strings",
    "U": "strings",
    "vu": "strings",
    "z": "bytes",
    "Z": "bytes",
    "vz": "bytes",
    "w:": "bytes",
    "td": "dates",
    "tt": "times of day",
    "ts": "times",
    "tD": "durations",
    "ti": "intervals",
    "+s": "structures",
    "+m": "maps",
    "+u": "unions",
    "+r": "runs",
}
_NUMBERS = frozenset("nbcCsSiIlLefg")
# Columns that lists may become, each of which has a name: a few bytes of a file can state any length.
MOST_ENTRIES = 1 << 20
# What to do where some columns hold none.
CHOOSE = "choose those of numbers (columns= of fs.open_rows, --columns; 'numeric' for all of them)"


@dataclass(frozen=True)
class Chosen:
    """Columns of a table that make up rows.

    Attributes
    ----------
    columns : tuple of int
        Their positions in the table, in the order in which they are wanted.
    names : tuple of str
        Their names.
    widths : tuple of int
        Numbers of a row in each: 1, or the length of its lists.
    dtype : dtype
        Of the rows.
    """

    columns: tuple[int, ...]
    names: tuple[str, ...]
    widths: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def n_features(self) -> int:
        """Numbers of a row."""
        return sum(self.widths)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, name[k] for the entries of a list; None where rows are the lists of one column."""
        if self.is_matrix:
            return None
        return tuple(
            name if width == 1 else f"{name}[{k}]"
            for name, width in zip(self.names, self.widths, strict=True)
            for k in range(width)
        )

    @property
    def is_matrix(self) -> bool:
        """Whether rows are the lists of one column."""
        return len(self.widths) == 1 and self.widths[0] > 1

    def places(self) -> NDArray[np.intp]:
        """Return the position in a row at which the numbers of each column begin."""
        return np.concatenate([[0], np.cumsum(self.widths)[:-1]]).astype(np.intp)

    def column_of(self, feature: int) -> str:
        """Return how a message names the column that a feature comes from."""
        k = int(np.searchsorted(self.places(), feature, side="right")) - 1
        entry = "" if self.widths[k] == 1 else f", entry {feature - int(self.places()[k])}"
        return f"column {self.names[k]!r}{entry}"

    def only(self, features: Sequence[int]) -> "Chosen | None":
        """Return some features; None where these are entries of a list."""
        if any(width != 1 for width in self.widths):
            return None
        columns, names = [self.columns[k] for k in features], [self.names[k] for k in features]
        return Chosen(tuple(columns), tuple(names), (1,) * len(columns), self.dtype)


def choose(
    fields: Sequence[Field],
    columns: Sequence[str | int] | None,
    *,
    of: str,
    left_out: Sequence[str] = (),
    numeric: bool = False,
    dtype: np.dtype[Any] | None = None,
    width: Callable[[int], int],
) -> Chosen:
    """Return columns of a table by name or position, or all of them but those `left_out`.

    Parameters
    ----------
    fields : sequence of Field
    columns : sequence of str or int, or None
    of : str
        The table, in messages.
    left_out : sequence of str
        Names of what is there for other readers, such as the index of a pandas table.
    numeric : bool, default False
        Whether columns that hold no numbers are left out too.
    dtype : dtype, optional
        Of the rows; by default float32 where no column holds more, else float64.
    width : callable
        The length of the lists in a column whose type does not tell it, by its position.

    Raises
    ------
    SourceError
        If a column holds no numbers.
    ValueError
        If there is no such column, or it is asked for twice.
    """
    names = [field[0] for field in fields]
    if columns is None:
        chosen = [k for k, name in enumerate(names) if name not in left_out]
        if numeric:
            chosen = [k for k in chosen if _other_than_numbers(fields[k]) is None]
    else:
        place = {name: k for k, name in enumerate(names)}
        chosen = [_position(column, names, place, of) for column in columns]
        counts = Counter(chosen)
        twice = next((column for column, k in zip(columns, chosen, strict=True) if counts[k] > 1), None)
        if twice is not None:
            raise ValueError(f"columns: {twice!r} stands there twice")
    if not chosen:
        raise SourceError(f"{of} has no columns{' of numbers' if numeric else ''}")
    hint = "" if columns is not None else f": {CHOOSE}"
    widths: list[int] = []
    for k in chosen:
        kind = _other_than_numbers(fields[k])
        if kind is not None:
            raise SourceError(f"{of}: column {names[k]!r} holds {kind}, not numbers{hint}")
        widths.append(_width(fields[k], partial(width, k)))
        if widths[-1] < 1:
            raise SourceError(f"{of}: column {names[k]!r} holds lists without entries")
        if sum(widths) > MOST_ENTRIES + len(widths):
            raise SourceError(f"{of}: column {names[k]!r} holds lists of {widths[-1]:,} entries, too many for columns")
    narrow = all((fields[k][2] or fields[k][1]) in "ef" for k in chosen)
    own = np.dtype(np.float32 if narrow else np.float64)
    return Chosen(tuple(chosen), tuple(names[k] for k in chosen), tuple(widths), own if dtype is None else dtype)


def named(fields: Sequence[Field], column: str | int, of: str, argument: str) -> str:
    """Return the name of a column by name or position; ValueError, beginning with the argument, if there is none."""
    names = [field[0] for field in fields]
    try:
        return names[_position(column, names, {name: k for k, name in enumerate(names)}, of)]
    except ValueError as error:
        raise ValueError(f"{argument}{str(error).removeprefix('columns')}") from None


def _position(column: str | int, names: Sequence[str], place: dict[str, int], of: str) -> int:
    if not isinstance(column, str) and column >= len(names) and str(column) in place:
        column = str(column)  # a year
    if isinstance(column, str):
        if column not in place:
            known = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            raise ValueError(f"columns: {of} has no column {column!r}: it has {known}")
        if len(place) < len(names) and names.count(column) > 1:
            raise ValueError(f"columns: {of} has {names.count(column)} columns {column!r}: give positions")
        return place[column]
    if not -len(names) <= column < len(names):
        raise ValueError(f"columns: {of} has {len(names)} columns, got position {column}")
    return column % len(names)


def _other_than_numbers(field: Field) -> str | None:
    """Return what a column holds that is neither numbers nor lists of them."""
    _, kind, of_lists, encoded = field
    if encoded:
        return "categories"
    if kind in _NUMBERS or _is_decimal(kind):
        return None
    if kind in ("+l", "+L") or re.fullmatch(r"\+w:[0-9]{1,18}", kind):
        if of_lists is not None and (of_lists in _NUMBERS or _is_decimal(of_lists)):
            return None
        return f"lists of {_OTHERS.get((of_lists or '')[:2], 'other things')}"
    if kind.startswith("d:"):
        return "decimals of more than 128 bits, or of such a scale"
    return _OTHERS.get(kind[:2], f"Arrow data of type {kind!r}")


def _is_decimal(kind: str) -> bool:
    return re.fullmatch(r"d:\d+,-?[0-2]?\d?\d(,(32|64|128))?", kind) is not None  # a power that float64 has


def _width(field: Field, ask: Callable[[], int]) -> int:
    if field[1].startswith("+w:"):
        return int(field[1][3:])
    return ask() if field[1] in ("+l", "+L") else 1


class TableFile(FileSource):
    """Some columns of a file that has a table."""

    _chosen: Chosen

    def _take(self, chosen: Chosen) -> None:
        self._chosen, self.dtype = chosen, chosen.dtype
        self.n_features, self.feature_names = chosen.n_features, chosen.feature_names

    def only(self, columns: Sequence[int]) -> Source | None:
        """See Source."""
        chosen = self._chosen.only(columns)
        if chosen is None:
            return None
        part = self.varied()
        part._take(chosen)
        return part

    def between(self, start: int, stop: int) -> Self:
        """See Source."""
        return self.varied(first_row=self.first_row + start, n_rows=stop - start, size=stop - start)
