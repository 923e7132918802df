"""Standardisation of columns. An exact matrix of products is standardised when it is read; a sketch learns rows that
are standardised already.

``Standardization`` standardises an exact matrix of products, or rows that are scored, by the final means and
deviations. A sketch cannot be standardised afterwards: ``ColumnScales`` divides its rows before it learns them.
"""

# pyright: basic

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch.covariance._kept_rows import MOST_ROWS, KeptRows
from fastsketch.covariance._moments import FeatureVariance
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import merge_engines, with_columns_multiplied

Floats = NDArray[np.float64]

# A standard deviation of at most this share of the mean is rounding: a constant column may have it if some of its
# entries were filled with their mean.
CONSTANT = 64 * float(np.finfo(np.float64).eps)
# Rows that are scaled at a time, so that the rows are never copied as a whole.
ROWS_AT_ONCE = 1024


def row_blocks(n_rows: int) -> list[slice]:
    """Return consecutive slices of at most ROWS_AT_ONCE rows, which together are all rows."""
    return [slice(start, min(start + ROWS_AT_ONCE, n_rows)) for start in range(0, n_rows, ROWS_AT_ONCE)]


class Standardization(NamedTuple):
    """Means and standard deviations of columns, with methods that standardise rows or a matrix of products.

    A constant column has scale 0 and no unit. A row that differs from the constant is treated as if it had been one of
    the rows learned, and the only one that differs: its standardised entry is (n + 1) / sqrt(n), however large the
    difference.
    """

    mean: Floats  # (d,)
    scale: Floats  # (d,) 0 for a constant column
    total: float  # weight n of all rows learned

    @classmethod
    def of_products(cls, gram: Floats, mean: Floats | None, total: float) -> "Standardization":
        """Return the means and standard deviations of columns, given the matrix of products of their centred columns.

        `gram` is (d, d). With mean None the rows were not centred, and the means are zero.
        """
        mean = np.zeros(len(gram)) if mean is None else mean
        scale = np.sqrt(np.maximum(gram.diagonal(), 0.0) / total)
        return cls(mean, np.where(scale > CONSTANT * np.abs(mean), scale, 0.0), total)

    def apply(self, rows: Any) -> tuple[Any, Floats]:
        """Return standardised rows, and the mean (d,) that the caller must still subtract.
        The mean is 0 for arrays. CSR rows are only divided, so that they stay sparse.
        """
        divisor, constant = np.where(self.scale > 0, self.scale, 1.0), self.scale == 0
        jump = (self.total + 1) / np.sqrt(self.total)
        if not is_sparse(rows):
            moved = rows - self.mean
            if constant.any():
                moved[:, constant] = jump * self._signs(moved[:, constant], self.mean[constant])
            moved /= divisor
            return moved, np.zeros(len(divisor))
        # zeros that are not stored differ from the constant of a column, too, unless it is 0
        mean = np.where(constant, jump * np.sign(self.mean), self.mean / divisor)
        data = rows.data / divisor[rows.indices]
        if constant.any():
            some = constant[rows.indices]
            at = self.mean[rows.indices[some]]
            data[some] = jump * (np.sign(at) + self._signs(rows.data[some] - at, at))
        return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape), mean

    @staticmethod
    def _signs(differences: Floats, mean: Floats) -> Floats:
        """Return the sign of each difference from the mean. It is 0 where the difference is only rounding error."""
        return np.where(np.abs(differences) > CONSTANT * np.abs(mean), np.sign(differences), 0.0)

    def of_matrix(self, gram: Floats) -> Floats:
        """Divide entry (i, j) of a matrix of products by the scales of columns i and j, in place, and return it.

        Entries of constant columns become 0.
        """
        inverse = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        gram *= inverse[:, np.newaxis]  # one after the other, as a product of scales may overflow
        gram *= inverse
        return gram

    def measured(self, rows: Any, measure: Callable[[Any, Floats], Any]) -> Floats:
        """Return one number for each row: what `measure(rows, mean)` computes for blocks of standardised rows."""
        blocks = row_blocks(rows.shape[0])
        return np.concatenate([np.asarray(measure(*self.apply(rows[block]))) for block in blocks])

    @property
    def log_volume(self) -> float:
        """Return the sum of the logarithms of the standard deviations, without constant columns.

        Log-densities of standardised rows are corrected by it.
        """
        return float(np.log(self.scale[self.scale > 0]).sum())


