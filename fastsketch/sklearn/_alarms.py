"""Alarms of an estimator of covariance: scores, a threshold from rows kept aside, rows with missing numbers."""

# scikit-learn has no types.
# pyright: basic

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import Rows, as_choice, as_real
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines import by_column
from fastsketch.sklearn._column_scales import ColumnScales, Standardization
from fastsketch.sklearn._estimator import Arrays, SketchEstimator, checked
from fastsketch.sklearn._gaussian import (
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    empirical_covariance,
    exact_products,
    leading_pairs,
    sketch_size_of,
)
from fastsketch.sklearn._kept_rows import KeptRows
from fastsketch.sklearn._left_out import KeptSample, Pairs, RowModel
from fastsketch.sklearn._missing import FILLS, filled, without_missing
from fastsketch.sklearn._moments import check_squares, differ, squares_around
from fastsketch.sklearn._outliers import NOTHING_LEFT, Threshold, counts_for, likelier, set_threshold

# Sum of the squares of all rows around their mean: beyond it their matrix leaves the range of numbers.
MOST_SQUARES = 1e300
# Largest number of a row that is asked about, in standard deviations of its column, and at all.
MOST_ASKED, MOST_SIZE = 1e140, MOST_SQUARES**0.5
# Mean of these squares, where there are any: below it inverses leave that range.
LEAST_SQUARES = 1e-280
# Why an estimator has kept no rows, by the number in its files.
WITHOUT_ROWS = (
    "it began to learn with contamination=None; set contamination and call fit",
    "its sketch came from elsewhere, as that of a job, which keeps none; learn by fit or partial_fit",
    "one that was merged had kept none; learn all parts with contamination set",
)


