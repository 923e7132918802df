"""Scalable graph hashing (SGH), a hash method that is learned from all rows at once."""

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.random import Key, raw_numbers
from fastsketch._core.validation import MOST_SIZE, Rows, as_flag, as_integer, as_real, as_rows, check_finite, is_sparse
from fastsketch._frame.batches import names_of
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import integer, seed
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours.hashing._hasher import Hasher
from fastsketch.neighbours.hashing._sign_encoder import ProjectedRows, SignEncoder

Array = NDArray[np.float64]

# Rows of an RBF matrix made at a time.
KERNEL_ROWS = 4096
# Regulariser of the generalised eigenproblem, a share of the mean diagonal.
GAMMA = 1e-6


class _LearnedSGH(NamedTuple):
    """Parameters that SGH has learned: mean, kernel bases and hash functions."""

    mean: Array  # (d,)
    bases: Array  # (n_bases, d), centred and of length one
    width: float  # of the Gaussian kernel
    offset: Array  # (n_bases,) column means of the kernel matrix
    w: Array  # (n_bases, n_bits)
    n_rows: int


class SGH(Hasher):
    """Scalable graph hashing with feature transformation (Jiang, Li, IJCAI 2015): a batch method.

    Bits are signs of K(x) w, K the Gaussian kernel to `n_bases` rows; the w are found one after the other so that codes
    agree with the graph S = 2 exp(-||x - y||^2 / rho) - 1 of all rows, which enters by a bilinear approximation.

    Parameters
    ----------
    n_bits : int
        At most n_bases.
    n_bases : int, default 300
    seed : int, default 0

    Attributes
    ----------
    n_rows, n_features : int
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    Rows are centred and brought to length one, rho = 2, as the approximation asks for. One ``update`` with all rows:
    O(n (n_bases + d + n_bases n_bits)) time and n n_bases memory.

    Examples
    --------
    Rows of two kinds: the nearest by codes are of the kind of the query.

    >>> import numpy as np, fastsketch as fs
    >>> from fastsketch.reference import baselines
    >>> rows = np.random.default_rng(0).standard_normal((100, 20))
    >>> rows[:50] += 3
    >>> codes = baselines.SGH(8, n_bases=50).update(rows).encode(rows)
    >>> distances, found = fs.hamming_topk(codes[:1], codes, k=10)
    >>> codes.shape, bool((found < 50).all())
    ((100, 1), True)
    """

    n_bases: int = integer(default=300, at_least=1, below=MOST_SIZE)
    seed: int = seed(default=0)

    def _check(self) -> None:
        if self.n_bits > self.n_bases:
            raise ValueError(f"n_bits must be at most n_bases = {self.n_bases}, got {self.n_bits}")

    def _begin(self) -> None:
        self._learned: _LearnedSGH | None = None

    @changes
    def update(self, rows: Rows) -> Self:
        """Learn the hash functions from a batch that has all rows, and return self.

        rows: array_like or scipy.sparse (n, d).

        Raises
        ------
        TypeError, ValueError
            If rows are no finite real matrix of at least n_bases rows, or the model has learned already.
        """
        if self._learned is not None:
            raise ValueError("SGH learns from one batch: make a new model")
        checked = as_rows(rows)
        check_finite(checked)
        dense: Array = np.asarray(checked.toarray() if is_sparse(checked) else checked, np.float64)
        n = len(dense)
        if n < self.n_bases:
            raise ValueError(f"rows must be at least n_bases = {self.n_bases}, got {n}")
        mean = dense.mean(axis=0)
        x = _unit(dense - mean)
        chosen = np.argsort(raw_numbers(self.seed, Key.SGH_BASES, 0, 0, n), kind="stable")[: self.n_bases]
        bases = x[np.sort(chosen)]
        sample = x[:: max(1, n // 1000)]
        width = float(np.sqrt(_squares(sample, bases)).mean())
        k = _kernel(x, bases, width=width)
        offset = k.mean(axis=0)
        k -= offset
        learned, names = _LearnedSGH(mean, bases, width, offset, self._directions(x, k), n), names_of(rows)
        self._learned, self._feature_names = learned, names
        return self

    def _directions(self, x: Array, k: Array) -> Array:
        """Return the hash functions, learned one bit after another and then refitted in random order (Algorithm 1)."""
        from scipy.linalg import eigh

        rho, e = 2.0, math.e
        damp = np.exp(-(x * x).sum(axis=1) / rho)
        # P(x)'Q(y) approximates S: the same features up to the sign of the last
        shared = np.hstack(
            [np.sqrt(2 * (e * e - 1) / (e * rho)) * damp[:, None] * x, np.sqrt((e * e + 1) / e) * damp[:, None]]
        )
        kp, ones = k.T @ shared, k.sum(axis=0)
        residual: Array = self.n_bits * (kp @ kp.T - np.outer(ones, ones))
        z = k.T @ k
        z[np.diag_indices_from(z)] += GAMMA * np.trace(z) / len(z)
        w = np.empty((len(z), self.n_bits))

        def sign_sums(column: Array) -> Array:
            return k.T @ np.where(k @ column > 0, 1.0, -1.0)

        def best() -> Array:
            return eigh(residual, z, subset_by_index=(len(z) - 1, len(z) - 1), check_finite=False)[1][:, 0]

        for t in range(self.n_bits):
            w[:, t] = best()
            s = sign_sums(w[:, t])
            residual -= np.outer(s, s)
        for t in np.argsort(raw_numbers(self.seed, Key.SGH_ORDER, 0, 0, self.n_bits), kind="stable"):
            s = sign_sums(w[:, t])
            residual += np.outer(s, s)
            w[:, t] = best()
            s = sign_sums(w[:, t])
            residual -= np.outer(s, s)
        return w

    def _encoder(self, *, factors: bool) -> SignEncoder:
        learned = self._learned
        assert learned is not None  # or there would be no rows
        return GraphEncoder(learned, factors=factors)

    @property
    def n_rows(self) -> int:
        """Return the number of rows learned."""
        return 0 if self._learned is None else self._learned.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row."""
        return None if self._learned is None else len(self._learned.mean)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return ({}, {}) if self._learned is None else _state(self._learned)

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        if not state:
            checks.only(arrays)
            return
        _validate(state, arrays, self.n_bases, self.n_bits)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        if state:
            self._learned = _LearnedSGH(**arrays, width=float(state["width"]), n_rows=state["n_rows"])


class GraphEncoder(SignEncoder):
    """Encoder of SGH codes, the signs of kernel scores of rows.

    The kernel scores K(x) w take the place of the rows: real-valued queries, and estimated distances, inner products
    and cosines, are those of scores. Only rescoring uses the rows themselves.
    """

    spans: bool = True  # scores are coordinates as they are

    def __init__(self, learned: _LearnedSGH, *, factors: bool) -> None:
        self.learned = learned
        self.n_features = len(learned.mean)
        self._set_layout(learned.w.shape[1], factors=factors)

    def _project(self, rows: Any) -> ProjectedRows:
        scores = _scores(self.learned, rows).astype(rows.dtype).astype(np.float64)
        return ProjectedRows(scores, np.square(scores).sum(axis=1))

    def _project_uncentred(self, rows: Any) -> tuple[Array, Array]:
        scores = self._project(rows).scores
        return scores, np.zeros(len(scores))

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Raise TypeError, since kernel scores cannot be converted back to rows."""
        raise TypeError("signs of a kernel's scores stand for no rows: these codes cannot be decoded")

    def state(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = _state(self.learned)
        return {**state, "factors": self.factors}, arrays

    @classmethod
    def of_state(cls, state: dict[str, Any], arrays: Arrays) -> Self:
        n_bases, n_bits = arrays["w"].shape
        _validate(state, arrays, n_bases, n_bits)
        learned = _LearnedSGH(**arrays, width=float(state["width"]), n_rows=state["n_rows"])
        return cls(learned, factors=as_flag(state["factors"], "factors"))


def _scores(learned: _LearnedSGH, rows: Any) -> Array:
    """Return the kernel scores of validated rows, whose signs are the bits of their codes, shape (n, n_bits)."""
    dense: NDArray[Any] = np.asarray(rows.toarray() if is_sparse(rows) else rows)
    k = _kernel(_unit(dense - learned.mean), learned.bases, width=learned.width) - learned.offset
    return k @ learned.w


def _state(learned: _LearnedSGH) -> tuple[dict[str, Any], Arrays]:
    arrays = learned._asdict()
    return {name: arrays.pop(name) for name in ("width", "n_rows")}, arrays


def _validate(state: dict[str, Any], arrays: Arrays, n_bases: int, n_bits: int) -> None:
    as_real(state["width"], "width", 0.0, 1e300, low_open=True)
    as_integer(state["n_rows"], "n_rows", n_bases, checks.MOST_COUNT)
    d = arrays["mean"].size
    checks.number_within(d, "n_features", 1, np.inf)
    for name, shape in (("mean", (d,)), ("bases", (n_bases, d)), ("offset", (n_bases,)), ("w", (n_bases, n_bits))):
        checks.finite(arrays, name, shape)
    checks.only(arrays, "mean", "bases", "offset", "w")


def _unit(x: Array) -> Array:
    """Return rows divided by their lengths; rows of zeros are unchanged."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1.0)


def _squares(x: Array, y: Array) -> Array:
    """Return the squared Euclidean distances between the rows of x and the rows of y."""
    out = (x * x).sum(axis=1)[:, np.newaxis] + (y * y).sum(axis=1) - 2 * (x @ y.T)
    return np.maximum(out, 0.0)


def _kernel(x: Array, bases: Array, *, width: float) -> Array:
    """Return the Gaussian kernel matrix between rows and bases, shape (n, n_bases).

    It is exp(-||x - y||^2 / (2 width^2)).
    """
    out = np.empty((len(x), len(bases)))
    for start in range(0, len(x), KERNEL_ROWS):
        part = slice(start, start + KERNEL_ROWS)
        out[part] = np.exp(-_squares(x[part], bases) / (2 * width * width))
    return out
