"""Formats that need no other package, as _formats.py names them; each is imported when it is asked for."""

from pathlib import Path
from typing import TYPE_CHECKING

from fastsketch.data.files._input import InputFile, SourceError
from fastsketch.data.files._table import WORKBOOK, ZIP
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._starts import MARKET, TABLE, text_format

if TYPE_CHECKING:
    from fastsketch.data.sources._streams import Stream

# Enough of a text to see what it is.
HEAD_BYTES = 64 << 10


def npy(path: Path, options: Options) -> Source:
    """Return a matrix of NumPy."""
    from fastsketch.data.sources._npy_source import open_npy

    return open_npy(path)


def npz(path: Path, options: Options) -> Source:
    """Return a sparse matrix of scipy."""
    from fastsketch.data.sources._npz_source import open_npz

    return open_npz(path, options.max_unpacked)


def svmlight(path: Path, options: Options) -> Source:
    """Return svmlight text."""
    from fastsketch.data.sources._svmlight_source import SvmlightSource

    return SvmlightSource(path, n_features=options.n_features, zero_based=options.zero_based)


def table(path: Path, options: Options) -> Source:
    """Return a table of numbers."""
    from fastsketch.data.sources._table_text import TableText

    return TableText(path, options)


def market(path: Path, options: Options) -> Source:
    """Return a matrix of the Matrix Market."""
    from fastsketch.data.sources._market import open_market

    return open_market(path, options.max_unpacked)


def text(path: Path, options: Options) -> Source:
    """Return text of any name, by its first lines."""
    with InputFile(path) as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(ZIP) and (b"[Content_Types]" in head or b"xl/w" in head):
        raise SourceError(f"{path} is not text: {WORKBOOK}")
    kind = TABLE if options.dialect.separator else text_format(head)
    return (table if kind == TABLE else market if kind == MARKET else svmlight)(path, options)


# -- streams -----------------------------------------------------------------------------------------------------------
def svmlight_stream(stream: "Stream", options: Options) -> Source:
    """Return svmlight text that is read once."""
    from fastsketch.data.sources._svmlight_source import SvmlightSource

    if options.n_features is None:
        raise SourceError(f"{stream.name} is read once: how wide its rows are must be known (n_features)")
    return SvmlightSource(stream.path, n_features=options.n_features, zero_based=options.zero_based, file=stream)


def table_stream(stream: "Stream", options: Options) -> Source:
    """Return a table of numbers that is read once."""
    from fastsketch.data.sources._table_text import TableText

    return TableText(stream.path, options, file=stream)


def market_stream(stream: "Stream", options: Options) -> Source:
    """Return a matrix of the Matrix Market that is read once, and then is in memory."""
    from fastsketch.data.sources._market import open_market

    return open_market(stream.path, file=stream.held(options.max_unpacked))
