"""Partial results: a model with the job that it belongs to and how far that has come."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastsketch as fs
from fastsketch.cli._consumed import Consumed, Taken
from fastsketch.cli._identity import VERSION, Identity, differences, to_compare
from fastsketch.cli._reading import Learner, Reader
from fastsketch.io import Source, SourceError, StateError


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
        if then.get("version") != VERSION:
            raise ValueError(
                f"{path} was written by another version of fastsketch, and does not say enough of its inputs to go on "
                "from it: start without --resume"
            )
        found = differences(job, then)
        consumed = [Taken(*map(int, taken)) for taken in notes["consumed"]]
        compared = [index for index in to_compare(job, then) if index < len(consumed)] if not found else []
        reader.take(notes["reader"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{path} is damaged: its notes are not those of a partial result ({error!r})") from error
    if found:
        raise ValueError(f"{path} belongs to another job: {'; '.join(found)}")
    if not consumed or len(consumed) > len(sources) or sum(taken.rows for taken in consumed) != saved.n_rows:
        raise StateError(f"{path} is damaged: its counts of rows do not agree")
    for index in compared:
        _compare(sources[index], consumed[index], reader, path)
    return saved, Consumed(consumed)


def _compare(source: Source, taken: Taken, reader: Reader, path: Path) -> None:
    """Read again what was taken of an input that may have changed since."""
    print(
        f"fastsketch: {source.path} was moved or written to since: comparing its first {taken.rows:,} rows",
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
            f"{source.path} has changed: the {taken.rows:,} rows of it in {path} are not those it has now; start "
            "without --resume"
        )
