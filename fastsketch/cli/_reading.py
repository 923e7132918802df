"""Rows of a source as arguments of a model's update."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fastsketch.io import Source, open_source

STANDARD_INPUT = "-"

# (arguments of update, rows in them, position in the source)
Piece = tuple[tuple[Any, ...], int, int]


class Learner(Protocol):
    """A model that a job can learn: the frame, and an update."""

    notes: dict[str, Any]

    @property
    def n_rows(self) -> int: ...
    @property
    def parameters(self) -> dict[str, Any]: ...
    @property
    def resolved(self) -> dict[str, Any]: ...
    def facts(self) -> dict[str, Any]: ...
    def save(self, path: str | Path) -> None: ...
    def to_bytes(self) -> bytes: ...
    def update(self, *args: Any, **kwargs: Any) -> Any: ...


@runtime_checkable
class HasLines(Protocol):
    """A source of text."""

    def line_of(self, row: int) -> int | None:
        """The line, counted from 1, of a row, counted from 0; None if it cannot be read again."""
        ...


class Reader(Protocol):
    """How files become sources, and their rows arguments of update."""

    def open(self, args: Namespace) -> list[Source]:
        """The sources of args.inputs, which go together."""
        ...

    def begin(self, sources: Sequence[Source]) -> None:
        """Settle what depends on all sources, before the first row of a job."""
        ...

    def notes(self) -> dict[str, Any]:
        """What has been settled, as json can write it: part of the notes of the model and of partial results."""
        ...

    def take(self, notes: dict[str, Any]) -> None:
        """The inverse, in place of ``begin``; StateError if that is none of its notes."""
        ...

    def __call__(self, source: Source, start_row: int, model: Any) -> Iterator[Piece]:
        """The rows from start_row on; `model` is what learns them, None if nothing does."""
        ...


class PlainRows:
    """Rows alone."""

    def open(self, args: Namespace) -> list[Source]:
        """See Reader."""
        return open_all(args.inputs, args.n_features, zero_based=args.zero_based)

    def begin(self, sources: Sequence[Source]) -> None:
        """See Reader."""

    def notes(self) -> dict[str, Any]:
        """See Reader."""
        return {}

    def take(self, notes: dict[str, Any]) -> None:
        """See Reader."""

    def __call__(self, source: Source, start_row: int, model: Any) -> Iterator[Piece]:
        """See Reader."""
        for rows, position in source.chunks(start_row):
            yield (rows,), rows.shape[0], position


def comes_once(path: str) -> bool:
    """Whether a name is that of a pipe or another stream: its rows come once."""
    return path == STANDARD_INPUT or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


def open_all(paths: Sequence[str], n_features: int | None, *, zero_based: bool) -> list[Source]:
    """Sources of one width; svmlight files without n_features take the widest index of them all."""
    sources = [open_source(path, n_features=n_features, zero_based=zero_based) for path in paths]
    widths = {source.n_features for source in sources}
    if len(widths) > 1:
        text = [source for source in sources if source.n_rows is None]
        fixed = {source.n_features for source in sources if source.n_rows is not None}
        width = max(widths)
        if len(fixed) > 1 or (fixed and fixed != {width}):
            listed = ", ".join(f"{path} has {source.n_features}" for path, source in zip(paths, sources, strict=True))
            raise ValueError(f"the inputs differ in their number of columns: {listed}")
        for source in text:
            source.n_features = width
    return sources
