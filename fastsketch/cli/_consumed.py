"""How much of each input has gone into a model: its rows, and checksums of them."""

import zlib
from typing import Any, NamedTuple, Self, cast

import numpy as np

from fastsketch._validation import is_sparse


class Taken(NamedTuple):
    """What has been taken of one input; the same however it is cut into pieces."""

    rows: int = 0
    values: int = 0  # crc32 of the values, of the columns and lengths of sparse rows, and of targets
    columns: int = 0
    lengths: int = 0
    targets: int = 0

    def plus(self, arguments: tuple[Any, ...]) -> Self:
        """With one more piece: (rows,) or (rows, targets)."""
        rows, *targets = arguments
        sums = self._asdict() | {"rows": self.rows + length(rows)}
        if isinstance(rows, list):  # of dicts, from a table
            text = "".join(f"{row!r}\n" for row in cast(list[Any], rows))
            sums["values"] = zlib.crc32(text.encode(), self.values)
        elif is_sparse(rows):
            narrow = np.int32 if rows.shape[1] < 2**31 else np.int64
            sums["values"] = _crc(rows.data, self.values)
            sums["columns"] = _crc(rows.indices.astype(narrow, copy=False), self.columns)
            sums["lengths"] = _crc(np.diff(rows.indptr).astype(np.int64, copy=False), self.lengths)
        else:
            sums["values"] = _crc(rows, self.values)
        if targets:
            values = targets[0]
            if values.dtype.kind == "U":  # whose width is that of the longest one of its piece
                sums["targets"] = zlib.crc32("".join(f"{value}\n" for value in values).encode(), self.targets)
            else:
                sums["targets"] = _crc(values, self.targets)
        return type(self)(**sums)


def length(rows: Any) -> int:
    """How many rows."""
    return len(cast(list[Any], rows)) if isinstance(rows, list) else rows.shape[0]


def _crc(array: Any, before: int) -> int:
    return zlib.crc32(cast(Any, np.ascontiguousarray(array)), before)


class Consumed:
    """What has been taken of every input so far, in step with a model.

    An interrupt may come just before or just after a model has taken a piece. The model's own count of rows says which,
    and so nothing here is half done either.
    """

    def __init__(self, inputs: list[Taken] | None = None) -> None:
        self._now = inputs or [Taken()]
        self._next = self._now

    def offer(self, index: int, arguments: tuple[Any, ...]) -> None:
        """This piece of this input is about to be taken; those before it have been."""
        self._now = self._next
        inputs = [*self._now, *(Taken() for _ in range(index + 1 - len(self._now)))]
        inputs[index] = inputs[index].plus(arguments)
        self._next = inputs

    def at(self, n_rows: int) -> list[Taken]:
        """What has been taken when the model has seen so many rows."""
        for inputs in (self._next, self._now):
            if sum(taken.rows for taken in inputs) == n_rows:
                return inputs
        raise RuntimeError(f"the model has {n_rows} rows, which is no number between two pieces")
