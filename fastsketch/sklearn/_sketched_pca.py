"""``SketchedPCA``: principal component analysis, exact or by a sketch, with the interface of ``IncrementalPCA``.

In the order in which to read them: learning (``fit``, ``partial_fit``), missing entries, ``refine``, how the method of
a fit is chosen, the fitted attributes, the Gaussian model, then files and merges.
"""

# scikit-learn has no types.
# pyright: basic

from collections.abc import Iterator
from dataclasses import KW_ONLY, field
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.base import clone
from sklearn.decomposition import IncrementalPCA
from sklearn.utils import gen_batches
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import (
    MOST_SIZE,
    Rows,
    as_choice,
    as_flag,
    as_integer,
    as_real,
    as_rows,
    as_weights,
    check_finite,
    is_sparse,
    natural_dtype,
    rows_with_weight,
)
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import Batch, require_same_names
from fastsketch._kernels.guard import changes
from fastsketch.covariance._column_scales import (
    MOST_SCALE_ROWS,
    ColumnScales,
    DividedRows,
    Standardization,
    as_floats,
    standard_deviations,
    standardised_sketch,
)
from fastsketch.covariance._gaussian import SpikedCovariance
from fastsketch.covariance._kept_rows import MOST_ROWS, KeptRows
from fastsketch.covariance._moments import FeatureVariance, check_batch
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, naming, open_rows, with_missing
from fastsketch.data.sources._formats import known_as
from fastsketch.lowrank._gap_moments import GapMoments, dense_blocks, gaussian_of_covariance, group_if_one_block, run_em
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import SolverName, by_column, merge_engines
from fastsketch.sketching._exact_products import (
    ExactSketch,
    RowProducts,
    chunk_products,
    column_products,
    krylov_pairs,
    sparse_pairs,
)
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.sketching._rereading import Readable
from fastsketch.sklearn._estimator import (
    Arrays,
    MergingEstimator,
    as_far_source,
    as_unweighted_source,
    checked,
    estimator,
    read_once,
    restored_on_error,
)
from fastsketch.sklearn._principal_components import (
    MOST_PASSES,
    ComponentsReadOut,
    Reread,
    components_of,
    count_for,
    first_components,
    read_again,
)
from fastsketch.sklearn._routes import (
    WayName,
    cheapest_exact,
    choose,
    krylov_steps,
    most_rows_in_stream,
    problem_of,
    sums_in_stream,
)

SOLVERS = ("auto", "gram", "svd", "exact")
ANY_WAY = ("solver", "buffer_size", "sketch_size", "dtype")  # in which the sketches of two methods may differ
# Methods of ``fit`` by their number in files, "" for those that follow from the sketch; and ``solver_`` of exact
# methods.
WAYS = ("", "rows", "arpack", "krylov")
SOLVER_OF = {"rows": "rows", "columns": "exact", "pairs": "arpack", "krylov": "krylov"}
SIZE_OF_SHARE = 128  # rows of the sketch if n_components is None or a share
MOST = float(np.finfo(np.float64).max)
# Largest number of EM steps, and the change of means, scales and correlations at which they end: max_iter and tol of
# scikit-learn's IterativeImputer.
EM_STEPS, EM_TOLERANCE = 10, 1e-3
# Number of d x d float64 matrices that EM holds at a time.
GAUSSIAN_COPIES = 8
# Arrays of l x d numbers that a sketch and its results take, in the dtype of the rows; and that two further passes
# take, in float64: measured peaks at 40,000 columns.
SKETCH_COPIES, PASS_COPIES = 12, 10


