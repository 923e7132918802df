"""Files that sources read, with a check that the file is unchanged since it was opened."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._identity import fingerprint_of_file


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Convert an OSError that a ``with`` block raises to a SourceError that names the file."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


class StampedFile:
    """A regular file, with the size and the modification time that it had when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            self.stamp = self._look()

    def _look(self) -> tuple[int, Any]:
        """Return the file's size and modification time, which reveal whether it has changed."""
        about = self.path.stat()
        return about.st_size, about.st_mtime_ns

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "path": self.path.absolute()}  # another process may have another working directory

    @property
    def n_bytes(self) -> int:
        """Length of the file when it was opened."""
        return self.stamp[0]

    def check_unchanged(self, name: str) -> None:
        """Raise SourceError if the file is gone or has changed since it was opened. Messages call it `name`."""
        try:
            about = self.path.stat()
        except OSError as error:
            raise SourceError(f"{name} is gone: it was there when it was opened ({error.strerror})") from None
        size, modified = self.stamp
        if about.st_size != size:
            raise SourceError(
                f"{name} has changed since it was opened: it had {size:,} bytes and has {about.st_size:,}"
            )
        if about.st_mtime_ns != modified:
            raise SourceError(f"{name} has changed since it was opened: it was written to")

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the file."""
        return fingerprint_of_file(self.path)
