"""An index of codes: rows added, removed, found by real-valued queries, and saved."""

from fastsketch._frame.loading import folder_readers
from fastsketch.data.files._lock import LockHeld
from fastsketch.neighbours.index._index import CodeIndex
from fastsketch.neighbours.index._saving import IndexConflict

folder_readers["CodeIndex"] = CodeIndex.load

__all__ = ["CodeIndex", "IndexConflict", "LockHeld"]
