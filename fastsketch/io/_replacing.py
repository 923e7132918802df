"""Files that are the old one or the new one, even if writing is interrupted."""

import contextlib
import os
import tempfile
from collections.abc import Generator
from os import PathLike
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str | PathLike[str]) -> Generator[BinaryIO]:
    """A binary file to write, which takes the place of `path` when the block ends, and is gone if it fails."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # not every file system lets a directory be synchronised
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
