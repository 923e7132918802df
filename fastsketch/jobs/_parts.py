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
from fastsketch.jobs._engines import tell


class JobNode(NamedTuple):
    """The model of consecutive parts, `first` to `last`, with its number of rows.

    `content` is the model, or the bytes of its state file.
    """

    content: Any
    n_rows: int
    first: int
    last: int
    certificate: dict[str, float]

    def opened(self) -> Any:
        """Return the model, loading it if the node holds bytes.

        Raise StateError that names the parts if it cannot be loaded.
        """
        if not isinstance(self.content, bytes):
            return self.content
        try:
            return from_bytes(self.content)
        except StateError as error:
            which = f"part {self.first}" if self.first == self.last else f"parts {self.first} to {self.last}"
            raise StateError(f"what came back from {which} cannot be merged: {error}") from error

    def as_bytes(self) -> bytes:
        """Return the bytes of the model's state file."""
        return self.content if isinstance(self.content, bytes) else cast("bytes", self.content.to_bytes())


class Begin(NamedTuple):
    """Instructions for creating the empty model of a part from the template of the job."""

    part: int  # its number in the job
    block: int  # number of its first block of rows
    complete: bool  # whether the part is completed when its rows are learned, so that later rows would be another part


def beginnings(template: Any, parts: Sequence[Source]) -> Sequence[Begin | None]:
    """Return for each part how its empty model is created, or None if the template is copied (for a single part).

    If the model can determine at which block of rows each part starts, the merged model equals that of one pass.
    """
    if len(parts) == 1:
        return [None]
    lengths = [part.n_rows for part in parts]
    blocks = None
    if all(length is not None for length in lengths):
        blocks = template._first_blocks(cast("list[int]", lengths), parts[0].n_features)
    if blocks is not None:
        return [Begin(0, block, complete=False) for block in blocks]
    return [Begin(number, 0, complete=True) for number in range(len(parts))]


def learn(template: Any, begin: Begin | None, part: Source, number: int, as_bytes: bool) -> JobNode:
    """Learn the rows of one part in a new model, and return it as a JobNode.

    The model is a copy of the template if `begin` is None, and created for the part otherwise.
    """
    model = template.copy() if begin is None else template._for_part(begin.part, begin.block)
    for count, _ in learned(model, part):
        tell(count)
    if begin is not None and begin.complete:
        model._complete_part()
    return node_of(model, number, number, as_bytes)


def learned(model: Any, source: Source, start_row: int = 0, *, step: int = 0) -> Generator[tuple[int, int]]:
    """Let a model learn the rows of a source from start_row on, and yield progress after each piece.

    What is yielded is (number of rows of the piece, position in the source). A piece is a chunk, or at most `step` rows
    of one. Errors of the model name the file and the row.
    """
    row, chunks = start_row, _labelled(source, start_row) if model._learns_targets() else source.chunks(start_row)
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
        getattr(chunks, "close", _nothing)()  # a traceback would keep the iterator and its open files alive


def _nothing() -> None:
    pass


def _labelled(source: Source, start_row: int) -> Iterator[tuple[Any, NDArray[Any], int]]:
    """Yield (rows, targets, position in the source) for each chunk.

    Text targets are converted to numbers if the targets of the first chunk are numbers.
    """
    kind, row = None, start_row
    if start_row:
        first = source.chunks_beside()
        kind = _kind_of(next(iter(first))[1])
        getattr(first, "close", _nothing)()
    for rows, values, position in source.chunks_beside(start_row):
        if values.dtype == object:
            kind = kind or _kind_of(values)
            values = np.array([_as_target(value, kind, source, row + k) for k, value in enumerate(values)])
        yield rows, values, position
        row += len(values)


def _kind_of(values: NDArray[Any]) -> type:
    """Return float if all values are finite numbers or strings of such numbers, and str otherwise."""
    try:
        return float if np.isfinite(values.astype(float)).all() else str
    except (TypeError, ValueError):
        return str


def _as_target(value: Any, kind: type, source: Source, row: int) -> Any:
    if value is None:
        raise SourceError(f"{source.where(row)}: the target is missing")
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise SourceError(f"{source.where(row)}: the target is {value!r}, the first ones are numbers") from None


def join(nodes: Sequence[JobNode]) -> JobNode:
    """Merge the models of neighbouring parts in their order, and return the result as a JobNode.

    The first model is changed.
    """
    as_bytes = isinstance(nodes[0].content, bytes)
    model, *others = [node.opened() for node in nodes]
    for other in others:
        model.merge(other)
    return node_of(model, nodes[0].first, nodes[-1].last, as_bytes)


def node_of(model: Any, first: int, last: int, as_bytes: bool) -> JobNode:
    """Wrap a model that has learned the parts from `first` to `last` in a JobNode, as bytes if `as_bytes`."""
    return JobNode(model.to_bytes() if as_bytes else model, model.n_rows, first, last, model._certificate())
