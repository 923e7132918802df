"""Item weights of EASE from a sketch: approximation of X'X, its inverse, and the choice of the ridge penalty.

X'X is approximated by Z Q Z' + diag(lost). Z (items, t) is the transposed sketch; Q subtracts the estimated noise level
from every eigenvalue; lost_j is the difference to the exact sum of squares of column j, which is known.

P = (Z Q Z' + D)^-1 with D = diag(lost) + ridge I. By the Woodbury identity, with M = (Q^-1 + Z' D^-1 Z)^-1,
P = D^-1 - D^-1 Z M Z' D^-1. So
P_jj = h_j / D_j with h_j = 1 - Z_j' M Z_j / D_j, and the weight -P_ij / P_jj of item i in the score of item j is
(Z_i' M Z_j) / (D_i h_j): no array larger than Z is needed.

Callers limit BLAS to one thread (``one_blas_thread``), so that results do not depend on the number of threads.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from math import ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.best import best_columns
from fastsketch._kernels.recommending import items as kernel
from fastsketch.recommending._item_events import csr_structure
from fastsketch.recommending._neighbours import Walks
from fastsketch.recommending.ranking import ndcg_at
from fastsketch.recommending.ranking._splits import Split, row_indices, select_smallest_in_rows, split_entries
from fastsketch.ridge._gram_model import (
    MIN_DIAGONAL_SHARE,
    GramModel,
    Matrix,
    inner_inverse,
    inverse_weighted_gram,
    quadratic_forms,
    scaled_diagonal,
)
from fastsketch.ridge._held_out import HeldOut, hash_integers
from fastsketch.ridge._path import RIDGE_RATIO, best_step, hill_climb, standard_error
from fastsketch.sketching._engines import AnyEngine, SparseEngine, by_column
from fastsketch.sketching._read_out import reads_by_feature


# -- a model of X'X ----------------------------------------------------------------------------------------------------
def approximate_gram(engine: AnyEngine, squares: Matrix) -> GramModel:
    """Return an approximation of X'X, low-rank plus diagonal, made from the sketch in an engine, as a GramModel.
    The engine is changed and must not be used afterwards.

    `squares` (items,) are the exact sums of squares of the columns, which the approximation has as its diagonal.
    """
    shrinkage = engine.shrinkage
    z = transposed_sketch(engine)
    removed = max(shrinkage, engine.shrinkage)
    values, vectors = np.linalg.eigh(inverse_weighted_gram(z))
    is_positive = values > values.max(initial=0.0) * len(values) * np.finfo(z.dtype).eps
    values, vectors = values[is_positive], vectors[:, is_positive]
    # the noise level: the smallest eigenvalue, at most what shrinks have removed, as in a shrink of Frequent Directions
    noise_level = min(float(values.min(initial=np.inf)), removed)
    root = vectors * np.sqrt(np.maximum(1.0 - noise_level / values, 0.0))
    root = np.ascontiguousarray(root[:, values > noise_level])
    unit = ldexp(1.0, engine.exponent) ** 2
    explained_squares = quadratic_forms(z, root.astype(z.dtype), squared=True)
    return GramModel(z, root, np.maximum(squares / unit - explained_squares, 0.0), unit)


def transposed_sketch(engine: AnyEngine) -> NDArray[Any]:
    """Return the transposed sketch (items, t), with one row per item.
    The engine is changed and must not be used afterwards.
    """
    if not (isinstance(engine, SparseEngine) and reads_by_feature(engine)):
        return np.ascontiguousarray(by_column(engine, engine.reduce()).T)
    width = engine.columns().shape[1]
    z, n_kept = engine.z, engine.state.kept
    z[:, :n_kept] *= engine.gain[:n_kept].astype(z.dtype)
    z[:, width:] = 0  # kernels read all columns
    if len(z) == engine.n_features and (engine.slot_columns == np.arange(len(z))).all():
        return z
    out = np.zeros((engine.n_features, z.shape[1]), z.dtype)
    out[engine.slot_columns] = z
    return out


# -- item weights ------------------------------------------------------------------------------------------------------
# The largest number of scores that are held at a time.
MAX_SCORES = 1 << 23

TopItems = tuple[NDArray[np.int64], NDArray[np.float64]]


def top_products(left: NDArray[Any], right: NDArray[Any], n: int, **options: Any) -> TopItems:
    """Return the column indices and values (k, n) of the n largest entries in each row of left @ right.T.

    Options are those of ``best_columns``.
    """
    items, values = np.empty((len(left), n), np.int64), np.empty((len(left), n))
    best_columns(left, right, items, values, **options)
    return items, values


def top_scores(scores: NDArray[Any], n: int, exclusions: Sequence[Any] = (), **options: Any) -> TopItems:
    """Return the column indices and values (k, n) of the n largest entries in each row of `scores`, descending.

    `exclusions` are results of ``csr_structure``: matrices of the columns to exclude. Other options are those of
    ``best_columns``.
    """
    items, values = np.empty((len(scores), n), np.int64), np.empty((len(scores), n))
    no_left, no_right = np.empty((1, 0), scores.dtype), np.empty((scores.shape[1], 0), scores.dtype)
    for i, row in enumerate(scores):
        row_exclusions = [
            (indptr, indices, np.array([i if line is None else line[i]])) for indptr, indices, line in exclusions
        ]
        row_slice = slice(i, i + 1)
        column = row.astype(np.float64)
        best_columns(
            no_left,
            no_right,
            items[row_slice],
            values[row_slice],
            base=np.zeros(1),
            column=column,
            left_out=row_exclusions,
            **options,
        )
    return items, values


class ItemWeights(NamedTuple):
    """Item-to-item weights of the recommender EASE as factors of low rank, with optional random walks.
    No items x items matrix is formed.

    The weight of item i in the score of item j is inverse_diagonal_i (Z_i' M Z_j) gain_j, plus that of walks, and 0
    for i = j.
    """

    z: NDArray[Any]  # (items, t)
    inner: NDArray[Any]  # M (t, t); all arrays have the dtype of Z
    inverse_diagonal: NDArray[Any]  # (items,) 1 / D
    gain: NDArray[Any]  # (items,) 1 / h
    walks: Walks | None = None

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.z)

    def project(self, rows: Any) -> NDArray[Any]:
        """Return the projections (k, t) of CSR rows of events, in which item scores are inner products.

        For X (k, items) they are X D^-1 Z M; scores are their products with Z', times gain.
        """
        indptr, indices, _ = csr_structure(rows)
        return kernel.project(indptr, indices, rows.data * self.inverse_diagonal[indices], self.z, self.inner)

    def scores(self, rows: Any) -> NDArray[Any]:
        """Return the scores (k, items) of all items for CSR rows; an item in the row does not add to its own score."""
        out = kernel.scores(self.project(rows), self.z, self.gain)
        own_weights = self.gain - 1
        if self.walks is not None:
            self.walks.add(rows, out)
            own_weights = own_weights + self.walks.diagonal
        # subtract the weight of each item in its own score: 1 / h - 1, and that of walks
        out[row_indices(rows), rows.indices] -= rows.data * own_weights[rows.indices]
        return out

    def top_items(
        self,
        rows: Any,
        n: int,
        open_items: NDArray[np.bool_],
        left_out: Sequence[Any],
        *,
        exclude_seen: bool,
        allowed: NDArray[np.int32] | None = None,
    ) -> TopItems:
        """Return the n items with the highest scores for each CSR row, and their scores, both (k, n).

        Only items where `open_items` is True are returned, without those in the matrices of `left_out` (results of
        ``csr_structure``). Scores of all items are computed only where they are needed: for walks, and if the items of
        a row are not excluded.
        """
        left_out = [csr_structure(rows), *left_out] if exclude_seen else left_out
        weights = self._replace(gain=np.where(open_items, self.gain, np.nan).astype(self.gain.dtype))
        if self.walks is None and exclude_seen:
            options: dict[str, Any] = {"scale": weights.gain, "left_out": left_out, "allowed": allowed}
            return top_products(self.project(rows), self.z, n, **options)
        step = max(1, MAX_SCORES // self.n_items)
        blocks: list[TopItems] = []
        for start in range(0, max(1, rows.shape[0]), step):
            lines = np.arange(start, min(start + step, rows.shape[0]))
            scores = weights.scores(rows if len(lines) == rows.shape[0] else rows[lines])
            block_exclusions = [
                (indptr, indices, lines if line is None else line[lines]) for indptr, indices, line in left_out
            ]
            blocks.append(top_scores(scores, n, block_exclusions, allowed=allowed))
        items, values = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        return items, values

    @one_blas_thread
    def weights_of_target(self, items: NDArray[np.int64], target: int) -> Matrix:
        """Return the weight of each given item in the score of the item `target`, float64; 0 for the target."""
        scaled_rows = self.z[items].astype(np.float64) * self.inverse_diagonal[items].astype(np.float64)[:, np.newaxis]
        out = (
            scaled_rows @ (self.inner.astype(np.float64) @ self.z[target].astype(np.float64)) * float(self.gain[target])
        )
        out += 0.0 if self.walks is None else self.walks.weights_of_target(items, target)
        return np.where(items == target, 0.0, out)


def item_weights(gram: GramModel, ridge: float) -> ItemWeights:
    """Return the item-to-item weights of EASE at a ridge penalty, given an approximation of X'X.

    The ridge is in squared units of the rows. This takes 4 items t^2 flops for every ridge: D differs from item to
    item, so that no decomposition can be reused.
    """
    z, root = gram.z, gram.root
    d, level = scaled_diagonal(gram.lost + ridge / gram.unit)
    inner = (inner_inverse(inverse_weighted_gram(z, d) / level, root) / level).astype(z.dtype)
    h = 1.0 - quadratic_forms(z, inner) / d
    return ItemWeights(z, inner, (1.0 / d).astype(z.dtype), (1.0 / np.maximum(h, MIN_DIAGONAL_SHARE)).astype(z.dtype))


# -- choice of the ridge on held-out users -----------------------------------------------------------------------------
# Share of a user's items that is hidden, and the length of the list of the NDCG that is maximised.
HIDDEN_SHARE, NDCG_DEPTH = 0.2, 20
# Ridges in units of the mean sum of squares of a column: the middle of the path, and its ends.
START_RIDGE, SMALLEST_RIDGE, LARGEST_RIDGE = 3.0, 1e-3, 1e6

# The grid of weights of walks relative to the scores of the sketch: half decades, and 0.
WALK_WEIGHTS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class RidgePath(NamedTuple):
    """Ridge penalties that were tried, and their mean NDCG@20 on hidden items of held-out users.

    Attributes
    ----------
    ridge : float
        The chosen ridge.
    ridges : ndarray (p,)
        Ascending, in squared units of the rows.
    scores : ndarray (p,)
        Mean NDCG@20 of the users.
    standard_errors : ndarray (p,)
        Standard errors of the scores. Those of differences are much smaller, as all scores are of the same users.
    n_users : int
    """

    ridge: float
    ridges: NDArray[np.float64]
    scores: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    n_users: int


class RidgeTrial(NamedTuple):
    """Data on which ridge penalties are compared: held-out users with shown and hidden items, and X'X of others."""

    gram: GramModel
    shown: Any  # CSR (k, items)
    hidden: Any
    open_items: NDArray[np.int32]

    def scores(self, ridge: float) -> NDArray[np.float64]:
        """Return, for each held-out user, the NDCG@20 with which the hidden items are ranked at a ridge penalty."""
        weights = item_weights(self.gram, ridge)
        projected, shown_structure = weights.project(self.shown), csr_structure(self.shown)
        items, _ = top_products(
            projected, weights.z, NDCG_DEPTH, scale=weights.gain, left_out=[shown_structure], allowed=self.open_items
        )
        return ndcg_at(items, self.hidden)

    def choose_walk_weight(self, ridge: float, walks: Walks) -> float:
        """Return the weight of random walks, one of ``WALK_WEIGHTS``, that ranks the hidden items best at this ridge
        penalty. Of equal ones it is the smallest.
        """
        weights, step = item_weights(self.gram, ridge), max(1, MAX_SCORES // len(self.gram.z))
        values_by_weight: list[list[NDArray[np.float64]]] = [[] for _ in WALK_WEIGHTS]
        for start in range(0, self.shown.shape[0], step):
            shown, hidden = self.shown[start : start + step], self.hidden[start : start + step]
            scores, added = weights.scores(shown), np.zeros((shown.shape[0], weights.n_items), weights.z.dtype)
            walks.add(shown, added)
            for values, weight in zip(values_by_weight, WALK_WEIGHTS, strict=True):
                total_scores = scores + np.float32(weight) * added
                items, _ = top_scores(total_scores, NDCG_DEPTH, [csr_structure(shown)], allowed=self.open_items)
                values.append(ndcg_at(items, hidden))
        ndcgs = [np.concatenate(values).mean() for values in values_by_weight]
        return WALK_WEIGHTS[int(np.argmax(ndcgs))]


def split_items(users: HeldOut, share: float) -> Split:
    """Split each user's items at random, and return Split(shown, hidden) with at least one item of both per user.

    Recommendations from the shown items are judged by the hidden ones. `share` is that of the hidden items.
    """
    rows, user_index = users.rows, row_indices(users.rows)
    random_keys = hash_integers(rows.indices.astype(np.uint64) ^ users.key[user_index])
    n_items = np.diff(rows.indptr)
    return split_entries(
        rows, select_smallest_in_rows(rows, random_keys, np.clip(np.rint(share * n_items), 1, n_items - 1))
    )


def evaluate_ridges(trial: RidgeTrial, ridges: Sequence[float]) -> RidgePath:
    """Return the mean NDCG of each given ridge penalty, as a RidgePath whose choice is the best one.
    Of equal ones the largest is chosen.
    """
    evaluated = [(float(ridge), trial.scores(float(ridge))) for ridge in sorted(ridges)]
    best = max(range(len(evaluated)), key=lambda i: (evaluated[i][1].mean(), i))
    return _ridge_path(evaluated, best)


def search_ridge(trial: RidgeTrial, unit: float) -> RidgePath:
    """Search for the ridge penalty with the best NDCG by hill climbing, and return a RidgePath of all tried.

    The grid has steps of sqrt(10) and starts at three times `unit`. The ridge with the best NDCG is chosen; ties go to
    the largest.
    """
    evaluated = hill_climb(
        lambda step: trial.scores(START_RIDGE * unit * RIDGE_RATIO**step),
        SMALLEST_RIDGE / START_RIDGE,
        LARGEST_RIDGE / START_RIDGE,
    )
    steps = sorted(evaluated)
    return _ridge_path(
        [(START_RIDGE * unit * RIDGE_RATIO**step, evaluated[step]) for step in steps],
        steps.index(best_step(evaluated)),
    )


def _ridge_path(evaluated: list[tuple[float, NDArray[np.float64]]], best_index: int) -> RidgePath:
    """Return a RidgePath with means and standard errors, given pairs (ridge, NDCG of each user).
    The pair at `best_index` is the choice.
    """
    ridges, values = zip(*evaluated, strict=True)
    scores, errors = np.array([v.mean() for v in values]), np.array([standard_error(v) for v in values])
    return RidgePath(ridges[best_index], np.array(ridges), scores, errors, len(values[0]))
