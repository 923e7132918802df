"""Expand globs and folders to files, in the order of their names."""

import glob
import os
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._formats import FOLDERS_OF_ONE

STANDARD_INPUT = "-"


def is_name(x: Any) -> TypeGuard[str | PathLike[str]]:
    """Return True if x is a path (str or PathLike)."""
    return isinstance(x, str | PathLike)


def comes_once(path: str | PathLike[str]) -> bool:
    """Return True if a path is standard input ("-"), a pipe or a device, whose rows can be read only once.

    Parameters
    ----------
    path : str or path
        "-" is standard input.

    Returns
    -------
    bool

    Examples
    --------
    >>> from fastsketch.data.sources import comes_once
    >>> comes_once("-"), comes_once("rows.npy")
    (True, False)
    """
    if os.fspath(path) == STANDARD_INPUT:
        return True
    path = Path(path)
    return path.exists() and not path.is_file() and not path.is_dir()


def files_of(name: str | PathLike[str]) -> list[Path]:
    """Return the files that a path denotes: the file itself, all files in a folder, or the matches of a glob.

    Raises
    ------
    SourceError
        If there are none.
    """
    path = Path(name)
    if not os.fspath(name):  # perhaps of an unset variable; Path("") would be the working directory
        raise SourceError("the name of a file must not be empty")
    if _is_one(path):
        return [path]
    if path.is_dir():
        return _of_folder(path)
    text = os.fspath(name)
    if not path.exists() and glob.has_magic(text):
        matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207  Path.glob takes no absolute ones
        paths = list(map(Path, matches))
        files = [file for match in paths for file in ([match] if _is_one(match) or match.is_file() else [])]
        if not files:
            raise SourceError(f"no file matches {text}" + (": only folders do" if paths else ""))
        return files
    return [path]


def _is_one(path: Path) -> bool:
    return path.suffix in FOLDERS_OF_ONE and path.is_dir()


def _of_folder(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders, sorted by path, without names that begin with "." or "_"."""
    paths: list[Path] = []
    for place, folders, files in os.walk(folder):
        one = [name for name in folders if Path(name).suffix in FOLDERS_OF_ONE]
        folders[:] = [name for name in folders if not name.startswith((".", "_")) and name not in one]
        paths += [Path(place, name) for name in (*files, *one) if not name.startswith((".", "_"))]
    if not paths:
        raise SourceError(f"{folder} is a folder without files")
    if once := [path for path in paths if comes_once(path)]:  # opening a pipe might block forever
        raise SourceError(f"{min(once)} is no regular file: move it out of the folder, or name the other files")
    return sorted(paths, key=lambda path: path.parts)
