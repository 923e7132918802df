"""The manifest of a job that can be resumed: it says which job has left what else is in its folder.

The manifest describes the model and its parameters, the inputs, and the parts that they are cut into. Everything else
in the folder is a file for each part, or for several parts together, that is renamed into its place when it is
complete. A resume compares the descriptions, refuses with the differences in words, and leaves out the parts whose
files are there: ``_checkpoint`` for ``fs.run``, ``_unfinished`` for ``fs.map_rows``.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

from fastsketch._core.escaping import escaped
from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._replacing import replacing
from fastsketch.data.files._state import SCHEMA, StateError
from fastsketch.data.files._untrusted import open_within
from fastsketch.data.sources import Source

MANIFEST = "manifest.json"
# The manifest of jobs before files of parts said by their names what they hold.
OLD_MANIFEST = "manifest.jsonl"

Identity = dict[str, Any]


def begin_or_resume(folder: Path, job: Identity, *, resume: bool) -> None:
    """Write the manifest of a job; when it is resumed, compare it with the manifest in the folder instead.

    Raises
    ------
    ValueError
        If the manifest is that of another job.
    StateError
        If it is damaged.
    """
    if resume:
        changes = differences(job, job_in(folder))
        if changes:
            said = list(dict.fromkeys(map(in_words, changes)))
            more = f"; and {len(said) - 4} more" if len(said) > 4 else ""
            raise ValueError(escaped(f"{folder} belongs to another job: {'; '.join(said[:4])}{more}"))
        return
    with replacing(folder / MANIFEST, follow_links=False) as out:
        out.write(json.dumps({"schema": SCHEMA, "job": job}).encode())


def job_in(folder: Path) -> Identity:
    """Return the job of the manifest in a folder; StateError if it is damaged, or no regular file."""
    with open_within(folder, MANIFEST) as file:
        content = file.read()
    try:
        found = json.loads(content)
        if found["schema"] == SCHEMA and isinstance(found["job"], dict):
            return cast("Identity", found["job"])
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    raise StateError(f"{folder / MANIFEST} is damaged, or of another version of fastsketch: start without resume")


def goes_on(folder: Path) -> bool:
    """Return whether a resume finds a job in its folder; if not, warn that it begins.

    A job that was stopped before its first part was done leaves nothing: who always resumes means to begin it.
    """
    if (folder / OLD_MANIFEST).exists():
        raise StateError(f"the job in {folder} was begun by another version of fastsketch: remove that folder")
    found = (folder / MANIFEST).exists()
    if not found:
        warn_caller(f"nothing to resume in {folder}: the job begins")
    return found


def refuse_finished(folder: Path, result: Path) -> None:
    """Raise ValueError if a resume finds no unfinished job in its folder, but a finished result that it would replace.

    The result may be that of another job, or of other rows, and it says nothing of how it was made.
    """
    if result.exists() and not (folder / MANIFEST).exists():
        raise ValueError(
            f"resume: {folder} holds no unfinished job, and {result} is finished: it would be replaced by a result of "
            "these rows alone; choose another output, or leave resume out to replace it"
        )


# -- descriptions ------------------------------------------------------------------------------------------------------
def as_written(value: Any) -> Any:
    """Return a value as json writes and reads it: tuples are lists."""
    return json.loads(json.dumps(value))


def identity_of(source: Source) -> Identity:
    """Return what tells the rows of a source from others, as json writes and reads it."""
    return as_written(source.identity())


def check_unchanged(source: Source, before: Identity) -> None:
    """Raise SourceError if the rows are not those that `before` describes: they were changed while they were read."""
    changes = differences(identity_of(source), before)
    if changes:
        raise SourceError(f"the rows changed while they were read: {in_words(changes[0])}")


class Difference(NamedTuple):
    """Difference of two descriptions of a job."""

    names: tuple[str, ...]  # from the outside in
    now: Any
    then: Any
    path: str | None  # of the file that it is about


def differences(now: Any, then: Any, names: tuple[str, ...] = (), path: str | None = None) -> list[Difference]:
    """Return in what two things that json can write differ; a file that was moved, and not written to, is the same."""
    if now == then:
        return []
    if isinstance(now, dict) and isinstance(then, dict):
        mine, theirs = cast("dict[str, Any]", now), cast("dict[str, Any]", then)
        path = mine.get("path", path)
        keys = [key for key in {**mine, **theirs} if key != "path"]
        return [one for key in keys for one in differences(mine.get(key), theirs.get(key), (*names, key), path)]
    if isinstance(now, list) and isinstance(then, list):
        some, others = cast("list[Any]", now), cast("list[Any]", then)
        if len(some) == len(others):
            return [one for pair in zip(some, others, strict=True) for one in differences(*pair, names, path)]
    return [Difference(names, now, then, path)]


def in_words(change: Difference) -> str:
    """Return a difference as part of a message."""
    name, now, then = (change.names or ("job",))[-1], change.now, change.then
    if change.path is not None and name in ("bytes", "digest", "modified"):
        return f"{change.path} is not what it was ({name})"
    if isinstance(now, list) and isinstance(then, list):
        return f"{name} are {len(cast('list[Any]', now))} now and were {len(cast('list[Any]', then))}"
    return f"{name} is {_shown(now)} now and was {_shown(then)}"


def _shown(value: Any) -> str:
    """Return a value as a message has it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
