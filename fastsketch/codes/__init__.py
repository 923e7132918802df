"""What a code of a row is, for every hash and quantizer, and how codes are searched: by real queries or by Hamming."""

from fastsketch.codes._encoder import Encoder
from fastsketch.codes._packed import hamming_distances, hamming_topk

__all__ = ["Encoder", "hamming_distances", "hamming_topk"]
