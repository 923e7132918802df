"""Base class OnlineLinear of the online linear models: parameters, ``update``, state files, predictions, metrics.

A batch is learned as a whole or not at all, in these steps: labels become class numbers (_labels), rows are prepared
(_row_inputs), the states learn (_class_states), then calibration and metrics (_model_state). Each step gives bitwise
identical results for any split of a stream into batches.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, isfinite
from typing import Any, Generic, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.losses import LOSSES, ONLINE_LOSSES, OnlineLossName, expected
from fastsketch._core.validation import (
    MOST_SIZE,
    as_array,
    as_choice,
    as_flag,
    as_integer,
    as_numbers,
    as_real,
    as_vector,
    as_weights,
    is_sparse,
)
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import FeatureNames, is_table, names_of, require_same_names
from fastsketch._frame.model import Arrays, Model
from fastsketch._frame.parameters import choice, flag, integer, parameter, real
from fastsketch._kernels.features.columns import INTERCEPT
from fastsketch._kernels.guard import changes, reads
from fastsketch._kernels.online.few_rows import FewRows
from fastsketch._kernels.online.numbers import BEFORE, THEIRS
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._naming import MAX_HASH_BITS, as_list
from fastsketch.online._class_states import (
    SQUARES_REMEDY,
    Blend,
    RowNotLearned,
    ScoreCalibration,
    States,
    decay_prefix,
    n_states,
    probabilities,
    start_calibration,
    start_diagonal_learner,
)
from fastsketch.online._decay_mix import DriftFigures, as_decay, as_rates, check_auto, start_mix
from fastsketch.online._labels import (
    NO_NEW_CLASSES,
    ROWS_PER_ORDER_CHECK,
    ClassLabels,
    ClassTally,
    ClassWeight,
    Label,
    as_class_weight,
    as_classes,
    as_labels,
    sorted_labels,
)
from fastsketch.online._metrics import MetricFigures, Metrics, remove_drift_parameter, start_metrics
from fastsketch.online._model_state import Examples, ModelState, group_by_prefix, validate_weight_sums
from fastsketch.online._row_inputs import (
    NAMED_ROWS_MESSAGE,
    ColumnSlots,
    Inputs,
    NamedRows,
    Names,
    numeric_rows,
    score_rows,
    start_inputs,
)
from fastsketch.online._state_arrays import Counts, Csr, Floats, LearnedState, Zeros, outline

# Remedy for an overflow of coefficients if no given parameter can have caused it.
OUT_OF_RANGE = "divide the rows or the targets by a constant that brings them near 1"
NO_SPARSE_FORM = "needs a form for sparse rows that begins with no columns: this model has none"

S = TypeVar("S", bound=LearnedState)

# (name or column of a feature, its weight)
FeatureWeight = tuple[str | int, float]


def as_positive(value: Any, name: str) -> float:
    """Validate a positive real number, and return it as a float."""
    return as_real(value, name, 0.0, 1e300, low_open=True)


def largest_features(
    weights: Floats, sizes: Floats, columns: Counts, n: int, *, names: Sequence[str] | None
) -> list[FeatureWeight]:
    """Return the n features with the largest `sizes` as pairs (name or column, weight), largest first.

    `weights`, `sizes` and `columns` have shape (m,). Features of weight or size 0 are excluded. Features of equal size
    are in the order of their columns.
    """
    candidates = np.flatnonzero((sizes > 0) & (weights != 0))
    if n < candidates.size:  # candidates for the first n
        candidates = candidates[sizes[candidates] >= np.partition(sizes[candidates], -n)[-n]]
    order = candidates[np.lexsort((columns[candidates], -sizes[candidates]))][:n]
    positions: list[int] = columns[order].tolist()
    names = names or ()  # columns that were added later may have no names
    features: list[str | int] = [names[column] if column < len(names) else column for column in positions]
    values: list[float] = weights[order].tolist()
    return list(zip(features, values, strict=True))


class OnlineProgress(MetricFigures):
    """Dict of the losses and metrics of all rows so far, each predicted before it was learned."""

    n_rows: int
    cumulative_loss: float
    mean_loss: float
    error_rate: float
    regret: float | None
    drift: DriftFigures | None


class OnlineLinear(Model, Generic[S], abstract=True):
    """Abstract base of linear models that score a row x by w'x and learn one example after the other."""

    sketch_size: int = integer(default=20, at_least=2, below=MOST_SIZE, kw_only=False)
    loss: OnlineLossName = choice(ONLINE_LOSSES, default="logistic")
    loss_scale: float = real(default=1.0, low_open=True)
    classes: Any = parameter(as_classes, default=None, reads="_known_classes")
    class_weight: ClassWeight = parameter(as_class_weight, default=None)
    decay: float | Literal["auto"] = parameter(as_decay, default=1.0)
    # half-lives: infinite, 693 rows, 34 rows
    decay_rates: tuple[float, ...] = parameter(as_rates, default=(1.0, 0.999, 0.98))
    decay_prior: float = real(default=0.8, high=1.0, low_open=True, high_open=True)
    decay_share: float = real(default=1e-3, high=1.0, low_open=True, high_open=True)
    open_columns: bool = flag(default=False)
    hash_bits: int | None = integer(default=None, at_least=1, below=MAX_HASH_BITS + 1)
    fit_intercept: bool = flag(default=True)
    scale: Literal["moments"] | None = choice(("moments", None), default="moments")
    calibrate: bool = flag(default=True)
    blend: bool | None = flag(default=None)
    blend_rate: float | None = parameter(as_positive, default=None)
    dense_above: float = real(default=0.3, high=1.0)

    def _check(self) -> None:
        for name in ("decay_rates", "decay_prior", "decay_share"):
            if self.decay != "auto" and getattr(self, name) != self._declared[name].default:
                raise ValueError(f"{name} belongs to decay='auto', got decay={self.decay}")
        if self.blend_rate is not None and not self._blends():
            raise ValueError(
                "blend_rate: with these parameters scores are not blended with those of a diagonal learner"
            )
        for name in ("open_columns", "hash_bits"):
            if getattr(self, name) and not self._takes_sparse():
                raise ValueError(f"{name} {NO_SPARSE_FORM}")
        if self.blend and not self.calibrate:
            raise ValueError("blend needs calibrate: the scores of both learners are weighed as they are calibrated")
        if self.blend and not self._may_blend():
            raise ValueError(f"blend: what it adds is the model itself with method={self._values.method!r}")
        if self.decay == "auto":
            check_auto(of_labels=LOSSES[self.loss].targets == "label", calibrate=self.calibrate)
        if LOSSES[self.loss].targets == "label":
            return
        for name in ("classes", "class_weight"):
            if getattr(self._values, name) is not None:
                raise ValueError(f"{name} belongs to labels, and loss={self.loss!r} takes real targets")

    # -- overridden by subclasses ----------------------------------------------------------------------------------
    def _takes_sparse(self) -> bool:
        """Return True if this model can learn sparse rows without making them dense."""
        return True

    def _start(
        self, d: int, sparse: bool, zeros: Zeros = np.zeros, slots: int | None = None, *, decay: float = 1.0
    ) -> S:
        """Return the initial state of one main learner.
        A model has one such learner for two classes or real targets, else one per class.

        `d` is the maximum number of columns, and `slots` the initial capacity for sparse rows (default `d`). With
        zeros=outline the state has the right shapes but takes no memory.
        """
        raise NotImplementedError

    def _check_fading(self, rule: str) -> None:
        """Raise ValueError if this model's method cannot discount earlier rows, as ``decay`` and ``fade`` require.

        The message begins with `rule`.
        """
        raise NotImplementedError

    def _overflow_cause(self, learned: S) -> str:
        """Return an error message for the user that explains why the coefficients of this learner overflowed."""
        raise NotImplementedError

    def _can_rescale(self) -> bool:
        """Return True if a learner's state can be converted when feature scales change (default: False).
        Models with real targets can then use fixed scales.

        Only used for real targets.
        """
        return False

    def _may_blend(self) -> bool:
        """Return True if the scores may be blended with those of a diagonal AdaGrad learner.
        It is False if the model itself is such a learner.
        """
        return True

    def _blends_real_targets_by_default(self) -> bool:
        """Return True if, with loss="square" and ``blend=None``, the model's scores are blended with those of a
        diagonal AdaGrad learner.
        """
        return False

    # -- state -----------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._model_state: ModelState[S] | None = None
        self._comparator: Floats | None = None
        self._coef: Floats | None = None
        self._names = Names(self.hash_bits)
        self.last_scores: NDArray[np.float64] = np.empty(0)
        self._until_look: float = (
            ROWS_PER_ORDER_CHECK  # rows until the order of labels is checked; infinite after a warning
        )

    @property
    def _learned(self) -> S | None:
        """Return the state of the model's first main learner, or None before the first row."""
        return None if self._model_state is None else self._model_state.states.main_learners[0]

    @property
    def n_rows(self) -> int:
        """Return the number of rows learned so far."""
        return 0 if self._model_state is None else self._model_state.states.totals()[0]

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row, or if new columns may still appear."""
        return None if self._model_state is None else self._model_state.columns.width

    def _labels(self) -> ClassLabels | None:
        """Return the class labels that were given or have been seen so far, as a ClassLabels object; None for real
        targets.
        """
        if self._model_state is not None:
            return self._model_state.labels
        if LOSSES[self.loss].targets != "label":
            return None
        given: tuple[Label, ...] | None = self._values.classes
        return ClassLabels(sorted_labels(given or ()), given=given is not None)

    def _known_classes(self) -> NDArray[Any] | None:
        labels = self._labels()
        return None if labels is None else labels.classes()

    def _metrics(self, zeros: Zeros = np.zeros) -> Metrics:
        return start_metrics(self.loss, self._decays()[0], zeros, calibrated=self._calibrates())

    def _decays(self) -> tuple[float, ...]:
        """Return the decay rate of every learner: ``decay_rates`` if decay="auto", else ``decay`` only."""
        return self.decay_rates if self.decay == "auto" else (self.decay,)

    def _in_time_order(self) -> bool:
        """Return True if the order of rows matters because earlier rows are discounted."""
        return self.decay != 1.0

    def _calibrates(self) -> bool:
        return self.calibrate and LOSSES[self.loss].targets == "label"

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Any, targets: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn one example or many; each is scored before it is learned.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            Real and finite. The first row decides whether the model is dense or sparse: it is sparse if that row is
            sparse and at most `dense_above` of its columns are nonzero. Later rows may be dense or sparse. Rows with
            names are a dict {name: value}, a list of dicts, or a list of lists of names and pairs (name, value)
            (``fastsketch.data.NamedRows``); a model learns either these or numbered columns.
        targets : array_like (n,), or one for one row
            For loss="squared_hinge" and "logistic" labels: integers, bools or strings, two classes or more. New
            labels are added unless ``classes`` is given. For other losses real numbers.
        sample_weight : array_like (n,) or float, optional
            Nonnegative. The loss of a row is multiplied by its weight divided by the mean weight of all rows so far,
            including this one (rows without a weight have the weight 1). So only ratios of weights matter. A row of
            weight 0 is ignored, including its new columns, names and labels.

        Returns
        -------
        self
            ``last_scores`` has the scores of each row before it was learned: (n,), or (n, n_classes) for more than two
            classes, in the order of ``classes``. It is NaN for a class that had not appeared yet, and for a row of
            weight 0.

        Raises
        ------
        TypeError, ValueError
            If rows, targets or weights are invalid. The model is then unchanged.
        FloatingPointError
            If the coefficients overflow, or if squares of the features overflow or underflow, so that a row cannot be
            scaled. The message names the cause, and the model is unchanged.

        Warns
        -----
        UserWarning
            Once, if the labels come in runs, as in a file sorted by label: shuffle the rows. Not with ``decay`` below 1
            or "auto".

        Notes
        -----
        Results are bitwise identical for any split of a stream into batches.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton()
        >>> for start in range(0, 1000, 100):
        ...     _ = model.update(X[start : start + 100], y[start : start + 100])
        >>> model.n_rows, model.progress["error_rate"] < 0.1
        (1000, True)
        """
        if sample_weight is None and self._learn_by_fast_path(rows, targets):
            return self
        return self._learn_table(rows, targets, sample_weight)

    def _learn_table(
        self, rows: Any, targets: Any, sample_weight: ArrayLike | None, mean_weight: float | None = None
    ) -> Self:
        """Learn rows that may be a table with column names, as ``update`` does, and return self.
        Names are checked against earlier ones.

        Sample weights are divided by `mean_weight`, or if that is None, by their running mean.
        """
        if type(rows) is np.ndarray or not is_table(rows):
            return self._learn(rows, targets, sample_weight, mean_weight)
        names_before, n_before = self._feature_names, self.n_rows
        with self._using_column_names(names_of(rows), "rows"):
            self._learn(rows, targets, sample_weight, mean_weight)
        if sample_weight is not None and self.n_rows == n_before:  # no row has a weight
            self._feature_names = names_before
        return self

    def _require_same_names(self, names: FeatureNames | None, whose: str) -> FeatureNames | None:
        """Check that new rows have the same column names as earlier rows. Return the names to remember; ValueError if
        they differ.

        With ``open_columns`` one list of names may be longer than the other; the longer one is returned.
        """
        before = self._feature_names
        if not self.open_columns or names is None or before is None:
            return super()._require_same_names(names, whose)
        n = min(len(names), len(before))
        require_same_names(names[:n], before[:n], whose)
        return max(before, names, key=len)

    def _learn_by_fast_path(self, rows: Any, targets: Any) -> bool:
        """Learn at most 16 rows by compiled code and return True, or return False if the general path is needed.
        Nothing is learned in the second case.
        """
        few = self._fast_path() if self._names.is_numbered() else None
        return few is not None and few.learn(self, rows, targets)

    def _fast_path(self) -> FewRows | None:
        """Return the compiled object that learns batches of a few rows, or None if this model needs the general
        path.
        """
        model_state = self._model_state
        if model_state is None or self._comparator is not None or self._values.class_weight is not None:
            return None
        return model_state.few_rows(self._values.loss_scale)

    def _learn(
        self,
        rows: Any,
        targets: Any,
        sample_weight: ArrayLike | None,
        mean_weight: float | None = None,
        positions: NDArray[np.intp] | None = None,
    ) -> Self:
        """Learn a batch of rows by the general path, either completely or not at all, and return self.

        `positions` are the row numbers in the user's batch, for error messages.
        """
        x = self._rows_to_learn(rows)
        is_named = isinstance(x, NamedRows) and sample_weight is None
        if is_named and (few := self._fast_path()) is not None and few.learn_named(self, x.csr, targets):
            return self
        n, d = x.shape
        if self._comparator is not None and len(self._comparator) != d:
            raise ValueError(f"rows must have {len(self._comparator)} columns as the comparator, got {d}")
        model_state, labels = self._model_state, self._labels()
        y: Any
        y, new = (as_numbers(targets, n), NO_NEW_CLASSES) if labels is None else labels.read(targets, n)
        if new.rows and self._comparator is not None:
            cast(ClassLabels, labels).require_comparable(new)
        metric_weights = as_weights(sample_weight, n)
        weights_with_classes, weight_sums = metric_weights, (0.0, 0) if model_state is None else model_state.weight_sums
        if labels is not None and isinstance(self.class_weight, dict):
            factors = labels.weights(y, new, self.class_weight)
            weights_with_classes = factors if weights_with_classes is None else weights_with_classes * factors
        if weights_with_classes is not None and not weights_with_classes.all():
            return self._learn_weighted(
                rows, x, targets if labels is not None else y, metric_weights, weights_with_classes, mean_weight
            )
        if weights_with_classes is not None:
            relative_weights, weight_sums = self._divide_by_mean_weight(weights_with_classes, weight_sums, mean_weight)
            weights = relative_weights * self.loss_scale
        else:  # np.full takes five times as long for one entry
            weights = np.array([self.loss_scale]) if n == 1 else np.full(n, self.loss_scale)
        if labels is not None and self.class_weight == "balanced":
            weights = weights * labels.weights(y, new, self.class_weight)
        tally = None if labels is None else labels.tally.with_rows(y, len(labels.known) + len(new.rows))
        self._until_look -= n
        if tally is not None and self._until_look <= 0:
            self._check_label_order(tally)
        if model_state is None or not self.n_rows:  # no row yet that decides between dense and sparse
            model_state = self._initial_state(x, labels)
        examples = Examples(model_state.number_columns(x), y, weights, metric_weights, tally, weight_sums)
        self._coef = None
        try:
            scores = None
            if (
                model_state is self._model_state
                and not new.rows
                and self._comparator is None
                and model_state.has_capacity()
            ):
                scores = model_state.learn_in_place(examples)
            if scores is None:
                if model_state is self._model_state:
                    model_state = model_state.copied()  # so that a refused or interrupted batch leaves it unchanged
                model_state.enlarge_arrays()
                begin_class = partial(self._new_class_learners, model_state.columns, model_state.inputs.sparse)
                scores = model_state.learn(examples, new=new, begin=begin_class)
        except RowNotLearned as refused:
            if positions is not None:
                refused.row = int(positions[refused.row])
            cause = None if refused.state is None else self._overflow_cause(cast(S, refused.state))
            raise FloatingPointError(refused.message(self.n_rows, cause)) from None
        if self._comparator is not None:
            model_state.add_comparator_loss(self._comparator, x, y, weights, self.loss)
        self.last_scores, self._model_state = scores, model_state
        return self

    def _learn_weighted(
        self,
        rows: Any,
        x: Any,
        targets: Any,
        metric_weights: Floats | None,
        weights_with_classes: Floats,
        mean_weight: float | None,
    ) -> Self:
        """Learn the rows with positive weights, and return self; rows of weight 0 are ignored and have the score NaN.

        `weights_with_classes` are the weights including class weights, `metric_weights` the sample weights of the user.
        """
        positions, n_rows = np.flatnonzero(weights_with_classes), self.n_rows
        scores = np.full(len(weights_with_classes), np.nan)
        if len(positions):
            labels = self._labels()
            y = targets if labels is None else as_labels(targets, len(weights_with_classes))
            weighted_rows: Any = (
                [as_list(rows)[i] for i in positions.tolist()] if isinstance(x, NamedRows) else x[positions]
            )
            weights = None if metric_weights is None else metric_weights[positions]
            self._learn(weighted_rows, y[positions], weights, mean_weight, positions)
            scores = np.full((len(weights_with_classes), *self.last_scores.shape[1:]), np.nan)
            scores[positions] = self.last_scores
        elif isinstance(x, NamedRows):
            self._names.forget(n_rows)
        self.last_scores = scores
        return self

    def _divide_by_mean_weight(
        self, weights: Floats, weight_sums: tuple[float, int], mean_weight: float | None
    ) -> tuple[Floats, tuple[float, int]]:
        """Return sample weights divided by the mean weight of all rows so far, and the updated (sum, number) of them.
        The divisor is `mean_weight` if it is given.

        weight_sums: the sum and number before these. All other rows so far had no weight, and count as weight 1. So a
        step does not depend on the unit of the weights: a weight of twice the mean counts as the row twice.
        """
        n_rows, (total, n_weighted) = self.n_rows, weight_sums
        with np.errstate(over="ignore"):  # summed in order, independent of batches
            totals = np.cumsum(np.concatenate([[total], weights]))[1:]
        means = (totals + (n_rows - n_weighted)) / np.arange(n_rows + 1, n_rows + len(weights) + 1)
        if len(weights) and not isfinite(totals[-1]):
            raise ValueError(
                "sample_weight: the sum of all weights so far must be below 1.8e308: divide the weights by a constant"
            )
        relative_weights = weights / (means if mean_weight is None else mean_weight)
        return relative_weights, (float(totals[-1]) if len(weights) else total, n_weighted + len(weights))

    def _check_label_order(self, tally: ClassTally) -> None:
        """Warn, once for a model, if its labels come in long runs, as in a file that is sorted by label."""
        self._until_look = ROWS_PER_ORDER_CHECK
        if tally.is_sorted() and not self._in_time_order():
            warn_caller(tally.warning_text())
            self._until_look = inf

    def _rows_to_learn(self, rows: Any) -> Any:
        """Return validated rows as a dense float64 array, CSR or NamedRows.
        New feature names are added to the model's vocabulary.

        New feature names get columns.
        """
        given: Any = rows
        plain = given.dtype.kind != "O" if isinstance(rows, np.ndarray) else hasattr(given, "indptr")
        if plain and self._model_state is not None and self._names.is_numbered():
            return self._as_rows(given)  # the usual case, checked first
        n_rows = self.n_rows
        if not self._names.reads(rows, n_rows):
            self._names.number(n_rows)
            return self._as_rows(given)
        if not self._takes_sparse():
            raise ValueError(f"rows with names: that {NO_SPARSE_FORM}")
        if self._comparator is not None:
            raise ValueError("comparator: it is a vector for numbered columns, and these rows have names")
        return self._names.enter(rows, n_rows)

    def _as_rows(self, rows: Any) -> Any:
        return numeric_rows(rows, self.n_features, self._takes_sparse)

    # -- initial states --------------------------------------------------------------------------------------------
    def _blends(self) -> bool:
        if LOSSES[self.loss].targets == "label":
            return self.calibrate and self._may_blend() and self.blend is not False
        if self.loss != "square" or not self.calibrate or not self._may_blend():
            return False
        return self._blends_real_targets_by_default() if self.blend is None else self.blend

    def _has_fixed_scales(self) -> bool:
        """Return True if the scale of a feature changes only when its standard deviation has doubled or halved.
        If False, scales follow the running moments at every row.
        """
        real = LOSSES[self.loss].targets == "real"
        return real and self.scale is not None and self.fit_intercept and self._can_rescale()

    def _initial_inputs(self, n_slots: int, sparse: bool, zeros: Zeros = np.zeros, *, steady: bool = True) -> Inputs:
        return start_inputs(
            n_slots,
            sparse=sparse,
            intercept=self.fit_intercept,
            scaled=self.scale is not None,
            steady=steady and self._has_fixed_scales(),
            zeros=zeros,
        )

    def _initial_state(self, x: Any, labels: ClassLabels | None) -> ModelState[S]:
        """Return the state of a model without rows, for dense or sparse rows as the first row of `x` decides."""
        d = x.shape[1]
        is_sparse_enough = is_sparse(x) and self._takes_sparse() and x[:1].nnz <= self.dense_above * d
        sparse = is_sparse_enough or self.open_columns or isinstance(x, NamedRows)
        width = None if self.open_columns or self._names.is_open else d
        columns = ColumnSlots(width)
        known_labels = () if labels is None else labels.known
        # the last of two sorted classes is the positive one
        signs = [1.0] * n_states(len(known_labels)) if labels is None or len(known_labels) > 2 else [-1.0]
        states = self._initial_learners(columns, sparse, signs, lambda _: columns.initial_capacity())
        inputs = self._initial_inputs(columns.initial_capacity() if sparse else d, sparse)
        return ModelState(states, None if labels is None else labels.copied(), columns, inputs, self._metrics())

    def _new_class_learners(self, columns: ColumnSlots, sparse: bool, decay: float) -> tuple[S, LearnedState | None]:
        """Return (main learner, diagonal AdaGrad learner or None) in their initial state, for a new class."""
        states = self._initial_learners_of_decay(decay, columns, sparse, [1.0], lambda _: columns.initial_capacity())
        return states.main_learners[0], states.diagonal_learners[0] if states.diagonal_learners else None

    def _initial_learners(
        self,
        columns: ColumnSlots,
        sparse: bool,
        signs: Sequence[float],
        slots: Callable[[str], int],
        zeros: Zeros = np.zeros,
    ) -> States[S]:
        """Return the initial learners for all classes and decay rates, as a ``States`` object.
        It also has their calibrations, and the weights that combine the scores.

        `slots` maps the prefix of a learner's array names to its capacity.
        """

        def learners_of_rate(number: int, decay: float) -> States[S]:
            return self._initial_learners_of_decay(
                decay, columns, sparse, signs, lambda name: slots(decay_prefix(number) + name), zeros
            )

        by_rate = [learners_of_rate(number, decay) for number, decay in enumerate(self._decays())]
        states = by_rate[0]
        if len(by_rate) > 1:
            of_labels = LOSSES[self.loss].targets == "label"
            rates = self.decay_rates
            states.faster = by_rate[1:]
            states.mix = start_mix(rates, self.decay_prior, self.decay_share, zeros, of_labels=of_labels)
            if of_labels:
                by_rate[-1].steady = start_calibration(states.n_members, len(signs), zeros, decay=rates[-2])
        return states

    def _initial_learners_of_decay(
        self,
        decay: float,
        columns: ColumnSlots,
        sparse: bool,
        signs: Sequence[float],
        slots: Callable[[str], int],
        zeros: Zeros = np.zeros,
    ) -> States[S]:
        """Return the initial learners of one decay rate for all classes, with the calibration or blend of their
        scores.
        """
        max_columns, n = columns.most + self.fit_intercept, range(len(signs))
        main_learners = [
            self._start(max_columns, sparse, zeros, slots(f"{k}.") if sparse else None, decay=decay) for k in n
        ]
        states = States(main_learners, list(signs), decay=decay)
        if self._blends():
            capacities = [slots(f"{k}.beside.") if sparse else max_columns for k in n]
            states.diagonal_learners = [
                start_diagonal_learner(self.loss, decay, size, sparse, zeros, self.blend_rate) for size in capacities
            ]
        if self._calibrates():
            states.readout = start_calibration(states.n_members, len(n), zeros, decay=decay)
        elif states.diagonal_learners:
            states.readout = Blend(zeros(2), decay)
        return states

    # -- decay by hand --------------------------------------------------------------------------------------------
    @changes
    def fade(self, factor: float) -> Self:
        """Multiply the weight of all earlier rows by a factor, as ``decay`` does at every row.

        Use it once a batch or once a day if rows arrive unevenly. It multiplies their weight in H and in the
        calibration, not in the metrics of ``progress``.

        Parameters
        ----------
        factor : float in (0, 1]

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the method does not allow ``decay``.
        """
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        self._check_fading("there is no fade")
        if self._model_state is not None:
            model_state = self._model_state.copied()
            model_state.states.fade(factor)
            self._model_state = model_state
        return self

    # -- files -----------------------------------------------------------------------------------------------------
    @classmethod
    def _built(
        cls,
        parameters: dict[str, Any],
        notes: dict[str, Any],
        state: dict[str, Any],
        arrays: Arrays,
        *,
        feature_names: Any = None,
        trusted: bool = True,
    ) -> Self:
        if "drift" in parameters:
            parameters, arrays = remove_drift_parameter(parameters, arrays)
        return super()._built(parameters, notes, state, arrays, feature_names=feature_names, trusted=trusted)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        arrays: Arrays = {} if self._comparator is None else {"comparator": self._comparator}
        if self._model_state is None:
            return {"sparse": None}, arrays
        state, model_arrays = self._model_state.saved()
        names_state, names_arrays = self._names.saved(self.n_rows)
        return {**state, **names_state}, {**arrays, **model_arrays, **names_arrays}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        sparse, comparator = state["sparse"], arrays.get("comparator")
        if comparator is not None:
            checks.finite(arrays, "comparator", (comparator.size,))
        if sparse is None:
            checks.only(arrays, "comparator")
            return
        if as_flag(sparse, "sparse") and not self._takes_sparse():
            raise ValueError("a model of these parameters has no form for sparse rows")
        names = Names.from_state(state, arrays, self.hash_bits, 0)
        if names.is_open and not (sparse and comparator is None):
            raise ValueError("a model of rows with names learns from sparse rows, and has no comparator")
        is_open = self.open_columns or names.is_open
        columns = ColumnSlots.checked(state, arrays, is_open=is_open, intercept=self.fit_intercept)
        if names.is_open:
            names.require_columns(arrays["columns"])
        if columns.width is not None and comparator is not None and len(comparator) != columns.width:
            raise ValueError(f"its rows have {columns.width} columns, its comparator {len(comparator)}")
        if ("labels" in state) != (LOSSES[self.loss].targets == "label"):
            has_labels, takes_labels = ("labels", "real targets") if "labels" in state else ("no labels", "labels")
            raise ValueError(f"it has {has_labels}, and loss={self.loss!r} takes {takes_labels}")
        self._state_of_file(state, arrays, columns, outline).validate_all(arrays)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._comparator = arrays.get("comparator")
        if state["sparse"] is None:
            return
        columns = ColumnSlots(state["n_features"], arrays["columns"] if state["sparse"] else None)
        self._model_state = self._state_of_file(state, arrays, columns, np.zeros)
        self._model_state.fill(arrays)
        self._names = Names.from_state(state, arrays, self.hash_bits, self.n_rows)

    def _state_of_file(
        self, state: dict[str, Any], arrays: Arrays, columns: ColumnSlots, zeros: Zeros
    ) -> ModelState[S]:
        """Return an initial model state with the classes, columns and learners that a state file describes.
        The caller then fills in the arrays.

        zeros: np.zeros, or ``outline`` to take no memory.
        """
        labels = ClassLabels.from_state(state["labels"], self._values.classes) if "labels" in state else None
        signs: list[float] = [1.0] if labels is None else state["signs"]
        n = 1 if labels is None else n_states(len(labels.known))
        if len(signs) != n or any(sign not in (-1.0, 1.0) for sign in signs):
            raise ValueError(f"it has the signs {signs} for {n} states")
        groups, sparse = group_by_prefix(arrays), state["sparse"]

        def slots(name: str) -> int:
            base = groups.get(name, {}).get("base")
            if base is None or base.ndim == 0:
                raise ValueError("array 'base' is missing" if base is None else "array 'base' has no columns")
            return base.shape[-1]

        states = self._initial_learners(columns, sparse, signs, slots, zeros)
        n_slots = max(len(one.base) for one in states.all()) - (self.fit_intercept and not sparse)
        # models of older files have running scales
        inputs = self._initial_inputs(n_slots, sparse, zeros, steady="steady" in arrays)
        sums = validate_weight_sums(state.get("weights", (0.0, 0)))
        return ModelState(states, labels, columns, inputs, self._metrics(zeros), weight_sums=sums)

    def _keep_in_memory(self, other: Any) -> None:
        other.last_scores = self.last_scores.copy()
        other._until_look = self._until_look
        other._names.warned = self._names.warned

    # -- coefficients ----------------------------------------------------------------------------------------------
    def _prepared_coef(self) -> Floats:
        """Return the coefficients for scaled rows, which are cached; ValueError before the first row.

        They are in the order of `classes`; for sparse models by slot. The cache is `_coef`.
        """
        if self._model_state is None:
            raise ValueError("the model has seen no rows: call update first")
        if self._coef is None:
            self._coef = self._model_state.in_class_order(self._model_state.coefs())
        return self._coef

    @property
    @reads
    def coef(self) -> NDArray[np.float64]:
        """Return the coefficients of the unscaled features, without the intercept.

        Shape (d,) float64; for more than two classes (n_classes, d), in the order of ``classes``.

        With scale="moments" the score of a sparse row is w'x divided by a length: about that of the scaled row itself
        for texts, the mean length of rows for tables. For real targets, columns that every row has are already divided
        by that length here.
        """
        w, model_state = self._prepared_coef(), cast("ModelState[S]", self._model_state)
        w, _ = model_state.inputs.to_feature_coefficients(w)
        return model_state.columns.by_column(w) if model_state.inputs.sparse else w.copy()

    @property
    @reads
    def intercept(self) -> float | NDArray[np.float64]:
        """Return the intercept of the score, or for more than two classes an array with one intercept per class."""
        w, model_state = self._prepared_coef(), cast("ModelState[S]", self._model_state)
        _, added = model_state.inputs.to_feature_coefficients(w)
        if model_state.inputs.sparse:
            added = added + model_state.columns.intercept(w)
        if self._calibrates():
            constants = model_state.intercepts(w, in_order=self._in_time_order())
            added = added + (constants if w.ndim > 1 else constants[0])
        return float(added) if w.ndim == 1 else added

    # -- scores and predictions ------------------------------------------------------------------------------------
    def _rows_to_score(self, rows: Any) -> Any:
        n_rows = self.n_rows
        if self._names.reads(rows, n_rows):
            return self._names.find(rows, n_rows)
        if self._names.is_named(n_rows):
            raise ValueError(NAMED_ROWS_MESSAGE)
        self._require_columns(rows)
        return self._as_rows(rows)

    def _scores(self, x: Any) -> Floats:
        """Return the scores of rows that have already been checked.

        Shape (n,) or (n, n_classes). Sparse rows are scored by slots.
        """
        w, model_state = self._prepared_coef(), cast("ModelState[S]", self._model_state)
        batch = model_state.look_up_columns(x, w.shape[-1])
        try:
            batch = model_state.inputs.scaled(batch, w.shape[-1])
        except RowNotLearned as refused:
            raise FloatingPointError(
                f"rows: the squares of row {refused.row} leave the range of numbers: {SQUARES_REMEDY}"
            ) from None
        scores = score_rows(batch, w) if isinstance(batch, Csr) else np.asarray(batch @ w.T, np.float64)
        return scores + model_state.intercepts(w, in_order=self._in_time_order()) if self._calibrates() else scores

    @reads
    def decision_function(self, rows: Any) -> NDArray[np.float64]:
        """Compute the score of every row; with two classes, a positive score means the last of the sorted classes.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.

        Returns
        -------
        ndarray (n,) float64, or (n, n_classes) for more than two classes

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.decision_function([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]]) > 0
        array([ True, False])
        """
        return self._scores(self._rows_to_score(rows))

    @reads
    def predict(self, rows: Any) -> NDArray[Any]:
        """Predict the class label or real target of every row.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.

        Returns
        -------
        ndarray (n,)
            Labels for loss="logistic" and "squared_hinge": the last of two sorted classes where the score is above 0,
            and for more classes the one of the largest score. For other losses the score itself.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.predict([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]])
        array(['yes', 'no'], dtype='<U3')
        """
        scores = self.decision_function(rows)
        classes = self._known_classes()
        if classes is None:
            return scores
        if len(classes) == 0:
            raise ValueError("the model has seen no labels: call update first")
        if len(classes) == 1:
            return np.repeat(classes, len(scores))
        return classes[(scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)]

    @reads
    def predict_proba(self, rows: Any, *, prior: Literal["observed"] | None = None) -> NDArray[np.float64]:
        """Compute the class probabilities of every row, for classification losses.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.
        prior : "observed", optional
            With ``class_weight``, probabilities are those for classes that are as frequent as their weights imply: for
            "balanced" equally frequent. "observed" corrects them to the class frequencies of the rows that were learned
            (Elkan 2001). ``predict`` is the class of the largest probability without this correction.

        Returns
        -------
        ndarray (n, n_classes) float64
            In the order of ``classes``. For more than two classes the softmax of the scores with ``calibrate``, else
            the probability of each class against the rest, divided by their sum.

        Raises
        ------
        ValueError
            If the loss takes real targets, or the weight of a class is 0 and prior="observed".

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.predict_proba([[1.0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).round(1)
        array([[0. , 1. ],
               [0.5, 0.5]])
        """
        if LOSSES[self.loss].targets != "label":
            raise ValueError(f"predict_proba needs a loss of labels, this model has loss={self.loss!r}")
        if prior is not None:
            as_choice(prior, "prior", ("observed",))
        scores, labels = self.decision_function(rows), cast(ClassLabels, self._labels())
        n_classes = len(labels.known)
        p = probabilities(scores) if self._calibrates() else _probability(self.loss, scores)
        if n_classes <= 1:
            return np.ones((len(p), n_classes))
        if p.ndim == 1:
            p = np.stack([1.0 - p, p], axis=1)
            if prior is None:
                return p
        if prior is not None:
            p = p * labels.observed_factors(self.class_weight)
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1.0 / n_classes)

    def _temper(self, factor: float) -> None:
        """Multiply the scores of a calibrated classification model by a factor, from now on; the model changes."""
        model_state = self._model_state
        if factor != 1.0 and model_state is not None and isinstance(model_state.states.readout, ScoreCalibration):
            model_state.states.readout.readout_weights *= factor
            self._coef = None

    # -- features --------------------------------------------------------------------------------------------------
    @property
    @reads
    def feature_names(self) -> FeatureNames | None:
        """Return the column names, from the first data frame or from rows with names; None without names."""
        known = self._names.known(self.n_rows)
        return tuple(known) if known else self._feature_names

    @property
    @reads
    def vocabulary(self) -> dict[str, int] | None:
        """Return a dict {feature name: column}; None for numbered or hashed columns."""
        known = self._names.known(self.n_rows)
        return None if known is None else {name: column for column, name in enumerate(known)}

    @reads
    def top_features(self, n: int = 10, label: Any = None) -> "list[FeatureWeight] | dict[Any, list[FeatureWeight]]":
        """List the features whose weights are largest in absolute value.

        Parameters
        ----------
        n : int, default 10
            Maximum number of features; those of weight 0 are excluded.
        label : optional
            One of ``classes``; positive weights favour it. None: the last of two classes, or each of more classes.

        Returns
        -------
        list of (name or column, weight)
            Largest first. With scale="moments" features are ordered by weight times the divisor of the feature, its
            root mean square (for dense rows its standard deviation): its usual effect on the score. Weights are those
            of ``coef``. Features have names if rows have them and ``hash_bits`` is not given. For more than two classes
            and label=None, a dict {label: list}.

        Raises
        ------
        ValueError
            If the model has seen no rows, or the label is none of its classes.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> rows = [{"colour": colour, "size": rng.random()} for colour in rng.choice(["red", "blue"], 500)]
        >>> bought = [row["colour"] == "red" for row in rows]
        >>> model = fs.SketchedNewton().update(rows, bought)
        >>> [(name, weight > 0) for name, weight in model.top_features(2, label=True)]
        [('colour=red', True), ('colour=blue', False)]
        """
        n = as_integer(n, "n", 1)
        w, model_state, classes = self._prepared_coef(), cast("ModelState[S]", self._model_state), self._known_classes()
        # weights for unscaled and for scaled features, which are equal without scaling
        feature_weights, scaled_weights = (
            np.atleast_2d(model_state.inputs.to_feature_coefficients(w)[0]),
            np.atleast_2d(w),
        )
        m = feature_weights.shape[1]
        columns = model_state.columns.array(m) if model_state.inputs.sparse else cast("Counts", np.arange(m))
        is_feature = cast(NDArray[np.bool_], columns != INTERCEPT)
        names = self.feature_names

        def features_of_class(number: int) -> list[FeatureWeight]:
            k, sign = (number, 1.0) if len(feature_weights) > 1 else (0, 1.0 if number else -1.0)
            return largest_features(
                sign * feature_weights[k, is_feature],
                np.abs(scaled_weights[k, :m][is_feature]),
                columns[is_feature],
                n,
                names=names,
            )

        if classes is None:
            if label is not None:
                raise ValueError(f"label: loss={self.loss!r} takes real targets, and this model has no classes")
            return features_of_class(1)
        labels: list[Any] = classes.tolist()
        if label is not None:
            if label not in labels:
                raise ValueError(f"label must be one of {labels}, got {label!r}")
            # a single class is the positive one
            return features_of_class(labels.index(label) if len(labels) > 1 else 1)
        return (
            features_of_class(1)
            if len(labels) <= 2
            else {one: features_of_class(number) for number, one in enumerate(labels)}
        )

    # -- regret and metrics ----------------------------------------------------------------------------------------
    @changes
    def compare_with(self, comparator: ArrayLike) -> Self:
        """Start to measure regret against fixed coefficients; earlier rows do not count.

        Parameters
        ----------
        comparator : array_like (d,)
            For two classes, positive scores mean the last of the sorted classes.

        Returns
        -------
        self
            ``progress["regret"]`` is the model's loss minus the comparator's, on the rows that follow.

        Raises
        ------
        ValueError
            If it is not a finite vector of the width of the rows, or there are more than two classes.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton(classes=["no", "yes"]).compare_with([3.0, 0.0, -2.0, 0.0, 1.0]).update(X, y)
        >>> progress = model.progress
        >>> progress["regret"] < progress["cumulative_loss"]
        True
        """
        if self._names.is_open and self._model_state is not None:
            raise ValueError("comparator: it is a vector for numbered columns, and this model learns from names")
        fixed = as_vector(
            comparator, self.n_features or len(np.atleast_1d(as_array(comparator, "comparator"))), "comparator"
        )
        if fixed.ndim != 1:
            raise ValueError(f"comparator must be a vector, got shape {fixed.shape}")
        labels = self._labels()
        if labels is not None and n_states(len(labels.known)) > 1:
            raise ValueError(f"comparator: one vector is for two classes, and there are {len(labels.known)}")
        if self._model_state is not None:
            model_state = self._model_state.copied()
            scalar = model_state.states.main_learners[0].scalar
            scalar[THEIRS], scalar[BEFORE] = 0.0, model_state.states.totals()[1]
            self._model_state = model_state
        self._comparator = fixed.astype(np.float64)
        return self

    @property
    @reads
    def progress(self) -> OnlineProgress:
        """Return a dict of losses, errors and metrics so far (progressive validation).

        Each row counts by its prediction before it was learned. An entry is None if it does not apply to the loss.

        - n_rows, cumulative_loss, mean_loss: for more than two classes the loss of a row is the sum over one against
          the rest for each class.
        - error_rate: share of rows whose score has the wrong sign, or for more than two classes, whose class has not
          the largest score.
        - regret: see ``compare_with``; None without a comparator.
        - log_loss (probabilities are clipped to [2^-52, 1 - 2^-52]), accuracy, and for two classes auc (of scores
          rounded to seven significant bits, which changes it by at most 2e-4), for labels; mean_absolute_error and
          root_mean_squared_error for real targets. These weight rows by sample_weight and decay^age.
        - drift, with decay="auto": a dict of the half_life in rows of the learner with the largest weight (None: no
          decay), that weight, and gain: by how much its mean loss over about the last 1 / decay_share rows was lower
          than that of the first learner, in nats a row. cumulative_loss, mean_loss and regret are those of the first
          learner.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> progress = fs.SketchedNewton().update(X, y).progress
        >>> progress["n_rows"], progress["accuracy"] > 0.9, progress["auc"] > 0.95
        (1000, True, True)
        """
        model_state = self._model_state
        n_rows, loss, mistakes = (0, 0.0, 0) if model_state is None else model_state.states.totals()
        regret = None
        if model_state is not None and self._comparator is not None:
            scalar = model_state.states.main_learners[0].scalar
            regret = float(loss - scalar[BEFORE] - scalar[THEIRS])
        return {
            "n_rows": n_rows,
            "cumulative_loss": loss,
            "mean_loss": loss / max(n_rows, 1),
            "error_rate": mistakes / max(n_rows, 1),
            "regret": regret,
            "drift": None
            if model_state is None or model_state.states.mix is None
            else model_state.states.mix.summary(),
            **(self._metrics() if model_state is None else model_state.metrics).summary(),
        }

    def _seen(self) -> str:
        if self._model_state is None or self.n_features is not None:
            return super()._seen()
        return f"{self.n_rows} rows with {self._model_state.n_slots() - self.fit_intercept} features so far"

    def _facts(self) -> dict[str, Any]:
        return {name: value for name, value in self.progress.items() if name != "n_rows" and value is not None}


def _probability(loss: str, z: Floats) -> Floats:
    """Return the probability of the positive class, or of each class against the rest, for uncalibrated scores."""
    if loss == "squared_hinge":
        return 0.5 + 0.5 * np.clip(z, -1.0, 1.0)  # the expected loss is smallest for the score 2 p - 1
    return expected(loss, z)
