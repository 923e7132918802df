"""The checkpoint of a job: a folder with what has been learned of parts, and a manifest, to which lines are added.

A line of it (``_journal``) names the file of a node, written before, and the parts that it covers: whatever covers
some of these alone is done with, and its file goes.
"""

import contextlib
import errno
import json
import re
import warnings
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from fastsketch._loading import from_bytes
from fastsketch.io._lock import locked
from fastsketch.io._replacing import replacing, sweep
from fastsketch.io._state import StateError
from fastsketch.jobs._journal import add_line, begin, contents, is_foreign
from fastsketch.jobs._parts import Node
from fastsketch.jobs._tree import Place

NAME = "manifest.jsonl"

Identity = dict[str, Any]

# Of files that are a checkpoint's own: no others are touched.
_NODE = re.compile(r"node-[0-9]+-[0-9]+-[0-9]+\.fsk")


class Entry(NamedTuple):
    """A line: the node `at` a level of the tree of a pass, which covers parts first to last."""

    number: int  # of the pass, from 1
    level: int
    at: int
    first: int
    last: int
    rows: int
    crc32: int  # of the node's file: one of another job that was put in its place is not used
    file: str

    def covers(self, other: "Entry") -> bool:
        """Whether this one makes the other needless."""
        return self.number == other.number and self.first <= other.first and other.last <= self.last


class Manifest:
    """A checkpoint that this job alone writes to, inside a ``with`` block of ``opened``."""

    def __init__(self, folder: Path, entries: list[Entry]) -> None:
        self.folder = folder
        self.entries = entries

    # -- reading -----------------------------------------------------------------------------------------------------
    def nodes(self, number: int) -> list[tuple[Entry, Node]]:
        """What there is of a pass, by first part; what cannot be read is left out, with a warning, and done again."""
        found: list[tuple[Entry, Node]] = []
        for entry in sorted(entry for entry in self.entries if entry.number == number):
            try:
                content = (self.folder / entry.file).read_bytes()
                if zlib.crc32(content) != entry.crc32:
                    raise StateError("it is not the one that was written")
                n_rows = from_bytes(content).n_rows
                if n_rows != entry.rows:
                    raise StateError(f"it has {n_rows} rows, and its line says {entry.rows}")
            except (OSError, StateError) as error:
                self.entries.remove(entry)
                words = f"{self.folder / entry.file} cannot be used, its parts are learned again: {error}"
                warnings.warn(words, stacklevel=2)
                continue
            found.append((entry, Node(content, n_rows, entry.first, entry.last, {})))
        return found

    # -- writing -----------------------------------------------------------------------------------------------------
    def add(self, number: int, place: Place, node: Node) -> None:
        """Keep a node, and let go of those that it covers."""
        file = f"node-{number}-{place.level}-{place.at}.fsk"
        content = node.as_bytes()
        crc32 = zlib.crc32(content)
        entry = Entry(number, place.level, place.at, place.first, place.last, node.n_rows, crc32, file)
        try:
            with replacing(self.folder / file) as out:
                out.write(content)
            add_line(self.folder / NAME, entry._asdict())
        except OSError as error:  # a full disk says nothing of where it is
            why = f"the checkpoint cannot be written ({error.strerror or error}); what it has stays"
            raise OSError(error.errno, why, str(self.folder)) from error
        done = [other for other in self.entries if entry.covers(other)]
        self.entries = [other for other in self.entries if not entry.covers(other)] + [entry]
        for other in done:
            if other.file != file:
                (self.folder / other.file).unlink(missing_ok=True)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path, job: Identity, *, resume: bool) -> Generator[Self]:
        """The checkpoint of this job in a folder, which is made if need be.

        Raises
        ------
        ValueError
            If there is nothing to resume, or what there is belongs to another job.
        StateError
            If the manifest is damaged.
        LockHeld
            If another job is at work in the folder.
        OSError
            If the folder cannot be written to, or has a file in the manifest's place that is none.
        """
        manifest = folder / NAME
        if resume and not manifest.exists():
            raise ValueError(f"nothing to resume: {manifest} does not exist")
        folder.mkdir(exist_ok=True)
        with locked(manifest):
            sweep(manifest)
            entries: list[Entry] = []
            if resume:
                then, entries = _read(manifest)
                compare(folder, job, then)
            else:
                if is_foreign(manifest):
                    raise FileExistsError(
                        errno.EEXIST, "it is no manifest of a checkpoint: name another folder", str(manifest)
                    )
                _make_room(folder)
                begin(manifest, job)
            _tidy(folder, {entry.file for entry in entries})
            yield cls(folder, entries)


