"""Rows that can be read more than once: products with A'A, a pass each, in constant memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite, sqrt
from os import PathLike
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_rows, as_weights, check_finite, in_place, is_sparse, rows_with_weight
from fastsketch._frame.batches import FeatureNames, WeightedChunks, agreed, as_source, names_of
from fastsketch._kernels.linalg.products import product, settled
from fastsketch._kernels.sketching.csr_products import rows_times, turned_rows_times
from fastsketch.data.sources import Source, naming, open_rows

# Bytes of rows that are made dense, centred and multiplied at a time.
BLOCK_BYTES = 4 << 20

Matrix = NDArray[np.float64]
# Rows, their weights, and the number of the first.
Block = tuple[Any, Matrix | None, int]
# An array, a sparse matrix, a table, a source, or what ``open_rows`` makes one of: files, a folder, several of them.
Readable = Rows | str | PathLike[str] | Source | Iterable[str | PathLike[str] | Source]


class OtherRows(UserWarning):
    """Rows that have been read again are not those that a sketch has seen."""


class Product(NamedTuple):
    """Products of some of the rows with vectors; those of all rows are their sum."""

    product: Matrix  # A'A Q (d, r)
    squared_norm: float  # of the (weighted, centred) rows
    n_rows: int
    magnitude: float  # that the roundings of the product are relative to

    @classmethod
    def none(cls, q: Matrix) -> Self:
        """Return the product of no rows."""
        return cls(np.zeros(q.shape), 0.0, 0, 0.0)

    def plus(self, other: Self) -> Self:
        """Return the product of the rows of both."""
        return type(self)(self.product.copy(), *self[1:]).adding(other)

    def adding(self, other: Self) -> Self:
        """Return the product with that of other rows added."""
        product = self.product
        product += other.product
        return type(self)(
            product,
            self.squared_norm + other.squared_norm,
            self.n_rows + other.n_rows,
            self.magnitude + other.magnitude,
        )


@dataclass(frozen=True)
class StoredForm:
    """Form in which a sketch stores rows: in its dtype, divided by a power of two, weighted, centred."""

    n_features: int
    dtype: np.dtype[Any]
    mean: Matrix  # (d,) of the rows as they come; zero if they are not centred
    scale: float

    def multiply(self, rows: Any, weights: Matrix | None, q: Matrix, *, offset: int = 0) -> Product:
        """Return A'A Q for a block of rows (n, d), array or CSR, the first of them number `offset`, and Q (d, r)."""
        mean, q = self.mean * self.scale, np.ascontiguousarray(q)
        with np.errstate(over="ignore", invalid="ignore"):
            x = rows.astype(self.dtype, copy=False)
            total = float(rows.shape[0] if weights is None else weights.sum())
            shift = total * float(mean @ mean)
            if is_sparse(x):
                x = x.astype(np.float64, copy=False) * self.scale
                arrays = in_place(x.indptr, np.int64), in_place(x.indices, np.int32), x.data
                # (x - 1 mu') q, by linearity: nothing is made dense
                z = rows_times(*arrays, q) - mean @ q
                squares = np.asarray(x.multiply(x).sum(axis=1)).ravel() - 2.0 * (x @ mean) + mean @ mean
                if weights is not None:
                    z *= weights[:, np.newaxis]
                    squares *= weights
                of_q = turned_rows_times(*arrays, z, self.n_features)
                np.subtract(of_q, np.outer(mean, z.sum(axis=0)), out=of_q)
                squared = float(squares.sum())
                magnitude = squared + 2.0 * shift
            else:
                x = np.ascontiguousarray(x) if x.strides[1] != x.itemsize or not x.flags.aligned else x
                x, squared = settled(x, mean, None if weights is None else np.sqrt(weights), self.scale)
                of_q = product(x, product(x, q), turned=True)
                magnitude = squared + sqrt(squared) * sqrt(shift) if isfinite(squared) else squared
        if not isfinite(squared):
            check_finite(rows, offset=offset)
            raise ValueError(f"the squares of these rows leave the range of numbers, or of {self.dtype}")
        return Product(of_q, squared, rows.shape[0], magnitude)


class RowsAgain:
    """The rows behind a sketch, which can be read any number of times."""

    def __init__(
        self,
        source: Readable,
        view: StoredForm,
        sample_weight: ArrayLike | None = None,
        *,
        feature_names: FeatureNames | None = None,
    ) -> None:
        self._view, self._read = view, False
        self._chunks = _chunks_of(source, view.n_features, sample_weight, feature_names)

    def multiply(self, q: Matrix) -> Product:
        """Return A'A Q for Q (d, r): reads all rows once."""
        q, chunks = np.ascontiguousarray(q), self._chunks
        if self._read and not chunks.source.repeatable:
            raise ValueError(f"{chunks.source.name} comes once, and has to be read again: save its rows to a file")
        self._read = True
        out = Product.none(q)
        for rows, weights in chunks:
            with naming(chunks.source, chunks.row):
                some, own_weights = rows_with_weight(rows, weights)
                for block, part, first in blocks_of(some, own_weights, q.shape[1]):
                    out = out.adding(self._view.multiply(block, part, q, offset=first))
        return out


def blocks_of(rows: Any, weights: Matrix | None, width: int) -> Iterator[Block]:
    """Yield checked rows in blocks that are multiplied by `width` vectors in little memory.

    A block has as many rows as there are vectors at least, so that these are not read more often than the rows.
    """
    n, d = rows.shape
    # a product of a sparse block is a dense (d, width), as large as what it is added to
    step = max(d, BLOCK_BYTES // (8 * max(1, width))) if is_sparse(rows) else max(width, BLOCK_BYTES // (8 * d), 1)
    for start in range(0, n, step):
        part = slice(start, start + step)
        block = rows if step >= n else rows[part]
        yield block, None if weights is None else weights[part], start


def _chunks_of(
    rows: Any, n_features: int, sample_weight: ArrayLike | None, feature_names: FeatureNames | None
) -> WeightedChunks:
    """Yield rows of any kind with their weights; ValueError for other columns than those of a sketch."""
    source = open_rows(rows, n_features=n_features) if _names_files(rows) else as_source(rows)
    if source is None:
        checked, names = as_rows(rows, n_features), names_of(rows)
        check_finite(checked)
        sample_weight = as_weights(sample_weight, checked.shape[0])
        source = open_rows(checked)
    else:
        names = source.feature_names
    if source.n_features != n_features:
        raise ValueError(f"{source.name} has {source.n_features} columns, the sketch {n_features}")
    agreed(names, feature_names, source.name)
    return WeightedChunks(source, sample_weight)


def _names_files(item: Any) -> bool:
    """Return whether this is a path, or a list of paths or of sources."""
    if isinstance(item, list | tuple) and item:
        return all(isinstance(one, str | PathLike | Source) for one in cast("list[Any]", item))
    return isinstance(item, str | PathLike)
