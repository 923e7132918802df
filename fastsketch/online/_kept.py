"""Everything that an online linear model has learned, and the stages that a batch passes through."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.online._class_states import (
    Blend,
    States,
    Unlearned,
    n_states,
    part_of,
    start_readout,
)
from fastsketch.online._errors import DriftWatch, Metrics
from fastsketch.online._labels import NOTHING_NEW, Labels, NewClasses, first_sign
from fastsketch.online._row_inputs import ColumnSlots, Inputs, OutOfRange, to_csr, to_dense
from fastsketch.online._state_arrays import Counts, Csr, Floats, LearnedState, RowBatch

S = TypeVar("S", bound=LearnedState)

# Bytes of rows that pass through all stages before the next ones: they stay in a cache, and are work for all threads.
PART = 1 << 20


class Examples(NamedTuple):
    """Rows that are learned from, with their targets and weights."""

    batch: RowBatch
    y: NDArray[Any]  # real targets, or class numbers
    weights: Floats
    counted: Floats | None  # weights for the metrics, None for 1

    def part(self, first: int, stop: int) -> "Examples":
        """Return examples first to stop - 1; views."""
        counted = None if self.counted is None else self.counted[first:stop]
        return Examples(part_of(self.batch, first, stop), self.y[first:stop], self.weights[first:stop], counted)


@dataclass(slots=True)
class _Row:
    """A single row that is learned in place, and how far that has come."""

    y: Floats  # its target, (1,)
    weights: Floats
    counted: float  # its weight for the metrics
    counts: list[int]  # of labels, with this one
    others: list[Floats]  # scores of learners beside
    sums: bytes  # of the metrics before it
    own: Floats = field(default_factory=lambda: np.array([nan]))  # the state's score: a number once it has learned
    undo: Callable[[], None] | None = None
    undo_beside: list[tuple[LearnedState, Any]] = field(default_factory=list[tuple[LearnedState, Any]])
    then: tuple[float, Any, int] | None = None  # score, read-out and mistakes after it
    out: float = nan

    @staticmethod
    def begun(kept: "Kept[Any]", example: Examples) -> "_Row":
        """Return the row before anything has changed."""
        states, labels, y, counts = kept.states, kept.labels, example.y, list[int]()
        if labels is not None:
            number, sign = int(y[0]), states.signs[0]
            y = np.array([-sign if number else sign])
            counts = list(labels.counts)
            counts[number] += 1
        others = [np.array([nan]) for _ in states.beside]
        weight = 1.0 if example.counted is None else example.counted.item()
        return _Row(y, example.weights, weight, counts, others, kept.metrics.metric_sums.tobytes())


@dataclass(slots=True)
class Kept(Generic[S]):
    """Everything that a model has learned, replaced as a whole: a batch is learned from or not."""

    states: States[S]
    labels: Labels | None  # None where targets are real
    columns: ColumnSlots  # of all states, and shared with copies: its slots beyond n_slots() are nobody's
    inputs: Inputs
    metrics: Metrics
    watch: DriftWatch | None = None  # for drift
    later: States[S] | None = None  # begun at a warning

    @staticmethod
    def beginning(
        state: S,
        labels: Labels | None,
        columns: ColumnSlots,
        inputs: Inputs,
        metrics: Metrics,
        watch: DriftWatch | None,
        *,
        beside: LearnedState | None = None,
        calibrate: bool = False,
    ) -> "Kept[S]":
        """Return what is kept before the first row, with this state; `labels` may know classes that are given.

        beside: a second learner, for the read-out of `calibrate`, or to blend with real targets.
        """
        if labels is None:
            states = States([state], [1.0])
            if beside is not None:
                states.beside, states.readout = [beside], Blend(np.zeros(2), metrics.decay)
            return Kept(states, None, columns, inputs, metrics, watch)
        n = n_states(len(labels.known))
        # of two classes the last in order is the positive one
        states = States([state, *(state.copied() for _ in range(n - 1))], [1.0] * n if n > 1 else [-1.0])
        if beside is not None:
            states.beside = [beside, *(beside.copied() for _ in range(n - 1))]
        if calibrate:
            states.readout = start_readout(len(states.members()), n, decay=metrics.decay)
        return Kept(states, labels, columns, inputs, metrics, watch)

    def copied(self) -> "Kept[S]":
        """Return a copy with arrays of its own."""
        labels = None if self.labels is None else self.labels.copied()
        watch = None if self.watch is None else self.watch.copied(0)
        later = None if self.later is None else self.later.copied()
        return Kept(
            self.states.copied(),
            labels,
            self.columns,
            self.inputs.copied(self.n_slots()),
            self.metrics.copied(0),
            watch,
            later,
        )

    def is_atomic(self) -> bool:
        """Return whether one row is learned from in whole or not at all, so that no copy is needed."""
        return self.watch is None and self.states.is_atomic()

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
        lone = self.states.lone()
        return max(state.n_slots for state in self.states.all()) if lone is None else lone.n_slots

    def has_room(self) -> bool:
        """Return whether the states have room for all slots."""
        if not self.inputs.sparse:
            return True
        n, lone = len(self.columns), self.states.lone()
        if lone is None:
            return self.inputs.has_slots(n) and all(state.has_slots(n) for state in self.states.all())
        return n == lone.n_slots or (self.inputs.has_slots(n) and lone.has_slots(n))

    def make_room(self) -> None:
        """Make room in the states for all slots."""
        if self.inputs.sparse:
            self.inputs.make_slots(self.n_slots(), len(self.columns))
            for state in [*self.states.all(), *(self.later.all() if self.later else ())]:
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
        return self.states.signed(values)[cast(Labels, self.labels).order]

    def intercepts(self) -> Floats:
        """Return the constant terms of the scores: (1,), or (k,) in the order of classes."""
        return np.ravel(self.shown(self.states.intercepts()))

    # -- learning --------------------------------------------------------------------------------------------------
    def learn_one(self, example: Examples) -> Floats:
        """Learn in place from one row of a known class; the state sees to it that it does in whole or not at all."""
        row = _Row.begun(self, example)
        try:
            self._learn_row(row, example.batch)
        except BaseException:  # an interrupt must not leave behind what follows a state that has learned
            self._end(row)
            raise
        if not isfinite(row.own[0]):
            state = self.states.held[0]
            raise Unlearned(state, state.totals()[0])
        return np.array([row.out if self.labels is None or self.sign() > 0 else -row.out + 0.0])

    def _learn_row(self, row: "_Row", batch: RowBatch) -> None:
        states, inputs = self.states, self.inputs
        try:
            # of two learners the one that is quickly put back comes first
            row.undo_beside = [(one, one.undoing(batch)) for one in states.beside]
            if inputs.moments is not None:
                row.undo = inputs.undoing(batch)
            batch = inputs.prepared(batch)
            for beside, of_beside in zip(states.beside, row.others, strict=True):
                beside.learn(batch, row.y, row.weights, of_beside)
            if not row.others or isfinite(row.others[0][0]):
                states.held[0].learn(batch, row.y, row.weights, row.own)
        except np.linalg.LinAlgError:
            row.own[0] = nan  # numbers of such sizes that no factorisation is left
        self._end(row)

    def _end(self, row: "_Row") -> None:
        """Finish a row after the round of the state, or undo what came before it; called again after an interrupt."""
        states, metrics = self.states, self.metrics
        if isnan(row.own[0]):  # not learned from
            if row.undo is not None:
                row.undo()
            for beside, kept in row.undo_beside:
                beside.put_back(kept)
            return
        if row.then is None:
            row.then = states.after_one(row.own, row.others, row.y, row.weights)
        row.out = row.then[0]
        if metrics.metric_sums.tobytes() == row.sums:  # a row without weight, taken in twice, changes nothing
            metrics.add_one(row.out, row.y.item(), row.counted)
        states.readout, states.mistakes = row.then[1:]
        if self.labels is not None:
            self.labels.counts = row.counts

    def learn(
        self,
        examples: Examples,
        *,
        new: NewClasses = NOTHING_NEW,
        begin: Callable[[], tuple[S, LearnedState | None]],
    ) -> Floats:
        """Learn from rows; return their scores in the order of classes, each from before its row was learned from.

        Classes that are new get states from `begin` at the rows of `new`.
        """
        n, labels = len(examples.y), self.labels
        if labels is None:
            return self._part(examples, begin, first=0, stop=n)[0]
        known = len(labels.known)
        cuts = [row for i, row in enumerate(new.rows) if n_states(known + i + 1) > 1]
        if known == 0 and new.rows:
            self.states.signs[0] = first_sign(new.labels[0])
        stops = [*cuts, n]
        scores: list[Floats] = []
        if not cuts or cuts[0] > 0:
            scores.append(self._part(examples, begin, first=0, stop=stops[0]))
        for row, stop in zip(cuts, stops[1:], strict=True):
            self.states.add_class(begin)
            if self.later is not None:
                self.later.add_class(begin)
            scores.append(self._part(examples, begin, first=row, stop=stop, is_new=True))
        labels.add(new, cast(Counts, examples.y))
        return self._together(scores, n)

    def _part(
        self,
        examples: Examples,
        begin: Callable[[], tuple[S, LearnedState | None]],
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
            try:
                some = some._replace(batch=self.inputs.prepared(some.batch))
            except OutOfRange as refused:
                raise OutOfRange(start + refused.row) from None
            if self.watch is not None:
                parts.append(self._watched(self.watch, some, begin, is_new=is_new and start == first))
            else:
                parts.append(self._learned_by(self.states, some, is_new=is_new and start == first))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _targets(self, y: NDArray[Any]) -> Floats:
        return y[None, :] if self.labels is None else self.states.targets(y)

    def _watched(
        self,
        watch: DriftWatch,
        examples: Examples,
        begin: Callable[[], tuple[S, LearnedState | None]],
        *,
        is_new: bool,
    ) -> Floats:
        """Learn from rows, looking at drift where that is due, which may exchange the states; return scores (k, n)."""
        parts: list[Floats] = []
        first, n = 0, len(examples.y)
        while first < n:
            stop = min(n, first + watch.until_look())
            some = examples.part(first, stop)
            is_new = is_new and first == 0
            targets = self._targets(some.y)
            scores = self._learned_by(self.states, some, is_new=is_new)
            right = None if self.labels is None else self.states.right(scores, some.y, is_new=is_new)
            errors, theirs = watch.errors(scores[0], targets[0], right), None
            if self.later is not None:
                try:
                    new = self.later.learn(some.batch, targets, some.weights)
                    right = None if self.labels is None else self.later.right(new, some.y, is_new=is_new)
                    theirs = watch.errors(new[0], targets[0], right)
                except Unlearned:
                    self.later = None  # these states have no need to live
            watch.add(errors, theirs, np.abs(scores[0] - targets[0]) if right is None else None)
            if watch.until_look() == 0:
                self._decide(watch, begin)
            parts.append(scores)
            first = stop
        return np.concatenate(parts, axis=1) if parts else np.empty((len(self.states.held), 0))

    def _decide(self, watch: DriftWatch, begin: Callable[[], tuple[S, LearnedState | None]]) -> None:
        what = watch.decide(self.later is not None, self.states.totals()[0])
        if what == "begin":
            self.later = self.states.anew(begin)
        elif what == "drop":
            self.later = None
        elif what == "take" and self.later is not None:
            self.later.follow(self.states)
            self.states, self.later = self.later, None

    def _learned_by(self, states: States[S], examples: Examples, *, is_new: bool) -> Floats:
        rows, targets = states.totals()[0], self._targets(examples.y)
        try:
            scores = states.learn(examples.batch, targets, examples.weights)
        except Unlearned as refused:
            raise Unlearned(refused.state, rows + refused.row) from None
        states.count_mistakes(scores, examples.y, is_new=is_new)
        counted, signs = examples.counted, states.signs
        self.metrics.add(scores, targets, counted, signs=signs, numbers=examples.y, is_new=is_new)
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
        return out[:, cast(Labels, self.labels).order]


def _cut(batch: RowBatch, first: int, stop: int) -> list[tuple[int, int]]:
    """Cut rows first to stop - 1 into parts (first, stop) that stay in a cache; one at least."""
    if isinstance(batch, Csr):
        n, size = len(batch.indptr) - 1, batch.data.nbytes + batch.indices.nbytes
    else:
        n, size = len(batch), batch.nbytes
    some = max(1, PART * n // max(size, 1))
    return [(at, min(at + some, stop)) for at in range(first, max(stop, first + 1), some)]
