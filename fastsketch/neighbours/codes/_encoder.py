"""Frozen encoders: they make codes of rows, and tables of queries for them, by what a model had learned."""

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
from fastsketch.neighbours.codes._search import CodeSearch

Arrays = dict[str, NDArray[Any]]

_kinds: dict[str, "type[Encoder]"] = {}


class Encoder(CodeSearch, ABC):
    """Frozen map of rows to codes, the same wherever it has the same fingerprint.

    A subclass sets ``n_features``, ``layout`` and ``length`` and defines ``encode``, ``decode``, ``tables``, ``state``
    and ``of_state``. Codes of rows do not depend on the batch they are encoded in.

    Attributes
    ----------
    n_features : int
    feature_names : tuple of str or None
        Names of the columns of the rows that the model learned from: rows with other names, or in another order, are
        refused. They are no part of the fingerprint.
    layout : Layout
        Where nibbles and factors are in a code.
    length : float
        A power of two: the unit of length of tables, constants and factors, so that whatever the rows are measured in,
        these are numbers that float32 holds. Estimates of distances are multiplied by it, inner products by its square.
    norm : float or None
        The length of rows, in units of ``length``, where all that was learned from have (nearly) the same: products
        then go by distances, of which codes know more.
    mean, basis : ndarray (d,), (d, r)
        Of encoders alone whose decoded rows less the mean lie in the span of the basis, orthonormal columns.
    has_bits : bool
        Whether the nibbles of a code are signs, whose Hamming distances mean something.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 32))
    >>> model = fs.SketchHash(16).update(rows)
    >>> encoder = model.encoder()
    >>> isinstance(encoder, fs.neighbours.Encoder), encoder.width
    (True, 2)
    >>> _ = model.update(rows[:500] + 1)  # which the encoder does not follow
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
        """Return the bytes of a code."""
        return self.layout.width

    @abstractmethod
    def encode(self, rows: Rows) -> Codes:
        """Return codes uint8 (n, width) of rows (n, d), array_like or scipy.sparse, or of one row (d,)."""

    def bits(self, rows: Any) -> Codes:
        """Return the nibbles of checked rows alone: packed bits, where ``has_bits``."""
        return np.ascontiguousarray(self.encode(rows)[:, : self.layout.nibble_bytes])

    @abstractmethod
    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Return rows float32 (n, d) that codes (n, width) stand for; TypeError if such codes stand for none."""

    @abstractmethod
    def tables(self, queries: Any, metric: Estimate) -> Tables:
        """Return tables T (m, n_tables, 16) and constants c (m,) of queries: a checked (m, d) float array or CSR rows.

        With t = sum over j of T[j, nibble j] of a code, the squared distance is estimated by
        c + offset - 2 scale t, the inner product by c + scale t, in units of ``length`` squared.

        Parameters
        ----------
        queries : ndarray or csr_array (m, d)
        metric : {"euclidean", "inner_product"}
            What is estimated.
        """

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what json can write, and arrays by name: all that makes the encoder what it is."""

    @classmethod
    @abstractmethod
    def of_state(cls, state: dict[str, Any], arrays: Arrays) -> Self:
        """Return the encoder that gave ``state``; TypeError, KeyError or ValueError for what is none (a stranger's).

        Parameters
        ----------
        state : dict
        arrays : dict of ndarray
            What ``state`` gave.
        """

    @cached_property
    def fingerprint(self) -> str:
        """Return the hexadecimal sha256 of kind, numbers and arrays: equal for encoders of equal codes and answers."""
        state, arrays = self.state()
        digest = hashlib.sha256(json.dumps([_kind(type(self)), state], sort_keys=True).encode())
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def _encoder_for(self, codes: Codes) -> Self:
        return self

    def checked(self, rows: Rows, name: str = "rows") -> Any:
        """Return rows of this width, with these names of columns if they have any, as an array or CSR.

        Whether they are finite is not checked.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)
        name : str, default "rows"
            What messages call them.
        """
        require_columns(rows, self.feature_names, name)
        return as_rows(rows, self.n_features, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and (self is other or self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, kept(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_features={self.n_features}, width={self.width}, {self.fingerprint[:12]})"


def _kind(cls: type) -> str:
    """Return the name of a kind in a file, "fastsketch.neighbours.SignEncoder": first what makes it known."""
    return f"{home_of(cls)}.{cls.__name__}"


def kept(encoder: Encoder) -> tuple[dict[str, Any], Arrays]:
    """Return the state of an encoder with its kind, for ``restored``."""
    state, arrays = encoder.state()
    names = {} if encoder.feature_names is None else {"feature_names": list(encoder.feature_names)}
    return {"kind": _kind(type(encoder)), "state": state, **names}, arrays


def restored(about: dict[str, Any], arrays: Arrays) -> Encoder:
    """Return the encoder whose ``kept`` this is; ValueError for what is none (it may be a stranger's)."""
    kind = about.get("kind")
    if not isinstance(kind, str):
        raise ValueError(f"the kind of an encoder must be a name, got {kind!r}")
    if kind not in _kinds:
        import_home(kind.rpartition(".")[0])
    if kind not in _kinds or isabstract(_kinds[kind]):
        raise ValueError(f"no encoder of kind {kind!r} is known: it may be of a newer version")
    try:
        encoder = _kinds[kind].of_state(about["state"], arrays)
        encoder.feature_names = as_names(about.get("feature_names"), encoder.n_features)
        return encoder
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no state of an encoder of kind {kind!r}: {error}") from error
