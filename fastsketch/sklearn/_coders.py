"""``SketchCoder`` and ``SketchHasher``: transformers to compact codes, which also find nearest neighbours."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastsketch._core.validation import Rows, as_choice, as_flag, as_integer
from fastsketch._frame.batches import Batch
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.hashing._sketch_hash import Method as HashMethod
from fastsketch.neighbours.hashing._sketch_hash import Rotation
from fastsketch.neighbours.quantizing import SketchQuantizer
from fastsketch.neighbours.summaries._summary_model import Method as CodeMethod
from fastsketch.sklearn._estimator import MergingEstimator, as_far_source, estimator, restored_on_error, seed_of

# Default of n_bytes, unless n_features + 1 is smaller.
DEFAULT_BYTES = 16
# Default of n_bits, unless n_features is smaller.
DEFAULT_BITS = 64


@estimator
class CodeNeighbors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MergingEstimator):
    """Base of ``SketchCoder`` and ``SketchHasher``: fitting, and nearest neighbours by codes.

    A subclass defines the empty model and the codes that are searched.
    """

    _FREE: ClassVar = frozenset({"n_neighbors", "oversample", "keep_rows"})

    _fit_rows = _fit_codes = None

    _: KW_ONLY
    sketch_size: int | None = None
    block_rows: int | None = None
    n_neighbors: int = 5
    oversample: float = 10
    keep_rows: bool = True
    random_state: int | np.random.RandomState | None = 0

    def _codes(self, X: Any) -> NDArray[np.uint8]:
        """Return the codes of checked rows, in the form in which the model's ``search`` takes them."""
        raise NotImplementedError

    # -- learning --------------------------------------------------------------------------------------------------
    def fit(self, X: Batch, y: Any = None) -> Self:
        """Fit the model to X, whose rows ``kneighbors`` then searches.

        Anything learned before is forgotten.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), source or path
            The rows of a source are not kept, so ``kneighbors`` cannot be called afterwards.
        y : ignored

        Returns
        -------
        self
        """
        keep_rows = as_flag(self.keep_rows, "keep_rows")
        if (source := as_far_source(X)) is not None:
            return self._fit_source(source)
        with restored_on_error(self):
            rows = self._checked(X, reset=True)
            self._drop(self._MODEL)
            self._learn_rows(rows)
            self._store_rows(rows, keep_rows=keep_rows)
        return self

    def partial_fit(self, X: Batch, y: Any = None) -> Self:
        """Update the model with a batch of rows, and drop the rows kept for ``kneighbors``.

        Rows that ``fit`` has kept for ``kneighbors`` are dropped.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), source or path
        y : ignored

        Returns
        -------
        self
        """
        if (source := as_far_source(X)) is not None:
            return self._partial_fit_source(source)
        with self._atomic_batch():
            self._learn_rows(self._checked_more(X))
        return self

    def _learn_rows(self, X: Any) -> None:
        self._teach(self._model_for(X), X, _fit_rows=None, _fit_codes=None)

    def _restore_own(self, arrays: Any) -> None:
        self._forget()

    def _merged_model(self, other: Any) -> Any:
        mine = self._learner.copy()
        return mine.merge(other._with_distinct_blocks(mine))

    # -- what the two have of their rows -----------------------------------------------------------------------------
    @property
    def mean_(self) -> NDArray[np.float64] | None:
        """Return the mean of all rows learned, shape (n_features,); None if there are none."""
        return self._learner.mean

    @property
    def components_(self) -> NDArray[np.float64]:
        """Return the principal directions that the model has learned, one in each row."""
        return self._learner.components

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    # -- neighbours ------------------------------------------------------------------------------------------------

    def _store_rows(self, X: Any, *, keep_rows: bool) -> None:
        """Store the rows of ``fit``, or with keep_rows=False only their codes, for ``kneighbors``.

        With rows, neighbours are ranked by exact distances.
        """
        self._fit_rows = X if keep_rows else None
        self._fit_codes = None if keep_rows else self._codes(X)

    def _forget(self) -> None:
        self._fit_rows = self._fit_codes = None

    @property
    def n_samples_fit_(self) -> int:
        """Return the number of rows that ``kneighbors`` searches.

        AttributeError if no rows of ``fit`` are kept.
        """
        check_is_fitted(self)
        kept = self._fit_codes if self._fit_rows is None else self._fit_rows
        if kept is None:
            raise AttributeError("n_samples_fit_ is not known: no rows of fit are kept")
        return int(kept.shape[0])

    def kneighbors(
        self, X: Rows | None = None, n_neighbors: int | None = None, *, return_distance: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]] | NDArray[np.int64]:
        """Find approximate nearest neighbours of X among the rows of ``fit``.

        Codes select candidates, which are then ranked by exact distances.

        Parameters
        ----------
        X : array_like or sparse (n_queries, n_features), optional
            By default the rows of ``fit``; a row is then not its own neighbour.
        n_neighbors : int, optional
            By default that of the estimator.
        return_distance : bool, default True

        Returns
        -------
        neigh_dist : ndarray float64 (n_queries, n_neighbors)
            Euclidean distances, ascending; estimates with keep_rows=False. Only if return_distance is True.
        neigh_ind : ndarray int64 (n_queries, n_neighbors)
            Indices of the rows of ``fit``.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            If nothing has been fitted or ``partial_fit`` was called after ``fit``; if X is not a finite matrix of the
            width of ``fit``; or if n_neighbors exceeds the number of rows.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchHasher
        >>> X = np.random.default_rng(0).standard_normal((500, 20))
        >>> distances, neighbors = SketchHasher(16).fit(X).kneighbors(X[:3], n_neighbors=2)
        >>> neighbors[:, 0], distances[:, 0]
        (array([0, 1, 2]), array([0., 0., 0.]))
        """
        check_is_fitted(self)
        if not hasattr(self, "n_samples_fit_"):
            raise ValueError(
                "kneighbors finds rows of fit, and partial_fit keeps none, as sources, sketches, files and merges do: "
                "encode rows with the model, and search them with its search"
            )
        wanted = bool(return_distance)  # an array raises ValueError here, before codes are kept
        k = as_integer(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors", 1)
        most = self.n_samples_fit_ - (X is None)
        if k > most:
            raise ValueError(f"n_neighbors must be at most the {most} rows that can be neighbours, got {k}")
        if X is None and self._fit_rows is None:
            raise ValueError("X must be given: with keep_rows=False the rows of fit are not kept")
        queries = self._fit_rows if X is None else self._checked(X, reset=False)
        if self._fit_codes is None:  # after all checks
            self._fit_codes = self._codes(self._fit_rows)
        distances, neighbors = self._learner.search(
            queries, self._fit_codes, k=k + (X is None), rescore=self._fit_rows, oversample=self.oversample
        )
        if X is None:
            distances, neighbors = _without_itself(distances, neighbors)
        return (distances, neighbors) if wanted else neighbors

    def kneighbors_graph(
        self,
        X: Rows | None = None,
        n_neighbors: int | None = None,
        *,
        mode: Literal["connectivity", "distance"] = "connectivity",
    ) -> Any:
        """Compute the graph of nearest neighbours of X, a sparse matrix of ones or of distances.

        Parameters
        ----------
        X, n_neighbors
            As for ``kneighbors``.
        mode : {"connectivity", "distance"}, default "connectivity"
            Entries of the matrix: ones, or distances.

        Returns
        -------
        csr_matrix (n_queries, n_samples_fit)

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As for ``kneighbors``.
        """
        as_choice(mode, "mode", ("connectivity", "distance"))
        distances, neighbors = self.kneighbors(X, n_neighbors)
        data = distances if mode == "distance" else np.ones(neighbors.shape)
        starts = np.arange(0, neighbors.size + 1, neighbors.shape[1])
        return csr_matrix((data.ravel(), neighbors.ravel(), starts), shape=(len(neighbors), self.n_samples_fit_))


def _without_itself(
    distances: NDArray[np.float64], neighbors: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (distances, neighbours) without the query itself, for queries that are the rows of ``fit``.

    If equal rows have displaced it, the nearest neighbour is removed instead.
    """
    others = neighbors != np.arange(len(neighbors))[:, np.newaxis]
    others[others.all(axis=1), 0] = False
    shape = len(neighbors), neighbors.shape[1] - 1
    return distances[others].reshape(shape), neighbors[others].reshape(shape)


@estimator
class SketchCoder(CodeNeighbors):
    """Transformer that encodes rows in a few bytes by transform coding, learned from a stream.

    Parameters
    ----------
    n_bytes : int, optional
        Bytes of a code, at most n_features + 1. The default is 16, or n_features + 1 if that is smaller.
    method, sketch_size, block_rows
        See ``fastsketch.SketchQuantizer``.
    n_neighbors : int, default 5
        Number of neighbours that ``kneighbors`` returns.
    oversample : float, default 10
        ``kneighbors`` computes exact distances of this many candidates for each neighbour; at least 1.
    keep_rows : bool, default True
        Whether ``fit`` keeps X for these distances. With False only codes are kept, and distances are estimates.
    random_state : int, RandomState or None, default 0
        Seed of the model.

    Attributes
    ----------
    quantizer_ : fastsketch.SketchQuantizer
        The fitted model.
    n_bytes_, n_features_in_, n_samples_seen_, n_samples_fit_ : int
    mean_ : ndarray (n_features,)
    components_ : ndarray (n_directions, n_features)

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchCoder
    >>> X = np.random.default_rng(0).standard_normal((500, 30))
    >>> coder = SketchCoder(n_bytes=12).fit(X)
    >>> codes = coder.transform(X)
    >>> codes.shape, coder.inverse_transform(codes).shape
    ((500, 12), (500, 30))
    >>> distances, neighbors = coder.kneighbors(X[:4], n_neighbors=3)
    >>> neighbors[:, 0].tolist()
    [0, 1, 2, 3]
    """

    _MODEL: ClassVar = "quantizer_"
    _KIND: ClassVar = SketchQuantizer

    n_bytes: int | None = None
    _: KW_ONLY
    method: CodeMethod = "auto"

    def _template(self, n_rows: int | None, n_features: int, dtype: np.dtype[Any] | None) -> SketchQuantizer:
        most = min(DEFAULT_BYTES, n_features + 1)
        return SketchQuantizer(
            most if self.n_bytes is None else as_integer(self.n_bytes, "n_bytes", 1),
            method=self.method,
            sketch_size=self.sketch_size,
            block_rows=self.block_rows,
            seed=seed_of(self.random_state),
            dtype=dtype,
        )

    def _codes(self, X: Any) -> NDArray[np.uint8]:
        return self._learner.encode(X)

    def transform(self, X: Rows) -> NDArray[np.uint8]:
        """Encode rows as compact uint8 codes.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray uint8 (n_samples, n_bytes)
        """
        return self._learner.encode(self._checked(X, reset=False))

    def inverse_transform(self, X: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Decode codes to approximate rows.

        Parameters
        ----------
        X : array_like of uint8 (n_samples, n_bytes)
            Codes from ``transform``.

        Returns
        -------
        ndarray float32 (n_samples, n_features)
        """
        return self._learner.decode(X)

    @property
    def n_bytes_(self) -> int:
        """Return the number of bytes in a code."""
        return self._learner.n_bytes

    @property
    def _n_features_out(self) -> int:
        return self.n_bytes_


@estimator
class SketchHasher(CodeNeighbors):
    """Transformer that hashes rows to binary codes, learned from a stream by a sketch (FROSH, OSH and others).

    Parameters
    ----------
    n_bits : int, optional
        Bits of a code, at most n_features. The default is 64, or n_features if that is smaller.
    method, sketch_size, block_rows, rotation
        See ``fastsketch.SketchHash``.
    output : {"packed", "bits", "values"}, default "packed"
        Result of ``transform``: uint8 codes with eight bits in a byte (little bit order), one uint8 of 0 or 1 for each
        bit, or the projections whose signs are the bits.
    n_neighbors : int, default 5
        Number of neighbours that ``kneighbors`` returns.
    oversample : float, default 10
        ``kneighbors`` computes exact distances of this many candidates for each neighbour; at least 1.
    keep_rows : bool, default True
        Whether ``fit`` keeps X (a reference, not a copy, but it is in every pickle) for these distances. With False
        only codes are kept, and distances are estimates. ``partial_fit`` keeps neither.
    random_state : int, RandomState or None, default 0
        Seed of the model. Codes of models with the same seed can be compared.

    Attributes
    ----------
    hash_ : fastsketch.SketchHash
        The fitted model.
    n_bits_, n_features_in_, n_samples_seen_ : int
    n_samples_fit_ : int
        Number of rows that ``kneighbors`` searches: those of ``fit``.
    mean_ : ndarray (n_features,)
    components_ : ndarray (n_bits, n_features)
        Principal directions of the sketch, before the rotation.

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchHasher
    >>> X = np.random.default_rng(0).standard_normal((500, 30))
    >>> SketchHasher(n_bits=16).fit_transform(X).shape
    (500, 2)
    >>> distances, neighbors = SketchHasher(n_bits=16).fit(X).kneighbors(X[:4], n_neighbors=3)
    >>> neighbors[:, 0].tolist()
    [0, 1, 2, 3]
    """

    _FREE: ClassVar = CodeNeighbors._FREE | {"output"}
    _MODEL: ClassVar = "hash_"
    _KIND: ClassVar = SketchHash

    n_bits: int | None = None
    _: KW_ONLY
    method: HashMethod = "srht"
    rotation: Rotation = "itq"
    output: Literal["packed", "bits", "values"] = "packed"

    def _template(self, n_rows: int | None, n_features: int, dtype: np.dtype[Any] | None) -> SketchHash:
        as_choice(self.output, "output", ("packed", "bits", "values"))
        bits = min(DEFAULT_BITS, n_features) if self.n_bits is None else as_integer(self.n_bits, "n_bits", 1)
        return SketchHash(
            bits,
            method=self.method,
            sketch_size=self.sketch_size,
            block_rows=self.block_rows,
            rotation=self.rotation,
            seed=seed_of(self.random_state),
            dtype=dtype,
        )

    def _learn_rows(self, X: Any) -> None:
        as_choice(self.output, "output", ("packed", "bits", "values"))
        super()._learn_rows(X)

    def _codes(self, X: Any) -> NDArray[np.uint8]:
        return self._learner.encode(X, factors=True)

    def transform(self, X: Rows) -> NDArray[Any]:
        """Encode rows as packed bits, single bits or projections, according to ``output``.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray
            uint8 (n_samples, ceil(n_bits / 8)) for "packed"; uint8 (n_samples, n_bits) for "bits"; float (n_samples,
            n_bits) for "values".
        """
        model, rows = self._learner, self._checked(X, reset=False)
        if self.output == "packed":
            return model.encode(rows)
        values = model.decision_function(rows)
        return values if self.output == "values" else (values > 0).astype(np.uint8)

    @property
    def n_bits_(self) -> int:
        """Return the number of bits in a code."""
        return self._learner.n_bits

    @property
    def _n_features_out(self) -> int:
        return -(-self.n_bits_ // 8) if self.output == "packed" else self.n_bits_
