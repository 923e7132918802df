"""Common to all hashes: codes, scores, search."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._kernels.guard import reads
from fastsketch._kernels.hashing import encode as kernel
from fastsketch._model import Model
from fastsketch._parameters import integer
from fastsketch._validation import Rows, as_rows, check_finite, in_place, is_sparse, natural_dtype, not_finite
from fastsketch.codes._packed import Codes, as_codes, code_width, hamming_topk, pack
from fastsketch.sketching._plain_rows import plain_rows

Scores = NDArray[np.floating[Any]]

# Rows encoded at a time by a hash that is not linear: their scores stay in the cache.
ENCODE_ROWS = 2048
# Rows of one call of the kernel, which an interrupt has to wait for; what cannot be read in place is copied.
SLICE_BYTES = 32 << 20


class Hasher(Model, abstract=True):
    """Base of the hashes: a subclass learns, and defines ``_scores`` or is linear."""

    n_bits: int = integer(at_least=1, kw_only=False)

    def _scores(self, rows: Any) -> Scores:
        """Signed distances (n, n_bits) of checked float rows, in their dtype; rows of the model's width."""
        raise NotImplementedError

    @reads
    def decision_function(self, rows: Rows) -> NDArray[np.floating[Any]]:
        """Signed distances of rows to the hyperplanes of the code: bit k is set where entry k is positive.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)

        Returns
        -------
        ndarray (n, n_bits)
            float32 for float32 rows, else float64.

        Raises
        ------
        TypeError, ValueError
            If the model has learned nothing, or rows are no finite real matrix of its width.
        """
        checked = self._checked(rows)
        out = np.empty((checked.shape[0], self.n_bits), natural_dtype(checked.dtype))
        self._fill(checked, scores=out)
        return out

    @reads
    def encode(self, rows: Rows) -> Codes:
        """Binary codes of rows.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)

        Returns
        -------
        ndarray uint8 (n, ceil(n_bits / 8))
            np.packbits(decision_function(rows) > 0, axis=1, bitorder="little"); unused bits are zero.

        Raises
        ------
        TypeError, ValueError
            As for ``decision_function``.
        """
        checked = self._checked(rows)
        out = np.empty((checked.shape[0], code_width(self.n_bits)), np.uint8)
        self._fill(checked, codes=out)
        return out

    def search(self, queries: Rows, codes: ArrayLike, *, k: int = 10) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Encode real-valued queries and find their k nearest codes.

        Parameters
        ----------
        queries : array_like or scipy.sparse (m, d)
        codes : ndarray uint8 (n, ceil(n_bits / 8))
            A collection that ``encode`` made.
        k : int, default 10
            At most n.

        Returns
        -------
        distances : ndarray int32 (m, k)
        indices : ndarray int64 (m, k)
            See ``fs.hamming_topk``.

        Raises
        ------
        TypeError, ValueError
            As for ``encode`` and ``fs.hamming_topk``.
        """
        return hamming_topk(self.encode(queries), codes, k=k)

    def to_faiss(self, codes: ArrayLike | None = None) -> Any:
        """A faiss.IndexBinaryFlat of this code length, with `codes` in it if they are given (extra: faiss).

        Raises
        ------
        ImportError
            Without faiss.
        TypeError, ValueError
            If codes are not of this length.
        """
        try:
            import faiss
        except ImportError as error:
            raise ImportError("to_faiss needs faiss: pip install 'fastsketch[faiss]'") from error

        width = code_width(self.n_bits)
        index = faiss.IndexBinaryFlat(8 * width)
        if codes is not None:
            index.add(as_codes(codes, "codes", width=width))
        return index

    def _require_rows(self) -> None:
        if not self.n_rows:
            raise ValueError("the model has seen no rows: call update first")

    def _checked(self, rows: Rows) -> Any:
        self._require_rows()
        return as_rows(rows, self.n_features)

    def _fill(self, rows: Any, *, scores: Scores | None = None, codes: Codes | None = None) -> None:
        """Fill in the one that is given, for rows whose shape and kind are checked."""
        for start in range(0, rows.shape[0], ENCODE_ROWS):
            piece = rows[start : start + ENCODE_ROWS]
            check_finite(piece, offset=start)
            found = self._scores(piece.astype(natural_dtype(piece.dtype), copy=False))
            if scores is not None:
                scores[start : start + ENCODE_ROWS] = found
            if codes is not None:
                codes[start : start + ENCODE_ROWS] = pack(found > 0)


class LinearHasher(Hasher, abstract=True):
    """Bits are signs of rows @ projection - offsets."""

    def _linear(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Projection (d, n_bits) and offsets (n_bits,)."""
        raise NotImplementedError

    def _fill(self, rows: Any, *, scores: Scores | None = None, codes: Codes | None = None) -> None:
        (n, d), dtype = rows.shape, natural_dtype(rows.dtype)
        projection, offsets = (in_place(array, dtype) for array in self._linear())
        part = kernel.rows_of_part(d, self.n_bits)
        step = max(1, SLICE_BYTES // (part * d * dtype.itemsize)) * part
        for start in range(0, n, step):
            piece, stop = rows if n <= step else rows[start : start + step], start + step
            bad = _filled(
                piece,
                projection,
                offsets,
                scores=None if scores is None else scores[start:stop],
                codes=None if codes is None else codes[start:stop],
            )
            if bad >= 0:
                raise not_finite(start + bad)


def _filled(
    rows: Any, projection: Scores, offsets: Scores, *, scores: Scores | None = None, codes: Codes | None = None
) -> int:
    """The kernel's answer: the first row that is not finite, or -1."""
    if not is_sparse(rows):
        rows = plain_rows(rows, projection.dtype)
        if rows.strides[0] < rows.shape[1] * rows.itemsize:  # BLAS takes no rows that overlap or lie backwards
            rows = np.ascontiguousarray(rows)
        return kernel.dense(rows, projection, offsets, scores=scores, codes=codes)
    return kernel.csr(
        in_place(rows.indptr, np.int64),
        in_place(rows.indices, np.int32),
        in_place(rows.data, projection.dtype),
        projection,
        offsets,
        scores=scores,
        codes=codes,
    )
