"""Files: state files that outlive a process, and text that is read a block at a time."""

from fastsketch.io._input import SourceError
from fastsketch.io._state import StateError, read_header
from fastsketch.io._svmlight import load_svmlight

__all__ = ["SourceError", "StateError", "load_svmlight", "read_header"]

# Names that have moved to another room.
_RENAMED = {"open_source": "open_rows", "Source": "sources.Source"}


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        raise AttributeError(f"fastsketch.io.{name} is fastsketch.{_RENAMED[name]} now")
    raise AttributeError(f"module 'fastsketch.io' has no attribute {name!r}")
