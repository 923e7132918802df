"""Binary codes learned from a stream (FROSH, OSH and relatives), and exact Hamming search."""

from fastsketch.codes import hamming_distances, hamming_topk
from fastsketch.hashing._sketch_hash import SketchHash

__all__ = ["SketchHash", "hamming_distances", "hamming_topk"]

_BASELINES = ("ITQ", "LSH", "SGH", "PCAHash")


def __getattr__(name: str) -> object:
    if name in _BASELINES:
        raise AttributeError(f"fastsketch.hashing.{name} is fastsketch.baselines.{name} now")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
