"""An index of codes: rows added, removed, found by real-valued queries, and saved."""

from fastsketch._loading import folder_readers
from fastsketch.indexing._index import CodeIndex
from fastsketch.indexing._saving import IndexConflict
from fastsketch.io._lock import LockHeld

folder_readers["CodeIndex"] = CodeIndex.load

__all__ = ["CodeIndex", "IndexConflict", "LockHeld"]
