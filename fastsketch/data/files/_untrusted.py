"""Open files of an untrusted folder, such as a checkpoint: regular files only, and no links.

Whoever wrote to the folder may have put a symbolic link, a hard link, a pipe or a device where a job expects its own
file.
"""

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO, cast

from fastsketch.data.files._state import StateError

# Flags of os.open by the mode of the file object. O_NONBLOCK: opening a pipe must not wait for its other end.
_COMMON = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FLAGS = {"rb": os.O_RDONLY, "r+b": os.O_RDWR, "ab": os.O_WRONLY | os.O_APPEND}
# Opening relative to an open folder prevents that a folder is replaced by a link between check and opening.
_RELATIVE = os.open in os.supports_dir_fd


def is_link(path: Path) -> bool:
    """Return True if a path is a symbolic link or, on Windows, a reparse point; False if nothing is there."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or bool(
        getattr(status, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT
    )


def open_within(folder: Path, name: str, mode: str = "rb") -> BinaryIO:
    """Open a regular file within a folder without following links inside the folder.

    Parameters
    ----------
    folder : Path
    name : str
        The file, relative to the folder, with "/" between the names of inner folders.
    mode : {"rb", "r+b", "ab"}
        The file must exist. To write to it, it must have no second name (hard link), which would be written to as well.

    Raises
    ------
    StateError
        If the file, or a folder above it within `folder`, is a link, or if it is no regular file.
    OSError
        If there is no such file, or it cannot be opened.
    """
    path = folder / name
    *folders, file_name = name.split("/")
    with contextlib.ExitStack() as stack:
        try:
            descriptor = _open_descriptor(folder, folders, file_name, _FLAGS[mode] | _COMMON, stack)
        except OSError as error:
            linked = next((path_part for path_part in _paths_to(folder, name) if is_link(path_part)), None)
            if linked is not None:
                raise StateError(f"{linked} is a link, and no link is followed there: remove it") from None
            if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
                raise StateError(f"{path} is no regular file: remove it") from None
            raise type(error)(error.errno, error.strerror, str(path)) from None
        file = stack.enter_context(os.fdopen(descriptor, mode, buffering=0 if mode == "ab" else -1))
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StateError(f"{path} is no regular file: remove it")
        if mode != "rb" and status.st_nlink > 1:
            raise StateError(f"{path} has another name (a hard link), which would be written to as well: remove it")
        stack.pop_all()
    return cast("BinaryIO", file)


def _open_descriptor(
    folder: Path, folder_names: list[str], file_name: str, flags: int, stack: contextlib.ExitStack
) -> int:
    """Open a file below a folder without following links, and return its descriptor.

    Folders on the way are opened one in the other, where the system supports that. OSError for a link.
    """
    if not _RELATIVE:
        for path_part in _paths_to(folder, "/".join([*folder_names, file_name])):
            if is_link(path_part):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path_part))
        return os.open(folder.joinpath(*folder_names, file_name), flags)
    with contextlib.ExitStack() as folders:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        folders.callback(os.close, descriptor)
        for name in folder_names:
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            folders.callback(os.close, descriptor)
        return os.open(file_name, flags, dir_fd=descriptor)


def _paths_to(folder: Path, name: str) -> list[Path]:
    """Return the paths of the subfolders that lead to a file, outermost first, and then the file's path."""
    names = name.split("/")
    return [folder.joinpath(*names[: k + 1]) for k in range(len(names))]


def discard(path: Path) -> None:
    """Delete a file, a folder with its content, or a link but not its target; do nothing if it does not exist."""
    if path.is_dir() and not is_link(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
