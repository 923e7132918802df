"""Read compressed text and .npy and .npz headers; read, write and lock state files."""

from fastsketch.data.files._input import SourceError
from fastsketch.data.files._state import StateError, read_header

__all__ = ["SourceError", "StateError", "read_header"]
