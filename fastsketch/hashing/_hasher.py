"""What every hash has once it knows its projection: codes, decision values, search, files."""

import numpy as np

from fastsketch._validation import as_rows
from fastsketch.hashing._codes import hamming_topk, pack
from fastsketch.io import _state

# Rows encoded at a time: their scores stay in the cache.
ENCODE_ROWS = 2048


class Hasher:
    """Base of the hashes. A subclass provides n_bits, n_features, decision_block(rows) and the state."""

    def decision(self, rows):
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
        rows = self._checked(rows)
        out = [self._scores(rows[start : start + ENCODE_ROWS], start) for start in self._starts(rows)]
        return np.concatenate(out) if out else np.empty((0, self.n_bits))

    def encode(self, rows):
        """Binary codes of rows.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)

        Returns
        -------
        ndarray uint8 (n, ceil(n_bits / 8))
            np.packbits(decision(rows) > 0, axis=1, bitorder="little"); unused bits are zero.

        Raises
        ------
        TypeError, ValueError
            As for ``decision``.
        """
        rows = self._checked(rows)
        out = np.empty((rows.shape[0], -(-self.n_bits // 8)), np.uint8)
        for start in self._starts(rows):
            stop = min(start + ENCODE_ROWS, rows.shape[0])
            out[start:stop] = pack(self._scores(rows[start:stop], start) > 0)
        return out

    def search(self, queries, codes, k=10):
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
        """
        return hamming_topk(self.encode(queries), codes, k)

    def to_faiss(self, codes=None):
        """A faiss.IndexBinaryFlat of this code length, with `codes` in it if they are given (extra: faiss)."""
        try:
            import faiss
        except ImportError as error:
            raise ImportError("to_faiss needs faiss: pip install 'fastsketch[faiss]'") from error
        from fastsketch.hashing._codes import as_codes

        width = -(-self.n_bits // 8)
        index = faiss.IndexBinaryFlat(8 * width)
        if codes is not None:
            index.add(as_codes(codes, "codes", width))
        return index

    def _checked(self, rows):
        self._require()
        return as_rows(rows, self.n_features)

    @staticmethod
    def _starts(rows):
        return range(0, rows.shape[0], ENCODE_ROWS)

    def _scores(self, rows, first):
        dense = rows if isinstance(rows, np.ndarray) else rows.data
        if dense.dtype.kind == "f" and not np.isfinite(dense).all():
            if rows is dense:
                raise ValueError(
                    f"rows must be finite: row {first + int(np.argmin(np.isfinite(rows).all(axis=1)))} "
                    "holds a NaN or an infinity"
                )
            raise ValueError("rows must be finite: one holds a NaN or an infinity")
        dtype = np.float32 if rows.dtype in (np.dtype(np.float32), np.dtype(np.float16)) else np.float64
        return self._decide(rows.astype(dtype, copy=False))

    # -- files -----------------------------------------------------------------------------------------------------
    def to_bytes(self):
        """The state as bytes; ``fs.from_bytes`` reads it back."""
        params, arrays = self._state()
        return _state.pack(type(self).__name__, params, arrays)

    def save(self, path):
        """Write the state to a file that ``fs.load`` reads: whole or not at all, whatever happens meanwhile."""
        _state.write(path, self.to_bytes())

    def copy(self):
        """An independent model in the same state."""
        other = object.__new__(type(self))
        other.__setstate__(self._state())
        return other

    def __getstate__(self):
        return self._state()


class LinearHasher(Hasher):
    """Bits are signs of rows @ projection - offsets."""

    def _decide(self, rows):
        projection, offsets = self._linear()
        # compared with mu'P: no centred copy of the rows
        scores = rows @ projection.astype(rows.dtype, copy=False)
        return scores - offsets.astype(rows.dtype)


def register(cls):
    """Let fs.load make models of this class."""

    def build(params, arrays):
        model = object.__new__(cls)
        model.__setstate__((params, arrays))
        return model

    _state.register(cls.__name__, build)
    return cls
