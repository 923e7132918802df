"""Locality-sensitive hashing (LSH), the signs of projections on random hyperplanes."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal
from fastsketch._core.validation import as_rows, check_finite, is_sparse
from fastsketch._frame.batches import Batch
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._frame.parameters import seed
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours.hashing._hasher import Hasher
from fastsketch.neighbours.hashing._sign_encoder import LinearSignEncoder, SignEncoder

# Rows that are added up at a time.
BLOCK = 256


class _Total(NamedTuple):
    """Sum of the rows learned, and their number."""

    rows: NDArray[np.float64]
    n_rows: int


class LSH(Hasher, MergeableModel):
    """Locality-sensitive hashing by the signs of Gaussian random projections of centred rows (Charikar 2002).

    Parameters
    ----------
    n_bits : int
        At least 1, also more than features.
    seed : int, default 0

    Attributes
    ----------
    n_rows, n_features : int
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Examples
    --------
    Rows of two kinds: the nearest by codes are of the kind of the query.

    >>> import numpy as np, fastsketch as fs
    >>> from fastsketch.reference import baselines
    >>> rows = np.random.default_rng(0).standard_normal((100, 20))
    >>> rows[:50] += 3
    >>> codes = baselines.LSH(64).update(rows).encode(rows)
    >>> distances, found = fs.hamming_topk(codes[:1], codes, k=10)
    >>> codes.shape, bool((found < 50).all())
    ((100, 8), True)
    """

    seed: int = seed(default=0)

    def _begin(self) -> None:
        self._total: _Total | None = None
        self._directions: NDArray[np.float64] | None = None

    @changes
    def update(self, rows: Batch) -> Self:
        """Learn the mean of a batch of rows, and return self.

        rows: array_like or scipy.sparse (n, d), or one row (d,).

        Raises
        ------
        TypeError, ValueError
            If rows are no finite real matrix of the width seen before, or their sum overflows.
        """
        return self._take_rows(rows)

    def _update(self, rows: Any, sample_weight: Any) -> None:
        checked = as_rows(rows, self.n_features)
        with np.errstate(over="ignore", invalid="ignore"):
            added = np.zeros(checked.shape[1]) if self._total is None else self._total.rows.copy()
            # one row after the other, so that the bits do not depend on how they are cut
            if is_sparse(checked):
                np.add.at(added, checked.indices, checked.data.astype(np.float64))
            else:
                for start in range(0, checked.shape[0], BLOCK):
                    added = np.cumsum(np.vstack([added, checked[start : start + BLOCK]]), axis=0)[-1]
            total = _Total(added, self.n_rows + checked.shape[0])
        if not np.isfinite(total.rows).all():
            check_finite(checked)
            raise ValueError("the sum of the rows must be finite: it overflows")
        self._total = total

    def _merge(self, other: Self) -> None:
        mine, theirs = self._total, other._total
        assert mine is not None and theirs is not None  # both have seen rows
        self._total = _Total(mine.rows + theirs.rows, mine.n_rows + theirs.n_rows)

    def _encoder(self, *, factors: bool) -> SignEncoder:
        total = self._total
        assert total is not None  # or there would be no rows
        if self._directions is None:
            n = len(total.rows) * self.n_bits
            self._directions = random_normal(self.seed, Normal.HYPERPLANES, n).reshape(-1, self.n_bits)
        mean = total.rows / total.n_rows
        offsets = mean @ self._directions
        return LinearSignEncoder(self._directions, mean, offsets, factors=factors, spans=False)

    @property
    def n_rows(self) -> int:
        """Return the number of rows learned."""
        return 0 if self._total is None else self._total.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row."""
        return None if self._total is None else len(self._total.rows)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {"n_rows": self.n_rows}, {} if self._total is None else {"sum": self._total.rows}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n_rows = checks.as_count(state["n_rows"], "n_rows")
        checks.only(arrays, "sum")
        if "sum" in arrays:
            checks.finite(arrays, "sum", (arrays["sum"].size,))
            checks.number_within(arrays["sum"].size, "n_features", 1, np.inf)
        elif n_rows:
            raise ValueError(f"the sum of its {n_rows} rows is missing")

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        if "sum" in arrays:
            self._total = _Total(arrays["sum"], state["n_rows"])
