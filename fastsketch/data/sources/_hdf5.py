"""Read matrices in HDF5 files, AnnData's .h5ad files, and h5py datasets.

A file may declare that its rows are bytes of any other file, or rows of other files behind any number of links. All
objects are opened by ``within`` and checked by ``check_own``, which refuse everything outside the file.
"""

import io
import struct
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.files._replacing import same_file
from fastsketch.data.sources._foreign import needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._stored import StoredSource, check_matrix

# Limit of soft links behind one name, as in HDF5.
MOST_LINKS = 16


class HdfSource(StoredSource):
    """A source that reads the rows of a matrix in an HDF5 file."""

    what, separator = "HDF5 file", "/"
    _heaps_checked = False

    def __init__(self, path: Path, options: Options, *, by_columns: bool = False) -> None:
        needs("h5py", "HDF5 files")
        super().__init__(path, options, by_columns=by_columns)
        self._heaps_checked = True

    @contextmanager
    def opened(self) -> Generator[Any]:
        """Open the HDF5 file and yield its root group.

        While the source is constructed, the global heaps that HDF5 reads are checked as well.
        """
        h5py = needs("h5py", "HDF5 files")
        with ExitStack() as stack:
            file = self.path if self._heaps_checked else stack.enter_context(HeapCheckedFile(self.path))
            yield stack.enter_context(h5py.File(file, "r"))

    def find(self, root: Any, key: str) -> Any:
        """Return the HDF5 object called `key`, or None if it does not exist. Raise SourceError if it is in another
        file.
        """
        item = within(root, key, self.path)
        if hasattr(item, "external"):
            check_own(item, self.path)
        return item

    def names(self, root: Any) -> Iterator[tuple[str, Any]]:
        """Return an iterator over (name, object) of all groups and datasets in the file."""
        found: list[tuple[str, Any]] = []

        def collect(name: str, item: Any) -> None:  # h5py goes on while it returns None
            found.append((name, item))

        root.visititems(collect)
        return iter(found)


class HeapCheckedFile(io.FileIO):
    """A file object for h5py that raises an error for damaged global heaps, on which HDF5 would loop forever.

    Attributes, names of columns and virtual datasets are in such heaps. HDF5 2.0 advances from object to object by the
    length that each states, and never returns if that is 0. Reference: HDF5 File Format Specification, section III.E.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        start = self.read(16).ljust(16, b"\0")
        length_bytes = start[14 if start[8] < 2 else 10]  # versions 2 and 3 of the superblock are shorter
        self._are_lengths_8_bytes = start[:4] != b"\x89HDF" or length_bytes == 8  # unknown behind a user block

    def readinto(self, buffer: Any, /) -> int | None:
        """Read bytes into the buffer. Raise SourceError if they are a heap with an object of invalid length."""
        count, heap = super().readinto(buffer), memoryview(buffer)
        if bytes(heap[:4]) == b"GCOL" and self._are_lengths_8_bytes:
            place, size = 16, struct.unpack_from("<8xQ", heap)[0]
            while place + 16 <= len(heap):
                index, length = struct.unpack_from("<H6xQ", heap, place)
                step = length if index == 0 else 16 + (length + 7) // 8 * 8  # object 0 is the free space
                if not 0 < step <= size - place:
                    raise SourceError(f"{self.name} is damaged: an object of a heap has a length of {length}")
                place += step
        return count


def open_dataset(x: Any, options: Options) -> Source:
    """Open an h5py dataset as a source. If its file is open for reading only, the source reopens the file by name."""
    from fastsketch.data.sources._sliced import SlicedSource

    name = f"the data set {x.name!r}"
    if not x:
        raise SourceError("the data set is closed: open its file again")
    check_matrix(x.shape or (), x.dtype, name)
    path = Path(x.file.filename)
    check_own(x, path)
    if x.name and x.file.mode == "r" and x.file.driver not in ("core", "fileobj") and path.is_file():
        return HdfSource(path, replace(options, key=x.name))
    return SlicedSource(x, name=name, step=x.chunks[0] if x.chunks else 1)


def within(home: Any, key: str, path: Path) -> Any:
    """Return the object called `key` in an HDF5 file or group, or None if it does not exist. Use it instead of
    ``home[key]`` for files that are not trusted.

    Raise SourceError if it is in another file. Links are inspected before they are followed. HDF5 would open any file
    that a link names, and would wait for a pipe.
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


def check_own(item: Any, path: Path) -> None:
    """Raise SourceError unless all entries of an HDF5 dataset are stored in the same file.

    Otherwise bytes or rows of any file of the machine could be read. For a missing source of a virtual dataset HDF5
    returns zeros, and it recurses endlessly into one that leads to itself.
    """
    if item.external:
        raise SourceError(f"{path}, {item.name} has its rows as bytes of other files ({item.external[0][0]!r})")
    for one in item.virtual_sources() if item.is_virtual else ():
        if "%" in one.file_name:  # a pattern for any number of files
            raise SourceError(f"{path}, {item.name} has rows of files called {one.file_name!r}: open each of them")
        if one.file_name != "." and not same_file(path, path.parent / one.file_name):
            raise SourceError(
                f"{path}, {item.name} has rows of another file: open {one.file_name}, key={one.dset_name!r}"
            )
        source = None if "%" in one.dset_name else within(item.file, one.dset_name, path)  # "%" is a pattern
        if source is None or getattr(source, "is_virtual", True):
            raise SourceError(
                f"{path}, {item.name} has rows of {one.dset_name!r}, which must be a data set that has them itself"
            )
        check_own(source, path)
