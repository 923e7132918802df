"""Lock an output file for one job, with a lock file in the same folder.

The locks are those of the operating system (``flock``, on Windows byte ranges), which releases them when a process
ends, however it ends. On some network file systems machines do not see each other's locks; therefore the lock file
names the host.
"""

import contextlib
import os
import platform
import re
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from fastsketch._core.escaping import escaped
from fastsketch.data.files._replacing import is_named, lock_open_file, remove_open_file
from fastsketch.data.files._state import StateError
from fastsketch.data.files._untrusted import open_within

# Attempts to lock a lock file that its previous owner deletes just before it is locked.
MAX_TRIES = 100
CONTENT = re.compile(rb"fastsketch lock of process (\d+) on (.*)\n", re.DOTALL)
MAX_BYTES = 1 << 12


class LockHeld(OSError):
    """Raised if another job is writing to the same output.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((100, 16))
    >>> model = fs.SketchHash(16).update(rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "codes.npy")
    ...     def again(report):  # while the first job is at work
    ...         try:
    ...             fs.map_rows(model.encode, rows, output=path)
    ...         except fs.jobs.LockHeld:
    ...             print("held by the job before")
    ...     result = fs.map_rows(model.encode, rows, output=path, progress=again)
    held by the job before
    """


def lock_name(target: Path) -> Path:
    """Return the path of the lock file of an output."""
    return target.with_name(f"{target.name}.lock")


@contextlib.contextmanager
def locked(target: Path) -> Generator[None]:
    """Hold the lock of the output file `target` for a ``with`` block, and delete the lock file afterwards.

    Raises
    ------
    LockHeld
        If another job holds the lock, in this process or another one, or if the lock file is that of a job on another
        machine, whose lock may be invisible here. The message says which file to delete if that job has ended.
    OSError
        If the lock file cannot be made, or the file system has no locks.
    """
    file = _acquired(target)
    try:
        yield
    finally:
        remove_open_file(file, lock_name(target))


def _acquired(target: Path) -> BinaryIO:
    """Create and lock the lock file of an output, write the process id and host to it, and return it open."""
    lock = lock_name(target)
    for _ in range(MAX_TRIES):
        file = _opened(lock)
        if file is None:
            continue
        try:
            lock_open_file(file)
        except BlockingIOError:
            with file:
                match = CONTENT.fullmatch(file.read(MAX_BYTES))
            owner = "" if match is None else f", process {int(match[1])}"
            words = f"{target} is being written by another job{owner}: wait for it, or choose another output"
            raise LockHeld(words) from None
        except OSError as error:
            remove_open_file(file, lock)
            why = f"cannot be locked ({error.strerror or error}): choose an output on a file system that has locks"
            raise OSError(error.errno, why, str(target)) from None
        if not is_named(file, lock):
            file.close()
            continue
        try:
            _write(file, target)
        except LockHeld:
            file.close()
            raise
        except BaseException:
            remove_open_file(file, lock)
            raise
        return file
    raise LockHeld(f"{target}: its lock {lock} cannot be had; if no job writes it, remove that file")


def _opened(lock: Path) -> BinaryIO | None:
    """Open a lock file, and create it if it does not exist. Return None if another process deletes it in between, so
    that the caller tries again; LockHeld if it is no regular file.
    """
    with contextlib.suppress(FileExistsError):
        return lock.open("x+b")
    try:
        return open_within(lock.parent, lock.name, "r+b")
    except FileNotFoundError:
        return None
    except (StateError, OSError):  # a link, or no file
        raise LockHeld(f"the lock {lock} cannot be read; if no job writes beside it, remove that file") from None


def _write(file: BinaryIO, target: Path) -> None:
    """Write the process id and host to a locked lock file.

    Raise LockHeld if the file belongs to another machine or is not a lock file.
    """
    lock, host = lock_name(target), platform.node()
    content = file.read(MAX_BYTES)
    match = CONTENT.fullmatch(content)
    if content and match is None:
        raise LockHeld(f"the lock {lock} cannot be read; if no job writes beside it, remove that file")
    if match and match[2] != host.encode():
        owner = escaped(match[2].decode(errors="replace"))
        raise LockHeld(
            f"{target} is held by a job on another machine, process {int(match[1])} on {owner}, whose end cannot be "
            f"seen from here: if it has ended, remove {lock}"
        )
    file.seek(0)
    file.truncate()
    file.write(f"fastsketch lock of process {os.getpid()} on {host}\n".encode())
    file.flush()
