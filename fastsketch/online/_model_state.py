"""ModelState: everything that an online linear model has learned, with methods that learn batches and read files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES, as_loss_parameter
from fastsketch._core.validation import as_real
from fastsketch._kernels.features.columns import INTERCEPT
from fastsketch._kernels.online.few_rows import FewRows
from fastsketch._kernels.online.numbers import ROUND, THEIRS, Snapshot
from fastsketch.data.files import _checks as checks
from fastsketch.online._class_states import (
    MISTAKES,
    PAST_LOSS,
    PAST_MISTAKES,
    PAST_ROWS,
    RowNotLearned,
    States,
    n_states,
)
from fastsketch.online._labels import NO_NEW_CLASSES, ClassLabels, ClassTally, NewClasses, initial_sign
from fastsketch.online._metrics import Metrics
from fastsketch.online._row_inputs import ColumnSlots, Inputs, to_csr, to_dense
from fastsketch.online._state_arrays import Arrays, Csr, Floats, LearnedState, RowBatch, as_flat_arrays, row_slice

S = TypeVar("S", bound=LearnedState)

# Size in bytes of the parts of a batch that are learned one after the other: they fit a cache, and occupy all threads.
PART_BYTES = 1 << 20
# Largest sum of the weights of all rows.
MAX_WEIGHT_SUM = float(np.finfo(np.float64).max)


class Examples(NamedTuple):
    """Validated rows to learn, with targets, weights, and the model's running totals after these rows."""

    batch: RowBatch
    y: NDArray[Any]  # real targets, or class numbers
    weights: Floats
    counted: Floats | None  # weights for the metrics; None: all 1
    tally: ClassTally | None  # rows of each class so far, including these; None for real targets
    weight_sums: tuple[float, int]  # sum and number of the weights given so far, including these

    def part(self, first: int, stop: int) -> "Examples":
        """Return examples [first, stop) as views. The running totals `tally` and `weight_sums` stay those of all
        examples.
        """
        counted = None if self.counted is None else self.counted[first:stop]
        batch = row_slice(self.batch, first, stop)
        return self._replace(batch=batch, y=self.y[first:stop], weights=self.weights[first:stop], counted=counted)


