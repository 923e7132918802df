"""Principal components out of a sketch, as attributes of an estimator, and the Gaussian model behind them.

The variances along the components are their own, those beside them one, the noise.
"""

# reads what a sketch keeps to itself
# pyright: basic

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import IncrementalPCA
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import Rows
from fastsketch._core.warning import warn_caller
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._read_out import upright
from fastsketch.sketching._spectrum import SpectrumOverview
from fastsketch.sklearn._column_scales import Standardization
from fastsketch.sklearn._estimator import SketchEstimator
from fastsketch.sklearn._gaussian import SpikedCovariance
from fastsketch.sklearn._moments import FeatureVariance

Floats = NDArray[np.float64]

# Passes over the rows end when the residuals of all components are at most this share of their variances, or after
# these many: one for the sketch, and the seven of scikit-learn's randomized_svd.
CERTAIN, MOST_PASSES = 0.01, 8
# Share by which what is certain may lie below what is asked for, without a word: rounding.
CERTAIN_ENOUGH = 1e-6


class ComponentsReadOut(NamedTuple):
    """Leading components, in squared units of the centred rows; k of each."""

    squares: Floats  # (k,) point estimates of the eigenvalues, descending
    low: Floats  # (k,) the i-th eigenvalue lies between the i-th of these
    high: Floats  # (k,)
    vt: Floats  # (k, d) orthonormal
    total: float  # sum of all eigenvalues
    mean: Floats  # (d,)
    rounding: float  # bound on what rounding may have moved an eigenvalue by


@contextmanager
def sketch_of_any_size(n_components: Any) -> Iterator[None]:
    """Raise ValueError that names n_components where the sketch for so many is larger than LAPACK takes."""
    try:
        yield
    except ValueError as error:
        if "LAPACK" not in str(error):
            raise
        raise ValueError(
            f"n_components={n_components} needs a sketch of more than 2**31 numbers: take fewer components, or a "
            "smaller sketch_size"
        ) from None


def read_again(
    sketch: FrequentDirections,
    rows: Any,
    weights: NDArray[np.float64] | None,
    wanted: int | float,
    exactly: Callable[[], bool] = lambda: False,
) -> tuple[int, SpectrumOverview | None]:
    """Read the rows until every variance is certain to CERTAIN; return the passes in all, and the last read-out.

    Where one is not after the last pass that is made, exactly() is called; (1, None) if it has learned the rows by an
    exact way, else a UserWarning.
    """
    seen, passes, residual = sketch._overview(), 1, 0.0
    if seen.shrinkage > seen.rounding:
        k = wanted if isinstance(wanted, int) else sketch.resolved["sketch_size"]
        more, residual = sketch._refine_leading(rows, weights, k, most_passes=MOST_PASSES - 1, accuracy=CERTAIN)
        seen, passes = sketch._overview(), 1 + more
    if residual > CERTAIN and isinstance(wanted, int):
        if exactly():
            return 1, None
        warn_caller(
            f"explained_variance_ is not certain to {CERTAIN:.0%}: after pass {passes}, the last, the residual of a "
            f"component is {residual:.1%} of its variance, as in a flat spectrum; solver='exact' has no such error"
        )
    return passes, seen


def components_of(sketch: FrequentDirections, wanted: int | float) -> ComponentsReadOut:
    """Return the first `wanted` components, or as many as hold more than this share (below 1) of the variance.

    Warns with a UserWarning where the sketch does not hold that share: it gives all that it has then.
    """
    if isinstance(wanted, int):
        seen = sketch._overview(wanted)
        return first_of(seen, wanted)
    d = sketch.n_features or 0
    exact = sketch.resolved["solver"] == "exact"
    most = min(d, sketch.resolved["sketch_size"])
    while True:
        seen = sketch._overview(most)
        count = count_for(wanted, seen.spectrum.values, seen.squared_norm)
        if not exact or count <= len(seen.spectrum.values) or most == d:
            break
        most = min(d, 4 * most)
    known = len(seen.spectrum.values)
    if count > known and seen.shrinkage > 0:
        share = float(seen.spectrum.values.sum()) / seen.squared_norm
        warn_caller(
            f"n_components={wanted}: {known} components, all that sketch_size={most} holds, have only "
            f"{share:.3g} of the variance; take a larger sketch_size"
        )
    out = first_of(seen, max(1, min(count, known)))
    certain = float(out.low.sum()) / seen.squared_norm if seen.squared_norm > 0 else 1.0
    if count <= known and certain < wanted * (1 - CERTAIN_ENOUGH):
        most = count_for(wanted, seen.spectrum.low, seen.squared_norm)
        upper = str(most) if most <= known else f"more than {known}"
        warn_caller(
            f"n_components={wanted}: {count} components by estimates, of which a share of {certain:.3g} is certain; at "
            f"most {upper} hold it for certain; take a larger sketch_size, or read the rows again (refine)"
        )
    return out


def count_for(share: float, squares: Floats, total: float) -> int:
    """Count as scikit-learn does: the fewest with a greater share of the total; one more than there are if none."""
    shares = np.cumsum(squares) / total if total > 0 else np.ones(max(1, len(squares)))
    return int(np.searchsorted(shares, share, side="right")) + 1


def first_of(seen: SpectrumOverview, k: int) -> ComponentsReadOut:
    """Return the first k components of a read-out."""
    spectrum = seen.spectrum
    squares, low, high, vt = spectrum.values[:k], spectrum.low[:k], spectrum.high[:k], spectrum.vectors[:k]
    # directions of nothing but rounding are as good as any: take the same ones for the same rows
    vt = vt[: seen.rank]
    missing = k - len(squares)
    if missing > 0:
        # B has no more rows: these eigenvalues are at most Delta, and what the trace leaves
        rest = max(
            0.0, min(seen.shrinkage + seen.rounding, seen.squared_norm - float(spectrum.low.sum()) + seen.rounding)
        )
        none = np.zeros(missing)
        squares, low = np.concatenate([squares, none]), np.concatenate([low, none])
        high = np.concatenate([high, none + rest])
    mean = np.zeros(spectrum.vectors.shape[1]) if seen.mean is None else seen.mean
    return ComponentsReadOut(squares, low, high, upright(completed(vt, k)), seen.squared_norm, mean, seen.rounding)