@estimator
class SketchedPCA(MergingEstimator, IncrementalPCA):
    """Principal component analysis of rows in memory, in a file or in a stream.

    The components are exact wherever that costs no more than a randomized SVD. Otherwise they come from a Frequent
    Directions sketch, with guaranteed intervals for the variances. The interface is that of
    ``sklearn.decomposition.IncrementalPCA``.

    Parameters
    ----------
    n_components : int, float or None, default None
        Number of components, at most n_features. If there are fewer rows than components, the last components have
        variance 0, and later batches can fill them. A float in (0, 1) keeps the fewest components whose variances add
        up to more than this share of the total. None keeps min(n_samples, n_features) components of the first batch;
        after ``from_model`` also at most one less than the size of the sketch.
    whiten : bool, default False
        Scale the transformed components to unit variance. A component whose variance is 0 up to rounding becomes 0.
    copy : bool, default True
        Only for compatibility with scikit-learn: the input is never overwritten.
    batch_size : int, optional
        Number of rows that ``fit`` passes to a sketch at a time. The result does not depend on it.
    sketch_size : int, optional
        Number of rows l of the sketch, more than n_components and at most n_features + 1. Accuracy and cost grow with
        it. The default is 2 n_components + 10, or 128 if n_components is a float.
    method : {"tfd", "rfd", "fd", "cfd", "pfd", "isvd"}, default "tfd"
        Variant of Frequent Directions, see ``fastsketch.FrequentDirections``. "tfd" (tracked Frequent Directions) has
        the best point estimates of the variances.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        How the components are computed.

        - "exact" sums up the products of columns, a d x d matrix.
        - "gram" and "svd" learn a sketch in one pass, or in as many as `passes` says. One pass is the fastest way and
          the least accurate.
        - "auto" in ``fit`` counts floating-point operations. It computes exact components from the n x n products of
          rows or the d x d products of columns where that takes no more operations than a randomized SVD with l
          directions and seven power iterations, as scikit-learn makes them. This is the case up to about min(n, d) = 28
          l: 840 for ten components, 3,080 for fifty. For CSR rows in memory it uses Lanczos steps, like
          ``svd_solver="arpack"``, if min(n, d) is at least 600 and n_components at most a twelfth of it; and a block
          Krylov method instead, until the variances are accurate to `tol`, if a copy of their entries does not fit
          into `max_memory`. In all other cases it sketches the rows and then reads them again, up to `passes`, for a
          block Krylov method that starts from the sketch, until the variances are accurate to `tol`.
        - "auto" in ``partial_fit`` sums up the products of columns as long as they fit into `max_memory` (d up to
          6,400); for CSR rows only if that takes no more operations than a randomized SVD. Otherwise it sketches, and
          also keeps the rows themselves, at most 4,000, where by the rule of ``fit`` the products of rows would be
          taken.
    tol : float, default 1e-4
        Relative error of the variances at which ``fit`` stops reading the rows again. It is estimated, see
        ``converged_``. 0 takes an exact method whenever it fits into `max_memory`.
    passes : int, optional
        Largest number of times that ``fit`` reads the rows: 1 for the sketch alone. By default it is 8 if
        solver="auto" and the rows can be read again, otherwise 1. A warning is raised if `tol` is not reached. If no
        number is given, an exact method then learns rows in memory, where it fits into `max_memory`.
    max_memory : float, default 1e9
        Bytes that "auto" may use in addition to the rows. The memory of a sketch is not limited by it.
    scale : bool, default False
        Standardise the columns, so that the components do not depend on their units. Where products of columns are
        summed up, these are the components of the correlation matrix. A sketch learns rows divided by ``scale_``.
    scale_rows : int, default 100
        Only for ``partial_fit`` with scale=True and a sketch: the number of first rows of positive weight, at most
        4,000, that fix the scales of the columns, powers of two near their standard deviations. A column that is a
        constant c != 0 in these rows is divided by c. A column of zeros gets its root mean square when its first
        nonzero entry arrives.
    missing : {"error", "em"}, default "error"
        "error" refuses NaN. "em" treats NaN in dense rows of ``fit`` as missing entries: mean and covariance are
        estimated by expectation maximisation for a Gaussian (as ``LowRankCompleter`` does), in at most 10 passes, and
        ``transform`` fills missing entries with their conditional means. ``partial_fit`` refuses NaN, and ``fit`` takes
        no weights if entries are missing.

    Attributes
    ----------
    components_ : ndarray (n_components, n_features)
        Orthonormal rows by decreasing variance. The largest entry of each is positive, as in scikit-learn's PCA. Where
        fewer directions have been seen, directions of variance 0 follow.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray (n_components,)
        Point estimates; exact up to rounding if ``solver_`` is "rows", "exact" or "arpack", and up to an estimated
        error of `tol` / 2 if it is "krylov". After one pass of a sketch
        a UserWarning is raised, once, if the guaranteed interval of a variance is wider than the variance.
    explained_variance_interval_ : ndarray (n_components, 2)
        float64. The i-th largest variance of the rows lies between the two numbers of row i. This is guaranteed for
        every stream. With "arpack" and "krylov" the upper ends assume that the random directions with which these
        methods start are orthogonal to no leading eigenvector.
    explained_variance_ratio_certified_ : ndarray (n_components,)
        Lower ends of the intervals as shares of the total variance, which is known exactly.
    error_bound_ : float
        Guaranteed bound on the error of every ``singular_values_ ** 2``.
    mean_, var_ : ndarray (n_features,)
        Means and variances of the columns, exact for every sketch size. ``var_`` raises AttributeError after
        ``from_model`` with a sketch that is not exact.
    scale_ : ndarray (n_features,) or None
        Divisors of the columns with scale=True: their population standard deviations after ``fit``, and while
        ``solver_`` is "exact" or "rows"; powers of two near these for a sketch by ``partial_fit``, and in a merge of
        two sketches the larger of both. Constant columns have scale 0 and no share in any component.
    noise_variance_ : float
        Mean variance of the remaining directions. The total variance behind it is exact.
    n_filled_ : int
        Number of missing entries in the rows of ``fit``. If it is positive the variances have no guarantee:
        ``explained_variance_interval_``, ``explained_variance_ratio_certified_`` and ``error_bound_`` raise
        AttributeError, and the certificate of ``sketch_`` refers to the fitted covariance.
    n_components_, n_samples_seen_, n_features_in_, batch_size_ : int
    solver_ : {"rows", "exact", "arpack", "krylov", "gram", "svd"}
        The method in use: products of rows ("rows"), products of columns ("exact"), Lanczos steps with CSR rows
        ("arpack"), a block Krylov method with CSR rows ("krylov"), or a sketch ("gram", "svd").
    n_passes_ : int
        Number of passes over the rows.
    converged_ : bool
        Whether the estimated relative error of every variance is at most half of `tol`. It is estimated from the
        residuals and the gaps between the variances, and from how fast both fell in the last pass: unlike the interval
        it is not guaranteed. True for exact methods, False after one pass of a sketch.
    residuals_ : ndarray (n_components,)
        float64. ||A'A v - s v|| / s for the centred rows A and each Ritz pair (s, v) of the last pass, an approximate
        eigenvalue of A'A and its direction. ``explained_variance_`` is more accurate than these pairs. 0 for exact
        methods, NaN where it was not measured: after one pass, ``refine`` or ``merge``.
    sketch_ : fastsketch.FrequentDirections
        The learned state, float64 where it is exact. It is saved with the estimator, together with the rows that
        ``partial_fit`` keeps.

    Notes
    -----
    ``partial_fit`` after ``fit`` continues from the sum of products, or from the l rows of the sketch. Batches may have
    fewer rows than n_components. Sparse input is neither converted to a dense array nor copied as a whole.

    A row of weight w counts as w rows; variances are divided by max(1, sum of weights - 1). Unlike in scikit-learn,
    ``get_covariance``, ``get_precision`` and ``score`` refer to the rows themselves also with whiten=True. The page
    docs/choices/components.md compares the cost and accuracy of the methods.

    With scale=True the variances, the components and the result of ``transform`` are in standard units, but ``mean_``,
    ``var_``, ``get_covariance``, ``get_precision``, ``score`` and ``inverse_transform`` are in the units of the rows.
    Unless products of columns are summed up, ``fit`` reads the rows once more for their standard deviations; the
    methods "rows" and "arpack" then divide a copy of the rows. A source that can be read only once is learned as by
    ``partial_fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 20)) + 0.1 * rng.standard_normal((300, 20))
    >>> pca = SketchedPCA(n_components=2).fit(X)
    >>> pca.transform(X).shape, bool(pca.explained_variance_ratio_.sum() > 0.99)  # two factors, and little noise
    ((300, 2), True)
    """

    _MODEL: ClassVar = "sketch_"
    _KIND: ClassVar = FrequentDirections
    _FREE: ClassVar = frozenset({"whiten", "copy", "batch_size", "tol", "passes"})

    n_components: int | float | None = None
    _: KW_ONLY
    whiten: bool = False
    copy: bool = True
    batch_size: int | None = None
    sketch_size: int | None = None
    method: MethodName = "tfd"
    solver: SolverName = "auto"
    tol: float = 1e-4
    passes: int | None = None
    max_memory: float = 1e9
    scale: bool = False
    scale_rows: int = 100
    missing: Literal["error", "em"] = "error"

    # scikit-learn's declaration lacks the new parameters; all are checked in _components_and_size.
    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    n_passes_: int = field(init=False)
    _wanted: int | float = field(init=False)
    _accuracy: NDArray[np.float64] | None = field(init=False)  # (2, k) of the last pass, see Reread; None after one
    _variance: FeatureVariance | None = field(init=False)
    _dtype: np.dtype[Any] = field(init=False)
    _stream: KeptRows | None = field(init=False)  # all rows of partial_fit, while these are few
    _scales: ColumnScales | None = field(
        init=False
    )  # for a sketch with scale=True; an exact sum is scaled when it is read

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the principal components to X.

        Anything learned before is forgotten.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), table, AnnData, source or path
            Real rows, finite unless missing="em". A source (``fs.open_rows``) is read in chunks, and again for the
            further passes of solver="auto".
        y : ignored
        sample_weight : array_like (n_samples,), optional
            Nonnegative numbers of times that each row counts. A source takes none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or the rows are invalid, the squares of the rows add up to more than 1e306, or `passes` is
            more than 1 for a source that can be read only once. The estimator is then unchanged.
        MemoryError
            If the memory of a sketch cannot be had; no row has been read then.

        Warns
        -----
        UserWarning
            If `tol` was not reached, or a source has other rows when it is read again.
        """
        as_choice(self.missing, "missing", ("error", "em"))
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            with restored_on_error(self):
                return self._fit_source(source)
        with restored_on_error(self):
            self.n_filled_ = 0
            if self.missing == "em" and not is_sparse(X):
                dense = self._with_gaps(X, reset=True)
                if np.isnan(dense).any():
                    return self._fit_gaps(dense, sample_weight)
            rows, weights = self._checked_all(X, sample_weight)
            check_batch(rows, weights, None)
            wanted, size = self._components_and_size(_counted(rows, weights), rows.shape[1])
            if not isinstance(wanted, int) and rows.shape[0] < 2:
                raise ValueError(
                    f"n_components={wanted} needs at least two rows to have a variance, got {rows.shape[0]}"
                )
            batch_size = 5 * rows.shape[1] if self.batch_size is None else as_integer(self.batch_size, "batch_size", 1)
            self._drop("sketch_", "_variance", "_wanted", "solver_", "n_passes_")
            self.batch_size_, self._wanted, self._dtype, self._stream = batch_size, wanted, rows.dtype, None
            self._scales = self._accuracy = None
            self._fix_parameters()
            way: WayName = "columns" if self.solver == "exact" else "sketch"
            if self.solver == "auto":
                k = min(rows.shape) if not isinstance(wanted, int) else wanted
                problem = problem_of(rows, k=k, size=size)
                limits: dict[str, Any] = {"max_memory": self.max_memory, "exact": self.tol == 0}
                way = choose(problem, pairs=isinstance(wanted, int), **limits)
                if way in ("pairs", "krylov") and not self._multiply_all(rows, weights, size, way=way):
                    way = choose(problem, **limits)
            if way == "sketch":
                self._sketch_all(rows, weights, size)
            elif way not in ("pairs", "krylov"):
                self._multiply_all(rows, weights, size, way=way)
            self._name_features(self.sketch_)
            if self.solver_ in ("gram", "svd") or not isinstance(wanted, int):
                self._variances()  # which may warn
        return self

    @changes
    def partial_fit(
        self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None, check_input: bool = True
    ) -> Self:
        """Update the principal components with one more batch, which may be a single row.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), table, source or path
            Finite rows of the width of the first batch.
        y : ignored
        sample_weight : array_like (n_samples,), optional
            Nonnegative numbers of times that each row counts. A source takes none.
        check_input : bool, default True
            False skips the checks of X, which must then be a finite float array or CSR matrix.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedPCA
        >>> X = np.random.default_rng(0).standard_normal((1000, 30)) * np.arange(1, 31) ** -1.0
        >>> pca = SketchedPCA(3)
        >>> for batch in np.array_split(X, 10):
        ...     _ = pca.partial_fit(batch)
        >>> pca.explained_variance_.round(2), pca.n_samples_seen_
        (array([1.  , 0.24, 0.11]), 1000)
        """
        if check_input and (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._partial_fit_source(source)
        first = not hasattr(self, "sketch_")
        if not first:
            self._check_parameters()
        with self._atomic_batch():
            rows: Any = self._checked(X, reset=first) if check_input else X
            rows, weights = rows_with_weight(rows, as_weights(sample_weight, rows.shape[0]), checked=True)
            return self._learn_rows(rows, weights, first=first) if rows.shape[0] else self

    def _learn_rows(self, rows: Any, weights: NDArray[np.float64] | None, *, first: bool) -> Self:
        """Learn a batch of validated rows, all or none, by updating the sketch and the stored rows. Return self.

        Everything that may be refused is checked before the sketch is changed in place.
        """
        variance = FeatureVariance() if first else self._variance
        check_batch(rows, weights, variance)
        if first:
            self._wanted, size = self._components_and_size(_counted(rows, weights), rows.shape[1])
            sketch = self._new_sketch(size, self._in_stream(rows, self._wanted, size), rows.dtype)
            self._name_features(sketch)
            stream, self._dtype, self.n_filled_ = self._begun_stream(rows, self._wanted, sketch), rows.dtype, 0
        else:
            sketch, stream = self.sketch_, self._stream
        if stream is not None:
            few = sketch.n_rows + rows.shape[0] <= stream.size
            stream = stream.after(rows, weights, first=sketch.n_rows) if few else None
        # the sketch is changed in place, so it learns last, when nothing can be refused any more
        variance = None if variance is None else variance.after(rows, weights)
        scales = self._scales if not first else None
        if first and self.scale and sketch.solver != "exact":
            scales = ColumnScales.begin(self._n_first(), rows.shape[1])
        if scales is not None:
            scales, sketch, rows, weights = scales.prepare(sketch, rows, weights)
        solver = "rows" if stream is not None else _solver_of(sketch) if sketch.n_rows else sketch.solver
        attributes = {"_variance": variance, "_stream": stream, "_scales": scales, "solver_": solver, "n_passes_": 1}
        attributes["_accuracy"] = None
        self._teach(sketch, rows, weights, **attributes)
        return self

    # -- missing entries -------------------------------------------------------------------------------------------
    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Validate rows and return them; the error for NaN names missing="em"."""
        try:
            return super()._checked(X, reset=reset)
        except ValueError as error:
            if "contains NaN" not in str(error):
                raise
            raise ValueError(
                "Input X contains NaN: with missing='em' fit takes dense rows, or a source, with missing entries, and "
                "transform takes dense ones; partial_fit, refine, score and sparse rows never have any"
            ) from None

    def _with_gaps(self, X: Any, *, reset: bool) -> Any:
        """Return dense rows after validating them; they may contain NaN."""
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")

    def _fit_gaps(self, rows: Any, sample_weight: Any) -> Self:
        """Fit a Gaussian to dense rows with NaN by expectation maximisation, and store its mean and covariance.
        They replace what was learned before.
        """
        if sample_weight is not None:
            raise ValueError("sample_weight must be None where entries are missing: missing='em' takes no weights")
        self._require_memory(rows.shape[1])
        groups, model = group_if_one_block(rows), GapMoments()
        self._name_features(model)
        model = run_em(model.update(rows), lambda step: step._learn(rows, groups), EM_STEPS, EM_TOLERANCE)
        self._take_gaussian(model, int(np.isnan(rows).sum()), rows.dtype)
        return self

    def _require_memory(self, d: int) -> None:
        """Raise ValueError if expectation maximisation for d columns would need more memory than ``max_memory``.

        It takes several d x d matrices.
        """
        if 8.0 * GAUSSIAN_COPIES * d * d > as_real(self.max_memory, "max_memory", 0.0, MOST):
            raise ValueError(
                f"max_memory={self.max_memory:g} is too small for missing='em', which takes {GAUSSIAN_COPIES} matrices "
                f"of {d} x {d}"
            )

    def _take_gaussian(self, model: GapMoments, n_filled: int, dtype: Any) -> None:
        """Store the mean and covariance of a fitted Gaussian as what this estimator has learned.

        Earlier rows are forgotten. The sum is that of 2 d artificial rows, mean + and - sqrt(d eigenvalue) eigenvector,
        each of weight n / (2 d), which have exactly this mean and covariance.
        """
        found, n = model.gaussian(), model.n_rows
        d = len(found.location)
        wanted, size = self._components_and_size(n, d)
        values, vectors = np.linalg.eigh(found.raw)
        axes = vectors.T * np.sqrt(d * np.maximum(values, 0.0))[:, np.newaxis] * found.scale
        rows = np.concatenate([found.location + axes, found.location - axes])
        sketch = self._new_sketch(size, "exact", None)
        whole = column_products(rows, np.full(2 * d, n / (2 * d)), sketch._setting)
        whole.engine.state.n_rows = n
        sketch._begin_with(whole.engine)
        self._drop("_variance", "_read_out")
        self.sketch_, self._wanted, self._dtype = sketch, wanted, np.dtype(dtype)
        self.batch_size_ = 5 * d if self.batch_size is None else as_integer(self.batch_size, "batch_size", 1)
        self._variance = FeatureVariance.from_sums(float(n), found.location, n * found.scale**2)
        self._stream, self._scales, self.solver_, self.n_passes_ = None, None, "exact", 1 + model.steps
        self._accuracy = None
        self.n_filled_ = n_filled
        self._name_features(sketch)
        self._fix_parameters()

    def _require_certain(self, name: str) -> None:
        """Raise AttributeError for an attribute that is not guaranteed after missing entries were filled."""
        check_is_fitted(self, "sketch_")
        if self.n_filled_:
            raise AttributeError(f"{name} is not known: {self.n_filled_} entries were missing, and were filled")

    def transform(self, X: Batch) -> NDArray[Any]:
        """Project the rows of X onto the principal components.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), table, AnnData, source or path
            Sparse rows are not converted to a dense array. With missing="em" NaN in dense rows is filled with the
            conditional mean given the other entries of its row. A source is read in chunks.

        Returns
        -------
        ndarray (n_samples, n_components)
            With whiten=True components whose variance is 0 up to rounding are 0. After
            ``set_output(transform="pandas")`` a data frame, whose index has the names of the cells of AnnData.
        """
        check_is_fitted(self, "sketch_")
        if isinstance(X, str | PathLike | Source) or known_as("anndata", "AnnData")(X):
            scores = self._transform_source(source := open_rows(X))
            cells = source._row_names() if _get_output_config("transform", self)["dense"] == "pandas" else None
            return scores if cells is None else cast("Any", import_module("pandas")).DataFrame(scores, index=cells)
        may_have_gaps = self.missing == "em" and not is_sparse(X)
        rows = self._with_gaps(X, reset=False) if may_have_gaps else self._checked(X, reset=False)
        return self._project(self._with_filled(rows) if may_have_gaps else rows)

    def _with_filled(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return dense rows in which missing entries are filled by their conditional means."""
        if not np.isnan(rows).any():
            return rows
        self._require_memory(rows.shape[1])
        found = read_once(self, "gaussian", self._find_gaussian)
        return np.concatenate([found.fill(block) for block in dense_blocks(rows)]).astype(rows.dtype)

    def _transform_source(self, source: Source, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """Project the rows of a source, chunk by chunk, and return their scores as one array.
        The scores have the dtype of the rows unless `dtype` is set.
        """
        names = getattr(self, "feature_names_in_", None)
        require_same_names(source.feature_names, None if names is None else tuple(map(str, names)), "X")
        if source.n_features != self.n_features_in_:
            raise ValueError(f"X has {source.n_features} features, but {self.n_features_in_} were learned")
        fills, first, parts = self.missing == "em" and not source.sparse, 0, list[NDArray[Any]]()
        dtype = natural_dtype(np.dtype(source.dtype or np.float64)) if dtype is None else dtype
        out = np.empty((source.n_rows or 0, self.n_components_), dtype)
        for rows in with_missing(source) if fills else source:
            rows = self._with_filled(as_floats(rows)) if fills else as_floats(rows)
            with naming(source, first):
                check_finite(rows, "X")
            if source.n_rows is None:
                parts.append(self._project(rows))
            else:
                out[first : first + rows.shape[0]] = self._project(rows)
            first += rows.shape[0]
        return np.concatenate(parts) if parts else out

    def _project(self, rows: Any) -> NDArray[Any]:
        """Return the scores of rows, which were already validated, on the principal components."""
        # (X - mean) V' = X V' - (mean V')
        vt, scale = self.components_, self._column_scale()
        if scale is not None:
            vt = vt * np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0).astype(vt.dtype)
        out = np.asarray(rows @ vt.T) - self.mean_.astype(rows.dtype) @ vt.T
        if self.whiten:
            view = self._view()
            scale = np.sqrt(view.squares / self._divisor())
            # a quotient of two rounding errors means nothing; scikit-learn's PCA divides by eps in this case
            out *= np.divide(1.0, scale, out=np.zeros_like(scale), where=view.squares > view.rounding).astype(out.dtype)
        return out

    def _find_gaussian(self) -> Any:
        """Return a Gaussian with the learned mean and covariance, from which missing entries are filled."""
        n = self.sketch_.total_weight
        return gaussian_of_covariance(self._view().mean, self.sketch_.gram() / n, n)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "em"
        return tags

    @changes
    def refine(self, X: Readable, *, sample_weight: ArrayLike | None = None) -> Self:
        """Read the learned rows once more, which makes components and variances nearly exact.

        Parameters
        ----------
        X : array_like or scipy.sparse (n_samples, n_features), path, source, or a list of paths or sources
            All rows that ``fit`` or ``partial_fit`` has seen, in any order.
        sample_weight : array_like (n_samples,), optional
            The weights that they had.

        Returns
        -------
        self
            With ``n_passes_`` increased by one. Nothing is read if nothing has been lost: if ``solver_`` is "exact", or
            ``partial_fit`` has kept all rows.

        Raises
        ------
        TypeError, ValueError
            If the rows have another width.

        Warns
        -----
        UserWarning
            If the rows differ from those seen. The estimator is then unchanged.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedPCA
        >>> X = np.random.default_rng(0).standard_normal((1000, 200)) * np.arange(1, 201) ** -0.5
        >>> pca = SketchedPCA(3, solver="gram", sketch_size=20).fit(X)
        >>> float(np.ptp(pca.explained_variance_interval_[0]).round(3))
        0.155
        >>> float(np.ptp(pca.refine(X).explained_variance_interval_[0]).round(3))
        0.0
        """
        check_is_fitted(self, "sketch_")
        paths = isinstance(X, str | PathLike) or (
            isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], str | PathLike | Source)
        )
        rows: Any = X if paths or as_far_source(X) is not None else self._checked(X, reset=False)
        if self._all_rows() is not None:
            if sample_weight is not None and hasattr(rows, "shape"):
                as_weights(sample_weight, rows.shape[0])
            return self
        if self._scales is not None:
            rows = DividedRows(open_rows(rows, n_features=self.n_features_in_), self._scales)
        sketch = self.sketch_.copy()
        before = sketch._seen_engine()
        if (
            sketch.refine(rows, sample_weight)._seen_engine() is not before
        ):  # else it is exact already, or the rows differ
            self.sketch_, self.n_passes_, self._accuracy = sketch, self.n_passes_ + 1, None
        return self

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Map transformed rows back to the original features.

        Parameters
        ----------
        X : array_like (n_samples, n_components)
            As ``transform`` returns them.

        Returns
        -------
        ndarray (n_samples, n_features)
        """
        check_is_fitted(self, "sketch_")
        rows = as_rows(X, name="X")
        if rows.shape[1] != self.n_components_:
            raise ValueError(f"X must have n_components_={self.n_components_} columns, got shape {rows.shape}")
        check_finite(rows, "X")
        rows = rows.toarray() if is_sparse(rows) else rows.astype(natural_dtype(rows.dtype), copy=False)
        if (scale := self._column_scale()) is None:
            return super().inverse_transform(rows)
        directions = self.components_ * scale
        if self.whiten:
            directions *= np.sqrt(self.explained_variance_)[:, np.newaxis]
        return (rows @ directions + self._view().mean).astype(self._dtype)

    # -- inside ----------------------------------------------------------------------------------------------------
    def _components_and_size(self, n: int, d: int, in_use: int | None = None) -> tuple[int | float, int]:
        """Return (number of components or share of variance to explain, sketch size) after validating parameters.

        The first batch has shape (n, d).

        `in_use` is the size of a sketch that was learned elsewhere and replaces `sketch_size`.
        """
        as_choice(self.method, "method", tuple(METHODS))
        as_choice(self.solver, "solver", SOLVERS)
        as_real(self.max_memory, "max_memory", 0.0, MOST)
        as_real(self.tol, "tol", 0.0, 1.0)
        self._most_passes()
        as_flag(self.scale, "scale")
        self._n_first()
        wanted = _wanted(self.n_components, min(n, d))
        if wanted > d:
            raise ValueError(f"n_components={wanted} must not exceed n_features={d}")
        least = min(wanted, d - 1) if isinstance(wanted, int) else 1
        if self.sketch_size is None:
            size = 2 * wanted + 10 if isinstance(wanted, int) else SIZE_OF_SHARE
            return wanted, max(2, min(size, d + 1))
        size = as_integer(self.sketch_size, "sketch_size", 2, MOST_SIZE) if in_use is None else in_use
        if size <= least:
            raise ValueError(f"sketch_size={size} must be larger than n_components={wanted}")
        return wanted, size

    def _new_sketch(self, size: int, solver: Any, dtype: np.dtype[Any] | None) -> FrequentDirections:
        # sums of products are float64, whatever the rows are
        """Return an empty sketch with the given size, solver and dtype.

        An exact sum of products is always float64.
        """
        dtype = np.dtype(np.float64) if solver == "exact" else dtype
        return FrequentDirections(size, method=self.method, solver=solver, center=True, dtype=dtype)

    def _most_passes(self, source: Source | None = None) -> int:
        """Return the largest number of passes that ``fit`` may make over the rows, after validating `passes`.

        ValueError if these are more than one over a source that can be read only once.
        """
        if self.passes is None:
            return MOST_PASSES if self.solver == "auto" and (source is None or source.repeatable) else 1
        passes = as_integer(self.passes, "passes", 1)
        if passes > 1 and source is not None and not source.repeatable:
            raise ValueError(
                f"passes={passes}, but {source.name} comes once: save its rows to a file, or take passes=1"
            )
        return passes

    def _require_room(self, size: int, d: int, dtype: Any, passes: int) -> None:
        """Raise MemoryError, with advice, if a sketch of this size and its further passes cannot be allocated."""
        needed = SKETCH_COPIES * np.dtype(dtype).itemsize * size * d + (PASS_COPIES * 8 * size * d if passes > 1 else 0)
        try:
            np.empty(needed, np.uint8)
        except (MemoryError, ValueError):
            raise MemoryError(
                f"a sketch of sketch_size={size} rows and {d} columns takes {needed / 1e9:.3g} GB with passes="
                f"{self.passes}, more than can be had: take fewer n_components, a smaller sketch_size, or passes=1"
            ) from None

    def _n_first(self) -> int:
        """Return the parameter `scale_rows`, the number of rows that decide column scales, after validating it."""
        return as_integer(self.scale_rows, "scale_rows", 1, MOST_SCALE_ROWS + 1)

    @property
    def scale_(self) -> NDArray[np.float64] | None:
        check_is_fitted(self, "sketch_")
        scale = self._column_scale()
        return None if scale is None else scale.copy()

    def _column_scale(self) -> NDArray[np.float64] | None:
        """Return the number by which each column is divided, or None if columns are not standardised.

        Constant columns have 0.
        """
        return read_once(self, "scale", self._find_scale) if self.scale else None

    def _find_scale(self) -> NDArray[np.float64]:
        """Return the scale (d,) of each column, computed from what is stored: rows, matrix of products, or sketch."""
        if (known := self._all_rows()) is not None:
            return standard_deviations(*known, center=True)
        if self._scales is None:
            return standardised_sketch(self.sketch_)[1]
        return self._scales.scale

    def _sketch_all(self, rows: Any, weights: NDArray[np.float64] | None, size: int) -> None:
        """Sketch all rows in memory, and store the sketch. With solver="auto" further passes refine it.

        Sets ``sketch_``, ``_variance``, ``solver_`` and ``n_passes_``. If the passes do not converge, as on a flat
        spectrum, an exact method is used where it fits into the memory.
        """
        solver: Any = "gram" if self.solver == "auto" else self.solver
        self._require_room(size, rows.shape[1], rows.dtype, most := self._most_passes())
        sketch, variance = self._new_sketch(size, solver, rows.dtype), FeatureVariance()
        again: Any = rows
        if self.scale:
            self._scales = ColumnScales.of_all(self._n_first(), [(rows, weights)])
            again = DividedRows(open_rows(rows), self._scales)
        for batch in gen_batches(rows.shape[0], max(self.batch_size_, size)):
            part = None if weights is None else weights[batch]
            sketch.update(rows[batch] if self._scales is None else self._scales.divide(rows[batch]), part)
            variance = variance.after(rows[batch], part)
        self.sketch_, self._variance, self.solver_, self.n_passes_ = sketch, variance, solver, 1
        # a number of passes that was asked for is not replaced by an exact method
        exactly = {"exactly": partial(self._exactly, rows, weights, size)} if self.passes is None else {}
        seen = self._read_again(sketch, again, weights, most, **exactly).seen
        if isinstance(wanted := self._wanted, int) and seen is not None and not self.scale:
            read_once(self, "components", lambda: first_components(seen, wanted))

    def _read_again(
        self, sketch: FrequentDirections, rows: Any, weights: Any, most_passes: int, **exactly: Any
    ) -> Reread:
        """Refine a sketch, in place, by further passes over the rows, and return passes and accuracy as a Reread.
        Both are also stored in this estimator.
        """
        found = read_again(sketch, rows, weights, self._wanted, tol=self.tol, most_passes=most_passes, **exactly)
        self.n_passes_, self._accuracy = found.passes, found.accuracy
        return found

    def _exactly(self, rows: Any, weights: NDArray[np.float64] | None, size: int) -> bool:
        """Learn all rows by an exact method if one fits into memory, and return True if it succeeds.
        Otherwise nothing is learned.
        """
        if not isinstance(self._wanted, int):
            return False
        route = cheapest_exact(problem_of(rows, k=self._wanted, size=size), max_memory=self.max_memory)
        return route is not None and self._multiply_all(rows, weights, size, way=route.way)

    def _begun_stream(self, rows: Any, wanted: int | float, sketch: FrequentDirections) -> KeptRows | None:
        """Return an empty store for a stream's rows if an exact method is to be used for them later, else None."""
        if self.solver != "auto" or sketch.solver == "exact":
            return None
        k = wanted if isinstance(wanted, int) else rows.shape[0]
        problem = problem_of(rows, k=k, size=sketch.sketch_size)
        most = most_rows_in_stream(problem, max_memory=self.max_memory, most=MOST_ROWS)
        return KeptRows(most) if most >= rows.shape[0] else None

    def _all_rows(self) -> tuple[Any, NDArray[np.float64]] | None:
        """Return (rows, weights) that ``partial_fit`` has stored, or None unless they are all rows learned."""
        if self._stream is None or not self.sketch_.total_weight > 0:
            return None
        rows, weights = self._stream.sample()
        return (rows, weights) if np.isclose(weights.sum(), self.sketch_.total_weight, rtol=1e-9, atol=0) else None

    def _components(self) -> ComponentsReadOut:
        """Return the principal components, computed from what is stored: rows, matrix of products, or sketch."""
        scale = self._column_scale()
        divisor = 1.0 if scale is None else np.where(scale > 0, scale, 1.0)
        if (known := self._all_rows()) is not None and self.sketch_.n_rows >= 2:
            rows, weights = known
            size = self.sketch_.resolved["sketch_size"]
            if scale is not None:
                rows = ColumnScales(1, None, scale, FeatureVariance()).divide(rows)
            whole = self._exact_sketch(rows, None if (weights == 1).all() else weights, size, "rows")[0]
            read = components_of(whole, self._wanted)
        elif scale is not None and self._scales is None:
            read = components_of(standardised_sketch(self.sketch_)[0], self._wanted)
        else:
            n = self.sketch_.n_rows
            if not isinstance(self._wanted, int) and n < 2:
                raise ValueError(f"n_components={self._wanted} needs at least two rows to have a variance, got {n}")
            read = components_of(self.sketch_, self._wanted)
        return read._replace(mean=read.mean * divisor)

    def _exact_sketch(
        self, rows: Any, weights: NDArray[np.float64] | None, size: int, way: WayName
    ) -> tuple[FrequentDirections, ExactSketch | None]:
        """Return (sketch with the exact components of all rows, further exact sums or None).

        Lanczos steps may not converge: the second result is then None. For a share of components (a float) and method
        "rows" the sketch is made just large enough for the components that this share needs.
        """
        products = RowProducts(rows, weights, center=True) if way == "rows" else None
        if products is not None and self.sketch_size is None and not isinstance(self._wanted, int):
            count = count_for(self._wanted, products.eigenvalues(), products.squared_norm)
            size = max(2, min(2 * count + 10, rows.shape[1] + 1))
        sketch = self._new_sketch(size, "exact" if way == "columns" else "gram", np.dtype(np.float64))
        whole: ExactSketch | None
        if products is not None:
            whole = products.exact_sketch(sketch._setting)
        elif way == "columns":
            whole = column_products(rows, weights, sketch._setting)
        elif way == "krylov":
            problem, k = problem_of(rows, k=int(self._wanted), size=size), int(self._wanted)
            whole = krylov_pairs(rows, weights, sketch._setting, k, tol=self.tol / 2, most_steps=krylov_steps(problem))
        else:
            whole = sparse_pairs(rows, weights, sketch._setting, int(self._wanted))
        if whole is not None:
            sketch._begin_with(whole.engine, whole.certain_high)
        return sketch, whole

    def _multiply_all(self, rows: Any, weights: NDArray[np.float64] | None, size: int, *, way: WayName) -> bool:
        """Learn all rows by an exact method, and return True, or False, with nothing learned, without convergence.

        Only Lanczos steps may fail to converge. With scale=True a copy of the rows is divided by the standard
        deviations first. Products of columns are not divided here, but when they are read.
        """
        scales = None
        if self.scale and way != "columns":
            scales = ColumnScales.of_all(self._n_first(), [(rows, weights)])
            rows = scales.divide(rows)
        sketch, whole = self._exact_sketch(rows, weights, size, way)
        if whole is not None:
            engine = whole.engine
            mean = np.ldexp(by_column(engine, engine.mean), engine.exponent)
            self._variance = FeatureVariance.from_sums(engine.weight, mean, whole.squares)
            self.sketch_, self.solver_, self.n_passes_, self._scales = sketch, SOLVER_OF[way], 1, scales
            if scales is not None:
                self._variance = scales.variance
        return whole is not None

    # -- a read-out costs more than a small batch ------------------------------------------------------------------
    def _view(self) -> ComponentsReadOut:
        """Return the principal components of all rows learned so far, cached until the next update."""
        return read_once(self, "components", self._components)

    def _divisor(self) -> float:
        """Return the number by which sums of squares are divided to become variances: the number of rows less one.

        With weights their sum less one; at least 1.
        """
        return max(1.0, self.sketch_.total_weight - 1.0)

    def _variances(self) -> ComponentsReadOut:
        """Return the principal components, with a warning if one pass of a sketch has left their variances uncertain.

        Guaranteed intervals are pessimistic after one pass of a sketch, and more so after several, where the estimates
        are as accurate as the last pass shows. An interval that is wider than its variance means that there were many
        rows, or directions of similar variance, for so small a sketch.
        """
        view = self._view()
        if self.n_passes_ == 1 and "said" not in self._read_out:
            wide = view.high - view.low > view.squares + 2.0 * view.rounding + np.finfo(np.float64).tiny
            if wide.any():
                self._read_out["said"] = True
                i = int(np.argmax(wide))
                value, low, high = (float(each[i]) / self._divisor() for each in (view.squares, view.low, view.high))
                warn_caller(
                    f"explained_variance_ may be far off in {int(wide.sum())} of {len(wide)} components: that of "
                    f"component {i} is estimated as {value:.3g}, and between {low:.3g} and {high:.3g} for certain "
                    "(explained_variance_interval_). One pass of a sketch knows no more: read the rows again by "
                    "refine, or take solver='auto' or 'exact', or a sketch_size above "
                    f"{self.sketch_.resolved['sketch_size']}"
                )
        return view

    @property
    def n_components_(self) -> int:
        check_is_fitted(self, "sketch_")
        return self._wanted if isinstance(self._wanted, int) else len(self._view().squares)

    def _known_accuracy(self) -> NDArray[np.float64]:
        """Return the accuracy of the variances, shape (2, n_components): relative residuals, estimated relative errors.

        They are 0 if nothing was lost, and NaN if they were not measured.
        """
        view = self._view()
        whole = self._accuracy is None and (
            self.solver_ in SOLVER_OF.values() or self.sketch_.shrinkage <= view.rounding
        )
        out = np.full((2, len(view.squares)), 0.0 if whole else np.nan)
        if self._accuracy is not None:
            known = self._accuracy[:, : out.shape[1]]
            out[:, : known.shape[1]] = known
        return out

    @property
    def residuals_(self) -> NDArray[np.float64]:
        return self._known_accuracy()[0]

    @property
    def converged_(self) -> bool:
        return bool((self._known_accuracy()[1] <= self.tol / 2).all())

    @property
    def components_(self) -> NDArray[Any]:
        return self._view().vt.astype(self._dtype)

    @property
    def singular_values_(self) -> NDArray[Any]:
        return np.sqrt(self._variances().squares).astype(self._dtype)

    @property
    def explained_variance_(self) -> NDArray[Any]:
        return (self._variances().squares / self._divisor()).astype(self._dtype)

    @property
    def explained_variance_interval_(self) -> NDArray[np.float64]:
        self._require_certain("explained_variance_interval_")
        view = self._view()
        eps = float(np.finfo(self._dtype).eps)  # covers the rounding of the variances to their dtype
        return np.column_stack([view.low * (1 - eps), view.high * (1 + eps)]) / self._divisor()

    @property
    def explained_variance_ratio_(self) -> NDArray[Any]:
        return self._share(self._variances().squares).astype(self._dtype)

    @property
    def explained_variance_ratio_certified_(self) -> NDArray[np.float64]:
        self._require_certain("explained_variance_ratio_certified_")
        return self._share(self._view().low)

    def _share(self, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sums of squares divided by the total sum of squares; zeros if the total is 0."""
        total = self._view().total
        return squares / total if total > 0 else np.zeros_like(squares)

    @property
    def error_bound_(self) -> float:
        self._require_certain("error_bound_")
        view = self._view()
        return float(np.maximum(view.high - view.squares, view.squares - view.low).max(initial=0.0))

    @property
    def noise_variance_(self) -> float:
        view = self._view()
        n = max(self.sketch_.n_rows, int(self.sketch_.total_weight))
        rest = min(n, self.n_features_in_) - len(view.squares)
        return max(0.0, view.total - float(view.squares.sum())) / self._divisor() / rest if rest > 0 else 0.0

    @property
    def mean_(self) -> NDArray[Any]:
        return self._view().mean.astype(self._dtype)

    @property
    def var_(self) -> NDArray[Any]:
        check_is_fitted(self, "sketch_")
        if self._variance is None:
            raise AttributeError("var_ is not known from a sketch alone")
        return self._variance.value().astype(self._dtype)

    # -- the Gaussian model ----------------------------------------------------------------------------------------
    def get_covariance(self) -> NDArray[Any]:
        """Compute the covariance of the probabilistic PCA model: components plus isotropic noise.

        Returns
        -------
        ndarray (n_features, n_features)
            V' diag(variances - noise) V + noise I. With scale=True this is the model of the standardised columns,
            converted to the units of the rows.
        """
        matrix, scale = self._gaussian().matrix(), self._column_scale()
        if scale is not None:
            matrix *= scale * scale[:, np.newaxis]
        return matrix.astype(self._dtype)

    def get_precision(self) -> NDArray[Any]:
        """Compute the precision matrix, the inverse of ``get_covariance``.

        Returns
        -------
        ndarray (n_features, n_features)

        Raises
        ------
        ValueError
            If the covariance is singular.
        """
        matrix, scale = self._invertible().inverse(), self._column_scale()
        if scale is not None:
            inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
            matrix *= inverse * inverse[:, np.newaxis]
        return matrix.astype(self._dtype)

    def score_samples(self, X: Rows) -> NDArray[np.float64]:
        """Compute the log-likelihood of each row under the probabilistic PCA model.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray float64 (n_samples,)
        """
        model, rows = self._invertible(), self._checked(X, reset=False)
        mean, scale, d = self._view().mean, self._column_scale(), self.n_features_in_
        constant = model.log_determinant + d * np.log(2.0 * np.pi)
        if scale is None:
            return -0.5 * (model.distances(rows, mean) + constant)
        units = Standardization(mean, scale, self.sketch_.total_weight)
        return -0.5 * (units.measured(rows, model.distances) + constant + 2.0 * units.log_volume)

    def score(self, X: Rows, y: Any = None) -> float:
        """Compute the mean log-likelihood of rows under the probabilistic PCA model.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(self.score_samples(X).mean())

    def _gaussian(self) -> SpikedCovariance:
        """Return the covariance model, with component variances of at least the noise variance."""
        view, noise = self._view(), self.noise_variance_
        return SpikedCovariance(np.maximum(view.squares / self._divisor(), noise), view.vt, noise)

    def _invertible(self) -> SpikedCovariance:
        """Return the covariance model; raise ValueError if it is singular."""
        model = self._gaussian()
        whole = len(model.values) == self.n_features_in_
        if not (model.values.min() if whole else model.rest) > 0:
            raise ValueError(
                "the covariance is singular: a variance is 0, since a column is constant or a combination of others; "
                "leave such columns out, or take a smaller n_components"
                if whole
                else "the covariance is singular: the components hold all variance, and there are fewer than features; "
                "take a smaller n_components"
            )
        return model

    # -- jobs, merging, files, sketches (_estimator.py) ------------------------------------------------------------
    def _in_stream(self, rows: Any, wanted: int | float, size: int) -> Any:
        """Return the solver for a stream that starts with these rows, chosen by their shape and sparsity."""
        if self.solver != "auto":
            return self.solver
        k = wanted if isinstance(wanted, int) else rows.shape[1]
        sums = sums_in_stream(problem_of(rows, k=k, size=size), max_memory=self.max_memory)
        return "exact" if sums else "gram"

    def _template(self, n_rows: int | None, n_features: int, dtype: np.dtype[Any] | None) -> FrequentDirections:
        # an unknown number of rows is taken to exceed the number of columns
        """Return an empty sketch for rows of the given number (None if unknown), width and dtype."""
        wanted, size = self._components_and_size(n_features if n_rows is None else n_rows, n_features)
        like = np.broadcast_to(np.zeros(1, dtype or np.float64), (max(1, n_rows or n_features), n_features))
        return self._new_sketch(size, self._in_stream(like, wanted, size), dtype)

    def _job(self, source: Source) -> tuple[Any, Any]:
        """Return an empty sketch for a job, and a function that makes a fitted estimator of the learned sketch.

        ValueError for a sketch with scale=True.
        """
        template, finish = super()._job(source)
        if self.scale and cast("FrequentDirections", template).solver != "exact":
            raise ValueError("scale=True is not for jobs that sketch, whose rows are as they come: call fit(source)")
        return template, finish

    def _fit_source(self, source: Source) -> Self:
        """Fit the components to all rows of a source, and replace what was learned before. Return self.

        With missing="em" and missing entries this is expectation maximisation.
        """
        if self.missing == "em":
            source = with_missing(source)
            self._require_memory(source.n_features)
            model = GapMoments()._take_rows(source)
            if n_filled := model._n_missing():
                if source.repeatable:
                    model = run_em(model, lambda step: step._take_rows(source), EM_STEPS, EM_TOLERANCE)
                work: Any = clone(self)
                work.n_features_in_ = source.n_features
                if source.feature_names is not None:
                    work.feature_names_in_ = np.array(source.feature_names, dtype=object)
                work._take_gaussian(model, n_filled, np.float64 if source.dtype is None else source.dtype)
                self._become(work)
                return self
            if not source.repeatable:
                raise ValueError(f"{source.name} comes once, and has no missing entry: take missing='error'")
        dtype = None if source.dtype is None else np.dtype(np.float32 if source.dtype == np.float32 else np.float64)
        template = self._template(source.n_rows, source.n_features, dtype)
        most = self._most_passes(source)
        if template.solver != "exact":
            self._require_room(template.sketch_size, source.n_features, dtype or np.float64, most)
        if self.scale and template.solver != "exact":
            return self._fit_scaled(source, template)
        if not (source.sparse and template.solver == "exact" and self._fit_sparse_products(source)):
            super()._fit_source(source)
        if not self.sketch_._is_exact():
            self._read_again(self.sketch_, source, None, most)
        if not isinstance(self._wanted, int):
            self._view()  # which may warn
        return self

    def _fit_sparse_products(self, source: Source) -> bool:
        """Fit the components to the exact products of a source of sparse rows, and replace what was learned before.

        Return False, with nothing changed, if the source has no row. The rows are multiplied as sparse rows, which the
        chunks of a stream are not.
        """
        template, finish = self._job(source)
        names = require_same_names(source.feature_names, None, source.name)
        whole = chunk_products(_valid_chunks(source), source.n_features, template._setting)
        if whole.engine.n_rows:
            template._begin_with(whole.engine)
            template._feature_names = names
            self._become(finish(template))
        return whole.engine.n_rows > 0

    def _fit_scaled(self, source: Source, sketch: FrequentDirections) -> Self:
        """Fit the components to a source with standardised columns, in two passes, and return self.
        One pass computes the scales, the next one sketches.

        A source that can be read only once is learned as by ``partial_fit``.
        """
        out: Any = clone(self)
        if not source.repeatable:
            self._become(out._partial_fit_source(source))
            return self
        scales = ColumnScales.of_all(self._n_first(), ((as_floats(rows), None) for rows in source))
        divided = DividedRows(source, scales)
        sketch._take_rows(divided)
        out._wanted, _ = self._components_and_size(sketch.n_rows, source.n_features)
        out._dtype = sketch.resolved["dtype"]
        out._read_again(sketch, divided, None, self._most_passes(source))
        out._own_model(sketch, {**out._arrays(scales.variance, out.n_passes_), **scales.arrays()})
        self._become(out)
        if not isinstance(self._wanted, int):
            self._view()  # which may warn
        return self

    def _own(self) -> Arrays:
        """Return {name: array} of what a state file stores in addition to the sketch.

        They are variances, stored rows, scales and counts.
        """
        scales = {} if self._scales is None else self._scales.arrays()
        way = WAYS.index(self.solver_) if self.solver_ in WAYS else 0
        kept = {} if self._stream is None or self._all_rows() is None else self._stream.arrays()
        return {**self._arrays(self._variance, self.n_passes_, way), **kept, **scales, **self._filled(self.n_filled_)}

    @staticmethod
    def _filled(n_filled: int) -> Arrays:
        """Return the number of filled entries as an array for a state file; an empty dict if it is 0."""
        return {"filled": np.array([float(n_filled)])} if n_filled else {}

    def _arrays(self, variance: FeatureVariance | None, passes: int = 1, way: int = 0) -> Arrays:
        """Return the learned settings and the variances as arrays for a state file.

        The settings are the number of components, the number of passes, the method and the dtype.
        """
        out = {"learned": np.array([self._wanted, passes, way], np.float64), "dtype": np.zeros(0, self._dtype)}
        if passes > 1 and self._accuracy is not None:
            out["accuracy"] = self._accuracy
        return out if variance is None else {**out, **variance.arrays()}

    def _restore_own(self, arrays: Arrays) -> None:
        """Restore the attributes that ``_own`` saves; with no arrays, derive them from the sketch.

        Raises
        ------
        ValueError
            If the arrays are inconsistent with each other or with the sketch.
        """
        sketch = self.sketch_
        n, d = sketch.n_rows, self.n_features_in_
        self._scales = ColumnScales.from_arrays(arrays, d)
        self.n_filled_ = int(checks.not_negative(arrays, "filled", (1,))[0]) if "filled" in arrays else 0
        if self.scale and self._scales is None and sketch.solver != "exact":
            raise ValueError("scale=True needs an exact sum (solver='exact'): a sketch cannot be scaled afterwards")
        if not arrays:
            in_use = sketch.resolved["sketch_size"]
            self._wanted, _ = self._components_and_size(
                n if self.n_components is not None else min(n, in_use - 1), d, in_use
            )
            self._dtype, self._variance = sketch.resolved["dtype"], _variance_of(sketch)
            self.solver_, self.n_passes_, self._stream, self._accuracy = _solver_of(sketch), 1, None, None
            return
        wanted, passes, way = checks.not_negative(arrays, "learned", (3,)).tolist()
        self._wanted = _wanted(int(wanted) if wanted.is_integer() else wanted, 1)
        if self._wanted > d:
            raise ValueError(f"array 'learned' asks for {self._wanted} components of {d} features")
        dtype = arrays["dtype"].dtype
        if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"array 'dtype' must be float32 or float64, is {dtype}")
        self._dtype = dtype
        checks.number_within(int(way), "way", 0, len(WAYS) - 1)
        self.solver_, self.n_passes_ = WAYS[int(way)] or _solver_of(sketch), max(1, int(passes))
        self._variance = FeatureVariance.from_arrays(arrays, d) if "shift" in arrays else None
        self._stream = KeptRows.from_arrays(arrays, d) if "kept_size" in arrays else None
        self._accuracy = None
        if "accuracy" in arrays:
            self._accuracy = checks.not_negative(arrays, "accuracy", (2, arrays["accuracy"].shape[-1]))

    def _own_with(self, other: Any) -> Arrays:
        """Return {name: array} of what a state file stores besides the sketch, for the rows of both estimators."""
        mine, theirs = self._variance, other._variance
        variance = None if mine is None or theirs is None else mine.merged(theirs)
        if self._stream is not None and self._all_rows() is not None and other._all_rows() is not None:
            merged = self._stream.merged(other._stream)
            if self.sketch_.n_rows + other.sketch_.n_rows <= merged.size:
                return {**self._arrays(variance, way=1), **merged.arrays()}
        return {**self._arrays(variance), **self._filled(self.n_filled_ + other.n_filled_)}

    def _merged(self, other: Any) -> tuple[FrequentDirections, Arrays]:
        """Return (new sketch merged from both estimators, arrays saved in addition to it).

        ValueError if only one is a sketch of scaled columns.
        """
        if (self._scales is None) != (other._scales is None):
            raise ValueError(
                "of the two one has an exact sum, the other a sketch of scaled columns: with scale=True they cannot be "
                "merged; set solver"
            )
        own = self._own_with(other)
        if self._scales is None:
            return self._merged_model(other._learner), own
        sketch, scales = self._scales.merge(self.sketch_, other._scales, other.sketch_)
        return sketch, {**own, **scales.arrays()}

    def _merged_model(self, other: FrequentDirections) -> FrequentDirections:
        # The two may be of different methods. An exact sum absorbs a sketch.
        """Return a new sketch that merges this estimator's sketch with another.

        An exact sum absorbs a sketch; two sketches get the size of this one.
        """
        first, second = self.sketch_, other
        if second.resolved["solver"] == "exact" and first.resolved["solver"] != "exact":
            first, second = second, first
        theirs = second._must_agree()
        for name, value in first._must_agree().items():
            if name not in ANY_WAY and theirs[name] != value:
                raise ValueError(f"other has a sketch with {name}={theirs[name]!r}, this estimator one with {value!r}")
        out = first.copy()
        engine = merge_engines(out._seen_engine(), second._seen_engine())
        out._replace(engine, first._regained + second._regained)
        return out

    @classmethod
    def _parameters_for(cls, model: FrequentDirections) -> dict[str, Any]:
        """Return the estimator's parameters that fit a given sketch.

        ValueError if the sketch is not centred or has a compressor.
        """
        if not model.center:
            raise ValueError("sketch must have center=True: components are those of centred rows")
        if model.compressor is not None:
            raise ValueError("sketch must have no compressor: it has not seen the rows themselves")
        resolved = {name: model.resolved[name] for name in ("sketch_size", "solver")}
        return {**super()._parameters_for(model), **resolved}


def _counted(rows: Any, weights: NDArray[np.float64] | None) -> int:
    """Return the number of rows by which n_components is limited.
    With weights it is the larger of their sum and the number of positive ones.

    At least 1 with weights.
    """
    return rows.shape[0] if weights is None else max(1, int(np.count_nonzero(weights)), int(weights.sum()))


def _valid_chunks(source: Source) -> Iterator[Any]:
    """Yield the chunks of a source of sparse rows as canonical CSR of floats; ValueError names a row with NaN."""
    first = 0
    for rows in source:
        with naming(source, first):
            valid = as_floats(as_rows(rows, source.n_features))
            check_finite(valid)
        yield valid
        first += valid.shape[0]


def _wanted(n_components: Any, few: int) -> int | float:
    """Return the parameter `n_components` after validating it: an int, or a float in (0, 1); None becomes `few`."""
    if n_components is None:
        return few
    if isinstance(n_components, bool) or not isinstance(n_components, Real):
        raise TypeError(f"n_components must be an integer, a share in (0, 1) or None, got {n_components!r}")
    if not isinstance(n_components, Integral):
        share = float(n_components)
        if not 0.0 < share < 1.0:
            raise ValueError(f"n_components must be an integer, a share in (0, 1) or None, got {n_components!r}")
        return share
    return as_integer(n_components, "n_components", 1)


def _solver_of(sketch: FrequentDirections) -> str:
    """Return the solver of a sketch: "exact" only if its sum is still exact, else "gram".
    It is no longer exact after a merge with a lossy sketch.
    """
    solver = str(sketch.resolved["solver"])
    return "gram" if solver == "exact" and sketch._seen_engine().shrinkage > 0 else solver


def _variance_of(sketch: FrequentDirections) -> FeatureVariance | None:
    """Return the variances of the columns if a sketch is an exact matrix of products, else None.

    They are taken from the matrix, which is not decomposed for them.
    """
    if not sketch.center or _solver_of(sketch) != "exact" or not sketch.total_weight > 0:
        return None
    engine: Any = sketch._seen_engine()
    if not engine.is_settled_sum:
        engine = engine.clone()
        engine.flush()
    exponent = engine.exponent
    with np.errstate(over="ignore", under="ignore"):
        squares = np.ldexp(np.maximum(engine.cov.diagonal(), 0.0), 2 * exponent)
    return FeatureVariance.from_sums(sketch.total_weight, np.ldexp(engine.mean, exponent), squares)
