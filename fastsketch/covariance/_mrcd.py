"""MRCD, the minimum regularised covariance determinant, whose squared Mahalanobis distance is an anomaly score.

Concentration steps fit a mean and a covariance to the nearest rows of a random sample: each step computes the distances
of all rows of the sample, selects the nearest ones and refits. The correlation matrix is shrunk, so that the variances
of the columns are not. A sample with few rows per column is not trimmed, and neither is one whose nearest rows are an
exact fit; the caller then uses the mean and the covariance of all rows learned from.

The threshold is conformal, from cross-validated distances of the sample: a downdate removes each fold from the moments
before the distances of its rows are computed.

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
from fastsketch.covariance._column_scales import CONSTANT
from fastsketch.covariance._gaussian import (
    MIN_VARIANCE_SHARE,
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    projected,
)

Floats = NDArray[np.float64]

# Concentration steps, which start from the distances by all rows. FAST-MCD takes two from each of its starts (Rousseeuw
# and Van Driessen 1999, section 3.3; n_iter=2 in scikit-learn's select_candidates).
CONCENTRATION_STEPS = 2
# A sample is trimmed only if more rows than this per column are left (Rousseeuw and van Zomeren, JASA 85 (1990)).
ROWS_PER_COLUMN = 5
# Folds of cross-validation (ten: Kohavi, IJCAI 1995).
FOLDS = 10


class Moments(NamedTuple):
    """Mean, standard deviations and correlations of weighted rows, from which rows can be removed (downdate).

    Rows are in standard units.
    """

    total: float  # sum of the weights
    mean: Floats  # (d,)
    scale: Floats  # (d,) standard deviations; a given scale for a column that does not vary in these rows
    covariance: Floats  # (d, d) correlation matrix; the row and column of a column that does not vary are 0

    @classmethod
    def of(cls, rows: Floats, weights: Floats, spread: Floats, *, center: bool) -> Self:
        """Return the moments of weighted rows, given as a dense array.

        `spread` (d,) is the scale of columns that do not vary. center=False takes the mean to be zero.
        """
        total = float(weights.sum())
        mean = weights @ rows / total if center else np.zeros(rows.shape[1])
        moved = rows - mean
        covariance = (moved * weights[:, np.newaxis]).T @ moved / total
        scale, covariance = _as_correlation(covariance, (CONSTANT * mean) ** 2, spread)
        return cls(total, mean, scale, covariance)

    @classmethod
    def of_correlation(cls, total: float, correlation: Floats) -> Self:
        """Return the moments of all rows, given their correlation matrix.
        In standard units the means are 0 and the deviations 1.
        """
        d = len(correlation)
        return cls(total, np.zeros(d), np.ones(d), correlation)

    def fitted(self, n: int, share: float, ridge: float) -> "Fit":
        """Return a Gaussian fitted to all n rows of the sample, without trimming, as a Fit."""
        return Fit(Scorer(self.shrunk(share, ridge)), self, np.ones(n, bool), share)

    def shrunk(self, share: float, ridge: float) -> DenseCovariance:
        """Return the correlation matrix shrunk towards the identity by the intensity `share`, plus `ridge`.
        It is always invertible.

        It is (1 - share) R + (share + ridge) I, with a small additional ridge.

        A column that does not vary has the variance 1 + ridge.
        """
        out = (1 - share) * self.covariance
        out[np.diag_indices_from(out)] = 1.0 + ridge + MIN_VARIANCE_SHARE
        return DenseCovariance(out)

    def without(self, rows: Floats, weights: Floats, *, center: bool) -> Self:
        """Return the moments of the remaining rows after the given ones are removed by a downdate. This object does not
        change.

        The rows (k, d) must be among those of `self`, which is not changed.
        """
        remaining = self.total - float(weights.sum())
        if not remaining > 0:
            raise ValueError("a threshold needs rows whose weights are not nearly those of all: learn from more rows")
        moved = (rows - self.mean) / self.scale
        covariance = (moved * (-weights / remaining)[:, np.newaxis]).T @ moved
        covariance += self.total / remaining * self.covariance
        shift = np.zeros(len(self.mean))
        if center:
            # The weighted deviations from the mean sum to 0, so those of the remaining rows to -weights @ moved.
            shift = -(weights @ moved) / remaining
            covariance -= np.outer(shift, shift)
        scale, covariance = _as_correlation(covariance, CONSTANT, 1.0)
        return type(self)(remaining, self.mean + shift * self.scale, self.scale * scale, covariance)


def _as_correlation(covariance: Floats, rounding: Floats | float, spread: Floats | float) -> tuple[Floats, Floats]:
    """Return (standard deviations, correlation matrix) of a covariance matrix, which is overwritten.

    `covariance` is overwritten.

    A column whose variance is at most `rounding` does not vary: its deviation is `spread`, its correlations are 0.
    """
    variances = covariance.diagonal()
    varies = variances > rounding
    scale = np.where(varies, np.sqrt(np.where(varies, variances, 1.0)), spread)
    inverse = np.where(varies, 1 / scale, 0.0)
    covariance *= inverse
    covariance *= inverse[:, np.newaxis]
    return scale, covariance


class Scorer(NamedTuple):
    """Gaussian whose squared Mahalanobis distance is the anomaly score of a row."""

    matrix: SpikedCovariance | DenseCovariance
    mean: Floats | None = None  # (d,) mean of the rows selected by the concentration steps; None: that of all rows
    scale: Floats | None = None  # (d,) standard deviations of these rows; None: those of all rows
    factor: float = 1.0  # consistency factor, by which the covariance is multiplied

    def scaled(self, rows: Any, origin: Floats) -> tuple[Any, Floats]:
        """Return (rows divided by the standard deviations of this Gaussian, mean that must then be subtracted)."""
        if self.mean is None or self.scale is None:
            return rows, origin
        if is_sparse(rows):
            out = type(rows)((rows.data / self.scale[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
        else:
            out = rows / self.scale
        return out, (origin + self.mean) / self.scale

    def distances(self, rows: Any, origin: Floats) -> Floats:
        """Return the squared Mahalanobis distance of each row, dense or CSR.

        `origin` (d,) is subtracted from the rows first.
        """
        return self.matrix.distances(*self.scaled(rows, origin)) / self.factor

    def marginal_distances(self, rows: Any, origin: Floats, distances: Floats, missing: NDArray[np.intp]) -> Floats:
        """Return squared Mahalanobis distances of rows over their observed columns only.

        `distances` are those over all columns with any values in the missing ones.
        """
        columns = self.matrix.inverse_columns(missing)
        y = rows @ columns - origin @ columns
        explained = np.einsum("ij,ji->i", y, np.linalg.solve(columns[missing], y.T))
        return np.maximum(distances - explained / self.factor, 0.0)


class Fit(NamedTuple):
    """A Gaussian fitted to the nearest rows of a sample, with the moments from which folds are removed."""

    scorer: Scorer
    moments: Moments  # of the selected rows
    kept: NDArray[np.bool_]  # (n,) whether a row of the sample was selected
    share: float  # intensity of shrinkage


def fit_mrcd(
    rows: Floats,
    weights: Floats,
    spread: Floats,
    support_fraction: float,
    share_of: Callable[[Floats, Floats], float],
    ridge: float,
    *,
    center: bool,
) -> Fit | None:
    """Fit a robust Gaussian (MRCD) to a sample of rows by concentration steps, and return it as a Fit.
    Return None if the nearest rows, which the steps select, are an exact fit.

    An exact fit is a column that varies in the sample but not among the nearest rows, such as the indicator of a rare
    category. The determinant of the covariance of these rows is then 0 whatever their other columns are, so it cannot
    select rows. The concentration steps end there, as those of FAST-MCD (Rousseeuw and Van Driessen 1999).

    Parameters
    ----------
    rows : (n, d) array of float64
        In standard units.
    weights : (n,) array of float64
    spread : (d,) array of float64
        Deviations of all rows, the scale of a column that does not vary in the sample.
    support_fraction : float
        Share of the rows that the concentration steps select.
    share_of : callable
        ``share_of(correlation, weights)`` computes the intensity of shrinkage.
    ridge : float
        Added to the diagonal of the correlation matrix.
    center : bool
        False takes the mean to be zero.
    """
    n, d = rows.shape
    n_kept, kept = int(np.ceil(support_fraction * n)), np.ones(n, bool)
    n_varying = 0
    for step in range(CONCENTRATION_STEPS + 1):
        moments = Moments.of(rows[kept], weights[kept], spread, center=center)
        n_varying_before, n_varying = n_varying, int(np.count_nonzero(moments.covariance.diagonal()))
        if n_varying < n_varying_before:
            return None
        share = share_of(moments.covariance, weights[kept])
        scorer = Scorer(moments.shrunk(share, ridge), moments.mean, moments.scale)
        if step < CONCENTRATION_STEPS:
            distances = scorer.distances(rows, np.zeros(d))
            kept = np.zeros(n, bool)
            kept[np.argpartition(distances, n_kept - 1)[:n_kept]] = True
    factor = consistency_factor(n_kept / n, max(1, n_varying))
    return Fit(scorer._replace(factor=factor), moments, kept, share)


def consistency_factor(share: float, d: int) -> float:
    """Return the factor by which a covariance is multiplied if it was computed from the nearest rows only.

    The covariance of the nearest `share` of d-variate normal rows, times this factor, is that of all rows.
    """
    from scipy.stats import chi2

    return share / float(chi2.cdf(chi2.ppf(share, d), d + 2)) if share < 1 else 1.0


# -- cross-validated distances -----------------------------------------------------------------------------------------
def cross_validated(rows: Any, origin: Floats, weights: Floats, fit: Fit, ridge: float, *, center: bool) -> Floats:
    """Return the squared Mahalanobis distance of each row of a sample by a Gaussian without its fold.

    Rows i, i + FOLDS, ... are fold i, since a sample is in random order. A downdate removes each fold from the fitted
    moments. The selection of the other rows, the intensity of shrinkage and the consistency factor are not recomputed.
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
    """Return squared Mahalanobis distances of sampled rows, each by a sketched covariance without that row.

    Within the span of the sketch's directions the Sherman-Morrison formula removes the row. Its squared residual is
    subtracted from the variance that all other directions share.

    Parameters
    ----------
    rows : (n, d) array or CSR
        In standard units; `origin` (d,) is their mean.
    weights : (n,) array of float64
    matrix : SpikedCovariance
        Covariance of all rows learned from, before shrinkage.
    shrunk : ShrunkCovariance
        Its intensity of shrinkage and its floor.
    total : float
        Sum of the weights of all rows learned from.
    """
    remaining = total - weights
    if not remaining.min() > 0:
        raise ValueError("a threshold needs rows whose weights are not nearly those of all: learn from more rows")
    inside, outside = projected(rows, origin, matrix.vectors)
    grown, stretch = total / remaining, (total / remaining) ** 2 if center else np.ones(len(weights))
    removed = weights / remaining * (grown if center else 1.0)
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
    """Data from which anomaly thresholds follow: a sample of rows, their distances, and cross-validated distances."""

    rows: Any  # (m, d) array or CSR of the sample, as ``Scorer.scaled`` returns it
    origin: Floats  # (d,) mean to subtract from these rows
    fitted: Floats  # (m,) distances by the fit that includes them
    held_out: Floats  # (m,) cross-validated distances

    def exceeded_by(self, share: float) -> tuple[float, Floats]:
        """Return (distance that a given fraction of new rows exceeds, 95% interval of that fraction).

        The distance is a conformal quantile of `held_out`. UserWarning if the sample is too small for the share.
        """
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
        """Return distances over all columns with the same tail probability as distances of rows with missing columns.

        The tail probability is the rank among the distances of the sample with the same columns masked: conformal
        prediction with missing data augmentation (Zaffran, Dieuleveut, Josse, Romano, ICML 2023, exact form). A
        distance beyond all of these is scaled in proportion. A row with all columns missing gets the median distance.
        """
        if len(missing) == len(self.origin):
            return np.full(len(distances), np.median(self.held_out))
        masked = scorer.marginal_distances(self.rows, self.origin, self.fitted, missing)
        ratio = np.divide(self.held_out, self.fitted, out=np.ones_like(masked), where=self.fitted > 0)
        masked = np.sort(masked * ratio)
        ranked = np.interp(distances, masked, np.sort(self.held_out))
        largest = masked[-1]
        return ranked * np.maximum(distances / largest, 1.0) if largest > 0 else ranked
