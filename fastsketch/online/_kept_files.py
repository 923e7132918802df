"""Files of what a model has learned: the names of its arrays, and checks that a model could have learned them."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_flag
from fastsketch.data.files import _checks as checks
from fastsketch.online._class_states import NAMES, NAMES_OF_BLEND, Blend, States, n_states, start_readout
from fastsketch.online._errors import DriftWatch, Metrics
from fastsketch.online._kept import Kept
from fastsketch.online._labels import ClassLabels, Label
from fastsketch.online._row_inputs import NAMES as INPUTS
from fastsketch.online._row_inputs import ColumnSlots, Inputs
from fastsketch.online._state_arrays import LearnedState, outline

S = TypeVar("S", bound=LearnedState)

BESIDE = "beside."  # in the names of arrays of the second learners
LATER = "later."  # and of all that has begun at a warning
# Arrays in a file that are those of no state.
OF_DRIFT = ("drift_past", "drift_buckets", "drift_used", "drift_counts", "drift_sums", "drift_rows")
COMMON = (
    "comparator",
    "shared_loss",
    "columns",
    "names",
    "name_ends",
    *INPUTS,
    "metric_sums",
    "auc_bins",
    *OF_DRIFT,
)


def saved_kept(kept: Kept[Any]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return values that json can write, and arrays."""
    states, labels = kept.states, kept.labels
    state: dict[str, Any] = {"sparse": states.held[0].sparse, "n_features": kept.columns.width}
    if labels is not None:
        state.update(labels=labels.saved(), signs=list(states.signs), mistakes=states.mistakes)
    elif states.readout is not None:
        state.update(mistakes=states.mistakes)
    arrays = arrays_of(states)
    if kept.inputs.sparse:
        arrays["columns"] = kept.columns.array(kept.n_slots())
    arrays.update(kept.inputs.saved(kept.n_slots()))
    if len(states.held) > 1:
        arrays["shared_loss"] = np.array([states.shared])
    arrays.update(kept.metrics.saved(0))
    if kept.watch is not None:
        arrays.update(kept.watch.saved(0))
        shared, mistakes = (0.0, 0) if kept.later is None else (kept.later.shared, kept.later.mistakes)
        arrays["drift_past"] = np.array([*states.past, shared, mistakes], np.float64)
        state["later"] = kept.later is not None
        if kept.later is not None:
            arrays.update({LATER + name: array for name, array in arrays_of(kept.later).items()})
    return state, arrays


