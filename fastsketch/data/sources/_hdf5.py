"""HDF5: a dataset of two dimensions, by its name or as an object of h5py.

A file may say that its rows are bytes of any file of the machine, or rows of other files, behind links of any number.
All that is opened comes through ``within`` and ``check_own``, which let nothing out of the file itself.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._replacing import same_file
from fastsketch.data.sources._ahead import Spaces
from fastsketch.data.sources._file_sources import FileSource
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._stored import InChunks, check_matrix

WHAT = "HDF5 file"
# Soft links behind one name, as in HDF5.
MOST_LINKS = 16


def open_hdf5(path: Path, options: Options) -> Source:
    """Return a dataset of an HDF5 file: the one called `key`, or the only one of two dimensions."""
    h5py = needs("h5py", "HDF5 files")
    with damaged(path, WHAT), h5py.File(path, "r") as file:
        key = options.key if options.key is not None else the_only_one(_datasets(file, h5py), str(path), "data set")
        return HdfSource(path, dataset(file, key, path), options.max_unpacked)


def open_dataset(x: Any, options: Options) -> Source:
    """Return a dataset of h5py: by the name of its file, which can be read again, or where that cannot be, as it is."""
    from fastsketch.data.sources._sliced import SlicedSource

    name = f"the data set {x.name!r}"
    if not x:
        raise SourceError("the data set is closed: open its file again")
    check_matrix(x.shape or (), x.dtype, name)
    path = Path(x.file.filename)
    check_own(x, path)
    if x.file.mode == "r" and x.file.driver not in ("core", "fileobj") and path.is_file():
        return HdfSource(path, x, options.max_unpacked)
    return SlicedSource(x, name=name, step=x.chunks[0] if x.chunks else 1)


def _datasets(file: Any, h5py: Any) -> list[str]:
    """Return names of those of two dimensions that hold numbers."""
    names: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and len(item.shape or ()) == 2 and item.dtype.kind in "fiub":
            names.append(name)

    file.visititems(visit)
    return names


def the_only_one(names: list[str], of: str, what: str) -> str:
    """Return the name of the only candidate; SourceError that lists them, or says that there are none."""
    if len(names) == 1:
        return names[0]
    if not names:
        raise SourceError(f"{of} has no {what} of two dimensions that holds numbers")
    known = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
    raise SourceError(f"{of} has {len(names)} {what}s of two dimensions: name one of them in key=: {known}")


def within(home: Any, key: str, path: Path) -> Any:
    """Return the object called `key` in a file or group, None if there is none; SourceError if it is in another file.

    Links are looked at before they are followed: HDF5 would open whatever file one names, and wait for one that is a
    pipe.
    """
    h5py = needs("h5py", "HDF5 files")
    item, names, links = home, key.split("/"), 0
    if key.startswith("/"):
        item = home.file
    while names:
        name = names.pop(0)
        if name in ("", "."):
            continue
        if not isinstance(item, h5py.Group) or not item.id.links.exists(name.encode()):
            return None
        kind = item.id.links.get_info(name.encode()).type
        if kind == h5py.h5l.TYPE_HARD:
            item = item[name]
            continue
        target = item.id.links.get_val(name.encode())
        if kind != h5py.h5l.TYPE_SOFT:
            other, key = (part.decode("utf-8", "replace") for part in target)
            raise SourceError(f"{path}: the data set is in another file: open {other}, key={key!r}")
        links += 1
        if links > MOST_LINKS:
            raise SourceError(f"{path}: {key!r} is a link to a link, and so on, more than {MOST_LINKS} times")
        item = home.file if target.startswith(b"/") else item
        names = [*target.decode("utf-8", "replace").split("/"), *names]
    return item


def dataset(home: Any, key: str, path: Path) -> Any:
    """Return a dataset of a file or group by its name, whose entries are in this file."""
    h5py = needs("h5py", "HDF5 files")
    item = within(home, key, path)
    if not isinstance(item, h5py.Dataset):
        names = _datasets(home, h5py)
        known = ", ".join(map(repr, names[:20])) or "none"
        what = "is a group" if item is not None else "is not there"
        raise SourceError(f"{path}: the data set {key!r} {what}; those of two dimensions: {known}")
    check_own(item, path)
    return item


def check_own(item: Any, path: Path) -> None:
    """Raise SourceError unless the entries of a dataset are in the file itself.

    Raw bytes of any file of the machine would be taken for rows, and so would rows of other files; where a source of a
    virtual dataset is not there, HDF5 gives zeros, and it follows one that leads to itself until the process dies.
    """
    if item.external:
        raise SourceError(f"{path}, {item.name} has its rows as bytes of other files ({item.external[0][0]!r})")
    for one in item.virtual_sources() if item.is_virtual else ():
        if "%" in one.file_name:  # it stands for numbers: of as many files as there are
            raise SourceError(f"{path}, {item.name} has rows of files called {one.file_name!r}: open each of them")
        if one.file_name != "." and not same_file(path, path.parent / one.file_name):
            raise SourceError(
                f"{path}, {item.name} has rows of another file: open {one.file_name}, key={one.dset_name!r}"
            )
        source = None if "%" in one.dset_name else within(item.file, one.dset_name, path)  # % stands for numbers
        if source is None or getattr(source, "is_virtual", True):
            raise SourceError(
                f"{path}, {item.name} has rows of {one.dset_name!r}, which must be a data set that has them itself"
            )
        check_own(source, path)


class HdfSource(InChunks, FileSource):
    """The rows of a dataset."""

    def __init__(self, path: Path, item: Any, max_unpacked: int | None) -> None:
        super().__init__(path)
        self._key: str = item.name
        self.name = escaped(f"{path}, {item.name}")
        self._describe(item, int(item.chunks[0]) if item.chunks else 1, self.file_bytes, max_unpacked)

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {**super().identity(), "key": self._key}

    def _chunks(self, start: int) -> Iterator[NDArray[Any]]:
        h5py = needs("h5py", "HDF5 files")
        spaces = Spaces()
        with damaged(self.path, WHAT, self.check_unchanged), h5py.File(self.path, "r") as file:
            item = dataset(file, self._key, self.path)
            if item.shape[0] < self._stop or item.shape[1] != self.n_features:
                raise SourceError(f"{self.name} has changed since it was opened: its shape is {item.shape}")

            def get(first: int, stop: int) -> NDArray[Any]:
                rows = spaces.next((stop - first, self.n_features), self.dtype)
                item.read_direct(rows, np.s_[first:stop])
                return rows

            yield from self._by_chunks(get, start)
