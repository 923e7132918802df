"""One model from many: a tree of pure merges, in this process, in threads, or in processes that may die."""

from fastsketch.jobs import WorkerLost
from fastsketch.merging._merge import map_merge, merge

__all__ = ["WorkerLost", "map_merge", "merge"]
