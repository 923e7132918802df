"""Saving an index: new files first, then the manifest; a killed writer leaves what the next one removes."""

import contextlib
import errno
import os
import threading
from collections.abc import Generator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from fastsketch.indexing import _manifest as manifest
from fastsketch.indexing._contents import Contents
from fastsketch.indexing._files import MANIFEST, clean, is_ours, is_there, open_array, remove, write_array, write_encoder
from fastsketch.indexing._segment import ROWS, Segment, Written
from fastsketch.io import _state as files
from fastsketch.io._lock import forget_own, lock_name, locked
from fastsketch.io._state import StateError


class IndexConflict(RuntimeError):
    """A save would overwrite what somebody else has saved since this index was read from its folder."""


class Setting(NamedTuple):
    """What a manifest says beside the contents."""

    metric: str
    rows: str | None


# One thread of this process at a time saves to a folder.
_writers: dict[Path, threading.Lock] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_writers.clear)


def place_of(path: str | PathLike[str]) -> Path:
    """The folder that a path leads to."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def writing(folder: Path) -> Generator[None]:
    """Be the one writer of a folder, which is made if it is not there.

    Raises
    ------
    OSError
        If there is no such folder and none can be made; LockHeld if another writer is at work.
    FileExistsError
        If something else is there.
    """
    made = _made(folder)
    mine = _writers.setdefault(folder, threading.Lock())
    if not mine.acquire(blocking=False):
        raise RuntimeError(f"another thread saves to {folder}: one at a time may")
    try:
        target = folder / MANIFEST
        # whoever of this process held it has been interrupted: nobody else of it can be here
        forget_own(target)
        with locked(target):
            yield
    finally:
        mine.release()
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()  # which a folder with an index does not let happen


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
        others = [entry.name for entry in os.scandir(folder) if not is_ours(entry.name) and lock not in entry.name]
        if others:
            raise FileExistsError(
                errno.EEXIST, f"is a folder with other things in it ({sorted(others)[0]}) and no index", str(folder)
            )
    return False


def found_stamp(folder: Path) -> str | None:
    """The stamp of the index in a folder, "" of one that cannot be read; None without one. Removes what nobody needs."""
    if not (folder / MANIFEST).exists():
        clean(folder, ())
        return None
    try:
        state = manifest.read_state(folder)
        needed, stamp = manifest.named(state), manifest.stamp_of(state)
    except manifest.INCONSISTENT:  # StateError is a ValueError
        return ""
    clean(folder, needed)
    return stamp


def write(
    folder: Path, contents: Contents, setting: Setting, *, stamp: str, same: bool, memory_map: bool
) -> Contents:
    """Write what is not there yet, then the manifest; the contents with the files that they are in now.

    same: the folder has what this index saved to it last. memory_map: what was written is read from there from now on.
    """
    new: list[str] = []
    try:
        encoders: dict[str, str] = {}
        for encoder in (contents.encoder, *(segment.encoder for segment in contents.segments)):
            if encoder.fingerprint not in encoders:
                encoders[encoder.fingerprint] = write_encoder(folder, encoder)
                new.append(encoders[encoder.fingerprint])
        segments: list[Segment] = []
        for segment in contents.segments:
            written = dict[str, Written]()
            for name, array in segment.arrays().items():
                old = segment.written.get(name)
                if not (same and old is not None and is_there(folder, old, array)):
                    old = write_array(folder, name, array)
                    new.append(old.file)
                written[name] = old
            segments.append(replace(segment, written=written))
        if memory_map:
            segments = [_mapped(folder, segment, set(new)) for segment in segments]
        contents = contents.of_segments(segments)
        described = manifest.describe(contents, encoders, stamp=stamp, **setting._asdict())
        files.write(folder / MANIFEST, described)
    except BaseException:
        if not _has(folder, stamp):
            for name in new:
                remove(folder / name)
        raise
    clean(folder, [*encoders.values(), *(file.file for one in segments for file in one.written.values())])
    return contents


def _has(folder: Path, stamp: str) -> bool:
    """Whether the manifest of a save has got its name, though the save did not end."""
    try:
        return manifest.stamp_of(manifest.read_state(folder)) == stamp
    except manifest.INCONSISTENT:
        return False


def _mapped(folder: Path, segment: Segment, new: set[str]) -> Segment:
    """The same segment, read from the files that were written just now."""
    arrays = {
        name: open_array(folder, segment.written[name], array.shape, array.dtype, memory_map=True, verify=False)
        for name, array in segment.arrays().items()
        if name in ("codes", "ids", ROWS) and segment.written[name].file in new
    }
    return replace(segment, **arrays)  # type: ignore[arg-type]


def read(path: str | PathLike[str], *, memory_map: bool, verify: bool) -> tuple[Path, manifest.Saved]:
    """The folder and the index in it; again if a writer has replaced it meanwhile."""
    folder = place_of(path)
    while True:
        before = _stamp(folder)
        try:
            return folder, manifest.read(folder, memory_map=memory_map, verify=verify)
        except StateError:
            if _stamp(folder) == before:
                raise


def _stamp(folder: Path) -> str | None:
    try:
        return manifest.stamp_of(manifest.read_state(folder))
    except manifest.INCONSISTENT:
        return None
