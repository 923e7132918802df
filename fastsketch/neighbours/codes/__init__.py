"""Codes of rows, of every hash and quantizer, and their search by real-valued queries or by Hamming distance."""

from fastsketch.neighbours.codes._encoder import Encoder
from fastsketch.neighbours.codes._packed_codes import hamming_distances, hamming_topk

__all__ = ["Encoder", "hamming_distances", "hamming_topk"]
