"""The certificate against an oracle in extended precision, on streams made to break it.

A stream is learned in batches, dense and CSR, by sketches that are saved, loaded, faded and merged in a tree of random
shape; beside each grows the list of its rows and weights, from which A'A is formed in long double. What is compared is
what the documents promise: the error within ``error_bound``, on the side that the method promises, and
``squared_norm`` to rounding. The comparison allows only for its own rounding in long double.
"""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.helpers import METHODS
from tests.reliability.figures import report

LONG = np.longdouble
UNIT = float(np.finfo(LONG).eps)
FAMILIES = (
    "noise",
    "mean",
    "outlier first",
    "outlier last",
    "drift",
    "equal",
    "low rank",
    "geometric",
    "repeated",
    "near",
    "large",
    "small",
    "zeros",
    "constant column",
    "counts",
)

pytestmark = pytest.mark.skipif(np.finfo(LONG).nmant < 60, reason="long double is no longer than double here")


def rows_of(family, rng, n, d, *, dtype):
    """Rows (n, d) in float64, of which some are hard on a sketch of this dtype."""
    x = rng.standard_normal((n, d))
    if family == "mean":  # up to the last digits that the spread has in this dtype
        x += 10.0 ** rng.integers(1, 6 if dtype == np.float32 else 13) * rng.standard_normal(d)
    elif family.startswith("outlier"):
        x[0 if family == "outlier first" else -1] *= 10.0 ** rng.integers(2, 8)
    elif family == "drift":
        x += 10.0 ** rng.integers(1, 5) * np.linspace(0, 1, n)[:, np.newaxis] * rng.standard_normal(d)
    elif family == "equal":
        x[:] = x[0] * 10.0 ** rng.integers(-3, 6)
    elif family == "low rank":
        k = int(rng.integers(1, 4))
        x = x[:, :k] @ rng.standard_normal((min(k, d), d)) + 10.0 ** rng.integers(0, 4)
    elif family == "geometric":
        x *= np.logspace(0, -float(rng.integers(1, 20)), d)
    elif family == "repeated":  # rows just below what is kept, all in one direction
        x = np.eye(d)[np.arange(n) % max(1, d - 1)] * (1 + 1e-3 * rng.random((n, 1)))
        x[n // 2 :] = 0.999 * np.eye(d)[d - 1]
    elif family == "near":
        x = 0.1 + 1e-6 * x
    elif family == "large":
        x *= 1e18 if dtype == np.float32 else 1e140  # times the largest weights, squares stay in the range
    elif family == "small":
        x *= 1e-20 if dtype == np.float32 else 1e-140
    elif family == "zeros":
        x *= rng.random((n, 1)) < 0.3
    elif family == "constant column":
        x[:, 0] = 10.0 ** rng.integers(0, 8)
        x[:, -1] = 0.1
    elif family == "counts":
        x = rng.poisson(3.0, (n, d)).astype(float)
    return x.astype(dtype).astype(np.float64)


def thinned(x, rng):
    """The same with few entries left, but for some features that every row, or nearly every one, has."""
    n, d = x.shape
    keep = rng.random((n, d)) < rng.uniform(0.02, 0.1)
    common = rng.random(d) < 0.03
    keep[:, common] = rng.random((n, int(common.sum()))) < rng.choice([0.4, 0.6, 0.95, 1.0])
    return x * keep


def some_weights(rng, n):
    kind = rng.integers(0, 5)
    if kind <= 1:
        return None
    if kind == 2:
        return rng.random(n) * (rng.random(n) < 0.8)
    if kind == 3:
        return 10.0 ** rng.integers(-12, 13, n)
    return np.full(n, float(rng.choice([3.0, 1e-12, 1e12])))


class Twin:
    """A sketch, and all that it stands for."""

    def __init__(self, options, n_features):
        self.sketch = fs.FrequentDirections(**options)
        self.decay = options.get("decay", 1.0)
        self.rows, self.weights = np.empty((0, n_features)), np.empty(0, LONG)

    def update(self, rows, weights, *, as_csr):
        batch = rows.astype(self.sketch.dtype)
        self.sketch.update(sparse.csr_array(batch) if as_csr else batch, weights)
        weights = np.ones(len(rows)) if weights is None else weights
        rows, weights = rows[weights > 0], weights[weights > 0]  # rows of weight 0 are no rows, and age nothing
        self.rows = np.vstack([self.rows, rows])
        age = np.arange(len(rows) - 1, -1, -1)
        older = self.weights * LONG(self.decay) ** len(rows)
        self.weights = np.concatenate([older, weights.astype(LONG) * LONG(self.decay) ** age])

    def fade(self, factor):
        self.sketch.fade(factor)
        self.weights = self.weights * LONG(factor)

    def again(self):
        self.sketch = fs.from_bytes(self.sketch.to_bytes())

    def merge(self, other):
        self.sketch.merge(other.sketch)
        self.rows = np.vstack([self.rows, other.rows])
        self.weights = np.concatenate([self.weights, other.weights])

    def truth(self, *, center):
        """(A'A, ||A||_F^2, what the latter may be off) in long double; A weighted and centred by its exact mean."""
        rows, total = self.rows.astype(LONG), self.weights.sum()
        # of rows that are all equal the two passes leave this much; else it is nothing beside the rest
        doubt = (len(rows) * UNIT) ** 2 * (self.weights @ (rows * rows)).sum()
        if center and total > 0:
            for _ in range(2):  # the second pass takes away what rounding left of the mean
                rows = rows - (self.weights / total) @ rows
        rows = rows * np.sqrt(self.weights)[:, np.newaxis]
        return rows.T @ rows, (rows * rows).sum(), doubt


def learned(case):
    """The twin of a random stream, and words for it."""
    rng = np.random.default_rng([11, case])
    dtype = (np.float32, np.float64)[int(rng.integers(2))]
    family = FAMILIES[case % len(FAMILIES)]
    thin = rng.random() < 0.4
    n, d = int(rng.integers(1, 260)), int(rng.integers(1, 120 if thin else 40))
    options = {
        "sketch_size": int(rng.integers(2, 12)),
        "method": METHODS[int(rng.integers(len(METHODS)))],
        "solver": ("gram", "svd", "exact", "auto")[int(rng.integers(4))] if not thin or rng.random() < 0.3 else "gram",
        "center": bool(rng.random() < 0.6),
        "dtype": dtype,
        "decay": float(rng.choice([1.0, 1.0, 0.999, 0.98, 0.5])),
    }
    if rng.random() < 0.3:
        options["buffer_size"] = int(rng.integers(1, 40))
    rows = rows_of(family, rng, n, d, dtype=dtype)
    rows = thinned(rows, rng) if thin else rows
    if options["method"] == "rfd" and rng.random() < 0.5:
        options["alpha0"] = 0.1 * float((rows**2).mean())
    cuts = np.sort(rng.integers(0, n + 1, int(rng.integers(0, 5))))
    twins = []
    for part in np.split(np.arange(n), cuts):
        twin = Twin(options, d)
        for batch in np.array_split(part, int(rng.integers(1, 5))):
            mixed = rng.random() < 0.2
            twin.update(rows[batch], some_weights(rng, len(batch)), as_csr=thin != mixed)
            if rng.random() < 0.15:
                twin.fade(float(rng.choice([0.5, 0.9, 1e-6])))
            if rng.random() < 0.15:
                twin.again()
        twins.append(twin)
    while len(twins) > 1:  # a tree of random shape, with rows that come between
        i, j = (int(k) for k in rng.choice(len(twins), 2, replace=False))
        twins[i].merge(twins[j])
        if rng.random() < 0.2:
            twins[i].update(rows[:3], None, as_csr=thin)
        twins.pop(j)
    given = {name: value if name != "dtype" else np.dtype(value).name for name, value in options.items()}
    return twins[0], f"case {case}, {family}{', thin' if thin else ''}: {n} x {d}, {given}"


def excess(twin):
    """How far the error lies outside what is promised, and squared_norm off what it may be; positive is a violation."""
    sketch, d = twin.sketch, twin.rows.shape[1]
    gram, square, doubt = twin.truth(center=sketch.center)
    b = sketch.sketch().astype(LONG)
    scale = max(float(square), float((b * b).sum()), 4 * float(doubt) / UNIT) or 1.0
    error = (gram - b.T @ b) / LONG(scale)
    shift = (sketch.alpha0 - sketch.alpha) / scale
    values = np.linalg.eigvalsh(error.astype(np.float64)) + shift
    bound = sketch.error_bound / scale
    below = bound
    if sketch.method in ("fd", "pfd", "isvd", "tfd"):
        below -= sketch.shrinkage / scale  # B'B never exceeds A'A: what is left is the allowance for rounding
    eps, double = float(np.finfo(sketch.resolved["dtype"]).eps), float(np.finfo(np.float64).eps)
    # of the sums in long double, of alpha, which is a double, and of the small matrix that is left
    own = 4 * (len(twin.rows) + d) * UNIT + double * (sketch.alpha / scale + d * max(-values[0], values[-1]))
    worst = float(max(values[-1] - bound - own, -values[0] - below - own))
    # Three roundings of a row at most (its root weight, the product, its decay), and a sum in double.
    allowed = 3 * eps + 2 * len(twin.rows) * double
    off = abs(float((LONG(sketch.squared_norm) - square) / LONG(scale))) - allowed
    return worst / max(eps, 1e-300), off / eps


def test_streams_against_an_oracle_in_long_double(amount):
    n = amount(40, 1000)
    beyond = wrong = 0
    said = []
    for case in range(n):
        twin, words = learned(case)
        certificate, norm = excess(twin)
        beyond += certificate > 0
        wrong += norm > 0
        if certificate > 0 or norm > 0:
            said.append(f"{words}: {certificate:.3g} and {norm:.3g} units of rounding")
    if said:
        print("", *said, sep="\n")
    report(
        "certificate against long double",
        f"{n:,} streams",
        beyond_the_certificate=beyond,
        wrong_squared_norm=wrong,
    )
