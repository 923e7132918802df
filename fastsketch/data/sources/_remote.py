"""Files in object stores and on web servers, through fsspec: opened as files that are read in pieces."""

import posixpath
from hashlib import blake2b
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import needs


def is_url(x: Any) -> bool:
    """Return whether x names a file by a protocol, as s3://bucket/rows.csv does."""
    return isinstance(x, str) and "://" in x


class RemotePath:
    """A file of a protocol that fsspec knows, with what sources ask of a ``Path``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = posixpath.basename(url)
        self.suffix = PurePosixPath(self.name).suffix
        self.parent = PurePosixPath(url.partition("://")[2]).parent

    def __str__(self) -> str:
        return self.url

    def with_suffix(self, suffix: str) -> "RemotePath":
        """Return the same with another suffix."""
        return RemotePath(self.url.removesuffix(self.suffix) + suffix)

    def absolute(self) -> "RemotePath":
        """Return it as it is; so does ``resolve``."""
        return self

    resolve = absolute

    def is_file(self) -> bool:
        """Return True: a folder is taken apart where it is named."""
        return True

    def open(self, mode: str = "rb", buffering: int = -1) -> Any:
        """Open it for reading; ``buffering`` is the store's own."""
        with _as_system_error(self.url):
            return needs("fsspec", "files by a protocol").open(self.url, mode).open()

    def stat(self) -> Any:
        """Return its size, and a number that another version of it has not."""
        with _as_system_error(self.url):
            file_system, path = needs("fsspec", "files by a protocol").core.url_to_fs(self.url)
            about = file_system.info(path)
        told = [about.get(name) for name in ("mtime", "LastModified", "last_modified", "created", "ETag", "etag")]
        version = int.from_bytes(blake2b(repr(told).encode(), digest_size=7).digest(), "big")
        return SimpleNamespace(st_size=int(about["size"] or 0), st_mtime_ns=version)


class _as_system_error:  # noqa: N801  a context manager
    """Raise what a store raises as an OSError, which sources turn into an error that names the file."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, OSError | ImportError):
            raise OSError(None, f"{type(error).__name__}: {error}") from error


def remote_files(url: str) -> list[RemotePath]:
    """Return the files that a URL stands for: itself, those below a folder, or those that a glob matches.

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
