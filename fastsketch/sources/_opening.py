"""Formats that need no other package, as _formats.py names them."""

from pathlib import Path

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
