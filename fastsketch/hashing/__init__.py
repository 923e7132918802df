"""Binary codes learned from a stream (FROSH, OSH and relatives), exact Hamming search, and what to compare with."""

from fastsketch.hashing._baselines import ITQ, LSH, SGH, PCAHash
from fastsketch.hashing._codes import hamming_distances, hamming_topk
from fastsketch.hashing._sketch_hash import SketchHash

__all__ = ["ITQ", "LSH", "SGH", "PCAHash", "SketchHash", "hamming_distances", "hamming_topk"]
