"""Replace files atomically: after an interruption a file has either its old content or the new one.

The new content is written to a temporary file in the same folder, which is then renamed. The writer keeps the temporary
file locked, so that the next writer can recognise and delete those of killed processes. A symbolic link is kept, and
its target is replaced. A device, a pipe or a descriptor such as /dev/stdout cannot be replaced: the bytes are written
to it once all of them exist.
"""

import contextlib
import errno
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import BinaryIO, cast

# Bytes that are buffered in memory, beyond that in a temporary file, for a target that is no regular file.
SPOOL_BYTES = 64 << 20
# Longer names are replaced by a digest in the names of temporary files: most systems allow 255 bytes.
LONGEST_STEM = 180
# Longer names of outputs are refused, because the names of the lock and of the partial result are longer still.
LONGEST_NAME = 220
# Symbolic links that Linux follows before it reports a loop.
MAX_LINKS = 40
DESCRIPTORS = re.compile(r"/dev/fd|/proc/(?P<pid>self|\d+)(/task/\d+)?/fd")


@contextlib.contextmanager
def replacing(path: str | PathLike[str], *, follow_links: bool = True) -> Generator[BinaryIO]:
    """Open a temporary file that replaces `path` when the ``with`` block ends; if the block fails, `path` is unchanged.

    With follow_links=False a symbolic link at `path` is itself replaced, and its target is unchanged: for names in
    untrusted folders.

    Raises
    ------
    OSError
        If `path` is a directory, a circle of links, or cannot be written.
    """
    target = regular_target(path) if follow_links else Path(path)
    if target is None:
        with spooled() as file:
            yield file
            with open_for_writing(path) as sink:
                pour(file, sink)
        return
    remove_stale_temporary_files(target)
    mode = None
    with contextlib.suppress(FileNotFoundError):
        old_mode = target.lstat().st_mode
        mode = stat.S_IMODE(old_mode) & 0o777 if stat.S_ISREG(old_mode) else None
    temporary, file = _create_temporary(target, 0o666 if mode is None else mode)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if mode is not None:  # keep the permissions of the old file
                with contextlib.suppress(OSError):
                    temporary.chmod(mode)
            if sys.platform == "win32":  # an open file cannot be renamed
                file.close()
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # some file systems cannot synchronise a directory
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


# -- where a name leads --------------------------------------------------------------------------------------------
def regular_target(path: str | PathLike[str]) -> Path | None:
    """Return the regular file that a path leads to through links, or None for a device, pipe or descriptor.

    The file need not exist. Raise IsADirectoryError for a directory.
    """
    target = _follow_links(path)
    if _is_descriptor(target):
        return None
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
    return target if stat.S_ISREG(mode) else None


def same_file(path: Path, other: str | PathLike[str]) -> bool:
    """Return True if two paths lead to the same file, and False if one of them does not exist."""
    try:
        return path.samefile(other)
    except (OSError, ValueError):
        return False


def output_target(name: str | PathLike[str]) -> Path | None:
    """Return the regular file that an output path leads to, or None for a device, pipe or descriptor.

    Raise ValueError if the output cannot be written. Jobs call this before they start to compute.
    """
    folder = Path(name).parent
    if not folder.is_dir():
        raise ValueError(f"the folder of the output does not exist: {folder}")
    try:
        path = regular_target(name)
    except IsADirectoryError:
        raise ValueError(f"the output is a directory: {name}") from None
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"{name} is a link to {path}, whose folder does not exist")
    if path is not None and len(os.fsencode(path.name)) > LONGEST_NAME:
        raise ValueError(f"the name of the output is longer than {LONGEST_NAME} bytes: no room for .partial and .lock")
    if path is not None and path.exists() and not path.stat().st_mode & 0o222:
        raise ValueError(f"the output is read-only: {name}")
    writable = name if path is None else path.parent
    if not os.access(writable, os.W_OK):
        raise ValueError(f"the output cannot be written: no permission for {writable}")
    return path


def _follow_links(path: str | PathLike[str]) -> Path:
    """Return the path at the end of a chain of symbolic links.

    A link in a folder of descriptors (/dev/fd) ends the chain, because its target is no path.
    """
    target = Path(path)
    for _ in range(MAX_LINKS):
        target = Path(os.path.realpath(target.parent)) / target.name if target.name else target
        if _is_descriptor(target) or not target.is_symlink():
            return target
        target = target.parent / target.readlink()
    raise OSError(errno.ELOOP, "is a circle of links", str(path))


