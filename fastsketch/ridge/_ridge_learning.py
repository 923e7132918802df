"""State of a ridge regression (Gram matrix or sketch, moments, held-out rows), which learns, merges, saves and loads.

``RidgeLearner`` learns, merges, saves and loads. ``SketchedRidge``, in _sketched_ridge.py, computes the answers.
"""

# pyright: reportPrivateUsage=false

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.sparse import without_long_double
from fastsketch._core.validation import (
    as_array,
    as_flag,
    as_integer,
    as_real,
    as_rows,
    as_weights,
    check_finite,
    is_sparse,
    rows_with_weight,
)
from fastsketch._frame.batches import Batch, agreed, as_source, names_of
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import choice, flag, integer, real, seed
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, naming
from fastsketch.ridge import _held_out as held_out
from fastsketch.ridge._held_learner import HELD, OF_SKETCH, HeldOutLearner
from fastsketch.ridge._held_out import HeldOut, Keys
from fastsketch.ridge._moments import Moments
from fastsketch.ridge._read_out import Choice, RidgePath
from fastsketch.ridge._refining import ConjugateGradients, Refined
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._exact_products import column_products

# Names of arrays in a state file.
OF_STEPS = ("solution", "residual", "direction", "product", "travelled")
OF_PATH = RidgePath._fields[1:4]
SUMS = Moments._fields[2:]
# A batch of at least this many sparse rows is added to X'X by a sparse product. Fewer rows cost less than the copy of
# the sum that this takes.
MANY = 256
MOST_RIDGE = 1e300
# The numbering of rows for keys: bits for the rows of a block, and the end of all blocks.
BLOCK_BITS, MOST_PLACE = 32, 1 << 62
# If no number is larger than this, squares underflow.
SMALLEST = 1e-145
# Share of nonzeros above which held-out rows are multiplied as arrays.
DENSE_ABOVE = 0.3
DOUBLE = np.dtype(np.float64)


