"""What a resume decides: whether a folder holds what this very job has done, and what of it need not be done again.

Every job that can go on has a folder with a journal (``_journal``). Its first line describes the job: the model and its
parameters, the inputs, the parts that they are cut into. Every other line says what is done, and is added when that is
on the disk. A resume compares the descriptions, refuses with the differences in words, and leaves out what lines cover.

Lines of ``fs.run`` (``Checkpoint``) are models of parts, or the one model that learns rows in order: its number of
rows is where the source is read on. Lines of ``fs.map_rows`` (``_unfinished``) are answers for parts.
"""

import contextlib
import errno
import json
import re
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from fastsketch._core.escaping import escaped
from fastsketch._core.warning import warn_caller
from fastsketch._frame.loading import from_bytes
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._lock import locked
from fastsketch.data.files._replacing import replacing, sweep
from fastsketch.data.files._state import StateError
from fastsketch.data.files._untrusted import open_within
from fastsketch.data.sources import Source
from fastsketch.jobs._journal import JournalLine, add_line, begin, contents, is_foreign
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._tree import Span

JOURNAL = "manifest.jsonl"

Identity = dict[str, Any]

# Of files that are a checkpoint's own, and of those that become them: no others are touched.
_NODE = re.compile(r"node-[0-9]+-[0-9]+-[0-9]+\.fsk")
_UNWRITTEN = re.compile(rf"\.({_NODE.pattern})\..*\.tmp", re.DOTALL)


# -- whose job it is -----------------------------------------------------------------------------------------------
def identity_of(source: Source) -> Identity:
    """Return what tells the rows of a source from others, as json writes and reads it: tuples are lists."""
    return as_written(source.identity())


def check_unchanged(source: Source, before: Identity) -> None:
    """Raise SourceError if the rows are not those that `before` describes: they were changed while they were read."""
    changes = differences(identity_of(source), before)
    if changes:
        raise SourceError(f"the rows changed while they were read: {in_words(changes[0])}")


def begin_or_resume(folder: Path, job: Identity, *, resume: bool) -> list[JournalLine]:
    """Begin the journal of a job in its folder, or return the lines of the one that is there.

    Raises
    ------
    OtherJob
        If the journal belongs to another job.
    StateError
        If it is damaged.
    """
    if not resume:
        begin(folder / JOURNAL, job)
        return []
    then, lines = contents(folder / JOURNAL)
    changes = differences(job, then)
    if changes:
        raise OtherJob(folder, changes)
    return lines


def goes_on(folder: Path) -> bool:
    """Return whether a resume finds a job in its folder; if not, warn that it begins.

    A job that was stopped before its first part was done leaves nothing: who always resumes means to begin it.
    """
    found = (folder / JOURNAL).exists()
    if not found:
        warn_caller(f"nothing to resume in {folder}: the job begins")
    return found


def refuse_finished(folder: Path, result: Path) -> None:
    """Raise ValueError if a resume finds no unfinished job in its folder, but a finished result that it would replace.

    The result may be that of another job, or of other rows, and it says nothing of how it was made.
    """
    if result.exists() and not (folder / JOURNAL).exists():
        raise ValueError(
            f"resume: {folder} holds no unfinished job, and {result} is finished: it would be replaced by a result of "
            "these rows alone; choose another output, or leave resume out to replace it"
        )


def as_written(value: Any) -> Any:
    """Return a value as json writes and reads it: tuples are lists."""
    return json.loads(json.dumps(value))


class Difference(NamedTuple):
    """Difference of two descriptions of a job."""

    names: tuple[str, ...]  # from the outside in
    now: Any
    then: Any
    path: str | None  # of the file that it is about


class OtherJob(ValueError):
    """Error of a folder that belongs to another job, with the differences between the two."""

    def __init__(
        self, folder: Path, changes: list[Difference], words: Callable[[Difference], str] | None = None
    ) -> None:
        self.folder, self.changes = folder, changes
        said = list(dict.fromkeys(map(words or in_words, changes)))
        more = f"; and {len(said) - 4} more" if len(said) > 4 else ""
        super().__init__(escaped(f"{folder} belongs to another job: {'; '.join(said[:4])}{more}"))

    def __reduce__(self) -> tuple[Any, ...]:
        return OtherJob, (self.folder, self.changes)


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
    name, now, then = change.names[-1], change.now, change.then
    if change.path is not None and name == "bytes" and type(then) is int:
        return f"{change.path} has {now:,} bytes now and had {then:,}"
    if change.path is not None and name == "digest":
        return f"the content of {change.path} is not what it was"
    if change.path is not None and name == "modified":
        return f"{change.path} was written to since"
    if isinstance(now, list) and isinstance(then, list):
        return f"{name} are {len(cast('list[Any]', now))} now and were {len(cast('list[Any]', then))}"
    return f"{name} is {shown(now)} now and was {shown(then)}"


