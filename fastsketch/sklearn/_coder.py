"""Codes that stand for rows as a transformer."""

# scikit-learn has no types.
# pyright: basic

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fastsketch._keywords import named_keywords
from fastsketch._validation import Rows, as_integer
from fastsketch.quantizing import SketchQuantizer
from fastsketch.sklearn._neighbors import CodeNeighbors
from fastsketch.sklearn._random_state import seed_of
from fastsketch.summaries._learner import Method

# Bytes of a code unless n_bytes is given, where 8 bits for every feature are more.
DEFAULT_BYTES = 16


@named_keywords
class SketchCoder(CodeNeighbors):
    """Learn codes that stand for rows from a stream, transform rows to them and back, and find neighbours by them.

    Parameters
    ----------
    n_bytes : int, optional
        Bytes of a code, at most n_features + 1; default the smaller of 16 and n_features + 1.
    method, sketch_size, block_rows
        Those of fastsketch.SketchQuantizer.
    n_neighbors : int, default 5
        Of ``kneighbors``.
    oversample : float, default 10
        ``kneighbors`` ranks this many candidates a neighbour by exact distances; at least 1.
    keep_rows : bool, default True
        Whether ``fit`` keeps X for ``kneighbors``: without it distances are estimates, and codes alone are kept.
    random_state : int, RandomState or None, default 0
        An int is the seed itself.

    Attributes
    ----------
    quantizer_ : fastsketch.SketchQuantizer
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
    >>> distances, found = coder.kneighbors(X[:4], n_neighbors=3)
    >>> found[:, 0].tolist()
    [0, 1, 2, 3]
    """

    _MODEL: ClassVar = "quantizer_"
    _KIND: ClassVar = SketchQuantizer

    quantizer_: SketchQuantizer

    def __init__(
        self,
        n_bytes: int | None = None,
        *,
        method: Method = "auto",
        sketch_size: int | None = None,
        block_rows: int | None = None,
        n_neighbors: int = 5,
        oversample: float = 10,
        keep_rows: bool = True,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_bytes = n_bytes
        self.method: Method = method
        self.sketch_size = sketch_size
        self.block_rows = block_rows
        self.n_neighbors = n_neighbors
        self.oversample = oversample
        self.keep_rows = keep_rows
        self.random_state = random_state

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
        return self.quantizer_.encode(X)

    def transform(self, X: Rows) -> NDArray[np.uint8]:
        """Codes uint8 (n_samples, n_bytes) of the rows of X.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        """
        check_is_fitted(self, "quantizer_")
        return self._codes(self._checked(X, reset=False))

    def inverse_transform(self, X: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The rows (n_samples, n_features) that codes (n_samples, n_bytes) stand for.

        Parameters
        ----------
        X : array_like of uint8 (n_samples, n_bytes)
            Codes.
        """
        check_is_fitted(self, "quantizer_")
        return self.quantizer_.decode(X)

    @property
    def n_bytes_(self) -> int:
        """Bytes of a code."""
        return self._learner.n_bytes

    @property
    def _n_features_out(self) -> int:
        return self.n_bytes_
