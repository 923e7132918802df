"""Conversion of the codes of hashes and quantizers to faiss indexes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.quantizing._book_encoder import BookEncoder

Codes = NDArray[np.uint8]
Array = NDArray[np.float64]

NIBBLE_VALUES = 16


def require_faiss() -> Any:
    """Import faiss and return it. Raise ImportError with the command that installs it if it is missing."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError("to_faiss needs faiss: pip install 'fastsketch[faiss]'") from error
    return faiss


def faiss_index_with_ids(encoder: Encoder, codes: Codes, ids: NDArray[np.int64], *, metric: str) -> Any:
    """Create a faiss index that holds the given codes and ids.

    For a hash it holds the sign bits only, without the factors of the rows. For a quantizer it refuses new rows.
    """
    faiss = require_faiss()
    width = encoder.layout.nibble_bytes
    if encoder.has_bits:
        inner, wrapper = faiss.IndexBinaryFlat(8 * width), faiss.IndexBinaryIDMap2
    else:
        inner, wrapper = pq_index(encoder, codes[:0], metric=metric), faiss.IndexIDMap2
    index = wrapper(inner)  # faiss wraps empty indexes only
    index.own_fields = True
    inner.this.disown()
    if encoder.has_bits:
        index.add_with_ids(np.ascontiguousarray(codes[:, :width]), ids)
        return index
    faiss.downcast_index(inner.index).add_sa_codes(codes)
    faiss.copy_array_to_vector(ids, index.id_map)
    index.ntotal = inner.ntotal = len(codes)
    index.construct_rev_map()
    index.add = index.add_with_ids = _refuse_add
    return index


def _refuse_add(*_: Any) -> None:
    """Raise TypeError, in place of adding rows to a faiss index whose codes only fastsketch can compute."""
    raise TypeError("rows are added to the CodeIndex that this was made of: faiss would make other codes of them")


def pq_index(encoder: Encoder, codes: Codes, *, metric: str, n_lists: int | None = None) -> Any:
    """Convert codes of a SketchQuantizer to a faiss product quantizer, which stores the codes unchanged.

    The result is an IndexPreTransform; with `n_lists`, it is over an inverted file with that many lists.

    This library estimates the squared distance by c + offset - 2 t with t = sum over nibbles j of
    <z_j, w_j> - squares_j / 2, where z_j are the coordinates of the query in the directions of nibble j, w_j is the
    codeword, squares_j the learned number of the codeword, and offset the number in the last bytes of the code. A
    product quantizer of 4 bits with the inner product computes t - offset / 2 as a sum over nibbles, if each subvector
    has one more coordinate: it is 1 in every query and -squares_j / 2, or the contribution of a nibble to
    -offset / 2, in every codeword. A linear transform maps queries to these vectors; it repeats a direction that two
    nibbles share.
    """
    faiss = require_faiss()
    if not isinstance(encoder, BookEncoder):
        raise ValueError("to_faiss is for codes of a SketchQuantizer or of a hash")
    if metric not in ("euclidean", "inner_product") or (metric == "inner_product" and encoder.norm is not None):
        raise ValueError(
            f"to_faiss keeps the order of metric='euclidean', and of 'inner_product' for rows of unequal lengths: "
            f"got {metric!r}{'' if encoder.norm is None else ' for rows of one length'} (divide rows and queries by "
            "their lengths, and take 'euclidean')"
        )
    matrix, bias, centroids = _as_product_quantizer(encoder, metric)
    n_subvectors, _, width = centroids.shape
    transform = faiss.LinearTransform(encoder.n_features, n_subvectors * width, True)
    faiss.copy_array_to_vector(matrix.astype(np.float32).ravel(), transform.A)
    faiss.copy_array_to_vector(bias.astype(np.float32), transform.b)
    transform.is_trained = True
    args = n_subvectors * width, n_subvectors, 4, faiss.METRIC_INNER_PRODUCT
    if n_lists is None:
        inner = faiss.IndexPQ(*args)
    else:
        coarse = _coarse_quantizer(faiss, encoder, transform, codes, n_lists)
        inner = faiss.IndexIVFPQ(coarse, args[0], n_lists, *args[1:])
        inner.own_fields, inner.by_residual = True, False
        coarse.this.disown()
    faiss.copy_array_to_vector(centroids.astype(np.float32).ravel(), inner.pq.centroids)
    inner.is_trained = True
    index = faiss.IndexPreTransform(transform, inner)
    index.own_fields = True
    transform.this.disown()
    inner.this.disown()
    _add_codes(faiss, index, inner, encoder, transform, codes)
    _encode_by_this_library(faiss, index, inner, encoder, transform)
    return index


