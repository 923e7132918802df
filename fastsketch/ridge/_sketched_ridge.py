"""``fastsketch.SketchedRidge``: ridge regression learned in one pass, with predictions, intervals and coefficients.

It learns the Gram matrix or a sketch, the moments, and held-out rows. From these it chooses the ridge, solves for the
coefficients and measures residuals. It refines the coefficients over rows that are read again.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Generator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.bottom_k import VALIDATION_FRACTION
from fastsketch._core.sparse import without_long_double
from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import Rows as Readable
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
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import Batch, as_source, names_of, require_same_names
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import choice, flag, integer, real, seed
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, naming
from fastsketch.ridge import _held_out as held_out
from fastsketch.ridge._cross_validation import GeneralisedCrossValidation, LeaveOneOut
from fastsketch.ridge._gram_model import GramSum, Matrix
from fastsketch.ridge._held_learner import RESERVOIR_PREFIX, SKETCH_PREFIX, HeldOutLearner
from fastsketch.ridge._held_out import HeldOut, Keys
from fastsketch.ridge._moments import TINY, ExcludedRowsGram, Moments, column_lengths
from fastsketch.ridge._path import RIDGE_RATIO, standard_error
from fastsketch.ridge._read_out import (
    MIN_ROWS,
    TOLERANCE,
    Choice,
    Coefficients,
    NormalEquations,
    RidgePath,
    Rows,
    Scorer,
    choose_least_error,
    conformal_quantile,
    gram_of_sketch,
    penalty_diagonal,
    search_ridge,
    with_intercepts,
)
from fastsketch.ridge._refining import (
    ConjugateGradients,
    LanczosIteration,
    MomentCheckingProduct,
    Refined,
    Refinement,
    residual_gap,
)
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._exact_products import column_products
from fastsketch.sketching._frequent_directions import SecondPass
from fastsketch.sketching._rereading import Readable as RereadRows
from fastsketch.sketching._rereading import RowsAgain

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

# Smallest number of rows for leave-one-out. Rows of a smaller weight than this share of the largest are ignored.
MIN_ROWS_LEAVE_ONE_OUT, MIN_WEIGHT_RATIO = 3, 1e-12
# Weights are regarded as equal if Kish's effective number of rows is relatively this close to the number of rows.
EQUAL_WEIGHT_TOLERANCE = 1e-9
# Largest share of the passes of a refinement that may choose the ridge.
MAX_CHOOSING_SHARE = 0.6
# Largest number of float64 numbers stored for held-out rows during that choice; with very many targets fewer rows are
# used.
MAX_HELD_OUT_NUMBERS = 1 << 25


class FittedRidge(NamedTuple):
    """Coefficients of a fitted model, with the ridge penalty that was chosen for them."""

    fit: Coefficients
    choice: Choice


class PredictionInterval(NamedTuple):
    """Lower and upper ends of prediction intervals, in the shape of predictions."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


