"""Codes of hashes and quantizers, and nearest-neighbour search among them."""

from fastsketch.neighbours.codes._encoder import Encoder
from fastsketch.neighbours.codes._packed_codes import hamming_distances, hamming_topk

__all__ = ["Encoder", "hamming_distances", "hamming_topk"]
