"""Anomaly scores: the squared Mahalanobis distance of the minimum regularised covariance determinant (MRCD).

The mean and the covariance are those of the rows of a sample that lie nearest: concentration steps compute the
distances of all rows of the sample, keep the nearest ones and fit again. The covariance is shrunk on the correlation
scale, so that the variances of the columns are not. A sample with few rows for its columns is not trimmed: then mean
and covariance are those of all rows learned from.

The threshold is conformal. The rows of the sample are measured by cross-validation: each fold is removed from the
moments, by a downdate, before its rows are measured.

References
----------
Boudt, Rousseeuw, Vanduffel, Verdonck, Statistics and Computing 30 (2020): MRCD. Rousseeuw, Van Driessen,
Technometrics 41 (1999): concentration steps. Croux, Haesbroeck, J. Multivariate Analysis 71 (1999): consistency
factor. Bates, Candes, Lei, Romano, Sesia, Annals of Statistics 51 (2023): conformal p-values of outliers.
"""

# pyright: basic

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch._core.warning import warn_caller
from fastsketch.sklearn._column_scales import CONSTANT
from fastsketch.sklearn._gaussian import (
    LEAST_VARIANCE,
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    projected,
)

Floats = NDArray[np.float64]

# Steps from the distances of all rows. FAST-MCD takes two from each of its starts (Rousseeuw and Van Driessen 1999,
# section 3.3; n_iter=2 in scikit-learn's select_candidates).
CONCENTRATION_STEPS = 2
# A sample is trimmed if it leaves more rows than this for each column (Rousseeuw and van Zomeren, JASA 85 (1990)).
ROWS_PER_COLUMN = 5
# Folds of cross-validation (Kohavi, IJCAI 1995: ten).
FOLDS = 10


class Moments(NamedTuple):
    """Mean and covariance of weighted rows, in standard units divided by ``scale``."""

    total: float  # weight of the rows
    mean: Floats  # (d,), in standard units
    scale: Floats  # (d,) deviations in standard units; those of all rows for a column that does not vary in these
    covariance: Floats  # (d, d), whose diagonal is 1, or 0 for a column that does not vary

    @classmethod
    def of(cls, rows: Floats, weights: Floats, spread: Floats, *, center: bool) -> Self:
        """Compute the moments of dense rows (n, d) in standard units; `spread` (d,) are the deviations of all rows."""
        total = float(weights.sum())
        mean = weights @ rows / total if center else np.zeros(rows.shape[1])
        moved = rows - mean
        covariance = (moved * weights[:, np.newaxis]).T @ moved / total
        scale, covariance = _as_correlation(covariance, (CONSTANT * mean) ** 2, spread)
        return cls(total, mean, scale, covariance)

    @classmethod
    def of_correlation(cls, total: float, correlation: Floats) -> Self:
        """Return the moments of rows whose standard units are those of all rows."""
        d = len(correlation)
        return cls(total, np.zeros(d), np.ones(d), correlation)

    def fitted(self, n: int, share: float, ridge: float) -> "Fit":
        """Return the fit to all of the n rows of a sample."""
        return Fit(Scorer(self.shrunk(share, ridge)), self, np.ones(n, bool), share)

    def shrunk(self, share: float, ridge: float) -> DenseCovariance:
        """Return (1 - share) R + share I for the correlation matrix R, plus ridge I; always invertible."""
        out = (1 - share) * self.covariance
        out[np.diag_indices_from(out)] = 1.0 + ridge + LEAST_VARIANCE
        return DenseCovariance(out)

    def without(self, rows: Floats, weights: Floats, *, center: bool) -> Self:
        """Return the moments without some of the rows, (k, d) in standard units, by a downdate."""
        left = self.total - float(weights.sum())
        if not left > 0:
            raise ValueError("a threshold needs rows whose weights are not nearly those of all: learn from more rows")
        moved = (rows - self.mean) / self.scale
        covariance = (moved * (-weights / left)[:, np.newaxis]).T @ moved
        covariance += self.total / left * self.covariance
        shift = np.zeros(len(self.mean))
        if center:  # the other rows sum up to -s around the mean of all
            sums = weights @ moved
            shift = -sums / left
            covariance -= np.outer(shift, shift)
        scale, covariance = _as_correlation(covariance, CONSTANT, 1.0)
        return type(self)(left, self.mean + shift * self.scale, self.scale * scale, covariance)