class SketchedRidge(HeldOutLearner):
    """Ridge regression learned in one pass, with the penalty chosen by cross-validation.

    Coefficients W (d x c) minimise the weighted sum of squares of y - x W - b plus ridge times the squares of W, by
    default for standardised columns. X'Y is kept exactly. X'X is kept exactly if d is small, otherwise as a sketch of
    at most l rows and a diagonal correction. So one state has the answer for every ridge, and states merge.

    Parameters
    ----------
    sketch_size : int, default 128
        Number of rows l of the sketch, from 2 to 2**16 - 1. It only matters for rows too wide for an exact sum.
    ridge : float >= 0, optional
        Penalty, like ``alpha`` of scikit-learn's Ridge; on standardised columns unless `scale` is False. By default it
        is chosen at the first query, one ridge for all targets (see Notes). For one or two rows it is the mean squared
        length of a row.
    rank : int, optional
        Rank of the coefficients: reduced-rank regression, for many correlated targets.
    scale : bool, optional
        Whether columns are standardised. Predictions then do not depend on the units of columns. By default columns of
        dense rows are standardised and columns of sparse rows are not, as decided by the first batch. Coefficients
        always refer to the original columns.
    fit_intercept : bool, default True
        Whether to fit an intercept, which is not penalised. Rows and targets are centred, also sparse rows.
    scoring : {"squared_error", "log_loss"}, default "squared_error"
        The error that chooses the ridge. "squared_error" is relative to the variance of each target. "log_loss" is for
        labels -1 and 1: the log loss of the scores times the factor that minimises it, of the softmax if each row has a
        single 1 among several targets, otherwise of each target separately.
    solver : {"auto", "gram", "exact"}, default "auto"
        Whether X'X is kept exactly ("exact") or as a sketch ("gram"). "auto" keeps it exactly if it fits in
        `max_memory`.
    reservoir_size : int, default 2000
        Size of the reservoir, a uniform sample of rows. Up to a tenth of all rows measure residuals for
        ``predict_interval`` by a fit without them, and another tenth chooses the ridge of a sketch. As long as the
        reservoir has all rows, all of them do both, by leave-one-out.
    max_memory : int, default 268_435_456
        Bytes of X'X (8 d^2) up to which it is kept exactly, and of X'Y (8 d c) beyond which targets are refused.
    decay : float in (0, 1], default 1.0
        Factor by which every new row multiplies the weight of all earlier rows. See also ``fade``.
    seed : int, default 0
        Seed of the reservoir.

    Attributes
    ----------
    n_rows, n_features, n_targets : int
        Number of rows learned, of columns d and of targets c. n_features and n_targets are None before the first batch.
    notes : dict
        Anything that JSON can represent; it is saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    The ridge is the one of least error in a grid. The error is

    - the exact leave-one-out error while the reservoir has all rows, as in ``RidgeCV`` of scikit-learn (Allen 1974);
    - generalised cross-validation if X'X is exact and there are more rows (Golub, Heath, Wahba 1979). It needs only
      sums: n, y'y, X'y and the eigenvalues of X'X, and assumes the mean leverage for every row. If the reservoir has a
      sample of rows, their leverages correct it to the leave-one-out error of all rows, by a ratio estimate (Cochran
      1977). Otherwise it would miss outliers, for instance the few rows in which some column is nonzero. With decay, or
      without a reservoir, n is Kish's effective number, (sum w)^2 / sum w^2. If that is close to the number of columns
      the ridge is larger than the best one; if it is not above it, held-out rows choose instead;
    - the error on a tenth of the rows, held out in the reservoir, if X'X is a sketch, with a `rank`, and with
      ``scoring="log_loss"``. Generalised cross-validation would not know what a sketch has lost.

    The grid has four ridges in each decade over all ridges that eigenvalues can distinguish. Where held-out rows
    choose, it has two in each decade, searched from the best of a coarse grid until the error rises or falls by less
    than 1e-4 of itself, and four around the best one.

    An update costs as much as in ``FrequentDirections``, plus 2 c flops for each entry of a row. Memory is (l + b) d or
    d^2, plus 2 d c and the reservoir. The first query takes an eigendecomposition of a d x d matrix; with a sketch it
    takes 2 d l^2 flops for each of about ten ridges.

    Models of different rows merge. Which rows the reservoir holds depends on `seed`, on each row's position in its
    stream and on its targets, but neither on batches nor on the order of merges. Answers depend on these only by
    rounding, and by what a sketch loses. If a sketch has lost something, all coefficients are multiplied by the factor
    that minimises the error of the rows that choose the ridge, since X'Y is complete and X'X is not. With "log_loss"
    the factor is 1.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 5))
    >>> y = X @ [3.0, 0.0, -2.0, 0.0, 1.0] + 0.1 * rng.standard_normal(1000)
    >>> model = fs.SketchedRidge().update(X, y)
    >>> model.coef().round(1) + 0.0
    array([ 3.,  0., -2.,  0.,  1.])
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
            and then ignored: it is not counted, and earlier rows do not decay. The reservoir samples rows whatever
            their weights, and weights their errors later.

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

    # -- answers ---------------------------------------------------------------------------------------------------
    @reads
    def predict(self, rows: Readable, *, ridge: float | None = None) -> NDArray[np.float64]:
        """Predict the targets of rows.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
        ridge : float >= 0, optional
            Use this ridge instead of the one in use.

        Returns
        -------
        ndarray float64 (n,) or (n, c)

        Raises
        ------
        TypeError, ValueError
            If the rows are invalid, or the model has learned none.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 5))
        >>> model = fs.SketchedRidge().update(X, X[:, :2])
        >>> model.predict(X[:1]).shape, bool(np.allclose(model.predict(X, ridge=0.0), X[:, :2]))
        ((1, 2), True)
        """
        fit = self._coefficients(ridge)
        return self._in_target_shape(fit.predict(self._validate_query_rows(rows)))

    @reads
    def predict_interval(self, rows: Readable, *, coverage: float = 0.9) -> PredictionInterval:
        """Predict intervals that contain the target of a new row with probability `coverage`.

        Each target has an interval of its own.

        Split conformal prediction: the half width is a quantile of the residuals of a tenth of the rows, held out in
        the reservoir, under a fit without them. The ridge of that fit is chosen by other rows (with scoring="log_loss"
        these rows take part in the choice, by the log loss). While the reservoir has all rows, all leave-one-out
        residuals are used, each at the ridge that is best for the other rows; with hardly more rows than columns such
        intervals cover less than `coverage` (0.81 to 0.88 at 0.9 for ten rows of 8 columns).

        New rows must be exchangeable with those learned; with weights, with rows drawn in proportion to the weights.
        The number of residuals is then Kish's effective number, or with decay the sum of the weights over the largest.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
        coverage : float in (0, 1), default 0.9

        Returns
        -------
        PredictionInterval
            ``lower`` and ``upper``, of the shape of ``predict``.

        Raises
        ------
        TypeError, ValueError
            If the rows are invalid, or too few rows measure residuals for this coverage.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((2000, 5))
        >>> y = X[:, 0] + rng.standard_normal(2000)
        >>> lower, upper = fs.SketchedRidge().update(X[:1000], y[:1000]).predict_interval(X[1000:])
        >>> bool(0.86 < np.mean((lower <= y[1000:]) & (y[1000:] <= upper)) < 0.94)
        True
        """
        coverage = as_real(coverage, "coverage", 0.0, 1.0, low_open=True, high_open=True)
        predicted = self._coefficients(None).predict(self._validate_query_rows(rows))
        half_width = conformal_quantile(*self._cached_residuals(), coverage, decayed=self.decay < 1.0)
        return PredictionInterval(
            self._in_target_shape(predicted - half_width), self._in_target_shape(predicted + half_width)
        )

    @reads
    def coef(self, ridge: float | None = None) -> NDArray[np.float64]:
        """Return the coefficients, in the units of the original columns.

        Parameters
        ----------
        ridge : float >= 0, optional
            Use this ridge instead of the one in use.

        Returns
        -------
        ndarray float64 (d,) or (c, d)

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 3))
        >>> model = fs.SketchedRidge().update(X, X @ [1.0, 0.0, -2.0])
        >>> (model.coef(ridge=0.0).round(6) + 0.0).tolist()
        [1.0, 0.0, -2.0]
        """
        coef = self._coefficients(ridge).coef.T
        return coef[0].copy() if self._targets_are_vectors else coef.copy()

    @reads
    def intercept(self, ridge: float | None = None) -> Any:
        """Return the intercept, or the intercept of each target.

        Parameters
        ----------
        ridge : float >= 0, optional
            Use this ridge instead of the one in use.

        Returns
        -------
        float, or ndarray float64 (c,)

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 3))
        >>> round(fs.SketchedRidge().update(X, X @ [1.0, 0.0, -2.0] + 7.0).intercept(ridge=0.0), 6)
        7.0
        """
        intercept = self._coefficients(ridge).intercept
        return float(intercept[0]) if self._targets_are_vectors else intercept.copy()

    @reads
    def score_path(self) -> RidgePath:
        """Return the ridge penalties that were tried, with the cross-validated error of each.

        Returns
        -------
        RidgePath
            ``ridge`` (the one in use), ``ridges``, ``errors``, ``standard_errors`` (p,) and ``n_rows``.

        Raises
        ------
        ValueError
            If the ridge was given, or there are too few rows for cross-validation.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> path = fs.SketchedRidge().update(X, X[:, 0] + rng.standard_normal(1000)).score_path()
        >>> path.n_rows, path.ridge in path.ridges
        (1000, True)
        """
        path = self._cached_fit().choice.path
        if path is None:
            reason = "ridge is given" if self.ridge is not None else f"{self._n} rows are too few for cross-validation"
            raise ValueError(f"no ridge has been tried: {reason}")
        copies = {name: getattr(path, name).copy() for name in ("ridges", "errors", "standard_errors")}
        return path._replace(**copies)

    def _validate_query_rows(self, rows: Any) -> Any:
        """Validate the rows of a query and return them as an array or CSR matrix (n, d)."""
        self._require_columns(rows)
        x = as_rows(rows, self.n_features)
        check_finite(x)
        return x

    def _in_target_shape(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert predictions (n, c) to the shape of the learned targets: to a vector (n,) if these were one."""
        return values[:, 0] if self._targets_are_vectors else values

    # -- reading the rows again ------------------------------------------------------------------------------------
    @changes
    def refine(
        self,
        rows: RereadRows,
        targets: None = None,
        *,
        sample_weight: ArrayLike | None = None,
        passes: int = 50,
        tolerance: float = 1e-6,
    ) -> Refinement:
        """Refine the coefficients towards an exact fit to all rows, by reading the rows again.

        Each pass is a step of conjugate gradients on the normal equations, for all targets together, with the sketch as
        preconditioner. Unless the ridge is given it is chosen again first, in at most three fifths of the passes: a
        Krylov space of X'X predicts the held-out rows at every ridge. The choice is looked at after every pass,
        among ridges at which the equations are solved up to 3%. Predictions, coefficients and intervals then use the
        refined coefficients until more is learned. A later call continues where this one ends, at the same ridge.

        Parameters
        ----------
        rows : array_like (n, d), scipy.sparse (n, d), table, source, or file names
            All rows that ``update`` has learned, in any order.
        targets : None
            Targets are refused: the model has X'Y, and other targets would have no effect.
        sample_weight : array_like (n_samples,) or float, optional
            The weights that the rows had.
        passes : int, default 50
            Largest number of passes, at least one. The first pass compares the rows with those learned. After one or
            two passes coefficients can be slightly worse than those of the sketch, see ``Refinement.residual``.
        tolerance : float in (0, 1), default 1e-6
            Passes end when the residual of each target, relative to ||X'Y||, is at most this.

        Returns
        -------
        Refinement
            ``passes`` since the last update, ``residual``, ``bound`` and ``converged``.

        Raises
        ------
        TypeError, ValueError
            If these are not the rows that were learned, by their number and the mean and squares of each column; or if
            the model decays. The model is then unchanged.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 300)) * 0.98 ** np.arange(300)
        >>> y = X[:, :9].sum(axis=1) + rng.standard_normal(1000)
        >>> model = fs.SketchedRidge(32, ridge=10.0, scale=False, max_memory=100_000).update(X, y)  # no exact sum
        >>> result = model.refine(X)
        >>> exact = np.linalg.solve((X - X.mean(0)).T @ X + 10.0 * np.eye(300), (X - X.mean(0)).T @ y)
        >>> result.converged, bool(np.allclose(model.coef(), exact, atol=1e-5))
        (True, True)
        """
        if targets is not None:
            raise TypeError("refine takes rows alone, refine(X): targets are known; weights are sample_weight=")
        passes, tolerance = as_integer(passes, "passes", 1), as_real(tolerance, "tolerance", 0.0, 1.0, low_open=True)
        self._check_passes(passes)
        self._read_again(rows, sample_weight, passes=passes, tolerance=tolerance)
        return self._measure_refinement(tolerance)

    def _measure_refinement(self, tolerance: float) -> Refinement:
        """Return the residuals and error bounds of the refined coefficients as a ``Refinement``.
        It has converged if all residuals are within `tolerance`.
        """
        moments, refined = self._known_moments(), self._refined
        assert refined is not None
        residual_norms = column_lengths(refined.steps.residual[:, : self.n_targets])
        relative_residuals = residual_norms / np.maximum(column_lengths(moments.cross), TINY)
        with np.errstate(divide="ignore"):
            penalty = refined.choice.ridge * penalty_diagonal(moments, scaled=self._scaled)
            rounding_gap = residual_gap(refined.steps, moments, self._n, float(penalty.max()))
            smallest_penalty = float(penalty.min())
            bound = (
                (residual_norms + rounding_gap) / np.sqrt(smallest_penalty)
                if smallest_penalty
                else np.full(len(residual_norms), np.inf)
            )
        return Refinement(refined.passes, relative_residuals, bound, bool((relative_residuals <= tolerance).all()))

    # -- reading out -----------------------------------------------------------------------------------------------
    def _coefficients(self, ridge: float | None) -> Coefficients:
        """Return the coefficients and intercepts at the given ridge penalty, or at the chosen one if it is None.

        It warns if the coefficients at the chosen ridge are refined, but those at the given ridge are not.
        """
        fitted = self._cached_fit()
        if ridge is None or as_real(ridge, "ridge", 0.0, MAX_RIDGE) == fitted.choice.ridge:
            return fitted.fit
        if self._refined is not None and not self.is_exact:
            warn_caller(
                f"coefficients at ridge={ridge:g} are those of the sketch: rows were read again for ridge="
                f"{fitted.choice.ridge:g}; a model of this ridge can refine them"
            )
        return self._solve(ridge)

    @one_blas_thread
    def _solve(
        self, ridge: float, *, exclude_residual_rows: bool = False, trial: NormalEquations | None = None
    ) -> Coefficients:
        """Solve the normal equations at a ridge penalty, and return coefficients and intercepts as ``Coefficients``.

        Parameters
        ----------
        ridge : float
        exclude_residual_rows : bool, default False
            Whether to exclude the held-out rows on which residuals are measured.
        trial : Problem, optional
            The normal equations without any held-out row, with which the factor on coefficients is estimated on these
            rows. They are computed if they are needed and not given.
        """
        residual_slice, equations = (
            self._residual_slice(),
            self._normal_equations(self._residual_slice() if exclude_residual_rows else slice(0, 0)),
        )
        fit, n = (
            equations.coefficients(ridge, self.rank),
            residual_slice.start if exclude_residual_rows else residual_slice.stop,
        )
        if self.is_exact or not n or self.scoring != "squared_error":
            return fit
        trial, rows = trial or self._normal_equations(slice(0, residual_slice.stop)), self._held_out_rows(slice(0, n))
        factor = self._scorer(trial).score_factor(trial.coefficients(ridge, self.rank).predict(rows.x), rows)
        return with_intercepts(factor * fit.coef, equations.moments, None)

    def _cached_fit(self) -> FittedRidge:
        """Return the coefficients at the chosen ridge penalty, with the choice, as FittedRidge.
        They are computed at the first call after an update, and then cached.
        """
        if self._last is None:
            moments = self._require_rows()
            if self._refined is None:
                self._last = self._choose_and_solve()
            else:
                coef = self._refined.steps.solution[:, : self.n_targets]
                self._last = FittedRidge(with_intercepts(coef, moments, self.rank), self._refined.choice)
            self._residuals = None
        return self._last

    @one_blas_thread
    def _choose_and_solve(self) -> FittedRidge:
        """Choose the ridge penalty, and return it with its coefficients as FittedRidge.
        The coefficients are computed from the sketch or the exact X'X.
        """
        choice, trial = self._choose_without_held_out_rows(), None
        if choice is None:
            trial = self._normal_equations(slice(0, self._residual_slice().stop))
            choice = self._choose_on_held_out_rows(trial)
        n_effective = self._known_moments().n_effective if self.ridge is None and self.decay < 1.0 else np.inf
        if n_effective < min(MIN_ROWS, len(self._known_moments().mean)):
            warn_caller(
                f"decay={self.decay:g} leaves the weight of {n_effective:.3g} rows to choose a ridge for "
                f"{self.n_features} columns, which may be far from the best: give ridge=, or a decay nearer to 1"
            )
        return FittedRidge(self._solve(choice.ridge, trial=trial), choice)

    @one_blas_thread
    def _choose_on_held_out_rows(self, trial: NormalEquations) -> Choice:
        """Return the ``Choice`` of the ridge penalty with the least error on held-out rows.
        `trial` are the normal equations of all other rows.
        """
        rows, scorer = self._held_out_rows(slice(0, self._residual_slice().stop)), self._scorer(trial)
        first_ridge, low_ridge = self._first_ridge(trial.moments), self._low_ridge(trial.moments)
        return search_ridge(
            lambda ridge: trial.coefficients(ridge, self.rank).predict(rows.x),
            scorer,
            rows,
            first_ridge,
            low_ridge=low_ridge,
        )

    def _require_rows(self) -> Moments:
        """Return the moments of all rows; raise ValueError if no rows have been learned."""
        if not self._n:
            raise ValueError("the model has seen no rows: call update first")
        return self._known_moments()

    def _choose_without_held_out_rows(self) -> Choice | None:
        """Return the ``Choice`` of a ridge penalty that is given, or chosen by exact leave-one-out errors or by GCV.
        Return None if it must be chosen on held-out rows.

        The result is the ridge given as a parameter, or is chosen by leave-one-out or generalised cross-validation. If
        there are too few rows for these and for held-out rows, it is ``_first_ridge``.
        """
        if self.ridge is not None:
            return Choice(self.ridge, None, self.ridge)
        rows, moments = self._rows_if_all_held(), self._known_moments()
        if rows is not None:
            leave_one_out = self._leave_one_out(rows)
            errors = leave_one_out.errors(Scorer(self.scoring, moments, is_complete=True), rows)
            standard_errors = np.array([standard_error(errors_of_ridge) for errors_of_ridge in errors])
            path = choose_least_error(leave_one_out.ridges, errors.mean(axis=1), standard_errors, len(rows.y))
            return Choice(path.ridge, path, path.ridge)
        if self._can_use_gcv():
            return self._choose_by_gcv(slice(0, 0))
        if self._residual_slice().stop:
            return None
        ridge = self._first_ridge(moments)
        return Choice(ridge, None, ridge)

    def _can_use_gcv(self) -> bool:
        """Return True if generalised cross-validation can be used to choose the ridge penalty.

        It needs the exact X'X, squared errors and coefficients of full rank. With unequal weights it also needs more
        rows (Kish's effective number) than coefficients. Otherwise small ridges would leave no degrees of freedom, but
        large residuals.
        """
        if (
            not self.is_exact
            or self.scoring != "squared_error"
            or self.rank is not None
            or self._n < MIN_ROWS_LEAVE_ONE_OUT
        ):
            return False
        moments = self._known_moments()
        weighs_equally = moments.n_effective >= (1.0 - EQUAL_WEIGHT_TOLERANCE) * self._n
        return weighs_equally or moments.n_effective >= len(moments.mean) + self.fit_intercept + 1

    @one_blas_thread
    def _choose_by_gcv(self, excluded: slice) -> Choice:
        """Return the ``Choice`` of a ridge penalty by generalised cross-validation on all but some held-out rows."""
        n = self._n - (excluded.stop - excluded.start)
        problem = self._normal_equations(excluded)
        assert isinstance(problem.gram, GramSum)
        moments = problem.moments
        penalty = penalty_diagonal(moments, scaled=problem.scaled)
        gcv = GeneralisedCrossValidation(problem.gram.gram, moments, penalty, n=n, center=self.fit_intercept)
        shares = Scorer(self.scoring, moments, is_complete=True).relative_target_weights()
        retained = np.delete(np.arange(len(self._decayed_reservoir())), excluded)
        if self.decay < 1.0 or not len(retained):  # with decay hardly a row of the sample has weight
            errors = gcv.scores(shares)
        else:
            errors = gcv.leave_one_out(shares, self._held_out_rows(retained))
        path = choose_least_error(gcv.ridges, errors, errors * (2.0 / moments.n_effective) ** 0.5, n)
        return Choice(path.ridge, path, None)

    def _residual_ridge(self, choice: Choice) -> float:
        """Return the ridge penalty at which residuals for prediction intervals are measured.

        It is chosen without the rows whose residuals are measured, except with scoring="log_loss".
        """
        if choice.residual_ridge is not None:
            return choice.residual_ridge
        residual_slice = self._residual_slice()
        return (
            self._choose_by_gcv(residual_slice).ridge
            if len(self._held_out_rows(residual_slice).weight)
            else choice.ridge
        )

    def _rows_if_all_held(self) -> Rows | None:
        """Return all learned rows with their targets if the reservoir still has every one of them, else None.
        Leave-one-out is exact in the first case.

        Rows of negligible weight are dropped. The result is also None with decay, with a rank, with fewer than
        MIN_ROWS_LEAVE_ONE_OUT rows, and if a sketch may have lost a part of X'X.
        """
        weight = self._decayed_reservoir().weight
        if self.decay < 1 or self.rank is not None or not 0 < len(weight) == self._n:
            return None
        positions = np.flatnonzero(weight > MIN_WEIGHT_RATIO * weight.max())
        if len(positions) < MIN_ROWS_LEAVE_ONE_OUT or not (self.is_exact or len(weight) <= self.sketch_size):
            return None
        return self._held_out_rows(positions)

    @one_blas_thread
    def _leave_one_out(self, rows: Rows) -> LeaveOneOut:
        """Return a LeaveOneOut object for exact leave-one-out predictions of `rows`, which must be all rows learned."""
        moments = self._known_moments()
        return LeaveOneOut(rows, moments, penalty_diagonal(moments, scaled=self._scaled), center=self.fit_intercept)

    def _scorer(self, trial: NormalEquations) -> Scorer:
        """Return the Scorer, an error measure, for predictions made from the given normal equations."""
        return Scorer(self.scoring, trial.moments, trial.is_complete)

    def _first_ridge(self, moments: Moments) -> float:
        """Return the ridge penalty at which the search starts: the mean squared norm of a row, in weighted units.

        At this ridge noise equals signal. If all columns are constant it is 1.
        """
        mean_square = float((moments.variance / penalty_diagonal(moments, scaled=self._scaled)).sum())
        if moments.weight > 0:  # for a unit of weight: sum(w^2) / sum(w)
            mean_square *= moments.weight_norm * (moments.weight_norm / moments.weight)
        return mean_square if mean_square > 0 else 1.0

    def _low_ridge(self, moments: Moments) -> float:
        """Return a lower ridge penalty for the start of the search, for columns of very different scales.

        It is ``_first_ridge`` with the arithmetic mean of the columns' variances replaced by their geometric mean, so
        that a column in much larger units has less influence. Far above this ridge every ridge predicts the mean only,
        and the errors do not show in which direction to search.
        """
        squares = moments.variance / penalty_diagonal(moments, scaled=self._scaled)
        squares = squares[squares > 0]
        if not len(squares):
            return self._first_ridge(moments)
        share = np.exp(np.log(squares).mean()) / squares.mean()
        return float(share) * self._first_ridge(moments)

    def _residual_slice(self) -> slice:
        """Return the slice of the reservoir with the rows that measure residuals for prediction intervals.
        The rows before it choose the ridge penalty.

        Each part has up to a tenth of all rows. Both are empty if together they have fewer than MIN_ROWS rows.
        """
        n = min(len(self._decayed_reservoir()), int(2 * VALIDATION_FRACTION * self._n)) // 2
        return slice(n, 2 * n) if 2 * n >= MIN_ROWS else slice(0, 0)

    def _held_out_rows(self, selection: slice | NDArray[np.int64]) -> Rows:
        """Return the selected held-out rows, with their targets and decayed weights."""
        reservoir = self._decayed_reservoir().take(selection)
        return Rows(*self._split_targets(reservoir), reservoir.weight)

    def _normal_equations(self, excluded: slice) -> NormalEquations:
        """Return the normal equations of all rows but those in a slice of the reservoir."""
        remaining_moments, excluded_gram = self._moments_excluding(excluded)
        if self.is_exact:
            gram = self._sketch.gram()
            return NormalEquations(
                GramSum(gram - excluded_gram.times(np.eye(len(gram))) if excluded.stop else gram),
                remaining_moments,
                self._scaled,
            )
        reservoir = self._decayed_reservoir()
        sketch = self._learn_held_out_rows(
            self._sketch.copy(), reservoir.take(np.delete(np.arange(len(reservoir)), excluded))
        )
        return NormalEquations(gram_of_sketch(sketch, remaining_moments.squares), remaining_moments, self._scaled)

    def _moments_excluding(self, excluded: slice) -> tuple[Moments, ExcludedRowsGram]:
        """Return the moments of all rows without a slice of the reservoir, and the X'X of that slice as an operator."""
        moments, rows = self._known_moments(), self._held_out_rows(excluded)
        remaining_moments = moments
        if len(rows.weight):
            remaining_moments = moments.without(Moments.of(*rows, center=self.fit_intercept))
        return remaining_moments, ExcludedRowsGram(moments, remaining_moments, rows.x, rows.weight)

    def _cached_residuals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the residuals (m, c) and weights (m,) from which prediction intervals are computed. They are cached
        until more is learned.
        """
        fitted = self._cached_fit()
        if self._residuals is None:
            self._residuals = self._compute_residuals(fitted)
        return self._residuals

    def _compute_residuals(self, fitted: FittedRidge) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the residuals (m, c) and weights (m,) of held-out rows, from which intervals are computed.

        They are leave-one-out residuals of all rows if the reservoir has them all, otherwise residuals of held-out rows
        in a fit without them.
        """
        all_rows = self._rows_if_all_held()
        if all_rows is not None:
            leave_one_out = self._leave_one_out(all_rows)
            if self.ridge is not None:
                return all_rows.y - leave_one_out.predict(self.ridge), all_rows.weight
            scorer = Scorer(self.scoring, self._known_moments(), is_complete=True)
            return leave_one_out.residuals(scorer, all_rows), all_rows.weight
        residual_slice = self._residual_slice()
        rows = self._held_out_rows(residual_slice)
        if not len(rows.weight):
            return rows.y, rows.weight
        if self._refined is None:
            fit = self._solve(self._residual_ridge(fitted.choice), exclude_residual_rows=True)
        else:
            coef = np.ascontiguousarray(self._refined.steps.solution[:, self.n_targets :])
            fit = with_intercepts(coef, self._moments_excluding(residual_slice)[0], self.rank)
        return rows.y - fit.predict(rows.x), rows.weight

    # -- reading the rows again ------------------------------------------------------------------------------------
    def _check_passes(self, passes: int) -> None:
        """Raise ValueError if the model uses decay. Further passes need weights that do not depend on the age of
        rows.
        """
        if self.decay != 1.0:
            raise ValueError(f"refine needs a model without decay, got decay={self.decay:g}: give weights to the rows")

    def _read_again(
        self, rows: RereadRows, sample_weight: Any, *, passes: int, tolerance: float, if_better: bool = False
    ) -> None:
        """Read the rows in at most `passes` further passes, and store refined coefficients in this model.

        With `if_better` the refinement is stored only if it lowers the error on held-out rows.
        """
        moments, steps = (
            self._require_rows(),
            self._refine_by_conjugate_gradients(passes, tolerance, if_better=if_better),
        )
        checked_product = MomentCheckingProduct(
            len(moments.mean), DOUBLE, moments.mean, 1.0, self.fit_intercept, [moments.faded(0.0)]
        )
        rereader = RowsAgain(rows, checked_product, sample_weight, feature_names=self._feature_names)
        image: Any = None  # a generator is first sent None
        try:
            while True:
                read = rereader.multiply(steps.send(image))
                checked_product.check_same_rows(moments, self._n, read.n_rows)
                image = read.product
        except StopIteration as end:
            self._refined, self._last, self._residuals = end.value, None, None

    def _refine_by_conjugate_gradients(
        self, passes: int, tolerance: float, *, if_better: bool
    ) -> Generator[Matrix, Matrix, Refined | None]:
        """Refine the coefficients by conjugate gradients, as a generator that returns the refined state.

        It yields vectors (d, m), and its caller must send their products with X'X of all rows. With `if_better` it
        returns None if the sketch's coefficients have no larger error on held-out rows.
        """
        moments, refined, n_choosing, problem = self._known_moments(), self._refined, 0, None
        choice = sketch_choice = self._choose_without_held_out_rows() if refined is None else refined.choice
        if choice is None:
            n_choosing, choice = yield from self._choose_by_lanczos(int(MAX_CHOOSING_SHARE * passes))
            if if_better:
                problem = self._normal_equations(slice(0, self._residual_slice().stop))
                sketch_choice = self._choose_on_held_out_rows(problem)
                if least_error(sketch_choice) < least_error(choice):
                    return None
        choice = choice._replace(residual_ridge=self._residual_ridge(choice))
        remaining_moments, excluded_gram = self._moments_excluding(self._residual_slice())
        if problem is None:  # a sketch without the held-out rows is as good a preconditioner
            problem = self._normal_equations(slice(0, 0 if self.is_exact else self._residual_slice().stop))
        c, penalty = len(moments.target_mean), penalty_diagonal(moments, scaled=self._scaled)[:, np.newaxis]
        penalties = choice.ridge * penalty, self._residual_ridge(choice) * penalty

        def images(right_hand_sides: Matrix) -> Generator[Matrix, Matrix, Matrix]:
            image = yield right_hand_sides
            image[:, :c] += penalties[0] * right_hand_sides[:, :c]
            image[:, c:] += penalties[1] * right_hand_sides[:, c:]
            image[:, c:] -= excluded_gram.times(
                np.ascontiguousarray(right_hand_sides[:, c:])
            )  # rows that measure residuals
            return image

        # the second half of the columns is the fit without the rows that measure residuals
        right_hand_sides = np.hstack([moments.cross, remaining_moments.cross])
        lengths = np.maximum(column_lengths(right_hand_sides), TINY)
        solve = one_blas_thread(problem.preconditioner(choice.ridge, n_rows=self._n))
        steps = ConjugateGradients.start(right_hand_sides, solve) if refined is None else refined.steps
        for k in range(passes - n_choosing):
            if (column_lengths(steps.residual) <= tolerance * lengths).all():
                if k or n_choosing:
                    break
                # already converged: compute the residual from the rows
                residual = right_hand_sides - (yield from images(steps.solution))
                steps = steps._replace(residual=residual, passes=steps.passes + 1)
            else:
                steps = steps.step((yield from images(steps.direction)), solve)
        if if_better and (column_lengths(steps.residual) > tolerance * lengths).any():
            sketch_errors = self._errors_on_residual_rows(None, self._residual_ridge(sketch_choice or choice))
            refined_errors = self._errors_on_residual_rows(steps.solution[:, c:])
            if len(refined_errors) and sketch_errors.mean() <= refined_errors.mean():
                return None
        return Refined(steps, choice, n_choosing if refined is None else refined.to_choose)

    def _errors_on_residual_rows(self, coef: Matrix | None, ridge: float = 0.0) -> Matrix:
        """Return the errors (n,) on the held-out rows that have not chosen the ridge penalty.

        The predictions use the coefficients `coef` (d, c), or if it is None those of the sketch at `ridge`.
        """
        rows, (remaining_moments, _) = (
            self._held_out_rows(self._residual_slice()),
            self._moments_excluding(self._residual_slice()),
        )
        if not len(rows.weight):
            return np.zeros(0)
        if coef is None:
            fit = self._solve(ridge, exclude_residual_rows=True)
        else:
            fit = with_intercepts(np.ascontiguousarray(coef), remaining_moments, self.rank)
        return Scorer(self.scoring, remaining_moments, is_complete=True).errors(fit.predict(rows.x), rows)

    def _choose_by_lanczos(self, passes: int) -> Generator[Matrix, Matrix, tuple[int, Choice]]:
        """Choose the ridge penalty by Lanczos steps, as a generator that returns (number of products, choice).

        It yields vectors (d, c), and its caller must send their products with X'X of all rows. The number of products
        is at most `passes`.
        """
        n = self._residual_slice().stop
        if self.is_exact or not passes:
            return 0, self._choose_and_solve().choice
        remaining_moments, excluded_gram = self._moments_excluding(slice(0, n))
        first_ridge, scorer = (
            self._first_ridge(remaining_moments),
            Scorer(self.scoring, remaining_moments, is_complete=True),
        )
        max_rows = max(MIN_ROWS, MAX_HELD_OUT_NUMBERS // (passes * len(remaining_moments.target_mean)))
        rows = self._held_out_rows(slice(0, n)).first(max_rows)
        lanczos = LanczosIteration(remaining_moments, penalty_diagonal(remaining_moments, scaled=self._scaled), rows.x)
        n_made = 0
        while True:
            n_made, direction = n_made + 1, lanczos.direction
            lanczos.step((yield direction) - excluded_gram.times(direction))
            solutions = lanczos.solutions()
            smallest_ridge = solutions.smallest_accurate_ridge(first_ridge)
            largest_ridge = max(first_ridge, smallest_ridge * RIDGE_RATIO)
            choice = search_ridge(
                solutions.predict,
                scorer,
                rows,
                largest_ridge,
                low_ridge=self._low_ridge(remaining_moments),
                min_ratio=smallest_ridge / largest_ridge,
            )
            # ends once smaller ridges have been judged and are worse, at least down to the first ridge
            if n_made >= passes or smallest_ridge * RIDGE_RATIO <= min(choice.ridge, first_ridge):
                return n_made, choice

    def _passes_again(self, passes: int) -> Generator[SecondPass, SecondPass, Any]:
        """Refine the coefficients in at most `passes` passes of a distributed job, as a generator that returns self.

        It yields a ``SecondPass`` for each pass over the rows, and the job sends it back with the products of all rows.
        Since a job multiplies orthonormal vectors, the requested vectors are replaced by their QR decomposition.
        """
        if self.is_exact:
            return self
        sketch = self._learn_held_out_rows(
            self._sketch.copy(), self._decayed_reservoir()
        )  # to have the mean of all rows
        steps = self._refine_by_conjugate_gradients(passes, TOLERANCE, if_better=True)
        image: Any = None  # a generator is first sent None
        while True:
            try:
                q, triangle = np.linalg.qr(steps.send(image))
            except StopIteration as end:
                self._refined, self._last, self._residuals = end.value, None, None
                return self
            read = yield SecondPass._along(sketch, np.ascontiguousarray(q.T))
            image = read._sum.product / read._begun()[1].scale ** 2 @ triangle

    # -- facts -----------------------------------------------------------------------------------------------------
    def _resolved(self) -> dict[str, Any]:
        known = {} if self._moments is None else {"scale": self._scaled}
        return known if self._last is None else {**known, "ridge": self._last.choice.ridge}

    def _facts(self) -> dict[str, Any]:
        if not self._n:
            return {}
        fitted = self._cached_fit()
        out: dict[str, Any] = {"n_targets": self.n_targets, "is_exact": self.is_exact, "scale": self._scaled}
        out["ridge"] = fitted.choice.ridge
        if self._refined is not None:
            out["passes"] = self._refined.passes
        path = fitted.choice.path
        return out if path is None else {**out, "ridge_path": path._asdict()}


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


def least_error(choice: Choice) -> float:
    """Return the smallest error among the ridge penalties that were tried; infinity if none was."""
    return np.inf if choice.path is None else float(choice.path.errors.min())
