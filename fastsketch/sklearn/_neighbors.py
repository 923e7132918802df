"""Estimators of codes: learning, and neighbours among the rows of a fit, found by codes, ranked by exact distances."""

# scikit-learn has no types.
# pyright: basic

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastsketch._batches import Batch
from fastsketch._validation import Rows, as_choice, as_flag, as_integer
from fastsketch.sklearn._begun import checked
from fastsketch.sklearn._sketched import Merging


class CodeNeighbors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Merging):
    """Base of the estimators of codes: one says how its model begins (``_template``), and makes ``_codes``."""

    _FREE: ClassVar = frozenset({"n_neighbors", "oversample", "keep_rows"})

    n_neighbors: int
    oversample: float
    keep_rows: bool
    n_samples_fit_: int
    _fit_rows: Any = None
    _fit_codes: NDArray[np.uint8] | None = None

    def _codes(self, X: Any) -> NDArray[np.uint8]:
        """Codes that the search of the model takes."""
        raise NotImplementedError

    # -- learning --------------------------------------------------------------------------------------------------
    def fit(self, X: Batch, y: Any = None) -> Self:
        """Forget everything and learn from X, array or sparse (n_samples, n_features), or a source of rows.

        Of a source (``fs.open_rows``, a data set of HDF5, ...) nothing is kept for ``kneighbors``.
        """
        keep_rows = as_flag(self.keep_rows, "keep_rows")
        if self._fit_source(X):
            return self
        rows = self._checked(X, reset=True)
        self._forget()
        self.__dict__.pop(self._MODEL, None)
        self._take(rows)
        self._keep(rows, keep_rows=keep_rows)
        return self

    def partial_fit(self, X: Batch, y: Any = None) -> Self:
        """Learn from one more batch of any size, or from a source of rows.

        What ``fit`` has kept for ``kneighbors`` is given up.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or source
        y : ignored
        """
        if self._partial_fit_source(X):
            return self
        first = not hasattr(self, self._MODEL)
        if not first:
            self._check_parameters()
        self._take(self._checked(X, reset=first))
        self._forget()
        return self

    def _checked(self, X: Any, *, reset: bool) -> Any:
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32])

    def _take(self, X: Any) -> None:
        first = not hasattr(self, self._MODEL)
        model: Any = self._template(X.shape[0], X.shape[1], X.dtype) if first else self._learner
        if first:
            self._name_features(model)
        model.update(X)
        setattr(self, self._MODEL, model)
        if first:
            self._fix_parameters()

    def _put_own(self, arrays: Any) -> None:
        self._forget()

    def _merged_model(self, other: Any) -> Any:
        mine = self._learner.copy()
        return mine.merge(other._beside(mine))

    # -- what the two have of their rows -----------------------------------------------------------------------------
    @property
    def mean_(self) -> NDArray[np.float64] | None:
        """Mean of the rows."""
        return self._learner.mean

    @property
    def components_(self) -> NDArray[np.float64]:
        """Principal directions of the sketch."""
        return self._learner.components

    @property
    def n_samples_seen_(self) -> int:
        """Rows seen."""
        return self._learner.n_rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    # -- neighbours ------------------------------------------------------------------------------------------------

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

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchHasher
        >>> X = np.random.default_rng(0).standard_normal((500, 20))
        >>> distances, found = SketchHasher(16).fit(X).kneighbors(X[:3], n_neighbors=2)
        >>> found[:, 0], distances[:, 0]
        (array([0, 1, 2]), array([0., 0., 0.]))
        """
        check_is_fitted(self)
        if not hasattr(self, "n_samples_fit_"):
            raise ValueError(
                "kneighbors finds rows of fit, and partial_fit keeps none, as sources, sketches, files and merges do: "
                "encode rows with the model, and search them with its search"
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

        Parameters
        ----------
        X, n_neighbors
            As for ``kneighbors``.
        mode : {"connectivity", "distance"}, default "connectivity"
            Ones, or distances.

        Returns
        -------
        csr_matrix (n_queries, n_samples_fit)

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
