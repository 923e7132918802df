"""Open files in object stores and on web servers through fsspec."""

import posixpath
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import needs


def is_url(x: Any) -> bool:
    """Return True if x is a URL such as s3://bucket/rows.csv."""
    return isinstance(x, str) and "://" in x


class RemotePath:
    """A file at a URL that fsspec supports, with the methods of ``pathlib.Path`` that sources use."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = posixpath.basename(url)
        self.suffix = PurePosixPath(self.name).suffix
        self.parent = PurePosixPath(url.partition("://")[2]).parent

    def __str__(self) -> str:
        return self.url

    def with_suffix(self, suffix: str) -> "RemotePath":
        """Return the path with another suffix."""
        return RemotePath(self.url.removesuffix(self.suffix) + suffix)

    def absolute(self) -> "RemotePath":
        """Return the path itself; ``resolve`` does the same."""
        return self

    resolve = absolute

    def is_file(self) -> bool:
        """Return True always, because ``remote_files`` has already expanded folders."""
        return True

    def open(self, mode: str = "rb", buffering: int = -1) -> Any:
        """Open the file for reading; ``buffering`` is ignored."""
        with _as_system_error():
            return needs("fsspec", "files by a protocol").open(self.url, mode).open()

    def stat(self) -> Any:
        """Return the size of the file as `st_size`, and a number that changes with its version as `st_mtime_ns`."""
        with _as_system_error():
            file_system, path = needs("fsspec", "files by a protocol").core.url_to_fs(self.url)
            about = file_system.info(path)
        told = [about.get(name) for name in ("mtime", "LastModified", "last_modified", "created", "ETag", "etag")]
        version = int.from_bytes(blake2b(repr(told).encode(), digest_size=7).digest(), "big")
        return SimpleNamespace(st_size=int(about["size"] or 0), st_mtime_ns=version)


@contextmanager
def _as_system_error() -> Generator[None]:
    """Convert exceptions of an object store in a ``with`` block to OSError, which sources report with the file name."""
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise OSError(None, f"{type(error).__name__}: {error}") from error


def remote_files(url: str) -> list[RemotePath]:
    """Return the files that a URL denotes: the file itself, all files in a folder, or the matches of a glob.

    Raises
    ------
    SourceError
        If there are none.
    """
    fsspec = needs("fsspec", "files by a protocol")
    try:
        file_system, path = fsspec.core.url_to_fs(url)
        if any(mark in path for mark in "*?["):
            found = file_system.glob(path)
        else:
            if not file_system.isdir(path):
                return [RemotePath(url)]
            found = file_system.find(path)
    except (OSError, ValueError, ImportError) as error:
        raise SourceError(f"{url} cannot be read: {error}") from error
    kept = [one for one in sorted(found) if not posixpath.basename(one).startswith((".", "_"))]
    if not kept:
        raise SourceError(f"no file matches {url}")
    return [RemotePath(file_system.unstrip_protocol(one)) for one in kept]
