"""Outlier detection of ``SketchedCovariance``: anomaly scores, conformal thresholds, rows with missing values."""

# scikit-learn has no types.
# pyright: basic

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import Rows, as_choice, as_real
from fastsketch._core.warning import warn_caller
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines import by_column
from fastsketch.sklearn._column_scales import ColumnScales, Standardization
from fastsketch.sklearn._estimator import Arrays, SketchEstimator, checked
from fastsketch.sklearn._gaussian import (
    MIN_VARIANCE_SHARE,
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    centred_blocks,
    effective_rows,
    empirical_covariance,
    exact_products,
    leading_pairs,
    oracle_approximating,
    sketch_size_of,
)
from fastsketch.sklearn._kept_rows import KeptRows
from fastsketch.sklearn._missing import FILLS, Pattern, filled, missing_patterns, without_missing
from fastsketch.sklearn._moments import check_squares, differ, squares_around
from fastsketch.sklearn._mrcd import (
    ROWS_PER_COLUMN,
    Fit,
    Moments,
    Scorer,
    Threshold,
    cross_validated,
    fit_mrcd,
    leave_one_out,
)

# Largest sum of squared deviations from the mean: beyond it the d x d products overflow.
MAX_SQUARES = 1e300
# Largest value of a query row, in standard deviations of its column and absolutely: beyond it distances overflow.
MAX_QUERY_DEVIATIONS, MAX_QUERY_VALUE = 1e140, MAX_SQUARES**0.5
# Smallest positive mean of the squared deviations: below it inverse covariances overflow.
MIN_MEAN_SQUARES = 1e-280
# Why an estimator has retained no rows; files store the index.
WITHOUT_ROWS = (
    "it began to learn with contamination=None; set contamination and call fit",
    "its sketch came from elsewhere, as that of a job, which keeps none; learn by fit or partial_fit",
    "one that was merged had kept none; learn all parts with contamination set",
)


