"""items: an item model of users' rows, as ``recommend`` reads it."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch._validation import is_sparse
from fastsketch.cli._job import given, learn
from fastsketch.cli._names import is_names
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import Piece, PlainRows
from fastsketch.cli._report import report
from fastsketch.io import SourceError, StateError
from fastsketch.io._input import InputFile, whole_lines
from fastsketch.io._table import BYTE_ORDER_MARK
from fastsketch.recommending import SketchedEASE
from fastsketch.recommending._tables import put_item_ids
from fastsketch.sources import Source

# Of the file of names: a line is a name.
BLOCK_BYTES, LONGEST_NAME = 1 << 20, 1 << 20


def items(args: Namespace) -> None:
    """Learn an item model from files of users' rows into one state file, with checkpoints."""
    model, reader = SketchedEASE(**given(args)), UserRows(args.names, binary=args.binary)
    with output_of(args) as out:
        _, facts = learn(args, model, out, reader=reader, finish=reader.finish)
        report(args, facts, out)


class UserRows(PlainRows):
    """Rows alone; the notes of the model say what `recommend` needs to know of them."""

    def __init__(self, path: str | None, *, binary: bool) -> None:
        self._path = path  # of the names of the columns
        self._names: list[str] | None = None
        self._binary = binary

    def begin(self, sources: Sequence[Source]) -> None:
        """See Reader."""
        if self._path is None:
            return
        self._names, width = read_names(Path(self._path)), sources[0].n_features
        if len(self._names) != width:
            raise SourceError(f"{self._path} has {len(self._names)} names for the {width} columns of the inputs")

    def notes(self) -> dict[str, Any]:
        """See Reader; `events` as `recommend` reads it: which values count, and whether they count as 1."""
        events = {"events": {"relevant": None, "binary": self._binary}}
        return events if self._names is None else {"columns": self._names, **events}

    def finish(self, model: Any) -> None:
        """The names become ids in the state of the model, and are no notes."""
        if self._names is not None and model.item_ids is None:
            put_item_ids(model, self._names)
            model.notes.pop("columns", None)

    def take(self, notes: dict[str, Any]) -> None:
        """See Reader."""
        found = notes.get("columns")
        if (found is None) != (self._path is None) or not (found is None or is_names(found)):
            raise StateError("the names of the items are not those of this command")
        self._names = found

    def __call__(self, source: Source, start_row: int, model: Any) -> Iterator[Piece]:
        """See Reader."""
        for (rows,), n, position in super().__call__(source, start_row, model):
            yield (_ones_of(rows) if self._binary else rows,), n, position


def _ones_of(rows: Any) -> Any:
    """Rows with 1 for what is above 0; all else is as it was, and the model says what it thinks of it."""
    if not is_sparse(rows):
        return np.where(rows > 0, 1, rows)
    return type(rows)((np.where(rows.data > 0, 1, rows.data), rows.indices, rows.indptr), shape=rows.shape)


def read_names(path: Path) -> list[str]:
    """The lines of a UTF-8 file, each another name; an error names the file and the line."""
    names: dict[str, int] = {}
    with InputFile(path) as file:
        lines = (line for block in whole_lines(file, BLOCK_BYTES, LONGEST_NAME) for line in bytes(block).splitlines())
        for number, line in enumerate(lines, 1):
            try:
                name = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).decode("utf-8").strip()
            except UnicodeDecodeError:
                raise SourceError(f"{path}, line {number}: the names must be UTF-8") from None
            if not name:
                raise SourceError(f"{path}, line {number}: a name must not be empty")
            if name in names:
                raise SourceError(f"{path}, line {number}: {name[:80]!r} is the name of line {names[name]} too")
            names[name] = number
    return list(names)
