"""Jobs on many cores or machines: learn the rows of a source in parts, or compute answers for all of its rows."""

from fastsketch.data.files._lock import LockHeld
from fastsketch.jobs._mapping import MapResult, map_rows
from fastsketch.jobs._merge import map_merge, merge
from fastsketch.jobs._progress import Report
from fastsketch.jobs._run import run
from fastsketch.jobs._worker import WorkerLost

__all__ = ["LockHeld", "MapResult", "Report", "WorkerLost", "map_merge", "map_rows", "merge", "run"]
