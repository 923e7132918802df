"""Covariance on a sketch, or on the exact matrix where that costs little more."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import Rows, as_choice, as_flag, as_integer, as_real, as_weights, rows_with_weight
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import Batch
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, with_missing
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import SolverName
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.sklearn._alarms import WITHOUT_ROWS, AlarmEstimator
from fastsketch.sklearn._column_scales import MOST_SCALE_ROWS, ColumnScales
from fastsketch.sklearn._estimator import (
    Arrays,
    as_unweighted_source,
    estimator,
    exact_is_fair,
    whole_or_as_before,
)
from fastsketch.sklearn._gaussian import (
    NOTHING_LEFT,
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    ledoit_wolf,
    oracle_approximating,
    projected,
    rounding_of,
)
from fastsketch.sklearn._kept_rows import KeptRows
from fastsketch.sklearn._missing import complete_rows

SOLVERS = ("auto", "gram", "svd", "exact")
SHRINKAGES = ("auto", "ledoit-wolf", "oas")
MOST = float(np.finfo(np.float64).max)


@estimator
class SketchedCovariance(AlarmEstimator, EmpiricalCovariance):
    """Covariance, precision, Mahalanobis distances and likelihood in one pass, exact or in O(sketch_size d) memory.

    Where the d x d matrix is in memory it is used as it is. Otherwise the leading eigenvalues are the variances along
    the directions that the sketch keeps. All other directions share the remainder of the trace, which is known exactly;
    kept directions whose variance is not above that mean are pooled with them.

    Columns are standardised internally: shrinkage, directions, distances and scores are those of the correlation
    matrix, so that they do not depend on the unit of a column. A sketch learns columns divided by powers of two
    (``scale_rows``). Its answers are the same if a unit is changed by a power of two; after any other change of unit
    they are those of a column that is scaled by a factor between one half and two.

    Parameters
    ----------
    sketch_size : int, default 64
        Rows l of the sketch; above n_features nothing is lost.
    alpha0 : float, default 0.0
        Ridge: alpha0 / (sum of weights) I is added to the covariance of columns in standard units. May change at any
        time.
    assume_centered : bool, default False
        Take the mean to be zero. ``from_model`` sets it to True for a sketch with center=False, which has no mean.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        "auto" accumulates the exact matrix up to the n_features that `max_memory` allows, and where that takes no more
        than about four times the time of the sketch (n_features <= 44 sketch_size + 1200); "gram" is for speed first.
    method : {"tfd", "rfd", "fd", "pfd", "cfd", "isvd"}, default "tfd"
        See ``fastsketch.FrequentDirections``; without effect on the exact matrix.
    beta : float in [0, 1], optional
        Of methods "tfd" (0.45 if not given) and "pfd": 0.1 is more exact where rows come in no order, 0.45 where
        directions of their own come late.
    shrinkage : None, "ledoit-wolf", "oas", "auto" or float in [0, 1], default "auto"
        A float is the intensity s of (1 - s) R + s I, where R is the correlation matrix; the variances of the columns
        are not shrunk. "oas" computes s as scikit-learn's OAS does for standardised columns, "ledoit-wolf" as
        LedoitWolf does, with fourth moments of the retained rows (with contamination=None rows are retained if this is
        set when learning begins). "auto" is "oas". The number of rows in these formulas is Kish's effective number,
        (sum of weights)^2 / sum of squared weights. With a sketch R is the matrix that the sketch stands for, with the
        trace shared by the directions that it does not keep. May change at any time: no further pass is needed.
    max_memory : float, default 1e9
        Bytes that the exact matrix and its copies (32 n_features^2) may take.
    contamination : float or None, default 0.01
        Share of alarms (-1 of ``predict``) among new rows that are exchangeable with those learned from, unmarked
        anomalies among them; above 0, at most 0.5. May change at any time. A uniform sample of the rows without missing
        numbers is retained, 4,000 or 50 MB at most: scores and threshold are fitted to it. None: no rows are retained,
        and there are no alarms.
    support_fraction : float in [0.5, 1], default 0.75
        Share of the retained rows to which the scores are fitted, those that lie nearest, as in scikit-learn's
        MinCovDet; 0.75 is recommended by Rousseeuw and Van Driessen (1999). 1 trims no rows. May change at any time.
    fill : {"mean", "drop"} or None, default None
        What becomes of rows with NaN: refused, learned with the mean of the column so far, or left out. In both cases
        ``score_samples`` and ``predict`` judge new rows by the columns that they have, and ``mahalanobis``,
        ``leverage`` and ``projection_distance`` put ``location_`` in place of missing numbers.
    scale_rows : int, default 100
        With a sketch, the first rows of positive weight, 4,000 at most, that fix what each column is divided by before
        the sketch learns it: the power of two nearest to its deviation among them. A column that had one number c in
        all of them is divided by that nearest to c; one of zeros by that nearest to its root mean square when it first
        has another number. The rows are kept until so many have come, and are then no longer needed.

    Attributes
    ----------
    location_ : ndarray (n_features,)
        Mean, exact; zeros with assume_centered.
    covariance_, precision_ : ndarray (n_features, n_features)
        float64, in the units of the rows, made when they are read: at large d use ``mahalanobis`` and ``score``, which
        need O(l d) a row.
    scale_ : ndarray (n_features,)
        What brings columns to standard units: of the exact matrix their deviations, 0 for a column that never varied,
        which is zero in ``covariance_`` and ``precision_``; with a sketch powers of two (``scale_rows``), 0 for a
        column of zeros; ones for a sketch from elsewhere (``from_model``, a job).
    shrinkage_ : float
        The intensity in use.
    eigenvalues_ : ndarray (k,)
        Of the covariance in standard units, those of its kept directions, descending (of the exact matrix the leading
        sketch_size).
    noise_variance_ : float
        Mean variance of all other directions in standard units; with a sketch the eigenvalue that they share.
    n_samples_seen_, n_features_in_ : int
    error_bound_ : float
        Bound on the spectral norm of the error of ``covariance_`` against the empirical covariance plus
        ``alpha0 / n diag(scale_ ** 2)``: what the sketch does not know, and shrinkage.
    robust_ : bool
        Whether scores are fitted to the nearest retained rows: if ``support_fraction`` is below 1 and these are more
        than five for each column (Rousseeuw and van Zomeren 1990). Otherwise they are those of all rows.
    offset_ : float
        Rows of a lower ``score_samples`` are alarms.
    alarm_interval_ : ndarray (2,)
        95% interval of the share of alarms among new rows, by the Beta distribution of a conformal threshold; it is
        narrower the more rows are retained.
    n_missing_ : int
        Number of entries that were filled (fill="mean"), or of rows that were left out (fill="drop").
    sketch_ : fastsketch.FrequentDirections

    Notes
    -----
    ``covariance_`` and ``mahalanobis`` are those of all rows. ``score_samples`` is minus the squared Mahalanobis
    distance of the minimum regularised covariance determinant (MRCD): two concentration steps from the distances of all
    retained rows keep the nearest ones, and the covariance of these is shrunk by "oas" (or by the number that
    `shrinkage` is) and multiplied by its consistency factor. Anomalies that are many and all in one place may withstand
    these steps.

    ``contamination`` is a share of new rows; in scikit-learn's detectors it is one of the rows learned from, which lie
    nearer to the model than new rows do. So ``fit_predict`` raises fewer alarms than these do. The threshold is
    conformal: the retained rows are measured by ten-fold cross-validation, in which each fold is removed from the
    moments (a single row from those of a sketch). The more rows are retained the nearer is the share of alarms to
    `contamination`: it is within a factor of 1.5 of 5% from about 500 rows on, and of 1% from about 3,000. Weights are
    not used in the threshold.

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
        """Forget everything and learn from X, array or sparse (n_samples, n_features), or a source of rows.

        A source (``fs.open_rows``, a data set of HDF5, ...) is read in chunks, and takes no weights.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or source
        y : ignored
        sample_weight : array_like (n_samples,), optional
            Nonnegative: a row of weight w counts as w rows in means and covariances. Of the number of rows by which
            the intensity of shrinkage is chosen see `shrinkage`; concentration steps and threshold count each row once.
        """
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._fit_source(source)
        with whole_or_as_before(self):
            rows, weights = self._checked_all(X, sample_weight)
            self._drop("sketch_", "_scales", "_kept_rows", "_without_rows", "_weight_squares", "n_missing_")
            return self._learn_rows(rows, weights)

    @changes
    def partial_fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one more batch of any size, or from a source of rows.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or source
        y : ignored
        sample_weight : array_like (n_samples,), optional
            As for ``fit``.
        """
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._partial_fit_source(source)
        with self._whole_batch():
            rows = self._checked_more(X)
            rows, weights = rows_with_weight(rows, as_weights(sample_weight, rows.shape[0]), checked=True)
            return self._learn_rows(rows, weights) if rows.shape[0] else self

    def _learn_rows(self, X: Any, weights: NDArray[np.float64] | None) -> Self:
        self._shrinkage_asked()
        self._support_asked()
        as_real(self.alpha0, "alpha0", 0.0, MOST)
        sketch = self._model_for(X)
        first = sketch.n_features is None
        complete = complete_rows(X) if self.fill == "mean" else None
        X, weights, missing = self._without_missing(X, weights, first=first)
        self._check_squares(X, weights, first=first)
        keeps = self._share_asked() or self._shrinkage_asked() == "ledoit-wolf"
        kept = (KeptRows.like(X) if keeps else None) if first else self._kept_rows
        squares = 0.0 if first else self._weight_squares
        if squares is not None:
            squares += float(X.shape[0]) if weights is None else float(weights @ weights)
        if kept is not None:
            kept = kept.after(X, weights, first=sketch.n_rows, complete=complete)
        scales = self._first_scales(sketch, X.shape[1]) if first else self._scales
        if scales is not None:
            self._name_features(sketch)
            scales, sketch, X, weights = scales.prepare(sketch, X, weights)
        without = 0 if first else self._without_rows
        beside = {"_scales": scales, "_kept_rows": kept, "_without_rows": without, "_weight_squares": squares}
        self._teach(sketch, X, weights, n_missing_=missing, **beside)
        return self

    def _first_scales(self, sketch: FrequentDirections, n_features: int) -> ColumnScales | None:
        """Return the scales with which a sketch begins; None for an exact sum."""
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
        sketch = self.sketch_
        parameters = self._parameters_for(sketch)
        for name in ("sketch_size", "method", "assume_centered"):
            if getattr(self, name) != parameters[name]:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but {parameters[name]!r} in its sketch")
        self._scales = ColumnScales.from_arrays(arrays, self.n_features_in_)
        self.n_missing_ = int(checks.not_negative(arrays, "missing", (1,))[0]) if arrays else 0
        known = "weight_squares" in arrays
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
        sketch, scales = self._scales.merge(self.sketch_, other._scales, other.sketch_)
        return sketch, {**own, **scales.arrays()}

    @classmethod
    def _parameters_for(cls, model: FrequentDirections) -> dict[str, Any]:
        return {**super()._parameters_for(model), "assume_centered": not model.center}

    # -- the matrix ------------------------------------------------------------------------------------------------
    def _shrinkage_asked(self) -> float | str | None:
        if isinstance(self.shrinkage, str):
            return as_choice(self.shrinkage, "shrinkage", SHRINKAGES)
        return None if self.shrinkage is None else as_real(self.shrinkage, "shrinkage", 0.0, 1.0)

    def _total(self) -> float:
        total = self.sketch_.total_weight
        if not total > 0:
            raise ValueError("sample_weight was 0 for all rows: there is no covariance")
        return total

    def _effective_rows(self) -> float:
        """Return Kish's effective number of rows; for a sketch from elsewhere the total weight."""
        return self._total() if self._weight_squares is None else self._total() ** 2 / self._weight_squares

    def _share(self, matrix: SpikedCovariance | DenseCovariance) -> float:
        """Return the intensity of shrinkage that the parameter stands for; `matrix` is in standard units."""
        asked, n, d = self._shrinkage_asked(), self._effective_rows(), self._n_varying()
        if not isinstance(asked, str):
            return asked or 0.0
        if asked != "ledoit-wolf":
            return oracle_approximating(matrix.squares, n=n, size=d)
        if self._kept_rows is None:
            why = WITHOUT_ROWS[self._without_rows]
            raise ValueError(
                "shrinkage='ledoit-wolf' needs fourth moments of rows kept aside, and this estimator has none: take "
                f"'oas', or: {why}"
            )
        rows, weights = self._kept_rows.sample()
        lengths = projected(*self._standard()[0].apply(rows), np.zeros((0, matrix.n_features)))[1]
        fourth = n * float(np.average(lengths * lengths, weights=weights))
        return ledoit_wolf(matrix.trace, matrix.squares * matrix.trace**2, fourth, n=n, d=d)

    def _read(self) -> ShrunkCovariance:
        """Return the shrunk covariance in standard units, made once for each pair of parameters."""
        return self._read_once("covariance", self._shrink, self.shrinkage, self.alpha0)

    def _shrink(self, shrinkage: Any, alpha0: Any) -> ShrunkCovariance:
        matrix, share = self._standard()[1], self._share(self._standard()[1])
        ridge = as_real(alpha0, "alpha0", 0.0, MOST) / self._total()
        floor = share * matrix.trace / self._n_varying() + ridge
        return ShrunkCovariance(matrix.shrunk(share, floor), share, floor)

    @property
    def covariance_(self) -> NDArray[np.float64]:
        scale = self._standard()[0].scale
        return self._read().matrix.matrix() * scale * scale[:, np.newaxis]

    @property
    def shrinkage_(self) -> float:
        return self._read().share

    @property
    def eigenvalues_(self) -> NDArray[np.float64]:
        return self._kept(None)[0]

    @property
    def noise_variance_(self) -> float:
        matrix, values = self._read().matrix, self.eigenvalues_
        others = self.n_features_in_ - len(values)
        return max(0.0, matrix.trace - float(values.sum())) / others if others else 0.0

    @property
    def precision_(self) -> NDArray[np.float64]:
        return self.get_precision()

    def get_precision(self) -> NDArray[np.float64]:
        """Compute the inverse of ``covariance_``, (d, d).

        Where it is singular, the pseudo-inverse of the covariance of standardised columns, in the units of the rows;
        zeros for columns that never varied.
        """
        scale = self._standard()[0].scale
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        return self._read().matrix.inverse() * inverse * inverse[:, np.newaxis]

    @property
    def error_bound_(self) -> float:
        matrix = self._read().matrix
        (units, empirical), sketch, total = self._standard(), self.sketch_, self._total()
        ridge = self.alpha0 / total
        if isinstance(matrix, DenseCovariance):
            shrunk = matrix.matrix() - empirical.matrix()
            shrunk[np.diag_indices_from(shrunk)] -= ridge
            values = np.linalg.eigvalsh(shrunk * units.scale * units.scale[:, np.newaxis])
            return float(np.abs(values).max()) + rounding_of(sketch) / total
        # B'B, and covariance_ without the ridge, in the directions of B; all else has one eigenvalue
        s, basis = sketch.singular_values.astype(np.float64), sketch.components.astype(np.float64)
        turn = matrix.vectors @ basis.T
        own = (turn.T * (matrix.values - matrix.rest)) @ turn + (matrix.rest - ridge) * np.eye(len(s))
        values = np.linalg.eigvalsh(np.diag(s**2 / total) - own) if len(s) else np.zeros(0)
        if len(s) < matrix.n_features:
            values = np.append(values, ridge - matrix.rest)
        # A'A - B'B lies in [0, Delta], or in [-Delta, Delta]
        delta = sketch.shrinkage / total
        least = float(values.min()) - (delta if METHODS[sketch.method].compensates else 0.0)
        most = float(values.max()) + delta
        largest = float(units.scale.max())
        return (max(-least, most, 0.0) + rounding_of(sketch) / total) * largest * largest

    # -- rows against it -------------------------------------------------------------------------------------------
    def mahalanobis(self, X: Rows) -> NDArray[np.float64]:
        """Compute squared Mahalanobis distances (n_samples,) of the rows of X, array or sparse (n_samples, n_features).

        Where the covariance of columns in standard units is singular, of their projections on its range; where it is
        zero, as that of one row, all are 0, and a UserWarning says so.

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
        return self._measured(X, self._read().matrix.distances)

    def _warn_of_nothing(self) -> None:
        if not self._read().matrix.trace > 0:
            warn_caller(
                f"the covariance is zero, and so is every distance: n_samples_seen_={self.n_samples_seen_} rows do not "
                "differ; learn from others too, or set alpha0"
            )

    def score(self, X_test: Rows, y: Any = None) -> float:
        """Compute the mean Gaussian log-likelihood of the rows of X_test; -inf where ``covariance_`` is singular.

        A column that never varied counts in standard units, as if its deviation were 1.
        """
        return float(self._densities(X_test).mean())

    def _densities(self, X: Rows) -> NDArray[np.float64]:
        """Return Gaussian log-densities of the rows of X, (n_samples,); -inf where the covariance is singular."""
        check_is_fitted(self, "sketch_")
        self._warn_of_nothing()
        matrix, d = self._read().matrix, self.n_features_in_
        if np.isneginf(matrix.log_determinant):
            return np.full(self._checked_asked(X)[0].shape[0], -np.inf)
        constant = matrix.log_determinant + 2 * self._standard()[0].log_volume + d * np.log(2 * np.pi)
        return -0.5 * (self._measured(X, matrix.distances) + constant)

    def leverage(self, X: Rows, *, n_components: int | None = None) -> NDArray[np.float64]:
        """Compute the leverage of rows within the leading directions: sum of (v_j'(x - mean))^2 / (n lambda_j).

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        n_components : int, optional
            Directions that count; by default all that are kept.

        Returns
        -------
        ndarray (n_samples,)
            Large for rows that are rare within the subspace. n times it is the part of the squared Mahalanobis
            distance (Hotelling's T^2) that lies there.

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
        values, vectors = self._kept(n_components)
        least = NOTHING_LEFT * np.finfo(np.float64).eps * values.max(initial=0.0)  # less is rounding
        inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > least)
        squares = self._measured(X, lambda rows, mean: projected(rows, mean, vectors)[0] ** 2 @ inverse)
        return squares / self._total()

    def projection_distance(self, X: Rows, *, n_components: int | None = None) -> NDArray[np.float64]:
        """Compute the distance of rows to the subspace of the leading directions through the mean, in standard units.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        n_components : int, optional
            Directions of the subspace; by default all that are kept.

        Returns
        -------
        ndarray (n_samples,)
            Large for rows unlike any linear mixture of what was seen. Its square is the Q statistic, or squared
            prediction error, of process monitoring.

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
        vectors = self._kept(n_components)[1]
        return np.sqrt(self._measured(X, lambda rows, mean: projected(rows, mean, vectors)[1]))

    def _kept(self, n_components: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (eigenvalues (k,) of the shrunk covariance in standard units, directions (k, d))."""
        matrix, share, floor = self._read()
        if isinstance(matrix, SpikedCovariance):
            values, vectors = matrix.values, matrix.vectors
        else:
            values, vectors = self._leading()
            values = (1 - share) * values + floor
        if n_components is None:
            return values, vectors
        k = as_integer(n_components, "n_components", 1)
        if k > len(values):
            raise ValueError(f"n_components must be at most {len(values)}, the directions kept, got {k}")
        return values[:k], vectors[:k]
