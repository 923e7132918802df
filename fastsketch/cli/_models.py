"""Models that commands read: from files, or from the standard input."""

import stat
import sys
from pathlib import Path
from typing import Any

import fastsketch as fs
from fastsketch.cli._output import STANDARD
from fastsketch.data.files import StateError


def load_model(name: str) -> Any:
    """Return the model in a file, or, with "-" or a pipe, in what comes through it."""
    if name == STANDARD:
        content = sys.stdin.buffer.read()
        if not content:
            raise StateError("standard input is empty: a model was expected")
        return _from(content, "standard input")
    path = Path(name)
    try:
        is_pipe = stat.S_ISFIFO(path.stat().st_mode)
    except OSError:  # fs.load says which
        is_pipe = False
    return _from(path.read_bytes(), name) if is_pipe else fs.load(name)


def _from(content: bytes, name: str) -> Any:
    try:
        return fs.from_bytes(content)
    except StateError as error:
        raise StateError(str(error).replace("the state", name, 1)) from None
