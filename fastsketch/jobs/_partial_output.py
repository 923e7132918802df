"""The folder OUTPUT.partial of a map job, which holds a file of results for each finished part.

The output gets its name only when all parts are there. Until then an older output keeps it.
"""

import contextlib
import errno
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Self

from fastsketch.data.files._lock import locked
from fastsketch.data.files._replacing import LONGEST_NAME, output_target
from fastsketch.data.files._untrusted import discard, is_link
from fastsketch.jobs._fields import Method, Spec
from fastsketch.jobs._job_folder import JobFolder
from fastsketch.jobs._manifest import MANIFEST, Identity, can_resume
from fastsketch.jobs._outputs import Sink


class PartialOutput(JobFolder):
    """The folder of an unfinished job of ``fs.map_rows``.

    While it is open, no other job can write to the same output.
    """

    def __init__(self, target: Path, sink: Sink, *, resumable: bool) -> None:
        super().__init__(target.with_name(f"{target.name}.partial"))
        self._target, self._sink, self._resumable = target, sink, resumable
        self._lengths: dict[int, int] = {}  # rows of the finished parts
        self._spec: tuple[int, Spec] | None = None  # the number of a part that has answers, and their spec

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, output: Path, sink: Sink, job: Identity | None, *, resume: bool, already_locked: bool = False
    ) -> Generator[Self]:
        """Lock an output and start or resume the job that writes it, for a ``with`` block.

        Parameters
        ----------
        output : Path
        sink : Sink
        job : dict or None
            None if the rows cannot be read again, so that the job cannot be resumed.
        resume : bool
        already_locked : bool
            Whether the caller has locked the output.

        Raises
        ------
        ValueError
            If the output is no possible one, if it is finished and ``resume`` is set, or if the rows cannot be read
            again.
        LockHeld
            If another job writes the same output.
        """
        if resume and job is None:
            raise ValueError("resume: these rows can be read only once, so that a stopped job cannot continue")
        target = check_output(output, sink)
        with contextlib.nullcontext() if already_locked else locked(target):
            self = cls(target, sink, resumable=job is not None)
            if is_link(self.path) or (self.path.exists() and not self.path.is_dir()):
                raise FileExistsError(errno.EEXIST, "is in the way, and no folder: move it", str(self.path))
            resume = resume and can_resume(self.path, target)
            with self.opened(job or {}, resume=resume):
                yield self

    def find_finished(
        self, lengths: Sequence[int | None], method: Method, spec_of_part: Callable[[int], Spec | None]
    ) -> dict[int, int]:
        """Find the parts that are finished; return a dict from part numbers to numbers of rows.

        A part is finished if its file holds results of the right dtypes and shapes, and the right number of them.

        Parameters
        ----------
        lengths : sequence of int or None
            Rows of each part; None if they are not known before they are read.
        method : callable
            The function that computes the results.
        spec_of_part : callable
            Returns the spec of the results for a part, None if it has no rows. It is called for the first part that
            has a file, because files are not trusted.
        """
        for number, length in enumerate(lengths):
            if not self._sink.part_path(self.path, number).exists():
                continue
            if self._spec is None and (spec := spec_of_part(number)) is not None:
                self._spec = number, spec
            n_rows = None if self._spec is None else self._sink.count_rows(self.path, number, self._spec[1], method)
            if n_rows and length in (None, n_rows):
                self._lengths[number] = n_rows
        return dict(self._lengths)

    def record_part(self, number: int, n_rows: int, spec: Spec | None) -> None:
        """Record a part as finished, with its number of rows and the Spec of its results.

        Raise ValueError if its results have other dtypes or shapes than those of other parts. A part without rows has
        no Spec and no file.
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
        """Combine the files of all parts into the output, delete the folder, and return the number of rows.

        `spec_of_nothing` is called if no part has rows. It returns the Spec that results would have.
        """
        lengths = [self._lengths[number] for number in range(n_parts)]
        spec = spec_of_nothing() if self._spec is None else self._spec[1]
        self._sink.finish(self.path, lengths, spec, self._target)
        self.remove()
        return sum(lengths)

    def describe_finished(self) -> str:
        """Return a text that says which parts are finished and how to resume, for an error message; "" if none is."""
        n = len(self._lengths) if self._resumable else 0
        words = f"part{'s are' if n > 1 else ' is'} in {self.path}: the same job with resume continues from there"
        return f"{n} {words}" if n else ""

    def clear(self) -> None:
        """Delete everything in the folder except the manifest.

        Raise FileExistsError if the folder has files but no manifest. The manifest stays, because it marks a folder
        that is being deleted as that of a job.
        """
        names = [path.name for path in self.path.iterdir()]
        if names and MANIFEST not in names:
            raise FileExistsError(errno.EEXIST, "is in the way, and holds no job: move it", str(self.path))
        for name in names:
            if name != MANIFEST:
                discard(self.path / name)

    def prepare(self) -> None:
        """Create the folder for the files of parts, and delete temporary files of killed processes."""
        self._sink.prepare_folder(self.path)


def check_output(output: Path, sink: Sink) -> Path:
    """Validate the path of an output. Return the path to write to, with links followed.

    Raise ValueError if the output cannot be written.
    """
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
        foreign_files = [path.name for path in target.iterdir() if not sink.is_part(path.name)]
        if foreign_files:
            raise ValueError(
                f"the output {output} is a folder with other things in it ({foreign_files[0]}): it would be replaced, "
                "choose another name"
            )
    elif target.exists():
        raise ValueError(f"the output {output} is a file, and a folder is written: choose another name")
    return target