def validate_kept(
    state: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    start: Callable[[int], S],
    start_beside: Callable[[int], LearnedState] | None,
    metrics: Metrics,
    watch: DriftWatch | None,
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
    arrays, before = validate_watch(state, arrays, start, start_beside, watch, n, calibrate=calibrate)
    if "labels" not in state:
        rows, slots = validate_states(arrays, 1, start, start_beside, calibrate=calibrate)
        rows += before
        if start_beside is not None:
            checks.number_within(checks.as_count(state["mistakes"], "mistakes"), "mistakes", 0, rows)
        inputs.validate_moments(arrays, rows, inputs.slots_in(slots))
        return
    labels, signs = ClassLabels.read_back(state["labels"], given), state["signs"]
    n = n_states(len(labels.known))
    if len(signs) != n or any(sign not in (-1.0, 1.0) for sign in signs):
        raise ValueError(f"it has the signs {signs} for {len(labels.known)} classes")
    if n > 1:
        checks.sums(arrays, "shared_loss", (1,), low=0.0)
    rows, slots = validate_states(arrays, n, start, start_beside, calibrate=calibrate)
    rows += before
    inputs.validate_moments(arrays, rows, inputs.slots_in(slots))
    checks.number_within(checks.as_count(state["mistakes"], "mistakes"), "mistakes", 0, rows)
    checks.number_within(sum(labels.counts), "rows of all classes", 0, rows)


def read_kept(
    state: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    start: Callable[[int], S],
    start_beside: Callable[[int], LearnedState] | None,
    columns: ColumnSlots,
    inputs: Inputs,
    metrics: Metrics,
    watch: DriftWatch | None,
    *,
    given: bool,
    calibrate: bool,
) -> Kept[S]:
    """Return what ``saved_kept`` has written."""
    labels: ClassLabels | None = None
    signs = [1.0]
    if "labels" in state:
        labels = ClassLabels.read_back(state["labels"], None)
        labels.given = given
        signs = list(state["signs"])
    arrays, of_later = split_later(arrays)
    states = states_in(arrays, signs, start, start_beside, calibrate=calibrate, decay=metrics.decay)
    states.mistakes = state.get("mistakes", 0)
    states.shared = float(arrays["shared_loss"][0]) if len(signs) > 1 else 0.0
    inputs.fill(arrays)
    metrics.fill(arrays)
    later = None
    if watch is not None:
        watch.fill(arrays)
        rows, loss, mistakes, of_both, later_mistakes = arrays["drift_past"].tolist()
        states.past = int(rows), loss, int(mistakes)
        if state["later"]:
            signs, decay = list(signs), metrics.decay
            later = states_in(of_later, signs, start, start_beside, calibrate=calibrate, decay=decay)
            later.shared, later.mistakes = of_both, int(later_mistakes)
    return Kept(states, labels, columns, inputs, metrics, watch, later)


# -- the states --------------------------------------------------------------------------------------------------------
def validate_states(
    arrays: dict[str, NDArray[Any]],
    n: int,
    start: Callable[[int], LearnedState],
    start_beside: Callable[[int], LearnedState] | None,
    *,
    calibrate: bool,
) -> tuple[int, int]:
    """Return (rows, most slots) of n states; raise ValueError unless rows could have made them."""
    parts, parts_beside = _parts_of(arrays, n)
    rows = 0
    for part, part_beside in zip(parts, parts_beside, strict=True):
        for name in NAMES if calibrate else NAMES_OF_BLEND if start_beside is not None else ():
            part.pop(name, None)
        checked = start(_slots_of(part))
        checked.validate_all(part)
        rows = rows or checked.rows_in(part)
        _validate_beside(part_beside, start_beside)
    if calibrate:
        start_readout(1 if start_beside is None else 2, n, outline).validate_all(arrays)
    elif start_beside is not None:
        Blend(outline(2)).validate_all(arrays)
    return rows, max(map(_slots_of, [*parts, *filter(None, parts_beside)]))


def validate_watch(
    state: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    start: Callable[[int], LearnedState],
    start_beside: Callable[[int], LearnedState] | None,
    watch: DriftWatch | None,
    n: int,
    *,
    calibrate: bool,
) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the arrays without those of later states, and the rows before the present ones, once checked."""
    arrays, of_later = split_later(arrays)
    if watch is None:
        if "drift_past" in arrays:
            raise ValueError("it has looked for drift, and its parameters say drift=None")
        checks.only(of_later)
        checks.only({name: array for name, array in arrays.items() if name in OF_DRIFT})
        return arrays, 0
    past = checks.sums(arrays, "drift_past", (5,))
    for entry, name in ((0, "rows before a restart"), (4, "mistakes since a warning")):
        checks.number_within(past[entry], name, 0, 2**53)
    checks.number_within(past[2], "mistakes before a restart", -(2**53), 2**53)
    (first, *_), _ = _parts_of(arrays, n)
    watch.validate_all(arrays, int(past[0]) + start(1).rows_in(first))
    if as_flag(state["later"], "later") != bool(of_later):
        raise ValueError("its state does not say whether others have begun")
    if of_later:
        validate_states(of_later, n, start, start_beside, calibrate=calibrate)
    return arrays, int(past[0])


def split_later(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Split arrays into all but those of later states, and these by their own names."""
    of_later = {name.removeprefix(LATER): array for name, array in arrays.items() if name.startswith(LATER)}
    return {name: array for name, array in arrays.items() if not name.startswith(LATER)}, of_later


def states_in(
    arrays: dict[str, NDArray[Any]],
    signs: list[float],
    start: Callable[[int], S],
    start_beside: Callable[[int], LearnedState] | None,
    *,
    calibrate: bool,
    decay: float,
) -> States[S]:
    """Return the states that ``arrays_of`` has written."""
    held: list[S] = []
    all_beside: list[LearnedState] = []
    for part, part_beside in zip(*_parts_of(arrays, len(signs)), strict=True):
        one = start(_slots_of(part))
        one.fill(part)
        held.append(one)
        if start_beside is not None:
            beside = start_beside(_slots_of(part_beside))
            beside.fill(part_beside)
            all_beside.append(beside)
    states = States(held, signs, beside=all_beside)
    if calibrate:
        states.readout = start_readout(len(states.members()), len(held), decay=decay)
    elif all_beside:
        states.readout = Blend(np.zeros(2), decay)
    if states.readout is not None:
        states.readout.fill(arrays)
    return states


def arrays_of(states: States[Any]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for k, held in enumerate(states.held):
        arrays.update({name_of(k, name): array for name, array in held.saved().items()})
    for k, beside in enumerate(states.beside):
        arrays.update({f"{k}.{BESIDE}{name}": array for name, array in beside.saved().items()})
    if states.readout is not None:
        arrays.update(states.readout.saved(0))
    return arrays


def _validate_beside(part: dict[str, NDArray[Any]], start_beside: Callable[[int], LearnedState] | None) -> None:
    """Raise ValueError unless the second learner, if there is to be one, could have made these arrays."""
    if start_beside is None:
        checks.only(part)
    else:
        start_beside(_slots_of(part)).validate_all(part)


def _slots_of(part: dict[str, NDArray[Any]]) -> int:
    """Return the number of slots, or columns, of a state in a file."""
    base = part.get("base")
    if base is None or base.ndim == 0:
        raise ValueError("array 'base' is missing" if base is None else "array 'base' has no columns")
    return base.shape[-1]


def name_of(k: int, name: str) -> str:
    """Return the name in a file of an array of state k: of the first, or only one, the array's own."""
    return f"{k}.{name}" if k else name


def _parts_of(
    arrays: dict[str, NDArray[Any]], n: int
) -> tuple[list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]]:
    """Return the arrays of each state, and of the learner beside it, by their own names, without the comparator.

    Those of the read-out, and the loss that several states share, are not left out where there is none.
    """
    parts: list[dict[str, NDArray[Any]]] = [{} for _ in range(n)]
    parts_beside: list[dict[str, NDArray[Any]]] = [{} for _ in range(n)]
    for name, array in arrays.items():
        number, dot, rest = name.partition(".")
        if not dot:
            if name not in COMMON or (name == "shared_loss" and n == 1):
                parts[0][name] = array
        elif number.isdigit() and 0 <= int(number) < n and rest.startswith(BESIDE):
            parts_beside[int(number)][rest.removeprefix(BESIDE)] = array
        elif number.isdigit() and 0 < int(number) < n:
            parts[int(number)][rest] = array
        else:
            raise ValueError(f"array {name!r} does not belong to it")
    return parts, parts_beside