class AlarmEstimator(OutlierMixin, SketchEstimator):
    """Base of SketchedCovariance that scores rows, sets a threshold, and takes rows with missing numbers."""

    contamination: float | None
    fill: Any
    shrinkage: Any
    alpha0: float
    assume_centered: bool
    n_missing_: int
    _kept_rows: KeptRows | None
    _without_rows: int  # a place in WITHOUT_ROWS
    _scales: ColumnScales | None  # of a sketch; None of an exact sum, and of a sketch that came from elsewhere

    # of the subclass: its covariance as given out, its weight, log-densities of rows
    _read: Callable[[], ShrunkCovariance]
    _total: Callable[[], float]
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
        """Return the standard units of the columns, and the covariance in them, nothing shrunk and nothing added."""
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

    def _checked_asked(self, X: Any) -> Any:
        """Return checked rows that are asked about, means in the place of missing numbers if there may be some."""
        check_is_fitted(self, "sketch_")
        rows = self._checked(X, reset=False)
        if self.fill is not None:
            rows = filled(rows, self.location_)
        dense = isinstance(rows, np.ndarray)
        data: Any = rows if dense else rows.data
        largest = max(float(data.max(initial=0.0)), -float(data.min(initial=0.0)))
        units, matrix = self._standard()
        deviations = units.scale * np.sqrt(matrix.trace / len(units.scale))
        most = np.where(deviations > 0, np.minimum(MOST_ASKED * deviations, MOST_SIZE), MOST_SIZE)
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
        return rows

    def _measured(self, X: Any, measure: Callable[[Any, NDArray[np.float64]], Any]) -> NDArray[np.float64]:
        """Return measure(rows, mean) of the rows of X in standard units, some at a time, (n_samples,)."""
        return self._standard()[0].measured(self._checked_asked(X), measure)

    def _without_missing(self, X: Any, weights: Any, *, first: bool) -> tuple[Any, Any, int]:
        """Return rows to learn from as ``fill`` has them, their weights, and n_missing_ with those of these rows."""
        before = 0 if first else self.n_missing_
        if self.fill is None:
            return X, weights, before
        names, mean = getattr(self, "feature_names_in_", None), None if first else self.location_
        rows, weights, missing = without_missing(X, weights, self.fill, mean, names=names)
        return rows, weights, before + missing

    def _check_squares(self, X: Any, weights: NDArray[np.float64] | None, *, first: bool) -> None:
        """Raise ValueError where the squares of all rows leave the range of numbers; `first`: none were learned."""
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
        check_squares(squares, MOST_SQUARES)
        if squares < LEAST_SQUARES * total and (squares > 0 or differ(X, weights, mean)):
            raise ValueError(
                f"the rows differ, but by so little that their squares are below {LEAST_SQUARES:g} in the mean, or no "
                "numbers at all: scale the rows up"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.fill is not None
        return tags

    # -- rows that are kept -----------------------------------------------------------------------------------------
    def _kept_arrays(self) -> Arrays:
        """Return the rows kept by name, or why there are none."""
        without = {"without_rows": np.array([float(self._without_rows)])}
        return without if self._kept_rows is None else {**without, **self._kept_rows.arrays()}

    def _kept_arrays_with(self, other: Any) -> Arrays:
        """Return ``_kept_arrays`` with the other's rows too; UserWarning where one of both has none."""
        if self._kept_rows is not None and other._kept_rows is not None:
            return {**self._kept_arrays(), **self._kept_rows.joined(other._kept_rows).arrays()}
        if self._kept_rows is None and other._kept_rows is None:
            return self._kept_arrays()
        warnings.warn(
            f"{'other' if other._kept_rows is None else 'this estimator'} has kept no rows, so that the merged one has "
            "no threshold for alarms: learn both with contamination set",
            stacklevel=7,
        )
        return {"without_rows": np.array([2.0])}

    def _restore_kept(self, arrays: Arrays) -> None:
        self._kept_rows = KeptRows.from_arrays(arrays, self.n_features_in_) if "kept_size" in arrays else None
        known = "without_rows" in arrays
        self._without_rows = int(checks.not_negative(arrays, "without_rows", (1,))[0]) if known else int(not arrays)
        checks.number_within(self._without_rows, "without_rows", 0, len(WITHOUT_ROWS) - 1)

    # -- alarms ----------------------------------------------------------------------------------------------------
    def score_samples(self, X: Rows) -> NDArray[np.float64]:
        """Score the rows of X, (n_samples,): the lower, the more abnormal.

        Minus the largest of three numbers. Two are from their medians over the training rows that are kept for the
        threshold, in units of the upper quartile less the median: the logarithm of the squared Mahalanobis distance;
        and a weighted mean of this, of that of the distance by the variances of the columns alone, and of those of what
        the leading directions leave of a row, whose weights, not negative and 1 in all, minimise its variance. The
        third is the logarithm of the largest squared distance along one of the leading directions that hold for rows
        left out, its 90% quantile midway between median and 90% quantile of the larger of the other two. Distances are
        by a matrix without shrinkage where ``shrinkage="auto"`` and rows left out are likelier by that. In a singular
        matrix what has no variance is as far away as 1e-9 of the columns' mean variance would have it. All this is in
        standard units (``scale_``). A row that differs from a column that never varied has there the deviation that it
        would have if it had been learned from, the only one that differs: (n + 1) / sqrt(n), however large the
        difference is. Without rows kept (``contamination=None``, a stream of jobs) the score is the Gaussian
        log-density, on another scale, -inf where ``covariance_`` is singular.

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

        def scores(rows: Any, mean: NDArray[np.float64]) -> NDArray[np.float64]:
            model, threshold = self._scorer()  # found once, and not before the rows are checked
            return -threshold.score(model, rows, mean)

        return self._measured(X, scores)

    def _share_asked(self) -> float | None:
        asked = self.contamination
        if isinstance(asked, str):
            raise TypeError(f"contamination must be a share of rows, 0.01 unless given, or None, got {asked!r}")
        return None if asked is None else as_real(asked, "contamination", 0.0, 0.5, low_open=True)

    def _leading(self) -> Pairs:
        """Return the leading eigenvalues and eigenvectors of the covariance in standard units; they are cached."""
        return self._read_once("leading", lambda: leading_pairs(self._standard()[1], sketch_size_of(self.sketch_)))

    def _scorer(self) -> tuple[RowModel, Threshold]:
        return self._read_once("scorer", self._set_threshold, self.shrinkage, self.alpha0)

    def _set_threshold(self, *_: Any) -> tuple[RowModel, Threshold]:
        (units, matrix), pairs = self._standard(), self._leading()
        counts = counts_for(pairs[0], matrix.trace, self.n_features_in_)
        kept: Any = self._kept_rows
        rows, weights = kept.sample()
        sample = KeptSample(self.sketch_, matrix, *units.apply(rows), weights)
        # where a pseudo-inverse would be blind: columns that never varied, sums that always held
        shrunk, least = self._read(), NOTHING_LEFT * matrix.trace / self.n_features_in_
        if shrunk.floor < least:
            shrunk = shrunk._replace(floor=least)
            shrunk = shrunk._replace(matrix=shrunk.as_much(matrix, pairs))
        if self.shrinkage == "auto" and isinstance(matrix, DenseCovariance):
            shrunk = likelier(sample, pairs, shrunk.without_share(matrix, least), shrunk)
        return RowModel(shrunk.matrix, pairs), set_threshold(sample, pairs, counts, shrunk)

    def _level(self) -> tuple[float, NDArray[np.float64]]:
        check_is_fitted(self, "sketch_")
        share = self._share_asked()
        if self._kept_rows is None:
            why = WITHOUT_ROWS[self._without_rows]
            raise ValueError(f"a threshold needs rows kept aside, and this estimator has none: {why}")
        if share is None:
            raise ValueError("a threshold needs a share of alarms, and contamination is None: set it; rows are kept")
        return self._read_once(
            "level", lambda *_: self._scorer()[1].exceeded_by(share), share, self.shrinkage, self.alpha0
        )

    @property
    def offset_(self) -> float:
        return -self._level()[0]

    @property
    def alarm_interval_(self) -> NDArray[np.float64]:
        return self._level()[1]

    def decision_function(self, X: Rows) -> NDArray[np.float64]:
        """Return ``score_samples(X) - offset_``, (n_samples,): negative for alarms.

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
        """Return 1 for rows like those learned from, and -1 for alarms, (n_samples,).

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
        (0.064, array([0.037, 0.064]))
        """
        return np.where(self.decision_function(X) < 0, -1, 1)
