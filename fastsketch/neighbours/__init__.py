"""Neighbours by a few bytes a row: hashes and quantizers learned from a stream, their codes, and an index of codes."""

from fastsketch.neighbours.codes import Encoder, hamming_distances, hamming_topk
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.index import CodeIndex, IndexConflict, LockHeld
from fastsketch.neighbours.quantizing import SketchQuantizer

__all__ = [
    "CodeIndex",
    "Encoder",
    "IndexConflict",
    "LockHeld",
    "SketchHash",
    "SketchQuantizer",
    "hamming_distances",
    "hamming_topk",
]
