"""Read matrices in Zarr folders and zip files, and Zarr arrays in memory."""

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._stamped_file import StampedFile
from fastsketch.data.sources._stored import StoredSource, check_matrix


class ZarrSource(StoredSource):
    """A source that reads the rows of a matrix in a Zarr folder or zip file."""

    what = "Zarr array"

    def __init__(self, path: Path, options: Options, *, by_columns: bool = False) -> None:
        needs("zarr", "Zarr arrays")
        super().__init__(path, options, by_columns=by_columns)

    def opened(self) -> AbstractContextManager[Any]:
        """Open the Zarr folder or zip file, and return a context manager that yields its root.

        Consolidated metadata are not used: they name arrays that may have been deleted, which Zarr reads as zeros.
        """
        return nullcontext(needs("zarr", "Zarr arrays").open(store=str(self.path), mode="r", use_consolidated=False))

    def find(self, root: Any, key: str) -> Any:
        """Return the Zarr array or group called `key`, or None if it does not exist."""
        return root.get(key) if key else root

    def names(self, root: Any) -> Iterator[tuple[str, Any]]:
        """Return an iterator over (name, object) for all Zarr arrays and groups."""
        return iter(root.members(max_depth=None))

    def _look_at(self, path: Path) -> StampedFile:
        return StampedFolder(path)


class StampedFolder(StampedFile):
    """The files of a Zarr array, with a digest of their names, sizes and times when it was opened."""

    def _look(self) -> tuple[int, str]:
        return fingerprint_of_folder(self.path)

    def check_unchanged(self, name: str) -> None:
        """Raise SourceError if a file of the folder is missing, new or changed. Messages call the folder `name`.

        Zarr reads a missing chunk as zeros.
        """
        if fingerprint_of_folder(self.path) != self.stamp:
            raise SourceError(f"{name} has changed since it was opened, or is gone")

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the folder: path, size, and digest of the files' metadata."""
        n_bytes, digest = self.stamp
        return {"path": str(self.path.resolve()), "format": ".zarr", "bytes": n_bytes, "digest": digest}


def open_array(x: Any, options: Options) -> Source:
    """Open a Zarr array as a source, by its path if it is in a local folder."""
    from fastsketch.data.sources._sliced import SlicedSource

    name = f"the Zarr array {x.name or ''!r}"
    check_matrix(x.shape, x.dtype, name)
    root = getattr(x.store, "root", None)
    if type(x.store).__name__ == "LocalStore" and root is not None and Path(root, x.path).is_dir():
        return ZarrSource(Path(root, x.path), replace(options, key=None))
    return SlicedSource(x, name=name, step=int((getattr(x, "shards", None) or x.chunks)[0]))


def fingerprint_of_folder(path: Path) -> tuple[int, str]:
    """Return the total size of the files of a Zarr array, and a digest of their names, sizes and times.

    Raise SourceError for a pipe or a link among them: a link may lead to any file of the machine, or in circles.
    """
    digest, n_bytes = blake2b(digest_size=16), 0
    folders = [str(path)] if path.is_dir() else []
    if not folders and path.exists():
        about = path.stat()
        n_bytes = about.st_size
        digest.update(f"{n_bytes} {about.st_mtime_ns}".encode())
    files: list[str] = []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise SourceError(f"{entry.path} is a link: put what it leads to in its place (cp -rL copies it)")
                if entry.is_dir():
                    folders.append(entry.path)
                else:
                    about = entry.stat()
                    if not stat.S_ISREG(about.st_mode):  # opening a pipe might block forever
                        raise SourceError(f"{entry.path} is no regular file")
                    n_bytes += about.st_size
                    files.append(f"{os.path.relpath(entry.path, path)}\0{about.st_size} {about.st_mtime_ns}")
    for line in sorted(files):
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return n_bytes, digest.hexdigest()
