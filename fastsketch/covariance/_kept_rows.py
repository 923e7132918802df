"""Uniform random sample (bottom-k reservoir) of the rows of a stream, from which thresholds are computed."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.bottom_k import BottomK, Piece
from fastsketch._core.validation import is_sparse
from fastsketch.data.files import _checks as checks
from fastsketch.ridge._held_out import hash_integers

# Maximum number of rows. By the binomial law the share of new rows beyond a 1% threshold is within a factor of 1.5 of
# 1% with probability .97 for 3,000 exchangeable rows, and .99 for this many.
MOST_ROWS = 4000
# Maximum bytes of the sample; during learning up to twice as many are buffered.
MAX_BYTES = 5e7
# Keys are computed in blocks of this size.
KEYS_PER_BLOCK = 1024
# Why an estimator has retained no rows; state files store the index.
WITHOUT_ROWS = (
    "it began to learn with contamination=None; set contamination and call fit",
    "its sketch came from elsewhere, as that of a job, which keeps none; learn by fit or partial_fit",
    "one that was merged had kept none; learn all parts with contamination set",
)
NO_ROWS = Piece(np.empty((0, 0)), np.empty(0, np.uint64), np.empty(0))


class KeptRows:
    """Uniform random sample of a stream's rows with their weights (bottom-k), from which thresholds are computed.

    It has the `size` rows of the smallest keys. A key depends only on the row's index in the stream.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rows: BottomK | None = None
        self._drawn = 0, np.empty(0, np.uint64)  # first index, and the keys of the rows from there on

    @classmethod
    def like(cls, rows: Any) -> Self:
        """Return an empty sample for rows like these. Its size is limited so that it takes little memory.

        At most MOST_ROWS rows, and about MAX_BYTES bytes.
        """
        each = (12.0 * rows.nnz if is_sparse(rows) else float(rows.nbytes)) / max(1, rows.shape[0])
        return cls(max(1, min(MOST_ROWS, int(MAX_BYTES / max(each, 1.0)))))

    def chosen(
        self, rows: Any, weights: NDArray[np.float64] | None, *, first: int, complete: NDArray[np.bool_] | None = None
    ) -> Piece | None:
        """Return the rows of a batch that enter the sample, as a Piece, or None if no row does.
        The sample does not change; ``add`` adds the rows.

        Parameters
        ----------
        rows : array or CSR (n, d)
        weights : (n,) array, optional
        first : int
            Index of the first of these rows in the stream.
        complete : (n,) array of bool, optional
            Which rows may be selected; all by default.
        """
        keys = self._keys_of(first, first + rows.shape[0])
        able = np.arange(len(keys)) if complete is None else np.flatnonzero(complete)
        able = able[(self._rows or BottomK(self.size, NO_ROWS)).indices_that_may_enter(keys[able])]
        if not len(able):
            return None
        return Piece(rows[able], keys[able], np.ones(len(able)) if weights is None else weights[able])

    def after(self, rows: Any, weights: NDArray[np.float64] | None, **where: Any) -> Self:
        """Return a new sample that has also been offered the rows of a batch, or this one if none enters.
        This object does not change.

        The arguments are those of ``chosen``.
        """
        part = self.chosen(rows, weights, **where)
        if part is None:
            return self
        out = self.copy()
        out.add(part)
        return out

    def add(self, part: Piece) -> None:
        """Add the rows that ``chosen`` has selected to the sample, in place."""
        if self._rows is None:
            self._rows = BottomK(self.size, part.select(slice(0, 0)))
        self._rows.add_piece(part)

    def _keys_of(self, first: int, stop: int) -> NDArray[np.uint64]:
        start, keys = self._drawn
        if not start <= first <= stop <= start + len(keys):  # a block, so that single rows are cheap
            indices = np.arange(first, max(stop, first + KEYS_PER_BLOCK))
            start, keys = self._drawn = first, hash_integers(indices.astype(np.uint64))
        return keys[first - start : stop - start]

    def sample(self) -> tuple[Any, NDArray[np.float64]]:
        """Return the rows of the sample in random order, with their weights; ValueError if it is empty."""
        rows, _, weights = self._settled()
        assert weights is not None
        return rows, weights

    def _settled(self) -> Piece:
        if self._rows is None:
            raise ValueError(
                "there is nothing to set a threshold by: each of the rows had sample_weight 0, or a missing number"
            )
        return self._rows.sorted_sample()

    @property
    def n_held(self) -> int:
        """Number of rows in memory. It may exceed the sample size; surplus rows are dropped when the sample is read."""
        return 0 if self._rows is None else self._rows.n_held

    def copy(self) -> Self:
        """Return an independent copy."""
        out = type(self)(self.size)
        out._rows, out._drawn = None if self._rows is None else self._rows.copy(), self._drawn
        return out

    def in_order(self) -> tuple[Any, NDArray[np.float64]]:
        """Return all rows of the stream in their original order, with their weights.

        The sample must still have every row of the stream.
        """
        rows, weights = self.sample()
        ranks = np.argsort(np.argsort(self._keys_of(0, len(weights))))
        return rows[ranks], weights[ranks]

    def merged(self, other: Self) -> Self:
        """Return a new sample of the rows of both streams."""
        out = type(self)(min(self.size, other.size))
        for piece in (kept._settled() for kept in (self, other) if kept._rows is not None):
            out.add(piece)
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sample as named arrays, for a state file."""
        if self._rows is None:
            return {"kept_size": np.array([float(self.size)])}
        rows, keys, weights = self._settled()
        assert weights is not None
        stored = {"kept_rows": rows}
        if is_sparse(rows):
            stored = {"kept_rows": rows.data, "kept_indices": rows.indices.astype(np.int32)}
            stored["kept_indptr"] = rows.indptr.astype(np.int64)
        return {
            **stored,
            "kept_keys": keys,
            "kept_weights": weights,
            "kept_size": np.array([self.size + 0.0]),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], n_features: int) -> Self:
        """Restore a sample from a state file; ValueError if the arrays are inconsistent."""
        out = cls(int(checks.not_negative(arrays, "kept_size", (1,))[0]))
        checks.number_within(out.size, "kept_size", 1, MOST_ROWS)
        if "kept_keys" not in arrays:
            return out
        keys = arrays["kept_keys"]
        n = len(checks.array_of(arrays, "kept_keys", keys.shape[:1], np.uint64))
        checks.number_within(n, "rows kept", 1, out.size)
        weights = checks.not_negative(arrays, "kept_weights", (n,))
        rows: Any = arrays.get("kept_rows", np.zeros(0))
        if rows.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"array 'kept_rows' must be float32 or float64, is {rows.dtype}")
        if "kept_indptr" in arrays:
            from scipy.sparse import csr_array

            stored = len(rows)
            checks.finite(arrays, "kept_rows", (stored,), rows.dtype)
            indptr = checks.array_of(arrays, "kept_indptr", (n + 1,), np.int64)
            indices = checks.array_of(arrays, "kept_indices", (stored,), np.int32)
            checks.csr_rows(indptr, indices, n_stored=stored, n_columns=n_features, name="the rows kept")
            rows = csr_array((rows, indices, indptr), shape=(n, n_features))
        else:
            checks.finite(arrays, "kept_rows", (n, n_features), rows.dtype)
        out.add(Piece(rows, keys, weights))
        return out
