"""What `bench_ranking` compares: every method is fitted to a split and recommends for the users that it asks about.

A method is `fit(split, kept, **parameters) -> Fitted`; `kept` is a dictionary that lives as long as its caller wants,
for what several parameters share (singular vectors, an inner product): tuning keeps it, measured fits begin with none.
Scores of what has no recommender of its own are products of NumPy in blocks of users, then the same selection for all.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import svds

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
    kinds: tuple = ("random", "users", "time", "last")
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


def _rows(split, power):
    """The rows of train times n^-(power / 2): in a Gram matrix a user of n events counts n^-power."""
    counts = np.maximum(np.diff(split.train.indptr), 1.0)
    return sparse.csr_array(sparse.diags_array(counts ** (-power / 2)) @ split.train.astype(np.float64))


def ease(split, kept, ridge, power=0.0):
    """Exact EASE: P = (X'X + ridge I)^-1, scores x - x P / diag P."""

    def made():
        x = _rows(split, power)
        return (x.T @ x).toarray()

    gram = cached(kept, "gram", made)
    held = gram.copy()
    held[np.diag_indices_from(held)] += ridge
    p = linalg.inv(held, overwrite_a=True, check_finite=False)
    p /= -np.diag(p)
    np.fill_diagonal(p, 0.0)
    weights = p.astype(np.float32)
    return Fitted(by_blocks(lambda shown, places: shown @ weights), weights.nbytes)


# -- from singular vectors ---------------------------------------------------------------------------------------------
def _vectors(split, kept, count, power=0.0):
    """(s2, V (count, columns)) of the whole matrix, the largest first."""
    count = min(count, min(split.train.shape) - 1)

    def made():
        _, s, vt = svds(_rows(split, power), count, random_state=0)
        order = np.argsort(-s)
        return s[order] ** 2, vt[order]

    return cached(kept, ("svds", count), made)


def pure_svd(split, kept, rank):
    _, vt = _vectors(split, kept, max(RANKS) if kept.get("tuning") else rank)
    v = np.ascontiguousarray(vt[:rank], np.float32)
    return Fitted(by_blocks(lambda shown, places: (shown @ v.T) @ v), v.nbytes)


def formula(size, power=0.0):
    """EASE's P from the `size` leading singular vectors of the whole matrix: several passes, all of it in memory."""

    def fit(split, kept, ridge):
        s2, vt = _vectors(split, kept, size, power)
        g = s2 / (s2 + ridge)
        left, right = (vt.T * g).astype(np.float32), (vt / (1.0 - g @ vt**2)).astype(np.float32)
        return Fitted(by_blocks(lambda shown, places: (shown @ left) @ right), left.nbytes + right.shape[1] * 4)

    return fit


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


def bpr(split, kept, factors, regularization, learning_rate, iterations):
    from implicit.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(
        factors=factors,
        regularization=regularization,
        learning_rate=learning_rate,
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


def cmf(split, kept, k, lambda_, alpha, niter):
    from cmfrec import CMF_implicit

    model = CMF_implicit(
        k=k, lambda_=lambda_, alpha=alpha, niter=niter, nthreads=THREADS, random_state=1, verbose=False
    )
    model.fit(sparse.coo_matrix(split.train.astype(np.float64)))
    items = model.B_.astype(np.float32)

    def scores(shown, places):
        if split.users is None:
            users = model.factors_multiple(X=sparse.csr_matrix(shown.astype(np.float64)))
        else:
            users = model.A_[split.users[places]]
        return users.astype(np.float32) @ items.T

    return Fitted(by_blocks(scores), model.B_.nbytes + (0 if split.users is None else model.A_.nbytes))


# -- ours --------------------------------------------------------------------------------------------------------------
def low_rank(loss):
    """LowRankModel as it comes, on ratings: it completes them, and does not rank what was never rated."""

    def fit(split, kept):
        model = fs.LowRankModel(10, loss=loss, dtype="float32").fit(_signed(split.stars, loss))

        def recommend(split):
            if split.users is None:
                return model.fold_in(_signed(split.seen, loss)).recommend(TOP, exclude=split.seen)[0]
            return model.recommend(split.users, TOP, exclude=split.seen)[0]

        rows, columns = split.stars.shape
        return Fitted(recommend, (columns + (0 if split.users is None else rows)) * 11 * 4)

    return fit


def _signed(stars, loss):
    return stars if loss == "square" else stars._with_data(np.where(stars.data >= 4, 1, -1).astype(np.float32))


def sketched(size, **settings):
    def fit(split, kept, ridge=None):
        model = fs.SketchedEASE(size, ridge=ridge, **settings).update(split.train)
        model.recommend(split.shown[:1], 1)  # what it reads out once belongs to the fit
        held = size * split.train.shape[1] * 4 + (8 * split.train.nnz if model.facts()["walk_weight"] else 0)
        return Fitted(lambda split: model.recommend(split.shown, TOP, exclude=split.seen)[0], held)

    return fit


WEIGHTED = ", users weighted"  # by n^-1/2 as SketchedEASE weights them
RIDGES = lattice(-1, 6, 4)
RANKS = (4, 8, 16, 24, 32, 48, 64, 96, 128)
SIZES = (64, 128, 256)
METHODS = [
    Method("popularity", popularity),
    Method(
        "item-knn",
        item_knn,
        {"neighbours": (10, 20, 50, 100, 200, 500, 1000, 2000), "shrink": (0.0, *lattice(0, 4))},
        {"neighbours": 100, "shrink": 32.0},
    ),
    Method("PureSVD", pure_svd, {"rank": RANKS}, {"rank": 32}),
    Method("EASE, exact", ease, {"ridge": RIDGES}, {"ridge": 320.0}),
    Method(
        f"EASE, exact{WEIGHTED}",
        partial(ease, power=0.5),
        {"ridge": RIDGES},
        {"ridge": 32.0},
    ),
    *(
        Method(
            f"EASE on svds, l = {size}{words}",
            formula(size, power),
            {"ridge": RIDGES},
            {"ridge": start},
        )
        for words, power, start in (("", 0.0, 320.0), (WEIGHTED, 0.5, 32.0))
        for size in SIZES
    ),
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
    Method(
        "implicit BPR",
        bpr,
        {
            "regularization": lattice(-6, 0),
            "learning_rate": (0.003, 0.01, 0.03, 0.1, 0.3),
            "factors": (16, 32, 64),
            "iterations": (25, 50, 100),
        },
        {"regularization": 0.01, "learning_rate": 0.03, "factors": 32, "iterations": 50},
        asis={"factors": 100, "regularization": 0.01, "learning_rate": 0.01, "iterations": 100},
        kinds=("random", "time", "last"),
        sets=("ML-100K",),
        needs="implicit",
    ),
    Method(
        "cmfrec CMF_implicit",
        cmf,
        {
            "lambda_": lattice(-2, 4),
            "alpha": (0.3, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
            "k": (8, 16, 32, 64, 128, 256),
            "niter": (3, 5, 10, 20, 40),
        },
        {"lambda_": 10.0, "alpha": 1.0, "k": 64, "niter": 10},
        {"lambda_": (3.2, 10.0, 32.0), "alpha": (1.0, 2.0, 5.0)},
        asis={"k": 50, "lambda_": 1.0, "alpha": 1.0, "niter": 10},
        needs="cmfrec",
    ),
    Method("LowRankModel, stars", low_rank("square")),
    Method("LowRankModel, logistic", low_rank("logistic")),
    *(
        Method(f"SketchedEASE, l = {size}", sketched(size), {"ridge": RIDGES}, {"ridge": 32.0}, asis={})
        for size in SIZES
    ),
]
OURS = "SketchedEASE, l = 256"  # what every row is compared with, as it comes
