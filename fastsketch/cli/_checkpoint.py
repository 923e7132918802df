"""Partial results: a model with the job that it belongs to and how far that has come."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastsketch as fs
from fastsketch._model import plain
from fastsketch.cli._consumed import Consumed, Taken
from fastsketch.cli._identity import Identity, differences, to_compare
from fastsketch.cli._reading import Learner, Reader
from fastsketch.io import SourceError, StateError
from fastsketch.sources import Source


def save(path: Path, model: Learner, job: Identity, consumed: Consumed, reader: Reader) -> None:
    """Write a partial result."""
    model.notes = {
        "job": job,
        "consumed": [list(taken) for taken in consumed.at(model.n_rows)],
        "reader": reader.notes(),
    }
    model.save(path)


def resumed(
    path: Path, model: Learner, job: Identity, sources: Sequence[Source], reader: Reader
) -> tuple[Any, Consumed]:
    """The model of a partial result of this very job, and what it has consumed.

    Raises
    ------
    ValueError
        If there is none, or it belongs to a job with other inputs or switches: the message names them.
    StateError
        If the file is damaged or none of this command.
    """
    if not path.exists():
        raise ValueError(f"nothing to resume: {path} does not exist")
    saved = fs.load(path)
    if type(saved) is not type(model) or "job" not in saved.notes:
        raise StateError(f"{path} is no partial result of this command")
    notes = saved.notes
    try:
        then: Identity = notes["job"]
        found = differences(job, then)
        consumed = [Taken(*map(int, taken)) for taken in notes["consumed"]]
        compared = [] if found else to_compare(job, then)
        if not found:
            reader.take(notes["reader"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StateError(f"{path} is damaged: its notes are not those of a partial result ({error!r})") from error
    if found:
        raise ValueError(f"{path} belongs to another job: {'; '.join(found)}")
    counted = sum(taken.rows for taken in consumed) == saved.n_rows
    if not (0 < len(consumed) <= len(sources) and counted and plain(saved.parameters) == plain(model.parameters)):
        raise StateError(f"{path} is damaged: its notes are not those of its model")
    for index in (index for index in compared if index < len(consumed)):
        _compare(sources[index], consumed[index], reader, path)
    return saved, Consumed(consumed)


def _compare(source: Source, taken: Taken, reader: Reader, path: Path) -> None:
    """Read again what was taken of an input that may have changed since."""
    print(
        f"fastsketch: {source.name} was moved or written to since: comparing its first {taken.rows:,} rows",
        file=sys.stderr,
    )
    again = Taken()
    for arguments, count, _ in reader(source, 0, None):
        left = taken.rows - again.rows
        if count > left:
            arguments = tuple(argument[:left] for argument in arguments)
        if left:
            again = again.plus(arguments)
        if again.rows == taken.rows:
            break
    if again != taken:
        raise SourceError(
            f"{source.name} has changed: the {taken.rows:,} rows of it in {path} are not those it has now; start "
            "without --resume"
        )
