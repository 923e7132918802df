"""Rows of one width that only grow in number, in memory or in a file without a name."""

import errno
import os
import tempfile
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

# Rows that are read from a file at a time.
PIECE_BYTES = 4 << 20


def nameless(folder: str | None) -> BinaryIO:
    """Return a file that no folder lists: the system removes it when this process ends, however it ends."""
    # buffering: rows of many partitions come a few at a time
    return cast("BinaryIO", tempfile.TemporaryFile(dir=folder, buffering=1 << 18))


class Shelf:
    """Rows (n, width) of one dtype. What lies in a file is read by places, and takes no memory."""

    def __init__(self, width: int, dtype: Any) -> None:
        self.width, self.dtype = width, np.dtype(dtype)
        self.n = 0
        self._parts: list[NDArray[Any]] = []
        self._file: BinaryIO | None = None
        self._folder: str | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, rows: NDArray[Any]) -> "Shelf":
        """Return a shelf of rows that are there already."""
        shelf = cls(rows.shape[1], rows.dtype)
        shelf.append(rows)
        return shelf

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row."""
        return self.width * self.dtype.itemsize

    @property
    def folder(self) -> str | None:
        """Return where the file is, if that was given."""
        return self._folder

    @property
    def in_memory(self) -> bool:
        """Return whether all rows are in memory."""
        return self._file is None

    def to_file(self, folder: str | None) -> None:
        """Move the rows, and all that come, to a file."""
        if self._file is None:
            with self._naming_the_remedy(folder):
                self._file = nameless(folder)
            self._folder = folder
            weakref.finalize(self, self._file.close)
            parts, self._parts = self._parts, []
            for part in parts:
                self._write(part)

    def _write(self, rows: NDArray[Any]) -> None:
        assert self._file is not None
        with self._naming_the_remedy(self._folder):
            self._file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
            self._file.flush()

    @staticmethod
    @contextmanager
    def _naming_the_remedy(folder: str | None) -> Generator[None]:
        """Say what to do where no space is left."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise OSError(
                error.errno,
                f"no space is left for the temporary files of groups in {folder or tempfile.gettempdir()}: give a "
                "folder with more, or a larger max_memory",
            ) from error

    def close(self) -> None:
        """Give the space of a file back."""
        if self._file is not None:
            with suppress(OSError):  # what could not be written is not wanted any more
                self._file.close()

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows (k, width), which are kept as they are, not copied."""
        if not len(rows):
            return
        if self._file is None:
            self._parts.append(rows)
        else:
            with self._lock:
                self._file.seek(0, os.SEEK_END)
                self._write(rows)
        self.n += len(rows)

    def read(self, start: int, n: int) -> NDArray[Any]:
        """Return rows [start, start + n): a view of what is in memory."""
        if self._file is None:
            return self.whole()[start : start + n]
        out = np.empty((n, self.width), self.dtype)
        with self._lock:
            self._file.seek(start * self.row_bytes)
            view = out.reshape(-1).view(np.uint8).data
            done = 0
            while done < len(view):
                count: int = cast("Any", self._file).readinto(view[done:])
                if not count:
                    raise OSError(errno.EIO, "a temporary file of groups has lost its end")
                done += count
        return out

    def whole(self) -> NDArray[Any]:
        """Return all rows as one array."""
        if self._file is not None:
            return self.read(0, self.n)
        if len(self._parts) != 1:
            whole = np.concatenate(self._parts) if self._parts else np.empty((0, self.width), self.dtype)
            self._parts = [whole]
        return self._parts[0]

    def gathered(self, start: NDArray[np.int64], n: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield stretches of rows one after another, a few megabytes at a time."""
        following = np.append(start[1:] == start[:-1] + n[:-1], False) if len(start) else np.empty(0, bool)
        i = 0
        while i < len(start):
            j, count = i, int(n[i])
            while following[j] and (count + int(n[j + 1])) * self.row_bytes <= PIECE_BYTES:
                j += 1
                count += int(n[j])
            yield self.read(int(start[i]), count)
            i = j + 1
