"""Rows of a source as arguments of a model's update."""

from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fastsketch.cli._flags import as_column
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


def open_all(paths: Sequence[str], n_features: int | None, *, zero_based: bool) -> list[Source]:
    """Return sources of one width, one for each file.

    Svmlight files without n_features take the widest index of them all.
    """
    return open_rows(list(paths), n_features=n_features, zero_based=zero_based).each()
