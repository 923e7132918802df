"""Files: state files that outlive a process, and text that is read a block at a time."""

from fastsketch.data.files._input import SourceError
from fastsketch.data.files._state import StateError, read_header
from fastsketch.data.files._svmlight import load_svmlight

__all__ = ["SourceError", "StateError", "load_svmlight", "read_header"]
