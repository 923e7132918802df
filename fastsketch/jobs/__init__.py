"""Jobs: a source cut into parts, each learned wherever there is room, and one model out of them along one tree."""

from fastsketch.jobs._engines import Engine, WorkerLost

__all__ = ["Engine", "WorkerLost"]
