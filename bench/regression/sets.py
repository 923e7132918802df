"""The sets that ridge regression is compared on: rows and a column for each target, five splits, 70% for training.

Nothing may be chosen on test rows: `within` splits the training rows of a task once more.
"""

import io
import zipfile
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

import bench_data
from bench_tools import few
from learning.sets import SHARE, found_of
from lowrank.sets import ratings_of


class Rows(NamedTuple):
    """x: CSR or dense float64 (n, d); y: labels (n,), or float64 targets (n, c)."""

    x: np.ndarray | sparse.csr_array
    y: np.ndarray


class Task(NamedTuple):
    """What a model learns, x and y (n, c), and the rows that it is asked about; labels are columns of -1 and 1."""

    name: str
    x: np.ndarray | sparse.csr_array
    y: np.ndarray
    test: np.ndarray | sparse.csr_array
    truth: np.ndarray

    @property
    def labelled(self):
        return self.name in LABELLED


# -- reading -----------------------------------------------------------------------------------------------------------
def _labelled(name):
    def read():
        found = found_of(name)
        if found is None:
            return None
        parts = [found[:2], *([found.fixed] if found.fixed else [])]
        rows, labels = zip(*parts, strict=True)
        return Rows(sparse.csr_array(sparse.vstack(rows)), np.concatenate(labels))

    return read


def _random_features(n=6_000, d=4096):
    """MNIST through cosines of random projections, those of a Gaussian kernel whose width is the median distance."""
    found = bench_data.mnist("all")
    if found is None:
        return None
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(found[0]))[: few(n, 300)]
    x, d = found[0][chosen] / 255.0, few(d, 256)
    some = x[:500]
    squares = np.sum(some**2, axis=1)
    width = np.sqrt(np.median(squares[:, None] + squares - 2 * some @ some.T))
    waves = x @ (rng.standard_normal((x.shape[1], d)) / width) + rng.uniform(0, 2 * np.pi, d)
    return Rows(np.sqrt(2 / d) * np.cos(waves), found[1][chosen].astype(np.int64))


def _halves(n=10_000):
    """Grey images of CIFAR-10: the left half as the row, the right half as 512 targets."""
    path = bench_data.located("cifar10", "cifar10/cifar10_jpeg.zip", "CIFAR-10 as JPEG files")
    if path is None:
        return None
    from PIL import Image

    with zipfile.ZipFile(path) as files:
        names = [name for name in files.namelist() if name.startswith("train/") and name.endswith(".jpg")]
        chosen = np.random.default_rng(0).permutation(len(names))[: few(n, 300)]
        images = [np.asarray(Image.open(io.BytesIO(files.read(names[k]))).convert("L")) for k in chosen]
    grey = np.array(images, np.float64) / 255.0
    return Rows(grey[:, :, :16].reshape(len(grey), -1), grey[:, :, 16:].reshape(len(grey), -1))


def _stars(n=150_000):
    """ml-1m: the user and the film of a rating, as ones; the rating is the target."""
    found = ratings_of("ML-1M")
    if found is None:
        return None
    users, films, stars, (n_users, n_films) = found
    chosen = np.random.default_rng(0).permutation(len(stars))[: few(n, 300)]
    places = np.column_stack([users, n_users + films])[chosen].ravel().astype(np.int32)
    starts = np.arange(0, len(places) + 1, 2, dtype=np.int32)
    x = sparse.csr_array((np.ones(len(places)), places, starts), shape=(len(chosen), n_users + n_films))
    return Rows(x, stars[chosen, None].astype(np.float64))


def _generated(n=200_000, d=2000, per_row=20):
    """Counts by popularity, coefficients of every column, noise as large as the signal."""
    rng = np.random.default_rng(0)
    n = few(n, 300)
    popularity = (3.0 + np.arange(d)) ** -0.9
    places = rng.choice(d, (n, per_row), p=popularity / popularity.sum()).ravel().astype(np.int32)
    starts = np.arange(0, len(places) + 1, per_row, dtype=np.int32)
    x = sparse.csr_array((1.0 + rng.poisson(0.5, len(places)), places, starts), shape=(n, d))
    x.sum_duplicates()
    signal = x @ rng.standard_normal(d)
    return Rows(x, (signal + signal.std() * rng.standard_normal(n))[:, None])


def stream(n_chunks, n=200_000, d=2000, per_row=20):
    """Yield rows as those of `_generated` with their targets, chunk after chunk; coefficients are the same in all."""
    popularity = (3.0 + np.arange(d)) ** -0.9
    coef, noise = np.random.default_rng(0).standard_normal(d), None
    for k in range(n_chunks):
        rng = np.random.default_rng([1, k])
        places = rng.choice(d, (n, per_row), p=popularity / popularity.sum()).ravel().astype(np.int32)
        starts = np.arange(0, len(places) + 1, per_row, dtype=np.int32)
        x = sparse.csr_array((1.0 + rng.poisson(0.5, len(places)), places, starts), shape=(n, d))
        x.sum_duplicates()
        signal = x @ coef
        noise = signal.std() if noise is None else noise
        yield x, signal + noise * rng.standard_normal(n)


LABELLED = {
    "farm-ads": _labelled("farm-ads"),
    "news20": _labelled("news20"),
    "MNIST features": _random_features,
    "a9a": _labelled("a9a"),
    "w8a": _labelled("w8a"),
}
SETS = {**LABELLED, "image halves": _halves, "ml-1m": _stars, "generated": _generated}


# -- splits ------------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def rows_of(name):
    """Return the whole of a set, or None with a word about where it comes from."""
    return SETS[name]()


def task_of(name, seed):
    """Return the task of a set and a seed, 0 to SPLITS - 1, or None where the set is absent."""
    rows = rows_of(name)
    if rows is None:
        return None
    y = rows.y
    if name in LABELLED:
        classes = np.unique(y)
        y = np.where(y[:, None] == (classes[1:] if len(classes) == 2 else classes), 1.0, -1.0)
    order = np.random.default_rng(seed).permutation(rows.x.shape[0])
    cut = int(SHARE * len(order))
    return Task(name, rows.x[order[:cut]], y[order[:cut]], rows.x[order[cut:]], y[order[cut:]])


def within(task, share=0.9):
    """Return a task of the training rows alone: learn from the first, validate on the last of them."""
    cut = int(share * task.x.shape[0])
    return Task(task.name, task.x[:cut], task.y[:cut], task.x[cut:], task.y[cut:])


def loss(task, predicted):
    """Return the share of wrong labels, or 1 - R2, of predictions (n, c); of several targets the mean of 1 - R2."""
    predicted = np.asarray(predicted).reshape(task.truth.shape)
    if not task.labelled:
        squares = np.sum((task.truth - predicted) ** 2, axis=0) / np.sum((task.truth - task.truth.mean(0)) ** 2, axis=0)
        return float(np.mean(squares))
    if task.truth.shape[1] == 1:
        return float(np.mean((predicted > 0) != (task.truth > 0)))
    return float(np.mean(predicted.argmax(axis=1) != task.truth.argmax(axis=1)))
