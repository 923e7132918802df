"""The folder of a map job that is under way: what parts have written, and the journal of those that are done.

It lies beside the output and is called OUT.partial. The output has its name when all is there, or is the old one.
"""

import contextlib
import errno
import shutil
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from fastsketch._core.warning import warn_caller
from fastsketch.data.files._lock import locked
from fastsketch.data.files._replacing import LONGEST_NAME, output_target, sweep, temporary_name
from fastsketch.data.files._state import StateError
from fastsketch.data.files._untrusted import discard, is_link
from fastsketch.jobs._fields import Method, Spec, name_of
from fastsketch.jobs._journal import add_line, begin, contents
from fastsketch.jobs._outputs import Sink
from fastsketch.jobs._resuming import JOURNAL, Identity, as_written, begin_or_resume, goes_on, refuse_finished

# Answers of a part without rows.
NOTHING = Spec((), (), ())


class MapParts(NamedTuple):
    """Parts of a map job, by which the lines of a journal are checked."""

    method: Method
    lengths: Sequence[int | None]  # rows of each part; None where they are not counted before they are read
    firsts: Sequence[int | None]  # first row of each part; None if it is not known
    spec_of_part: Callable[[int], Spec | None]  # names, dtypes and shapes of the answers for a part; None without rows


class Unfinished:
    """Output of which parts are there; this job alone writes to it, inside a ``with`` block of ``opened``."""

    def __init__(self, target: Path, sink: Sink, job: Identity, parts: MapParts) -> None:
        self._target, self._sink, self._job, self._about = target, sink, job, parts
        self.place = target.with_name(f"{target.name}.partial")
        self._parts: dict[int, tuple[int, Spec]] = {}
        self._spec: tuple[int, Spec] | None = None  # what answers are, and a part that has such

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, output: Path, sink: Sink, job: Identity | None, parts: MapParts, *, resume: bool, held: bool = False
    ) -> Generator[Self]:
        """Open the unfinished output of a job; `job` is None if it could not be resumed; `held`: the output is locked.

        Raises
        ------
        ValueError
            If the output cannot be what is wanted, or what is to be resumed is another job's, or is finished.
        StateError
            If the journal is damaged, or says what cannot be true of the parts.
        LockHeld
            If another job writes the same output.
        OSError
            If its folder cannot be written to.
        """
        if resume and job is None:
            raise ValueError("resume: these rows come once, and what is left of them cannot be found again")
        target = checked(output, sink)
        with contextlib.nullcontext() if held else locked(target):
            self = cls(target, sink, job or {}, parts)
            journal = self.place / JOURNAL
            if is_link(self.place):
                raise _in_the_way(self.place)
            if resume:
                refuse_finished(self.place, target)
            resume = resume and goes_on(self.place)
            if not resume:
                if job is not None and _has_parts(journal):
                    warn_caller(f"{self.place} is replaced: resume would have gone on from it")
                _remove(self.place)
                self.place.mkdir()
            for number, line in enumerate(begin_or_resume(self.place, self._job, resume=resume), 2):
                self._take_line(line, f"{journal}, line {number}")
            for folder in filter(Path.is_dir, [self.place, sink.part(self.place, 0).parent]):
                for path in () if is_link(folder) else folder.glob(".*.tmp"):  # of a part that was being written
                    path.unlink(missing_ok=True)
            try:
                yield self
            except BaseException as error:
                self._last_words(error, goes_on=job is not None)
                raise

    def _take_line(self, line: dict[str, Any], where: str) -> None:
        """Count the part of a line as done; StateError unless it says what can be true of that part."""
        part, rows, about = line.get("part"), line.get("rows"), self._about
        if type(part) is not int or not 0 <= part < len(about.lengths) or type(rows) is not int or rows < 0:
            raise StateError(f"{where} is none of a manifest: start without resume")
        if about.lengths[part] not in (None, rows):
            words = f"says that part {part} has {rows} rows, and it has {about.lengths[part]}"
            raise StateError(f"{where} {words}: start without resume")
        if rows and self._spec is None:
            spec = about.spec_of_part(part)
            self._spec = None if spec is None else (part, spec)
        expected = NOTHING if not rows or self._spec is None else self._spec[1]
        if line.get("answers") != as_written(expected) or (rows and not expected.names):
            raise StateError(f"{where}: the answers are not those of {name_of(about.method)}: start without resume")
        self._parts[part] = rows, expected

    def done(self) -> dict[int, int]:
        """Return {part: its rows} of the finished parts, those whose files are as the journal has them.

        Asked once, before anything is written: what a part has written may have gone to the output already, and then
        the journal may not say any longer that it is there.
        """
        known, about = self._parts, self._about
        self._parts = {
            n: (rows, spec)
            for n, (rows, spec) in known.items()
            if not rows or self._sink.holds(self.place, n, about.firsts[n], rows, spec, about.method)
        }
        self._find_spec()
        if len(self._parts) < len(known):
            begin(self.place / JOURNAL, self._job, (_line(n, *part) for n, part in self._parts.items()))
        self._sink.begin(self.place)
        return {number: rows for number, (rows, _) in self._parts.items()}

    def _find_spec(self) -> None:
        self._spec = next(((n, spec) for n, (_, spec) in self._parts.items() if spec.names), None)

    def add(self, number: int, n_rows: int, spec: Spec | None) -> None:
        """Say that a part is done; without rows it has no answers.

        Raises
        ------
        ValueError
            If its answers are not like those of the others.
        """
        spec = spec or NOTHING
        if self._spec is not None and spec not in (NOTHING, self._spec[1]):
            raise ValueError(
                f"answers must be alike in all parts: those of part {number} are {spec}, those of part {self._spec[0]} "
                f"{self._spec[1]}"
            )
        add_line(self.place / JOURNAL, _line(number, n_rows, spec))
        self._parts[number] = n_rows, spec
        if self._spec is None:
            self._find_spec()

    def all(self, n_parts: int) -> tuple[list[int], Spec | None]:
        """Return (rows of each part, Spec of the answers, None if there are none)."""
        return [self._parts[number][0] for number in range(n_parts)], self._spec and self._spec[1]

    def finish(self, lengths: list[int], spec: Spec) -> None:
        """Put the parts together, and give them the name of the output."""
        result = self._sink.finish(self.place, lengths, list(self._about.firsts), spec)
        old = None
        if self._sink.FOLDER and self._target.exists():
            old = temporary_name(self._target)
            self._target.rename(old)
        try:
            result.replace(self._target)
        except OSError:
            if old is not None:
                old.rename(self._target)
            raise
        if old is not None:
            shutil.rmtree(old)
        _remove(self.place)

    def _last_words(self, error: BaseException, *, goes_on: bool) -> None:
        """Add a note to an error that tells which parts are kept; without a way to resume none are."""
        if not goes_on or not self._parts:
            with contextlib.suppress(OSError):
                _remove(self.place)
            if isinstance(error, OSError | KeyboardInterrupt):
                error.add_note("nothing has been saved")
            return
        n = len(self._parts)
        error.add_note(
            f"{n} part{'s are' if n > 1 else ' is'} in {self.place}: the same job with resume goes on from there"
        )


