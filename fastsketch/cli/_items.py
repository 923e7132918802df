"""items: an item model of users' rows, as ``recommend`` and ``evaluate`` read it."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastsketch.cli._job import given, learn
from fastsketch.cli._lowrank import is_names
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import PlainRows
from fastsketch.cli._report import report
from fastsketch.io import Source, SourceError, StateError
from fastsketch.io._input import InputFile, whole_lines
from fastsketch.recommending import SketchedEASE

# Of the file of names: a line is a name.
BLOCK_BYTES, LONGEST_NAME = 1 << 20, 1 << 20


def items(args: Namespace) -> None:
    """Learn an item model from files of users' rows into one state file, with checkpoints."""
    model, reader = SketchedEASE(**given(args)), NamedItems(args.names)
    with output_of(args) as out:
        _, facts = learn(args, model, out, reader=reader)
        report(args, facts, out)


class NamedItems(PlainRows):
    """Rows alone, and the names of their columns for the notes of the model."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._names: list[str] | None = None

    def begin(self, sources: Sequence[Source]) -> None:
        """See Reader."""
        if self._path is None:
            return
        self._names, width = read_names(Path(self._path)), sources[0].n_features
        if len(self._names) != width:
            raise SourceError(f"{self._path} has {len(self._names)} names for the {width} columns of the inputs")

    def notes(self) -> dict[str, Any]:
        """See Reader."""
        return {} if self._names is None else {"columns": self._names}

    def take(self, notes: dict[str, Any]) -> None:
        """See Reader."""
        found = notes.get("columns")
        if (found is None) != (self._path is None) or not (found is None or is_names(found)):
            raise StateError("the names of the items are not those of this command")
        self._names = found


def read_names(path: Path) -> list[str]:
    """The lines of a UTF-8 file, each another name; an error names the file and the line."""
    names: dict[str, int] = {}
    with InputFile(path) as file:
        lines = (line for block in whole_lines(file, BLOCK_BYTES, LONGEST_NAME) for line in bytes(block).splitlines())
        for number, line in enumerate(lines, 1):
            try:
                name = line.decode("utf-8").strip()
            except UnicodeDecodeError:
                raise SourceError(f"{path}, line {number}: the names must be UTF-8") from None
            if not name:
                raise SourceError(f"{path}, line {number}: a name must not be empty")
            if name in names:
                raise SourceError(f"{path}, line {number}: {name[:80]!r} is the name of line {names[name]} too")
            names[name] = number
    return list(names)
