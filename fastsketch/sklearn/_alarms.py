"""Alarms of an estimator of covariance: scores, a threshold from rows kept aside, rows with missing numbers."""

# scikit-learn has no types.
# pyright: basic

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import Rows, as_choice, as_real
from fastsketch.sklearn._estimator import SketchEstimator, checked
from fastsketch.sklearn._gaussian import ShrunkCovariance, empirical_covariance, leading_pairs
from fastsketch.sklearn._kept_rows import KeptRows
from fastsketch.sklearn._missing import FILLS, filled
from fastsketch.sklearn._outliers import RowModel, Threshold, counts_for, set_threshold


class AlarmEstimator(OutlierMixin, SketchEstimator):
    """Base of SketchedCovariance that scores rows, sets a threshold, and takes rows with missing numbers."""

    contamination: float | None
    fill: Any
    shrinkage: Any
    alpha0: float
    assume_centered: bool
    _kept_rows: KeptRows | None

    # of the subclass: its covariance as given out, that of a (matrix, pairs, total, n), log-densities of rows
    _read: Callable[[], ShrunkCovariance]
    _shrunk: Callable[..., ShrunkCovariance]
    _total: Callable[[], float]
    _densities: Callable[[Any], NDArray[np.float64]]
    _warn_of_nothing: Callable[[], None]

    @property
    def location_(self) -> NDArray[np.float64]:
        mean = self._learner.mean
        return np.zeros(self.n_features_in_) if self.assume_centered else np.asarray(mean)

    # -- rows ------------------------------------------------------------------------------------------------------
    def _checked(self, X: Any, *, reset: bool) -> Any:
        if self.fill is None:
            return super()._checked(X, reset=reset)
        as_choice(self.fill, "fill", FILLS)
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")

    def _checked_asked(self, X: Any) -> Any:
        """Return checked rows that are asked about, means in the place of missing numbers if there may be some."""
        check_is_fitted(self, "sketch_")
        rows = self._checked(X, reset=False)
        return rows if self.fill is None else filled(rows, self.location_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.fill is not None
        return tags

    # -- alarms ----------------------------------------------------------------------------------------------------
    def score_samples(self, X: Rows) -> NDArray[np.float64]:
        """Score the rows of X, (n_samples,): the lower, the more abnormal.

        Minus a weighted mean of the logarithms of the squared Mahalanobis distance and of what the leading directions
        leave of a row; the weights, not negative and 1 in all, minimise its variance over the training rows that are
        kept for the threshold. Without such rows (``contamination=None``, a stream of jobs) the Gaussian log-density,
        on another scale, -inf where ``covariance_`` is singular.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedCovariance
        >>> X = np.random.default_rng(0).standard_normal((500, 20))
        >>> X[7] += 5  # an outlier
        >>> int(SketchedCovariance().fit(X).score_samples(X).argmin())
        7
        """
        rows = self._checked_asked(X)
        if self._kept_rows is None or self.n_samples_seen_ < 2:
            return self._densities(rows)
        self._warn_of_nothing()
        model, threshold = self._scorer()
        return -threshold.score(model, rows)

    def _share_asked(self) -> float | None:
        asked = self.contamination
        if asked is not None and as_real(asked, "contamination", 0.0, 0.5) == 0.0:
            raise ValueError(f"contamination must be above 0 and at most 0.5, or None, got {asked!r}")
        return asked

    def _scorer(self) -> tuple[RowModel, Threshold]:
        return self._read_once("scorer", self._set_threshold, self.shrinkage, self.alpha0)

    def _set_threshold(self, *_: Any) -> tuple[RowModel, Threshold]:
        sketch, total = self.sketch_, self._total()
        matrix = empirical_covariance(sketch, total)
        values, vectors = leading_pairs(sketch, matrix, total)
        counts = counts_for(values, matrix.trace, self.n_features_in_)
        sample: Any = self._kept_rows
        kept, weights = sample.sample()
        return RowModel(self._read(), vectors, self.location_), set_threshold(
            sketch, kept, weights, counts, self._shrunk
        )

    def _level(self) -> tuple[float, NDArray[np.float64]]:
        check_is_fitted(self, "sketch_")
        share = self._share_asked()
        if share is None or self._kept_rows is None:
            raise ValueError(
                "a threshold needs rows kept aside: learn by fit or partial_fit with contamination set; a sketch from "
                "elsewhere, as that of a job, has none"
            )
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
            If no rows were kept: contamination is None, or the sketch came from elsewhere.
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
            If no rows were kept: contamination is None, or the sketch came from elsewhere.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedCovariance
        >>> X = np.random.default_rng(0).standard_normal((2000, 20))
        >>> model = SketchedCovariance(contamination=0.05).fit(X[:1000])
        >>> float((model.predict(X[1000:]) == -1).mean()), model.alarm_interval_.round(3)
        (0.056, array([0.037, 0.064]))
        """
        return np.where(self.decision_function(X) < 0, -1, 1)
