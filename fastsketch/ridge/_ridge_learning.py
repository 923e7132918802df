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
from fastsketch._frame.batches import Batch, as_source, names_of, require_same_names
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import choice, flag, integer, real, seed
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, naming
from fastsketch.ridge import _held_out as held_out
from fastsketch.ridge._held_learner import RESERVOIR_PREFIX, SKETCH_PREFIX, HeldOutLearner
from fastsketch.ridge._held_out import HeldOut, Keys
from fastsketch.ridge._moments import Moments
from fastsketch.ridge._read_out import Choice, RidgePath
from fastsketch.ridge._refining import ConjugateGradients, Refined
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._exact_products import column_products

# Names of arrays in a state file: of conjugate gradients, of the ridges that were tried, and of the moments.
STEP_ARRAYS = ("solution", "residual", "direction", "product", "travelled")
PATH_ARRAYS = RidgePath._fields[1:4]
MOMENT_ARRAYS = Moments._fields[2:]
# A batch of at least this many sparse rows is added to X'X by a sparse product. This needs a copy of X'X, which costs
# more than adding fewer rows one by one.
MIN_ROWS_FOR_SPARSE_PRODUCT = 256
MAX_RIDGE = 1e300
# Rows are numbered for their sampling keys: bits for the rows of a block, and a limit for the number of a first row.
BLOCK_BITS, MAX_FIRST_ROW_NUMBER = 32, 1 << 62
# If all numbers are smaller than this in absolute value, their squares underflow.
MIN_SQUARABLE = 1e-145
# Share of nonzeros above which held-out CSR rows are converted to dense arrays.
DENSE_ABOVE = 0.3
DOUBLE = np.dtype(np.float64)


