"""Formats that need no other package, as _formats.py names them."""

from pathlib import Path
from typing import Any

from fastsketch.sources._formats import Options
from fastsketch.sources._source import Source


def npy(path: Path, options: Options) -> Source:
    """A matrix of NumPy."""
    from fastsketch.sources._npy import open_npy

    return open_npy(path)


def npz(path: Path, options: Options) -> Source:
    """A sparse matrix of scipy."""
    from fastsketch.sources._npz import open_npz

    return open_npz(path)


def svmlight(path: Path, options: Options) -> Source:
    """svmlight text."""
    from fastsketch.sources._svmlight import open_svmlight

    return open_svmlight(path, n_features=options.n_features, zero_based=options.zero_based)


def text(path: Path, options: Options) -> Source:
    """Text of any name, by its first lines."""
    from fastsketch.io._input import InputFile
    from fastsketch.sources._starts import text_format

    with InputFile(path) as file:
        head = file.read(1 << 16)
    openers = {"svmlight": svmlight}
    return openers[text_format(head, options)](path, options)


def svmlight_stream(stream: Any, options: Options) -> Source:
    """svmlight text that is read once."""
    from fastsketch.io._input import SourceError
    from fastsketch.sources._svmlight import SvmlightSource

    if options.n_features is None:
        raise SourceError(f"{stream.name} is read once: how wide its rows are must be known (n_features)")
    return SvmlightSource(stream.path, n_features=options.n_features, zero_based=options.zero_based, file=stream)
