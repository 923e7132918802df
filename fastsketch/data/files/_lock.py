"""One writer of a name at a time: a lock file beside it, which counts for as long as its owner lives."""

import contextlib
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple, cast

from fastsketch._core.escaping import escaped
from fastsketch.data.files._owner import Owner, this_process
from fastsketch.data.files._replacing import sweep, temporary_name
from fastsketch.data.files._untrusted import open_within

# Keys of the locks that this process holds. One of its own that is not among them was left behind: its removal failed.
_held_keys: set[str] = set()

# How long two who find the lock of a dead owner may get into each other's way.
TRIES, PAUSE = 500, 0.01
# Bytes of a lock file, at most.
LONGEST = 1 << 12


class LockHeld(OSError):
    """Another job writes the same file.

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


class _Content(NamedTuple):
    """Contents of a lock file."""

    key: str  # of this lock alone: an owner may hold several, one after another
    owner: Owner

    def text(self) -> str:
        return json.dumps({"fastsketch": "lock", "key": self.key, **self.owner._asdict()}) + "\n"


def lock_name(target: Path) -> Path:
    """Return the lock file of a file."""
    return target.with_name(f"{target.name}.lock")


@contextlib.contextmanager
def locked(target: Path) -> Generator[None]:
    """Hold `target`, a path without links, for this block.

    Raises
    ------
    LockHeld
        If a living job holds it, in this process or another one. A job on another machine counts as living: the message
        says what to remove if it is not.
    OSError
        If no file can be made in its folder.
    """
    lock = lock_name(target)
    with _held(lock, target, lock):
        yield


@contextlib.contextmanager
def _held(lock: Path, target: Path, beside: Path) -> Generator[None]:
    """Hold a lock; its temporary file is called by the name of `beside`, so that whoever takes that lock removes it."""
    mine = _Content(os.urandom(8).hex(), this_process())
    _held_keys.add(mine.key)
    try:
        try:
            _take(mine, lock, target, beside)
            yield
        finally:
            with contextlib.suppress(OSError):
                if _read(lock) == mine:  # removed by hand, it may be another's now
                    lock.unlink()
    finally:
        _held_keys.discard(mine.key)


def _may_be_held(content: _Content) -> bool:
    """Return whether the owner of a lock may still be at work under it."""
    return content.key in _held_keys if content.owner == this_process() else content.owner.may_live()


def _take(mine: _Content, lock: Path, target: Path, beside: Path) -> None:
    sweep(beside)
    # complete before it has its name: nobody sees a lock without its owner
    fresh = temporary_name(beside)
    try:
        fresh.write_text(mine.text(), encoding="utf-8")
        for _ in range(TRIES):
            if _put(fresh, lock, mine):
                return
            content = _read(lock)
            if content is None:
                continue  # it has just been released
            if _may_be_held(content):
                raise LockHeld(_why(content.owner, lock, target))
            with contextlib.suppress(LockHeld):
                if _succeeded(content, fresh, lock, target):
                    return
            time.sleep(PAUSE)
        raise LockHeld(f"{target}: its lock {lock} cannot be had; if no job writes it, remove that file")
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _put(fresh: Path, lock: Path, mine: _Content) -> bool:
    """Give the lock its name unless it is taken: all of it at once, where the file system has links."""
    try:
        os.link(fresh, lock)
    except FileExistsError:
        return False
    except (OSError, NotImplementedError):
        try:
            with lock.open("x", encoding="utf-8") as file:
                file.write(mine.text())
        except FileExistsError:
            return False
    return True


def _succeeded(dead: _Content, fresh: Path, lock: Path, target: Path) -> bool:
    """Put our lock in the place of one whose owner has ended; return whether that was done.

    Two may have found the same dead owner. Whoever holds the claim on that very lock, by its key, may replace it, if it
    is still there; nobody else touches it meanwhile, as only its owner would.
    """
    with _held(lock.with_name(f".{lock.name}.{dead.key}.claim"), target, lock):
        if _read(lock) != dead:
            return False
        fresh.replace(lock)
    # Claims on locks that are gone may have been left by those who died here: they count for nothing.
    with contextlib.suppress(OSError):
        for path in lock.parent.iterdir():
            if path.name.startswith(f".{lock.name}.") and path.name.endswith(".claim"):
                path.unlink(missing_ok=True)
    return True


def _read(lock: Path) -> _Content | None:
    """Return the contents of a lock file; None if there is none."""
    try:
        with open_within(lock.parent, lock.name) as file:
            about = cast(dict[str, Any], json.loads(file.read(LONGEST).decode()))
        owner = Owner(int(about["pid"]), str(about["started"]), str(about["place"]), str(about["host"]))
        return _Content(str(about["key"]), owner)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError, RecursionError):  # a link, or not a lock
        raise LockHeld(f"the lock {lock} cannot be read; if no job writes beside it, remove that file") from None


def _why(owner: Owner, lock: Path, target: Path) -> str:
    if owner.is_here():
        return (
            f"{target} is being written by another job, process {owner.pid}: wait for it, or choose another output "
            f"(if that process is no job, remove {lock})"
        )
    return (
        f"{target} is held by a job on another machine, process {owner.pid} on {escaped(owner.host)}, whose end cannot "
        f"be seen from here: if it has ended, remove {lock}"
    )