class RidgeLearner(HeldOutLearner, abstract=True):
    """State of a ridge regression that is learned in one pass over rows and targets."""

    sketch_size: int = integer(default=128, at_least=2, below=1 << 16, kw_only=False)
    ridge: float | None = real(default=None, high=MOST_RIDGE)
    rank: int | None = integer(default=None, at_least=1)
    scale: bool | None = flag(default=None)
    fit_intercept: bool = flag(default=True)
    scoring: Literal["squared_error", "log_loss"] = choice(("squared_error", "log_loss"), default="squared_error")
    solver: Literal["auto", "gram", "exact"] = choice(("auto", "gram", "exact"), default="auto")
    reservoir_size: int = integer(default=2000)
    max_memory: int = integer(default=1 << 28)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    seed: int = seed(default=0)

    LEARNED = (*HeldOutLearner.LEARNED, "_moments", "_refined", "_flat", "_scaled")

    def _begin(self) -> None:
        super()._begin()  # an exact sum has all rows, a sketch those that are not held out
        self._moments: Moments | None = None  # of all rows, at their current (decayed) weights
        self._place = 0  # number of the first row, for keys
        self._flat = True  # targets are vectors
        self._scaled = self.scale is True  # columns are standardised
        self._refined: Refined | None = None
        self._residuals: Any = None

    def _empty_sketch(self, n_features: int) -> FrequentDirections:
        """Return an empty sketch of the rows, or an empty exact sum of X'X if that is used instead."""
        return FrequentDirections(
            self.sketch_size,
            solver="exact" if self._sums(n_features) else "gram",
            center=self.fit_intercept,
            decay=self.decay,
            dtype=DOUBLE,
        )

    def _sums(self, n_features: int) -> bool:
        """Return True if X'X is summed exactly instead of being sketched."""
        return self.solver == "exact" or (self.solver == "auto" and 8 * n_features * n_features <= self.max_memory)

    @property
    def n_features(self) -> int | None:
        """Return the number of columns, or None before the first batch."""
        return None if self._moments is None else len(self._moments.mean)

    @property
    def n_targets(self) -> int | None:
        """Return the number of targets, or None before the first batch."""
        return None if self._moments is None else len(self._moments.target_mean)

    @property
    def is_exact(self) -> bool | None:
        """Return True if X'X is summed exactly, so that coefficients are exact up to rounding.

        None before the first batch.
        """
        return None if self.n_features is None else self._sums(self.n_features)

    @property
    def total_weight(self) -> float:
        """Return the sum of the decayed weights of all rows."""
        return 0.0 if self._moments is None else self._moments.weight

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch, targets: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Update the model with rows and their targets.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), table, or source
            Real and finite. Sparse rows are not converted to a dense array. Tables and sources (``fs.open_rows``) are
            read in chunks, and learned completely or not at all.
        targets : array_like (n,) or (n, c), optional
            Real and finite, of the same form in every batch. They may be left out if the source has them in an extra
            column (``beside`` of ``fs.open_rows``, or numeric labels of svmlight text).
        sample_weight : array_like (n,) or float, optional
            Nonnegative weights: the squared error of a row is multiplied by its weight. A row of weight 0 is checked
            and then ignored; it is not counted, and earlier rows do not decay by it. The reservoir samples rows
            whatever their weights, and weights their errors later.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For invalid rows (the message names the row), targets or weights, or if the coefficients exceed
            `max_memory`. The model is then unchanged.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((500, 5))
        >>> model = fs.SketchedRidge().update(X[:300], X[:300] @ [3.0, 0.0, -2.0, 0.0, 1.0])
        >>> model.update(X[300:], X[300:] @ [3.0, 0.0, -2.0, 0.0, 1.0]).n_rows
        500
        """
        source = as_source(rows)
        if source is None:
            if targets is None:
                raise TypeError("targets must be given with rows in memory: one for each row")
            with self._named(names_of(rows), "rows"):
                self._learn(rows, targets, sample_weight)
            return self
        return self._learn_source(source, targets, sample_weight)

    def _learn_source(self, source: Source, targets: Any, sample_weight: Any) -> Self:
        """Learn all rows of a source, or none if an error occurs. Return self.

        A copy learns, and replaces the state at the end.
        """
        work, beside = self._copied(), targets is None
        if beside and source.beside is None and not source.labelled:
            raise TypeError(
                f"targets must be given: no column lies beside the rows of {source.name}; "
                "open_rows(..., beside=COLUMNS) puts some there, and so does fs.run(..., target=COLUMNS)"
            )
        work._feature_names = agreed(source.feature_names, self._feature_names, source.name)
        row, values = 0, None if beside else as_array(targets, "targets")
        if values is not None and values.ndim == 0:
            raise TypeError(
                f"targets must be numbers, one for each row, got {targets!r}: columns of a source are targets by "
                "open_rows(..., beside=COLUMNS)"
            )
        weights = None if sample_weight is None else np.asarray(sample_weight)
        for part in source.chunks_beside() if beside else source.chunks():
            stop = row + part[0].shape[0]
            own = part[1] if values is None else values[row:stop]
            with naming(source, row):
                work._learn(part[0], own, weights if weights is None or weights.ndim == 0 else weights[row:stop])
            row = stop
        for name, given in (("targets", values), ("sample_weight", weights)):
            if given is not None and given.ndim and len(given) != row:
                raise ValueError(f"{name} must have one entry for each of the {row} rows, got {len(given)}")
        # one step, so that an interrupt finds the state before or after
        vars(self).update({name: value for name, value in vars(work).items() if name not in ("notes", "_guard")})
        return self

    def _learn(self, rows: Any, targets: Any, sample_weight: Any) -> None:
        """Check rows in memory with their targets and learn them, or none of them if an error occurs.

        With a sketch some rows go to the reservoir instead, see ``_hold_out``. With an exact sum the reservoir has
        copies.
        """
        x = as_rows(rows, self.n_features)
        n, d = x.shape
        check_finite(x)
        y, flat = self._as_targets(targets, n, d)
        x, given, y = rows_with_weight(x, as_weights(sample_weight, n), y, checked=True)
        n = x.shape[0]
        if not n and self._moments is not None:
            return
        weights = np.ones(n) if given is None else given
        ages = np.arange(n - 1.0, -1.0, -1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            moments = Moments.of(x, y, weights * self.decay**ages, center=self.fit_intercept)
            if self._moments is not None:
                moments = self._moments.faded(self.decay**n).plus(moments)
            if not moments.is_finite():
                raise ValueError("the squares of these rows or targets leave the range of numbers: divide them")
            for squares, values in ((moments.squares, x.data if is_sparse(x) else x), (moments.target_squares, y)):
                if squares.max() < SMALLEST**2 and 0 < np.abs(values).max(initial=0.0) < SMALLEST:
                    raise ValueError("the squares of these rows or targets leave the range of numbers: multiply them")
        sketch = self._empty_sketch(d) if self._moments is None else self._sketch
        held = held_out.empty(d + y.shape[1], DOUBLE) if self._held is None else self._held
        exact = self._sums(d)
        held, x, weights = self._hold_out(held, x, y, weights, exact=exact)
        if exact and is_sparse(x) and n >= MANY and self.decay == 1.0:
            sketch, x = self._with_products(sketch, x, weights), x[:0]
        learned = {"_n": self._n + n, "_moments": moments, "_held": held, "_sketch": sketch, "_flat": flat}
        if self._moments is None and self.scale is None:
            learned["_scaled"] = not is_sparse(x)
        self._settle({**learned, "_refined": None}, x, weights)

    def _with_products(self, sketch: FrequentDirections, rows: Any, weights: NDArray[np.float64]) -> FrequentDirections:
        """Return a copy of the exact X'X with sparse rows added, computed from products of their nonzeros."""
        block = self._empty_sketch(rows.shape[1])
        block._begin_with(column_products(rows, weights, block._setting).engine)
        return sketch.copy().merge(block)

    def _as_targets(self, targets: Any, n: int, d: int) -> tuple[NDArray[np.float64], bool]:
        """Check targets. Return them as a float64 matrix, and whether they were a vector."""
        if is_sparse(targets):
            raise TypeError("targets must be an array of numbers, got a sparse one")
        y = as_array(targets, "targets")
        y = _numbers(y) if y.dtype.kind in "OU" else y  # strings
        if y.dtype.kind not in "fiub":
            raise TypeError(f"targets must hold real numbers, got dtype {y.dtype}")
        y = y[np.newaxis] if y.ndim == 0 and n == 1 else y
        if y.ndim not in (1, 2) or len(y) != n or (y.ndim == 2 and not y.shape[1]):
            raise ValueError(f"targets must have one entry, or one row, for each of the {n} rows, got shape {y.shape}")
        flat = y.ndim == 1
        y = np.ascontiguousarray(without_long_double(y[:, np.newaxis] if flat else y), np.float64)
        c = y.shape[1]
        if self._moments is not None and (flat, c) != (self._flat, self.n_targets):
            before = "one number" if self._flat else f"{self.n_targets} targets"
            raise ValueError(f"targets must have {before} a row as the rows before, got {'one' if flat else c}")
        if (need := 8 * c * d) > self.max_memory:
            raise ValueError(
                f"{d:,} columns for {c:,} targets take {need:,} bytes, more than max_memory={self.max_memory:,}: raise "
                "it, or learn fewer targets at a time"
            )
        if self.scoring == "log_loss" and not np.isin(y, (-1.0, 1.0)).all():
            raise ValueError("targets must be -1 and 1 with scoring='log_loss'")
        wrong = ~np.isfinite(y)
        if wrong.any():
            row, target = (int(place) for place in np.argwhere(wrong)[0])
            where = "" if flat else f" for target {target}"
            raise ValueError(f"targets must be finite: row {row} holds {y[row, target]}{where}")
        return y, flat

    def _hold_out(
        self, held: HeldOut, x: Any, y: NDArray[np.float64], weights: NDArray[np.float64], *, exact: bool
    ) -> tuple[HeldOut, Any, NDArray[np.float64]]:
        """Offer rows to the reservoir. Return the new reservoir, the rows for the sketch, and their weights.

        An exact sum learns all rows. A sketch learns those that are not in the reservoir: the row that a new one evicts
        takes the new row's position, with the weight to which it has decayed, or with decay a row of weight 0 does.
        """
        k, r = len(weights), len(held)
        given: NDArray[np.int64] = r + np.arange(k)
        key = held_out.numbered(_content(y), self._place + self._n, self.seed)
        kept = held_out.exchange(held.key, key, weights > 0, size=self.reservoir_size, given=given)
        is_new = kept >= r
        if not is_new.any():
            return held, x, weights
        coming = kept[is_new] - r
        entered = HeldOut(_beside(x[coming], y[coming]), weights[coming], key[coming], self._n + coming)
        places = kept.copy()
        places[is_new] = r + np.arange(len(coming))
        left = held_out.concatenated([held, entered]).chosen(places)
        if exact:
            return left, x, weights
        # a row that enters the reservoir is replaced by the one that leaves it, or with decay by a row of weight 0
        at = np.flatnonzero((given >= 0) | (self.decay < 1.0))
        source = given[at]
        old = np.flatnonzero((source >= 0) & (source < r))
        out = x[np.where(source >= r, source - r, at)]
        if len(old):
            out = _with_rows(out, old, self._rows_held(held.chosen(source[old])))
        came = np.concatenate([held.came, self._n + np.arange(k)])
        age = np.where(source < 0, 0, self._n + at - came[source])
        out_weights = np.concatenate([held.weight, weights])[source] * self.decay**age
        out_weights[source < 0] = 0.0
        return left, out, out_weights

    def _faded(self, factor: float) -> dict[str, Any]:
        """Return the moments with all weights multiplied by `factor`, and no refinement, as attributes by name."""
        return {"_moments": self._known().faded(factor), "_refined": None}

    def _rows_held(self, held: HeldOut) -> Any:
        """Return the features of held-out rows, without their targets."""
        return self._split(held)[0]

    def _split(self, held: HeldOut) -> tuple[Any, NDArray[np.float64]]:
        """Return the features and the targets of held-out rows.

        Features are CSR if at most DENSE_ABOVE of them are nonzero.
        """
        d, c = self._known().cross.shape
        if held.rows.dtype == object:
            every = np.vstack(held.rows) if len(held) else np.zeros((0, d + c))
            return np.ascontiguousarray(every[:, :d]), every[:, d:]
        rows, targets = held.rows[:, :d], held.rows[:, d:].toarray()
        return rows.toarray() if rows.nnz > DENSE_ABOVE * len(held) * d else rows, targets

    def _for_block(self, number: int) -> Self:
        # otherwise rows of two blocks with equal targets and positions would have equal keys
        """Return an empty model that learns block `number` of a stream.

        Its rows are numbered apart from those of other blocks.
        """
        model = super()._for_block(number)
        model._place = (number << BLOCK_BITS) % MOST_PLACE
        return model

    def _merge(self, other: Self) -> None:
        """Merge another model into this one.

        Rows that leave the common reservoir go to the sketch.
        """
        if (self._flat, self.n_targets) != (other._flat, other.n_targets):
            raise ValueError(f"other has n_targets={other.n_targets}, this model has {self.n_targets} in another form")
        if self._scaled != other._scaled:
            raise ValueError(
                "one model has learned dense rows, whose columns are standardised, the other sparse ones, which are "
                "not: give both the same scale="
            )
        joined, rest = self._joined(other)
        if not self.is_exact:
            self._eat(joined["_sketch"], rest)
        vars(self).update(joined, _moments=self._known().plus(other._known()), _refined=None)

    def _known(self) -> Moments:
        """Return the moments of all rows; raise ValueError if no rows have been learned."""
        if self._moments is None:
            raise ValueError("the model has seen no rows: call update first")
        return self._moments

    # -- files -----------------------------------------------------------------------------------------------------
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state for a file: a dict of JSON values, and arrays by name."""
        if self._moments is None:
            return {"n_rows": 0, "place": self._place}, {}
        weight, weight_norm, *sums = self._moments
        about, of_held, of_sketch = self._held_state()
        state: dict[str, Any] = {"n_rows": self._n, "place": self._place, "weight": weight, "weight_norm": weight_norm}
        state |= {"flat": self._flat, "scaled": self._scaled, "sketch": about}
        arrays = {**dict(zip(SUMS, sums, strict=True)), **of_held, **of_sketch}
        if self._refined is not None:
            (*steps, passes), (ridge, path, apart), to_choose = self._refined
            state |= {"passes": passes, "to_choose": to_choose, "ridge": ridge, "apart": apart}
            arrays |= dict(zip(OF_STEPS, steps, strict=True))
            if path is not None:
                state["n_choosing"] = path.n_rows
                arrays |= dict(zip(OF_PATH, path[1:4], strict=True))
        return state, arrays

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Raise ValueError for a state that no model with these parameters can have."""
        n = checks.as_count(state["n_rows"], "n_rows")
        as_integer(state["place"], "place", 0, MOST_PLACE)
        if not arrays:
            checks.number_within(n, "n_rows", 0, 0)
            return
        steps = OF_STEPS if "passes" in state else ()
        path = OF_PATH if "n_choosing" in state else ()
        for name in ("passes", "to_choose", *(["n_choosing"] if path else [])) if steps else ():
            checks.as_count(state[name], name)
        for name in ("ridge", "apart") if steps else ():
            as_real(state[name], name, 0.0, MOST_RIDGE)
        own = [name for name in arrays if not name.startswith(OF_SKETCH)]
        checks.only(dict.fromkeys(own, arrays["mean"]), *SUMS, *held_out.names_of(HELD), *steps, *path)
        d, c, flat = arrays["mean"].size, arrays["target_mean"].size, state["flat"]
        checks.number_within(d, "columns", 1, checks.MOST_COLUMNS)
        checks.number_within(c, "targets", 1, 1 if as_flag(flat, "flat") else max(1, self.max_memory // (8 * d)))
        as_real(state["weight"], "weight", 0.0, MOST_RIDGE)
        as_flag(state.get("scaled", False), "scaled")
        as_real(state.get("weight_norm", 0.0), "weight_norm", 0.0, MOST_RIDGE)
        shapes = {"mean": (d,), "target_mean": (c,), "cross": (d, c), "squares": (d,), "target_squares": (c,)}
        for name, shape in {
            **shapes,
            **dict.fromkeys(steps[:3], (d, 2 * c)),
            **dict.fromkeys(steps[3:], (2 * c,)),
            **dict.fromkeys(path, arrays["ridges"].shape[:1] if path else ()),
        }.items():
            not_negative = "squares" in name or name == "travelled"
            (checks.not_negative if not_negative else checks.finite)(arrays, name, shape)
        self._validate_held(state, arrays, d, width=d + c, size=self.reservoir_size, fewest=0, dtype=DOUBLE)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Restore all attributes from the result of ``_state``."""
        self._begin()
        self._place = state["place"]
        if arrays:
            self._flat = state["flat"]
            self._scaled = state.get("scaled", self._scaled)  # earlier versions had it as a parameter
            sums = [arrays[name] for name in SUMS]
            d, c = arrays["cross"].shape
            self._restore_held(state, arrays, d, width=d + c)
            self._moments = Moments(state["weight"], state.get("weight_norm", self._norm_of_sample(state)), *sums)
            held = self._held
            if held is not None and len(held) and held.n_events == len(held) * (d + c):  # dense rows are arrays again
                self._held = replace(held, rows=held_out.apart(held.rows.toarray()))
            if "passes" in state:
                steps = ConjugateGradients(**{name: arrays[name] for name in OF_STEPS}, passes=state["passes"])
                path = None
                if "n_choosing" in state:
                    ridges, errors, standard_errors = (arrays[name] for name in OF_PATH)
                    path = RidgePath(state["ridge"], ridges, errors, standard_errors, state["n_choosing"])
                choice = Choice(state["ridge"], path, state["apart"])
                self._refined = Refined(steps, choice, state["to_choose"])

    def _norm_of_sample(self, state: dict[str, Any]) -> float:
        """Estimate the root of the sum of squared row weights from the held-out rows.

        It is missing in state files of earlier versions.
        """
        weights = self._known_held().weight
        top = float(weights.max(initial=0.0))
        if not top > 0:
            return float(state["weight"] / max(1, self._n) ** 0.5)
        shares = weights / top  # the sum of w^2 is the total weight times the mean w, weighted by w, of the sample
        return float((state["weight"] * top * (shares @ shares / shares.sum())) ** 0.5)


def _numbers(words: NDArray[Any]) -> NDArray[np.float64]:
    """Convert an array of strings or objects to float64.

    ValueError names the first row that is not a number.
    """
    for place, word in np.ndenumerate(words):
        try:
            float(word)
        except (TypeError, ValueError, OverflowError):  # an integer of Python that exceeds float64
            row = place[0] if place else 0
            raise ValueError(f"targets must hold real numbers: row {row} holds {str(word)!r}") from None
    return words.astype(np.float64)


def _content(targets: NDArray[np.float64]) -> Keys:
    """Return a 64-bit hash of the targets of each row, shape (n,)."""
    return held_out.mixed(np.ascontiguousarray(targets + 0.0).view(np.uint64)).sum(axis=1, dtype=np.uint64)


def _beside(rows: Any, targets: NDArray[np.float64]) -> Any:
    """Join rows and targets to a float64 matrix (n, d + c): CSR, or an object array of dense rows."""
    if not is_sparse(rows):
        return held_out.apart(np.hstack([rows, targets]))
    from scipy.sparse import csr_array, hstack

    return hstack([csr_array(rows, dtype=np.float64), csr_array(targets)], format="csr")


def _with_rows(rows: Any, places: NDArray[np.int64], others: Any) -> Any:
    """Replace the rows of a matrix at the given positions, and return it. A dense one may be changed in place."""
    if not is_sparse(rows):
        out = rows.astype(np.float64, copy=False)
        out[places] = others.toarray() if is_sparse(others) else others
        return out
    from scipy.sparse import csr_array, vstack

    source: NDArray[np.int64] = np.arange(int(rows.shape[0]))
    source[places] = rows.shape[0] + np.arange(len(places))
    return vstack([rows, csr_array(others)], format="csr")[source]
