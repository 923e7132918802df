"""``LearnedCovariance``: covariance of standardised columns, shrinkage and error bound, from a sketch of rows.

``check_batch_squares`` checks a batch before the sketch learns it.
"""

# pyright: basic

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastsketch.covariance._column_scales import ColumnScales, Floats, Standardization
from fastsketch.covariance._gaussian import (
    MIN_VARIANCE_SHARE,
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    empirical_covariance,
    exact_products,
    leading_pairs,
    ledoit_wolf,
    oracle_approximating,
    projected,
    rounding_of,
    sketch_size_of,
)
from fastsketch.covariance._kept_rows import WITHOUT_ROWS, KeptRows
from fastsketch.covariance._moments import check_squares, differ, squares_around
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import by_column
from fastsketch.sketching._methods import METHODS

# Largest sum of squared deviations from the mean: beyond it the d x d products overflow.
MAX_SQUARES = 1e300
# Largest value of a query row, in standard deviations of its column and absolutely: beyond it distances overflow.
MAX_QUERY_DEVIATIONS, MAX_QUERY_VALUE = 1e140, MAX_SQUARES**0.5
# Smallest positive mean of the squared deviations: below it inverse covariances overflow.
MIN_MEAN_SQUARES = 1e-280


@dataclass(frozen=True, eq=False)
class LearnedCovariance:
    """Covariance of the rows that a sketch has learned, before and after shrinkage; results are cached.

    The attributes must not change. After more rows a new object is made.
    """

    sketch: FrequentDirections
    scales: ColumnScales | None  # None for the exact matrix, and for a sketch that was not learned by the estimator
    kept_rows: KeptRows | None
    without_rows: int  # index in WITHOUT_ROWS
    weight_squares: float | None  # sum of squared weights; None for a sketch that was not learned by the estimator

    @property
    def total(self) -> float:
        """Sum of the weights. ValueError if it is 0."""
        total = self.sketch.total_weight
        if not total > 0:
            raise ValueError("sample_weight was 0 for all rows: there is no covariance")
        return total

    @property
    def n_effective_rows(self) -> float:
        """Kish's effective sample size of all rows, or the sum of weights if their squares are unknown."""
        return self.total if self.weight_squares is None else self.total**2 / self.weight_squares

    # -- the matrix ------------------------------------------------------------------------------------------------
    @cached_property
    def standardised(self) -> tuple[Standardization, SpikedCovariance | DenseCovariance]:
        """Pair (means and deviations of columns, covariance of standardised columns before shrinkage)."""
        sketch, total = self.sketch, self.total
        if sketch.resolved["solver"] == "exact":
            gram, mean = exact_products(sketch)
            units = Standardization.of_products(gram, mean, total)
            gram /= total
            return units, DenseCovariance(units.of_matrix(gram))
        scale = np.ones(sketch.n_features or 0) if self.scales is None else self.scales.scale
        mean = np.zeros(len(scale)) if sketch.mean is None else sketch.mean * np.where(scale > 0, scale, 1.0)
        return Standardization(mean, scale, total), empirical_covariance(sketch, total)

    @property
    def units(self) -> Standardization:
        """Means and standard deviations of the columns, as a Standardization."""
        return self.standardised[0]

    @cached_property
    def leading(self) -> tuple[Floats, Floats]:
        """Leading eigenvalues and eigenvectors of the covariance of standardised columns before shrinkage."""
        return leading_pairs(self.standardised[1], sketch_size_of(self.sketch))

    @property
    def n_varying(self) -> int:
        """Number of columns that are not constant; at least 1."""
        return max(1, int(np.count_nonzero(self.units.scale)))

    def spread(self) -> Floats:
        """Return the standard deviation of each column after division by its scale, with a small lower limit.

        They are 1 for the exact matrix; for a sketch they differ from 1, since its units are powers of two.
        """
        scale = self.units.scale
        if self.scales is None:
            return np.ones(len(scale))
        deviations = np.sqrt(self.scales.variance.value()) / np.where(scale > 0, scale, 1.0)
        return np.maximum(deviations, np.sqrt(MIN_VARIANCE_SHARE))

    def shrinkage_intensity(self, shrinkage: float | str | None) -> float:
        """Return the intensity of shrinkage of the covariance of standardised columns.

        `shrinkage` is a number, None for 0, or the name of a rule. ValueError if the Ledoit-Wolf rule has no rows.
        """
        matrix, n, d = self.standardised[1], self.n_effective_rows, self.n_varying
        if not isinstance(shrinkage, str):
            return shrinkage or 0.0
        if shrinkage != "ledoit-wolf":
            return oracle_approximating(matrix.squares, n=n, size=d)
        if self.kept_rows is None:
            why = WITHOUT_ROWS[self.without_rows]
            raise ValueError(
                "shrinkage='ledoit-wolf' needs fourth moments of rows kept aside, and this estimator has none: take "
                f"'oas', or: {why}"
            )
        rows, weights = self.kept_rows.sample()
        lengths = projected(*self.units.apply(rows), np.zeros((0, matrix.n_features)))[1]
        fourth = n * float(np.average(lengths * lengths, weights=weights))
        return ledoit_wolf(matrix.trace, matrix.squares * matrix.trace**2, fourth, n=n, d=d)

    def shrink(self, shrinkage: float | str | None, alpha0: float) -> ShrunkCovariance:
        """Return the shrunk covariance of standardised columns, with the ridge alpha0 / total added."""
        matrix, share = self.standardised[1], self.shrinkage_intensity(shrinkage)
        floor = share * matrix.trace / self.n_varying + alpha0 / self.total
        return ShrunkCovariance(matrix.shrunk(share, floor), share, floor)

    def leading_of(self, shrunk: ShrunkCovariance) -> tuple[Floats, Floats]:
        """Return the leading eigenvalues and eigenvectors of the shrunk covariance of standardised columns."""
        matrix, share, floor = shrunk
        if isinstance(matrix, SpikedCovariance):
            return matrix.values, matrix.vectors
        values, vectors = self.leading
        return (1 - share) * values + floor, vectors

    def error_bound(self, shrunk: ShrunkCovariance, alpha0: float) -> float:
        """Return a bound on the spectral norm of the error of the shrunk covariance without ridge, in units of rows."""
        matrix = shrunk.matrix
        (units, empirical), sketch, total = self.standardised, self.sketch, self.total
        ridge = alpha0 / total
        if isinstance(matrix, DenseCovariance):
            difference = matrix.matrix() - empirical.matrix()
            difference[np.diag_indices_from(difference)] -= ridge
            values = np.linalg.eigvalsh(difference * units.scale * units.scale[:, np.newaxis])
            return float(np.abs(values).max()) + rounding_of(sketch) / total
        # Compare B'B with covariance_ less the ridge within the span of B; outside it both have one eigenvalue.
        s, basis = sketch.singular_values.astype(np.float64), sketch.components.astype(np.float64)
        turn = matrix.vectors @ basis.T
        own = (turn.T * (matrix.values - matrix.rest)) @ turn + (matrix.rest - ridge) * np.eye(len(s))
        values = np.linalg.eigvalsh(np.diag(s**2 / total) - own) if len(s) else np.zeros(0)
        if len(s) < matrix.n_features:
            values = np.append(values, ridge - matrix.rest)
        # The eigenvalues of A'A - B'B lie in [0, Delta], or in [-Delta, Delta] for methods that compensate.
        delta = sketch.shrinkage / total
        least = float(values.min()) - (delta if METHODS[sketch.method].compensates else 0.0)
        most = float(values.max()) + delta
        largest = float(units.scale.max())
        return (max(-least, most, 0.0) + rounding_of(sketch) / total) * largest * largest

    def log_densities(self, shrunk: ShrunkCovariance, rows: Any) -> Floats:
        """Compute the Gaussian log-density of each row, dense or CSR; -inf if the covariance is singular."""
        matrix = shrunk.matrix
        if np.isneginf(matrix.log_determinant):
            return np.full(rows.shape[0], -np.inf)
        constant = matrix.log_determinant + 2 * self.units.log_volume + matrix.n_features * np.log(2 * np.pi)
        return -0.5 * (self.units.measured(rows, matrix.distances) + constant)

    # -- rows that are scored --------------------------------------------------------------------------------------
    def check_query(self, rows: Any) -> None:
        """Raise ValueError if a value of query rows, dense or CSR, is so large that distances overflow."""
        dense = isinstance(rows, np.ndarray)
        data: Any = rows if dense else rows.data
        largest = max(float(data.max(initial=0.0)), -float(data.min(initial=0.0)))
        units, matrix = self.standardised
        deviations = units.scale * np.sqrt(matrix.trace / len(units.scale))
        most = np.where(deviations > 0, np.minimum(MAX_QUERY_DEVIATIONS * deviations, MAX_QUERY_VALUE), MAX_QUERY_VALUE)
        if largest > most.min():
            excess = np.abs(data) > (most if dense else most[rows.indices])
            if excess.any():
                place = np.argwhere(excess)[0]
                row = place[0] if dense else np.searchsorted(rows.indptr, place[0], side="right") - 1
                column = place[1] if dense else rows.indices[place[0]]
                raise ValueError(
                    f"numbers of X must be at most {most[column]:.3g} in size in column {column}, got "
                    f"{data[tuple(place)]:.3g} in row {row}: scale the rows down"
                )


