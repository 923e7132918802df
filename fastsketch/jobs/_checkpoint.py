"""The folder of what a job of ``fs.run`` has learned: a state file for each node of the tree of its parts.

The name of a file says which node it holds, how many rows that has learned from, and a checksum of both.
"""

import contextlib
import errno
import re
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, Self

from fastsketch._core.warning import warn_caller
from fastsketch._frame.loading import from_bytes
from fastsketch.data.files._lock import locked
from fastsketch.data.files._replacing import replacing, sweep
from fastsketch.data.files._state import StateError
from fastsketch.data.files._untrusted import open_within
from fastsketch.jobs._manifest import MANIFEST, Identity, begin_or_resume, job_in
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._tree import Span

# Of files that are a checkpoint's own, and of those that become them: no others are touched.
_NODE = re.compile(r"node-([0-9]{1,4})-([0-9]{1,4})-([0-9]{1,18})-([0-9]{1,19})-([0-9a-f]{8})\.fsk")
_UNWRITTEN = re.compile(r"\.(node-[-0-9a-f]+\.fsk)\..*\.tmp", re.DOTALL)


class Entry(NamedTuple):
    """File name of a checkpoint: which part of a job the model in the file has learned from, and a checksum."""

    number: int  # of the pass, from 1
    level: int  # of the tree, in which neighbours join by two
    at: int  # counted within its level
    rows: int
    crc32: int  # of these numbers and the content: a file of another job, or under another name, is not used

    @property
    def file(self) -> str:
        """Return the name of the file."""
        return f"node-{self.number}-{self.level}-{self.at}-{self.rows}-{self.crc32:08x}.fsk"

    def with_checksum(self, content: bytes) -> "Entry":
        """Return a copy whose checksum is that of these numbers and of the bytes of the file."""
        return self._replace(crc32=zlib.crc32(content, zlib.crc32(repr(self[:-1]).encode())))

    def covers(self, other: "Entry") -> bool:
        """Tell whether this one makes the other needless; of the same node the one of more rows does."""
        if self.number != other.number or (self.level, self.rows) < (other.level, other.rows):
            return False
        return self.at == other.at >> self.level - other.level


class Checkpoint:
    """Folder of what has been learned, to which this job alone writes, inside a ``with`` block of ``opened``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def nodes(self, number: int, check: Callable[[Entry, Any], object]) -> list[tuple[Entry, bytes]]:
        """Return the nodes of a pass, by their first part; one that cannot be used is left out with a warning.

        `check` is called with an entry and its model, and raises StateError unless the model can be that of the parts.
        """
        nodes: list[tuple[Entry, bytes]] = []
        for entry in entries_in(self.folder):
            if entry.number != number or any(other.covers(entry) for other, _ in nodes):
                continue
            try:
                with open_within(self.folder, entry.file) as file:
                    content = file.read()
                if entry.with_checksum(content) != entry:
                    raise StateError("it is not the one that was written")
                model = from_bytes(content)
                if model.n_rows != entry.rows:
                    raise StateError(f"it has {model.n_rows} rows, and its name says {entry.rows}")
                check(entry, model)
            except (OSError, StateError) as error:
                words = f"{self.folder / entry.file} cannot be used, its parts are learned again: {error}"
                warn_caller(words)
                continue
            nodes.append((entry, content))
        return sorted(nodes, key=lambda pair: pair[0].at << pair[0].level)

    def add(self, number: int, place: Span, node: JobNode) -> None:
        """Keep a node, and remove those that it covers."""
        content = node.as_bytes()
        entry = Entry(number, place.level, place.at, node.n_rows, 0).with_checksum(content)
        try:
            with replacing(self.folder / entry.file, follow_links=False) as out:
                out.write(content)
        except OSError as error:  # a full disk says nothing of where it is
            why = f"the checkpoint cannot be written ({error.strerror or error}); what it has stays"
            raise OSError(error.errno, why, str(self.folder)) from error
        for other in entries_in(self.folder):
            if other != entry and entry.covers(other):
                (self.folder / other.file).unlink(missing_ok=True)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path, job: Identity, *, resume: bool) -> Generator[Self]:
        """Open the checkpoint of a job in a folder; a missing folder is created, an empty one removed after errors.

        Raises
        ------
        ValueError
            If what is to be resumed belongs to another job.
        StateError
            If the manifest is damaged.
        LockHeld
            If another job is at work in the folder.
        OSError
            If the folder cannot be written to, or has a file in the manifest's place that is none.
        """
        folder.mkdir(exist_ok=True)
        try:
            with locked(folder / MANIFEST):
                sweep(folder / MANIFEST)
                if not resume:
                    _make_room(folder)
                begin_or_resume(folder, job, resume=resume)
                _sweep_nodes(folder)
                try:
                    yield cls(folder)
                except BaseException as error:
                    _last_words(folder, error)
                    raise
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()  # as long as it is empty
            raise


def entries_in(folder: Path) -> list[Entry]:
    """Return the nodes that the names of files in a folder tell of, the largest first."""
    found = [match for match in map(_NODE.fullmatch, _names(folder)) if match]
    entries = [Entry(int(match[1]), int(match[2]), int(match[3]), int(match[4]), int(match[5], 16)) for match in found]
    named = [entry for entry, match in zip(entries, found, strict=True) if entry.file == match[0]]
    return sorted(named, reverse=True)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _last_words(folder: Path, error: BaseException) -> None:
    """Add a note to an error that tells what is kept; a checkpoint without a node is removed."""
    largest: list[Entry] = []
    for entry in entries_in(folder):
        if not any(other.covers(entry) for other in largest):
            largest.append(entry)
    if not largest:
        remove(folder)
        if isinstance(error, OSError | KeyboardInterrupt):
            error.add_note("nothing has been saved: no part was complete")
        return
    number = largest[0].number
    n_rows = sum(entry.rows for entry in largest if entry.number == number)
    which = "" if number == 1 else f" in pass {number}"
    error.add_note(
        f"the partial result of {n_rows:,} rows{which} is in {folder}; the same job with resume goes on from it"
    )


def remove(folder: Path) -> None:
    """Delete a checkpoint, and its folder if nothing else is in it."""
    _sweep_nodes(folder)
    for entry in entries_in(folder):
        (folder / entry.file).unlink(missing_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _make_room(folder: Path) -> None:
    """Remove the nodes of another job; refuse a folder with a foreign file in the manifest's place."""
    entries = entries_in(folder)
    try:
        job_in(folder)
    except FileNotFoundError:
        pass
    except StateError:
        if not entries:
            words = "it is no manifest of a checkpoint: name another folder"
            raise FileExistsError(errno.EEXIST, words, str(folder / MANIFEST)) from None
    for entry in entries:
        (folder / entry.file).unlink(missing_ok=True)


def _sweep_nodes(folder: Path) -> None:
    """Remove the temporary files of writers that were killed."""
    for match in map(_UNWRITTEN.fullmatch, _names(folder)):
        if match:
            sweep(folder / match[1])
