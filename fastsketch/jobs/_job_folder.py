"""The folder of a resumable job: a manifest that describes the job, and a file for each finished part.

``_checkpoint`` is the folder of ``fs.run``, with models; ``_partial_output`` that of ``fs.map_rows``, with results.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Generator
from pathlib import Path
from typing import Self

from fastsketch.data.files._replacing import remove_stale_temporary_files
from fastsketch.jobs._manifest import MANIFEST, Identity, check_same_job, write_manifest


class JobFolder(ABC):
    """Base class of the folders of resumable jobs. Subclasses define the files of finished parts.

    The caller holds the lock of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def clear(self) -> None:
        """Delete the files of all parts.

        Raise FileExistsError if files that are not of a job would be in the way.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Prepare the folder for writing: delete temporary files of killed processes."""

    @abstractmethod
    def describe_finished(self) -> str:
        """Return a text that says which parts are finished and how to resume, for an error message; "" if none is."""

    @contextlib.contextmanager
    def opened(self, job: Identity, *, resume: bool) -> Generator[Self]:
        """Start or resume a job in the folder for a ``with`` block.

        If the block fails, the error gets a note about which parts are kept. The folder is created if it is missing,
        and removed after an error if no part is finished.

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
        remove_stale_temporary_files(self.path / MANIFEST)
        if resume:
            check_same_job(self.path, job)
        else:
            self.clear()
            write_manifest(self.path, job)
        self.prepare()
        try:
            yield self
        except BaseException as error:
            if finished_text := self.describe_finished():
                error.add_note(finished_text)
            else:
                with contextlib.suppress(OSError):
                    self.remove()
                if isinstance(error, OSError | KeyboardInterrupt):
                    error.add_note("nothing has been saved: no part was complete")
            raise

    def remove(self) -> None:
        """Delete the files of all parts, then the manifest, then the folder if it is empty."""
        self.clear()
        (self.path / MANIFEST).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()
