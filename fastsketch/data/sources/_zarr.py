"""Zarr: an array of two dimensions, by its path, that of its group, or as an object of zarr."""

import os
import stat
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._hdf5 import the_only_one
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._stored import InChunks, check_matrix

WHAT = "Zarr array"


def open_zarr(path: Path, options: Options) -> Source:
    """Return an array: the path itself, the one called `key` in a group, or the only one of two dimensions there."""
    zarr = needs("zarr", "Zarr arrays")
    with damaged(path, WHAT):
        stamp = stamp_of(path)
        array = _opened(zarr, path)
        key = ""
        if not isinstance(array, zarr.Array):
            candidates = _arrays(array)
            key = options.key if options.key is not None else the_only_one(list(candidates), str(path), "array")
            if key.strip("/") not in candidates:
                known = ", ".join(map(repr, list(candidates)[:20])) or "none"
                raise SourceError(f"{path}: there is no array {key!r} of two dimensions; there are: {known}")
            array, key = candidates[key.strip("/")], key.strip("/")
        elif options.key is not None:
            raise SourceError(f"{path} is an array, and no group: there is no key={options.key!r}")
        return ZarrSource(path, key, array, stamp, options.max_unpacked)


def open_array(x: Any, options: Options) -> Source:
    """Return an array of zarr: by its path, where it has one, or as it is."""
    from fastsketch.data.sources._sliced import SlicedSource

    name = f"the Zarr array {x.name or ''!r}"
    check_matrix(x.shape, x.dtype, name)
    root = getattr(x.store, "root", None)
    if type(x.store).__name__ == "LocalStore" and root is not None and Path(root, x.path).is_dir():
        path = Path(root, x.path)
        return ZarrSource(path, "", x, stamp_of(path), options.max_unpacked)
    return SlicedSource(x, name=name, step=_chunk_rows(x))


def _opened(zarr: Any, path: Path) -> Any:
    if not path.exists():
        raise SourceError(f"{path} cannot be read: there is no such folder")
    return zarr.open(store=str(path), mode="r")


def _arrays(group: Any) -> dict[str, Any]:
    """Return arrays of two dimensions that hold numbers, by name."""
    arrays: dict[str, Any] = {}
    for name, item in group.members(max_depth=None):
        if hasattr(item, "shape") and len(item.shape) == 2 and getattr(item.dtype, "kind", "O") in "fiub":
            arrays[name] = item
    return dict(sorted(arrays.items()))


def _chunk_rows(x: Any) -> int:
    """Return rows that are stored together: of a shard, where there are shards."""
    return int((getattr(x, "shards", None) or x.chunks)[0])


class ZarrSource(InChunks):
    """The rows of an array in a folder or a zip file."""

    def __init__(self, path: Path, key: str, array: Any, stamp: tuple[int, str], max_unpacked: int | None) -> None:
        self.path, self._key, self._stamp = path, key, stamp
        self.name = escaped(f"{path}, {key}" if key else path)
        self._describe(array, _chunk_rows(array), stamp[0], max_unpacked)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "path": self.path.absolute()}

    def check_unchanged(self) -> None:
        """Raise SourceError if a file of the array is gone, new or written to.

        A chunk that is not there reads as zeros.
        """
        if stamp_of(self.path) != self._stamp:
            raise SourceError(f"{self.name} has changed since it was opened, or is gone")

    def identity(self) -> dict[str, Any]:
        """See Source."""
        self.check_unchanged()
        n_bytes, digest = self._stamp
        about = {"path": str(self.path.resolve()), "format": ".zarr", "key": self._key}
        return {**about, "bytes": n_bytes, "digest": digest, **super().identity()}

    def _chunks(self, start: int) -> Iterator[NDArray[Any]]:
        zarr = needs("zarr", "Zarr arrays")
        with damaged(self.path, WHAT, self.check_unchanged):
            array = _opened(zarr, self.path)
            array = array[self._key] if self._key else array
            yield from self._by_chunks(lambda a, b: np.ascontiguousarray(array[a:b], self.dtype), start)


def stamp_of(path: Path) -> tuple[int, str]:
    """Return the bytes of all files of an array, and a digest of their names, sizes and times.

    SourceError for a pipe or a link among them: a link may lead to any file of the machine, or in circles.
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
                    if not stat.S_ISREG(about.st_mode):  # to open one may take for ever
                        raise SourceError(f"{entry.path} is no regular file")
                    n_bytes += about.st_size
                    files.append(f"{os.path.relpath(entry.path, path)}\0{about.st_size} {about.st_mtime_ns}")
    for line in sorted(files):
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return n_bytes, digest.hexdigest()