def shown(value: Any) -> str:
    """Return a value as a message has it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# -- what has been learned -----------------------------------------------------------------------------------------
class Entry(NamedTuple):
    """Line of a checkpoint: the node `at` a level of the tree of a pass, which covers parts first to last."""

    number: int  # of the pass, from 1
    level: int
    at: int
    first: int
    last: int
    rows: int
    crc32: int  # of the node's file: one of another job that was put in its place is not used
    file: str

    def covers(self, other: "Entry") -> bool:
        """Tell whether this one makes the other needless."""
        return self.number == other.number and self.first <= other.first and other.last <= self.last


class Checkpoint:
    """Folder of what has been learned, to which this job alone writes, inside a ``with`` block of ``opened``."""

    def __init__(self, folder: Path, entries: list[Entry]) -> None:
        self.folder = folder
        self.entries = entries

    def nodes(self, number: int, check: Callable[[Entry, Any], object]) -> list[tuple[Entry, JobNode]]:
        """Return the nodes of a pass, by their first part; one that cannot be used is left out with a warning.

        `check` is called with an entry and its model, and raises StateError unless the model can be that of the parts.
        """
        nodes: list[tuple[Entry, JobNode]] = []
        for entry in sorted(entry for entry in self.entries if entry.number == number):
            try:
                with open_within(self.folder, entry.file) as file:
                    content = file.read()
                if zlib.crc32(content) != entry.crc32:
                    raise StateError("it is not the one that was written")
                model = from_bytes(content)
                n_rows = model.n_rows
                if n_rows != entry.rows:
                    raise StateError(f"it has {n_rows} rows, and its line says {entry.rows}")
                check(entry, model)
            except (OSError, StateError) as error:
                self.entries.remove(entry)
                words = f"{self.folder / entry.file} cannot be used, its parts are learned again: {error}"
                warn_caller(words)
                continue
            nodes.append((entry, JobNode(content, n_rows, entry.first, entry.last, {})))
        # a part is in one node alone: lines of parts that were learned again may stand beside one that covers them
        nodes.sort(key=lambda pair: pair[0].first - pair[0].last)
        kept: list[tuple[Entry, JobNode]] = []
        for entry, node in nodes:
            if not any(other.covers(entry) for other, _ in kept):
                kept.append((entry, node))
        return sorted(kept, key=lambda pair: pair[0].first)

    def add(self, number: int, place: Span, node: JobNode) -> None:
        """Keep a node, and remove those that it covers."""
        content = node.as_bytes()
        entry = Entry(number, *place, node.n_rows, zlib.crc32(content), "")
        entry = entry._replace(file=(file := _node_name(entry)))
        try:
            with replacing(self.folder / file, follow_links=False) as out:
                out.write(content)
            add_line(self.folder / JOURNAL, entry._asdict())
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
        """Open the checkpoint of a job in a folder, which is made if need be; an error leaves none that is empty.

        Raises
        ------
        ValueError
            If what is to be resumed belongs to another job.
        StateError
            If the journal is damaged.
        LockHeld
            If another job is at work in the folder.
        OSError
            If the folder cannot be written to, or has a file in the journal's place that is none.
        """
        folder.mkdir(exist_ok=True)
        try:
            with locked(folder / JOURNAL):
                sweep(folder / JOURNAL)
                if not resume:
                    _make_room(folder)
                self = cls(folder, _entries(folder, begin_or_resume(folder, job, resume=resume)))
                _tidy(folder, {entry.file for entry in self.entries})
                try:
                    yield self
                except BaseException:
                    with contextlib.suppress(OSError, StateError):
                        if not contents(folder / JOURNAL)[1]:
                            remove(folder)
                    raise
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()  # as long as it is empty
            raise


def kept(folder: Path) -> tuple[int, int]:
    """Return (number of the last pass, its rows) of what a checkpoint holds; (0, 0) if that is nothing."""
    try:
        entries = _entries(folder, contents(folder / JOURNAL)[1])
    except (OSError, StateError):
        return 0, 0
    number = max((entry.number for entry in entries), default=0)
    return number, sum(entry.rows for entry in entries if entry.number == number)


def remove(folder: Path) -> None:
    """Delete a checkpoint, and its folder if nothing else is in it."""
    _tidy(folder, set())
    (folder / JOURNAL).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _make_room(folder: Path) -> None:
    """Refuse a folder with a foreign file in its journal's place; warn if a job that could be resumed is replaced."""
    if is_foreign(folder / JOURNAL):
        words = "it is no manifest of a checkpoint: name another folder"
        raise FileExistsError(errno.EEXIST, words, str(folder / JOURNAL))
    with contextlib.suppress(OSError, StateError):
        job, lines = contents(folder / JOURNAL)
        entries = _entries(folder, lines)
        if entries and not (len(entries) == 1 and _is_complete(entries[0], job)):
            warn_caller(f"the checkpoint in {folder} is replaced: resume would have gone on from it")


def _is_complete(entry: Entry, job: Identity) -> bool:
    """Tell whether a node is the result of its job: of rows in their order the one of level 1."""
    covers_all = entry.number == job.get("passes") and entry.last + 1 == job.get("parts")
    return covers_all and (entry.last > 0 or entry.level > 0)


def _tidy(folder: Path, wanted: set[str]) -> None:
    """Remove nodes that no line names, and the temporary files of writers that were killed."""
    for path in folder.glob("*"):
        unwritten = _UNWRITTEN.fullmatch(path.name)
        if unwritten:
            sweep(folder / unwritten[1])
        elif _NODE.fullmatch(path.name) and path.name not in wanted:
            path.unlink(missing_ok=True)


def _node_name(entry: Entry) -> str:
    """Return the name of a node's file."""
    return f"node-{entry.number}-{entry.level}-{entry.at}.fsk"


def _entries(folder: Path, lines: list[JournalLine]) -> list[Entry]:
    """Return the nodes of the lines of a journal that no other node covers."""
    entries: list[Entry] = []
    for number, line in enumerate(lines, 2):
        try:
            entry = Entry(**line)
            if not all(type(value) is int and value >= 0 for value in entry[:-1]) or entry.file != _node_name(entry):
                raise TypeError
        except TypeError:
            raise StateError(f"{folder / JOURNAL}, line {number} is none of a manifest: start without resume") from None
        entries = [other for other in entries if not entry.covers(other)] + [entry]
    return entries
