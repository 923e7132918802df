"""Base class of encoders, which map rows to codes and queries to lookup tables."""

import hashlib
import json
from abc import ABC, abstractmethod
from functools import cached_property
from inspect import isabstract
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_rows
from fastsketch._frame.batches import FeatureNames, as_names, require_columns
from fastsketch._frame.loading import home_of, import_home
from fastsketch.neighbours.codes._code_scan import Estimate, Tables
from fastsketch.neighbours.codes._layout import Codes, Layout
from fastsketch.neighbours.codes._search import search

Arrays = dict[str, NDArray[Any]]

_kinds: dict[str, "type[Encoder]"] = {}


class Encoder(ABC):
    """Immutable encoder of rows to codes, which ``model.encoder()`` returns.

    Encoders with equal fingerprints make equal codes and give equal answers. The code of a row does not depend on the
    batch it is encoded in. A subclass sets ``n_features``, ``layout`` and ``length`` and defines ``encode``,
    ``decode``, ``tables``, ``state`` and ``of_state``.

    Attributes
    ----------
    n_features : int
    feature_names : tuple of str or None
        Column names of the rows that the model learned from. Rows with other names, or with the names in another
        order, are rejected. The names are not part of the fingerprint.
    layout : Layout
        Positions of nibbles and factors in a code.
    length : float
        A power of two, the unit of length of tables, constants and factors. It keeps them in the range of float32
        whatever the units of the rows. Estimated distances are multiplied by it, inner products by its square.
    norm : float or None
        The common length of the rows in units of ``length``, if all rows learned from have nearly the same length, else
        None. If it is set, inner products and cosines are computed from estimated distances, which are more accurate.
    mean, basis : ndarray (d,), (d, r)
        Only of encoders whose decoded rows are the mean plus a vector in the span of the basis, which has orthonormal
        columns.
    has_bits : bool
        Whether the nibbles of a code are sign bits, which can be compared by Hamming distance.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 32))
    >>> model = fs.SketchHash(16).update(rows)
    >>> encoder = model.encoder()
    >>> isinstance(encoder, fs.neighbours.Encoder), encoder.width
    (True, 2)
    >>> _ = model.update(rows[:500] + 1)  # the encoder does not change
    >>> encoder == model.encoder()
    False
    """

    n_features: int
    feature_names: FeatureNames | None = None
    layout: Layout
    length: float = 1.0
    norm: float | None = None
    has_bits: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _kinds[_kind(cls)] = cls

    @property
    def width(self) -> int:
        """Number of bytes of a code."""
        return self.layout.width

    @abstractmethod
    def encode(self, rows: Rows) -> Codes:
        """Encode rows as codes of ``width`` bytes each, and return them as uint8 (n, width).

        Rows are array_like or scipy.sparse (n, d), or one row (d,).
        """

    def bits(self, rows: Any) -> Codes:
        """Encode rows as packed sign bits, without offset and scale.

        They are uint8 (n, nibble_bytes). Only encoders that have ``has_bits`` set support this.
        """
        return np.ascontiguousarray(self.encode(rows)[:, : self.layout.nibble_bytes])

    @abstractmethod
    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Decode codes to approximate rows.

        Codes are (n, width), rows float32 (n, d). TypeError is raised if codes of this kind cannot be decoded.
        """

    @abstractmethod
    def tables(self, queries: Any, metric: Estimate) -> Tables:
        """Return lookup tables (m, n_tables, 16) and constants (m,) of queries, from which distances are estimated.

        With t = sum over j of T[j, nibble j] of a code, the estimate of the squared distance is c + offset - 2 scale t,
        that of the inner product c + scale t, both in units of ``length`` squared.

        Parameters
        ----------
        queries : ndarray of float, or csr_array (m, d)
        metric : {"euclidean", "inner_product"}
            The quantity that is estimated.
        """

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state of the encoder as JSON values and a dictionary of arrays."""

    @classmethod
    @abstractmethod
    def of_state(cls, state: dict[str, Any], arrays: Arrays) -> Self:
        """Restore an encoder from its saved state, the result of ``state``.

        The input may be untrusted: TypeError, KeyError or ValueError if it is not the state of an encoder.

        Parameters
        ----------
        state : dict
        arrays : dict of ndarray
        """

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the encoder's class and state. Encoders with equal fingerprints compute equal codes.

        It is SHA-256 in hexadecimal. Column names do not enter.
        """
        state, arrays = self.state()
        digest = hashlib.sha256(json.dumps([_kind(type(self)), state], sort_keys=True).encode())
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    search = search

    def _encoder_for(self, codes: Codes) -> Self:
        """Return the encoder to use with the given codes, which is this object: it accepts all codes of its width."""
        return self

    def checked(self, rows: Rows, name: str = "rows") -> Any:
        """Validate the width and the column names of rows, and return them as an array or CSR.

        Whether they are finite is not checked.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)
        name : str, default "rows"
            Their name in error messages.
        """
        require_columns(rows, self.feature_names, name)
        return as_rows(rows, self.n_features, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and (self is other or self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_encoder, encoder_state(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_features={self.n_features}, width={self.width}, {self.fingerprint[:12]})"


def _kind(cls: type) -> str:
    """Return the name by which files refer to an encoder class, for example "fastsketch.neighbours.BookEncoder"."""
    return f"{home_of(cls)}.{cls.__name__}"


def encoder_state(encoder: Encoder) -> tuple[dict[str, Any], Arrays]:
    """Return the state of an encoder in the form that ``restore_encoder`` reads: (JSON values, arrays).

    The JSON values include the name of the class and the column names.
    """
    state, arrays = encoder.state()
    names = {} if encoder.feature_names is None else {"feature_names": list(encoder.feature_names)}
    return {"kind": _kind(type(encoder)), "state": state, **names}, arrays


def restore_encoder(header: dict[str, Any], arrays: Arrays) -> Encoder:
    """Create an encoder from the result of ``encoder_state``, which may be untrusted.

    Raise ValueError if it is invalid.
    """
    kind = header.get("kind")
    if not isinstance(kind, str):
        raise ValueError(f"the kind of an encoder must be a name, got {kind!r}")
    if kind not in _kinds:
        import_home(kind.rpartition(".")[0])
    if kind not in _kinds or isabstract(_kinds[kind]):
        raise ValueError(f"no encoder of kind {kind!r} is known: it may be of a newer version")
    try:
        encoder = _kinds[kind].of_state(header["state"], arrays)
        encoder.feature_names = as_names(header.get("feature_names"), encoder.n_features)
        return encoder
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no state of an encoder of kind {kind!r}: {error}") from error
