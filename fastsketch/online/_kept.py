"""Everything that an online linear model has learned, the stages of a batch, and the arrays in files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES, as_loss_parameter
from fastsketch._core.validation import as_real
from fastsketch._kernels.features.columns import INTERCEPT
from fastsketch._kernels.online.few_rows import FewRows
from fastsketch._kernels.online.numbers import ROUND, THEIRS
from fastsketch.data.files import _checks as checks
from fastsketch.online._class_states import (
    MISTAKES,
    PAST_LOSS,
    PAST_MISTAKES,
    PAST_ROWS,
    States,
    Unlearned,
    n_states,
    part_of,
)
from fastsketch.online._labels import NOTHING_NEW, ClassLabels, ClassTally, NewClasses, first_sign
from fastsketch.online._metrics import Metrics
from fastsketch.online._row_inputs import ColumnSlots, Inputs, to_csr, to_dense
from fastsketch.online._state_arrays import Arrays, Changing, Csr, Floats, LearnedState, RowBatch

S = TypeVar("S", bound=LearnedState)

# Bytes of rows that pass through all stages before the next ones: they stay in a cache, and are work for all threads.
PART = 1 << 20
# Sum of the weights of all rows, at most.
MOST_WEIGHT = float(np.finfo(np.float64).max)


class Examples(NamedTuple):
    """Rows that are learned from, with their targets and weights."""

    batch: RowBatch
    y: NDArray[Any]  # real targets, or class numbers
    weights: Floats
    counted: Floats | None  # weights for the metrics, None for 1
    tally: ClassTally | None  # of all rows of each class, these among them; None where targets are real
    weight_sums: tuple[float, int]  # of all rows that had weights, these among them: the sum, and how many

    def part(self, first: int, stop: int) -> "Examples":
        """Return examples first to stop - 1; views."""
        counted = None if self.counted is None else self.counted[first:stop]
        batch = part_of(self.batch, first, stop)
        return self._replace(batch=batch, y=self.y[first:stop], weights=self.weights[first:stop], counted=counted)


@dataclass(slots=True)
class Kept(Generic[S]):
    """Everything that a model has learned, replaced as a whole: a batch is learned from or not."""

    states: States[S]
    labels: ClassLabels | None  # None where targets are real
    columns: ColumnSlots  # of all states, and shared with copies: its slots beyond n_slots() are nobody's
    inputs: Inputs
    metrics: Metrics
    few: FewRows | None = None  # how few rows pass through all stages at once, planned for the arrays at hand
    weight_sums: tuple[float, int] = (0.0, 0)  # of the rows that had weights: the sum, and how many

    def few_rows(self, loss_scale: float) -> FewRows | None:
        """Return what takes few rows of known classes through all stages at once; None if several states learn."""
        if self.few is None or self.few.is_stale():
            states = self.states
            alone = len(states.held) == 1 and not states.faster
            begun = alone and all(state.rounds_now is not None for state in states.all())
            self.few = FewRows(self, loss_scale, MISTAKES) if begun else None
        return self.few

    def copied(self) -> "Kept[S]":
        """Return a copy with arrays of its own."""
        labels = None if self.labels is None else self.labels.copied()
        return Kept(
            self.states.copied(),
            labels,
            self.columns,
            self.inputs.copied(self.n_slots()),
            self.metrics.copied(),
            weight_sums=self.weight_sums,
        )

    # -- columns ---------------------------------------------------------------------------------------------------
    def with_slots(self, x: Any) -> RowBatch:
        """Return checked rows as the states take them, but for scaling; columns that are new get slots."""
        if not self.inputs.sparse:
            return to_dense(x)
        return self.columns.enter(cast(Csr, self.inputs.with_intercept(to_csr(x))), self.n_slots())

    def with_known_slots(self, x: Any, n_slots: int) -> RowBatch:
        """Return checked rows to be scored, in the slots that coefficients (..., n_slots) have."""
        if not self.inputs.sparse:
            return self.inputs.with_intercept(to_dense(x))
        return self.columns.look_up(cast(Csr, self.inputs.with_intercept(to_csr(x))), n_slots)

    def n_slots(self) -> int:
        """Return the number of slots that have occurred."""
        return max(state.n_slots for state in self.states.all())

    def has_room(self) -> bool:
        """Return whether the states have room for all slots."""
        if not self.inputs.sparse:
            return True
        n = len(self.columns)
        return self.inputs.has_slots(n) and all(state.has_slots(n) for state in self.states.all())

    def make_room(self) -> None:
        """Make room in the states for all slots."""
        if self.inputs.sparse:
            self.inputs.make_slots(self.n_slots(), len(self.columns))
            for state in self.states.all():
                state.make_slots(len(self.columns))

    def coefs(self) -> Floats:
        """Return w of every state (k, d), for sparse rows by slot (k, n_slots)."""
        each = [state.coef() for state in self.states.all()]
        if len(each) == 1:
            out = each[0][None]
        else:
            out = np.zeros((len(each), max(len(w) for w in each)))  # a class that came late may know fewer slots
            for row, w in zip(out, each, strict=True):
                row[: len(w)] = w
        return self.states.combined(out)

    def compare(self, comparator: Floats, x: Any, y: NDArray[Any], weights: Floats, loss: str) -> None:
        """Add the loss of fixed coefficients (d,) on rows x to that of the comparison."""
        if self.labels is not None:
            y = self.states.targets(y)[0] * self.sign()
        scalar, scores = self.states.held[0].scalar, np.asarray(x @ comparator, np.float64)
        theirs = weights * LOSSES[loss].value(scores, y, as_loss_parameter(loss, None))
        # one after the other, so that a split into batches changes no bit
        scalar[THEIRS] = np.cumsum(np.concatenate([scalar[[THEIRS]], theirs]))[-1]

    # -- the side that scores are read from ------------------------------------------------------------------------
    def sign(self) -> float:
        """Return the factor on the scores of the only state: the last of two classes in order is the positive one."""
        sign = self.states.signs[0]
        if self.labels is None:
            return sign
        if len(self.labels.known) < 2:
            return 1.0  # as first_sign has guessed
        return sign if self.labels.order[-1] == 0 else -sign

    def shown(self, values: Floats) -> Floats:
        """Return scores or coefficients (k, n) of the states in the order of classes, (k, n); (n,) for two classes."""
        if len(values) == 1:
            return values[0] if self.sign() > 0 else -values[0] + 0.0
        return self.states.signed(values)[cast(ClassLabels, self.labels).order]

    def intercepts(self, coef: Floats, *, in_order: bool) -> Floats:
        """Return what the read-out adds to scores: (1,), or (k,) in the order of classes.

        coef: of prepared rows, as shown. Where labels have come in runs, and rows are not to be followed in their order
        (in_order), the constant terms of read-out and learners together are the log odds of the shares of the labels:
        in a run of one label each row raises what is learned, and no row of another label holds it back.
        """
        out = np.ravel(self.shown(self.states.intercepts()))
        if self.labels is None or in_order or not self.labels.tally.is_sorted():
            return out
        own: Any = 0.0
        if self.inputs.sparse:
            own = self.columns.intercept(coef)
        elif self.inputs.intercept:
            own = coef[..., -1]
        shares: Floats = np.log(np.array(self.labels.tally.rows)[self.labels.order] + 0.5)
        level: Any = shares[1] - shares[0] if len(out) == 1 else shares - shares.mean()
        return np.ravel(cast(Floats, level - own))

    # -- learning --------------------------------------------------------------------------------------------------
    def learn_in_place(self, examples: Examples) -> Floats | None:
        """Learn from rows of known classes in one step, which is taken back where it cannot be made; return scores.

        None, with nothing changed, where that would take a copy of all that is kept.
        """
        states, batch, y = self.states, examples.batch, examples.y
        large = (batch.data if isinstance(batch, Csr) else batch).nbytes > PART
        changing = None if large else self._changing(batch, len(y))
        if changing is None:
            return None
        parts, in_whole = changing
        before = [(array, at, array[at].copy()) for array, at in parts]
        after = [(array, at, array.copy()) for array, at in states.following()]
        sums = self.metrics.metric_sums.tobytes()
        targets = y[None, :] if self.labels is None else states.targets(y)
        scores = states.unread(targets)
        try:
            prepared = self.inputs.prepared(batch)
            if prepared is None:  # a scale moves
                _put_back(before)
                return None
            states.learn(prepared, targets, examples.weights, scores)
            return self._finish(examples, targets, scores, sums)
        except BaseException:
            learned = all(map(isfinite, scores[..., -1:].ravel().tolist()))
            _put_back(after)
            if learned and (in_whole or self.metrics.metric_sums.tobytes() != sums):
                self._finish(examples, targets, scores, sums)  # all has been learned: nothing is put back
            else:
                _put_back(before)
            raise

    def _finish(self, examples: Examples, targets: Floats, scores: Floats, sums: bytes) -> Floats:
        """Do what follows when the states have learned, and return the scores; once more, it changes nothing.

        sums: those of the metrics, of before.
        """
        out = self.states.read_out(scores, targets, examples.weights, examples.y)
        answer = self.shown(out) if len(out) == 1 else self._together([out], len(examples.y))
        if self.metrics.metric_sums.tobytes() == sums:  # rows without weight, taken in twice, change nothing
            self.metrics.add(out, targets, examples.counted, signs=self.states.signs, numbers=examples.y)
        if self.labels is not None and examples.tally is not None:
            self.labels.tally = examples.tally
        self.weight_sums = examples.weight_sums
        return answer

    def _changing(self, batch: RowBatch, n: int) -> tuple[Changing, bool] | None:
        """Return what learning from n rows may change in inputs and states, None for nearly all.

        And whether the only state is not among it: it learns from one row in whole or not at all.
        """
        states = self.states
        alone, in_whole = len(states.held) == 1 and not states.faster, False
        out = self.inputs.changing(batch)
        for state in states.all():
            changed = state.changing(batch, n, alone=alone and state is states.held[0])
            if changed is None:
                return None
            in_whole |= not changed
            out += changed
        return out, in_whole

    def learn(
        self,
        examples: Examples,
        *,
        new: NewClasses = NOTHING_NEW,
        begin: Callable[[float], tuple[S, LearnedState | None]],
    ) -> Floats:
        """Learn from rows; return their scores in the order of classes, each from before its row was learned from.

        Classes that are new get states from `begin` at the rows of `new`.
        """
        n, labels = len(examples.y), self.labels
        self.weight_sums = examples.weight_sums
        if labels is None:
            if not self._begins_at_target(examples):
                return self._part(examples, first=0, stop=n)[0]
            first = self._first_target(examples.part(0, 1))
            return np.concatenate([first, self._part(examples, first=1, stop=n)[0]]) if n > 1 else first
        known = len(labels.known)
        cuts = [row for i, row in enumerate(new.rows) if n_states(known + i + 1) > 1]
        if known == 0 and new.rows:
            for states in self.states.paces:
                states.signs[0] = first_sign(new.labels[0])
        stops = [*cuts, n]
        scores: list[Floats] = []
        if not cuts or cuts[0] > 0:
            scores.append(self._part(examples, first=0, stop=stops[0]))
        for row, stop in zip(cuts, stops[1:], strict=True):
            self.states.add_class(begin)
            scores.append(self._part(examples, first=row, stop=stop, is_new=True))
        labels.add(new, cast(ClassTally, examples.tally))
        return self._together(scores, n)

    def _begins_at_target(self, examples: Examples) -> bool:
        """Return whether the intercept begins at the target of the first row, which these are with."""
        if self.states.totals()[0] or not self.inputs.intercept or not len(examples.y):
            return False
        return all(state.may_begin_anywhere() for state in self.states.all())

    def _first_target(self, first: Examples) -> Floats:
        """Learn from the first row of all that its target is where the intercept begins, and return its score, 0.

        As a step that row would be one of the size of the target, be it a year or a latitude, and what it leaves in H
        would slow down all later ones.
        """
        y, weight = first.y[0], first.weights[0]
        batch, targets = cast(RowBatch, self.inputs.prepared(first.batch)), first.y[None, :]
        for state in self.states.all():
            state.base[batch.indices[-1] if isinstance(batch, Csr) else -1] = y
        members = self.states.unread(targets)
        self.states.learn(batch, targets, first.weights, members)
        members[:] = 0.0  # what the model had known of it
        loss = next(name for name, known in LOSSES.items() if known.number == self.states.held[0].setting.loss)
        lost = weight * LOSSES[loss].value(np.zeros(1), first.y, as_loss_parameter(loss, None))[0]
        # not of the state, whose steps may be in units of its losses
        self.states.counted.tally[PAST_LOSS] += lost
        self.states.counted.tally[PAST_MISTAKES] += self.states.readout is None and y != 0
        scores = self.states.read_out(members, targets, first.weights, first.y)
        self.metrics.add(scores, targets, first.counted)
        return scores[0]

    def _part(
        self,
        examples: Examples,
        *,
        first: int,
        stop: int,
        is_new: bool = False,
    ) -> Floats:
        """Learn from some rows, which the present states serve: the scores (k, n) of the states.

        A few at a time, so that what is made of them stays in a cache until all learners have had it.
        """
        parts: list[Floats] = []
        for start, end in _cut(examples.batch, first, stop):
            some = examples.part(start, end) if end - start < len(examples.y) else examples
            run_start = start
            try:
                for begins_at, run in self._prepared(some):
                    run_start, new = start + begins_at, is_new and start + begins_at == first
                    parts.append(self._learn_prepared(run, is_new=new))
                    run_start = start
            except Unlearned as refused:
                refused.row += run_start
                raise
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _prepared(self, examples: Examples) -> Iterator[tuple[int, Examples]]:
        """Yield examples with rows as they are learned from, in runs between which states are rescaled, and where each
        begins."""
        if self.inputs.steady is None or not len(examples.y):
            yield 0, examples._replace(batch=cast(RowBatch, self.inputs.prepared(examples.batch)))
            return
        for first, stop, rows in self.inputs.prepared_runs(examples.batch, self._rescale):
            yield first, examples.part(first, stop)._replace(batch=rows)

    def _rescale(self) -> None:
        """Set the scales of rows to the present moments, and express the states in them."""
        n = self.columns.width if not self.inputs.sparse else None
        slots = None if n is not None else self.columns.array(len(self.columns))
        change = self.inputs.move(cast(int, n) if slots is None else int(np.flatnonzero(slots == INTERCEPT)[0]))
        for state in self.states.all():
            state.rescale(change)

    def _learn_prepared(self, examples: Examples, *, is_new: bool) -> Floats:
        """Learn from prepared rows; return the scores (k, n) of the states, which join the metrics."""
        states, y = self.states, examples.y
        targets = y[None, :] if self.labels is None else states.targets(y)
        members = states.unread(targets)
        states.learn(examples.batch, targets, examples.weights, members)
        scores = states.read_out(members, targets, examples.weights, y, is_new=is_new)
        self.metrics.add(scores, targets, examples.counted, signs=states.signs, numbers=y, is_new=is_new)
        return scores

    def _together(self, parts: Sequence[Floats], n: int) -> Floats:
        """Join the scores of parts, (n,) or (n, k) in the order of classes, NaN for classes that had not appeared."""
        k = len(self.states.held)
        if k == 1:
            return self.shown(parts[0]) if parts else np.empty(0)
        out, first = np.full((n, k), np.nan), 0
        signs = np.array(self.states.signs)
        for part in parts:
            stop = first + part.shape[1]
            if len(part) == 1 and k > 1:  # one state for two classes
                part = np.concatenate([part, part])
            out[first:stop, : len(part)] = (part * signs[: len(part), None]).T + 0.0
            first = stop
        return out[:, cast(ClassLabels, self.labels).order]

    # -- files -----------------------------------------------------------------------------------------------------
    def parts(self) -> Iterator[tuple[str, Arrays]]:
        """Return everything with arrays, each with what their names in a file begin with."""
        yield "", self.inputs
        yield "", self.metrics
        yield from self.states.parts()

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return values that json can write, and arrays."""
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
        """Put in the arrays that ``saved`` gave."""
        groups = by_prefix(arrays)
        for prefix, part in self.parts():
            part.fill(groups.get(prefix, {}))

    def validate_all(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Raise ValueError unless rows could have made these arrays; the ones here may be outlines."""
        groups, names = by_prefix(arrays), {"comparator", "columns", "names", "name_ends"}
        for prefix, part in self.parts():
            names |= {prefix + name for name in part.validate_all(groups.get(prefix, {}))}
        checks.only(arrays, *names)
        rows = int(arrays["0.count"][ROUND]) + int(arrays["tally"][PAST_ROWS])
        checks.number_within(arrays["tally"][MISTAKES], "mistakes", 0, rows)
        checks.number_within(self.weight_sums[1], "number of weights", 0, rows)
        self.inputs.validate_moments(arrays, rows)
        if self.labels is not None:
            checks.number_within(sum(self.labels.tally.rows), "rows of all classes", 0, rows)


def checked_sums(value: Any) -> tuple[float, int]:
    """Return the sum and number of weights that a file holds; raise ValueError unless rows could have had them."""
    if not isinstance(value, list | tuple) or len(cast("Sequence[Any]", value)) != 2:
        raise ValueError(f"weights must be the sum and the number of weights, got {value!r}")
    total, n = cast("Sequence[Any]", value)
    return as_real(total, "sum of weights", 0.0, MOST_WEIGHT), checks.as_count(n, "number of weights")


def by_prefix(arrays: dict[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the arrays of a file by the prefixes of their names, and by the rest of these."""
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        prefix, dot, rest = name.rpartition(".")
        groups.setdefault(prefix + dot, {})[rest] = array
    return groups


def _put_back(before: list[tuple[NDArray[Any], Any, NDArray[Any]]]) -> None:
    """Write what was copied before rows were learned from to where it was."""
    for array, at, values in before:
        array[at] = values


def _cut(batch: RowBatch, first: int, stop: int) -> list[tuple[int, int]]:
    """Cut rows first to stop - 1 into parts (first, stop) that stay in a cache; one at least."""
    if isinstance(batch, Csr):
        n, size = len(batch.indptr) - 1, batch.data.nbytes + batch.indices.nbytes
    else:
        n, size = len(batch), batch.nbytes
    some = max(1, PART * n // max(size, 1))
    return [(at, min(at + some, stop)) for at in range(first, max(stop, first + 1), some)]
