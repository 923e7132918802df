"""Neighbours among the rows of a fit, found by codes and ranked by exact distances."""

# scikit-learn has no types.
# pyright: basic

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.utils.validation import check_is_fitted

from fastsketch._validation import Rows, as_choice, as_integer


class CodeNeighbors:
    """Base of the estimators whose codes find neighbours: one says who the ``_learner`` is, and makes ``_codes``."""

    n_neighbors: int
    oversample: float
    n_samples_fit_: int
    _fit_rows: Any = None
    _fit_codes: NDArray[np.uint8] | None = None

    @property
    def _learner(self) -> Any:
        """The model, which searches."""
        raise NotImplementedError

    def _codes(self, X: Any) -> NDArray[np.uint8]:
        """Codes that its search takes."""
        raise NotImplementedError

    def _checked(self, X: Any, *, reset: bool) -> Any:
        raise NotImplementedError

    def _keep(self, X: Any, *, keep_rows: bool) -> None:
        """Keep the rows of a fit, or their codes alone."""
        self._fit_rows = X if keep_rows else None
        self._fit_codes = None if keep_rows else self._codes(X)
        self.n_samples_fit_ = X.shape[0]

    def _forget(self) -> None:
        self._fit_rows = self._fit_codes = None
        if hasattr(self, "n_samples_fit_"):
            del self.n_samples_fit_

    def kneighbors(
        self, X: Rows | None = None, n_neighbors: int | None = None, *, return_distance: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]] | NDArray[np.int64]:
        """The nearest of the rows of ``fit``, found by their codes and ranked by exact distances.

        Parameters
        ----------
        X : array_like or sparse (n_queries, n_features), optional
            If not given the rows of ``fit``, none of which is then its own neighbour.
        n_neighbors : int, optional
            Default that of the estimator.
        return_distance : bool, default True

        Returns
        -------
        neigh_dist : ndarray float64 (n_queries, n_neighbors)
            Euclidean distances, ascending; estimates with keep_rows=False. Only if return_distance.
        neigh_ind : ndarray int64 (n_queries, n_neighbors)
            Indices of rows of ``fit``.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            If nothing has been fitted, or ``partial_fit`` has learned on; if X is no finite matrix of the width of
            ``fit``, or n_neighbors exceeds its rows.
        """
        check_is_fitted(self)
        if not hasattr(self, "n_samples_fit_"):
            raise ValueError(
                "kneighbors finds rows of fit, and partial_fit keeps none: encode rows with the model, and search them "
                "with its search"
            )
        k = as_integer(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors", 1)
        most = self.n_samples_fit_ - (X is None)
        if k > most:
            raise ValueError(f"n_neighbors must be at most the {most} rows that can be neighbours, got {k}")
        if X is None and self._fit_rows is None:
            raise ValueError("X must be given: with keep_rows=False the rows of fit are not kept")
        queries = self._fit_rows if X is None else self._checked(X, reset=False)
        if self._fit_codes is None:  # when nothing is left to refuse
            self._fit_codes = self._codes(self._fit_rows)
        distances, found = self._learner.search(
            queries, self._fit_codes, k=k + (X is None), rescore=self._fit_rows, oversample=self.oversample
        )
        if X is None:
            distances, found = _without_itself(distances, found)
        return (distances, found) if return_distance else found

    def kneighbors_graph(
        self,
        X: Rows | None = None,
        n_neighbors: int | None = None,
        *,
        mode: Literal["connectivity", "distance"] = "connectivity",
    ) -> Any:
        """The neighbours of ``kneighbors`` as CSR (n_queries, n_samples_fit), of ones or of distances.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As for ``kneighbors``.
        """
        as_choice(mode, "mode", ("connectivity", "distance"))
        distances, found = self.kneighbors(X, n_neighbors)
        data = distances if mode == "distance" else np.ones(found.shape)
        starts = np.arange(0, found.size + 1, found.shape[1])
        return csr_matrix((data.ravel(), found.ravel(), starts), shape=(len(found), self.n_samples_fit_))


def _without_itself(
    distances: NDArray[np.float64], found: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """One neighbour less of each row: itself, or the first where equal rows have taken its place."""
    others = found != np.arange(len(found))[:, np.newaxis]
    others[others.all(axis=1), 0] = False
    shape = len(found), found.shape[1] - 1
    return distances[others].reshape(shape), found[others].reshape(shape)
