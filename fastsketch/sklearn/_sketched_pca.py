"""Principal components, exact or from a sketch: a drop-in for sklearn.decomposition.IncrementalPCA."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import KW_ONLY, field
from functools import partial
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import (
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
from fastsketch._frame.batches import Batch
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, open_rows, with_missing
from fastsketch.lowrank._gap_moments import GapMoments, blocks, gaussian_of_covariance, groups_for, take_steps
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import SolverName, by_column, merge_engines
from fastsketch.sketching._exact_products import RowProducts, WholePass, column_products, sparse_pairs
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.sketching._rereading import Readable
from fastsketch.sklearn._column_scales import (
    MOST_SCALE_ROWS,
    ColumnScales,
    DividedRows,
    as_floats,
    spreads,
    standardised_sketch,
)
from fastsketch.sklearn._estimator import (
    Arrays,
    as_far_source,
    as_unweighted_source,
    checked,
    estimator,
    whole_or_as_before,
)
from fastsketch.sklearn._kept_rows import MOST_ROWS, KeptRows
from fastsketch.sklearn._moments import FeatureVariance, check_batch
from fastsketch.sklearn._principal_components import (
    ComponentsReadOut,
    PrincipalComponents,
    components_of,
    count_for,
    first_of,
    read_again,
    sketch_of_any_size,
)
from fastsketch.sklearn._routes import WayName, cheapest_exact, choose, most_rows_in_stream, problem_of, sums_in_stream

SOLVERS = ("auto", "gram", "svd", "exact")
ANY_WAY = ("solver", "buffer_size", "sketch_size", "dtype")  # in which the sketches of two ways may differ
# Ways of ``fit`` that its sketch does not tell, by their number in files; the exact ways as ``solver_`` has them.
WAYS = ("", "rows", "arpack")
SOLVER_OF = {"rows": "rows", "columns": "exact", "pairs": "arpack"}
SIZE_OF_SHARE = 128  # rows of the sketch where the number of components is not known beforehand
MOST = float(np.finfo(np.float64).max)
# Steps of EM at most, and the change of a mean, scale or correlation below which they end: the defaults of max_iter and
# tol in scikit-learn's IterativeImputer.
EM_STEPS, EM_TOLERANCE = 10, 1e-3
# Matrices of d x d float64 that EM holds at a time.
GAUSSIAN_COPIES = 8


@estimator
class SketchedPCA(PrincipalComponents):
    """Principal components of rows in memory or of a stream, exact where that is affordable, with certified intervals.

    Parameters
    ----------
    n_components : int, float or None, default None
        Components to keep, at most n_features; with fewer rows the others are directions of variance 0, which later
        rows may fill. None: min(n_samples, n_features) of the first batch, after ``from_model`` also at most one
        less than the sketch_size in use (``resolved``); a float in (0, 1): the fewest that have more than this share.
    whiten : bool, default False
        Scale the transformed components to unit variance; those whose variance is 0, or within rounding, become 0.
    copy : bool, default True
        For compatibility; the input is never overwritten.
    batch_size : int, optional
        Rows that ``fit`` passes to a sketch at a time; the result does not depend on it.
    sketch_size : int, optional
        Rows l of the sketch, more than n_components; by default 2 n_components + 10, or 128 where n_components is a
        float, at most n_features + 1. A larger sketch is more accurate and costs proportionally more.
    method : {"tfd", "rfd", "fd", "cfd", "pfd", "isvd"}, default "tfd"
        See ``fastsketch.FrequentDirections``; Tracked FD has the best point estimates.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        "auto": ``fit`` finds the components of n rows of d columns exactly, from the products of all pairs of rows or
        of columns, where that takes no more operations than a randomized SVD of the sketch's width l with
        scikit-learn's seven power iterations: up to about min(n, d) = 28 l, which is 840 for ten components and 3,080
        for fifty. Of CSR rows in memory it takes Lanczos steps, as ``svd_solver="arpack"``, where n_components is at
        most a twelfth of min(n, d), and that is 600 at least. Otherwise it sketches the rows and reads them again, up
        to seven times, for a block Krylov method that begins with the sketch. ``partial_fit`` sums up the products of
        columns as long as they fit `max_memory` (d up to 6,400), of CSR rows only if that takes no more operations
        than a randomized SVD; otherwise it sketches, and keeps the rows beside the sketch, 4,000 at most, by the same
        rule as ``fit``. "exact": products of columns. "gram" and "svd": a sketch in one pass, for speed first.
    max_memory : float, default 1e9
        Bytes that "auto" may take beyond the rows themselves; a sketch takes what it takes.
    scale : bool, default False
        Find the components of standardised columns, so that their units do not matter: those of the correlation matrix
        where products of columns are kept. Sketches learn rows that are divided by ``scale_``.
    scale_rows : int, default 100
        With scale=True and a sketch by ``partial_fit``: the first rows of positive weight, 4,000 at most, whose
        deviations, rounded to powers of two, the columns are divided by. A column of which all these rows have one
        number c is divided by c; one of zeros by its root mean square when it first has another number.
    missing : {"error", "em"}, default "error"
        "em": NaN in dense rows of ``fit`` is a missing entry. Mean and covariance are those of a Gaussian fitted by
        expectation maximisation, in at most 10 passes (``LowRankCompleter``), and the components its eigenvectors;
        ``transform`` fills missing entries with their conditional means. ``partial_fit`` refuses NaN, and ``fit`` takes
        no weights if entries are missing. "error": NaN is refused.

    Attributes
    ----------
    components_ : ndarray (n_components, n_features)
        Orthonormal, by decreasing variance, with the signs of scikit-learn's PCA (the largest entry is positive);
        where fewer directions were seen, completed by directions of variance 0.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray (n_components,)
        Point estimates: exact up to rounding where ``solver_`` is "rows", "exact" or "arpack". A UserWarning, once,
        says where one pass of a sketch leaves an interval that is wider than the variance in it.
    explained_variance_interval_ : ndarray (n_components, 2)
        float64. The i-th largest variance of the rows seen lies between the numbers of row i, on every stream.
    explained_variance_ratio_certified_ : ndarray (n_components,)
        The lower ends as shares of the exactly known total: their sum is the least that the first components have.
    error_bound_ : float
        Bound on the error of every ``singular_values_ ** 2``: the farthest that one lies from an end of its interval.
    mean_, var_ : ndarray (n_features,)
        Exact at any sketch_size; ``var_`` is known from the rows, or from an exact sum, not from a sketch alone.
    scale_ : ndarray (n_features,) or None
        What the columns are divided by with scale=True, population deviations: exact ones after ``fit``, and while
        ``solver_`` is "exact" or "rows"; powers of two near to them in a sketch by ``partial_fit``; the larger of both
        in a merge of sketches. 0 for a column of one number, along which no component has a part.
    noise_variance_ : float
        Mean variance of the remaining directions; the total is exact.
    n_filled_ : int
        Number of missing entries of the rows of ``fit``. If there are some, the variances have no certificate:
        ``explained_variance_interval_``, ``explained_variance_ratio_certified_`` and ``error_bound_`` raise
        AttributeError, and the certificate of ``sketch_`` is that of the fitted covariance.
    n_components_, n_samples_seen_, n_features_in_, batch_size_ : int
    solver_ : {"rows", "exact", "arpack", "gram", "svd"}
        The method that was used: products of rows ("rows"), products of columns ("exact"), Lanczos steps with CSR rows
        ("arpack"), or a sketch ("gram", "svd").
    n_passes_ : int
        Passes over the rows that ``fit`` made to sketch them. With "auto" they end when the residual of every component
        is at most 1% of its variance, which as a rule makes the variance right to .01%; at most 8.
    sketch_ : fastsketch.FrequentDirections
        The state, saved with the estimator (and with rows that ``partial_fit`` keeps); float64 where it is exact.

    Notes
    -----
    ``partial_fit`` after ``fit`` goes on from what fit has kept: the sum of products, or l rows. Batches may be smaller
    than n_components, also single rows, and sparse input is neither made dense nor copied as a whole.

    A row of weight w counts as w rows: variances are divided by max(1, sum of weights - 1). Unlike scikit-learn's,
    ``get_covariance``, ``get_precision`` and ``score`` are those of the rows with whiten=True too. What each way costs
    and gives: docs/choices/components.md.

    With scale=True variances, components and what ``transform`` returns are in standard units; ``mean_``, ``var_``,
    ``get_covariance``, ``get_precision``, ``score`` and ``inverse_transform`` are in those of the rows. ``fit`` reads
    rows once more for their deviations where it does not sum up products of columns: a source in one pass as "exact",
    else in two, and in one more for each further pass of "auto"; a source that can be read only once is learned from as
    by ``partial_fit``. The ways "rows" and "arpack" take a copy of the rows.

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

    _FREE: ClassVar = frozenset({"whiten", "copy", "batch_size"})

    n_components: int | float | None = None
    _: KW_ONLY
    whiten: bool = False
    copy: bool = True
    batch_size: int | None = None
    sketch_size: int | None = None
    method: MethodName = "tfd"
    solver: SolverName = "auto"
    max_memory: float = 1e9
    scale: bool = False
    scale_rows: int = 100
    missing: Literal["error", "em"] = "error"

    # The parent's declaration knows neither the new parameters nor their checks; ours are made in _asked.
    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    _stream: KeptRows | None = field(init=False)  # all rows of partial_fit, as long as they are few
    _scales: ColumnScales | None = field(init=False)  # of a sketch, with scale=True; an exact sum is scaled when read

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything and learn from X, array or sparse (n_samples, n_features), or a source of rows.

        sample_weight (n_samples,), finite and nonnegative, counts rows. A source (``fs.open_rows``, ...) is read in
        chunks, again for the passes of "auto", and takes no weights. ValueError where squares sum up beyond 1e306.
        """
        as_choice(self.missing, "missing", ("error", "em"))
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            with whole_or_as_before(self):
                return self._fit_source(source)
        with whole_or_as_before(self), sketch_of_any_size(self.n_components):
            self.n_filled_ = 0
            if self.missing == "em" and not is_sparse(X):
                dense = self._with_gaps(X, reset=True)
                if np.isnan(dense).any():
                    return self._fit_gaps(dense, sample_weight)
            rows, weights = self._checked_all(X, sample_weight)
            check_batch(rows, weights, None)
            wanted, size = self._asked(_counted(rows, weights), rows.shape[1])
            if not isinstance(wanted, int) and rows.shape[0] < 2:
                raise ValueError(
                    f"n_components={wanted} needs at least two rows to have a variance, got {rows.shape[0]}"
                )
            batch_size = 5 * rows.shape[1] if self.batch_size is None else as_integer(self.batch_size, "batch_size", 1)
            self._drop("sketch_", "_variance", "_wanted", "solver_", "n_passes_")
            self.batch_size_, self._wanted, self._dtype, self._stream = batch_size, wanted, rows.dtype, None
            self._scales = None
            self._fix_parameters()
            way: WayName = "columns" if self.solver == "exact" else "sketch"
            if self.solver == "auto":
                k = min(rows.shape) if not isinstance(wanted, int) else wanted
                problem = problem_of(rows, k=k, size=size)
                way = choose(problem, max_memory=self.max_memory, pairs=isinstance(wanted, int))
                if way == "pairs" and not self._multiply_all(rows, weights, size, way=way):
                    way = choose(problem, max_memory=self.max_memory)
            if way == "sketch":
                self._sketch_all(rows, weights, size)
            elif way != "pairs":
                self._multiply_all(rows, weights, size, way=way)
            self._name_features(self.sketch_)
            if self.solver_ in ("gram", "svd") or not isinstance(wanted, int):
                self._variances()  # which may warn
        return self

    @changes
    def partial_fit(
        self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None, check_input: bool = True
    ) -> Self:
        """Learn from one more batch of any size, single rows included.

        Sources and sample_weight are as in ``fit``. With check_input=False X must be as the checks would return it: a
        finite float array or CSR.

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
        with self._whole_batch():
            rows: Any = self._checked(X, reset=first) if check_input else X
            rows, weights = rows_with_weight(rows, as_weights(sample_weight, rows.shape[0]), checked=True)
            return self._learn_rows(rows, weights, first=first) if rows.shape[0] else self

    def _learn_rows(self, rows: Any, weights: NDArray[np.float64] | None, *, first: bool) -> Self:
        variance = FeatureVariance() if first else self._variance
        check_batch(rows, weights, variance)
        if first:
            self._wanted, size = self._asked(_counted(rows, weights), rows.shape[1])
            sketch = self._new_sketch(size, self._in_stream(rows, self._wanted, size), rows.dtype)
            self._name_features(sketch)
            stream, self._dtype, self.n_filled_ = self._begun_stream(rows, self._wanted, sketch), rows.dtype, 0
        else:
            sketch, stream = self.sketch_, self._stream
        if stream is not None:
            few = sketch.n_rows + rows.shape[0] <= stream.size
            stream = stream.after(rows, weights, first=sketch.n_rows) if few else None
        # the sketch, which is changed in place, learns when nothing else may be refused
        variance = None if variance is None else variance.after(rows, weights)
        scales = self._scales if not first else None
        if first and self.scale and sketch.solver != "exact":
            scales = ColumnScales.begin(self._n_first(), rows.shape[1])
        if scales is not None:
            scales, sketch, rows, weights = scales.prepare(sketch, rows, weights)
        solver = "rows" if stream is not None else _solver_of(sketch) if sketch.n_rows else sketch.solver
        beside = {"_variance": variance, "_stream": stream, "_scales": scales, "solver_": solver, "n_passes_": 1}
        with sketch_of_any_size(self.n_components):
            self._teach(sketch, rows, weights, **beside)
        return self

    # -- missing entries -------------------------------------------------------------------------------------------
    def _checked(self, X: Any, *, reset: bool) -> Any:
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
        """Return checked dense rows that may hold NaN."""
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")

    def _fit_gaps(self, rows: Any, sample_weight: Any) -> Self:
        """Learn the covariance of a Gaussian that EM fits to dense rows with gaps."""
        if sample_weight is not None:
            raise ValueError("sample_weight must be None where entries are missing: missing='em' takes no weights")
        self._require_memory(rows.shape[1])
        groups, model = groups_for(rows), GapMoments()
        self._name_features(model)
        model = take_steps(model.update(rows), lambda step: step._learn(rows, groups), EM_STEPS, EM_TOLERANCE)
        self._take_gaussian(model, int(np.isnan(rows).sum()), rows.dtype)
        return self

    def _require_memory(self, d: int) -> None:
        if 8.0 * GAUSSIAN_COPIES * d * d > as_real(self.max_memory, "max_memory", 0.0, MOST):
            raise ValueError(
                f"max_memory={self.max_memory:g} is too small for missing='em', which takes {GAUSSIAN_COPIES} matrices "
                f"of {d} x {d}"
            )

    def _take_gaussian(self, model: GapMoments, n_filled: int, dtype: Any) -> None:
        """Take the covariance of EM as an exact sum: that of 2 d rows at both ends of the axes of the Gaussian."""
        found, n = model.gaussian(), model.n_rows
        d = len(found.location)
        wanted, size = self._asked(n, d)
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
        self.n_filled_ = n_filled
        self._name_features(sketch)
        self._fix_parameters()

    def _require_certain(self, name: str) -> None:
        check_is_fitted(self, "sketch_")
        if self.n_filled_:
            raise AttributeError(f"{name} is not known: {self.n_filled_} entries were missing, and were filled")

    def transform(self, X: Rows) -> NDArray[Any]:
        """Project X (n_samples, n_features) on the components; sparse input is not made dense.

        With whiten=True the coordinates along components whose variance is 0, or no more than rounding, are 0. With
        missing="em" NaN is filled by the conditional mean given the other entries of its row.
        """
        check_is_fitted(self, "sketch_")
        if self.missing == "em" and not is_sparse(X):
            rows = self._with_gaps(X, reset=False)
            if np.isnan(rows).any():
                self._require_memory(rows.shape[1])
                found = self._read_once("gaussian", self._find_gaussian)
                rows = np.concatenate([found.fill(block) for block in blocks(rows)]).astype(rows.dtype)
            return super().transform(rows)
        return super().transform(X)

    def _find_gaussian(self) -> Any:
        n = self.sketch_.total_weight
        return gaussian_of_covariance(self._view().mean, self.sketch_.gram() / n, n)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "em"
        return tags

    @changes
    def refine(self, X: Readable, *, sample_weight: ArrayLike | None = None) -> Self:
        """Read the rows that have been learned from once more: components and variances come out nearly exact.

        Parameters
        ----------
        X : array_like or scipy.sparse (n_samples, n_features), path, source, or several of the last two
            All rows that ``fit`` or ``partial_fit`` has seen, in any order.
        sample_weight : array_like (n_samples,), optional
            The weights that they had.

        Returns
        -------
        self
            With ``n_passes_`` one more. Where ``solver_`` is "exact", or ``partial_fit`` has kept all rows, nothing is
            read: nothing has been lost.

        Raises
        ------
        TypeError, ValueError
            If the rows have another width.

        Warns
        -----
        UserWarning
            If the rows differ from those seen: the estimator stays as it was.

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
        if sketch.refine(rows, sample_weight)._seen_engine() is not before:  # else exact already, or other rows
            self.sketch_, self.n_passes_ = sketch, self.n_passes_ + 1
        return self

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the rows (n_samples, n_features) that components X (n_samples, n_components) stand for."""
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
    def _asked(self, n: int, d: int, in_use: int | None = None) -> tuple[int | float, int]:
        """Return (number of components or their share, rows of the sketch) for a first batch (n, d)."""
        as_choice(self.method, "method", tuple(METHODS))
        as_choice(self.solver, "solver", SOLVERS)
        as_real(self.max_memory, "max_memory", 0.0, MOST)
        as_flag(self.scale, "scale")
        self._n_first()
        wanted = _wanted(self.n_components, min(n, d))
        if wanted > d:
            raise ValueError(f"n_components={wanted} must not exceed n_features={d}")
        least = min(wanted, d - 1) if isinstance(wanted, int) else 1
        if self.sketch_size is None:
            size = 2 * wanted + 10 if isinstance(wanted, int) else SIZE_OF_SHARE
            return wanted, max(2, min(size, d + 1))
        size = as_integer(self.sketch_size, "sketch_size", 2) if in_use is None else in_use
        if size <= least:
            raise ValueError(f"sketch_size={size} must be larger than n_components={wanted}")
        return wanted, size

    def _new_sketch(self, size: int, solver: Any, dtype: np.dtype[Any] | None) -> FrequentDirections:
        # sums of products are float64, whatever the rows are
        dtype = np.dtype(np.float64) if solver == "exact" else dtype
        return FrequentDirections(size, method=self.method, solver=solver, center=True, dtype=dtype)

    def _n_first(self) -> int:
        return as_integer(self.scale_rows, "scale_rows", 1, MOST_SCALE_ROWS + 1)

    @property
    def scale_(self) -> NDArray[np.float64] | None:
        check_is_fitted(self, "sketch_")
        scale = self._column_scale()
        return None if scale is None else scale.copy()

    def _column_scale(self) -> NDArray[np.float64] | None:
        return self._read_once("scale", self._find_scale) if self.scale else None

    def _find_scale(self) -> NDArray[np.float64]:
        if (known := self._all_rows()) is not None:
            return spreads(*known, center=True)
        if self._scales is None:
            return standardised_sketch(self.sketch_)[1]
        return self._scales.scale

    def _sketch_all(self, rows: Any, weights: NDArray[np.float64] | None, size: int) -> None:
        solver: Any = "gram" if self.solver == "auto" else self.solver
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
        if self.solver == "auto":
            exactly = partial(self._exactly, rows, weights, size)
            self.n_passes_, seen = read_again(sketch, again, weights, self._wanted, exactly)
            if isinstance(wanted := self._wanted, int) and seen is not None and not self.scale:
                self._read_once("components", lambda: first_of(seen, wanted))

    def _exactly(self, rows: Any, weights: NDArray[np.float64] | None, size: int) -> bool:
        """Learn by an exact way, if one fits the memory."""
        route = cheapest_exact(problem_of(rows, k=int(self._wanted), size=size), max_memory=self.max_memory)
        return route is not None and self._multiply_all(rows, weights, size, way=route.way)

    def _begun_stream(self, rows: Any, wanted: int | float, sketch: FrequentDirections) -> KeptRows | None:
        """Return where a stream that begins with these rows keeps them; None: not at all."""
        if self.solver != "auto" or sketch.solver == "exact":
            return None
        k = wanted if isinstance(wanted, int) else rows.shape[0]
        problem = problem_of(rows, k=k, size=sketch.sketch_size)
        most = most_rows_in_stream(problem, max_memory=self.max_memory, most=MOST_ROWS)
        return KeptRows(most) if most >= rows.shape[0] else None

    def _all_rows(self) -> tuple[Any, NDArray[np.float64]] | None:
        """Return (rows, weights) that partial_fit has kept, if they are all that the sketch has learned from."""
        if self._stream is None or not self.sketch_.total_weight > 0:
            return None
        rows, weights = self._stream.sample()
        return (rows, weights) if np.isclose(weights.sum(), self.sketch_.total_weight, rtol=1e-9, atol=0) else None

    def _components(self) -> ComponentsReadOut:
        scale = self._column_scale()
        divisor = 1.0 if scale is None else np.where(scale > 0, scale, 1.0)
        if (known := self._all_rows()) is not None and self.sketch_.n_rows >= 2:
            rows, weights = known
            size = self.sketch_.resolved["sketch_size"]
            if scale is not None:
                rows = ColumnScales(1, None, scale, FeatureVariance()).divide(rows)
            whole = self._whole(rows, None if (weights == 1).all() else weights, size, "rows")[0]
            read = components_of(whole, self._wanted)
        elif scale is not None and self._scales is None:
            read = components_of(standardised_sketch(self.sketch_)[0], self._wanted)
        else:
            read = super()._components()
        return read._replace(mean=read.mean * divisor)

    def _whole(
        self, rows: Any, weights: NDArray[np.float64] | None, size: int, way: WayName
    ) -> tuple[FrequentDirections, WholePass | None]:
        """Return the sketch of all rows by an exact way, and what that knows beside it; Lanczos steps may give None."""
        products = RowProducts(rows, weights, center=True) if way == "rows" else None
        if products is not None and self.sketch_size is None and not isinstance(self._wanted, int):
            count = count_for(self._wanted, products.eigenvalues(), products.squared_norm)
            size = max(2, min(2 * count + 10, rows.shape[1] + 1))
        sketch = self._new_sketch(size, "exact" if way == "columns" else "gram", np.dtype(np.float64))
        whole: WholePass | None
        if products is not None:
            whole = products.whole(sketch._setting)
        elif way == "columns":
            whole = column_products(rows, weights, sketch._setting)
        else:
            whole = sparse_pairs(rows, weights, sketch._setting, int(self._wanted))
        if whole is not None:
            sketch._begin_with(whole.engine, whole.certain_high)
        return sketch, whole

    def _multiply_all(self, rows: Any, weights: NDArray[np.float64] | None, size: int, *, way: WayName) -> bool:
        """Learn an exact way, and return whether it gave the components: Lanczos steps may not.

        With scale=True the rows are divided by their deviations, in a copy, but for products of columns, which are
        divided when they are read.
        """
        scales = None
        if self.scale and way != "columns":
            scales = ColumnScales.of_all(self._n_first(), [(rows, weights)])
            rows = scales.divide(rows)
        sketch, whole = self._whole(rows, weights, size, way)
        if whole is not None:
            engine = whole.engine
            mean = np.ldexp(by_column(engine, engine.mean), engine.exponent)
            self._variance = FeatureVariance.from_sums(engine.weight, mean, whole.squares)
            self.sketch_, self.solver_, self.n_passes_, self._scales = sketch, SOLVER_OF[way], 1, scales
            if scales is not None:
                self._variance = scales.variance
        return whole is not None

    # -- jobs, merging, files, sketches (_estimator.py) ------------------------------------------------------------
    def _in_stream(self, rows: Any, wanted: int | float, size: int) -> Any:
        """Choose the solver of a stream that begins with rows, by their shape and how full they are."""
        if self.solver != "auto":
            return self.solver
        k = wanted if isinstance(wanted, int) else rows.shape[1]
        sums = sums_in_stream(problem_of(rows, k=k, size=size), max_memory=self.max_memory)
        return "exact" if sums else "gram"

    def _template(self, n_rows: int | None, n_features: int, dtype: np.dtype[Any] | None) -> FrequentDirections:
        # rows that nobody has counted are more than there are columns
        wanted, size = self._asked(n_features if n_rows is None else n_rows, n_features)
        like = np.broadcast_to(np.zeros(1, dtype or np.float64), (max(1, n_rows or n_features), n_features))
        return self._new_sketch(size, self._in_stream(like, wanted, size), dtype)

    def _job(self, source: Source) -> tuple[Any, Any]:
        template, finish = super()._job(source)
        if self.scale and cast("FrequentDirections", template).solver != "exact":
            raise ValueError("scale=True is not for jobs that sketch, whose rows are as they come: call fit(source)")
        return template, finish

    def _fit_source(self, source: Source) -> Self:
        if self.missing == "em":
            source = with_missing(source)
            self._require_memory(source.n_features)
            model = GapMoments()._take_rows(source)
            if n_filled := model._n_gaps():
                if source.repeatable:
                    model = take_steps(model, lambda step: step._take_rows(source), EM_STEPS, EM_TOLERANCE)
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
        if self.scale and template.solver != "exact":
            return self._fit_scaled(source, template)
        with sketch_of_any_size(self.n_components):
            sketch = super()._fit_source(source).sketch_
        if self.solver == "auto" and source.repeatable and not sketch._is_exact():
            self.n_passes_ = read_again(sketch, source, None, self._wanted)[0]
        if not isinstance(self._wanted, int):
            self._view()  # which may warn
        return self

    def _fit_scaled(self, source: Source, sketch: FrequentDirections) -> Self:
        """Sketch a source whose columns are divided by their deviations, which a pass before has found.

        A source that comes once is learned from as by partial_fit.
        """
        out: Any = clone(self)
        if not source.repeatable:
            self._become(out._partial_fit_source(source))
            return self
        scales = ColumnScales.of_all(self._n_first(), ((as_floats(rows), None) for rows in source))
        divided = DividedRows(source, scales)
        sketch._take_rows(divided)
        out._wanted, _ = self._asked(sketch.n_rows, source.n_features)
        out._dtype = sketch.resolved["dtype"]
        passes = read_again(sketch, divided, None, out._wanted)[0] if self.solver == "auto" else 1
        out._own_model(sketch, {**out._arrays(scales.variance, passes), **scales.arrays()})
        self._become(out)
        if not isinstance(self._wanted, int):
            self._view()  # which may warn
        return self

    def _own(self) -> Arrays:
        scales = {} if self._scales is None else self._scales.arrays()
        way = WAYS.index(self.solver_) if self.solver_ in WAYS else 0
        kept = {} if self._stream is None or self._all_rows() is None else self._stream.arrays()
        return {**self._arrays(self._variance, self.n_passes_, way), **kept, **scales, **self._filled(self.n_filled_)}

    @staticmethod
    def _filled(n_filled: int) -> Arrays:
        return {"filled": np.array([float(n_filled)])} if n_filled else {}

    def _arrays(self, variance: FeatureVariance | None, passes: int = 1, way: int = 0) -> Arrays:
        out = {"learned": np.array([self._wanted, passes, way], np.float64), "dtype": np.zeros(0, self._dtype)}
        return out if variance is None else {**out, **variance.arrays()}

    def _restore_own(self, arrays: Arrays) -> None:
        sketch = self.sketch_
        n, d = sketch.n_rows, self.n_features_in_
        self._scales = ColumnScales.from_arrays(arrays, d)
        self.n_filled_ = int(checks.not_negative(arrays, "filled", (1,))[0]) if "filled" in arrays else 0
        if self.scale and self._scales is None and sketch.solver != "exact":
            raise ValueError("scale=True needs an exact sum (solver='exact'): a sketch cannot be scaled afterwards")
        if not arrays:
            in_use = sketch.resolved["sketch_size"]
            self._wanted, _ = self._asked(n if self.n_components is not None else min(n, in_use - 1), d, in_use)
            self._dtype, self._variance = sketch.resolved["dtype"], _variance_of(sketch)
            self.solver_, self.n_passes_, self._stream = _solver_of(sketch), 1, None
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

    def _own_with(self, other: Any) -> Arrays:
        mine, theirs = self._variance, other._variance
        variance = None if mine is None or theirs is None else mine.joined(theirs)
        if self._stream is not None and self._all_rows() is not None and other._all_rows() is not None:
            joined = self._stream.joined(other._stream)
            if self.sketch_.n_rows + other.sketch_.n_rows <= joined.size:
                return {**self._arrays(variance, way=1), **joined.arrays()}
        return {**self._arrays(variance), **self._filled(self.n_filled_ + other.n_filled_)}

    def _merged(self, other: Any) -> tuple[FrequentDirections, Arrays]:
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
        # The two may have gone different ways: a sum takes rows in, and of two sketches this one's shrinks.
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
        if not model.center:
            raise ValueError("sketch must have center=True: components are those of centred rows")
        if model.compressor is not None:
            raise ValueError("sketch must have no compressor: it has not seen the rows themselves")
        return super()._parameters_for(model)


def _counted(rows: Any, weights: NDArray[np.float64] | None) -> int:
    """Count rows, each as often as its weight says; at least those that have one."""
    return rows.shape[0] if weights is None else max(1, int(np.count_nonzero(weights)), int(weights.sum()))


def _wanted(n_components: Any, few: int) -> int | float:
    """Return the parameter as a number of components, or a share in (0, 1)."""
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
    """Return the solver of a sketch: a sum that has taken in a sketch that had lost something is not exact."""
    solver = str(sketch.resolved["solver"])
    return "gram" if solver == "exact" and sketch._seen_engine().shrinkage > 0 else solver


def _variance_of(sketch: FrequentDirections) -> FeatureVariance | None:
    """Return the variance of every feature that an exact sum knows; None for a sketch alone."""
    mean = sketch.mean
    if mean is None or _solver_of(sketch) != "exact" or not sketch.total_weight > 0:
        return None
    return FeatureVariance.from_sums(sketch.total_weight, mean, np.maximum(sketch.gram().diagonal(), 0.0))
