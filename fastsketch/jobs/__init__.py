"""Run jobs on many cores or machines: learn a model of all rows of a source, or apply a function to every row."""

from fastsketch.data.files._lock import LockHeld
from fastsketch.jobs._mapping import MapResult, map_rows
from fastsketch.jobs._merge import map_merge, merge
from fastsketch.jobs._progress import Report
from fastsketch.jobs._run import run
from fastsketch.jobs._worker import WorkerLost

__all__ = ["LockHeld", "MapResult", "Report", "WorkerLost", "map_merge", "map_rows", "merge", "run"]
