"""Files: state files that outlive a process, and sources of rows that are read a chunk at a time."""

from fastsketch.io._input import SourceError
from fastsketch.io._sources import Source, open_source
from fastsketch.io._state import StateError, read_header
from fastsketch.io._svmlight import load_svmlight

__all__ = ["Source", "SourceError", "StateError", "load_svmlight", "open_source", "read_header"]
