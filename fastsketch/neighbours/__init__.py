"""Approximate nearest-neighbour search with compact codes: hashes, quantizers and an index."""

from fastsketch.neighbours._code_index import CodeIndex
from fastsketch.neighbours.codes import Encoder, hamming_distances, hamming_topk
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.quantizing import SketchQuantizer

__all__ = [
    "CodeIndex",
    "Encoder",
    "SketchHash",
    "SketchQuantizer",
    "hamming_distances",
    "hamming_topk",
]