def _line(number: int, n_rows: int, spec: Spec) -> dict[str, Any]:
    return {"part": number, "rows": n_rows, "answers": spec}


def checked(output: Path, sink: Sink) -> Path:
    """Return where an output goes, links followed; ValueError if it cannot."""
    if not sink.FOLDER:
        regular = output_target(output)
        if regular is None:
            raise ValueError(f"the output {output} is no regular file: its parts could not be written in any order")
        return regular
    if not output.parent.is_dir():
        raise ValueError(f"the folder of the output does not exist: {output.parent}")
    if len(output.name.encode()) > LONGEST_NAME:
        raise ValueError(f"the name of the output is longer than {LONGEST_NAME} bytes")
    target = output.resolve()
    if target.is_dir():
        strange = [path.name for path in target.iterdir() if not sink.wrote(path.name)]
        if strange:
            raise ValueError(
                f"the output {output} is a folder with other things in it ({strange[0]}): it would be replaced, "
                "choose another name"
            )
    elif target.exists():
        raise ValueError(f"the output {output} is a file, and a folder is written: choose another name")
    return target


def _has_parts(journal: Path) -> bool:
    with contextlib.suppress(OSError, StateError):
        return bool(contents(journal)[1])
    return False


def _remove(place: Path) -> None:
    """Delete the folder of a job, the journal last, so that an interrupted deletion is recognised by the next job."""
    if place.is_dir() and not is_link(place):
        sweep(place / JOURNAL)  # of one that was killed before its journal had a name
        if any(place.iterdir()) and not (place / JOURNAL).exists():
            raise FileExistsError(errno.EEXIST, "is in the way, and holds no job: move it", str(place))
        for path in place.iterdir():
            if path.name != JOURNAL:
                discard(path)
        (place / JOURNAL).unlink(missing_ok=True)
        place.rmdir()
    elif place.exists() or place.is_symlink():
        raise _in_the_way(place)


def _in_the_way(place: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "is in the way, and no folder: move it", str(place))
