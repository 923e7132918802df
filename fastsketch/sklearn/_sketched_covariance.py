"""``SketchedCovariance``: a covariance learned in one pass, exactly where that is affordable, else by a sketch."""

# scikit-learn has no types.
# pyright: basic

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OutlierMixin, clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import Rows, as_choice, as_flag, as_integer, as_real, as_weights, rows_with_weight
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import Batch
from fastsketch._kernels.guard import changes
from fastsketch.covariance._anomaly_scores import AnomalyDetector, has_rows_to_trim
from fastsketch.covariance._column_scales import MOST_SCALE_ROWS, ColumnScales
from fastsketch.covariance._gaussian import ROUNDING_UNITS, ShrunkCovariance, projected, sum_of_squares
from fastsketch.covariance._kept_rows import WITHOUT_ROWS, KeptRows
from fastsketch.covariance._learned_covariance import LearnedCovariance, check_batch_squares
from fastsketch.covariance._missing import FILLS, Pattern, complete_rows, filled, missing_patterns, without_missing
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, with_missing
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import SolverName
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.sklearn._estimator import (
    Arrays,
    MergingEstimator,
    as_unweighted_source,
    checked,
    estimator,
    exact_is_fair,
    read_once,
    restored_on_error,
)

SOLVERS = ("auto", "gram", "svd", "exact")
SHRINKAGES = ("auto", "ledoit-wolf", "oas")
MOST = float(np.finfo(np.float64).max)


