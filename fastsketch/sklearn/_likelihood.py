"""The Gaussian model behind principal components: variances along them, and noise of one variance beside them."""

# scikit-learn has no types.
# pyright: basic

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches

from fastsketch._validation import Rows
from fastsketch.sklearn._components import Components


class Likelihood(BaseEstimator):
    """Covariance, precision and likelihood of an estimator that has a view of its components."""

    noise_variance_: Any
    n_features_in_: int
    _dtype: np.dtype[Any]

    def _view(self) -> Components:
        raise NotImplementedError

    def _divisor(self) -> float:
        raise NotImplementedError

    def _checked(self, X: Any, *, reset: bool) -> Any:
        raise NotImplementedError

    def get_covariance(self) -> NDArray[Any]:
        """V' diag(variances - noise) V + noise I, (n_features, n_features)."""
        view, noise, over = self._model()
        out = (view.vt.T * (over - noise)) @ view.vt
        out[np.diag_indices_from(out)] += noise
        return out.astype(self._dtype)

    def get_precision(self) -> NDArray[Any]:
        """The inverse of ``get_covariance``, (n_features, n_features)."""
        view, noise, over = self._invertible()
        if len(over) == self.n_features_in_:
            return ((view.vt.T / over) @ view.vt).astype(self._dtype)
        out = (view.vt.T * (1.0 / over - 1.0 / noise)) @ view.vt
        out[np.diag_indices_from(out)] += 1.0 / noise
        return out.astype(self._dtype)

    def score_samples(self, X: Rows) -> NDArray[np.float64]:
        """Log-likelihood of each row of X (n_samples, n_features), (n_samples,); sparse input is not made dense."""
        view, noise, over = self._invertible()
        rows, k, d = self._checked(X, reset=False), len(over), self.n_features_in_
        z = np.asarray(rows @ view.vt.T) - view.mean @ view.vt.T
        distance = (z**2 / over).sum(axis=1)
        logdet = np.log(over).sum()
        if k < d:
            left = _squared_distances(rows, view.mean) - (z**2).sum(axis=1)
            distance += np.maximum(left, 0.0) / noise
            logdet += (d - k) * np.log(noise)
        return -0.5 * (distance + logdet + d * np.log(2.0 * np.pi))

    def score(self, X: Rows, y: Any = None) -> float:
        """Mean log-likelihood of the rows of X."""
        return float(self.score_samples(X).mean())

    def _model(self) -> tuple[Components, float, NDArray[np.float64]]:
        """(components, variance of the noise, variances along the components: none is below the noise)."""
        view = self._view()
        noise = self.noise_variance_
        return view, noise, np.maximum(view.squares / self._divisor(), noise)

    def _invertible(self) -> tuple[Components, float, NDArray[np.float64]]:
        view, noise, over = self._model()
        smallest = over.min() if len(over) == self.n_features_in_ else noise
        if not smallest > 0 and len(over) == self.n_features_in_:
            raise ValueError(
                "the covariance is singular: a variance is 0, since a column is constant or a combination of others; "
                "leave such columns out, or take a smaller n_components"
            )
        if not smallest > 0:
            raise ValueError(
                "the covariance is singular: the components hold all variance, and there are fewer than features; "
                "take a smaller n_components"
            )
        return view, noise, over


def _squared_distances(rows: Any, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """||x - mean||^2 of every row."""
    if isinstance(rows, np.ndarray):
        out = np.empty(len(rows))
        for batch in gen_batches(len(rows), 256):
            moved = rows[batch] - mean
            out[batch] = np.einsum("ij,ij->i", moved, moved)
        return out
    squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return squares - 2.0 * (rows @ mean) + mean @ mean
