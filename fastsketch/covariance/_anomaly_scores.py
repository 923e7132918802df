"""``AnomalyDetector``: anomaly scores of rows, also of rows with missing values, and their conformal threshold."""

from typing import Any, NamedTuple, Self

import numpy as np

from fastsketch.covariance._column_scales import Floats, Standardization
from fastsketch.covariance._gaussian import (
    MIN_VARIANCE_SHARE,
    DenseCovariance,
    ShrunkCovariance,
    centred_blocks,
    effective_rows,
    oracle_approximating,
)
from fastsketch.covariance._kept_rows import KeptRows
from fastsketch.covariance._learned_covariance import LearnedCovariance
from fastsketch.covariance._missing import Pattern
from fastsketch.covariance._mrcd import (
    ROWS_PER_COLUMN,
    Fit,
    Moments,
    Scorer,
    Threshold,
    cross_validated,
    fit_mrcd,
    leave_one_out,
)


def has_rows_to_trim(kept_rows: KeptRows, n_varying: int, support_fraction: float) -> bool:
    """Return True if a sample of rows is large enough for a robust fit: more than five rows per column remain after
    trimming.

    `n_varying` is the number of columns that are not constant. support_fraction=1 disables trimming.
    """
    if support_fraction == 1.0:
        return False
    n_kept = np.ceil(support_fraction * len(kept_rows.sample()[1]))
    return bool(n_kept > ROWS_PER_COLUMN * n_varying)


class AnomalyDetector(NamedTuple):
    """Gaussian whose squared Mahalanobis distances are anomaly scores, with the threshold of these distances."""

    units: Standardization
    scorer: Scorer
    threshold: Threshold

    @classmethod
    def fit(
        cls,
        learned: LearnedCovariance,
        shrunk: ShrunkCovariance,
        *,
        shrinkage: float | str | None,
        ridge: float,
        support_fraction: float,
    ) -> Self:
        """Fit the Gaussian and the threshold to the retained rows of a learned covariance, and return the detector.

        The Gaussian is the MRCD if the sample is large enough and no exact fit, otherwise the covariance of all rows.

        Parameters
        ----------
        learned : LearnedCovariance
            With retained rows.
        shrunk : ShrunkCovariance
            Its covariance of standardised columns after shrinkage.
        shrinkage : float, str or None
            Intensity of shrinkage of the MRCD. A str is OAS.
        ridge : float
            Added to the diagonal of the correlation matrix.
        support_fraction : float
            Share of the retained rows to which the MRCD is fitted; 1 disables trimming.

        Raises
        ------
        ValueError
            If fewer than two rows were retained.
        """
        units, matrix = learned.standardised
        kept_rows, center = learned.kept_rows, learned.sketch.center
        assert kept_rows is not None
        sample, weights = kept_rows.sample()
        if len(weights) < 2:
            raise ValueError(f"a threshold needs at least 2 rows, got {len(weights)}")
        rows, origin = units.apply(sample)
        fit: Fit | None = None
        if has_rows_to_trim(kept_rows, learned.n_varying, support_fraction):
            dense = np.empty(rows.shape)
            for part, moved in centred_blocks(rows, origin):
                dense[part] = moved

            def intensity_of(correlation: Floats, weights: Floats) -> float:
                if not isinstance(shrinkage, str):
                    return shrinkage or 0.0
                n_varying = int(np.count_nonzero(correlation.diagonal()))
                squares = DenseCovariance(correlation).squares
                return oracle_approximating(squares, n=effective_rows(weights), size=n_varying)

            fit = fit_mrcd(dense, weights, learned.spread(), support_fraction, intensity_of, ridge, center=center)
            if fit is not None:
                rows, origin = dense, np.zeros(len(origin))
        if fit is None and isinstance(matrix, DenseCovariance):
            fit = Moments.of_correlation(learned.total, matrix.matrix()).fitted(len(weights), shrunk.share, ridge)
        if fit is not None:
            scorer, held_out = fit.scorer, cross_validated(rows, origin, weights, fit, ridge, center=center)
        else:
            assert not isinstance(matrix, DenseCovariance)  # it has been fitted above
            floor = max(shrunk.floor, MIN_VARIANCE_SHARE * matrix.trace / learned.n_varying)
            scorer = Scorer(matrix.shrunk(shrunk.share, floor))
            held_out = leave_one_out(
                rows, origin, weights, matrix, shrunk._replace(floor=floor), learned.total, center=center
            )
        threshold = Threshold(*scorer.scaled(rows, origin), scorer.distances(rows, origin), held_out)
        return cls(units, scorer, threshold)

    @property
    def robust(self) -> bool:
        """Whether the Gaussian is the MRCD, which is fitted to the nearest rows."""
        return self.scorer.mean is not None

    def distances(self, rows: Any, patterns: list[Pattern]) -> Floats:
        """Compute the squared Mahalanobis distance of each row, dense or CSR: minus its anomaly score.

        Missing values have been replaced by any numbers; `patterns` are those of ``missing_patterns``. The distance of
        a row with missing values is that over its observed columns, made comparable to the distances over all columns.
        """
        distances = self.units.measured(rows, self.scorer.distances)
        for missing, members in patterns:
            some = self.scorer.scaled(*self.units.apply(rows[members]))
            marginal = self.scorer.marginal_distances(*some, distances[members], missing)
            distances[members] = self.threshold.comparable(self.scorer, marginal, missing)
        return distances
