"""Rows that can be read more than once: products with A'A, a pass each, in constant memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isfinite, sqrt
from os import PathLike
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._kernels.linalg.products import product, settled
from fastsketch._kernels.sketching.csr_products import rows_times, turned_rows_times
from fastsketch._validation import Rows, as_rows, as_weights, check_finite, in_place, is_sparse
from fastsketch.io import Source, open_source

# Bytes of rows that are made dense, centred and multiplied at a time.
BLOCK_BYTES = 4 << 20

Matrix = NDArray[np.float64]
# Where rows of a block come from: the number of the first, and the file.
Place = tuple[int, Any]
Block = tuple[Any, Matrix | None, Place]
# An array, a sparse matrix, or a file (or several) of one of the formats of fastsketch.io, by path or opened.
Readable = Rows | str | PathLike[str] | Source | Iterable[str | PathLike[str] | Source]


class OtherRows(UserWarning):
    """Rows that have been read again are not those that a sketch has seen."""


class Product(NamedTuple):
    """Of some of the rows; those of all are their sum."""

    product: Matrix  # A'A Q (d, r)
    squared_norm: float  # of the (weighted, centred) rows
    n_rows: int
    magnitude: float  # that the roundings of the product are relative to

    @classmethod
    def none(cls, q: Matrix) -> Self:
        """Of no rows."""
        return cls(np.zeros(q.shape), 0.0, 0, 0.0)

    def plus(self, other: Self) -> Self:
        """Of the rows of both."""
        return type(self)(self.product.copy(), *self[1:]).adding(other)

    def adding(self, other: Self) -> Self:
        """As ``plus``; the array of this one is used up."""
        product = self.product
        product += other.product
        return type(self)(
            product,
            self.squared_norm + other.squared_norm,
            self.n_rows + other.n_rows,
            self.magnitude + other.magnitude,
        )


@dataclass(frozen=True)
class View:
    """How a sketch stores rows: in its dtype, divided by a power of two, weighted, centred."""

    n_features: int
    dtype: np.dtype[Any]
    mean: Matrix  # (d,) of the rows as they come; zero if they are not centred
    scale: float

    def multiply(self, rows: Any, weights: Matrix | None, q: Matrix, *, offset: int = 0) -> Product:
        """A'A Q for a block of rows (n, d), array or CSR, the first of them number `offset`, and Q (d, r)."""
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

    def __init__(self, source: Readable, view: View, sample_weight: ArrayLike | None = None) -> None:
        self._view = view
        self._blocks = _reader(source, view.n_features, sample_weight)

    def multiply(self, q: Matrix) -> Product:
        """A'A Q for Q (d, r): reads all rows once."""
        q = np.ascontiguousarray(q)
        out = Product.none(q)
        for rows, weights, (first, path) in self._blocks(q.shape[1]):
            try:
                found = self._view.multiply(rows, weights, q, offset=first)
            except ValueError as error:
                raise error if path is None else ValueError(f"{path}: {error}") from None
            out = out.adding(found)
        return out


def blocks_of(rows: Any, weights: Matrix | None, width: int, *, first: int = 0, path: Any = None) -> Iterator[Block]:
    """Checked rows in blocks that are multiplied by `width` vectors in little memory."""
    n, d = rows.shape
    # a product of a sparse block is a dense (d, width), as large as what it is added to
    step = max(d, BLOCK_BYTES // (8 * max(1, width))) if is_sparse(rows) else max(1, BLOCK_BYTES // (8 * d))
    for start in range(0, n, step):
        part = slice(start, start + step)
        block = rows if step >= n else rows[part]
        yield block, None if weights is None else weights[part], (first + start, path)


def _reader(source: Any, n_features: int, sample_weight: ArrayLike | None) -> Callable[[int], Iterator[Block]]:
    """A function that gives all rows of a source from the start, in blocks."""
    listed = cast("list[Any]", [source] if _names_file(source) else source)
    if isinstance(listed, list | tuple) and listed and all(map(_names_file, listed)):  # pyright: ignore[reportUnnecessaryIsInstance]
        if sample_weight is not None:
            raise ValueError("sample_weight goes with rows in memory, not with files")
        files: list[Source] = [
            open_source(cast("str", item), n_features=n_features) if isinstance(item, str | PathLike) else item
            for item in listed
        ]
        for file in files:
            if file.n_features != n_features:
                raise ValueError(f"{file.path} has {file.n_features} columns, the sketch {n_features}")
        return lambda width: _of_files(files, width)
    rows = as_rows(source, n_features)
    check_finite(rows)
    weights = as_weights(sample_weight, rows.shape[0])
    return lambda width: blocks_of(rows, weights, width)


def _names_file(item: Any) -> bool:
    return isinstance(item, str | PathLike) or callable(getattr(item, "chunks", None))


def _of_files(files: list[Source], width: int) -> Iterator[Block]:
    for file in files:
        row = 0
        for rows, _ in file.chunks():
            yield from blocks_of(rows, None, width, first=row, path=file.path)
            row += rows.shape[0]
