"""Columns of tables as Arrow describes them: which are taken, how many numbers a row has, and in which dtype."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._column_names import positions_of
from fastsketch.data.sources._formats import Options

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
    beside, beside_name : int, str
        The position and the name of the column that lies beside the rows; -1 for none.
    """

    columns: tuple[int, ...]
    names: tuple[str, ...]
    widths: tuple[int, ...]
    dtype: np.dtype[Any]
    beside: int = -1
    beside_name: str = ""

    @property
    def n_features(self) -> int:
        """Numbers of a row."""
        return sum(self.widths)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, name[k] for the entries of a list; None where rows are the lists of one column."""
        if len(self.widths) == 1 and self.widths[0] > 1:
            return None
        return tuple(
            name if width == 1 else f"{name}[{k}]"
            for name, width in zip(self.names, self.widths, strict=True)
            for k in range(width)
        )

    def places(self) -> NDArray[np.intp]:
        """Return the position in a row at which the numbers of each column begin."""
        return np.concatenate([[0], np.cumsum(self.widths)[:-1]]).astype(np.intp)

    def only(self, features: Sequence[int]) -> "Chosen | None":
        """Return some features; None where these are entries of a list."""
        if any(width != 1 for width in self.widths):
            return None
        columns, names = [self.columns[k] for k in features], [self.names[k] for k in features]
        return replace(self, columns=tuple(columns), names=tuple(names), widths=(1,) * len(columns))


def choose(
    fields: Sequence[Field],
    options: Options,
    *,
    of: str,
    metadata: dict[bytes, bytes] | None,
    width: Callable[[int], int],
) -> Chosen:
    """Return the columns of a table that `options` ask for; by default all but the index of a pandas table.

    Parameters
    ----------
    fields : sequence of Field
    options : Options
    of : str
        The table, in messages.
    metadata : dict or None
        Of its schema.
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
    beside = -1 if options.beside is None else positions_of([options.beside], names, len(names), of, "beside")[0]
    if options.columns is None:
        index = index_columns(metadata, names)
        chosen = [k for k, name in enumerate(names) if name not in index and k != beside]
        if options.numeric:
            chosen = [k for k in chosen if _other_than_numbers(fields[k]) is None]
    else:
        chosen = positions_of(options.columns, names, len(names), of)
    if not chosen:
        raise SourceError(f"{of} has no columns{' of numbers' if options.numeric else ''}")
    hint = "" if options.columns is not None else f": {CHOOSE}"
    widths: list[int] = []
    for k in chosen:
        kind = _other_than_numbers(fields[k])
        if kind is not None:
            raise SourceError(f"{of}: column {names[k]!r} holds {kind}, not numbers{hint}")
        kind = fields[k][1]
        widths.append(int(kind[3:]) if kind.startswith("+w:") else width(k) if kind in ("+l", "+L") else 1)
        if widths[-1] < 1:
            raise SourceError(f"{of}: column {names[k]!r} holds lists without entries")
        if sum(widths) > MOST_ENTRIES + len(widths):
            raise SourceError(f"{of}: column {names[k]!r} holds lists of {widths[-1]:,} entries, too many for columns")
    narrow = all((fields[k][2] or fields[k][1]) in "ef" for k in chosen)
    dtype = options.dtype or np.dtype(np.float32 if narrow else np.float64)
    chosen_names = tuple(names[k] for k in chosen)
    return Chosen(tuple(chosen), chosen_names, tuple(widths), dtype, beside, "" if beside < 0 else names[beside])


def index_columns(metadata: dict[bytes, bytes] | None, names: Sequence[str]) -> list[str]:
    """Return columns that are the index of a pandas table, by the note that pandas leaves in what it writes."""
    try:
        noted = json.loads((metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        noted = []
    return [name for name in names if name in noted or re.fullmatch(r"__index_level_\d+__", name)]


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
