"""Recommenders of `headline` and `catalogues`: each is fitted to a split and recommends for the users of its test part.

A method is `fit(split, kept, **parameters) -> Fitted`; `kept` is a dictionary that lives as long as its caller wants,
for what several parameters share (an inner product): tuning keeps it, measured fits begin with none. Scores of what has
no recommender of its own are products of NumPy in blocks of users, then the same selection for all.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

import fastsketch as fs

TOP = 20
BLOCK = 512  # users whose scores are held at once
THREADS = 1


class Fitted(NamedTuple):
    """recommend(split) -> (k, TOP) columns, best first; bytes: of the arrays that it reads."""

    recommend: Callable
    bytes: int


@dataclass(frozen=True)
class Method:
    """grids: values of each tuned parameter, in order; start: where the search begins; asis: what the package has.

    coarse: parameters and values whose every combination is tried first, the others as in start: what depends on one
    another has more than one summit.
    """

    name: str
    fit: Callable
    grids: dict = field(default_factory=dict)
    start: dict = field(default_factory=dict)
    coarse: dict = field(default_factory=dict)
    asis: dict | None = None
    kinds: tuple = ("random", "users")
    sets: tuple = ("ML-100K", "ML-1M")
    needs: str | None = None

    def absent(self):
        return self.needs is not None and importlib.util.find_spec(self.needs) is None


def lattice(low, high, each=2):
    """Values from 10^low to 10^high, `each` of them a decade, rounded to two digits."""
    return tuple(float(f"{value:.2g}") for value in np.logspace(low, high, each * (high - low) + 1))


def best_unseen(scores, seen):
    """The TOP columns of (k, columns) scores, best first, without those that are stored in the k rows of `seen`."""
    scores[np.repeat(np.arange(len(scores)), np.diff(seen.indptr)), seen.indices] = -np.inf
    some = np.argpartition(scores, -TOP, axis=1)[:, -TOP:]
    found = np.take_along_axis(scores, some, 1)
    order = np.argsort(-found, axis=1, kind="stable")
    return np.where(np.take_along_axis(found, order, 1) > -np.inf, np.take_along_axis(some, order, 1), -1)


def by_blocks(scores_of):
    """A recommender from `scores_of(shown rows, their places) -> dense scores`."""

    def recommend(split):
        k = split.shown.shape[0]
        out = np.empty((k, TOP), np.int64)
        for first in range(0, k, BLOCK):
            places = slice(first, min(first + BLOCK, k))
            scores = np.ascontiguousarray(scores_of(split.shown[places], places), np.float32)
            out[places] = best_unseen(scores, split.seen[places])
        return out

    return recommend


def cached(kept, key, make):
    if key not in kept:
        kept[key] = make()
    return kept[key]


# -- without a model of users ------------------------------------------------------------------------------------------
def popularity(split, kept):
    counts = np.asarray(split.train.sum(axis=0)).ravel().astype(np.float32)
    return Fitted(by_blocks(lambda shown, places: np.tile(counts, (shown.shape[0], 1))), counts.nbytes)


def nearest(left, right, weigh, neighbours):
    """Return left' right (items, items), of each column the `neighbours` largest of weigh(block, its columns)."""
    pieces = []
    for first in range(0, right.shape[1], 2048):
        block = sparse.csc_array(left.T @ right[:, first : first + 2048])
        here = np.repeat(np.arange(first, first + block.shape[1]), np.diff(block.indptr))
        block.data = weigh(block, here)
        block.data[block.indices == here] = 0
        for j in range(block.shape[1]):
            weights = block.data[block.indptr[j] : block.indptr[j + 1]]
            if len(weights) > neighbours:
                weights[weights < np.partition(weights, -neighbours)[-neighbours]] = 0
        block.eliminate_zeros()
        pieces.append(block)
    return sparse.csr_array(sparse.hstack(pieces))


def item_knn(split, kept, neighbours, shrink):
    """Cosines with `shrink` added to the denominator, the nearest `neighbours` of every item."""
    x = split.train.tocsc()
    norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=0)).ravel())
    near = nearest(x, x, lambda block, here: block.data / (norms[block.indices] * norms[here] + shrink), neighbours)
    size = near.data.nbytes + near.indices.nbytes + near.indptr.nbytes
    return Fitted(by_blocks(lambda shown, places: (shown @ near).toarray()), size)


def ease(split, kept, ridge):
    """Exact EASE: P = (X'X + ridge I)^-1, scores x - x P / diag P."""

    def made():
        x = split.train.astype(np.float64)
        return (x.T @ x).toarray()

    gram = cached(kept, "gram", made)
    held = gram.copy()
    held[np.diag_indices_from(held)] += ridge
    p = linalg.inv(held, overwrite_a=True, check_finite=False)
    p /= -np.diag(p)
    np.fill_diagonal(p, 0.0)
    weights = p.astype(np.float32)
    return Fitted(by_blocks(lambda shown, places: shown @ weights), weights.nbytes)


# -- other packages ----------------------------------------------------------------------------------------------------
def als(split, kept, factors, regularization, alpha, iterations):
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=factors,
        regularization=regularization,
        alpha=alpha,
        iterations=iterations,
        num_threads=THREADS,
        random_state=0,
    )
    model.fit(split.matrix(split.train), show_progress=False)
    return _implicit(model, split)


def _implicit(model, split):
    if split.users is None:

        def scores(shown, places):
            users = model.recalculate_user(np.arange(shown.shape[0]), split.matrix(shown))
            return users @ model.item_factors.T

        return Fitted(by_blocks(scores), model.item_factors.nbytes)

    def recommend(split):
        return model.recommend(split.users, split.matrix(split.seen), N=TOP, filter_already_liked_items=True)[0]

    return Fitted(recommend, model.item_factors.nbytes + model.user_factors.nbytes)


# -- ours --------------------------------------------------------------------------------------------------------------
def sketched(size, **settings):
    def fit(split, kept, ridge=None):
        model = fs.SketchedEASE(size, ridge=ridge, **settings).update(split.train)
        model.recommend(split.shown[:1], 1)  # what it reads out once belongs to the fit
        held = size * split.train.shape[1] * 4 + (8 * split.train.nnz if model.facts()["walk_weight"] else 0)
        return Fitted(lambda split: model.recommend(split.shown, TOP, exclude=split.seen)[0], held)

    return fit


RIDGES = lattice(-1, 6, 4)
METHODS = [
    Method("popularity", popularity),
    Method(
        "item-knn",
        item_knn,
        {"neighbours": (10, 20, 50, 100, 200, 500, 1000, 2000), "shrink": (0.0, *lattice(0, 4))},
        {"neighbours": 100, "shrink": 32.0},
    ),
    Method("EASE, exact", ease, {"ridge": RIDGES}, {"ridge": 320.0}),
    Method(
        "implicit ALS",
        als,
        {
            "regularization": lattice(-2, 4),
            "alpha": (0.3, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
            "factors": (8, 16, 32, 64, 128, 256),
            "iterations": (3, 5, 10, 20, 40),
        },
        {"regularization": 10.0, "alpha": 2.0, "factors": 64, "iterations": 10},
        {"regularization": (3.2, 10.0, 32.0), "alpha": (1.0, 2.0, 5.0)},
        asis={"factors": 100, "regularization": 0.01, "alpha": 1.0, "iterations": 15},
        needs="implicit",
    ),
    Method("SketchedEASE, l = 256", sketched(256), asis={}),
]
