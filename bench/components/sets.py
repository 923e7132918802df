"""The matrices that the bench of components decomposes, and what is true of them."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

import bench_data
from bench_data import dataset, matlab
from benchmarks.rows import frosh_rows

# Columns from which the truth is found by Lanczos to rounding instead of by LAPACK.
WIDE = 1200


class Source(NamedTuple):
    """One set: what it is of, and the function that makes it (None where its file is absent)."""

    kind: str  # "image", "sensor", "text", "table", "drift", "noise", "law", "size"
    make: object

    @property
    def real(self):
        return self.kind in ("image", "sensor", "text", "table")


class Truth(NamedTuple):
    """Of the centred rows A."""

    eigenvalues: np.ndarray  # the leading ones of A'A, descending
    total: float  # its trace


# -- what is behind FASTSKETCH_DATA ------------------------------------------------------------------------------------
def mnist():
    rows = dataset("MNIST")
    return None if rows is None else rows[:20_000]


def asu(name):
    """Rows of the ASU repository, in a fixed random order where they are sorted by class."""
    found = matlab(name)
    if found is None or name in ("Isolet", "madelon"):
        return None if found is None else found[0]
    return found[0][np.random.default_rng(0).permutation(len(found[0]))]


def descriptors():
    rows = bench_data.sift5k()
    return None if rows is None else rows.astype(np.float64)


def dense_text(name, n_columns):
    """2,000 rows and the most frequent columns of a set of text, dense."""
    rows = dataset(name)
    if rows is None:
        return None
    rows = sparse.csr_array(rows).astype(np.float64)
    rows = rows[np.random.default_rng(0).permutation(rows.shape[0])[:2000]]
    counts = np.asarray((rows != 0).sum(axis=0)).ravel()
    return rows[:, np.argsort(-counts, kind="stable")[:n_columns]].toarray()


def csr(name):
    rows = dataset(name)
    return None if rows is None else sparse.csr_array(rows).astype(np.float64)


def patches(which, side=12, n=10_000):
    """Random patches of one of scikit-learn's photographs, in the order in which the photograph is read; float32."""
    from sklearn.datasets import load_sample_images

    image = np.asarray(load_sample_images().images[which], np.float32) / np.float32(255)
    views = np.lib.stride_tricks.sliding_window_view(image, (side, side), axis=(0, 1))
    wide = views.shape[1]
    places = np.sort(np.random.default_rng(0).choice(views.shape[0] * wide, n, replace=False))
    return np.ascontiguousarray(views[places // wide, places % wide].transpose(0, 2, 3, 1).reshape(n, -1))


# -- streams -----------------------------------------------------------------------------------------------------------
def basis(d, k, rng):
    return np.linalg.qr(rng.standard_normal((d, k)))[0].T


def late_drift():
    """5,000 rows of 40 directions, then 1,000 of three new ones, which are the largest."""
    rng = np.random.default_rng(3)
    q = basis(500, 43, rng)
    early = (rng.standard_normal((5000, 40)) * np.linspace(3, 0.5, 40)) @ q[:40]
    late = (rng.standard_normal((1000, 3)) * [20, 15, 10]) @ q[40:]
    return np.vstack([early, late]) + 0.1 * rng.standard_normal((6000, 500))


def slow_drift():
    """1,000 loud rows of 60 directions, then 5,000 rows with ten weak ones, which hold more in the end."""
    rng = np.random.default_rng(1)
    q = basis(500, 70, rng)
    loud = 3.0 * rng.standard_normal((1000, 60)) @ q[:60]
    weak = 2.0 * rng.standard_normal((5000, 10)) @ q[60:] + 0.3 * rng.standard_normal((5000, 500))
    return np.vstack([loud, weak])


def flat_noise():
    return np.random.default_rng(1).standard_normal((5000, 500))


def power_law():
    """Standard deviations 1, 1 / 2, 1 / 3, ... along 300 random directions."""
    rng = np.random.default_rng(2)
    return (rng.standard_normal((6000, 300)) / np.arange(1, 301)) @ basis(300, 300, rng)


def factors():
    """The size up to which the exact matrix is asked to be the faster: 30 factors and noise, 2,048 columns."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((8000, 30)) @ rng.standard_normal((30, 2048)) + 0.3 * rng.standard_normal((8000, 2048))


def ten_directions():
    return frosh_rows(20_000, 200, np.random.default_rng(0))


SETS = {
    "MNIST": Source("image", mnist),
    "Isolet": Source("sensor", lambda: asu("Isolet")),
    "COIL20": Source("image", lambda: asu("COIL20")),
    "ORL": Source("image", lambda: asu("ORL")),
    "BASEHOCK": Source("text", lambda: asu("BASEHOCK")),
    "PCMAC": Source("text", lambda: asu("PCMAC")),
    "RELATHE": Source("text", lambda: asu("RELATHE")),
    "news20, dense": Source("text", lambda: dense_text("news20", 3300)),
    "farm-ads, dense": Source("text", lambda: dense_text("farm-ads", 4300)),
    "madelon": Source("table", lambda: asu("madelon")),
    "sift5k": Source("image", descriptors),
    "temple, patches": Source("image", lambda: patches(0)),
    "flower, patches": Source("image", lambda: patches(1)),
    "a9a": Source("table", lambda: csr("a9a")),
    "w8a": Source("table", lambda: dataset("w8a")),
    "mushrooms": Source("table", lambda: dataset("mushrooms")),
    "news20": Source("text", lambda: csr("news20")),
    "farm-ads": Source("text", lambda: csr("farm-ads")),
    "late drift": Source("drift", late_drift),
    "slow drift": Source("drift", slow_drift),
    "flat noise": Source("noise", flat_noise),
    "power law": Source("law", power_law),
    "ten directions": Source("size", ten_directions),
    "30 factors": Source("size", factors),
}
QUICK = ("Isolet", "sift5k", "mushrooms", "slow drift")


# -- truth -------------------------------------------------------------------------------------------------------------
def centred_gram(rows):
    """A'A of the centred rows, dense, in float64."""
    if sparse.issparse(rows):
        mean = np.asarray(rows.mean(axis=0), np.float64).ravel()
        return (rows.T @ rows).toarray() - rows.shape[0] * np.outer(mean, mean)
    wide = rows.astype(np.float64)
    wide -= wide.mean(axis=0)
    return wide.T @ wide


def centred_operator(rows):
    """v -> A'A v of the centred rows; nothing is made dense."""
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64), np.float64).ravel()

    def multiply(v):
        z = rows @ v - mean @ v
        return rows.T @ z - mean * z.sum()

    return LinearOperator((len(mean), len(mean)), matvec=multiply, dtype=np.float64)


