"""What commands read: rows and models."""

import stat
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastsketch._frame.loading import from_bytes, load
from fastsketch.cli._flags import as_column
from fastsketch.cli._output import STANDARD
from fastsketch.data.files import StateError
from fastsketch.data.sources import Source, comes_once, open_rows


def dialect_of(args: Namespace) -> dict[str, Any]:
    """Return how tables of text are written, among the arguments."""
    return {"header": args.header, "separator": args.separator, "decimal": args.decimal or "."}


def columns_of(args: Namespace) -> list[str | int] | None:
    """Return the columns that --columns names."""
    return None if args.columns is None else [as_column(name) for name in args.columns]


def how_read(args: Namespace, n_features: int | None) -> dict[str, Any]:
    """Return the options of open_rows among the arguments."""
    return {
        "columns": "numeric" if args.columns == ["numeric"] else columns_of(args),
        "fill": args.fill,
        "key": args.key,
        **dialect_of(args),
        **({} if getattr(args, "beside", None) is None else {"beside": args.beside}),
        "n_features": n_features,
        "zero_based": args.zero_based,
    }


def rows_in(args: Namespace, n_features: int | None = None, names: Sequence[str] | None = None) -> Source:
    """Return the rows of args.inputs, one file after another.

    Of the columns that a model knows by name, if they have them.
    """
    how = how_read(args, n_features)
    if names is not None and args.columns is None and not any(map(comes_once, args.inputs)):
        with suppress(ValueError):  # what is wrong is said of the rows as they come
            how_by_name: dict[str, Any] = {**how, "columns": list(names)}
            return open_rows(list(args.inputs), **how_by_name)
    return open_rows(list(args.inputs), **how)


# -- models ------------------------------------------------------------------------------------------------------------
def load_model(name: str, kinds: Any = object, otherwise: str = "") -> Any:
    """Return the model in a file, or, with "-" or a pipe, in what comes through it.

    A model of none of these kinds is a StateError, whose message ends as `otherwise` says.
    """
    model = _loaded(name)
    if not isinstance(model, kinds):
        raise StateError(f"{name} holds a {type(model).__name__}{otherwise}")
    return model


def _loaded(name: str) -> Any:
    if name == STANDARD:
        content = sys.stdin.buffer.read()
        if not content:
            raise StateError("standard input is empty: a model was expected")
        return _from(content, "standard input")
    path = Path(name)
    try:
        is_pipe = stat.S_ISFIFO(path.stat().st_mode)
    except OSError:  # load says which
        is_pipe = False
    return _from(path.read_bytes(), name) if is_pipe else load(name)


def _from(content: bytes, name: str) -> Any:
    try:
        return from_bytes(content)
    except StateError as error:
        raise StateError(str(error).replace("the state", name, 1)) from None