class OutlierEstimator(OutlierMixin, SketchEstimator):
    """Base class of SketchedCovariance for outlier detection: anomaly scores and thresholds, also for rows with missing
    values.
    """

    contamination: float | None
    fill: Any
    shrinkage: Any
    alpha0: float
    support_fraction: float
    assume_centered: bool
    n_missing_: int
    _kept_rows: KeptRows | None
    _without_rows: int  # index in WITHOUT_ROWS
    _weight_squares: float | None  # sum of squared weights; None for a sketch that was not learned here
    _scales: ColumnScales | None  # None for the exact matrix, and for a sketch that was not learned here

    # Methods of the subclass: the shrunk covariance, the sum of the weights, log-densities of rows, ...
    _read: Callable[[], ShrunkCovariance]
    _total: Callable[[], float]
    _shrinkage_asked: Callable[[], float | str | None]
    _densities: Callable[[Any], NDArray[np.float64]]
    _warn_of_nothing: Callable[[], None]

    @property
    def location_(self) -> NDArray[np.float64]:
        if self._learner.total_weight > 0:
            return self._standard()[0].mean.copy()
        mean = self._learner.mean
        return np.zeros(self.n_features_in_) if mean is None else np.asarray(mean)

    @property
    def scale_(self) -> NDArray[np.float64]:
        return self._standard()[0].scale.copy()

    def _standard(self) -> tuple[Standardization, SpikedCovariance | DenseCovariance]:
        """Return the means and deviations of the columns, and the covariance of the standardised columns before
        shrinkage. Both are cached.

        The result is cached until more rows are learned.
        """
        return self._read_once("standard", self._standardize)

    def _standardize(self) -> tuple[Standardization, SpikedCovariance | DenseCovariance]:
        sketch, total = self.sketch_, self._total()
        if sketch.resolved["solver"] == "exact":
            gram, mean = exact_products(sketch)
            units = Standardization.of_products(gram, mean, total)
            gram /= total
            return units, DenseCovariance(units.of_matrix(gram))
        scale = np.ones(self.n_features_in_) if self._scales is None else self._scales.scale
        mean = np.zeros(len(scale)) if sketch.mean is None else sketch.mean * np.where(scale > 0, scale, 1.0)
        return Standardization(mean, scale, total), empirical_covariance(sketch, total)

    # -- rows ------------------------------------------------------------------------------------------------------
    def _checked(self, X: Any, *, reset: bool) -> Any:
        if self.fill is None:
            try:
                return super()._checked(X, reset=reset)
            except ValueError as error:
                if "contains NaN" not in str(error):
                    raise
                raise ValueError(
                    "Input X contains NaN: fill='mean' puts the mean of its column in the place of each, fill='drop' "
                    "leaves out rows that have one"
                ) from None
        as_choice(self.fill, "fill", FILLS)
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")

    def _checked_query(self, X: Any) -> tuple[Any, list[Pattern]]:
        """Validate rows that are to be scored, and replace missing values by means. Return the rows, and which columns
        were missing in which rows.

        ValueError if a value is too large for distances.
        """
        check_is_fitted(self, "sketch_")
        rows, patterns = self._checked(X, reset=False), []
        if self.fill is not None:
            patterns, rows = missing_patterns(rows), filled(rows, self.location_)
        dense = isinstance(rows, np.ndarray)
        data: Any = rows if dense else rows.data
        largest = max(float(data.max(initial=0.0)), -float(data.min(initial=0.0)))
        units, matrix = self._standard()
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
        return rows, patterns

    def _measured(self, X: Any, measure: Callable[[Any, NDArray[np.float64]], Any]) -> NDArray[np.float64]:
        """Validate and standardise X, and return one number for each row: what `measure(rows, mean)` computes."""
        return self._standard()[0].measured(self._checked_query(X)[0], measure)

    def _without_missing(self, X: Any, weights: Any, *, first: bool) -> tuple[Any, Any, int]:
        """Fill missing values or drop their rows, according to the parameter `fill`. Return rows, weights, and the new
        count for ``n_missing_``.

        The parameter `fill` says which.
        """
        before = 0 if first else self.n_missing_
        if self.fill is None:
            return X, weights, before
        names, mean = getattr(self, "feature_names_in_", None), None if first else self.location_
        rows, weights, missing = without_missing(X, weights, self.fill, mean, names=names)
        return rows, weights, before + missing

    def _check_squares(self, X: Any, weights: NDArray[np.float64] | None, *, first: bool) -> None:
        """Raise ValueError if the sum of squared deviations of all rows would overflow or underflow.

        `first` is whether these are the first rows.
        """
        total = float(X.shape[0]) if weights is None else float(weights.sum())
        mean, before = np.zeros(X.shape[1]), 0.0
        scales = None if first else self._scales
        if scales is not None and scales.variance.weight:
            before, total = scales.variance.squares, total + scales.variance.weight
            if not self.assume_centered:
                mean = scales.variance.mean()
        elif not first:
            engine = self.sketch_._seen_engine()
            unit = np.ldexp(1.0, engine.exponent)
            before, total = engine.squared_norm * unit * unit, total + engine.weight
            if not self.assume_centered:
                mean = by_column(engine, engine.mean) * unit
        elif total > 0 and not self.assume_centered:
            sums: Any = X.T @ (np.ones(X.shape[0]) if weights is None else weights)
            mean = np.asarray(sums, np.float64).ravel() / total
        squares = before + squares_around(X, weights, mean)
        check_squares(squares, MAX_SQUARES)
        if squares < MIN_MEAN_SQUARES * total and (squares > 0 or differ(X, weights, mean)):
            raise ValueError(
                f"the rows differ, but by so little that their squares are below {MIN_MEAN_SQUARES:g} in the mean, or "
                "no numbers at all: scale the rows up"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.fill is not None
        return tags

    # -- retained rows ----------------------------------------------------------------------------------------------
    def _kept_arrays(self) -> Arrays:
        """Return the stored sample of rows as arrays for a state file. Without a sample, the file gets the reason why
        there is none.
        """
        without = {"without_rows": np.array([float(self._without_rows)])}
        return without if self._kept_rows is None else {**without, **self._kept_rows.arrays()}

    def _kept_arrays_with(self, other: Any) -> Arrays:
        """Return the merged samples of two estimators as arrays for a state file.

        UserWarning if only one of the two has retained rows.
        """
        if self._kept_rows is not None and other._kept_rows is not None:
            return {**self._kept_arrays(), **self._kept_rows.merged(other._kept_rows).arrays()}
        if self._kept_rows is None and other._kept_rows is None:
            return self._kept_arrays()
        warn_caller(
            f"{'other' if other._kept_rows is None else 'this estimator'} has kept no rows, so that the merged one has "
            "no threshold for alarms: learn both with contamination set"
        )
        return {"without_rows": np.array([2.0])}

    def _restore_kept(self, arrays: Arrays) -> None:
        self._kept_rows = KeptRows.from_arrays(arrays, self.n_features_in_) if "kept_size" in arrays else None
        known = "without_rows" in arrays
        self._without_rows = int(checks.not_negative(arrays, "without_rows", (1,))[0]) if known else int(not arrays)
        checks.number_within(self._without_rows, "without_rows", 0, len(WITHOUT_ROWS) - 1)

    # -- alarms ----------------------------------------------------------------------------------------------------
    def score_samples(self, X: Rows) -> NDArray[np.float64]:
        """Compute the anomaly score of each row: the lower, the more abnormal.

        The score is minus the squared Mahalanobis distance. If ``robust_`` is True, mean and covariance are those of
        the minimum regularised covariance determinant (MRCD): fitted to the share `support_fraction` of the retained
        rows that lie nearest. Otherwise they are those of all rows, and the covariance is shrunk as ``covariance_`` is.

        A row with missing values is scored over its observed columns. That distance is mapped to the distance of the
        same tail probability over all columns, so that such a row is an alarm as often as a complete one. In a column
        that was constant during learning, a row with another value has the deviation (n + 1) / sqrt(n), as if it were
        the only one of n + 1 rows that differs. The score is the Gaussian log-density under ``covariance_``, which is
        -inf if that is singular, without retained rows (``contamination=None``, a job) and after a single row.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray of float64 (n_samples,)

        Raises
        ------
        ValueError
            If fewer than two rows were retained, although rows were to be.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedCovariance
        >>> X = np.random.default_rng(0).standard_normal((500, 20))
        >>> X[7] += 5  # an outlier
        >>> int(SketchedCovariance().fit(X).score_samples(X).argmin())
        7
        """
        check_is_fitted(self, "sketch_")
        if self._kept_rows is None or self.n_samples_seen_ < 2:
            return self._densities(X)
        self._warn_of_nothing()
        rows, patterns = self._checked_query(X)
        units = self._standard()[0]
        scorer, threshold = self._scorer()
        distances = units.measured(rows, scorer.distances)
        for missing, members in patterns:
            some = scorer.scaled(*units.apply(rows[members]))
            marginal = scorer.marginal_distances(*some, distances[members], missing)
            distances[members] = threshold.comparable(scorer, marginal, missing)
        return -distances

    def _share_asked(self) -> float | None:
        asked = self.contamination
        if isinstance(asked, str):
            raise TypeError(f"contamination must be a share of rows, 0.01 unless given, or None, got {asked!r}")
        return None if asked is None else as_real(asked, "contamination", 0.0, 0.5, low_open=True)

    def _leading(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the leading eigenvalues and eigenvectors of the covariance of standardised columns, before shrinkage.
        They are cached.

        They are those before shrinkage.
        """
        return self._read_once("leading", lambda: leading_pairs(self._standard()[1], sketch_size_of(self.sketch_)))

    @property
    def robust_(self) -> bool:
        check_is_fitted(self, "sketch_")
        return self._has_rows_to_trim() and self._scorer()[0].mean is not None

    def _has_rows_to_trim(self) -> bool:
        """Return True if the stored sample is large enough for a robust fit: more than five rows per column remain
        after trimming.

        False with support_fraction=1, or without retained rows.
        """
        if self._kept_rows is None or self._support_asked() == 1.0:
            return False
        n_kept = np.ceil(self.support_fraction * len(self._kept_rows.sample()[1]))
        return bool(n_kept > ROWS_PER_COLUMN * self._n_varying())

    def _support_asked(self) -> float:
        return as_real(self.support_fraction, "support_fraction", 0.5, 1.0)

    def _n_varying(self) -> int:
        """Count the columns that are not constant; at least 1."""
        return max(1, int(np.count_nonzero(self._standard()[0].scale)))

    def _spread(self) -> NDArray[np.float64]:
        """Return the standard deviation of each column after division by its scale, with a small lower limit.

        They are 1 for the exact matrix; for a sketch they differ from 1, since its units are powers of two.
        """
        scale = self._standard()[0].scale
        if self._scales is None:
            return np.ones(len(scale))
        deviations = np.sqrt(self._scales.variance.value()) / np.where(scale > 0, scale, 1.0)
        return np.maximum(deviations, np.sqrt(MIN_VARIANCE_SHARE))

    def _robust_share(self, correlation: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
        """Return the shrinkage intensity of the robust covariance: the parameter `shrinkage` if it is a number,
        otherwise that of OAS.
        """
        asked = self._shrinkage_asked()
        if not isinstance(asked, str):
            return asked or 0.0
        n_varying = int(np.count_nonzero(correlation.diagonal()))
        return oracle_approximating(DenseCovariance(correlation).squares, n=effective_rows(weights), size=n_varying)

    def _scorer(self) -> tuple[Scorer, Threshold]:
        return self._read_once("scorer", self._fit_scorer, self.shrinkage, self.alpha0, self.support_fraction)

    def _fit_scorer(self, *_: Any) -> tuple[Scorer, Threshold]:
        (units, matrix), shrunk, kept_rows = self._standard(), self._read(), self._kept_rows
        assert kept_rows is not None
        sample, weights = kept_rows.sample()
        if len(weights) < 2:
            raise ValueError(f"a threshold needs at least 2 rows, got {len(weights)}")
        rows, origin = units.apply(sample)
        ridge, center = self.alpha0 / self._total(), self.sketch_.center
        fit: Fit | None = None
        if self._has_rows_to_trim():
            dense = np.empty(rows.shape)
            for part, moved in centred_blocks(rows, origin):
                dense[part] = moved
            fraction, share_of = self._support_asked(), self._robust_share
            fit = fit_mrcd(dense, weights, self._spread(), fraction, share_of, ridge, center=center)
            if fit is not None:
                rows, origin = dense, np.zeros(len(origin))
        if fit is None and isinstance(matrix, DenseCovariance):
            fit = Moments.of_correlation(self._total(), matrix.matrix()).fitted(len(weights), shrunk.share, ridge)
        if fit is not None:
            scorer, held_out = fit.scorer, cross_validated(rows, origin, weights, fit, ridge, center=center)
        else:
            assert not isinstance(matrix, DenseCovariance)  # it has been fitted above
            floor = max(shrunk.floor, MIN_VARIANCE_SHARE * matrix.trace / self._n_varying())
            scorer = Scorer(matrix.shrunk(shrunk.share, floor))
            held_out = leave_one_out(
                rows, origin, weights, matrix, shrunk._replace(floor=floor), self._total(), center=center
            )
        return scorer, Threshold(*scorer.scaled(rows, origin), scorer.distances(rows, origin), held_out)

    def _level(self) -> tuple[float, NDArray[np.float64]]:
        check_is_fitted(self, "sketch_")
        share = self._share_asked()
        if self._kept_rows is None:
            why = WITHOUT_ROWS[self._without_rows]
            raise ValueError(f"a threshold needs rows kept aside, and this estimator has none: {why}")
        if share is None:
            raise ValueError("a threshold needs a share of alarms, and contamination is None: set it; rows are kept")
        return self._read_once(
            "level",
            lambda *_: self._scorer()[1].exceeded_by(share),
            share,
            self.shrinkage,
            self.alpha0,
            self.support_fraction,
        )

    @property
    def offset_(self) -> float:
        return -self._level()[0]

    @property
    def alarm_interval_(self) -> NDArray[np.float64]:
        return self._level()[1]

    def decision_function(self, X: Rows) -> NDArray[np.float64]:
        """Compute the anomaly score minus the threshold of each row: negative for outliers.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Raises
        ------
        ValueError
            If contamination is None, or no rows were kept; the message says why.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Rows) -> NDArray[np.int64]:
        """Predict which rows are outliers: -1 for outliers, 1 for all others.

        About the share `contamination` of new rows that are distributed like the training rows are alarms.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Raises
        ------
        ValueError
            If contamination is None, or no rows were kept; the message says why.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedCovariance
        >>> X = np.random.default_rng(0).standard_normal((2000, 20))
        >>> model = SketchedCovariance(contamination=0.05).fit(X[:1000])
        >>> float((model.predict(X[1000:]) == -1).mean()), model.alarm_interval_.round(3)
        (0.061, array([0.037, 0.064]))
        """
        return np.where(self.decision_function(X) < 0, -1, 1)
