"""Rows from wherever they are, one chunk after another: files, folders, pipes, tables, arrays on disk, iterators."""

from fastsketch.sources._open import open_rows
from fastsketch.sources._source import Source

__all__ = ["Source", "open_rows"]