def _as_correlation(covariance: Floats, least: Floats | float, spread: Floats | float) -> tuple[Floats, Floats]:
    """Return (deviations (d,), correlation matrix). Where a variance is at most `least`: the spread, and entries 0.

    The covariance is written to.
    """
    variances = covariance.diagonal()
    varies = variances > least
    scale = np.where(varies, np.sqrt(np.where(varies, variances, 1.0)), spread)
    inverse = np.where(varies, 1 / scale, 0.0)
    covariance *= inverse
    covariance *= inverse[:, np.newaxis]
    return scale, covariance


class Scorer(NamedTuple):
    """The Gaussian by which rows are scored; rows are in standard units."""

    matrix: SpikedCovariance | DenseCovariance
    mean: Floats | None = None  # (d,) of the rows that were kept by the concentration steps; None: that of all rows
    scale: Floats | None = None  # (d,) their deviations
    factor: float = 1.0  # of consistency: the covariance is multiplied by it

    def scaled(self, rows: Any, origin: Floats) -> tuple[Any, Floats]:
        """Return rows, array or CSR (n, d), and their mean (d,), divided by the deviations."""
        if self.mean is None or self.scale is None:
            return rows, origin
        if is_sparse(rows):
            out = type(rows)((rows.data / self.scale[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
        else:
            out = rows / self.scale
        return out, (origin + self.mean) / self.scale

    def distances(self, rows: Any, origin: Floats) -> Floats:
        """Compute squared distances (n,) of rows, array or CSR, from which `origin` (d,) is subtracted."""
        return self.matrix.distances(*self.scaled(rows, origin)) / self.factor

    def marginal_distances(self, rows: Any, origin: Floats, distances: Floats, missing: NDArray[np.intp]) -> Floats:
        """Compute squared distances over all columns but the missing ones, from those over all columns.

        The rows and `origin` are those that ``scaled`` returns. With the precision P and y = P (x - mean), the distance
        over the observed columns is less by y_M' P_MM^-1 y_M for the missing columns M: the Schur complement. So any
        number may stand in a missing column.
        """
        columns = self.matrix.inverse_columns(missing)
        y = rows @ columns - origin @ columns
        explained = np.einsum("ij,ji->i", y, np.linalg.solve(columns[missing], y.T))
        return np.maximum(distances - explained / self.factor, 0.0)


class Fit(NamedTuple):
    """A fit to the rows of a sample that were kept."""

    scorer: Scorer
    moments: Moments  # of the rows that were kept
    kept: NDArray[np.bool_]  # (n,)
    share: float  # intensity of shrinkage


def concentrated(
    rows: Floats,
    weights: Floats,
    spread: Floats,
    support_fraction: float,
    share_of: Callable[[Floats, Floats], float],
    ridge: float,
    *,
    center: bool,
) -> Fit:
    """Compute the MRCD of the rows of a sample.

    Parameters
    ----------
    rows : (n, d) array of float64
        In standard units.
    weights : (n,) array of float64
    spread : (d,) array of float64
        Deviations of all rows, which a column has that does not vary in the rows that are kept.
    support_fraction : float
        Share of the rows that the concentration steps keep.
    share_of : callable
        share_of(correlation matrix, weights of the rows) is the intensity of shrinkage.
    ridge : float
        Added to the variances in standard units.
    center : bool
        Whether the mean is subtracted; else it is taken to be zero.
    """
    n, d = rows.shape
    n_kept, kept = int(np.ceil(support_fraction * n)), np.ones(n, bool)
    for step in range(CONCENTRATION_STEPS + 1):
        moments = Moments.of(rows[kept], weights[kept], spread, center=center)
        share = share_of(moments.covariance, weights[kept])
        scorer = Scorer(moments.shrunk(share, ridge), moments.mean, moments.scale)
        if step < CONCENTRATION_STEPS:
            distances = scorer.distances(rows, np.zeros(d))
            kept = np.zeros(n, bool)
            kept[np.argpartition(distances, n_kept - 1)[:n_kept]] = True
    factor = consistency_factor(n_kept / n, max(1, int(np.count_nonzero(moments.covariance.diagonal()))))
    return Fit(scorer._replace(factor=factor), moments, kept, share)


def consistency_factor(share: float, d: int) -> float:
    """Compute the factor of the covariance of the nearest `share` of normal rows (Croux and Haesbroeck 1999)."""
    from scipy.stats import chi2

    return share / float(chi2.cdf(chi2.ppf(share, d), d + 2)) if share < 1 else 1.0


# -- rows that took no part --------------------------------------------------------------------------------------------
def cross_validated(rows: Any, origin: Floats, weights: Floats, fit: Fit, ridge: float, *, center: bool) -> Floats:
    """Compute the distance of each row of a sample by the moments without the rows of its fold, (n,).

    Rows i, i + FOLDS, ... are a fold; a sample is in random order. Neither the intensity of shrinkage nor the other
    rows that are kept are chosen again.
    """
    out, none = np.empty(len(weights)), np.zeros(len(origin))
    for first in range(min(FOLDS, len(weights))):
        fold = slice(first, None, FOLDS)
        block = rows[fold]
        moved = (block.toarray() if is_sparse(block) else block) - origin
        kept = fit.kept[fold]
        others = fit.moments.without(moved[kept], weights[fold][kept], center=center)
        scorer = fit.scorer._replace(matrix=others.shrunk(fit.share, ridge), mean=others.mean, scale=others.scale)
        out[fold] = scorer.distances(moved, none)
    return out


def leave_one_out(
    rows: Any,
    origin: Floats,
    weights: Floats,
    matrix: SpikedCovariance,
    shrunk: ShrunkCovariance,
    total: float,
    *,
    center: bool,
) -> Floats:
    """Compute the distance of each row by the covariance of a sketch without this row, (n,).

    The row is removed from the span of the directions kept by the formula of Sherman and Morrison, and from the
    variance that all other directions share.

    Parameters
    ----------
    rows, origin, weights : of the sample
    matrix : SpikedCovariance
        Covariance of all rows, not shrunk.
    shrunk : ShrunkCovariance
        How it is shrunk.
    total : float
        Weight of all rows.
    """
    left = total - weights
    if not left.min() > 0:
        raise ValueError("a threshold needs rows whose weights are not nearly those of all: learn from more rows")
    inside, outside = projected(rows, origin, matrix.vectors)
    grown, stretch = total / left, (total / left) ** 2 if center else np.ones(len(weights))
    removed = weights / left * (grown if center else 1.0)
    linear = 1 - shrunk.share
    n_others = matrix.n_features - len(matrix.values)
    squares = inside**2
    spread = linear * grown[:, np.newaxis] * matrix.values + shrunk.floor
    distances = np.einsum("ij,ij->i", squares, 1 / spread)
    distances /= np.maximum(1 - linear * removed * distances, np.finfo(np.float64).eps)
    if n_others:
        rest = linear * np.maximum(grown * matrix.rest - removed * outside / n_others, 0.0) + shrunk.floor
        distances += outside / rest
    return stretch * distances


class Threshold(NamedTuple):
    """Scores of the rows of a sample, which are rows that took no part in the fit."""

    rows: Any  # (m, d) array or CSR, and
    origin: Floats  # (d,) as ``Scorer.scaled`` returns them
    fitted: Floats  # (m,) their distances by the model of all rows
    held_out: Floats  # (m,) their distances by a model without them

    def exceeded_by(self, share: float) -> tuple[float, Floats]:
        """Return (the distance that this share of new rows exceeds, the interval of the share itself, of 95%)."""
        from scipy.stats import beta

        m = len(self.held_out)
        beyond = max(1.0, share * (m + 1))
        if beyond > share * (m + 1):
            warn_caller(
                f"contamination={share:g} needs at least {int(np.ceil(1 / share)) - 1} retained rows, and there are "
                f"{m}: the share of alarms among new rows will be about {1 / (m + 1):.2g}; learn from more rows"
            )
        level = float(np.quantile(self.held_out, 1 - beyond / (m + 1), method="weibull"))
        return level, np.asarray(beta.ppf([0.025, 0.975], beyond, m + 1 - beyond))

    def comparable(self, scorer: Scorer, distances: Floats, missing: NDArray[np.intp]) -> Floats:
        """Return the distances over all columns that are as rare as these over the columns that are not missing.

        The tail probability of a distance is its rank among those of the sample with the same columns missing (the
        exact form of conformal prediction with missing data augmentation: Zaffran, Dieuleveut, Josse, Romano, ICML
        2023). Beyond all of them distances are proportional.
        """
        if len(missing) == len(self.origin):  # a row without a number is an ordinary one
            return np.full(len(distances), np.median(self.held_out))
        masked = scorer.marginal_distances(self.rows, self.origin, self.fitted, missing)
        ratio = np.divide(self.held_out, self.fitted, out=np.ones_like(masked), where=self.fitted > 0)
        masked = np.sort(masked * ratio)
        ranked = np.interp(distances, masked, np.sort(self.held_out))
        most = masked[-1]
        return ranked * np.maximum(distances / most, 1.0) if most > 0 else ranked
