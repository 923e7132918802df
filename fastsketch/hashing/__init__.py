"""Binary codes learned from a stream (FROSH, OSH and relatives), and exact Hamming search."""

from fastsketch.codes import hamming_distances, hamming_topk
from fastsketch.hashing._sketch_hash import SketchHash

__all__ = ["SketchHash", "hamming_distances", "hamming_topk"]