def truth_of(rows, k):
    """The k leading eigenvalues of A'A and its trace."""
    n, d = rows.shape
    if d <= WIDE:
        gram = centred_gram(rows)
        return Truth(np.linalg.eigvalsh(gram)[::-1][:k], float(np.trace(gram)))
    wide = rows if sparse.issparse(rows) else rows.astype(np.float64)
    # A A' where the rows are few
    if not sparse.issparse(rows):
        wide = wide - wide.mean(axis=0)
        small = wide @ wide.T if n <= d else wide.T @ wide
        total, operator = float(np.trace(small)), small
    else:
        mean = np.asarray(rows.mean(axis=0), np.float64).ravel()
        total, operator = float((rows.data.astype(np.float64) ** 2).sum() - n * mean @ mean), centred_operator(wide)
    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    values = eigsh(operator, k=k, ncv=min(operator.shape[0], 4 * k + 20), tol=0, v0=start, return_eigenvectors=False)
    return Truth(np.sort(values)[::-1], total)


def captured(rows, vt):
    """Squared length of the centred rows within the span of vt (k, d)."""
    q = np.linalg.qr(vt.T.astype(np.float64))[0]
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64), np.float64).ravel()
    out = 0.0
    for start in range(0, rows.shape[0], 2000):
        out += float(((rows[start : start + 2000] @ q - mean @ q) ** 2).sum())
    return out


def spectral_error(rows, sketch):
    """|| A'A - B'B - alpha I ||_2, exactly."""
    b = sketch.sketch().astype(np.float64)
    shift, d = sketch.alpha - sketch.alpha0, rows.shape[1]
    if d <= WIDE:
        error = centred_gram(rows) - b.T @ b - shift * np.eye(d)
        return float(np.abs(np.linalg.eigvalsh(error)[[0, -1]]).max())
    product = centred_operator(rows).matvec
    operator = LinearOperator((d, d), matvec=lambda v: product(v) - b.T @ (b @ v) - shift * v, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(d)
    values = eigsh(operator, k=1, which="LM", ncv=60, tol=1e-9, v0=start, return_eigenvectors=False)
    return abs(float(values[0]))
