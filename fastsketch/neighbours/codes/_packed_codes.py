"""Packed binary codes and their Hamming distances.

Bits are in the little order of ``numpy.packbits`` and faiss.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_array
from fastsketch._kernels.hashing import hamming as kernel
from fastsketch.neighbours.codes._search_arguments import (
    Mask,
    Places,
    as_ids,
    as_k,
    as_mask,
    pack_mask,
    positions_if_few,
)

Codes = NDArray[np.uint8]


def code_width(n_bits: int) -> int:
    """Return the number of bytes of a code of n_bits."""
    return -(-n_bits // 8)


def pack(bits: NDArray[np.bool_]) -> Codes:
    """Pack a boolean matrix (n, r) into bytes of eight columns, uint8 (n, ceil(r / 8))."""
    return np.packbits(bits, axis=1, bitorder="little")


def as_codes(codes: ArrayLike, name: str, *, width: int | None = None) -> Codes:
    """Validate packed codes and return them as a contiguous uint8 matrix (n, bytes).

    A vector is one code. TypeError or ValueError calls the argument by `name`.
    """
    out = as_array(codes, name)
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
    """Compute the Hamming distance of every query to every code.

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
        If an argument is not a matrix of uint8, or the two have codes of different lengths.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> fs.hamming_distances(np.uint8([[3]]), np.uint8([[0], [1], [3], [255]]))
    array([[2, 1, 0, 6]], dtype=int32)
    """
    collection = as_codes(codes, "codes")
    return kernel.distances(as_codes(queries, "queries", width=collection.shape[1]), collection)


def hamming_topk(
    queries: ArrayLike,
    codes: ArrayLike,
    *,
    k: int = 10,
    ids: ArrayLike | None = None,
    allow: ArrayLike | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Find the k codes nearest to each of m queries, exactly, and return (Hamming distances, ids), both (m, k).

    Parameters
    ----------
    queries : array_like of uint8 (m, b)
    codes : array_like of uint8 (n, b)
        The collection, b bytes a code; any b >= 1.
    k : int, default 10
        At most the number of codes that may be found.
    ids : array_like of int64 (n,), optional
        Distinct ids of the codes, used in the result and in `allow`; default 0 to n - 1.
    allow : array_like of ids, or of bool (n,), optional
        The codes that may be found.

    Returns
    -------
    distances : ndarray int32 (m, k), ascending
    indices : ndarray int64 (m, k)
        Ids; equal distances are ordered by id.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a matrix of uint8, codes have different lengths, k exceeds the number of codes that may
        be found, ids are not n distinct integers, or `allow` has an unknown id or is a mask of another length.

    Notes
    -----
    A linear scan that counts bits with vector instructions. It releases the global interpreter lock, and long scans
    run on the threads of ``fs.thread_limit``. Queries of one call share a pass over the collection.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> fs.hamming_topk(np.uint8([[3]]), np.uint8([[0], [1], [3], [255]]), k=2)
    (array([[0, 1]], dtype=int32), array([[2, 1]]))
    """
    collection = as_codes(codes, "codes")
    packed_queries = as_codes(queries, "queries", width=collection.shape[1])
    n = len(collection)
    code_ids = as_ids(ids, n)
    mask = as_mask(allow, n, code_ids)
    k = as_k(k, n, mask)
    distances, positions = nearest_bits(packed_queries, collection, k=k, ids=code_ids, allow=mask)
    return distances, positions if code_ids is None else code_ids[positions]


def nearest_bits(
    queries: Codes, codes: Codes, *, k: int, ids: Places | None, allow: Mask | None
) -> tuple[NDArray[np.int32], Places]:
    """Find the k codes nearest to each query by Hamming distance. Return distances and positions, both (m, k).

    Queries and codes are validated. Equal distances are ordered by id.
    """
    selected = positions_if_few(allow)
    if selected is not None:
        codes, allow, ids = codes[selected], None, None if ids is None else ids[selected]
    distances, positions = kernel.topk(queries, codes, k, allow=pack_mask(allow), ids=ids)
    return distances, positions if selected is None else selected[positions]
