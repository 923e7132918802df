"""Common to all hashes: codes, scores, search."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._kernels.guard import reads
from fastsketch._model import Model
from fastsketch._parameters import integer
from fastsketch._validation import Rows, as_rows, check_finite, natural_dtype
from fastsketch.hashing._codes import Codes, as_codes, code_width, hamming_topk, pack

# Rows encoded at a time: their scores stay in the cache.
ENCODE_ROWS = 2048


class Hasher(Model, abstract=True):
    """Base of the hashes: a subclass learns, and defines ``_scores``."""

    n_bits: int = integer(at_least=1, kw_only=False)

    def _scores(self, rows: Any) -> NDArray[np.floating[Any]]:
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
        for start in range(0, len(out), ENCODE_ROWS):
            out[start : start + ENCODE_ROWS] = self._scores_from(checked, start)
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
        for start in range(0, len(out), ENCODE_ROWS):
            out[start : start + ENCODE_ROWS] = pack(self._scores_from(checked, start) > 0)
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

    def _scores_from(self, rows: Any, start: int) -> NDArray[np.floating[Any]]:
        """Scores of the next ENCODE_ROWS rows."""
        piece = rows[start : start + ENCODE_ROWS]
        check_finite(piece, offset=start)
        return self._scores(piece.astype(natural_dtype(piece.dtype), copy=False))


class LinearHasher(Hasher, abstract=True):
    """Bits are signs of rows @ projection - offsets."""

    def _linear(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Projection (d, n_bits) and offsets (n_bits,)."""
        raise NotImplementedError

    def _scores(self, rows: Any) -> NDArray[np.floating[Any]]:
        projection, offsets = self._linear()
        # compared with mu'P: no centred copy of the rows
        scores = rows @ projection.astype(rows.dtype, copy=False)
        return scores - offsets.astype(rows.dtype)
