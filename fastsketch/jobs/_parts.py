"""The tasks of a job that learns: a model of one part, and one model of two. They know models by the frame's hooks."""

# pyright: reportPrivateUsage=false
# (hooks of the frame for the parts of a job)

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from fastsketch._loading import from_bytes
from fastsketch.io._state import StateError
from fastsketch.jobs._engines import tell
from fastsketch.sources import Source
from fastsketch.sources._naming import naming


class Node(NamedTuple):
    """What was learned of parts `first` to `last`: a model, its bytes, or what fetches these from where they are."""

    content: Any
    n_rows: int
    first: int
    last: int
    certificate: dict[str, float]

    def opened(self) -> Any:
        """The model; StateError naming the parts if the bytes are none."""
        content = self.content.fetch() if hasattr(self.content, "fetch") else self.content
        if not isinstance(content, bytes):
            return content
        try:
            return from_bytes(content)
        except StateError as error:
            which = f"part {self.first}" if self.first == self.last else f"parts {self.first} to {self.last}"
            raise StateError(f"what came back from {which} cannot be merged: {error}") from error

    def as_bytes(self) -> bytes:
        """The model as a state file has it."""
        content = self.content.fetch() if hasattr(self.content, "fetch") else self.content
        return content if isinstance(content, bytes) else cast("bytes", content.to_bytes())


class Begin(NamedTuple):
    """How the model of a part begins: as part `part` of the template's job, or at block `block` of its part."""

    part: int
    block: int
    complete: bool  # it is sealed when its rows are in

    def model(self, template: Any) -> Any:
        """An empty model."""
        return template._for_part(self.part, self.block)


def beginnings(template: Any, parts: Sequence[Source]) -> list[Begin]:
    """How the model of each part begins. Where parts are of whole blocks, they join to the bits of one pass."""
    lengths = [part.n_rows for part in parts]
    blocks = None
    if all(length is not None for length in lengths):
        blocks = template._first_blocks(cast("list[int]", lengths), parts[0].n_features)
    if blocks is not None:
        return [Begin(0, block, complete=False) for block in blocks]
    if len(parts) == 1:  # one pass; nothing is to be merged with it
        return [Begin(0, 0, complete=False)]
    return [Begin(number, 0, complete=True) for number in range(len(parts))]


def learn(template: Any, begin: Begin, part: Source, number: int, as_bytes: bool) -> Node:
    """The model of one part."""
    model = begin.model(template)
    take(model, part)
    if begin.complete:
        model._complete_part()
    return node_of(model, number, number, as_bytes)


def take(model: Any, part: Source) -> None:
    """All rows of a source into a model, whose errors then name the file and its row."""
    row, chunks = 0, part.chunks()
    model._name_columns(part)
    try:
        for rows, _ in chunks:
            with naming(part, row):
                model.update(rows)
            row += rows.shape[0]
            tell(rows.shape[0])
    finally:
        getattr(chunks, "close", _nothing)()  # a traceback would keep it, and what it has open


def _nothing() -> None:
    pass


def join(nodes: Sequence[Node]) -> Node:
    """One node of neighbours, in their order; the first model becomes it."""
    as_bytes = isinstance(nodes[0].content, bytes)
    model, *others = [node.opened() for node in nodes]
    for other in others:
        model.merge(other)
    return node_of(model, nodes[0].first, nodes[-1].last, as_bytes)


def node_of(model: Any, first: int, last: int, as_bytes: bool) -> Node:
    """What a model has learned of parts first to last."""
    return Node(model.to_bytes() if as_bytes else model, model.n_rows, first, last, model._certificate())
