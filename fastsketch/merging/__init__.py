"""One model from many: a tree of pure merges, in this process, in threads, or in processes that may die."""

from fastsketch.merging._engines import ENGINES, WorkerLost
from fastsketch.merging._tree import map_merge, tree_merge

__all__ = ["ENGINES", "WorkerLost", "map_merge", "tree_merge"]
