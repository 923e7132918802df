"""Principal components from a sketch: a drop-in for sklearn.decomposition.IncrementalPCA."""

# scikit-learn has no types.
# pyright: basic

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import IncrementalPCA
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from fastsketch._kernels.guard import Guard, changes
from fastsketch._keywords import named_keywords
from fastsketch._validation import Rows, as_choice, as_integer
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import SolverName
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.sklearn._begun import Begun, checked
from fastsketch.sklearn._moments import FeatureVariance


@named_keywords
class SketchedPCA(Begun, IncrementalPCA):
    """Incremental PCA by Frequent Directions: one pass, O(sketch_size) memory, true sparse input.

    Parameters
    ----------
    n_components : int, optional
        Components to keep; by default min(n_samples, n_features) of the first batch.
    whiten : bool, default False
        Scale the transformed components to unit variance.
    copy : bool, default True
        For compatibility; the input is never overwritten.
    batch_size : int, optional
        Rows that ``fit`` passes on at a time; the result does not depend on it.
    sketch_size : int, optional
        Rows l of the sketch, more than n_components; by default 2 n_components + 10. A larger sketch is more
        accurate and costs proportionally more; above n_features the result is exact.
    method : {"rfd", "fd", "cfd", "pfd", "isvd"}, default "rfd"
        See ``fastsketch.FrequentDirections``.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"

    Attributes
    ----------
    components_ : ndarray (n_components_, n_features_in_)
        Orthonormal, by decreasing variance; where fewer directions were seen, completed by directions of variance 0.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray (n_components_,)
        With "rfd" the estimates include alpha, the middle of the interval that the sketch guarantees; where solver
        "exact" is in use ("auto" takes it for small n_features) they are exact.
    mean_, var_ : ndarray (n_features_in_,)
        Exact at any sketch_size.
    noise_variance_ : float
        Mean variance of the remaining directions; the total is exact.
    n_components_, n_samples_seen_, n_features_in_, batch_size_ : int
    error_bound_ : float
        Bound on the error of every singular_values_ ** 2 (n_samples_seen_ - 1 times a variance).
    sketch_ : fastsketch.FrequentDirections
        The state; saved with the estimator.

    Notes
    -----
    Unlike IncrementalPCA, batches may be smaller than n_components, also single rows, and sparse input is neither
    made dense nor copied. On stationary data IncrementalPCA's truncation is often more accurate at the same number
    of kept rows; the sketch is faster and bounds its error on every stream.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedPCA
    >>> X = np.random.default_rng(0).standard_normal((300, 20)) * np.linspace(3, 1, 20)
    >>> SketchedPCA(n_components=2).fit(X).transform(X).shape
    (300, 2)
    """

    _RENAMED: ClassVar = {"rule": "method"}
    _FREE: ClassVar = frozenset({"whiten", "copy", "batch_size"})

    sketch_: FrequentDirections
    n_components_: int
    batch_size_: int
    n_features_in_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        whiten: bool = False,
        copy: bool = True,
        batch_size: int | None = None,
        sketch_size: int | None = None,
        method: MethodName = "rfd",
        solver: SolverName = "auto",
    ) -> None:
        super().__init__(n_components=n_components, whiten=whiten, copy=copy, batch_size=batch_size)
        self.sketch_size = sketch_size
        self.method: MethodName = method
        self.solver: SolverName = solver

    # The parent's declaration knows neither the new parameters nor their checks; ours are made in _start.
    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    def fit(self, X: Rows, y: Any = None) -> Self:
        """Forget everything and learn from X, array or sparse (n_samples, n_features)."""
        rows = self._checked(X, reset=True)
        self._forget()
        if self.batch_size is None:
            self.batch_size_ = 5 * rows.shape[1]
        else:
            self.batch_size_ = as_integer(self.batch_size, "batch_size", 1)
        self._start(rows)
        for batch in gen_batches(rows.shape[0], max(self.batch_size_, self.sketch_.sketch_size)):
            self._take(rows[batch])
        return self

    def partial_fit(self, X: Rows, y: Any = None, *, check_input: bool = True) -> Self:
        """Learn from one more batch of any size, single rows included.

        With check_input=False X must be as the checks would return it: a finite float array or CSR.
        """
        first = not hasattr(self, "sketch_")
        if not first:
            self._check_parameters()
        rows = self._checked(X, reset=first) if check_input else X
        if first:
            self._start(rows)
        self._take(rows)
        return self

    def transform(self, X: Rows) -> NDArray[Any]:
        """Project X (n_samples, n_features) on the components; sparse input is not made dense."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        # (X - mean) V' = X V' - (mean V')
        out = np.asarray(rows @ self.components_.T) - self.mean_.astype(rows.dtype) @ self.components_.T
        if self.whiten:
            scale = np.sqrt(self.explained_variance_)
            out /= np.maximum(scale, np.finfo(scale.dtype).eps)
        return out

    # -- inside ----------------------------------------------------------------------------------------------------
    def _checked(self, X: Any, *, reset: bool) -> Any:
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=1)

    def _forget(self) -> None:
        for name in ("sketch_", "_variance", "n_components_"):
            if hasattr(self, name):
                delattr(self, name)

    def _start(self, X: Any) -> None:
        n, d = X.shape
        as_choice(self.method, "method", tuple(METHODS))
        if self.n_components is None:
            wanted = min(n, d)
        else:
            wanted = as_integer(self.n_components, "n_components", 1)
            if wanted > d:
                raise ValueError(f"n_components={wanted} must not exceed n_features={d}")
        if self.sketch_size is None:
            size = 2 * wanted + 10
        else:
            size = as_integer(self.sketch_size, "sketch_size", 2)
            if size <= min(wanted, d - 1):
                raise ValueError(f"sketch_size={size} must be larger than n_components={wanted}")
        self.n_components_ = wanted
        self.sketch_ = FrequentDirections(size, method=self.method, solver=self.solver, center=True, dtype=X.dtype)
        self._variance = FeatureVariance()
        self._fix_parameters()

    @property
    def _guard(self) -> Guard:
        return self._variance.guard

    @changes  # of the sketch and the variances together
    def _take(self, X: Any) -> None:
        self.sketch_.update(X)
        self._variance.update(X)

    # -- learned attributes, read from the sketch when they are asked for: a read-out costs more than a small batch ---
    def _spectrum(self) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """(squared singular values of the centred rows, directions), n_components_ of each."""
        check_is_fitted(self, "sketch_")
        sketch, k = self.sketch_, self.n_components_
        squares, vt = sketch.singular_values.astype(np.float64)[:k] ** 2, sketch.components[:k]
        if sketch.resolved["solver"] == "exact" and self.method in ("fd", "rfd"):
            squares += sketch.shrinkage  # the exact matrix is there: take back the delta of the read-out's one shrink
        else:
            squares += sketch.alpha
        return np.concatenate([squares, np.zeros(k - len(squares))]), vt

    def _samples(self) -> int:
        return max(1, self.sketch_.n_rows - 1)

    def _dtype(self) -> np.dtype[Any]:
        return self.sketch_.resolved["dtype"]

    @property
    def components_(self) -> NDArray[Any]:
        return _completed(self._spectrum()[1], self.n_components_)

    @property
    def singular_values_(self) -> NDArray[Any]:
        return np.sqrt(self._spectrum()[0]).astype(self._dtype())

    @property
    def explained_variance_(self) -> NDArray[Any]:
        return (self._spectrum()[0] / self._samples()).astype(self._dtype())

    @property
    def explained_variance_ratio_(self) -> NDArray[Any]:
        squares, total = self._spectrum()[0], self.sketch_.squared_norm
        return (squares / total if total > 0 else np.zeros_like(squares)).astype(self._dtype())

    @property
    def noise_variance_(self) -> float:
        squares = self._spectrum()[0]
        rest = min(self.sketch_.n_rows, self.n_features_in_) - self.n_components_
        return max(0.0, self.sketch_.squared_norm - squares.sum()) / self._samples() / rest if rest > 0 else 0.0

    @property
    def mean_(self) -> NDArray[Any]:
        check_is_fitted(self, "sketch_")
        return np.asarray(self.sketch_.mean).astype(self._dtype())

    @property
    def var_(self) -> NDArray[Any]:
        check_is_fitted(self, "sketch_")
        return self._variance.value().astype(self._dtype())

    @property
    def n_samples_seen_(self) -> int:
        check_is_fitted(self, "sketch_")
        return self.sketch_.n_rows

    @property
    def error_bound_(self) -> float:
        check_is_fitted(self, "sketch_")
        sketch = self.sketch_
        if sketch.resolved["solver"] == "exact" and self.method in ("fd", "rfd"):
            return sketch.error_bound - METHODS[self.method].error_bound(sketch.shrinkage)  # rounding alone
        return sketch.error_bound

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _completed(vt: NDArray[Any], k: int) -> NDArray[Any]:
    """k orthonormal rows that begin with vt: directions that no row has had yet follow in a fixed order."""
    r, d = vt.shape
    if r >= k:
        return vt
    candidates = np.vstack([vt, np.eye(k, d, dtype=vt.dtype)])
    q, triangle = np.linalg.qr(candidates.T)
    good = np.abs(np.diag(triangle)) > 1e-3
    extra = q.T[r:][good[r:]][: k - r]
    if len(extra) < k - r:  # the first k unit vectors lie too close to vt: use them all
        full = np.linalg.svd(vt, full_matrices=True)[2] if r else np.eye(d, dtype=vt.dtype)
        extra = full[r:k]
    return np.vstack([vt, extra])