# -- scales of a sketch ------------------------------------------------------------------------------------------------
MOST_SCALE_ROWS = MOST_ROWS


@dataclass(frozen=True)
class ColumnScales:
    """Divisors of a sketch's columns, chosen from the first rows of a stream, with exact column variances.

    The first `n_first` rows of positive weight fix the scales: the power of two nearest to each column's standard
    deviation. Until that many rows have arrived they are kept in `waiting`, and every batch makes the sketch again from
    all of them. A column that is a constant c in the first rows gets the scale of c. A column of zeros has scale 0
    until its first nonzero entry, and then the root mean square of all rows so far. Objects are immutable: methods
    return new ones.
    """

    n_first: int
    waiting: KeptRows | None  # the rows so far, while they are fewer than n_first
    scale: Floats  # (d,) divisors of the current sketch
    variance: FeatureVariance  # of the original columns

    @classmethod
    def begin(cls, n_first: int, n_features: int) -> Self:
        """Return an object without scales, which will be chosen from the first `n_first` rows of a stream."""
        return cls(n_first, KeptRows(n_first), np.zeros(n_features), FeatureVariance())

    @classmethod
    def of_all(cls, n_first: int, chunks: Iterable[tuple[Any, Floats | None]]) -> Self:
        """Return scales that are the standard deviations of the columns, for rows that can be read twice.

        Rows are given as chunks of (rows, weights). A constant column gets the size of its constant.
        """
        variance, sparse = FeatureVariance(), False
        for rows, weights in chunks:
            variance, sparse = variance.after(rows, weights), sparse or is_sparse(rows)
        size = np.abs(variance.mean())
        deviations = np.sqrt(variance.value())
        # CSR rows are summed around zero, which makes a relative rounding of CONSTANT its square root
        constant = deviations <= (np.sqrt(CONSTANT) if sparse else CONSTANT) * size
        return cls(n_first, None, np.where(constant, size, deviations), variance)

    def divide(self, rows: Any) -> Any:
        """Return rows, dense or CSR, with every column divided by its scale. The argument does not change.

        The dtype is kept, and the argument is not changed.
        """
        divisor = np.where(self.scale > 0, self.scale, 1.0).astype(rows.dtype)
        if not is_sparse(rows):
            return rows / divisor
        return type(rows)((rows.data / divisor[rows.indices], rows.indices, rows.indptr), shape=rows.shape)

    def prepare(
        self, sketch: FrequentDirections, rows: Any, weights: Floats | None
    ) -> "tuple[Self, FrequentDirections, Any, Floats | None]":
        """Return (scales, sketch, rows, weights) for a new batch: sketch and rows are in these scales.
        This object does not change.

        That sketch, updated with these rows, has learned all rows so far.

        While rows wait, and where a batch is large, the sketch is a new object. Otherwise it is `sketch` itself,
        unchanged.
        """
        if weights is not None and not weights.all():
            if not weights.any():  # rows of weight 0 only tell an empty sketch the number of columns
                return self, sketch, self.divide(rows), weights
            rows, weights = rows[weights > 0], weights[weights > 0]
        variance = self.variance.after(rows, weights)
        out = replace(self, variance=variance)
        if self.waiting is not None:
            n_waiting = self.waiting.n_held
            n_more = min(self.n_first - n_waiting, rows.shape[0])
            first, first_weights = rows[:n_more], None if weights is None else weights[:n_more]
            waiting = self.waiting.after(first, first_weights, first=n_waiting)
            first, first_weights = waiting.in_order()
            scale = first_scales(first, first_weights, center=sketch.center)
            out = replace(out, scale=scale, waiting=waiting if n_waiting + n_more < self.n_first else None)
            sketch = empty_like(sketch)
            if n_more == rows.shape[0]:
                return out, sketch, out.divide(first), first_weights
            sketch.update(out.divide(first), first_weights)
            rows, weights = rows[n_more:], None if weights is None else weights[n_more:]
        out = replace(out, scale=out._with_late_columns(rows, weights, sketch.total_weight))
        blocks = row_blocks(rows.shape[0])
        if len(blocks) > 1:
            sketch = sketch.copy()
        for block in blocks[:-1]:
            sketch.update(out.divide(rows[block]), None if weights is None else weights[block])
        return out, sketch, out.divide(rows[blocks[-1]]), None if weights is None else weights[blocks[-1]]

    def learn(self, sketch: FrequentDirections, rows: Any, weights: Floats) -> "tuple[FrequentDirections, Self]":
        """Return (new sketch, new scales) after more rows, divided by the scales; a copy of the sketch learns them."""
        scales, sketch, rows, left = self.prepare(sketch.copy(), rows, weights)
        return sketch.update(rows, left), scales

    def _with_late_columns(self, rows: Any, weights: Floats | None, before: float) -> Floats:
        """Return the scales (d,) with a scale for each column that is nonzero for the first time in this batch.

        `before` is the weight of all earlier rows.
        """
        late = self.scale == 0
        if not late.any():
            return self.scale
        if is_sparse(rows):
            entries = np.flatnonzero(late[rows.indices] & (rows.data != 0))
            columns, places = np.unique(rows.indices[entries], return_index=True)
            values = rows.data[entries[places]]
            owners = np.searchsorted(rows.indptr, entries[places], side="right") - 1
        else:
            columns = np.flatnonzero(late)
            occurs = rows[:, columns] != 0
            columns, owners = columns[occurs.any(axis=0)], occurs.argmax(axis=0)[occurs.any(axis=0)]
            values = rows[owners, columns]
        weights = np.ones(rows.shape[0]) if weights is None else weights
        share = weights[owners] / (before + np.cumsum(weights)[owners])
        scale = self.scale.copy()
        scale[columns] = nearest_power_of_two(np.abs(values.astype(np.float64)) * np.sqrt(share))
        return scale

    def merge(
        self, sketch: FrequentDirections, other: "ColumnScales", others: FrequentDirections
    ) -> "tuple[FrequentDirections, ColumnScales]":
        """Return (new sketch, its scales) that merges two sketches whose columns were divided by different scales.

        Rows that still wait on one side are learned by the other. Otherwise both sketches are divided further until
        each column has the larger of its two scales, so that no certificate grows.
        """
        if other.waiting is not None:
            return self.learn(sketch, *other.waiting.in_order()) if other.waiting.n_held else (sketch, self)
        if self.waiting is not None:
            return other.merge(others, self, sketch)
        scale = np.maximum(self.scale, other.scale)
        engines = [
            with_columns_multiplied(
                cast("Any", one._seen_engine()),
                _factors(scales.scale, scale),
                _squares(scales.variance, scale, center=one.center),
            )
            for one, scales in ((sketch, self), (others, other))
        ]
        out = sketch.copy()
        out._replace(merge_engines(*engines), 0.0)
        return out, ColumnScales(self.n_first, None, scale, self.variance.merged(other.variance))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the scales as named arrays, for a state file."""
        waiting = {} if self.waiting is None else {f"first_{key}": a for key, a in self.waiting.arrays().items()}
        variance = {f"column_{name}": array for name, array in self.variance.arrays().items()}
        return {"scale": self.scale, "n_first": np.array([float(self.n_first)]), **waiting, **variance}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], n_features: int) -> "Self | None":
        """Return the scales that a state file contains, or None if it contains none.

        ValueError if the arrays are inconsistent.
        """
        if "scale" not in arrays:
            return None
        scale = checks.not_negative(arrays, "scale", (n_features,))
        n_first = int(checks.not_negative(arrays, "n_first", (1,))[0])
        checks.number_within(n_first, "n_first", 1, MOST_SCALE_ROWS)
        first = {key.removeprefix("first_"): array for key, array in arrays.items() if key.startswith("first_")}
        columns = {key.removeprefix("column_"): array for key, array in arrays.items() if key.startswith("column_")}
        waiting = KeptRows.from_arrays(first, n_features) if first else None
        return cls(n_first, waiting, scale, FeatureVariance.from_arrays(columns, n_features))


class DividedRows(Source):
    """Source of rows that reads another source and divides every column by its scale."""

    waits = False  # the inner source prefetches

    def __init__(self, source: Source, scales: ColumnScales) -> None:
        self._source, self._scales = source, scales
        for name in ("name", "n_rows", "n_features", "feature_names", "sparse", "size", "repeatable", "first_row"):
            setattr(self, name, getattr(source, name))
        self.dtype = np.dtype(np.float32 if source.dtype == np.float32 else np.float64)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield (rows with columns divided by their scales, position of the next chunk) for each chunk."""
        for rows, position in self._source.chunks(start_row):
            yield self._scales.divide(as_floats(rows)), position

    def place(self, row: int) -> Any:
        """Return the position of a row in the underlying source."""
        return self._source.place(row)


