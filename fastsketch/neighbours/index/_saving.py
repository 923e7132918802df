"""Saving an index: new files first, then the manifest; a killed writer leaves what the next one removes.

This is no checkpoint of a job (``jobs/_resuming``): a save is done or not begun, and nothing goes on from half of one.
Readers are at work meanwhile, and a journal that grows would show them an index that nobody has saved; so the manifest
is replaced as a whole. Locks, replaced files and their checksums are those of ``io``, as everywhere.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.guard import Guard, changes
from fastsketch.data.files import _state as files
from fastsketch.data.files._lock import forget_own, lock_name, locked
from fastsketch.data.files._state import StateError
from fastsketch.neighbours.index import _manifest as manifest
from fastsketch.neighbours.index._contents import Contents
from fastsketch.neighbours.index._index_files import (
    MANIFEST,
    clean,
    is_ours,
    is_there,
    open_array,
    remove,
    write_array,
    write_encoder,
)
from fastsketch.neighbours.index._segment import CODES, IDS, ROWS, Segment, Written


class IndexConflict(RuntimeError):
    """Error of a save that would overwrite what somebody else has saved to the same folder.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((100, 16))
    >>> model = fs.SketchHash(16).update(rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mine, yours = fs.CodeIndex(model), fs.CodeIndex(model)
    ...     _ = mine.add(rows)
    ...     mine.save(Path(folder, "shop.index"))
    ...     try:
    ...         yours.save(Path(folder, "shop.index"))
    ...     except fs.neighbours.IndexConflict as error:
    ...         print(type(error).__name__)
    IndexConflict
    """


def place_of(path: str | PathLike[str]) -> Path:
    """Return the folder that a path leads to."""
    return Path(os.path.realpath(path))


# -- one writer --------------------------------------------------------------------------------------------------------
class _Writer:
    """Writer of one folder in this process: one thread at a time."""

    def __init__(self) -> None:
        self._guard = Guard()

    @changes
    def run(self, job: Callable[[], Contents]) -> Contents:
        return job()


_writers: dict[Path, _Writer] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_writers.clear)


def alone(folder: Path, job: Callable[[], Contents]) -> Contents:
    """Do a job as the one writer of a folder, which is made if it is not there.

    Raises
    ------
    OSError
        If there is no such folder and none can be made, or something else is there; LockHeld (of
        ``fastsketch.neighbours``) if another process writes.
    RuntimeError
        If another thread does.
    """
    begun = False

    def locked_job() -> Contents:
        nonlocal begun
        begun = True
        made = _made(folder)
        try:
            target = folder / MANIFEST
            # nobody else of this process is here: one that holds the lock was interrupted
            forget_own(target)
            with locked(target):
                return job()
        finally:
            if made:
                with contextlib.suppress(OSError):
                    folder.rmdir()  # as long as it is empty

    try:
        return _writers.setdefault(folder, _Writer()).run(locked_job)
    except RuntimeError as error:
        if begun:
            raise
        raise RuntimeError(f"another thread is saving an index to {folder}: one at a time may") from error


def _made(folder: Path) -> bool:
    """Make the folder unless it is there; refuse one that is something else than an index."""
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise FileExistsError(errno.EEXIST, "is a file: an index is saved to a folder", str(folder)) from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "the folder above it does not exist", str(folder)) from None
    else:
        return True
    if not (folder / MANIFEST).exists():
        lock = lock_name(folder / MANIFEST).name
        others = sorted(e.name for e in os.scandir(folder) if not is_ours(e.name) and lock not in e.name)
        if others:
            raise FileExistsError(errno.EEXIST, f"holds something else than an index: {others[0]}", str(folder))
    return False


# -- writing -----------------------------------------------------------------------------------------------------------
def save(
    folder: Path,
    contents: Contents,
    *,
    metric: str,
    rows: str | None,
    partitions: int | str | None,
    asked: NDArray[np.floating[Any]] | None,
    stamp: str,
    known: Sequence[str],
    overwrite: bool,
    memory_map: bool,
) -> Contents:
    """Write what is not there yet, then the manifest; return the contents with the files that they are in now.

    known: stamps of what this index has read from the folder or saved to it. memory_map: what was written is read from
    there from now on.
    """
    current = _swept(folder)
    if current is not None and current not in known and not overwrite:
        raise IndexConflict(
            f"{folder} holds an index that "
            + ("somebody else has saved there since this one was read or saved" if known else "is not this one")
            + ": read it and add to that, save to another folder, or say overwrite=True to lose what is there"
        )
    new: list[str] = []
    try:
        encoders: dict[str, str] = {}
        for encoder in (contents.encoder, *(segment.encoder for segment in contents.segments)):
            if encoder.fingerprint not in encoders:
                name, fresh = write_encoder(folder, encoder)
                encoders[encoder.fingerprint] = name
                new += [name] if fresh else []
        segments = [_written(folder, segment, new, memory_map=memory_map) for segment in contents.segments]
        contents = contents.of_segments(segments)
        about: dict[str, Any] = {"metric": metric, "rows": rows, "partitions": partitions, "stamp": stamp}
        files.write(folder / MANIFEST, manifest.describe(contents, encoders, about, asked))
    except BaseException:
        if _stamp(folder) != stamp:
            for name in new:
                remove(folder / name)
        raise
    clean(folder, [*encoders.values(), *(one.file for segment in segments for one in segment.written.values())])
    return contents


def _swept(folder: Path) -> str | None:
    """Remove what the index in a folder does not need, and return its stamp.

    "" if it cannot be read, None if there is none.
    """
    if not (folder / MANIFEST).exists():
        clean(folder, ())
        return None
    try:
        state = manifest.read_state(folder)
        needed, stamp = manifest.named(state), manifest.stamp_of(state)
    except manifest.INCONSISTENT:  # StateError among them
        return ""
    clean(folder, needed)
    return stamp


def _written(folder: Path, segment: Segment, new: list[str], *, memory_map: bool) -> Segment:
    """Return the segment with all its arrays in files of the folder; names of new files are added to `new`."""
    written = dict[str, Written]()
    mapped = dict[str, Any]()
    for name, array in segment.arrays().items():
        one = segment.written.get(name)
        if one is None or not is_there(folder, one, array):
            one = write_array(folder, name, array)
            new.append(one.file)
            if memory_map and name in (CODES, IDS, ROWS):
                opened = open_array(one, array.shape, array.dtype, memory_map=True, verify=False)
                mapped[name] = replace(segment.codes, data=opened) if name == CODES else opened
        written[name] = one
    return replace(segment, written=written, **mapped)


# -- reading -----------------------------------------------------------------------------------------------------------
def read(folder: Path, *, memory_map: bool, verify: bool) -> manifest.SavedIndex:
    """Read the index in a folder, again if a writer has replaced it meanwhile."""
    while True:
        before = _stamp(folder)
        try:
            return manifest.read(folder, memory_map=memory_map, verify=verify)
        except StateError:
            if _stamp(folder) == before:
                raise


def _stamp(folder: Path) -> str | None:
    try:
        return manifest.stamp_of(manifest.read_state(folder))
    except manifest.INCONSISTENT:
        return None
