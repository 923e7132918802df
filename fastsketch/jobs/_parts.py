"""The tasks of ``fs.run``: learn a model of one part of the rows, and merge models of neighbouring parts."""

# pyright: reportPrivateUsage=false
# (hooks of the frame for the parts of a job)

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.loading import from_bytes
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._state import StateError
from fastsketch.data.sources import Source
from fastsketch.data.sources._row_naming import naming
from fastsketch.data.sources._source import length
from fastsketch.jobs._engines import report_rows


class JobNode(NamedTuple):
    """A model that has learned consecutive parts of a job, `first` to `last`, with its number of rows. It may be stored
    as bytes.

    `content` is the model, or the bytes of its state file.
    """

    content: Any
    n_rows: int
    first: int
    last: int
    certificate: dict[str, float]

    def load_model(self) -> Any:
        """Return the model of the node. If the node stores bytes, the model is read from them.

        Raise StateError that names the parts if it cannot be loaded.
        """
        if not isinstance(self.content, bytes):
            return self.content
        try:
            return from_bytes(self.content)
        except StateError as error:
            part_names = f"part {self.first}" if self.first == self.last else f"parts {self.first} to {self.last}"
            raise StateError(f"what came back from {part_names} cannot be merged: {error}") from error

    def as_bytes(self) -> bytes:
        """Return the model of the node as the bytes of a state file."""
        return self.content if isinstance(self.content, bytes) else cast("bytes", self.content.to_bytes())


class PartStart(NamedTuple):
    """Instructions for creating the empty model that learns one part of a job."""

    part: int  # its number in the job
    block: int  # number of its first block of rows
    complete: bool  # whether the part is completed when its rows are learned, so that later rows would be another part


def plan_part_models(template: Any, parts: Sequence[Source]) -> Sequence[PartStart | None]:
    """Return a list with, for each part of the rows, a PartStart that says how its empty model is created.

    The list is [None] for a single part, which is learned by a copy of the template.

    If the model can determine at which block of rows each part starts, the merged model equals that of one pass.
    """
    if len(parts) == 1:
        return [None]
    lengths = [part.n_rows for part in parts]
    blocks = None
    if all(length is not None for length in lengths):
        blocks = template._first_blocks(cast("list[int]", lengths), parts[0].n_features)
    if blocks is not None:
        return [PartStart(0, block, complete=False) for block in blocks]
    return [PartStart(number, 0, complete=True) for number in range(len(parts))]


def learn_part(template: Any, start: PartStart | None, part: Source, number: int, as_bytes: bool) -> JobNode:
    """Learn the rows of one part in a new model, and return it as a JobNode.

    The model is a copy of the template if `start` is None, and created for the part otherwise. With `as_bytes` the node
    holds the bytes of the model.
    """
    model = template.copy() if start is None else template._for_part(start.part, start.block)
    for count, _ in learn_rows(model, part):
        report_rows(count)
    if start is not None and start.complete:
        model._complete_part()
    return as_node(model, number, number, as_bytes)


def learn_rows(model: Any, source: Source, start_row: int = 0, *, step: int = 0) -> Generator[tuple[int, int]]:
    """Let a model learn the rows of a source, and yield (number of rows, position in the source) after each block.
    Learning begins at row `start_row`; the model is changed.

    A block is a chunk, or at most `step` rows of one.
    Errors of the model name the file and the row.
    """
    row, chunks = (
        start_row,
        _labelled_chunks(source, start_row) if model._learns_targets() else source.chunks(start_row),
    )
    model._name_columns(source)
    try:
        for *columns, position in chunks:
            n = length(columns[0])
            for start in range(0, n, step or max(n, 1)):
                stop = min(start + step, n) if step else n
                with naming(source, row):
                    model.update(*(columns if stop - start == n else [column[start:stop] for column in columns]))
                row += stop - start
                yield stop - start, position
    finally:
        getattr(chunks, "close", _do_nothing)()  # a traceback would keep the iterator and its open files alive


def _do_nothing() -> None:
    """Do nothing. It replaces the ``close`` method of iterators that have none."""


def _labelled_chunks(source: Source, start_row: int) -> Iterator[tuple[Any, NDArray[Any], int]]:
    """Yield (rows, targets, position in the source) for each chunk from `start_row` on.

    Targets that are text become numbers if the targets of the first chunk are numbers.
    """
    target_type, row = None, start_row
    if start_row:
        first_chunks = source.chunks_beside()
        target_type = _target_type(next(iter(first_chunks))[1])
        getattr(first_chunks, "close", _do_nothing)()
    for rows, values, position in source.chunks_beside(start_row):
        if values.dtype == object:
            target_type = target_type or _target_type(values)
            values = np.array([_as_target(value, target_type, source, row + k) for k, value in enumerate(values)])
        yield rows, values, position
        row += len(values)


def _target_type(values: NDArray[Any]) -> type:
    """Return float if all targets are finite numbers or strings of such numbers, and str otherwise."""
    try:
        return float if np.isfinite(values.astype(float)).all() else str
    except (TypeError, ValueError):
        return str


def _as_target(value: Any, kind: type, source: Source, row: int) -> Any:
    """Convert one target to the type `kind`. SourceError names the row if it is missing or not a number."""
    if value is None:
        raise SourceError(f"{source.where(row)}: the target is missing")
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise SourceError(f"{source.where(row)}: the target is {value!r}, the first ones are numbers") from None


def merge_nodes(nodes: Sequence[JobNode]) -> JobNode:
    """Merge the models of neighbouring parts in their order, and return the result as a JobNode.

    The first model is changed.
    """
    as_bytes = isinstance(nodes[0].content, bytes)
    model, *others = [node.load_model() for node in nodes]
    for other in others:
        model.merge(other)
    return as_node(model, nodes[0].first, nodes[-1].last, as_bytes)


def as_node(model: Any, first: int, last: int, as_bytes: bool) -> JobNode:
    """Return a JobNode of a model that has learned the parts from `first` to `last`, as bytes if `as_bytes`."""
    return JobNode(model.to_bytes() if as_bytes else model, model.n_rows, first, last, model._certificate())
