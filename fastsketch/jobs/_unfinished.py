"""The folder of a map job that is under way: what parts have written, and the journal of those that are done.

It lies beside the output and is called OUT.partial. The output has its name when all is there, or is the old one.
"""

import contextlib
import errno
import shutil
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from fastsketch.data.files._lock import locked
from fastsketch.data.files._replacing import LONGEST_NAME, output_target, sweep, temporary_name
from fastsketch.data.files._state import StateError
from fastsketch.jobs._fields import Spec
from fastsketch.jobs._journal import add_line, begin, contents
from fastsketch.jobs._outputs import Sink
from fastsketch.jobs._resuming import JOURNAL, Identity, begin_or_resume, goes_on, refuse_finished

# Answers of a part without rows.
NOTHING = Spec((), (), ())


class Unfinished:
    """Output of which parts are there; this job alone writes to it, inside a ``with`` block of ``opened``."""

    def __init__(self, target: Path, sink: Sink, job: Identity) -> None:
        self._target, self._sink, self._job = target, sink, job
        self.place = target.with_name(f"{target.name}.partial")
        self._parts: dict[int, tuple[int, Spec]] = {}
        self._spec: tuple[int, Spec] | None = None  # what answers are, and a part that has such

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, output: Path, sink: Sink, job: Identity | None, *, resume: bool, held: bool = False
    ) -> Generator[Self]:
        """Open the unfinished output of a job; `job` is None if it could not be resumed; `held`: the output is locked.

        Raises
        ------
        ValueError
            If the output cannot be what is wanted, or what is to be resumed is another job's, or is finished.
        StateError
            If the journal is damaged.
        LockHeld
            If another job writes the same output.
        OSError
            If its folder cannot be written to.
        """
        if resume and job is None:
            raise ValueError("resume: these rows come once, and what is left of them cannot be found again")
        target = checked(output, sink)
        with contextlib.nullcontext() if held else locked(target):
            self = cls(target, sink, job or {})
            journal = self.place / JOURNAL
            if resume:
                refuse_finished(self.place, target)
            resume = resume and goes_on(self.place)
            if not resume:
                if job is not None and _has_parts(journal):
                    warnings.warn(f"{self.place} is replaced: resume would have gone on from it", stacklevel=4)
                _remove(self.place)
                self.place.mkdir()
            for line in begin_or_resume(self.place, self._job, resume=resume):
                names, dtypes, shapes = line["answers"]
                spec = Spec(tuple(names), tuple(dtypes), tuple(tuple(shape) for shape in shapes))
                self._parts[int(line["part"])] = int(line["rows"]), spec
            for path in [*self.place.glob(".*.tmp"), *self.place.glob("*/.*.tmp")]:  # of a part that was being written
                path.unlink(missing_ok=True)
            try:
                yield self
            except BaseException as error:
                self._last_words(error, goes_on=job is not None)
                raise

    def done(self, firsts: list[int | None]) -> dict[int, int]:
        """Return {part: its rows} of the finished parts; `firsts`: the first row of each part, None if it is not known.

        Asked once, before anything is written: what a part has written may have gone to the output already, and then
        the journal may not say any longer that it is there.
        """
        known = self._parts
        self._parts = {
            n: part
            for n, part in known.items()
            if n < len(firsts) and (not part[1].names or self._sink.holds(self.place, n, firsts[n]))
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

    def finish(self, lengths: list[int], firsts: list[int | None], spec: Spec) -> None:
        """Put the parts together, and give them the name of the output."""
        result = self._sink.finish(self.place, lengths, firsts, spec)
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
    if place.is_dir() and not place.is_symlink():
        sweep(place / JOURNAL)  # of one that was killed before its journal had a name
        if any(place.iterdir()) and not (place / JOURNAL).exists():
            raise FileExistsError(errno.EEXIST, "is in the way, and holds no job: move it", str(place))
        for path in place.iterdir():
            if path.name != JOURNAL:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (place / JOURNAL).unlink(missing_ok=True)
        place.rmdir()
    elif place.exists() or place.is_symlink():
        raise FileExistsError(errno.EEXIST, "is in the way, and no folder: move it", str(place))
