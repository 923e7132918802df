"""Binary codes as a transformer."""

# scikit-learn has no types.
# pyright: basic

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fastsketch._keywords import named_keywords
from fastsketch._validation import Rows, as_choice, as_integer
from fastsketch.hashing import SketchHash
from fastsketch.hashing._sketch_hash import Method, Rotation
from fastsketch.sklearn._neighbors import CodeNeighbors
from fastsketch.sklearn._random_state import seed_of

# Bits unless n_bits is given, and there are as many features.
DEFAULT_BITS = 64


@named_keywords
class SketchHasher(CodeNeighbors):
    """Learn binary codes from a stream of rows (FROSH, OSH and relatives) and transform rows to them.

    Parameters
    ----------
    n_bits : int, optional
        Bits of a code, at most n_features; default the smaller of 64 and n_features.
    method, sketch_size, block_rows, rotation
        Those of fastsketch.SketchHash.
    output : {"packed", "bits", "values"}, default "packed"
        The result of ``transform``: uint8 codes of 8 bits a byte (little bit order), one uint8 of 0 or 1 a bit, or the
        signed distances whose signs the bits are.
    n_neighbors : int, default 5
        Of ``kneighbors``, unless it is told.
    oversample : float, default 10
        ``kneighbors`` ranks n_neighbors times as many candidates by their exact distances; at least 1.
    keep_rows : bool, default True
        Whether ``fit`` keeps X itself (no copy of it, but it is in every pickle) for those distances. Without it codes
        alone are kept, and distances are estimates; ``partial_fit`` keeps neither.
    random_state : int, RandomState or None, default 0
        An int is the seed itself; codes of models with one seed are comparable.

    Attributes
    ----------
    hash_ : fastsketch.SketchHash
    n_bits_, n_features_in_, n_samples_seen_ : int
    n_samples_fit_ : int
        Rows that ``kneighbors`` finds: those of ``fit``.
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
    >>> distances, found = SketchHasher(n_bits=16).fit(X).kneighbors(X[:4], n_neighbors=3)
    >>> found[:, 0].tolist()
    [0, 1, 2, 3]
    """

    _FREE: ClassVar = CodeNeighbors._FREE | {"output"}
    _MODEL: ClassVar = "hash_"
    _KIND: ClassVar = SketchHash

    hash_: SketchHash

    def __init__(
        self,
        n_bits: int | None = None,
        *,
        method: Method = "srht",
        sketch_size: int | None = None,
        block_rows: int | None = None,
        rotation: Rotation = "itq",
        output: Literal["packed", "bits", "values"] = "packed",
        n_neighbors: int = 5,
        oversample: float = 10,
        keep_rows: bool = True,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_bits = n_bits
        self.method: Method = method
        self.sketch_size = sketch_size
        self.block_rows = block_rows
        self.rotation: Rotation = rotation
        self.output: Literal["packed", "bits", "values"] = output
        self.n_neighbors = n_neighbors
        self.oversample = oversample
        self.keep_rows = keep_rows
        self.random_state = random_state

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

    def _take(self, X: Any) -> None:
        as_choice(self.output, "output", ("packed", "bits", "values"))
        super()._take(X)

    def _codes(self, X: Any) -> NDArray[np.uint8]:
        return self.hash_.encode(X, factors=True)

    def transform(self, X: Rows) -> NDArray[Any]:
        """Codes of the rows of X: see ``output``."""
        check_is_fitted(self, "hash_")
        X = self._checked(X, reset=False)
        if self.output == "packed":
            return self.hash_.encode(X)
        values = self.hash_.decision_function(X)
        return values if self.output == "values" else (values > 0).astype(np.uint8)

    @property
    def n_bits_(self) -> int:
        """Bits of a code."""
        return self._learner.n_bits

    @property
    def _n_features_out(self) -> int:
        return -(-self.n_bits_ // 8) if self.output == "packed" else self.n_bits_