def _as_product_quantizer(encoder: BookEncoder, metric: str) -> tuple[Array, Array, Array]:
    """Return (matrix, bias, centroids) of a faiss product quantizer that is equivalent to an encoder.

    They are matrix (m g, d), bias (m g,) and centroids (m, 16, g) for m subvectors of g coordinates.
    """
    books, layout = encoder.books, encoder.layout
    directions, words = books.by_nibble()
    n, max_directions = directions.shape
    n_body = 2 * layout.nibble_bytes  # with an odd number of nibbles the last four bits are unused
    n_subvectors, width = n_body + 2 * layout.offset.n_bytes, max_directions + 1
    centroids = np.zeros((n_subvectors, NIBBLE_VALUES, width))
    centroids[:n, :, :max_directions] = words
    basis = encoder.basis.astype(np.float64)
    used = (words != 0).any(axis=1)  # (n, most): False for the padding of a subvector
    matrix = np.zeros((n_subvectors, width, encoder.n_features))
    matrix[:n, :max_directions] = np.where(used[:, :, np.newaxis], basis.T[directions], 0.0) / encoder.length
    bias = np.zeros((n_subvectors, width))
    bias[:, max_directions] = 1.0
    if metric == "euclidean":
        bias[:n, :max_directions] = -(matrix[:n, :max_directions] @ encoder.mean)
        centroids[:n, :, max_directions] = -0.5 * books.squares
        centroids[n_body:, :, max_directions] = -0.5 * _offset_by_nibble(encoder)
    return matrix.reshape(-1, encoder.n_features), bias.ravel(), centroids


def _offset_by_nibble(encoder: BookEncoder) -> Array:
    """Return a table (2 n_bytes, 16) from which faiss computes the offset of a code: each half byte adds the entry of
    its value.

    Offsets that are not a sum over nibbles raise ValueError.
    """
    offset = encoder.layout.offset
    n_nibbles = 2 * offset.n_bytes
    if not n_nibbles:
        return np.zeros((0, NIBBLE_VALUES))
    if offset.mantissa_bits != 8 * offset.n_bytes:
        raise ValueError(
            f"to_faiss needs offsets that are a sum over the nibbles of a code: these have {offset.mantissa_bits} bits "
            f"of mantissa in {offset.n_bytes} bytes, which is no linear scale"
        )
    # value(u) = unit (1 + u / 2^bits), u = sum over j of 16^j nibble_j
    steps = np.outer(16.0 ** np.arange(n_nibbles), np.arange(NIBBLE_VALUES)) / 2.0**offset.mantissa_bits
    steps[0] += 1.0
    return offset.unit * steps


def _coarse_quantizer(faiss: Any, encoder: BookEncoder, transform: Any, codes: Codes, n_lists: int) -> Any:
    """Cluster decoded codes by k-means, and return a faiss index of the centroids, to which the inverted lists belong.

    It is an IndexFlatL2 of n_lists centroids of the transformed rows.
    """
    sample = codes[:: max(1, len(codes) // (256 * n_lists))]  # the number of rows that faiss's k-means uses
    rows = transform.apply(encoder.decode(np.ascontiguousarray(sample)))
    kmeans = faiss.Kmeans(rows.shape[1], n_lists, seed=0)
    kmeans.train(rows)
    coarse = faiss.IndexFlatL2(rows.shape[1])
    coarse.add(kmeans.centroids)
    return coarse


def _add_codes(faiss: Any, index: Any, inner: Any, encoder: BookEncoder, transform: Any, codes: Codes) -> None:
    """Append codes to a faiss index, in place; with inverted lists, each goes to the list of the nearest centroid."""
    codes = np.ascontiguousarray(codes)
    if not hasattr(inner, "invlists"):
        inner.add_sa_codes(codes)
    elif len(codes):
        ids: NDArray[np.int64] = np.arange(inner.ntotal, inner.ntotal + len(codes), dtype=np.int64)
        _, lists = inner.quantizer.search(transform.apply(encoder.decode(codes)), 1)
        order: NDArray[np.int64] = np.argsort(lists[:, 0], kind="stable")
        for list_rows in np.split(order, np.flatnonzero(np.diff(lists[order, 0])) + 1):
            list_codes, list_ids = np.ascontiguousarray(codes[list_rows]), np.ascontiguousarray(ids[list_rows])
            inner.invlists.add_entries(
                int(lists[list_rows[0], 0]), len(list_rows), faiss.swig_ptr(list_ids), faiss.swig_ptr(list_codes)
            )
        inner.ntotal += len(codes)
    index.ntotal = inner.ntotal


def _encode_by_this_library(faiss: Any, index: Any, inner: Any, encoder: BookEncoder, transform: Any) -> None:
    """Replace the ``add`` method of a faiss index by one that encodes rows with fastsketch, because faiss would compute
    other codes.

    faiss would choose the nearest codeword of each nibble by itself. ``index.add_with_ids`` then raises TypeError.
    """

    def add(rows: Any) -> None:
        _add_codes(faiss, index, inner, encoder, transform, encoder.encode(rows))

    def add_with_ids(rows: Any, ids: Any) -> None:
        raise TypeError("add_with_ids of such an index is not to be had: add rows, or make a CodeIndex with ids")

    index.add, index.add_with_ids = add, add_with_ids
