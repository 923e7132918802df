"""What commands read: rows, models, and arrays and ids that are no rows to learn from."""

import stat
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.loading import from_bytes, load
from fastsketch.cli._flags import as_column
from fastsketch.cli._output import STANDARD
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.files._npy import Header
from fastsketch.data.sources import Source, comes_once, open_rows
from fastsketch.data.sources._npy_source import read_npy_header


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


# -- arrays and ids ----------------------------------------------------------------------------------------------------
def matrix(path: str, dtype: Any = None) -> NDArray[Any]:
    """Return a C-ordered matrix of an .npy file, mapped; of one dtype if it is given."""
    header, array = _mapped(path)
    wanted = header.dtype if dtype is None else np.dtype(dtype)
    if header.dtype != wanted or len(header.shape) != 2 or header.fortran:
        what = "a matrix" if dtype is None else f"a matrix of {wanted}"
        how = ", Fortran-ordered" if header.fortran else ""
        raise SourceError(f"{path} must hold {what}, a row after the other, got {header.dtype} {header.shape}{how}")
    return array


def read_ids(path: str) -> NDArray[Any]:
    """Return the integers of an .npy file, or of text with one in every line."""
    if path.endswith(".npy"):
        header, array = _mapped(path)
        if header.dtype.kind not in "iu" or len(header.shape) != 1:
            raise SourceError(f"{path} must hold one integer for each row, got {header.dtype} {header.shape}")
        return np.array(array)
    ids: list[int] = []
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(map(str.strip, file), 1):
                try:
                    ids += [int(line)] if line else []
                except ValueError:
                    raise SourceError(f"{path}, line {number}: an id must be an integer, got {line[:40]!r}") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{path} must be text with an integer in every line, or an .npy file") from None
    try:
        return np.array(ids, np.int64)
    except OverflowError:
        raise SourceError(f"{path}: ids must be integers of 64 bits") from None


def _mapped(path: str) -> tuple[Header, NDArray[Any]]:
    """Return (header, memory-mapped array) of an .npy file; an array without entries is not mapped."""
    try:
        header = read_npy_header(Path(path))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None
    if not all(header.shape):
        return header, np.empty(header.shape, header.dtype)
    return header, np.memmap(path, header.dtype, "r", header.offset, header.shape)