def completed(vt: NDArray[Any], k: int) -> NDArray[Any]:
    """Return k orthonormal rows that begin with vt: directions that no row has had yet follow in a fixed order."""
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


class PrincipalComponents(SketchEstimator, IncrementalPCA):
    """Estimator whose learned attributes are read from its sketch when they are asked for.

    It descends from scikit-learn's transformers so that ``set_output`` wraps the ``transform`` defined here.
    """

    whiten: bool
    scale: bool
    n_passes_: int
    _wanted: int | float
    _variance: FeatureVariance | None
    _dtype: np.dtype[Any]

    # -- a read-out costs more than a small batch ------------------------------------------------------------------
    def _view(self) -> ComponentsReadOut:
        return self._read_once("components", self._components)

    def _components(self) -> ComponentsReadOut:
        n = self.sketch_.n_rows
        if not isinstance(self._wanted, int) and n < 2:
            raise ValueError(f"n_components={self._wanted} needs at least two rows to have a variance, got {n}")
        return components_of(self.sketch_, self._wanted)

    def _column_scale(self) -> Floats | None:
        """Return what the columns are divided by, (d,), 0 for constant columns; None with scale=False."""
        return None

    def _require_certain(self, name: str) -> None:
        """Raise AttributeError that names an attribute which is not known where entries were filled."""

    def _divisor(self) -> float:
        return max(1.0, self.sketch_.total_weight - 1.0)

    def _variances(self) -> ComponentsReadOut:
        """Return the read-out for attributes about variances, with one warning if those of one pass are uncertain.

        Certain intervals are pessimistic about one pass of a sketch, and more so about several, whose estimates are as
        near as the last pass has moved them. An interval that is wider than the variance in it says that rows were
        many, or directions alike, for so small a sketch.
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
        eps = float(np.finfo(self._dtype).eps)  # the variances are rounded to their dtype
        return np.column_stack([view.low * (1 - eps), view.high * (1 + eps)]) / self._divisor()

    @property
    def explained_variance_ratio_(self) -> NDArray[Any]:
        return self._share(self._variances().squares).astype(self._dtype)

    @property
    def explained_variance_ratio_certified_(self) -> NDArray[np.float64]:
        self._require_certain("explained_variance_ratio_certified_")
        return self._share(self._view().low)

    def _share(self, squares: NDArray[np.float64]) -> NDArray[np.float64]:
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

    def transform(self, X: Rows) -> NDArray[Any]:
        """Project X (n_samples, n_features) on the components; sparse input is not made dense.

        With whiten=True the coordinates along components whose variance is 0, or no more than rounding, are 0.
        """
        rows = self._checked(X, reset=False)
        # (X - mean) V' = X V' - (mean V')
        vt, scale = self.components_, self._column_scale()
        if scale is not None:
            vt = vt * np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0).astype(vt.dtype)
        out = np.asarray(rows @ vt.T) - self.mean_.astype(rows.dtype) @ vt.T
        if self.whiten:
            view = self._view()
            scale = np.sqrt(view.squares / self._divisor())
            # a quotient of two numbers that are rounding says nothing; PCA of scikit-learn divides by eps then
            out *= np.divide(1.0, scale, out=np.zeros_like(scale), where=view.squares > view.rounding).astype(out.dtype)
        return out

    # -- the Gaussian model ----------------------------------------------------------------------------------------
    def get_covariance(self) -> NDArray[Any]:
        """Compute V' diag(variances - noise) V + noise I, (n_features, n_features).

        With scale=True that of the standardised columns, in the units of the rows.
        """
        matrix, scale = self._gaussian().matrix(), self._column_scale()
        if scale is not None:
            matrix *= scale * scale[:, np.newaxis]
        return matrix.astype(self._dtype)

    def get_precision(self) -> NDArray[Any]:
        """Compute the inverse of ``get_covariance``, (n_features, n_features)."""
        matrix, scale = self._invertible().inverse(), self._column_scale()
        if scale is not None:
            inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
            matrix *= inverse * inverse[:, np.newaxis]
        return matrix.astype(self._dtype)

    def score_samples(self, X: Rows) -> NDArray[np.float64]:
        """Compute the log-likelihood (n_samples,) of each row of X (n_samples, n_features); sparse rows stay sparse."""
        model, rows = self._invertible(), self._checked(X, reset=False)
        mean, scale, d = self._view().mean, self._column_scale(), self.n_features_in_
        constant = model.log_determinant + d * np.log(2.0 * np.pi)
        if scale is None:
            return -0.5 * (model.distances(rows, mean) + constant)
        units = Standardization(mean, scale, self.sketch_.total_weight)
        return -0.5 * (units.measured(rows, model.distances) + constant + 2.0 * units.log_volume)

    def score(self, X: Rows, y: Any = None) -> float:
        """Compute the mean log-likelihood of the rows of X."""
        return float(self.score_samples(X).mean())

    def _gaussian(self) -> SpikedCovariance:
        """Return the matrix with the variances along the components, none of which is below that of the noise."""
        view, noise = self._view(), self.noise_variance_
        return SpikedCovariance(np.maximum(view.squares / self._divisor(), noise), view.vt, noise)

    def _invertible(self) -> SpikedCovariance:
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
