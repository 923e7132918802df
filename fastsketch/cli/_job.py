"""Arguments of commands as the library takes them."""

import contextlib
from typing import Any

import fastsketch as fs
from fastsketch._core.validation import as_integer


def limited(n: int | None) -> contextlib.AbstractContextManager[Any]:
    """Return the --threads option as a context."""
    return contextlib.nullcontext() if n is None else fs.thread_limit(as_integer(n, "--threads", 1, below=1 << 16))
