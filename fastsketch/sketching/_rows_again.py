"""Rows that can be read more than once: products with A'A, a pass each, in constant memory."""

from collections.abc import Callable, Iterable, Iterator
from math import sqrt
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._validation import Rows, as_rows, as_weights, check_finite, is_sparse
from fastsketch.io import open_source

# Bytes of rows that are made dense, centred and multiplied at a time.
BLOCK_BYTES = 4 << 20

Matrix = NDArray[np.float64]
# An array, a sparse matrix, or a file (or several) of one of the formats of fastsketch.io.
Readable = Rows | str | PathLike[str] | Iterable[str | PathLike[str]]


class Product(NamedTuple):
    """One pass."""

    product: Matrix  # A'A Q (d, r)
    squared_norm: float  # of the (weighted, centred) rows
    n_rows: int
    magnitude: float  # that the roundings of a pass are relative to


class RowsAgain:
    """The rows behind a sketch, as it stores them: in its dtype, divided by a power of two, weighted, centred."""

    def __init__(
        self,
        source: Readable,
        *,
        n_features: int,
        dtype: np.dtype[Any],
        mean: Matrix | None,
        scale: float,
        sample_weight: ArrayLike | None,
    ) -> None:
        self._blocks = _reader(source, n_features, sample_weight)
        self._mean = None if mean is None else mean * scale
        self._dtype, self._scale = dtype, scale

    def multiply(self, q: Matrix) -> Product:
        """A'A Q for Q (d, r): reads all rows once."""
        out, squared, n_rows, magnitude = np.zeros(q.shape), 0.0, 0, 0.0
        mean = np.zeros(len(q)) if self._mean is None else self._mean
        for block, weights in self._blocks():
            rows = block.astype(self._dtype, copy=False).astype(np.float64, copy=False)
            root = None if weights is None else np.sqrt(weights)[:, np.newaxis]
            if is_sparse(rows):
                x = rows * self._scale
                # (x - 1 mu') q, by linearity: nothing is made dense
                z = x @ q - mean @ q
                squares = np.asarray(x.multiply(x).sum(axis=1)).ravel() - 2.0 * (x @ mean) + mean @ mean
                if root is not None:
                    z *= root**2
                    squares *= root[:, 0] ** 2
                out += x.T @ z - np.outer(mean, z.sum(axis=0))
                squared += float(squares.sum())
                weight = rows.shape[0] if weights is None else float(weights.sum())
                magnitude += float(squares.sum()) + 2.0 * weight * float(mean @ mean)
            else:
                x = rows * self._scale - mean
                if root is not None:
                    x *= root
                out += x.T @ (x @ q)
                here = float(np.einsum("ij,ij->", x, x))
                weight = rows.shape[0] if weights is None else float(weights.sum())
                squared += here
                magnitude += here + sqrt(here * weight * float(mean @ mean))
            n_rows += rows.shape[0]
        return Product(out, squared, n_rows, magnitude)


def _reader(source: Any, n_features: int, sample_weight: ArrayLike | None) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """A function that gives all rows of a source from the start, as (rows, weights) blocks."""
    if isinstance(source, str | PathLike):
        source = [source]
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | PathLike) for item in source):
        if sample_weight is not None:
            raise ValueError("sample_weight goes with rows in memory, not with files")
        files = [open_source(path, n_features=n_features) for path in source]
        for file in files:
            if file.n_features != n_features:
                raise ValueError(f"{file.path} has {file.n_features} columns, the sketch {n_features}")
        return lambda: ((rows, None) for file in files for rows, _ in file.chunks())
    rows = as_rows(source, n_features)
    check_finite(rows)
    weights = as_weights(sample_weight, rows.shape[0])
    step = rows.shape[0] if is_sparse(rows) else max(1, BLOCK_BYTES // (8 * n_features))

    def blocks() -> Iterator[tuple[Any, Any]]:
        for start in range(0, rows.shape[0], max(1, step)):
            part = slice(start, start + step)
            yield rows[part], None if weights is None else weights[part]

    return blocks
