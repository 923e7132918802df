"""Base class of hash models: encoding of rows, signed distances and search."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import MOST_SIZE, Rows, as_flag
from fastsketch._frame.model import Model
from fastsketch._frame.parameters import integer
from fastsketch._kernels.guard import reads
from fastsketch.neighbours.codes._packed_codes import Codes, as_codes, code_width
from fastsketch.neighbours.codes._search import search
from fastsketch.neighbours.hashing._sign_encoder import FACTOR_BYTES, SignEncoder


class Hasher(Model, abstract=True):
    """Base class of models that encode rows as binary codes and search among them.

    A subclass learns from rows and defines ``_encoder``.
    """

    n_bits: int = integer(at_least=1, below=MOST_SIZE, kw_only=False)

    @reads
    def decision_function(self, rows: Rows) -> NDArray[np.floating[Any]]:
        """Compute the signed distance of each row to the hyperplane of each bit.

        Bit k of the code of a row is set if entry k is positive.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)

        Returns
        -------
        ndarray (n, n_bits)
            float32 for float32 rows, else float64.

        Raises
        ------
        TypeError, ValueError
            If the model has seen no rows, or rows are not a finite real matrix of its width.
        """
        encoder = self._named_encoder(factors=False)
        return encoder.scores(encoder.checked(rows))

    @reads
    def encode(self, rows: Rows, *, factors: bool = False) -> Codes:
        """Encode rows as binary codes.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)
        factors : bool, default False
            Append two numbers to the bits of every row, four bytes: its distance from the mean and a correction. They
            improve the recall of ``search`` by real-valued queries; Hamming distances ignore them.

        Returns
        -------
        ndarray uint8 (n, ceil(n_bits / 8)), or (n, ceil(n_bits / 8) + 4) with factors
            np.packbits(decision_function(rows) > 0, axis=1, bitorder="little") with unused bits 0, then the factors.

        Raises
        ------
        TypeError, ValueError
            As for ``decision_function``.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 100))
        >>> model = fs.SketchHash(32).update(rows)
        >>> model.encode(rows).shape, model.encode(rows, factors=True).shape
        ((1000, 4), (1000, 8))
        """
        return self._named_encoder(factors=as_flag(factors, "factors")).encode(rows)

    @reads
    def encoder(self, *, factors: bool = False) -> SignEncoder:
        """Return an immutable encoder, which encodes rows as the model does now.

        It does not change when the model learns more rows.

        Parameters
        ----------
        factors : bool, default False
            Whether its codes have factors; see ``encode``.

        Returns
        -------
        fastsketch.neighbours.Encoder

        Raises
        ------
        ValueError
            If the model has seen no rows.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 100))
        >>> model = fs.SketchHash(32).update(rows)
        >>> encoder = model.encoder()
        >>> bool((encoder.encode(rows) == model.encode(rows)).all())
        True
        """
        return self._named_encoder(factors=as_flag(factors, "factors"))

    def _named_encoder(self, *, factors: bool) -> SignEncoder:
        """Return an encoder of the model's present state, which also checks the column names of rows.

        Raises ValueError before the first row.
        """
        if not self.n_rows:
            raise ValueError("the model has seen no rows: call update first")
        encoder = self._encoder(factors=factors)
        encoder.feature_names = self._feature_names
        return encoder

    def _encoder(self, *, factors: bool) -> SignEncoder:
        """Return an encoder with the present state of a model that has learned rows.

        A subclass defines this. Column names are set by the caller.
        """
        raise NotImplementedError

    search = search

    def _encoder_for(self, codes: Codes) -> SignEncoder:
        return self.encoder(factors=self._has_factors(codes))

    def _has_factors(self, codes: Codes) -> bool:
        """Return True if codes end with the two numbers per row (offset and scale) that ``encode(rows, factors=True)``
        appends.

        Codes of a width that the model does not produce raise ValueError.
        """
        width_of_bits, width = code_width(self.n_bits), codes.shape[1]
        if width not in (width_of_bits, width_of_bits + FACTOR_BYTES):
            raise ValueError(
                f"codes must have {width_of_bits} bytes, or {width_of_bits + FACTOR_BYTES} with factors, as this model "
                "makes them, "
                f"got {width}"
            )
        return width != width_of_bits

    def to_faiss(self, codes: ArrayLike | None = None) -> Any:
        """Create a faiss index for codes of this model, and add `codes` to it if they are given.

        It is a faiss.IndexBinaryFlat. This requires the package faiss.

        Raises
        ------
        ImportError
            Without faiss.
        TypeError, ValueError
            If codes have another length, or have factors.
        """
        from fastsketch.neighbours._faiss import require_faiss

        width = code_width(self.n_bits)
        index = require_faiss().IndexBinaryFlat(8 * width)
        if codes is not None:
            packed = as_codes(codes, "codes")
            if self._has_factors(packed):
                raise ValueError(f"faiss takes bits alone: encode without factors, or give codes[:, :{width}]")
            index.add(packed)
        return index