def kept(folder: Path) -> tuple[int, int]:
    """(number of the last pass, its rows) of what a checkpoint holds; (0, 0) if that is nothing."""
    try:
        entries = _read(folder / NAME)[1]
    except (OSError, StateError):
        return 0, 0
    number = max((entry.number for entry in entries), default=0)
    return number, sum(entry.rows for entry in entries if entry.number == number)


def remove(folder: Path) -> None:
    """Delete a checkpoint, and its folder if nothing else is in it."""
    _tidy(folder, set())
    (folder / NAME).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _make_room(folder: Path) -> None:
    """Say so if there is a job in a folder from which one could go on."""
    with contextlib.suppress(OSError, StateError):
        job, entries = _read(folder / NAME)
        done = any(entry.number == job.get("passes") and entry.last + 1 == job.get("parts") for entry in entries)
        if entries and not (done and len(entries) == 1):
            warnings.warn(f"the checkpoint in {folder} is replaced: resume would have gone on from it", stacklevel=2)


def _tidy(folder: Path, wanted: set[str]) -> None:
    """Remove nodes that no line names: a kill came between the two."""
    for path in folder.glob("node-*.fsk"):
        if _NODE.fullmatch(path.name):
            if path.name not in wanted:
                path.unlink(missing_ok=True)
            sweep(path)


def _read(manifest: Path) -> tuple[Identity, list[Entry]]:
    """The job of a manifest, and its nodes that no other covers."""
    job, rest = contents(manifest)
    entries: list[Entry] = []
    for number, line in enumerate(rest, 2):
        try:
            entry = Entry(**line)
            if not all(type(value) is int and value >= 0 for value in entry[:-1]) or not _NODE.fullmatch(entry.file):
                raise TypeError
        except TypeError:
            raise StateError(f"{manifest}, line {number} is none of a manifest: start without resume") from None
        entries = [other for other in entries if not entry.covers(other)] + [entry]
    return job, entries


# -- identity ------------------------------------------------------------------------------------------------------
def as_written(value: Any) -> Any:
    """As it is when json has written and read it: tuples are lists."""
    return json.loads(json.dumps(value))


class OtherJob(ValueError):
    """A checkpoint belongs to another job. `found`: in what they differ, as (names from the outside in, now, then)."""

    def __init__(
        self, folder: Path, found: "list[Difference]", words: Callable[["Difference"], str] | None = None
    ) -> None:
        self.folder, self.found = folder, found
        said = list(dict.fromkeys(map(words or in_words, found)))
        more = f"; and {len(said) - 4} more" if len(said) > 4 else ""
        super().__init__(f"{folder} belongs to another job: {'; '.join(said[:4])}{more}")

    def __reduce__(self) -> tuple[Any, ...]:
        return OtherJob, (self.folder, self.found)


class Difference(NamedTuple):
    """One thing in which two descriptions of a job differ."""

    names: tuple[str, ...]  # from the outside in
    now: Any
    then: Any
    path: str | None  # of the file that it is about


def differences(now: Any, then: Any, names: tuple[str, ...] = (), path: str | None = None) -> list[Difference]:
    """In what two things that json can write differ; a file that was moved, and not written to, is the same."""
    if isinstance(now, dict) and isinstance(then, dict):
        mine, theirs = cast("dict[str, Any]", now), cast("dict[str, Any]", then)
        path = mine.get("path", path)
        keys = [key for key in {**mine, **theirs} if key != "path"]
        return [one for key in keys for one in differences(mine.get(key), theirs.get(key), (*names, key), path)]
    if isinstance(now, list) and isinstance(then, list):
        some, others = cast("list[Any]", now), cast("list[Any]", then)
        if len(some) != len(others):
            return [Difference(names, now, then, path)]
        return [one for pair in zip(some, others, strict=True) for one in differences(*pair, names, path)]
    return [] if now == then else [Difference(names, now, then, path)]


def in_words(found: Difference) -> str:
    """A difference as part of a message."""
    name = found.names[-1]
    if found.path is not None and name == "bytes":
        return f"{found.path} has {found.now:,} bytes now and had {found.then:,}"
    if found.path is not None and name == "digest":
        return f"the content of {found.path} is not what it was"
    if found.path is not None and name == "modified":
        return f"{found.path} was written to since"
    now: Any = found.now
    then: Any = found.then
    if all(isinstance(value, list) for value in (now, then)):
        return f"{name} are {len(now)} now and were {len(then)}"
    return f"{name} is {shown(now)} now and was {shown(then)}"


def shown(value: Any) -> str:
    """A value in a message."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def compare(folder: Path, now: Identity, then: Identity) -> None:
    found = differences(now, then)
    if found:
        raise OtherJob(folder, found)
