"""The folder of a map job that is under way: a file for each part whose answers are complete, and the manifest.

It lies beside the output and is called OUT.partial. The output has its name when all is there, or is the old one.
"""

import contextlib
import errno
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Self

from fastsketch.data.files._lock import locked
from fastsketch.data.files._replacing import LONGEST_NAME, output_target, sweep
from fastsketch.data.files._untrusted import discard, is_link
from fastsketch.jobs._fields import Method, Spec
from fastsketch.jobs._manifest import MANIFEST, Identity, begin_or_resume, goes_on, refuse_finished
from fastsketch.jobs._outputs import Sink


class Unfinished:
    """Output of which parts are there; this job alone writes to it, inside a ``with`` block of ``opened``."""

    def __init__(self, target: Path, sink: Sink) -> None:
        self._target, self._sink = target, sink
        self.place = target.with_name(f"{target.name}.partial")
        self._lengths: dict[int, int] = {}  # rows of the parts that are done
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
            If the manifest is damaged.
        LockHeld
            If another job writes the same output.
        OSError
            If its folder cannot be written to.
        """
        if resume and job is None:
            raise ValueError("resume: these rows come once, and what is left of them cannot be found again")
        target = checked(output, sink)
        with contextlib.nullcontext() if held else locked(target):
            self = cls(target, sink)
            if is_link(self.place):
                raise _in_the_way(self.place)
            if resume:
                refuse_finished(self.place, target)
            resume = resume and goes_on(self.place)
            if not resume:
                _remove(self.place)
                self.place.mkdir()
            begin_or_resume(self.place, job or {}, resume=resume)
            sink.begin(self.place)
            try:
                yield self
            except BaseException as error:
                self._last_words(error, goes_on=job is not None)
                raise

    def done(
        self, lengths: Sequence[int | None], method: Method, spec_of_part: Callable[[int], Spec | None]
    ) -> dict[int, int]:
        """Return {part: its rows} of the parts whose files can be those of the answers.

        Parameters
        ----------
        lengths : sequence of int or None
            Rows of each part; None where they are not counted before they are read.
        method : callable
            The function that gives the answers.
        spec_of_part : callable
            Returns what the answers for a part are, None if it has no rows. It is asked once, of the first part whose
            file is there: files are not trusted.
        """
        for number, length in enumerate(lengths):
            if not self._sink.part(self.place, number).exists():
                continue
            if self._spec is None and (spec := spec_of_part(number)) is not None:
                self._spec = number, spec
            n_rows = None if self._spec is None else self._sink.rows_in(self.place, number, self._spec[1], method)
            if n_rows and length in (None, n_rows):
                self._lengths[number] = n_rows
        return dict(self._lengths)

    def add(self, number: int, n_rows: int, spec: Spec | None) -> None:
        """Count a part as done; without rows it has no answers, and no file.

        Raises
        ------
        ValueError
            If its answers are not like those of the others.
        """
        if spec is not None:
            self._spec = self._spec or (number, spec)
            if spec != self._spec[1]:
                raise ValueError(
                    f"answers must be alike in all parts: those of part {number} are {spec}, those of part "
                    f"{self._spec[0]} {self._spec[1]}"
                )
        self._lengths[number] = n_rows

    def finish(self, n_parts: int, spec_of_nothing: Callable[[], Spec]) -> int:
        """Put the parts together as the output, and return the number of rows.

        `spec_of_nothing` returns what answers would be; it is asked if there are none.
        """
        lengths = [self._lengths[number] for number in range(n_parts)]
        spec = spec_of_nothing() if self._spec is None else self._spec[1]
        self._sink.finish(self.place, lengths, spec, self._target)
        _remove(self.place)
        return sum(lengths)

    def _last_words(self, error: BaseException, *, goes_on: bool) -> None:
        """Add a note to an error that tells which parts are kept; without a way to resume none are."""
        n = len(self._lengths)
        if not goes_on or not n:
            with contextlib.suppress(OSError):
                _remove(self.place)
            if isinstance(error, OSError | KeyboardInterrupt):
                error.add_note("nothing has been saved")
            return
        error.add_note(
            f"{n} part{'s are' if n > 1 else ' is'} in {self.place}: the same job with resume goes on from there"
        )


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
        strange = [path.name for path in target.iterdir() if not sink.is_part(path.name)]
        if strange:
            raise ValueError(
                f"the output {output} is a folder with other things in it ({strange[0]}): it would be replaced, "
                "choose another name"
            )
    elif target.exists():
        raise ValueError(f"the output {output} is a file, and a folder is written: choose another name")
    return target


def _remove(place: Path) -> None:
    """Delete the folder of a job, the manifest last, so that an interrupted deletion is recognised by the next job."""
    if place.is_dir() and not is_link(place):
        sweep(place / MANIFEST)  # of one that was killed before its manifest had a name
        if any(place.iterdir()) and not (place / MANIFEST).exists():
            raise FileExistsError(errno.EEXIST, "is in the way, and holds no job: move it", str(place))
        for path in place.iterdir():
            if path.name != MANIFEST:
                discard(path)
        (place / MANIFEST).unlink(missing_ok=True)
        place.rmdir()
    elif place.exists() or place.is_symlink():
        raise _in_the_way(place)


def _in_the_way(place: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "is in the way, and no folder: move it", str(place))
