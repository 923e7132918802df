"""svmlight / libsvm text, through the block parser in C."""

import bz2
import gzip
import lzma
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels import svmlight as kernel

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK_BYTES = 4 << 20
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class Block(NamedTuple):
    """Whole lines of text, parsed: the arrays of a CSR matrix with its labels."""

    labels: NDArray[np.float64]  # (n,)
    indptr: NDArray[np.int64]  # (n + 1,)
    indices: NDArray[np.int32]  # (nnz,)
    data: NDArray[np.float64]  # (nnz,)
    width: int  # columns that its largest index needs


def open_text(path: Path) -> BinaryIO:
    """An open binary file of svmlight text, decompressed by the suffix of its name."""
    opener = OPENERS.get(path.suffix)
    return opener(path, "rb") if opener else cast(BinaryIO, path.open("rb", buffering=0))


def read_blocks(file: BinaryIO, block_bytes: int, *, zero_based: bool) -> Iterator[Block]:
    """Parse an open binary file, about block_bytes at a time.

    Raises ValueError with the line number and the reason for text that is not svmlight.
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
        labels, indptr, indices, data, width, newlines = kernel.parse_block(
            text, zero_based=zero_based, first_line=line
        )
        line += newlines
        if len(labels):
            yield Block(labels, indptr, indices, data, width)


def count_features(file: BinaryIO, *, zero_based: bool) -> int:
    """Number of columns: the largest index plus one (zero-based) or the largest index (one-based)."""
    return max((block.width for block in read_blocks(file, BLOCK_BYTES, zero_based=zero_based)), default=0)


def load_svmlight(
    path: str | PathLike[str], *, n_features: int | None = None, zero_based: bool = False
) -> "tuple[csr_array[np.float64], NDArray[np.float64]]":
    """Read a whole svmlight file.

    Parameters
    ----------
    path : str or path
        Text, or compressed text by its suffix (.gz, .bz2, .xz).
    n_features : int, optional
        Number of columns; by default the largest index in the file.
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
        blocks = list(read_blocks(file, BLOCK_BYTES, zero_based=zero_based))
    width = max((block.width for block in blocks), default=0)
    if n_features is None:
        n_features = width
    elif width > n_features:
        raise ValueError(f"{path} has feature {width}, but n_features is {n_features}")
    if not blocks:
        return csr_array((0, n_features)), np.zeros(0)
    labels = np.concatenate([block.labels for block in blocks])
    indices: NDArray[Any] = np.concatenate([block.indices for block in blocks])
    data = np.concatenate([block.data for block in blocks])
    lengths = [np.diff(block.indptr) for block in blocks]
    indptr: NDArray[Any] = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    if len(data) < 2**31:  # other libraries take 32-bit indices only
        indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32)
    return csr_array((data, indices, indptr), shape=(len(labels), n_features)), labels
