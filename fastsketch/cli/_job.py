"""Arguments of commands as the library takes them."""

import contextlib
from argparse import Namespace
from typing import Any

import fastsketch as fs
from fastsketch._validation import as_integer


def limited(n: int | None) -> contextlib.AbstractContextManager[Any]:
    """Return the --threads option as a context."""
    return contextlib.nullcontext() if n is None else fs.thread_limit(as_integer(n, "--threads", 1, below=1 << 16))


def given(args: Namespace) -> dict[str, Any]:
    """Return the parameters of a model among the arguments: those given, and those with a default of the parser."""
    return {name: getattr(args, name) for name in args.parameters if name in args}


def flag(name: str) -> str:
    """Return the flag of a parameter."""
    return f"--{name.replace('_', '-')}"