def _is_descriptor(path: Path) -> bool:
    """Return True if a path is a file descriptor such as /dev/fd/1."""
    return DESCRIPTORS.fullmatch(path.parent.as_posix()) is not None


@contextlib.contextmanager
def open_for_writing(path: str | PathLike[str]) -> Generator[BinaryIO]:
    """Open a pipe, device or descriptor for writing, without truncating it."""
    target = _follow_links(path)
    match = DESCRIPTORS.fullmatch(target.parent.as_posix())
    is_own_descriptor = match and target.name.isdigit() and match["pid"] in (None, "self", str(os.getpid()))
    # Our own descriptor is duplicated: opening its path again would truncate a file behind it.
    with os.fdopen(os.dup(int(target.name)), "wb") if is_own_descriptor else target.open("wb") as file:
        yield file
        file.flush()


def spooled() -> contextlib.AbstractContextManager[BinaryIO]:
    """Return an unnamed temporary file that is kept in memory up to SPOOL_BYTES, and on disk beyond."""
    return cast("contextlib.AbstractContextManager[BinaryIO]", tempfile.SpooledTemporaryFile(SPOOL_BYTES))


def pour(file: BinaryIO, sink: BinaryIO) -> None:
    """Copy a file from its start to another open file, and flush the latter."""
    file.seek(0)
    shutil.copyfileobj(file, sink, 1 << 20)
    sink.flush()


# -- locks of open files -------------------------------------------------------------------------------------------
if sys.platform == "win32":
    import msvcrt

    def lock_open_file(file: BinaryIO) -> None:
        """Lock an open file until it is closed or the process ends.

        Raise BlockingIOError if the file is locked already.
        """
        file.seek(1 << 30)  # far beyond the content, because locked bytes cannot be read
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from error
        finally:
            file.seek(0)

else:
    import fcntl

    def lock_open_file(file: BinaryIO) -> None:
        """Lock an open file until it is closed or the process ends.

        Raise BlockingIOError if the file is locked already.
        """
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_named(file: BinaryIO, path: Path) -> bool:
    """Return True if an open file is still the one at `path`, and was not replaced or deleted meanwhile."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def remove_open_file(file: BinaryIO, path: Path) -> None:
    """Delete a locked file and close it. If the path leads to another file by now, that one is not deleted."""
    with file, contextlib.suppress(OSError):
        if is_named(file, path):
            if sys.platform == "win32":  # an open file cannot be deleted
                file.close()
            path.unlink()


# -- temporary files -----------------------------------------------------------------------------------------------
def temporary_name(target: Path) -> Path:
    """Return a new random name of a hidden temporary file in the folder of `target`.

    The name contains a digest of the host, because other hosts may not see the file's lock.
    """
    return target.with_name(f".{_stem(target)}.{_host()}.{os.urandom(4).hex()}.tmp")


def remove_stale_temporary_files(target: Path) -> None:
    """Delete temporary files of `target` that processes on this host have left behind."""
    pattern = re.compile(re.escape(f".{_stem(target)}.{_host()}.") + r"[0-9a-f]{8}\.tmp")
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError), os.fdopen(os.open(entry.path, flags), "r+b", buffering=0) as file:
                    lock_open_file(file)
                    remove_open_file(file, Path(entry.path))


def _host() -> str:
    """Return a short digest of the name of the host."""
    return blake2b(platform.node().encode(), digest_size=4).hexdigest()


def _stem(target: Path) -> str:
    """Return the name of a file, or a digest of it if it is too long for the name of a temporary file."""
    name = target.name
    return name if len(os.fsencode(name)) <= LONGEST_STEM else blake2b(os.fsencode(name), digest_size=16).hexdigest()


def _create_temporary(target: Path, mode: int) -> tuple[Path, BinaryIO]:
    """Create and, where possible, lock a temporary file for `target`; return its path and the open file."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    while True:
        temporary = temporary_name(target)
        try:
            file = open(temporary, "x+b", opener=opener)  # noqa: SIM115
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, "the folder does not exist", str(temporary.parent)) from None
        try:
            lock_open_file(file)
        except BlockingIOError:  # another writer's sweep has taken the file for that of a killed writer
            pass
        except OSError:  # a file system without locks, on which nobody can sweep
            return temporary, file
        else:
            if is_named(file, temporary):
                return temporary, file
        file.close()
