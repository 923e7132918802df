"""Answers of a low-rank model: indices as they are given, the best columns, rows that were folded in."""

import numpy as np

from fastsketch._validation import as_integer
from fastsketch.lowrank._losses import on_scale

# Entries that are predicted at once.
PART = 2_000_000


def as_indices(values, size, name):
    out = np.asarray(values)
    if out.size == 0:
        return out.astype(np.int64).reshape(-1)
    if out.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {out.dtype}")
    out = np.atleast_1d(out).astype(np.int64)
    if out.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {out.shape}")
    if out.min() < -1 or out.max() >= size:
        raise IndexError(
            f"{name} must lie in [0, {size}), or be -1 for one never seen, got "
            f"{int(out.min() if out.min() < -1 else out.max())}"
        )
    return out


def recommended(block, finish, rows, n, exclude, shape):
    n = as_integer(n, "n", 1)
    columns = shape[1]
    if exclude is not None:
        exclude = exclude.tocsr()
        if exclude.shape[1] != columns or exclude.shape[0] not in (len(rows), shape[0]):
            raise ValueError(
                f"exclude must have {columns} columns and {len(rows)} or {shape[0]} rows, got shape {exclude.shape}"
            )
    own = (
        exclude is not None
        and exclude.shape[0] == len(rows)
        and not (
            exclude.shape[0] == shape[0] and len(rows) == shape[0] and not np.array_equal(rows, np.arange(shape[0]))
        )
    )
    found, predicted = np.full((len(rows), n), -1, np.int64), np.full((len(rows), n), np.nan)
    step = max(1, PART // max(columns, 1))
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        z = np.asarray(block(part), np.float64)
        for k in range(len(z)):
            if exclude is not None:
                i = first + k if own else rows[first + k]
                if i >= 0:
                    z[k, exclude.indices[exclude.indptr[i] : exclude.indptr[i + 1]]] = -np.inf
        most = min(n, columns)
        best = np.argpartition(-z, most - 1, axis=1)[:, :most]
        order = np.argsort(-np.take_along_axis(z, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        scores = np.take_along_axis(z, best, axis=1)
        left = np.isfinite(scores)
        found[part, :most] = np.where(left, best, -1)
        predicted[part, :most] = np.where(left, finish(np.where(left, scores, 0.0)), np.nan)
    return found, predicted


def finished(config, level, z):
    """Scores on the scale of the observations, within the range to keep to."""
    if config.loss == "hinge":
        # a tie, as of a row and column never seen, goes to the more frequent label
        return np.where(z > 0, 1.0, np.where(z < 0, -1.0, 1.0 if level >= 0 else -1.0))
    out = on_scale(config.loss, z)
    return out if config.clip is None else np.clip(out, *config.clip)


class FoldedIn:
    """New rows or columns fitted to a model: ``factors`` (k, rank) and ``biases`` (k,).

    Holds what it was fitted to: another fit of the model changes nothing here.
    """

    def __init__(self, config, axis, factors, biases, level, other, others):
        self.axis, self.factors, self.biases = axis, factors, biases
        self._config, self._level, self._other, self._others = config, level, other, others

    def __len__(self):
        return len(self.biases)

    def _finish(self, z):
        return finished(self._config, self._level, z)

    def _block(self, part):
        z = self._level + self.biases[part, None] + self._other.astype(np.float64)
        return z + self.factors[part] @ self._others.T

    def predict_block(self):
        """Predictions of every new one with all known columns (or rows), (k, n)."""
        return self._finish(self._block(slice(None)))

    def predict(self, new, known):
        """Predictions of pairs (new one, known column or row), on the scale of X."""
        new, known = as_indices(new, len(self), "new"), as_indices(known, len(self._other), "known")
        if new.shape != known.shape or (new < 0).any():
            raise ValueError("new and known must have the same shape, and new no -1")
        inner = self._other[known] + np.einsum("kq,kq->k", self.factors[new], self._others[known])
        return self._finish(np.asarray(self._level + self.biases[new] + np.where(known >= 0, inner, 0.0), np.float64))

    def recommend(self, n=10, *, exclude=None):
        """As LowRankModel.recommend, for the new ones; exclude: their X."""
        rows = np.arange(len(self))
        return recommended(
            lambda part: self._block(rows[part]), self._finish, rows, n, exclude, (len(self), len(self._other))
        )