def as_floats(rows: Any) -> Any:
    """Convert rows, dense or CSR, to float64 unless they are float32 or float64 already."""
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)


def standardised_sketch(sketch: FrequentDirections) -> tuple[FrequentDirections, Floats]:
    """Return (copy of an exact matrix of products with standardised columns, scales of the columns).

    Constant columns have scale 0.
    """
    engine: Any = sketch._seen_engine().clone()
    unit = np.ldexp(1.0, engine.exponent)
    if engine.state.fill:
        engine.flush()
    scale = Standardization.of_products(
        engine.cov, engine.mean if sketch.center else None, engine.weight
    ).scale  # in stored units
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    engine.cov *= inverse[:, np.newaxis]
    engine.cov *= inverse
    state, squared_norm = engine.state, float(np.trace(engine.cov))
    if state.squared_norm > 0:
        state.rounding *= (squared_norm / state.squared_norm) ** 2
    state.squared_norm = squared_norm
    # standardised values have no unit, so the exponent is 0
    state.top, state.exponent = 0, 0
    for mean in (engine.mean, engine.mean_low):
        mean *= np.where(scale > 0, inverse, unit)
    out = empty_like(sketch)
    out._replace(engine, 0.0)
    return out, scale * unit


def empty_like(sketch: FrequentDirections) -> FrequentDirections:
    """Return an empty sketch with the same parameters and column names."""
    out = FrequentDirections(**sketch.parameters)
    out._feature_names = sketch._feature_names
    return out


