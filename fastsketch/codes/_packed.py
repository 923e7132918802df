"""Packed binary codes, in the little bit order of numpy.packbits(z > 0, bitorder="little") and of faiss; search."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._kernels.hashing import hamming as kernel
from fastsketch._validation import as_integer

Codes = NDArray[np.uint8]


def code_width(n_bits: int) -> int:
    """Bytes of a code."""
    return -(-n_bits // 8)


def pack(bits: NDArray[np.bool_]) -> Codes:
    """uint8 (n, ceil(r / 8)) of a boolean (n, r)."""
    return np.packbits(bits, axis=1, bitorder="little")


def as_codes(codes: ArrayLike, name: str, *, width: int | None = None) -> Codes:
    """A contiguous uint8 matrix of packed codes, or TypeError / ValueError naming the argument."""
    if isinstance(codes, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array")
    out: NDArray[Any] = np.asarray(codes)
    if out.dtype != np.uint8:
        raise TypeError(f"{name} must be packed codes of dtype uint8, got {out.dtype}")
    if out.ndim == 1:
        out = out[np.newaxis]
    if out.ndim != 2 or out.shape[1] == 0:
        raise ValueError(f"{name} must have shape (n, bytes), got {out.shape}")
    if width is not None and out.shape[1] != width:
        raise ValueError(f"{name} must have {width} bytes a code as the codes, got {out.shape[1]}")
    return np.ascontiguousarray(out)


def hamming_distances(queries: ArrayLike, codes: ArrayLike) -> NDArray[np.int32]:
    """Hamming distances between packed codes.

    Parameters
    ----------
    queries : array_like of uint8 (m, b)
    codes : array_like of uint8 (n, b)
        b bytes a code; any b >= 1.

    Returns
    -------
    ndarray int32 (m, n)

    Raises
    ------
    TypeError, ValueError
        If either is no matrix of uint8, or the codes differ in length.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> fs.hamming_distances(np.uint8([[3]]), np.uint8([[0], [1], [3], [255]]))
    array([[2, 1, 0, 6]], dtype=int32)
    """
    collection = as_codes(codes, "codes")
    return kernel.distances(as_codes(queries, "queries", width=collection.shape[1]), collection)


def hamming_topk(queries: ArrayLike, codes: ArrayLike, *, k: int = 10) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The k nearest of packed codes for every query, exactly.

    Parameters
    ----------
    queries : array_like of uint8 (m, b)
    codes : array_like of uint8 (n, b)
        The collection, b bytes a code; any b >= 1.
    k : int, default 10
        1 <= k <= n.

    Returns
    -------
    distances : ndarray int32 (m, k), ascending
    indices : ndarray int64 (m, k)
        Among equal distances the lower index comes first.

    Raises
    ------
    TypeError, ValueError
        If either is no matrix of uint8, the codes differ in length, or k exceeds the collection.

    Notes
    -----
    A linear scan with the vector unit's population count, without the interpreter lock, on the threads that
    ``fs.thread_limit`` governs if it is long enough. Queries given together share the pass over the collection.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> fs.hamming_topk(np.uint8([[3]]), np.uint8([[0], [1], [3], [255]]), k=2)
    (array([[0, 1]], dtype=int32), array([[2, 1]]))
    """
    collection = as_codes(codes, "codes")
    asked = as_codes(queries, "queries", width=collection.shape[1])
    k = as_integer(k, "k", 1)
    if k > len(collection):
        raise ValueError(f"k must be at most the {len(collection)} codes of the collection, got {k}")
    return kernel.topk(asked, collection, k)
