"""svmlight / libsvm text, through the block parser in C."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np

from fastsketch._kernels import svmlight as kernel

BLOCK_BYTES = 4 << 20
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def open_text(path):
    """An open binary file of svmlight text, decompressed by the suffix of its name."""
    opener = OPENERS.get(path.suffix)
    return opener(path, "rb") if opener else path.open("rb", buffering=0)


def read_blocks(file, block_bytes=BLOCK_BYTES, zero_based=False):
    """Parse an open binary file; yields (labels, indptr, indices, data, width) of whole lines.

    Raises ValueError with the line number and the reason for what is not svmlight.
    """
    line = 1
    rest = b""
    while True:
        block = file.read(block_bytes)
        if block:
            stop = block.rfind(b"\n") + 1
            if stop == 0:
                rest += block
                continue
            text, rest = rest + block[:stop], block[stop:]
        elif rest:
            text, rest = rest + b"\n", b""
        else:
            return
        labels, indptr, indices, data, width, newlines = kernel.parse_block(text, zero_based, line)
        line += newlines
        if len(labels):
            yield labels, indptr, indices, data, width


def count_features(file, zero_based=False):
    """Number of columns: the largest index plus one (zero-based) or the largest index (one-based)."""
    return max((block[4] for block in read_blocks(file, BLOCK_BYTES, zero_based)), default=0)


def load_svmlight(path, *, n_features=None, zero_based=False):
    """Read a whole svmlight file.

    Parameters
    ----------
    path : str or path
        Text, or compressed text by its suffix (.gz, .bz2, .xz).
    n_features : int, optional
        Number of columns; by default the largest index met.
    zero_based : bool, default False
        Whether indices start at 0.

    Returns
    -------
    rows : scipy.sparse.csr_array (n, d), float64
    labels : ndarray (n,), float64

    Raises
    ------
    ValueError
        If a line is not svmlight (the message names the line), or an index exceeds n_features.
    """
    from scipy.sparse import csr_array

    path = Path(path)
    with open_text(path) as file:
        blocks = list(read_blocks(file, BLOCK_BYTES, zero_based))
    width = max((block[4] for block in blocks), default=0)
    if n_features is None:
        n_features = width
    elif width > n_features:
        raise ValueError(f"{path} has feature {width}, but n_features is {n_features}")
    if not blocks:
        return csr_array((0, n_features)), np.zeros(0)
    labels = np.concatenate([block[0] for block in blocks])
    indices = np.concatenate([block[2] for block in blocks])
    data = np.concatenate([block[3] for block in blocks])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(block[1]) for block in blocks]))])
    if len(data) < 2**31:  # other libraries take 32-bit indices only
        indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32)
    return csr_array((data, indices, indptr), shape=(len(labels), n_features)), labels