def nearest_power_of_two(values: Floats) -> Floats:
    """Return each positive value rounded to the power of two with the nearest ratio; 0 stays 0."""
    mantissa, exponent = np.frexp(values)
    return np.where(values > 0, np.ldexp(1.0, exponent - (mantissa < np.sqrt(0.5))), 0.0)


def first_scales(rows: Any, weights: Floats, *, center: bool) -> Floats:
    """Return a scale (d,) for every column, from the first rows of a stream: the power of two nearest to its standard
    deviation.

    It is near the standard deviation, and 0 for columns of zeros.
    """
    return nearest_power_of_two(standard_deviations(rows, weights, center=center))


def standard_deviations(rows: Any, weights: Floats, *, center: bool) -> Floats:
    """Return the standard deviation of every column (d,), from weighted rows.

    For a column that is a constant c up to rounding the result is |c|.
    """
    total = float(weights.sum())
    rows = rows.astype(np.float64)
    mean = np.asarray(rows.T @ weights).ravel() / total if center else np.zeros(rows.shape[1])
    if is_sparse(rows):
        owners = np.repeat(weights, np.diff(rows.indptr))
        moved = (rows.data - mean[rows.indices]) ** 2
        squares = np.bincount(rows.indices, owners * moved, rows.shape[1])
        stored = np.bincount(rows.indices, owners, rows.shape[1])
        absent = np.where(stored < total * (1 - 1e-12), total - stored, 0.0)
        deviations = np.sqrt((squares + absent * mean**2) / total)
    else:
        deviations = np.sqrt(weights @ (rows - mean) ** 2 / total)
    return np.where(deviations > CONSTANT * np.abs(mean), deviations, np.abs(mean))


def _factors(scale: Floats, larger: Floats) -> Floats:
    """Return the factors (d,) that convert columns divided by `scale` to columns divided by `larger`."""
    return np.divide(scale, larger, out=np.ones_like(scale), where=scale > 0)


def _squares(variance: FeatureVariance, scale: Floats, *, center: bool) -> float:
    """Return the sum of squares of all rows after division by the scales, computed from the columns' variances."""
    squares = variance.weight * (variance.value() + (0.0 if center else variance.mean() ** 2))
    return float((squares / np.where(scale > 0, scale, 1.0) / np.where(scale > 0, scale, 1.0)).sum())