@dataclass(slots=True)
class ModelState(Generic[S]):
    """Everything that an online linear model has learned: learners, class labels, columns, feature scaling and metrics.

    A batch changes it as a whole or not at all.
    """

    states: States[S]
    labels: ClassLabels | None  # None for real targets
    columns: ColumnSlots  # shared with copies; slots from n_slots() on are not in use
    inputs: Inputs
    metrics: Metrics
    few: FewRows | None = None  # the fast path for few rows, with pointers to the arrays; created when needed
    weight_sums: tuple[float, int] = (0.0, 0)  # sum and number of the weights given so far

    def few_rows(self, loss_scale: float) -> FewRows | None:
        """Return the compiled object that learns batches of a few rows; it is created if necessary.
        Return None before the first row, or if the model has several main learners.
        """
        if self.few is None or self.few.is_stale():
            states = self.states
            is_single_learner = len(states.main_learners) == 1 and not states.faster
            has_started = is_single_learner and all(state.rounds_now is not None for state in states.all())
            self.few = FewRows(self, loss_scale, MISTAKES) if has_started else None
        return self.few

    def copied(self) -> "ModelState[S]":
        """Return a deep copy that shares only ``columns``."""
        labels = None if self.labels is None else self.labels.copied()
        return ModelState(
            self.states.copied(),
            labels,
            self.columns,
            self.inputs.copied(self.n_slots()),
            self.metrics.copied(),
            weight_sums=self.weight_sums,
        )

    # -- columns ---------------------------------------------------------------------------------------------------
    def number_columns(self, x: Any) -> RowBatch:
        """Return rows to learn as a dense array, or as CSR with slots for column indices; they are not scaled yet.

        Slots are numbers in the order of first occurrence; new columns get the next free slots, and the model changes.
        """
        if not self.inputs.sparse:
            return to_dense(x)
        return self.columns.enter(cast(Csr, self.inputs.with_intercept(to_csr(x))), self.n_slots())

    def look_up_columns(self, x: Any, n_slots: int) -> RowBatch:
        """Return rows to predict as a dense array, or as CSR with slots for column indices; they are not scaled yet.

        A slot is a column's position in the arrays of the model. Columns that have no slot below n_slots get the slot
        n_slots. The model does not change.
        """
        if not self.inputs.sparse:
            return self.inputs.with_intercept(to_dense(x))
        return self.columns.slots_of_known_columns(cast(Csr, self.inputs.with_intercept(to_csr(x))), n_slots)

    def n_slots(self) -> int:
        """Return the number of columns that the learners use: for sparse rows those that have had an entry, for dense
        rows all.
        """
        return max(state.n_slots for state in self.states.all())

    def has_capacity(self) -> bool:
        """Return True if the arrays of all learners and moments are long enough for the columns seen so far. Otherwise
        ``enlarge_arrays`` must be called before learning.
        """
        if not self.inputs.sparse:
            return True
        n = len(self.columns)
        return self.inputs.has_slots(n) and all(state.has_slots(n) for state in self.states.all())

    def enlarge_arrays(self) -> None:
        """Enlarge the arrays of learners and moments, in place, so that all columns seen so far have an entry."""
        if self.inputs.sparse:
            self.inputs.make_slots(self.n_slots(), len(self.columns))
            for state in self.states.all():
                state.make_slots(len(self.columns))

    def coefs(self) -> Floats:
        """Return the coefficients of the calibrated scores, for scaled rows: shape (k, d), or (k, n_slots) for sparse
        rows.
        """
        coefs_of_learners = [state.coef() for state in self.states.all()]
        if len(coefs_of_learners) == 1:
            coefs = coefs_of_learners[0][None]
        else:
            coefs = np.zeros(
                (len(coefs_of_learners), max(len(w) for w in coefs_of_learners))
            )  # the state of a later class may have fewer slots
            for row, w in zip(coefs, coefs_of_learners, strict=True):
                row[: len(w)] = w
        return self.states.combine(coefs)

    def add_comparator_loss(self, comparator: Floats, x: Any, y: NDArray[Any], weights: Floats, loss: str) -> None:
        """Add the loss of fixed coefficients (`comparator`) on a batch to their total loss, in place. The model's
        regret is the difference to this total.
        """
        if self.labels is not None:
            y = self.states.targets(y)[0] * self.sign()
        scalar, scores = self.states.main_learners[0].scalar, np.asarray(x @ comparator, np.float64)
        losses = weights * LOSSES[loss].value(scores, y, as_loss_parameter(loss, None))
        # summed in order, so that the result does not depend on batches
        scalar[THEIRS] = np.cumsum(np.concatenate([scalar[[THEIRS]], losses]))[-1]

    # -- from states to classes ------------------------------------------------------------------------------------
    def sign(self) -> float:
        """Return the factor, 1 or -1, by which a single learner's scores are multiplied so that positive scores mean
        the last of the sorted classes.

        1 for real targets.
        """
        sign = self.states.signs[0]
        if self.labels is None:
            return sign
        if len(self.labels.known) < 2:
            return 1.0  # first_sign has chosen the sign
        return sign if self.labels.order[-1] == 0 else -sign

    def in_class_order(self, values: Floats) -> Floats:
        """Convert scores or coefficients of the k learners to the order of the sorted classes, with positive scores for
        the class. Return an array (k, n), or (n,) for one learner.

        values has shape (k, n); the result has it too, or (n,) for one learner.
        """
        if len(values) == 1:
            return values[0] if self.sign() > 0 else -values[0] + 0.0
        return self.states.signed(values)[cast(ClassLabels, self.labels).order]

    def intercepts(self, coef: Floats, *, in_order: bool) -> Floats:
        """Return the intercepts that calibration adds to the scores, in the order of the sorted classes.

        Shape (1,), or (k,) for more than two classes.

        `coef` are the coefficients of scaled rows, as from ``in_class_order``. If labels come in runs, learned
        intercepts are wrong, because every row of a run moves them the same way. Unless the order of rows matters
        (`in_order`), the intercepts of calibration and learners together are then the log odds of the label
        frequencies.
        """
        intercepts = np.ravel(self.in_class_order(self.states.intercepts()))
        if self.labels is None or in_order or not self.labels.tally.is_sorted():
            return intercepts
        learned_intercepts: Any = 0.0
        if self.inputs.sparse:
            learned_intercepts = self.columns.intercept(coef)
        elif self.inputs.intercept:
            learned_intercepts = coef[..., -1]
        log_shares: Floats = np.log(np.array(self.labels.tally.rows)[self.labels.order] + 0.5)
        log_odds: Any = log_shares[1] - log_shares[0] if len(intercepts) == 1 else log_shares - log_shares.mean()
        return np.ravel(cast(Floats, log_odds - learned_intercepts))

    # -- learning --------------------------------------------------------------------------------------------------
    def learn_in_place(self, examples: Examples) -> Floats | None:
        """Learn a small batch of known classes, in place, and return the scores that its rows had before.
        Return None if nothing was learned.

        None means that nothing was learned, because the batch is large or a fixed scale must change. If a row cannot be
        learned, or learning is interrupted, the state is restored.
        """
        batch = examples.batch
        if (batch.data if isinstance(batch, Csr) else batch).nbytes > PART_BYTES:
            return None
        backup = StateBackup(self, batch)
        try:
            prepared = self.inputs.prepared(batch)
            if prepared is not None:
                scores = self._learn_prepared(examples._replace(batch=prepared), is_new=False)
                joined_scores = self._join_scores([scores], len(examples.y))
                if self.labels is not None and examples.tally is not None:
                    self.labels.tally = examples.tally
                self.weight_sums = examples.weight_sums
                return joined_scores
        except BaseException:
            backup.restore()
            raise
        backup.restore()
        return None

    def learn(
        self,
        examples: Examples,
        *,
        new: NewClasses = NO_NEW_CLASSES,
        begin: Callable[[float], tuple[S, LearnedState | None]],
    ) -> Floats:
        """Learn a batch in place, and add learners for classes that appear in it for the first time. Return each row's
        score before that row was learned.

        Scores have shape (n,), or (n, k) in the order of ``classes``. `begin` returns the main learner and the diagonal
        learner (or None) of a new class, which start at the row of the class in `new`. If a row cannot be learned, this
        object is left half changed and must be discarded.
        """
        n, labels = len(examples.y), self.labels
        self.weight_sums = examples.weight_sums
        if labels is None:
            if not self._can_start_at_target(examples):
                return self._learn_rows(examples, first=0, stop=n)[0]
            first = self._learn_first_target(examples.part(0, 1))
            return np.concatenate([first, self._learn_rows(examples, first=1, stop=n)[0]]) if n > 1 else first
        n_known = len(labels.known)
        first_rows_of_classes = [row for i, row in enumerate(new.rows) if n_states(n_known + i + 1) > 1]
        if n_known == 0 and new.rows:
            for states in self.states.by_decay_rate:
                states.signs[0] = initial_sign(new.labels[0])
        stops = [*first_rows_of_classes, n]
        scores: list[Floats] = []
        if not first_rows_of_classes or first_rows_of_classes[0] > 0:
            scores.append(self._learn_rows(examples, first=0, stop=stops[0]))
        for row, stop in zip(first_rows_of_classes, stops[1:], strict=True):
            self.states.add_class(begin)
            scores.append(self._learn_rows(examples, first=row, stop=stop, is_new=True))
        labels.add(new, cast(ClassTally, examples.tally))
        return self._join_scores(scores, n)

    def _can_start_at_target(self, examples: Examples) -> bool:
        """Return True if no row has been learned yet and the intercept may start at the first real target."""
        if self.states.totals()[0] or not self.inputs.intercept or not len(examples.y):
            return False
        return all(state.accepts_initial_weights() for state in self.states.all())

    def _learn_first_target(self, first: Examples) -> Floats:
        """Learn the model's first row for real targets, with its target as the intercept; return the score 0, (1,).

        The row counts as predicted 0. Without this, the first step would have the size of the target (say a year), and
        its gradient in H would make all later steps small.
        """
        y, weight = first.y[0], first.weights[0]
        batch, targets = cast(RowBatch, self.inputs.prepared(first.batch)), first.y[None, :]
        for state in self.states.all():
            state.base[batch.indices[-1] if isinstance(batch, Csr) else -1] = y
        member_scores = self.states.allocate_scores(targets)
        self.states.learn(batch, targets, first.weights, member_scores)
        member_scores[:] = 0.0
        loss = next(
            name
            for name, definition in LOSSES.items()
            if definition.number == self.states.main_learners[0].setting.loss
        )
        loss_value = weight * LOSSES[loss].value(np.zeros(1), first.y, as_loss_parameter(loss, None))[0]
        # counted here, because the steps of the state may depend on its losses
        self.states.counted.tally[PAST_LOSS] += loss_value
        self.states.counted.tally[PAST_MISTAKES] += self.states.readout is None and y != 0
        scores = self.states.read_out(member_scores, targets, first.weights, first.y)
        self.metrics.add(scores, targets, first.counted)
        return scores[0]

    def _learn_rows(
        self,
        examples: Examples,
        *,
        first: int,
        stop: int,
        is_new: bool = False,
    ) -> Floats:
        """Learn rows [first, stop) and return each row's score before it was learned, shape (k, stop - first).

        The present learners are used, and rows are taken in blocks that fit a CPU cache.
        """
        scores: list[Floats] = []
        for start, end in split_into_parts(examples.batch, first, stop):
            part_examples = examples.part(start, end) if end - start < len(examples.y) else examples
            run_start = start
            try:
                for begins_at, run in self._scaled_stretches(part_examples):
                    run_start, new = start + begins_at, is_new and start + begins_at == first
                    scores.append(self._learn_prepared(run, is_new=new))
                    run_start = start
            except RowNotLearned as refused:
                refused.row += run_start
                raise
        return scores[0] if len(scores) == 1 else np.concatenate(scores, axis=1)

    def _scaled_stretches(self, examples: Examples) -> Iterator[tuple[int, Examples]]:
        """Yield (first row, scaled examples) for each run of rows that have the same fixed feature scales.

        Between two runs the learners are converted to the new scales, in place.
        """
        if self.inputs.steady is None or not len(examples.y):
            yield 0, examples._replace(batch=cast(RowBatch, self.inputs.prepared(examples.batch)))
            return
        for first, stop, rows in self.inputs.scale_stretches(examples.batch, self._rescale):
            yield first, examples.part(first, stop)._replace(batch=rows)

    def _rescale(self) -> None:
        """Set the fixed feature scales to the current standard deviations, and convert all learners to them, in
        place.
        """
        n = self.columns.width if not self.inputs.sparse else None
        slots = None if n is not None else self.columns.array(len(self.columns))
        change = self.inputs.move(cast(int, n) if slots is None else int(np.flatnonzero(slots == INTERCEPT)[0]))
        for state in self.states.all():
            state.rescale(change)

    def _learn_prepared(self, examples: Examples, *, is_new: bool) -> Floats:
        """Train the learners on scaled rows, and return each row's score before it was learned, shape (k, n).

        Then calibration and metrics are updated with these scores. All is in place.
        """
        states, y = self.states, examples.y
        targets = y[None, :] if self.labels is None else states.targets(y)
        member_scores = states.allocate_scores(targets)
        states.learn(examples.batch, targets, examples.weights, member_scores)
        scores = states.read_out(member_scores, targets, examples.weights, y, is_new=is_new)
        self.metrics.add(scores, targets, examples.counted, signs=states.signs, numbers=y, is_new=is_new)
        return scores

    def _join_scores(self, parts: Sequence[Floats], n: int) -> Floats:
        """Return the scores of a batch, (n,) or (n, k), joined from `parts` (k, rows), with columns sorted by class.

        NaN marks classes that appeared after a part.
        """
        k = len(self.states.main_learners)
        if k == 1:
            return self.in_class_order(parts[0]) if parts else np.empty(0)
        joined_scores, first = np.full((n, k), np.nan), 0
        signs = np.array(self.states.signs)
        for part in parts:
            stop = first + part.shape[1]
            if len(part) == 1 and k > 1:  # one state for two classes
                part = np.concatenate([part, part])
            joined_scores[first:stop, : len(part)] = (part * signs[: len(part), None]).T + 0.0
            first = stop
        return joined_scores[:, cast(ClassLabels, self.labels).order]

    # -- files -----------------------------------------------------------------------------------------------------
    def parts(self) -> Iterator[tuple[str, Arrays]]:
        """Yield pairs (prefix of array names in a state file, dataclass of arrays) that together are all the state."""
        yield "", self.inputs
        yield "", self.metrics
        yield from self.states.parts()

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state for a file, as (dictionary for JSON, arrays by name). Arrays may be views."""
        state: dict[str, Any] = {"sparse": self.inputs.sparse, "n_features": self.columns.width}
        if self.labels is not None:
            state.update(labels=self.labels.saved(), signs=list(self.states.signs))
        if self.weight_sums[1]:
            state["weights"] = list(self.weight_sums)
        arrays = {"columns": self.columns.array(self.n_slots())} if self.inputs.sparse else {}
        for prefix, part in self.parts():
            arrays.update({prefix + name: array for name, array in part.saved(self.n_slots()).items()})
        return state, arrays

    def fill(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Overwrite all arrays with those of a state file, which have passed ``validate_all``."""
        groups = group_by_prefix(arrays)
        for prefix, part in self.parts():
            part.fill(groups.get(prefix, {}))

    def validate_all(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Validate the arrays of a state file against the structure of this object. ValueError if they cannot be the
        state of such a model.

        The arrays of this object may be outlines.
        """
        groups, names = group_by_prefix(arrays), {"comparator", "columns", "names", "name_ends"}
        for prefix, part in self.parts():
            names |= {prefix + name for name in part.validate_all(groups.get(prefix, {}))}
        checks.only(arrays, *names)
        rows = int(arrays["0.count"][ROUND]) + int(arrays["tally"][PAST_ROWS])
        checks.number_within(arrays["tally"][MISTAKES], "mistakes", 0, rows)
        checks.number_within(self.weight_sums[1], "number of weights", 0, rows)
        self.inputs.validate_moments(arrays, rows)
        if self.labels is not None:
            checks.number_within(sum(self.labels.tally.rows), "rows of all classes", 0, rows)


def validate_weight_sums(value: Any) -> tuple[float, int]:
    """Validate the sum and number of weights in a state file, and return them."""
    if not isinstance(value, list | tuple) or len(cast("Sequence[Any]", value)) != 2:
        raise ValueError(f"weights must be the sum and the number of weights, got {value!r}")
    total, n = cast("Sequence[Any]", value)
    return as_real(total, "sum of weights", 0.0, MAX_WEIGHT_SUM), checks.as_count(n, "number of weights")


def group_by_prefix(arrays: dict[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return {prefix: {rest of the name: array}}, where the prefix is the name of an array up to its last dot."""
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        prefix, dot, rest = name.rpartition(".")
        groups.setdefault(prefix + dot, {})[rest] = array
    return groups


class StateBackup:
    """Copies of all that learning a batch may change in a model state, from which a failed batch is undone."""

    def __init__(self, model_state: ModelState[Any], batch: RowBatch) -> None:
        states, n_slots = (
            model_state.states,
            len(model_state.columns) if model_state.inputs.sparse else model_state.n_slots(),
        )
        self.model_state, self.weight_sums = model_state, model_state.weight_sums
        self.tally = None if model_state.labels is None else model_state.labels.tally
        # arrays of sparse rows are replaced when they need more room
        self.learners = [(state, state.rounds, state.stored_rows) for state in states.all()]
        self.rows = [(rows, rows.kept_data, rows.kept_indices) for _, _, rows in self.learners if rows is not None]
        rounds, n = (
            [rounds for _, rounds, _ in self.learners],
            len(batch.indptr) - 1 if isinstance(batch, Csr) else len(batch),
        )
        self.snapshot = Snapshot(rounds, *as_flat_arrays(batch), n, n_slots)
        parts = [states.counted, states.mix, model_state.metrics, *(readout for _, readout in states.readouts)]
        whole = [(array, ...) for part in parts if part is not None for array in part.arrays()]
        self.arrays = [
            (array, at, array[at].copy()) for array, at in [*model_state.inputs.changed_entries(batch), *whole]
        ]

    def restore(self) -> None:
        """Undo a batch: write the copied arrays and values back to the model state, in place."""
        for rows, data, indices in self.rows:
            rows.kept_data, rows.kept_indices = data, indices
        for state, rounds, _ in self.learners:
            state.rounds_now = rounds
        self.snapshot.restore()
        for array, at, values in self.arrays:
            array[at] = values
        if self.model_state.labels is not None and self.tally is not None:
            self.model_state.labels.tally = self.tally
        self.model_state.weight_sums = self.weight_sums


def split_into_parts(batch: RowBatch, first: int, stop: int) -> list[tuple[int, int]]:
    """Split rows [first, stop) into consecutive ranges that fit a CPU cache. Return a list of pairs (first, stop) with
    at least one entry.
    """
    if isinstance(batch, Csr):
        n, size = len(batch.indptr) - 1, batch.data.nbytes + batch.indices.nbytes
    else:
        n, size = len(batch), batch.nbytes
    rows_per_part = max(1, PART_BYTES * n // max(size, 1))
    return [(start, min(start + rows_per_part, stop)) for start in range(first, max(stop, first + 1), rows_per_part)]