class RidgeLearner(HeldOutLearner, abstract=True):
    """Base class of SketchedRidge for learning: it sums X'X or a sketch of it, moments and held-out rows.
    It takes one pass over rows and targets.
    """

    sketch_size: int = integer(default=128, at_least=2, below=1 << 16, kw_only=False)
    ridge: float | None = real(default=None, high=MAX_RIDGE)
    rank: int | None = integer(default=None, at_least=1)
    scale: bool | None = flag(default=None)
    fit_intercept: bool = flag(default=True)
    scoring: Literal["squared_error", "log_loss"] = choice(("squared_error", "log_loss"), default="squared_error")
    solver: Literal["auto", "gram", "exact"] = choice(("auto", "gram", "exact"), default="auto")
    reservoir_size: int = integer(default=2000)
    max_memory: int = integer(default=1 << 28)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    seed: int = seed(default=0)

    LEARNED = (*HeldOutLearner.LEARNED, "_moments", "_refined", "_targets_are_vectors", "_scaled")

    def _begin(self) -> None:
        super()._begin()  # an exact sum has all rows, a sketch those that are not held out
        self._moments: Moments | None = None  # of all rows, at their current (decayed) weights
        self._first_row_number = 0  # number of the first row, for keys
        self._targets_are_vectors = True  # targets are vectors
        self._scaled = self.scale is True  # columns are standardised
        self._refined: Refined | None = None
        self._residuals: Any = None

    def _empty_sketch(self, n_features: int) -> FrequentDirections:
        """Return an empty sketch for rows of `n_features` columns. It sums X'X exactly if that fits into ``max_memory``
        or is demanded by the solver.
        """
        return FrequentDirections(
            self.sketch_size,
            solver="exact" if self._sums_exactly(n_features) else "gram",
            center=self.fit_intercept,
            decay=self.decay,
            dtype=DOUBLE,
        )

    def _sums_exactly(self, n_features: int) -> bool:
        """Return True if this model sums X'X exactly for rows of `n_features` columns, instead of sketching them."""
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
        """Return True if X'X is summed exactly, so that coefficients are exact up to rounding. Return False if it is
        sketched.

        None before the first batch.
        """
        return None if self.n_features is None else self._sums_exactly(self.n_features)

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
            with self._using_column_names(names_of(rows), "rows"):
                self._learn(rows, targets, sample_weight)
            return self
        return self._learn_source(source, targets, sample_weight)

    def _learn_source(self, source: Source, targets: Any, sample_weight: Any) -> Self:
        """Learn all rows of a source in chunks, or none of them if an error occurs. Return self.

        A copy learns, and replaces the state at the end.
        """
        copy, targets_in_source = self._copied(), targets is None
        if targets_in_source and source.beside is None and not source.labelled:
            raise TypeError(
                f"targets must be given: no column lies beside the rows of {source.name}; "
                "open_rows(..., beside=COLUMNS) puts some there, and so does fs.run(..., target=COLUMNS)"
            )
        copy._feature_names = require_same_names(source.feature_names, self._feature_names, source.name)
        start, values = 0, None if targets_in_source else as_array(targets, "targets")
        if values is not None and values.ndim == 0:
            raise TypeError(
                f"targets must be numbers, one for each row, got {targets!r}: columns of a source are targets by "
                "open_rows(..., beside=COLUMNS)"
            )
        weights = None if sample_weight is None else np.asarray(sample_weight)
        for chunk in source.chunks_beside() if targets_in_source else source.chunks():
            stop = start + chunk[0].shape[0]
            chunk_targets = chunk[1] if values is None else values[start:stop]
            with naming(source, start):
                copy._learn(
                    chunk[0], chunk_targets, weights if weights is None or weights.ndim == 0 else weights[start:stop]
                )
            start = stop
        for name, entries in (("targets", values), ("sample_weight", weights)):
            if entries is not None and entries.ndim and len(entries) != start:
                raise ValueError(f"{name} must have one entry for each of the {start} rows, got {len(entries)}")
        # one step, so that an interrupt finds the state before or after
        vars(self).update({name: value for name, value in vars(copy).items() if name not in ("notes", "_guard")})
        return self

    def _learn(self, rows: Any, targets: Any, sample_weight: Any) -> None:
        """Validate rows in memory with their targets and learn all of them, or none if an error occurs.

        A sketch does not learn the rows that are held out in the reservoir, see ``_hold_out``. An exact sum learns all
        rows, and the reservoir has copies of some.
        """
        x = as_rows(rows, self.n_features)
        n, d = x.shape
        check_finite(x)
        targets_2d, is_vector = self._validate_targets(targets, n, d)
        x, nonzero_weights, targets_2d = rows_with_weight(x, as_weights(sample_weight, n), targets_2d, checked=True)
        n = x.shape[0]
        if not n and self._moments is not None:
            return
        weights = np.ones(n) if nonzero_weights is None else nonzero_weights
        ages = np.arange(n - 1.0, -1.0, -1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            moments = Moments.of(x, targets_2d, weights * self.decay**ages, center=self.fit_intercept)
            if self._moments is not None:
                moments = self._moments.faded(self.decay**n).plus(moments)
            if not moments.is_finite():
                raise ValueError("the squares of these rows or targets leave the range of numbers: divide them")
            for squares, values in (
                (moments.squares, x.data if is_sparse(x) else x),
                (moments.target_squares, targets_2d),
            ):
                if squares.max() < MIN_SQUARABLE**2 and 0 < np.abs(values).max(initial=0.0) < MIN_SQUARABLE:
                    raise ValueError("the squares of these rows or targets leave the range of numbers: multiply them")
        sketch = self._empty_sketch(d) if self._moments is None else self._sketch
        held = held_out.empty_reservoir(d + targets_2d.shape[1], DOUBLE) if self._held is None else self._held
        exact = self._sums_exactly(d)
        held, x, weights = self._hold_out(held, x, targets_2d, weights, exact=exact)
        if exact and is_sparse(x) and n >= MIN_ROWS_FOR_SPARSE_PRODUCT and self.decay == 1.0:
            sketch, x = self._add_sparse_products(sketch, x, weights), x[:0]
        learned = {
            "_n": self._n + n,
            "_moments": moments,
            "_held": held,
            "_sketch": sketch,
            "_targets_are_vectors": is_vector,
        }
        if self._moments is None and self.scale is None:
            learned["_scaled"] = not is_sparse(x)
        self._commit_update({**learned, "_refined": None}, x, weights)

    def _add_sparse_products(
        self, sketch: FrequentDirections, rows: Any, weights: NDArray[np.float64]
    ) -> FrequentDirections:
        """Return a copy of `sketch`, an exact X'X, to which X'X of sparse rows is added; `sketch` is unchanged."""
        batch_sum = self._empty_sketch(rows.shape[1])
        batch_sum._begin_with(column_products(rows, weights, batch_sum._setting).engine)
        return sketch.copy().merge(batch_sum)

    def _validate_targets(self, targets: Any, n: int, d: int) -> tuple[NDArray[np.float64], bool]:
        """Validate the targets of n rows of d columns. Return them as float64 (n, c), and True if given as a vector."""
        if is_sparse(targets):
            raise TypeError("targets must be an array of numbers, got a sparse one")
        y = as_array(targets, "targets")
        y = parse_numbers(y) if y.dtype.kind in "OU" else y  # strings
        if y.dtype.kind not in "fiub":
            raise TypeError(f"targets must hold real numbers, got dtype {y.dtype}")
        y = y[np.newaxis] if y.ndim == 0 and n == 1 else y
        if y.ndim not in (1, 2) or len(y) != n or (y.ndim == 2 and not y.shape[1]):
            raise ValueError(f"targets must have one entry, or one row, for each of the {n} rows, got shape {y.shape}")
        is_vector = y.ndim == 1
        y = np.ascontiguousarray(without_long_double(y[:, np.newaxis] if is_vector else y), np.float64)
        c = y.shape[1]
        if self._moments is not None and (is_vector, c) != (self._targets_are_vectors, self.n_targets):
            expected = "one number" if self._targets_are_vectors else f"{self.n_targets} targets"
            raise ValueError(f"targets must have {expected} a row as the rows before, got {'one' if is_vector else c}")
        if (need := 8 * c * d) > self.max_memory:
            raise ValueError(
                f"{d:,} columns for {c:,} targets take {need:,} bytes, more than max_memory={self.max_memory:,}: raise "
                "it, or learn fewer targets at a time"
            )
        if self.scoring == "log_loss" and not np.isin(y, (-1.0, 1.0)).all():
            raise ValueError("targets must be -1 and 1 with scoring='log_loss'")
        invalid = ~np.isfinite(y)
        if invalid.any():
            row, target = (int(place) for place in np.argwhere(invalid)[0])
            where = "" if is_vector else f" for target {target}"
            raise ValueError(f"targets must be finite: row {row} holds {y[row, target]}{where}")
        return y, is_vector

    def _hold_out(
        self, reservoir: HeldOut, x: Any, y: NDArray[np.float64], weights: NDArray[np.float64], *, exact: bool
    ) -> tuple[HeldOut, Any, NDArray[np.float64]]:
        """Offer rows to the reservoir, and return (new reservoir, rows for the sketch to learn, their weights).

        An exact sum learns all rows as they are. A sketch learns only rows that are not in the reservoir. In place of a
        row that enters the reservoir it learns the row that is evicted, at its decayed weight. If none is evicted, the
        sketch learns nothing, or with decay a row of weight 0, so that earlier rows decay by it.
        """
        n_rows, n_held = len(weights), len(reservoir)
        sketch_sources: NDArray[np.int64] = n_held + np.arange(n_rows)
        keys = held_out.sampling_keys_of_hashes(hash_targets(y), self._first_row_number + self._n, self.seed)
        reservoir_sources = held_out.sample_bottom_k(
            reservoir.key, keys, weights > 0, size=self.reservoir_size, sketch_sources=sketch_sources
        )
        is_new = reservoir_sources >= n_held
        if not is_new.any():
            return reservoir, x, weights
        entering_rows = reservoir_sources[is_new] - n_held
        entering = HeldOut(
            join_targets(x[entering_rows], y[entering_rows]),
            weights[entering_rows],
            keys[entering_rows],
            self._n + entering_rows,
        )
        positions = reservoir_sources.copy()
        positions[is_new] = n_held + np.arange(len(entering_rows))
        new_reservoir = held_out.concatenate([reservoir, entering]).take(positions)
        if exact:
            return new_reservoir, x, weights
        # The sketch learns the evicted row in place of each row that enters, or with decay a row of weight 0.
        sketch_positions = np.flatnonzero((sketch_sources >= 0) | (self.decay < 1.0))
        source_of_row = sketch_sources[sketch_positions]
        from_reservoir = np.flatnonzero((source_of_row >= 0) & (source_of_row < n_held))
        sketch_rows = x[np.where(source_of_row >= n_held, source_of_row - n_held, sketch_positions)]
        if len(from_reservoir):
            sketch_rows = replace_rows(
                sketch_rows, from_reservoir, self._sketch_rows(reservoir.take(source_of_row[from_reservoir]))
            )
        row_numbers = np.concatenate([reservoir.row_number, self._n + np.arange(n_rows)])
        ages = np.where(source_of_row < 0, 0, self._n + sketch_positions - row_numbers[source_of_row])
        sketch_weights = np.concatenate([reservoir.weight, weights])[source_of_row] * self.decay**ages
        sketch_weights[source_of_row < 0] = 0.0
        return new_reservoir, sketch_rows, sketch_weights

    def _faded_attributes(self, factor: float) -> dict[str, Any]:
        """Return {name: new value} of the attributes that ``fade`` must replace: moments with weights multiplied by
        `factor`, and no refinement.
        """
        return {"_moments": self._known_moments().faded(factor), "_refined": None}

    def _sketch_rows(self, reservoir: HeldOut) -> Any:
        """Return the features (n, d) of held-out rows, without their targets."""
        return self._split_targets(reservoir)[0]

    def _split_targets(self, reservoir: HeldOut) -> tuple[Any, NDArray[np.float64]]:
        """Split the rows of a reservoir into features (n, d) and targets (n, c), and return both.

        Features are a CSR matrix if the rows are sparse and at most DENSE_ABOVE of them are nonzero, otherwise an
        array.
        """
        d, c = self._known_moments().cross.shape
        if reservoir.rows.dtype == object:
            all_rows = np.vstack(reservoir.rows) if len(reservoir) else np.zeros((0, d + c))
            return np.ascontiguousarray(all_rows[:, :d]), all_rows[:, d:]
        rows, targets = reservoir.rows[:, :d], reservoir.rows[:, d:].toarray()
        return rows.toarray() if rows.nnz > DENSE_ABOVE * len(reservoir) * d else rows, targets

    def _for_block(self, number: int) -> Self:
        """Return an empty model that learns block `number` of a stream.

        Its rows are numbered from another start than those of other blocks. Otherwise rows of two blocks with equal
        targets and positions would have equal sampling keys.
        """
        model = super()._for_block(number)
        model._first_row_number = (number << BLOCK_BITS) % MAX_FIRST_ROW_NUMBER
        return model

    def _merge(self, other: Self) -> None:
        """Merge another model into this one, in place. The sketch learns the held-out rows that do not fit into the
        reservoir.
        """
        if (self._targets_are_vectors, self.n_targets) != (other._targets_are_vectors, other.n_targets):
            raise ValueError(f"other has n_targets={other.n_targets}, this model has {self.n_targets} in another form")
        if self._scaled != other._scaled:
            raise ValueError(
                "one model has learned dense rows, whose columns are standardised, the other sparse ones, which are "
                "not: give both the same scale="
            )
        merged, overflow = self._merged_attributes(other)
        if not self.is_exact:
            self._learn_held_out_rows(merged["_sketch"], overflow)
        vars(self).update(merged, _moments=self._known_moments().plus(other._known_moments()), _refined=None)

    def _known_moments(self) -> Moments:
        """Return the moments of all rows; raise ValueError if no rows have been learned."""
        if self._moments is None:
            raise ValueError("the model has seen no rows: call update first")
        return self._moments

    # -- files -----------------------------------------------------------------------------------------------------
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state for a file: a dict of JSON values, and arrays by name."""
        if self._moments is None:
            return {"n_rows": 0, "place": self._first_row_number}, {}
        weight, weight_norm, *sums = self._moments
        sketch_state, reservoir_arrays, sketch_arrays = self._sketch_and_reservoir_state()
        state: dict[str, Any] = {
            "n_rows": self._n,
            "place": self._first_row_number,
            "weight": weight,
            "weight_norm": weight_norm,
        }
        state |= {"flat": self._targets_are_vectors, "scaled": self._scaled, "sketch": sketch_state}
        arrays = {**dict(zip(MOMENT_ARRAYS, sums, strict=True)), **reservoir_arrays, **sketch_arrays}
        if self._refined is not None:
            (*steps, passes), (ridge, path, residual_ridge), to_choose = self._refined
            state |= {"passes": passes, "to_choose": to_choose, "ridge": ridge, "apart": residual_ridge}
            arrays |= dict(zip(STEP_ARRAYS, steps, strict=True))
            if path is not None:
                state["n_choosing"] = path.n_rows
                arrays |= dict(zip(PATH_ARRAYS, path[1:4], strict=True))
        return state, arrays

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Raise ValueError if no model with these parameters can have this saved state."""
        n = checks.as_count(state["n_rows"], "n_rows")
        as_integer(state["place"], "place", 0, MAX_FIRST_ROW_NUMBER)
        if not arrays:
            checks.number_within(n, "n_rows", 0, 0)
            return
        steps = STEP_ARRAYS if "passes" in state else ()
        path = PATH_ARRAYS if "n_choosing" in state else ()
        for name in ("passes", "to_choose", *(["n_choosing"] if path else [])) if steps else ():
            checks.as_count(state[name], name)
        for name in ("ridge", "apart") if steps else ():
            as_real(state[name], name, 0.0, MAX_RIDGE)
        own_arrays = [name for name in arrays if not name.startswith(SKETCH_PREFIX)]
        checks.only(
            dict.fromkeys(own_arrays, arrays["mean"]),
            *MOMENT_ARRAYS,
            *held_out.state_names(RESERVOIR_PREFIX),
            *steps,
            *path,
        )
        d, c, flat = arrays["mean"].size, arrays["target_mean"].size, state["flat"]
        checks.number_within(d, "columns", 1, checks.MOST_COLUMNS)
        checks.number_within(c, "targets", 1, 1 if as_flag(flat, "flat") else max(1, self.max_memory // (8 * d)))
        as_real(state["weight"], "weight", 0.0, MAX_RIDGE)
        as_flag(state.get("scaled", False), "scaled")
        as_real(state.get("weight_norm", 0.0), "weight_norm", 0.0, MAX_RIDGE)
        shapes = {"mean": (d,), "target_mean": (c,), "cross": (d, c), "squares": (d,), "target_squares": (c,)}
        for name, shape in {
            **shapes,
            **dict.fromkeys(steps[:3], (d, 2 * c)),
            **dict.fromkeys(steps[3:], (2 * c,)),
            **dict.fromkeys(path, arrays["ridges"].shape[:1] if path else ()),
        }.items():
            not_negative = "squares" in name or name == "travelled"
            (checks.not_negative if not_negative else checks.finite)(arrays, name, shape)
        self._validate_sketch_and_reservoir(
            state, arrays, d, width=d + c, max_rows=self.reservoir_size, min_entries=0, dtype=DOUBLE
        )

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Restore all learned attributes from the result of ``_state``, or from a state of an earlier version."""
        self._begin()
        self._first_row_number = state["place"]
        if arrays:
            self._targets_are_vectors = state["flat"]
            self._scaled = state.get("scaled", self._scaled)  # earlier versions had it as a parameter
            sums = [arrays[name] for name in MOMENT_ARRAYS]
            d, c = arrays["cross"].shape
            self._restore_sketch_and_reservoir(state, arrays, d, width=d + c)
            self._moments = Moments(state["weight"], state.get("weight_norm", self._estimate_weight_norm(state)), *sums)
            reservoir = self._held
            if (
                reservoir is not None and len(reservoir) and reservoir.n_events == len(reservoir) * (d + c)
            ):  # dense rows are arrays again
                self._held = replace(reservoir, rows=held_out.split_into_rows(reservoir.rows.toarray()))
            if "passes" in state:
                steps = ConjugateGradients(**{name: arrays[name] for name in STEP_ARRAYS}, passes=state["passes"])
                path = None
                if "n_choosing" in state:
                    ridges, errors, standard_errors = (arrays[name] for name in PATH_ARRAYS)
                    path = RidgePath(state["ridge"], ridges, errors, standard_errors, state["n_choosing"])
                choice = Choice(state["ridge"], path, state["apart"])
                self._refined = Refined(steps, choice, state["to_choose"])

    def _estimate_weight_norm(self, state: dict[str, Any]) -> float:
        """Return an estimate of the square root of the sum of squared row weights, from the held-out rows, for a state
        file that lacks this number.

        State files of earlier versions do not have this number.
        """
        weights = self._decayed_reservoir().weight
        largest = float(weights.max(initial=0.0))
        if not largest > 0:
            return float(state["weight"] / max(1, self._n) ** 0.5)
        shares = weights / largest  # the sum of w^2 is the total weight times the mean w, weighted by w, of the sample
        return float((state["weight"] * largest * (shares @ shares / shares.sum())) ** 0.5)


def parse_numbers(texts: NDArray[Any]) -> NDArray[np.float64]:
    """Convert an array of strings or objects to float64; raise ValueError for the first entry that is not a number."""
    for index, text in np.ndenumerate(texts):
        try:
            float(text)
        except (TypeError, ValueError, OverflowError):  # an integer of Python that exceeds float64
            row = index[0] if index else 0
            raise ValueError(f"targets must hold real numbers: row {row} holds {str(text)!r}") from None
    return texts.astype(np.float64)


def hash_targets(targets: NDArray[np.float64]) -> Keys:
    """Return a 64-bit hash of the targets of each row, shape (n,)."""
    return held_out.hash_integers(np.ascontiguousarray(targets + 0.0).view(np.uint64)).sum(axis=1, dtype=np.uint64)


def join_targets(rows: Any, targets: NDArray[np.float64]) -> Any:
    """Append targets (n, c) to rows (n, d) as columns. Return CSR for sparse rows, else an object array of n rows."""
    if not is_sparse(rows):
        return held_out.split_into_rows(np.hstack([rows, targets]))
    from scipy.sparse import csr_array, hstack

    return hstack([csr_array(rows, dtype=np.float64), csr_array(targets)], format="csr")


def replace_rows(rows: Any, positions: NDArray[np.int64], new_rows: Any) -> Any:
    """Return a matrix whose rows at the given positions are replaced by `new_rows`.
    A dense matrix may be changed in place.
    """
    if not is_sparse(rows):
        replaced = rows.astype(np.float64, copy=False)
        replaced[positions] = new_rows.toarray() if is_sparse(new_rows) else new_rows
        return replaced
    from scipy.sparse import csr_array, vstack

    row_sources: NDArray[np.int64] = np.arange(int(rows.shape[0]))
    row_sources[positions] = rows.shape[0] + np.arange(len(positions))
    return vstack([rows, csr_array(new_rows)], format="csr")[row_sources]
