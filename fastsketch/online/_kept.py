"""All that an online linear model has learned, and the stages that a batch passes through."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.io import _checks as checks
from fastsketch.online import _readout
from fastsketch.online import _state_files as _files
from fastsketch.online._against_rest import States, Unlearned, n_states, part_of
from fastsketch.online._columns import Columns
from fastsketch.online._drift import Watch
from fastsketch.online._inputs import NAMES as INPUTS
from fastsketch.online._inputs import Inputs, OutOfRange
from fastsketch.online._labels import NOTHING_NEW, Label, Labels, New, first_sign
from fastsketch.online._metrics import Metrics
from fastsketch.online._state import Batch, Counts, Csr, Floats, Learned

S = TypeVar("S", bound=Learned)

# Bytes of rows that pass through all stages before the next ones: they stay in a cache, and are work for all threads.
PART = 1 << 20


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
    undo_beside: list[tuple[Learned, Any]] = field(default_factory=list[tuple[Learned, Any]])
    then: tuple[float, Any, int] | None = None  # score, read-out and mistakes after it
    out: float = nan

    @staticmethod
    def of(kept: "Kept[Any]", y: NDArray[Any], weights: Floats, counted: Floats | None) -> "_Row":
        """Before anything has changed."""
        states, labels, counts = kept.states, kept.labels, list[int]()
        if labels is not None:
            number, sign = int(y[0]), states.signs[0]
            y = np.array([-sign if number else sign])
            counts = list(labels.counts)
            counts[number] += 1
        others = [np.array([nan]) for _ in states.beside]
        weight = 1.0 if counted is None else counted.item()
        return _Row(y, weights, weight, counts, others, kept.metrics.metric_sums.tobytes())


@dataclass(slots=True)
class Kept(Generic[S]):
    """Replaced as a whole: a batch is learned from or not."""

    states: States[S]
    labels: Labels | None  # None where targets are real
    columns: Columns  # of all states, and shared with copies: its slots beyond n_slots() are nobody's
    inputs: Inputs
    metrics: Metrics
    watch: Watch | None = None  # for drift
    later: States[S] | None = None  # begun at a warning

    @staticmethod
    def beginning(
        state: S,
        labels: Labels | None,
        columns: Columns,
        inputs: Inputs,
        metrics: Metrics,
        watch: Watch | None,
        *,
        beside: Learned | None = None,
        calibrate: bool = False,
    ) -> "Kept[S]":
        """Before the first row, on this state; `labels` may know classes that are given.

        beside: a second learner, for the read-out of `calibrate`, or to blend with real targets.
        """
        if labels is None:
            states = States([state], [1.0])
            if beside is not None:
                states.beside, states.readout = [beside], _readout.Blend(np.zeros(2), metrics.decay)
            return Kept(states, None, columns, inputs, metrics, watch)
        n = n_states(len(labels.known))
        # of two classes the last in order is the positive one
        states = States([state, *(state.copied() for _ in range(n - 1))], [1.0] * n if n > 1 else [-1.0])
        if beside is not None:
            states.beside = [beside, *(beside.copied() for _ in range(n - 1))]
        if calibrate:
            states.readout = _readout.start(len(states.members()), n, decay=metrics.decay)
        return Kept(states, labels, columns, inputs, metrics, watch)

    def copied(self) -> "Kept[S]":
        """The same with arrays of its own."""
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
        """Whether one row is learned from in whole or not at all, so that no copy is needed."""
        return self.watch is None and self.states.is_atomic()

    def sparse(self) -> bool:
        """Whether sparse rows are learned from."""
        return self.states.held[0].sparse

    # -- columns -----------------------------------------------------------------------------------------------------
    def n_slots(self) -> int:
        """Slots that have occurred."""
        lone = self.states.lone()
        return max(state.n_slots for state in self.states.all()) if lone is None else lone.n_slots

    def has_room(self) -> bool:
        """Whether the states have room for all slots."""
        if not self.sparse():
            return True
        n, lone = len(self.columns), self.states.lone()
        if lone is None:
            return self.inputs.has_slots(n) and all(state.has_slots(n) for state in self.states.all())
        return n == lone.n_slots or (self.inputs.has_slots(n) and lone.has_slots(n))

    def make_room(self) -> None:
        """So that the states may meet all slots."""
        if self.sparse():
            self.inputs.make_slots(self.n_slots(), len(self.columns))
            for state in [*self.states.all(), *(self.later.all() if self.later else ())]:
                state.make_slots(len(self.columns))

    def coefs(self) -> Floats:
        """w of every state (k, d), for sparse rows by slot (k, n_slots)."""
        each = [state.coef() for state in self.states.all()]
        if len(each) == 1:
            out = each[0][None]
        else:
            out = np.zeros((len(each), max(len(w) for w in each)))  # a class that came late may know fewer slots
            for row, w in zip(out, each, strict=True):
                row[: len(w)] = w
        return self.states.combined(out)

    # -- the side that scores are read from --------------------------------------------------------------------------
    def sign(self) -> float:
        """By which to multiply what the only state gives: of two classes the last in order is the positive one."""
        sign = self.states.signs[0]
        if self.labels is None:
            return sign
        if len(self.labels.known) < 2:
            return 1.0  # as first_sign has guessed
        return sign if self.labels.order[-1] == 0 else -sign

    def shown(self, values: Floats) -> Floats:
        """Scores or coefficients (k, n) of the states as people see them: (n,), or (k, n) in the order of classes."""
        if len(values) == 1:
            return values[0] if self.sign() > 0 else -values[0] + 0.0
        return self.states.signed(values)[cast(Labels, self.labels).order]

    def intercepts(self) -> Floats:
        """What is added to scores: (1,), or (k,) in the order of classes."""
        return np.ravel(self.shown(self.states.intercepts()))

    # -- learning ----------------------------------------------------------------------------------------------------
    def learn_one(self, batch: Batch, y: NDArray[Any], weights: Floats, *, counted: Floats | None) -> Floats:
        """Learn in place from one row of a known class; the state sees to it that it does in whole or not at all.

        counted: the weight of the row for the metrics, None for 1.
        """
        row = _Row.of(self, y, weights, counted)
        try:
            self._take(row, batch)
        except BaseException:  # an interrupt must not leave behind what follows a state that has learned
            self._end(row)
            raise
        if not isfinite(row.own[0]):
            state = self.states.held[0]
            raise Unlearned(state, state.totals()[0])
        return np.array([row.out if self.labels is None or self.sign() > 0 else -row.out + 0.0])

    def _take(self, row: "_Row", batch: Batch) -> None:
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
        """What follows the round of the state, or undoes what came before it; called again if it was interrupted."""
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
            metrics.take_one(row.out, row.y.item(), row.counted)
        states.readout, states.mistakes = row.then[1:]
        if self.labels is not None:
            self.labels.counts = row.counts

    def learn(
        self,
        batch: Batch,
        y: NDArray[Any],
        weights: Floats,
        *,
        counted: Floats | None,
        new: New = NOTHING_NEW,
        begin: Callable[[], tuple[S, Learned | None]],
    ) -> Floats:
        """Learn from rows; returns their scores as people see them, each from before its row was learned from.

        y: real targets, or class numbers, the new ones of which get states from `begin` at the rows of `new`.
        counted: weights of the rows for the metrics, None for 1.
        """
        states, labels = self.states, self.labels
        if labels is None:
            return self._part(batch, y, weights, counted, begin, first=0, stop=len(y))[0]
        known = len(labels.known)
        cuts = [row for i, row in enumerate(new.rows) if n_states(known + i + 1) > 1]
        if known == 0 and new.rows:
            states.signs[0] = first_sign(new.labels[0])
        stops = [*cuts, len(y)]
        scores: list[Floats] = []
        if not cuts or cuts[0] > 0:
            scores.append(self._part(batch, y, weights, counted, begin, first=0, stop=stops[0]))
        for row, stop in zip(cuts, stops[1:], strict=True):
            self.states.add_class(begin)
            if self.later is not None:
                self.later.add_class(begin)
            scores.append(self._part(batch, y, weights, counted, begin, first=row, stop=stop, is_new=True))
        labels.add(new, cast(Counts, y))
        return self._together(scores, len(y))

    def _part(
        self,
        batch: Batch,
        y: NDArray[Any],
        weights: Floats,
        counted: Floats | None,
        begin: Callable[[], tuple[S, Learned | None]],
        *,
        first: int,
        stop: int,
        is_new: bool = False,
    ) -> Floats:
        """Learn from some rows, which the present states serve: the scores (k, n) of the states.

        A few at a time, so that what is made of them stays in a cache until all learners have had it.
        """
        parts: list[Floats] = []
        for start, end in _cut(batch, first, stop):
            try:
                rows = self.inputs.prepared(part_of(batch, start, end) if end - start < len(y) else batch)
            except OutOfRange as refused:
                raise OutOfRange(start + refused.row) from None
            some = y[start:end], weights[start:end], None if counted is None else counted[start:end]
            if self.watch is not None:
                parts.append(self._watched(self.watch, rows, *some, begin, is_new=is_new and start == first))
            else:
                parts.append(self._learned_by(self.states, rows, *some, is_new=is_new and start == first))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _targets(self, y: NDArray[Any]) -> Floats:
        return y[None, :] if self.labels is None else self.states.targets(y)

    def _watched(
        self,
        watch: Watch,
        batch: Batch,
        y: NDArray[Any],
        weights: Floats,
        counted: Floats | None,
        begin: Callable[[], tuple[S, Learned | None]],
        *,
        is_new: bool,
    ) -> Floats:
        """The same with a look at drift at the rows for it, which may exchange the states."""
        parts: list[Floats] = []
        first = 0
        while first < len(y):
            stop = min(len(y), first + watch.until_look())
            some, of_some, w = part_of(batch, first, stop), y[first:stop], weights[first:stop]
            for_metrics = None if counted is None else counted[first:stop]
            is_new = is_new and first == 0
            targets = self._targets(of_some)
            scores = self._learned_by(self.states, some, of_some, w, for_metrics, is_new=is_new)
            right = None if self.labels is None else self.states.right(scores, of_some, is_new=is_new)
            errors, theirs = watch.errors(scores[0], targets[0], right), None
            if self.later is not None:
                try:
                    new = self.later.learn(some, targets, w)
                    right = None if self.labels is None else self.later.right(new, of_some, is_new=is_new)
                    theirs = watch.errors(new[0], targets[0], right)
                except Unlearned:
                    self.later = None  # these states have no need to live
            watch.take_in(errors, theirs, np.abs(scores[0] - targets[0]) if right is None else None)
            if watch.until_look() == 0:
                self._decide(watch, begin)
            parts.append(scores)
            first = stop
        return np.concatenate(parts, axis=1) if parts else np.empty((len(self.states.held), 0))

    def _decide(self, watch: Watch, begin: Callable[[], tuple[S, Learned | None]]) -> None:
        what = watch.decide(self.later is not None, self.states.totals()[0])
        if what == "begin":
            self.later = self.states.anew(begin)
        elif what == "drop":
            self.later = None
        elif what == "take" and self.later is not None:
            self.later.follow(self.states)
            self.states, self.later = self.later, None

    def _learned_by(
        self,
        states: States[S],
        batch: Batch,
        y: NDArray[Any],
        weights: Floats,
        counted: Floats | None,
        *,
        is_new: bool,
    ) -> Floats:
        rows, targets = states.totals()[0], self._targets(y)
        try:
            scores = states.learn(batch, targets, weights)
        except Unlearned as refused:
            raise Unlearned(refused.state, rows + refused.row) from None
        states.count_mistakes(scores, y, is_new=is_new)
        self.metrics.take_in(scores, targets, counted, signs=states.signs, numbers=y, is_new=is_new)
        return scores

    def _together(self, parts: Sequence[Floats], n: int) -> Floats:
        """Scores (n,) or (n, k) as people see them, NaN for classes that had not appeared."""
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

    # -- keeping it --------------------------------------------------------------------------------------------------
    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What json can write, and arrays."""
        states, labels = self.states, self.labels
        state: dict[str, Any] = {"sparse": states.held[0].sparse, "n_features": self.columns.width}
        if labels is not None:
            state.update(labels=labels.saved(), signs=list(states.signs), mistakes=states.mistakes)
        elif states.readout is not None:
            state.update(mistakes=states.mistakes)
        arrays = _files.arrays_of(states)
        if self.sparse():
            arrays["columns"] = self.columns.array(self.n_slots())
        arrays.update(self.inputs.saved(self.n_slots()))
        if len(states.held) > 1:
            arrays["shared_loss"] = np.array([states.shared])
        arrays.update(self.metrics.saved(0))
        if self.watch is not None:
            arrays.update(self.watch.saved(0))
            shared, mistakes = (0.0, 0) if self.later is None else (self.later.shared, self.later.mistakes)
            arrays["drift_past"] = np.array([*states.past, shared, mistakes], np.float64)
            state["later"] = self.later is not None
            if self.later is not None:
                arrays.update({_files.LATER + name: array for name, array in _files.arrays_of(self.later).items()})
        return state, arrays

    @staticmethod
    def validate(
        state: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        start: Callable[[int], S],
        start_beside: Callable[[int], Learned] | None,
        metrics: Metrics,
        watch: Watch | None,
        given: tuple[Label, ...] | None,
        inputs: Inputs,
        *,
        calibrate: bool,
    ) -> None:
        """Raise ValueError unless a model could have learned this; states of outlines are made for so many slots.

        inputs: as its parameters say.
        """
        if inputs.moments is None:
            for name in INPUTS:
                checks.only({key: array for key, array in arrays.items() if key == name})
        metrics.validate(arrays)
        n = len(state["signs"]) if "labels" in state else 1
        arrays, before = _files.validate_watch(state, arrays, start, start_beside, watch, n, calibrate=calibrate)
        if "labels" not in state:
            rows, slots = _files.validate_states(arrays, 1, start, start_beside, calibrate=calibrate)
            rows += before
            if start_beside is not None:
                checks.number_within(checks.as_count(state["mistakes"], "mistakes"), "mistakes", 0, rows)
            inputs.validate_moments(arrays, rows, inputs.slots_in(slots))
            return
        labels, signs = Labels.read_back(state["labels"], given), state["signs"]
        n = n_states(len(labels.known))
        if len(signs) != n or any(sign not in (-1.0, 1.0) for sign in signs):
            raise ValueError(f"it has the signs {signs} for {len(labels.known)} classes")
        if n > 1:
            checks.sums(arrays, "shared_loss", (1,), low=0.0)
        rows, slots = _files.validate_states(arrays, n, start, start_beside, calibrate=calibrate)
        rows += before
        inputs.validate_moments(arrays, rows, inputs.slots_in(slots))
        checks.number_within(checks.as_count(state["mistakes"], "mistakes"), "mistakes", 0, rows)
        checks.number_within(sum(labels.counts), "rows of all classes", 0, rows)

    @staticmethod
    def read_back(
        state: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        start: Callable[[int], S],
        start_beside: Callable[[int], Learned] | None,
        columns: Columns,
        inputs: Inputs,
        metrics: Metrics,
        watch: Watch | None,
        *,
        given: bool,
        calibrate: bool,
    ) -> "Kept[S]":
        """The inverse of ``saved``."""
        labels: Labels | None = None
        signs = [1.0]
        if "labels" in state:
            labels = Labels.read_back(state["labels"], None)
            labels.given = given
            signs = list(state["signs"])
        arrays, of_later = _files.apart(arrays)
        states = _files.states_in(arrays, signs, start, start_beside, calibrate=calibrate, decay=metrics.decay)
        states.mistakes = state.get("mistakes", 0)
        states.shared = float(arrays["shared_loss"][0]) if len(signs) > 1 else 0.0
        inputs.take(arrays)
        metrics.take(arrays)
        later = None
        if watch is not None:
            watch.take(arrays)
            rows, loss, mistakes, of_both, later_mistakes = arrays["drift_past"].tolist()
            states.past = int(rows), loss, int(mistakes)
            if state["later"]:
                signs, decay = list(signs), metrics.decay
                later = _files.states_in(of_later, signs, start, start_beside, calibrate=calibrate, decay=decay)
                later.shared, later.mistakes = of_both, int(later_mistakes)
        return Kept(states, labels, columns, inputs, metrics, watch, later)


def _cut(batch: Batch, first: int, stop: int) -> list[tuple[int, int]]:
    """(first, stop) of the parts in which rows first to stop - 1 are learned from; one at least."""
    if isinstance(batch, Csr):
        n, size = len(batch.indptr) - 1, batch.data.nbytes + batch.indices.nbytes
    else:
        n, size = len(batch), batch.nbytes
    some = max(1, PART * n // max(size, 1))
    return [(at, min(at + some, stop)) for at in range(first, max(stop, first + 1), some)]
