"""Sketches and hashes on Dask (extra: dask): one task a partition, a tree of merges, the same bits on any cluster."""

from fastsketch.dask._jobs import SketchHash, sketch

__all__ = ["SketchHash", "sketch"]
