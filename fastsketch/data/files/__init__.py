"""Files: state files that outlive a process, and text that is read a block at a time."""

from fastsketch.data.files._input import SourceError
from fastsketch.data.files._state import StateError, read_header

__all__ = ["SourceError", "StateError", "read_header"]
