"""The rows that the benches of codes search, the exact neighbours of their queries, and recall.

Nothing is chosen on the queries of a set: a set as `for_choice()` gives it has queries cut from its base rows.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

import bench_data

# True neighbours that are kept of a query.
DEPTH = 100
# Numbers of candidates that are ranked anew by exact distances.
RESCORED = (30, 100)


class CodeSet(NamedTuple):
    """Rows in random order, queries that are none of them, and the DEPTH nearest rows of every query by distance."""

    name: str
    base: np.ndarray  # (n, d) float32
    queries: np.ndarray  # (m, d) float32
    near: np.ndarray  # (m, DEPTH) positions in base, nearest first, ties by position
    n_choice: int  # rows at the end of base that are the queries of choices
    choice_near: np.ndarray  # (n_choice, DEPTH) positions in base[:-n_choice]

    def for_choice(self):
        """The same with the last rows of the base as its queries: what settings are chosen by."""
        cut = len(self.base) - self.n_choice
        return CodeSet(f"{self.name}, choice", self.base[:cut], self.base[cut:], self.choice_near, 0, self.near[:0])


# -- rows --------------------------------------------------------------------------------------------------------------
def sift5k(split):
    """4,800 rows and 200 queries of 128 integers, drawn three times; 200 of the rows for choices."""
    rows = bench_data.sift5k()
    if rows is None:
        return None
    rows = rows[np.random.default_rng(split).permutation(len(rows))]
    return rows[200:], rows[:200], 200


def mnist():
    """60,000 training images in [0, 1]; the queries are 1,000 test images; 1,000 training images for choices."""
    parts = bench_data.mnist(), bench_data.mnist("t10k")
    if None in parts:
        return None
    rng = np.random.default_rng(0)
    base, test = (images / np.float32(255) for images, _ in parts)
    return base[rng.permutation(len(base))], test[rng.permutation(len(test))[:1000]], 1000


def patches(n=500_000):
    """12 x 12 colour patches of scikit-learn's two photographs as the demo hashes them, in random order.

    Most neighbours of a patch are the patch moved by a few pixels.
    """
    from demo.patches import Patches, normalised_stream, photographs

    rows = np.concatenate(list(normalised_stream(Patches(photographs(), 12))))
    order = np.random.default_rng(0).permutation(len(rows))[: n + 1000]
    rows = rows[order]
    return rows[1000:], rows[:1000], 1000


def generated(n=1_000_000, d=256, seed=0, n_clusters=1000):
    """Rows like embeddings: clusters of unequal sizes, variances that fall, directions that differ by cluster.

    With s_j = j^(-1/2), j = 1 .. d: a row is (a + b) U; U a random rotation; a = s * g the centre of its cluster; b =
    0.7 s * t * h the row within it, where t = exp(0.5 n) is drawn once for a cluster and direction; g, h, n standard
    normal. The share of a cluster is exp(n) over the sum of all. About two thirds of the variance is between clusters.
    """
    rng = np.random.default_rng(seed)
    scale = (np.arange(1, d + 1) ** -0.5).astype(np.float32)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    centres = scale * rng.standard_normal((n_clusters, d), np.float32)
    spread = np.float32(0.7) * scale * np.exp(np.float32(0.5) * rng.standard_normal((n_clusters, d), np.float32))
    share = np.exp(rng.standard_normal(n_clusters))
    rows = np.empty((n + 1000, d), np.float32)
    for start in range(0, len(rows), 50_000):
        part = rows[start : start + 50_000]
        which = rng.choice(n_clusters, len(part), p=share / share.sum())
        np.matmul(centres[which] + spread[which] * rng.standard_normal(part.shape, np.float32), turn, out=part)
    return rows[1000:], rows[:1000], 1000


SETS = {
    "sift5k-0": lambda: sift5k(0),
    "sift5k-1": lambda: sift5k(1),
    "sift5k-2": lambda: sift5k(2),
    "mnist": mnist,
    "patches": lambda: patches(100_000),
    "generated": lambda: generated(100_000),
}
QUICK = ("sift5k-0",)


# -- truth -------------------------------------------------------------------------------------------------------------
def nearest(queries, base, k=DEPTH):
    """Positions (m, k) of the k nearest rows: float32 finds 2 k, float64 ranks them; ties by position."""
    norms = np.einsum("ij,ij->i", base, base)
    wide, out = min(2 * k, len(base)), np.empty((len(queries), k), np.int64)
    step = max(1, min(50, 10**8 // len(base)))
    for start in range(0, len(queries), step):
        part = queries[start : start + step]
        best = np.argpartition(norms - 2 * (part @ base.T), wide - 1, axis=1)[:, :wide]
        for i, (query, ids) in enumerate(zip(part, np.sort(best, axis=1), strict=True)):
            exact = ((base[ids].astype(np.float64) - query) ** 2).sum(axis=1)
            out[start + i] = ids[np.argsort(exact, kind="stable")[:k]]
    return out


def load(name, folder):
    """A set of SETS, or None where its files are absent; rows and neighbours are kept in `folder`, rows mapped."""
    folder = Path(folder) / "code-sets"
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f"{name}.npz"
    if not done.exists():
        made = SETS[name]()
        if made is None:
            return None
        base, queries, n_choice = made
        np.save(folder / f"{name}.npy", base)
        cut = len(base) - n_choice
        near, choice_near = nearest(queries, base), nearest(base[cut:], base[:cut])
        np.savez(done, queries=queries, near=near, choice_near=choice_near)
    kept = np.load(done)
    base = np.load(folder / f"{name}.npy", mmap_mode="r")
    choice_near = kept["choice_near"]
    return CodeSet(name, base, kept["queries"], kept["near"], len(choice_near), choice_near)


# -- recall ------------------------------------------------------------------------------------------------------------
def share(found, near, k, among):
    """The share of the k nearest rows that is among the first `among` found, mean over queries."""
    hits = (found[:, :among, None] == near[:, None, :k]).any(axis=1)
    return float(hits.mean())


def recalls(found, near):
    """{what: recall} of positions found (m, >= 100), nearest first.

    "1", "10", "100": the k nearest among the first k found. "k of c": the same when c candidates are ranked anew by
    exact distances, which is the share of the k nearest among the first c.
    """
    out = {str(k): share(found, near, k, k) for k in (1, 10, 100)}
    for c in RESCORED:
        out |= {f"{k} of {c}": share(found, near, k, c) for k in (1, 10, 100) if k < c}
    return out
