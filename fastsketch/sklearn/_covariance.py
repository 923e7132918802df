"""A covariance estimator on Robust Frequent Directions."""

# scikit-learn has no types.
# pyright: basic

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import check_is_fitted

from fastsketch._keywords import named_keywords
from fastsketch._validation import Rows, as_integer, as_real
from fastsketch.sketching import RobustFrequentDirections
from fastsketch.sketching._engines import SolverName
from fastsketch.sklearn._begun import Begun, checked


@named_keywords
class SketchedCovariance(Begun, EmpiricalCovariance):
    """Covariance (B'B + alpha I) / n from a Robust FD sketch: positive definite, one pass, O(sketch_size d) memory.

    Parameters
    ----------
    sketch_size : int, default 64
        Rows l of the sketch; above n_features the result is the empirical covariance.
    alpha0 : float, default 0.0
        Initial regulariser, in units of squared rows: the target is A'A + alpha0 I.
    assume_centered : bool, default False
        Take the mean to be zero.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"

    Attributes
    ----------
    location_ : ndarray (n_features_in_,)
        Mean, exact; zeros with assume_centered.
    covariance_, precision_ : ndarray (n_features_in_, n_features_in_)
        Made when they are read: at large d use ``mahalanobis``, ``score`` and ``sketch_.solve``, which need O(l d).
    n_samples_seen_, n_features_in_ : int
    error_bound_ : float
        Bound on the spectral norm of the error of covariance_ (against the empirical covariance plus alpha0 / n I).
    sketch_ : fastsketch.RobustFrequentDirections

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedCovariance
    >>> X = np.random.default_rng(0).standard_normal((500, 30))
    >>> SketchedCovariance(sketch_size=8).fit(X).mahalanobis(X).shape
    (500,)
    """

    # The parent's declaration does not know the new parameters; they are checked in _start.
    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    sketch_: RobustFrequentDirections
    n_features_in_: int

    def __init__(
        self,
        sketch_size: int = 64,
        *,
        alpha0: float = 0.0,
        assume_centered: bool = False,
        solver: SolverName = "auto",
    ) -> None:
        super().__init__(assume_centered=assume_centered)
        self.sketch_size = sketch_size
        self.alpha0 = alpha0
        self.solver: SolverName = solver

    def fit(self, X: Rows, y: Any = None) -> Self:
        """Forget everything and learn from X, array or sparse (n_samples, n_features)."""
        rows = self._checked(X, reset=True)
        if hasattr(self, "sketch_"):
            del self.sketch_
        return self._take(rows)

    def partial_fit(self, X: Rows, y: Any = None) -> Self:
        """Learn from one more batch of any size."""
        first = not hasattr(self, "sketch_")
        if not first:
            self._check_parameters()
        return self._take(self._checked(X, reset=first))

    def _checked(self, X: Any, *, reset: bool) -> Any:
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32])

    def _take(self, X: Any) -> Self:
        if not hasattr(self, "sketch_"):
            self.sketch_ = RobustFrequentDirections(
                as_integer(self.sketch_size, "sketch_size", 2),
                as_real(self.alpha0, "alpha0", 0.0, np.finfo(float).max),
                solver=self.solver,
                center=not self.assume_centered,
                dtype=X.dtype,
            )
            self._fix_parameters()
        self.sketch_.update(X)
        return self

    @property
    def n_samples_seen_(self) -> int:
        check_is_fitted(self, "sketch_")
        return self.sketch_.n_rows

    @property
    def location_(self) -> NDArray[np.float64]:
        check_is_fitted(self, "sketch_")
        return np.zeros(self.n_features_in_) if self.assume_centered else np.asarray(self.sketch_.mean)

    @property
    def error_bound_(self) -> float:
        return self.sketch_.error_bound / self.n_samples_seen_

    @property
    def covariance_(self) -> NDArray[np.float64]:
        check_is_fitted(self, "sketch_")
        s, vt, alpha = self._factors()
        out = (vt.T * s**2) @ vt
        out[np.diag_indices_from(out)] += alpha
        return out / self.n_samples_seen_

    @property
    def precision_(self) -> NDArray[np.float64]:
        return self.get_precision()

    def get_precision(self) -> NDArray[np.float64]:
        """Inverse of covariance_ (pseudo-inverse if nothing was removed and it is singular), (d, d)."""
        check_is_fitted(self, "sketch_")
        return self._times_precision(np.eye(self.n_features_in_))

    def mahalanobis(self, X: Rows) -> NDArray[np.float64]:
        """Squared Mahalanobis distances of the rows of X, (n_samples,)."""
        check_is_fitted(self, "sketch_")
        rows = self._checked(X, reset=False)
        moved = (rows if isinstance(rows, np.ndarray) else rows.toarray()) - self.location_
        return np.einsum("ij,ij->i", moved, self._times_precision(moved))

    def score(self, X_test: Rows, y: Any = None) -> float:
        """Gaussian log-likelihood of X_test, the mean over its rows."""
        distances = self.mahalanobis(X_test)
        s, _, alpha = self._factors()
        d = self.n_features_in_
        values = np.full(d, alpha)
        values[: len(s)] += s**2
        with np.errstate(divide="ignore"):
            logdet = np.log(values / self.n_samples_seen_).sum()
        return float(-0.5 * (distances.mean() + logdet + d * np.log(2 * np.pi)))

    def _factors(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        sketch = self.sketch_
        return sketch.singular_values.astype(np.float64), sketch.components.astype(np.float64), sketch.alpha

    def _times_precision(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        s, vt, alpha = self._factors()
        inside = rows @ vt.T
        # rows V diag(1 / (s^2 + alpha)) V' + (rows - rows V V') / alpha
        out = (inside / (s**2 + alpha)) @ vt
        if alpha > 0:
            out += (rows - inside @ vt) / alpha
        return out * self.n_samples_seen_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