@estimator
class SketchedCovariance(OutlierMixin, MergingEstimator, EmpiricalCovariance):
    """Covariance estimator and outlier detector that learns in one pass, exactly or by a sketch.

    It estimates covariance and precision matrices, Mahalanobis distances, Gaussian likelihoods and anomaly scores.
    Where the d x d matrix is affordable it is accumulated exactly. Otherwise a sketch keeps sketch_size directions with
    their variances. All other directions share the remainder of the trace, which is known exactly; kept directions
    whose variance does not exceed that share are pooled with them.

    Columns are standardised internally: shrinkage, directions, distances and scores are those of the correlation
    matrix, and do not depend on the units of the columns, unless squares of a column leave the range of float64 (a
    column whose values are all below 1e-154 counts as constant). A sketch divides columns by powers of two
    (``scale_rows``) rather than by their deviations: its answers are unchanged if a unit is multiplied by a power of
    two, and otherwise change as if the column were multiplied by a factor between one half and two.

    Parameters
    ----------
    sketch_size : int, default 64
        Number of rows l of the sketch. If it exceeds n_features, the sketch is exact.
    alpha0 : float, default 0.0
        Ridge: alpha0 / (sum of weights) I is added to the covariance of standardised columns. May change after fit.
    assume_centered : bool, default False
        Whether the mean is taken to be zero. ``from_model`` sets it for a sketch with center=False, which has no mean.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        "exact" accumulates the d x d matrix, "gram" and "svd" are the solvers of the sketch. "auto" is "exact" if
        `max_memory` allows it and n_features <= 44 sketch_size + 1200, where it takes up to about four times the time
        of the sketch, and else "gram".
    method : {"tfd", "rfd", "fd", "pfd", "cfd", "isvd"}, default "tfd"
        Of the sketch: see ``fastsketch.FrequentDirections``. Without effect on the exact matrix.
    beta : float in [0, 1], optional
        Parameter of methods "tfd" (default 0.45) and "pfd". 0.1 is more accurate for rows in random order, 0.45 where
        new directions appear late in the stream.
    shrinkage : None, "ledoit-wolf", "oas", "auto" or float in [0, 1], default "auto"
        A float is the intensity s of (1 - s) R + s I, where R is the correlation matrix; the variances of the columns
        are not shrunk. "oas" computes s as scikit-learn's OAS does for standardised columns, "ledoit-wolf" as
        LedoitWolf does, with fourth moments of the retained rows (set it before
        learning if contamination is None, so that rows are retained). "auto" is "oas". The number of rows in these
        formulas is Kish's effective sample size, (sum of weights)^2 / sum of squared weights. For a sketch, R is the
        matrix that the sketch represents, all its eigenvalues included. May change after fit, without another pass.
    max_memory : float, default 1e9
        Maximum bytes of the exact matrix with its copies, 32 n_features^2.
    contamination : float or None, default 0.01
        Share of alarms (``predict`` returns -1) among new rows, in (0, 0.5]; it assumes that new rows and training rows
        are exchangeable, unmarked anomalies included. May change after fit. Scores and threshold are fitted to a
        uniform random sample of the training rows without missing values, which is retained: at most 4,000 rows or
        50 MB. With None no rows are retained, and ``predict`` raises ValueError.
    support_fraction : float in [0.5, 1], default 0.75
        Share of the retained rows to which scores are fitted, those of the smallest distances, as in scikit-learn's
        MinCovDet; 0.75 is recommended by Rousseeuw and Van Driessen (1999). 1 disables trimming. May change after fit.
    fill : {"mean", "drop"} or None, default None
        Treatment of training rows with NaN: None raises ValueError, "mean" imputes the mean of the column so far,
        "drop" skips these rows. With "mean" or "drop", ``score_samples`` and ``predict`` use the observed columns of
        new rows, and ``mahalanobis``, ``leverage`` and ``projection_distance`` impute ``location_``.
    scale_rows : int, default 100
        Only with a sketch: number of first rows of positive weight, at most 4,000, from which the scale of each column
        is computed, the power of two nearest to its standard deviation. For a column that is a constant c in them it is
        the power of two nearest to c; for zeros, that nearest to the root mean square once the column is nonzero. These
        rows are buffered until the scales are fixed.

    Attributes
    ----------
    location_ : ndarray (n_features,)
        Exact mean; zeros with assume_centered.
    covariance_, precision_ : ndarray (n_features, n_features)
        float64, in the units of the rows, computed on each access. At large d use ``mahalanobis`` and ``score``, which
        take O(l d) per row with a sketch.
    scale_ : ndarray (n_features,)
        Divisor of each column. With the exact matrix: its standard deviation, 0 for a constant column, which is zero in
        ``covariance_`` and ``precision_``. With a sketch: a power of two (``scale_rows``), 0 for a column of zeros, and
        1 for a sketch that was made elsewhere (``from_model``, a job).
    shrinkage_ : float
        Intensity of shrinkage in use.
    eigenvalues_ : ndarray (k,)
        Eigenvalues of the shrunk covariance of standardised columns, descending: of the directions that the sketch
        keeps, or the leading sketch_size of the exact matrix.
    noise_variance_ : float
        Mean variance of all other directions of standardised columns.
    n_samples_seen_, n_features_in_ : int
    error_bound_ : float
        Bound on the spectral norm of the difference between ``covariance_`` and the empirical covariance with the ridge
        ``alpha0 / n diag(scale_ ** 2)`` added. It covers the error of the sketch, shrinkage and rounding.
    robust_ : bool
        Whether scores are fitted to the nearest retained rows (MRCD). They are if ``support_fraction`` is below 1, if
        these rows are more than five per column (Rousseeuw and van Zomeren 1990), and if they are not an exact fit,
        that is, if every column that varies in the retained rows also varies in the nearest ones. Otherwise scores are
        the distances by all rows.
    offset_ : float
        Rows with ``score_samples`` below it are alarms.
    alarm_interval_ : ndarray (2,)
        95% interval of the share of alarms among new rows, from the Beta distribution of a conformal threshold. It is
        narrower the more rows are retained.
    n_missing_ : int
        Number of imputed entries (fill="mean") or of skipped rows (fill="drop").
    sketch_ : fastsketch.FrequentDirections

    Notes
    -----
    ``covariance_`` and ``mahalanobis`` use all rows. ``score_samples`` is minus the squared Mahalanobis distance of the
    minimum regularised covariance determinant (MRCD): two concentration steps, which start from the distances by all
    retained rows, select the nearest ones. Their correlation matrix is shrunk by "oas" (or by a number given as
    `shrinkage`), and their covariance is multiplied by its consistency factor. Many anomalies in one place may survive
    these steps.

    ``contamination`` refers to new rows. In scikit-learn's detectors it refers to the training rows, which lie nearer
    to the model than new rows do, so that ``fit_predict`` raises more alarms there. The threshold is a conformal
    quantile of cross-validated distances of the retained rows: ten folds with the exact matrix and the MRCD,
    leave-one-out with a sketch. The more rows are retained, the nearer is the share of alarms to `contamination`:
    within a factor of 1.5 of 5% from about 500 rows, and of 1% from about 3,000. Weights are not used in the threshold.

    Distances of new rows under the exact matrix without shrinkage are too large by about 1 + d / n: with n below about
    3 d^1.5 more than twice too many normal rows lie beyond the 1% threshold of the chi-squared law (d = 1,000, n =
    20,000: 13%). Linear shrinkage makes them too small where a few large eigenvalues lift its target far above the
    noise. ``predict`` needs no such law.

    References
    ----------
    Boudt, Rousseeuw, Vanduffel, Verdonck, Statistics and Computing 30 (2020); Rousseeuw, Van Driessen, Technometrics 41
    (1999); Croux, Haesbroeck, J. Multivariate Analysis 71 (1999); Rousseeuw, van Zomeren, J. American Statistical
    Association 85 (1990). Shrinkage: Ledoit, Wolf, J. Multivariate Analysis 88 (2004); Chen, Wiesel, Eldar, Hero, IEEE
    Trans. Signal Proc. 58 (2010). Thresholds: Bates, Candes, Lei, Romano, Sesia, Annals of Statistics 51 (2023).
    Leverage and projection distance from sketches: Sharan, Gopalan, Wieder, NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedCovariance
    >>> X = np.random.default_rng(0).standard_normal((500, 30))
    >>> X[7] += 5  # an outlier
    >>> distances = SketchedCovariance(sketch_size=8).fit(X).mahalanobis(X)
    >>> distances.shape, int(distances.argmax())
    ((500,), 7)
    """

    # The parent's declaration does not know the new parameters; they are checked in _start.
    _parameter_constraints: ClassVar[dict[str, Any]] = {}
    _MODEL: ClassVar = "sketch_"
    _KIND: ClassVar = FrequentDirections
    _FREE: ClassVar = frozenset({"alpha0", "shrinkage", "contamination", "support_fraction"})

    sketch_size: int = 64
    _: KW_ONLY
    alpha0: float = 0.0
    assume_centered: bool = False
    solver: SolverName = "auto"
    method: MethodName = "tfd"
    beta: float | None = None
    shrinkage: float | str | None = "auto"
    max_memory: float = 1e9
    contamination: float | None = 0.01
    support_fraction: float = 0.75
    fill: Literal["mean", "drop"] | None = None
    scale_rows: int = 100

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the covariance to X, discarding what was learned before.

        A source (``fs.open_rows``, an HDF5 data set, ...) is read in chunks, and takes no weights.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or source
        y : ignored
        sample_weight : array_like (n_samples,), optional
            Nonnegative. A row of weight w counts as w rows in means and covariances. The intensity of shrinkage uses
            Kish's effective sample size; threshold and selection of the nearest rows count each row once.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X has NaN and `fill` is None, infinity, or values whose squares overflow. The estimator is then as before
            the call.
        """
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._fit_source(source)
        with restored_on_error(self):
            rows, weights = self._checked_all(X, sample_weight)
            self._drop("sketch_", "_scales", "_kept_rows", "_without_rows", "_weight_squares", "n_missing_")
            return self._learn_rows(rows, weights)

    @changes
    def partial_fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Update the covariance with one more batch, or with the rows of a source.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or source
        y : ignored
        sample_weight : array_like (n_samples,), optional
            As for ``fit``.

        Returns
        -------
        self
        """
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._partial_fit_source(source)
        with self._atomic_batch():
            rows = self._checked_more(X)
            rows, weights = rows_with_weight(rows, as_weights(sample_weight, rows.shape[0]), checked=True)
            return self._learn_rows(rows, weights) if rows.shape[0] else self

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

    def _without_missing(self, X: Any, weights: Any, *, first: bool) -> tuple[Any, Any, int]:
        """Fill missing values or drop their rows, according to the parameter `fill`. Return rows, weights, and the new
        count for ``n_missing_``.
        """
        before = 0 if first else self.n_missing_
        if self.fill is None:
            return X, weights, before
        names, mean = getattr(self, "feature_names_in_", None), None if first else self.location_
        rows, weights, missing = without_missing(X, weights, self.fill, mean, names=names)
        return rows, weights, before + missing

    def _learn_rows(self, X: Any, weights: NDArray[np.float64] | None) -> Self:
        self._shrinkage_asked()
        self._support_asked()
        as_real(self.alpha0, "alpha0", 0.0, MOST)
        sketch = self._model_for(X)
        first = sketch.n_features is None
        complete = complete_rows(X) if self.fill == "mean" else None
        X, weights, missing = self._without_missing(X, weights, first=first)
        earlier, scales = (None, None) if first else (sketch, self._scales)
        check_batch_squares(X, weights, earlier, scales, center=not self.assume_centered)
        keeps = self._share_asked() or self._shrinkage_asked() == "ledoit-wolf"
        kept = (KeptRows.like(X) if keeps else None) if first else self._kept_rows
        squares = 0.0 if first else self._weight_squares
        if squares is not None:
            squares += float(X.shape[0]) if weights is None else sum_of_squares(weights)
        if kept is not None:
            kept = kept.after(X, weights, first=sketch.n_rows, complete=complete)
        scales = self._first_scales(sketch, X.shape[1]) if first else self._scales
        if scales is not None:
            self._name_features(sketch)
            scales, sketch, X, weights = scales.prepare(sketch, X, weights)
        without = 0 if first else self._without_rows
        attributes = {"_scales": scales, "_kept_rows": kept, "_without_rows": without, "_weight_squares": squares}
        self._teach(sketch, X, weights, n_missing_=missing, **attributes)
        return self

    def _first_scales(self, sketch: FrequentDirections, n_features: int) -> ColumnScales | None:
        """Return the column scales with which a new sketch starts. None for the exact matrix, which is standardised
        when it is read.
        """
        n_first = as_integer(self.scale_rows, "scale_rows", 1, MOST_SCALE_ROWS + 1)
        return None if sketch.solver == "exact" else ColumnScales.begin(n_first, n_features)

    def _template(self, n_rows: int | None, n_features: int, dtype: np.dtype[Any] | None) -> FrequentDirections:
        size = as_integer(self.sketch_size, "sketch_size", 2)
        as_choice(self.method, "method", tuple(METHODS))
        solver: Any = as_choice(self.solver, "solver", SOLVERS)
        fair = exact_is_fair(n_features, size, self.max_memory)
        if solver == "auto":
            solver = "exact" if fair else "gram"
        center = not as_flag(self.assume_centered, "assume_centered")
        return FrequentDirections(size, method=self.method, beta=self.beta, solver=solver, center=center, dtype=dtype)

    def _fit_source(self, source: Source) -> Self:
        begun: Any = clone(self)
        self._become(begun._partial_fit_source(source))  # a job keeps no rows
        return self

    def _partial_fit_source(self, source: Source) -> Self:
        return super()._partial_fit_source(source if self.fill is None else with_missing(source))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.fill is not None
        return tags

    def _job(self, source: Source) -> tuple[Any, Any]:
        if self._shrinkage_asked() == "ledoit-wolf":
            raise ValueError(
                "shrinkage='ledoit-wolf' needs fourth moments of rows kept aside, and a job keeps none: take 'oas' or "
                "'auto', or call fit or partial_fit"
            )
        return super()._job(source)

    # -- merging, files, sketches (_estimator.py) ------------------------------------------------------------------
    def _own(self) -> Arrays:
        scales = {} if self._scales is None else self._scales.arrays()
        squares = {} if self._weight_squares is None else {"weight_squares": np.array([self._weight_squares])}
        return {"missing": np.array([float(self.n_missing_)]), **squares, **self._kept_arrays(), **scales}

    def _restore_own(self, arrays: Arrays) -> None:
        sketch = self._learner
        parameters = self._parameters_for(sketch)
        for name in ("sketch_size", "method", "assume_centered"):
            if getattr(self, name) != parameters[name]:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but {parameters[name]!r} in its sketch")
        # None for the exact matrix, and for a sketch that was not learned by this estimator
        self._scales = ColumnScales.from_arrays(arrays, self.n_features_in_)
        self.n_missing_ = int(checks.not_negative(arrays, "missing", (1,))[0]) if arrays else 0
        known = "weight_squares" in arrays
        # the sum of squared weights; None for a sketch that was not learned by this estimator
        self._weight_squares = float(checks.not_negative(arrays, "weight_squares", (1,))[0]) if known else None
        self._restore_kept(arrays)

    def _own_with(self, other: Any) -> Arrays:
        missing = {"missing": np.array([float(self.n_missing_ + other.n_missing_)])}
        squares = self._weight_squares, other._weight_squares
        if squares[0] is not None and squares[1] is not None:
            missing["weight_squares"] = np.array([squares[0] + squares[1]])
        return {**missing, **self._kept_arrays_with(other)}

    def _merged(self, other: Any) -> tuple[FrequentDirections, Arrays]:
        if (self._scales is None) != (other._scales is None):
            raise ValueError(
                "one of the two has a sketch of rows as they are, made elsewhere, the other one of columns divided by "
                "their scales: they cannot be merged; learn both by fit or partial_fit"
            )
        own = self._own_with(other)
        if self._scales is None:
            return self._merged_model(other._learner), own
        sketch, scales = self._scales.merge(self._learner, other._scales, other.sketch_)
        return sketch, {**own, **scales.arrays()}

    @classmethod
    def _parameters_for(cls, model: FrequentDirections) -> dict[str, Any]:
        resolved = {name: model.resolved[name] for name in ("sketch_size", "solver")}
        return {**super()._parameters_for(model), **resolved, "assume_centered": not model.center}

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

    # -- the matrix ------------------------------------------------------------------------------------------------
    def _shrinkage_asked(self) -> float | str | None:
        if isinstance(self.shrinkage, str):
            return as_choice(self.shrinkage, "shrinkage", SHRINKAGES)
        return None if self.shrinkage is None else as_real(self.shrinkage, "shrinkage", 0.0, 1.0)

    def _support_asked(self) -> float:
        return as_real(self.support_fraction, "support_fraction", 0.5, 1.0)

    def _share_asked(self) -> float | None:
        asked = self.contamination
        if isinstance(asked, str):
            raise TypeError(f"contamination must be a share of rows, 0.01 unless given, or None, got {asked!r}")
        return None if asked is None else as_real(asked, "contamination", 0.0, 0.5, low_open=True)

    def _learned(self) -> LearnedCovariance:
        """Return the covariance of all rows learned, as a LearnedCovariance, cached until more rows are learned."""

        def read() -> LearnedCovariance:
            return LearnedCovariance(
                self._learner, self._scales, self._kept_rows, self._without_rows, self._weight_squares
            )

        return read_once(self, "learned", read)

    def _shrunk(self) -> ShrunkCovariance:
        """Return the shrunk covariance of the standardised columns. It is cached until rows are learned or parameters
        change.
        """

        def shrink(_shrinkage: Any, alpha0: Any) -> ShrunkCovariance:
            return self._learned().shrink(self._shrinkage_asked(), as_real(alpha0, "alpha0", 0.0, MOST))

        return read_once(self, "covariance", shrink, self.shrinkage, self.alpha0)

    @property
    def location_(self) -> NDArray[np.float64]:
        if self._learner.total_weight > 0:
            return self._learned().units.mean.copy()
        mean = self._learner.mean
        return np.zeros(self.n_features_in_) if mean is None else np.asarray(mean)

    @property
    def scale_(self) -> NDArray[np.float64]:
        return self._learned().units.scale.copy()

    @property
    def covariance_(self) -> NDArray[np.float64]:
        scale = self._learned().units.scale
        return self._shrunk().matrix.matrix() * scale * scale[:, np.newaxis]

    @property
    def shrinkage_(self) -> float:
        return self._shrunk().share

    @property
    def eigenvalues_(self) -> NDArray[np.float64]:
        return self._leading_pairs(None)[0]

    @property
    def noise_variance_(self) -> float:
        matrix, values = self._shrunk().matrix, self.eigenvalues_
        others = self.n_features_in_ - len(values)
        return max(0.0, matrix.trace - float(values.sum())) / others if others else 0.0

    @property
    def precision_(self) -> NDArray[np.float64]:
        return self.get_precision()

    def get_precision(self) -> NDArray[np.float64]:
        """Compute the precision matrix, the inverse of ``covariance_``.

        If it is singular, this is the pseudo-inverse of the covariance of standardised columns, converted to the units
        of the rows. Constant columns have zeros.
        """
        scale = self._learned().units.scale
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        return self._shrunk().matrix.inverse() * inverse * inverse[:, np.newaxis]

    @property
    def error_bound_(self) -> float:
        return self._learned().error_bound(self._shrunk(), self.alpha0)

    # -- distances of rows ------------------------------------------------------------------------------------------
    def _checked_query(self, X: Any) -> tuple[Any, list[Pattern]]:
        """Validate rows that are to be scored, and replace missing values by means. Return the rows, and which columns
        were missing in which rows.

        ValueError if a value is too large for distances.
        """
        check_is_fitted(self, "sketch_")
        rows, patterns = self._checked(X, reset=False), []
        if self.fill is not None:
            patterns, rows = missing_patterns(rows), filled(rows, self.location_)
        self._learned().check_query(rows)
        return rows, patterns

    def _measured(self, X: Any, measure: Callable[[Any, NDArray[np.float64]], Any]) -> NDArray[np.float64]:
        """Validate and standardise X, and return one number for each row: what `measure(rows, mean)` computes."""
        return self._learned().units.measured(self._checked_query(X)[0], measure)

    def mahalanobis(self, X: Rows) -> NDArray[np.float64]:
        """Compute the squared Mahalanobis distance of each row from the mean.

        If the covariance is singular, they are those of the projections of the rows on its range. If it is zero, as
        after a single row, all distances are 0, with a UserWarning.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray of float64 (n_samples,)

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedCovariance
        >>> X = np.random.default_rng(0).standard_normal((500, 20))
        >>> X[7] += 5  # an outlier
        >>> model = SketchedCovariance().fit(X)
        >>> int(model.mahalanobis(X).argmax())
        7
        """
        check_is_fitted(self, "sketch_")
        self._warn_of_nothing()
        return self._measured(X, self._shrunk().matrix.distances)

    def _warn_of_nothing(self) -> None:
        if not self._shrunk().matrix.trace > 0:
            warn_caller(
                f"the covariance is zero, and so is every distance: n_samples_seen_={self.n_samples_seen_} rows do not "
                "differ; learn from others too, or set alpha0"
            )

    def score(self, X_test: Rows, y: Any = None) -> float:
        """Compute the mean Gaussian log-likelihood of rows; -inf if the covariance is singular.

        A constant column counts as if its standard deviation were 1.

        Parameters
        ----------
        X_test : array_like or sparse (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(self._densities(X_test).mean())

    def _densities(self, X: Rows) -> NDArray[np.float64]:
        """Compute the Gaussian log-density of each row; -inf if the covariance is singular."""
        check_is_fitted(self, "sketch_")
        self._warn_of_nothing()
        return self._learned().log_densities(self._shrunk(), self._checked_query(X)[0])

    def leverage(self, X: Rows, *, n_components: int | None = None) -> NDArray[np.float64]:
        """Compute the leverage of each row within the subspace of the leading principal directions.

        It is the sum of (v_j'(x - mean))^2 / (n lambda_j) over the directions v_j.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        n_components : int, optional
            Number of leading directions; by default all of ``eigenvalues_``.

        Returns
        -------
        ndarray (n_samples,)
            Large for rows that are rare within the subspace. The leverage times n is the contribution of the subspace
            to the squared Mahalanobis distance (Hotelling's T^2).

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedCovariance
        >>> X = np.random.default_rng(0).standard_normal((500, 20))
        >>> X[7] += 5  # an outlier
        >>> model = SketchedCovariance().fit(X)
        >>> int(model.leverage(X).argmax())
        7
        """
        check_is_fitted(self, "sketch_")
        self._warn_of_nothing()
        values, vectors = self._leading_pairs(n_components)
        rounding = ROUNDING_UNITS * np.finfo(np.float64).eps * values.max(initial=0.0)
        inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > rounding)
        squares = self._measured(X, lambda rows, mean: projected(rows, mean, vectors)[0] ** 2 @ inverse)
        return squares / self._learned().total

    def projection_distance(self, X: Rows, *, n_components: int | None = None) -> NDArray[np.float64]:
        """Compute the distance of each row from the subspace of the leading principal directions.

        The subspace goes through the mean, and the distance is in standard units.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        n_components : int, optional
            Dimension of the subspace; by default that of ``eigenvalues_``.

        Returns
        -------
        ndarray (n_samples,)
            Large for rows that no linear combination of the directions explains. Its square is the Q statistic (squared
            prediction error) of process monitoring.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedCovariance
        >>> X = np.random.default_rng(0).standard_normal((500, 20))
        >>> X[7] += 5  # an outlier
        >>> model = SketchedCovariance().fit(X)
        >>> distances = model.projection_distance(X, n_components=5)
        >>> distances.shape
        (500,)
        """
        check_is_fitted(self, "sketch_")
        vectors = self._leading_pairs(n_components)[1]
        return np.sqrt(self._measured(X, lambda rows, mean: projected(rows, mean, vectors)[1]))

    def _leading_pairs(self, n_components: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the leading eigenvalues and eigenvectors of the shrunk covariance of standardised columns."""
        values, vectors = self._learned().leading_of(self._shrunk())
        if n_components is None:
            return values, vectors
        k = as_integer(n_components, "n_components", 1)
        if k > len(values):
            raise ValueError(f"n_components must be at most {len(values)}, the directions kept, got {k}")
        return values[:k], vectors[:k]

    # -- anomaly scores and alarms ----------------------------------------------------------------------------------
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
        return -self._detector().distances(rows, patterns)

    def _detector(self) -> AnomalyDetector:
        """Return the Gaussian that scores rows, and its threshold. They are cached until rows are learned or parameters
        change.
        """

        def fit(*_: Any) -> AnomalyDetector:
            learned, shrunk = self._learned(), self._shrunk()
            return AnomalyDetector.fit(
                learned,
                shrunk,
                shrinkage=self._shrinkage_asked(),
                ridge=self.alpha0 / learned.total,
                support_fraction=self._support_asked(),
            )

        return read_once(self, "detector", fit, self.shrinkage, self.alpha0, self.support_fraction)

    @property
    def robust_(self) -> bool:
        check_is_fitted(self, "sketch_")
        kept_rows, support_fraction = self._kept_rows, self._support_asked()
        if kept_rows is None or support_fraction == 1.0:
            return False
        return has_rows_to_trim(kept_rows, self._learned().n_varying, support_fraction) and self._detector().robust

    def _level(self) -> tuple[float, NDArray[np.float64]]:
        check_is_fitted(self, "sketch_")
        share = self._share_asked()
        if self._kept_rows is None:
            why = WITHOUT_ROWS[self._without_rows]
            raise ValueError(f"a threshold needs rows kept aside, and this estimator has none: {why}")
        if share is None:
            raise ValueError("a threshold needs a share of alarms, and contamination is None: set it; rows are kept")
        return read_once(
            self,
            "level",
            lambda *_: self._detector().threshold.exceeded_by(share),
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
