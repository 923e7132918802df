"""What sketching hashes are compared with: random hyperplanes, exact PCA, ITQ on all rows, scalable graph hashing."""

import numpy as np

from fastsketch._validation import as_integer, as_rows
from fastsketch.hashing._hasher import Hasher, LinearHasher, register
from fastsketch.hashing._sketch_hash import SketchHash
from fastsketch.sketching import random_normal, raw_numbers

# More rows than any stream has: the reservoir keeps them all.
ALL_ROWS = 2**40
# Rows of an RBF matrix made at a time.
KERNEL_ROWS = 4096


@register
class LSH(LinearHasher):
    """Locality-sensitive hashing: signs of projections on Gaussian directions, of rows less their mean (Charikar 2002).

    Parameters
    ----------
    n_bits : int
        At least 1, also more than features.
    seed : int, default 0

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((100, 20))
    >>> fs.hashing.LSH(64).update(rows).encode(rows).shape
    (100, 8)
    """

    def __init__(self, n_bits, seed=0):
        self.n_bits, self.seed = as_integer(n_bits, "n_bits", 1), as_integer(seed, "seed", 0)
        self.n_features, self.n_rows, self._sum, self._directions = None, 0, None, None

    def update(self, rows):
        """Learn the mean; returns self."""
        rows = as_rows(rows, self.n_features)
        total = np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel()
        if not np.isfinite(total).all():
            raise ValueError("rows must be finite: one holds a NaN or an infinity")
        self._sum = total if self._sum is None else self._sum + total
        self.n_features, self.n_rows = rows.shape[1], self.n_rows + rows.shape[0]
        return self

    def merge(self, other):
        """Add what another model of the same parameters has seen; returns self."""
        if not isinstance(other, LSH):
            raise TypeError(f"other must be an LSH, got {type(other).__name__}")
        for name in ("n_bits", "seed", "n_features"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and None not in (mine, theirs):
                raise ValueError(f"other has {name}={theirs}, this model has {mine}: they do not merge")
        if other.n_rows:
            self._sum = other._sum if self._sum is None else self._sum + other._sum
            self.n_features, self.n_rows = other.n_features, self.n_rows + other.n_rows
        return self

    def _require(self):
        if not self.n_rows:
            raise ValueError("the model has seen no rows: call update first")

    def _linear(self):
        if self._directions is None:
            self._directions = random_normal(self.seed, 2, self.n_features * self.n_bits).reshape(-1, self.n_bits)
        return self._directions, (self._sum / self.n_rows) @ self._directions

    def _state(self):
        params = {"n_bits": self.n_bits, "seed": self.seed, "n_rows": self.n_rows}
        return params, {} if self._sum is None else {"sum": self._sum}

    def __setstate__(self, state):
        params, arrays = state
        self.__init__(params["n_bits"], params["seed"])
        if "sum" in arrays:
            self._sum, self.n_features, self.n_rows = arrays["sum"], len(arrays["sum"]), params["n_rows"]


@register
class PCAHash(SketchHash):
    """Signs of exact principal components: ``SketchHash(n_bits, "exact", rotation=None)``."""

    def __init__(self, n_bits, seed=0, *, part=0, first_block=0, dtype=None):
        super().__init__(n_bits, "exact", rotation=None, seed=seed, part=part, first_block=first_block, dtype=dtype)


@register
class ITQ(SketchHash):
    """Exact PCA with the ITQ rotation learned on all rows (Gong, Lazebnik 2011): it keeps every row in memory."""

    def __init__(self, n_bits, seed=0, *, part=0, first_block=0, dtype=None):
        super().__init__(
            n_bits,
            "exact",
            rotation="itq",
            seed=seed,
            part=part,
            first_block=first_block,
            reservoir_size=ALL_ROWS,
            dtype=dtype,
        )


@register
class SGH(Hasher):
    """Scalable graph hashing with feature transformation (Jiang, Li, IJCAI 2015): a batch method.

    Bits are signs of K(x) w, K the Gaussian kernel to `n_bases` rows; the w are found one after the other so that codes
    agree with the graph S = 2 exp(-||x - y||^2 / rho) - 1 of all rows, which enters by a bilinear approximation.

    Parameters
    ----------
    n_bits : int
    n_bases : int, default 300
    seed : int, default 0

    Notes
    -----
    Rows are centred and brought to length one, rho = 2, as the approximation asks for. One ``update`` with all rows:
    O(n (n_bases + d + n_bases n_bits)) time and n n_bases memory.
    """

    # regulariser of the generalised eigenproblem, a share of the mean diagonal
    GAMMA = 1e-6

    def __init__(self, n_bits, n_bases=300, seed=0):
        self.n_bits, self.seed = as_integer(n_bits, "n_bits", 1), as_integer(seed, "seed", 0)
        self.n_bases = as_integer(n_bases, "n_bases", 1)
        if self.n_bits > self.n_bases:
            raise ValueError(f"n_bits must be at most n_bases = {self.n_bases}, got {self.n_bits}")
        self.n_features, self.n_rows, self._a = None, 0, None

    def update(self, rows):
        """Learn from all rows at once; a second call is a ValueError. Returns self."""
        if self._a is not None:
            raise ValueError("SGH learns from one batch: make a new model")
        rows = as_rows(rows)
        rows = np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.float64)
        n, d = rows.shape
        if not np.isfinite(rows).all():
            raise ValueError("rows must be finite: one holds a NaN or an infinity")
        if n < self.n_bases:
            raise ValueError(f"rows must be at least n_bases = {self.n_bases}, got {n}")
        mean = rows.mean(axis=0)
        x = self._unit(rows - mean)
        chosen = np.argsort(raw_numbers(self.seed, 66, 0, 0, n), kind="stable")[: self.n_bases]
        bases = x[np.sort(chosen)]
        sample = x[:: max(1, n // 1000)]
        width = np.sqrt(self._squares(sample, bases)).mean()
        k = self._kernel(x, bases, width)
        offset = k.mean(axis=0)
        k -= offset
        self._a = {"mean": mean, "bases": bases, "width": np.array([width]), "offset": offset, "w": self._learn(x, k)}
        self.n_features, self.n_rows = d, n
        return self

    @staticmethod
    def _unit(x):
        length = np.linalg.norm(x, axis=1, keepdims=True)
        return x / np.where(length > 0, length, 1.0)

    @staticmethod
    def _squares(x, y):
        out = (x * x).sum(axis=1)[:, np.newaxis] + (y * y).sum(axis=1) - 2 * (x @ y.T)
        return np.maximum(out, 0.0)

    def _kernel(self, x, bases, width):
        out = np.empty((len(x), len(bases)))
        for start in range(0, len(x), KERNEL_ROWS):
            part = slice(start, start + KERNEL_ROWS)
            out[part] = np.exp(-self._squares(x[part], bases) / (2 * width * width))
        return out

    def _learn(self, x, k):
        """The paper's Algorithm 1: bits one after the other against the residual, then once more in random order."""
        from scipy.linalg import eigh

        rho, e = 2.0, np.e
        damp = np.exp(-(x * x).sum(axis=1) / rho)
        # P(x)'Q(y) approximates S: the same features up to the sign of the last
        shared = np.hstack(
            [np.sqrt(2 * (e * e - 1) / (e * rho)) * damp[:, None] * x, np.sqrt((e * e + 1) / e) * damp[:, None]]
        )
        kp, ones = k.T @ shared, k.sum(axis=0)
        residual = self.n_bits * (kp @ kp.T - np.outer(ones, ones))
        z = k.T @ k
        z[np.diag_indices_from(z)] += self.GAMMA * np.trace(z) / len(z)
        w = np.empty((len(z), self.n_bits))

        def sign_sums(column):
            return k.T @ np.where(k @ column > 0, 1.0, -1.0)

        def best():
            return eigh(residual, z, subset_by_index=(len(z) - 1, len(z) - 1), check_finite=False)[1][:, 0]

        for t in range(self.n_bits):
            w[:, t] = best()
            s = sign_sums(w[:, t])
            residual -= np.outer(s, s)
        for t in np.argsort(raw_numbers(self.seed, 67, 0, 0, self.n_bits), kind="stable"):
            s = sign_sums(w[:, t])
            residual += np.outer(s, s)
            w[:, t] = best()
            s = sign_sums(w[:, t])
            residual -= np.outer(s, s)
        return w

    def _require(self):
        if self._a is None:
            raise ValueError("the model has seen no rows: call update first")

    def _decide(self, rows):
        a = self._a
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        k = self._kernel(self._unit(rows - a["mean"]), a["bases"], float(a["width"][0])) - a["offset"]
        return (k @ a["w"]).astype(rows.dtype)

    def _state(self):
        params = {"n_bits": self.n_bits, "n_bases": self.n_bases, "seed": self.seed, "n_rows": self.n_rows}
        return params, {} if self._a is None else dict(self._a)

    def __setstate__(self, state):
        params, arrays = state
        self.__init__(params["n_bits"], params["n_bases"], params["seed"])
        if arrays:
            self._a, self.n_rows = dict(arrays), params["n_rows"]
            self.n_features = len(arrays["mean"])