def check_batch_squares(
    rows: Any, weights: Floats | None, sketch: FrequentDirections | None, scales: ColumnScales | None, *, center: bool
) -> None:
    """Raise ValueError if the sum of squared deviations of all rows would overflow or underflow after this batch.

    `sketch` and `scales` are those of earlier rows; `sketch` is None for the first ones.
    """
    total = float(rows.shape[0]) if weights is None else float(weights.sum())
    mean, before = np.zeros(rows.shape[1]), 0.0
    if sketch is not None and scales is not None and scales.variance.weight:
        before, total = scales.variance.squares, total + scales.variance.weight
        if center:
            mean = scales.variance.mean()
    elif sketch is not None:
        engine: Any = sketch._seen_engine()
        unit = np.ldexp(1.0, engine.exponent)
        before, total = engine.squared_norm * unit * unit, total + engine.weight
        if center:
            mean = by_column(engine, engine.mean) * unit
    elif total > 0 and center:
        sums: Any = rows.T @ (np.ones(rows.shape[0]) if weights is None else weights)
        mean = np.asarray(sums, np.float64).ravel() / total
    squares = before + squares_around(rows, weights, mean)
    check_squares(squares, MAX_SQUARES)
    if squares < MIN_MEAN_SQUARES * total and (squares > 0 or differ(rows, weights, mean)):
        raise ValueError(
            f"the rows differ, but by so little that their squares are below {MIN_MEAN_SQUARES:g} in the mean, or "
            "no numbers at all: scale the rows up"
        )
