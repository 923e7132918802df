"""EASE from one pass: item weights out of a sketch of users' rows."""

# pyright: reportPrivateUsage=false

from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._kernels.guard import changes, reads
from fastsketch._model import Arrays, MergeableModel
from fastsketch._parameters import choice, float_dtype, integer, real, seed
from fastsketch._sparse import as_csr
from fastsketch._validation import Rows, as_flag, as_integer, as_real, as_weights, is_sparse
from fastsketch.io import _checks as checks
from fastsketch.recommending._best import best_items
from fastsketch.recommending._events import as_events, as_items, row_squares
from fastsketch.recommending._weights import ItemWeights, item_weights
from fastsketch.sketching import FrequentDirections

# Users whose scores are held at a time, and the scores that they may take.
BATCH, MOST_SCORES = 64, 1 << 25

OF_SKETCH = "sketch_"


class Recommendations(NamedTuple):
    """The best items of every row, best first.

    Attributes
    ----------
    items : ndarray (k, n) of int64
        -1 where fewer than n are left.
    scores : ndarray (k, n) of float64
        NaN there.
    """

    items: NDArray[np.int64]
    scores: NDArray[np.float64]


class SketchedEASE(MergeableModel):
    """EASE, the linear item model of Steck (2019), from one pass over users' rows and in items x l memory."""

    sketch_size: int = integer(default=256, at_least=2, kw_only=False)
    ridge: float | None = real(default=None, low_open=True)
    method: Literal["rfd", "fd", "tfd", "isvd"] = choice(("rfd", "fd", "tfd", "isvd"), default="isvd")
    activity_power: float = real(default=0.5, high=1.0)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    dtype: DTypeLike | None = float_dtype(default=None)
    seed: int = seed(default=0)

    def _begin(self) -> None:
        self._sketch = self._empty_sketch()
        self._n = 0
        self._squares: NDArray[np.float64] | None = None  # of the columns, weighted and decayed
        self._weights: ItemWeights | None = None

    def _empty_sketch(self) -> FrequentDirections:
        return FrequentDirections(self.sketch_size, method=self.method, decay=self.decay, dtype=self._dtype)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.dtype is None else self.dtype)

    # -- taking rows in --------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Rows, sample_weight: ArrayLike | None = None) -> Self:
        """Add the rows of some users."""
        events = as_events(rows, self.n_features, self._dtype)
        weights = self._row_weights(events, as_weights(sample_weight, events.shape[0]))
        squares = self._column_squares(events, weights)
        n = self._n + events.shape[0]
        before = self._sketch.n_rows
        try:
            self._sketch.update(events, weights)
        finally:
            if self._sketch.n_rows != before or not events.shape[0]:
                self._n, self._squares, self._weights = n, squares, None
        return self

    def _row_weights(self, events: Any, given: NDArray[np.float64] | None) -> NDArray[np.float64]:
        squares = row_squares(events)
        # w = (x'x)^-p
        weights = np.where(squares > 0, squares, 1.0) ** -self.activity_power
        return weights if given is None else weights * given

    def _column_squares(self, events: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        k, n = events.shape
        if self.decay != 1.0:
            weights = weights * self.decay ** np.arange(k - 1, -1, -1.0)
        new = np.bincount(
            events.indices,
            np.repeat(weights, np.diff(events.indptr)) * events.data.astype(np.float64) ** 2,
            minlength=n,
        )
        return new if self._squares is None else self._squares * self.decay**k + new

    @changes
    def fade(self, factor: float) -> Self:
        """Multiply the weight of everything seen so far by a factor in (0, 1]: decay per batch, or per day."""
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        if self._squares is not None:
            sketch = self._sketch.copy().fade(factor)
            self._replace(sketch, self._n, self._squares * factor)
        return self

    def _merge(self, other: Self) -> None:
        sketch = self._sketch.copy().merge(other._sketch)
        self._replace(sketch, self._n + other._n, self._known_squares() + other._known_squares())

    def _replace(self, sketch: FrequentDirections, n: int, squares: NDArray[np.float64]) -> None:
        self._sketch, self._n, self._squares, self._weights = sketch, n, squares, None

    # -- the read-out ----------------------------------------------------------------------------------------------
    def _known_squares(self) -> NDArray[np.float64]:
        if self._squares is None:
            raise ValueError("the model has seen no rows: call update first")
        return self._squares

    @reads
    def _read(self) -> ItemWeights:
        return self._last_weights()

    def _last_weights(self) -> ItemWeights:
        squares = self._known_squares()
        if self._weights is None:
            sketch = self._sketch
            s, vt = sketch.singular_values.astype(np.float64), sketch.components
            lost = np.maximum(squares - (vt.astype(np.float64) ** 2).T @ s**2, 0.0)
            self._weights = item_weights(vt, s**2, lost + self._ridge_in_use(), dtype=self._dtype)
        return self._weights

    def _ridge_in_use(self) -> float:
        if self.ridge is not None:
            return self.ridge
        known = self._known_squares()
        return 10.0 * float(known[known > 0].mean()) if known.any() else 1.0

    @property
    def popularity(self) -> NDArray[np.float64]:
        """Sum of squares of every item's column, weighted and decayed, (items,)."""
        return self._known_squares().copy()

    # -- what it answers -------------------------------------------------------------------------------------------
    @reads
    def decision_block(self, rows: Rows) -> NDArray[Any]:
        """Scores of all items for every row, (k, items)."""
        weights = self._last_weights()
        return weights.scores(as_events(rows, weights.n_items, self._dtype))

    @reads
    def recommend(
        self,
        rows: Rows,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Rows | None = None,
        allow: ArrayLike | None = None,
    ) -> Recommendations:
        """The n items of the highest score for every row, best first."""
        weights = self._last_weights()
        n, exclude_seen = as_integer(n, "n", 1), as_flag(exclude_seen, "exclude_seen")
        events = as_events(rows, weights.n_items, self._dtype)
        left_out = self._left_out(exclude, events.shape)
        squares = self._known_squares()
        open_items = squares > 0
        if allow is not None:
            allowed = np.zeros(len(squares), bool)
            allowed[as_items(allow, len(squares), "allow")] = True
            open_items &= allowed
        k = events.shape[0]
        items, scores = np.full((k, n), -1, np.int64), np.full((k, n), np.nan)
        step = max(1, min(BATCH, MOST_SCORES // weights.n_items))
        for start in range(0, k, step):
            part = slice(start, min(start + step, k))
            here = events[part]
            z = weights.scores(here).astype(np.float64)
            silent = ~(here @ open_known(squares)).astype(bool)
            z[silent] = squares  # in the order of popularity
            z[:, ~open_items] = -np.inf
            for matrix in (here if exclude_seen else None, None if left_out is None else left_out[part]):
                if matrix is not None:
                    z[np.repeat(np.arange(len(z)), np.diff(matrix.indptr)), matrix.indices] = -np.inf
            items[part], scores[part] = best_items(z, n)
            scores[part][silent] = np.where(items[part][silent] >= 0, 0.0, np.nan)
        return Recommendations(items, scores)

    def _left_out(self, exclude: Any, shape: tuple[int, int]) -> Any:
        if exclude is None:
            return None
        if not is_sparse(exclude):
            raise TypeError(f"exclude must be a scipy.sparse matrix, got {type(exclude).__name__}")
        out = as_csr(exclude, "exclude")
        if out.shape != shape:
            raise ValueError(f"exclude must have the shape of rows, {shape}, got {out.shape}")
        return out

    @reads
    def similar_items(self, items: ArrayLike, n: int = 10) -> Recommendations:
        """The n items whose scores an event of each of these adds most to, best first."""
        weights, squares = self._last_weights(), self._known_squares()
        n, chosen = as_integer(n, "n", 1), as_items(items, weights.n_items, "items")
        z = (weights.factors[chosen] @ weights.factors.T * weights.gain).astype(np.float64)
        z[:, squares == 0] = -np.inf
        z[squares[chosen] == 0] = -np.inf
        z[np.arange(len(chosen)), chosen] = -np.inf
        return Recommendations(*best_items(z, n))

    @reads
    def explain(self, row: Rows, item: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """What each item of a row contributes to the score of an item: (items, contributions), largest first."""
        weights = self._last_weights()
        target = int(as_items(item, weights.n_items, "item")[0])
        events = as_events(row, weights.n_items, self._dtype, "row")
        if events.shape[0] != 1:
            raise ValueError(f"row must be one row, got {events.shape[0]}")
        held = events.indices.astype(np.int64)
        given = events.data.astype(np.float64) * weights.of_target(held, target)
        held, given = held[held != target], given[held != target]
        order = np.argsort(-given, kind="stable")
        return held[order], given[order]

    # -- required by the frame -------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Rows seen, empty ones too."""
        return self._n

    @property
    def n_features(self) -> int | None:
        """Items; None before the first batch."""
        return None if self._squares is None else len(self._squares)

    def _resolved(self) -> dict[str, Any]:
        return {"dtype": self._dtype, "ridge": None if self._squares is None else self._ridge_in_use()}

    def _facts(self) -> dict[str, Any]:
        if self._squares is None:
            return {}
        return {"items_with_events": int(np.count_nonzero(self._squares))}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._squares is None:
            return {"n_rows": 0}, {}
        about, arrays = self._sketch._state()
        named = {OF_SKETCH + name: array for name, array in arrays.items()}
        return {"n_rows": self._n, "sketch": about}, {**named, "squares": self._squares}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_rows"], "n_rows")
        if not arrays:
            checks.number_within(n, "n_rows", 0, 0)
            return
        own = {name: array for name, array in arrays.items() if not name.startswith(OF_SKETCH)}
        checks.only(own, "squares")
        about = state["sketch"]["engine"]
        d = as_integer(about["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        checks.not_negative(arrays, "squares", (d,))
        self._empty_sketch()._validate(state["sketch"], _of_sketch(arrays))

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._begin()
        self._n = state["n_rows"]
        if arrays:
            self._squares = arrays["squares"]
            self._sketch._restore(state["sketch"], _of_sketch(arrays))


def _of_sketch(arrays: Arrays) -> Arrays:
    return {name.removeprefix(OF_SKETCH): array for name, array in arrays.items() if name.startswith(OF_SKETCH)}


def open_known(squares: NDArray[np.float64]) -> NDArray[np.float32]:
    """1 for every item with events, else 0."""
    return (squares > 0).astype(np.float32)
