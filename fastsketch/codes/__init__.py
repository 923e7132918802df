"""Codes of rows, of every hash and quantizer, and their search by real-valued queries or by Hamming distance."""

from fastsketch.codes._encoder import Encoder
from fastsketch.codes._packed_codes import hamming_distances, hamming_topk

__all__ = ["Encoder", "hamming_distances", "hamming_topk"]
