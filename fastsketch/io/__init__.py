"""Files: state files that outlive a process, and text that is read a block at a time."""

from fastsketch.io._input import SourceError
from fastsketch.io._state import StateError, read_header
from fastsketch.io._svmlight import load_svmlight

__all__ = ["SourceError", "StateError", "load_svmlight", "read_header"]
