"""items: an item model of users' rows, as ``recommend`` reads it."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch._core.validation import is_sparse
from fastsketch.cli._flags import parameters_of
from fastsketch.cli._in_parts import learn_rows, rows_of
from fastsketch.cli._output import output_of
from fastsketch.data.files import SourceError
from fastsketch.data.files._input import InputFile, whole_lines
from fastsketch.data.files._table import BYTE_ORDER_MARK
from fastsketch.data.sources import Source
from fastsketch.data.sources._select import Derived
from fastsketch.recommending import SketchedEASE
from fastsketch.recommending._item_events import set_item_ids

# Of the file of names: a line is a name.
BLOCK_BYTES, LONGEST_NAME = 1 << 20, 1 << 20


def items(args: Namespace) -> None:
    """Learn an item model from files of users' rows into one state file, with checkpoints."""
    model = SketchedEASE(**parameters_of(args, SketchedEASE))
    with output_of(args) as out:
        source = rows_of(args)
        names = None if args.names is None else _names(args.names, source)
        # as `recommend` reads it: which values count, and whether they count as 1
        notes: dict[str, Any] = {"events": {"relevant": None, "binary": args.binary}}

        def finish(model: SketchedEASE) -> None:  # the names are ids in the state of the model
            if names is not None and model.item_ids is None:
                set_item_ids(model, names)

        source = Ones(source) if args.binary else source
        out.report(learn_rows(args, model, out, source, notes=notes, finish=finish)[1])


def _names(path: str, source: Source) -> list[str]:
    names = read_names(Path(path))
    if len(names) != source.n_features:
        raise SourceError(f"{path} has {len(names)} names for the {source.n_features} columns of the inputs")
    return names


class Ones(Derived):
    """Rows with 1 for what is above 0."""

    def like(self, source: Source) -> Source:
        """See Derived."""
        return Ones(source)

    def made(self, rows: Any, first: int, spaces: Any) -> Any:
        """See Derived: all else than what is above 0 is as it was, for the model to refuse."""
        if not is_sparse(rows):
            return np.where(rows > 0, 1, rows)
        return type(rows)((np.where(rows.data > 0, 1, rows.data), rows.indices, rows.indptr), shape=rows.shape)

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {**super().identity(), "binary": True}


def read_names(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, each another name; an error names the file and the line."""
    names: dict[str, int] = {}
    with InputFile(path).held() as file:
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
