"""The folder of a resumable job: the manifest, and files of the parts that are finished.

``_checkpoint`` is the folder of ``fs.run``, with models; ``_partial_output`` that of ``fs.map_rows``, with answers.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Generator
from pathlib import Path
from typing import Self

from fastsketch.data.files._replacing import sweep
from fastsketch.jobs._manifest import MANIFEST, Identity, check_same_job, write_manifest


class JobFolder(ABC):
    """Folder of a resumable job. A subclass defines the files of finished parts. The caller holds the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def clear(self) -> None:
        """Delete the files of all parts. FileExistsError if files of somebody else are in the way."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the folder ready for writing: remove temporary files of writers that were killed."""

    @abstractmethod
    def finished(self) -> str:
        """Describe the finished parts and how to resume, for an error message; "" if there are none."""

    @contextlib.contextmanager
    def opened(self, job: Identity, *, resume: bool) -> Generator[Self]:
        """Start a job in the folder, or resume it. If the block fails, the error gets a note of what has been kept.

        The folder is created if it is missing, and removed after an error if no part is finished.

        Raises
        ------
        ValueError
            If the job to resume has another description.
        StateError
            If the manifest is damaged.
        OSError
            If the folder cannot be written to, or holds files of somebody else.
        """
        self.path.mkdir(exist_ok=True)
        sweep(self.path / MANIFEST)
        if resume:
            check_same_job(self.path, job)
        else:
            self.clear()
            write_manifest(self.path, job)
        self.prepare()
        try:
            yield self
        except BaseException as error:
            if finished := self.finished():
                error.add_note(finished)
            else:
                with contextlib.suppress(OSError):
                    self.remove()
                if isinstance(error, OSError | KeyboardInterrupt):
                    error.add_note("nothing has been saved: no part was complete")
            raise

    def remove(self) -> None:
        """Delete the parts, then the manifest, then the folder if nothing else is in it."""
        self.clear()
        (self.path / MANIFEST).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()
