"""The states of a model in a file: the names of their arrays, and whether a model could have learned them."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._validation import as_flag
from fastsketch.io import _checks as checks
from fastsketch.online import _readout
from fastsketch.online._against_rest import States
from fastsketch.online._drift import Watch
from fastsketch.online._inputs import NAMES as INPUTS
from fastsketch.online._state import Learned, outline

S = TypeVar("S", bound=Learned)

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


def validate_states(
    arrays: dict[str, NDArray[Any]],
    n: int,
    start: Callable[[int], Learned],
    start_beside: Callable[[int], Learned] | None,
    *,
    calibrate: bool,
) -> tuple[int, int]:
    """(rows, most slots) of n states; ValueError unless rows could have made them."""
    parts, parts_beside = _parts_of(arrays, n)
    rows = 0
    for part, part_beside in zip(parts, parts_beside, strict=True):
        for name in _readout.NAMES if calibrate else _readout.NAMES_OF_BLEND if start_beside is not None else ():
            part.pop(name, None)
        checked = start(_slots_of(part))
        checked.validate_all(part)
        rows = rows or checked.rows_in(part)
        _validate_beside(part_beside, start_beside)
    if calibrate:
        _readout.start(1 if start_beside is None else 2, n, outline).validate_all(arrays)
    elif start_beside is not None:
        _readout.Blend(outline(2)).validate_all(arrays)
    return rows, max(map(_slots_of, [*parts, *filter(None, parts_beside)]))


def validate_watch(
    state: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    start: Callable[[int], Learned],
    start_beside: Callable[[int], Learned] | None,
    watch: Watch | None,
    n: int,
    *,
    calibrate: bool,
) -> tuple[dict[str, NDArray[Any]], int]:
    """The arrays without those of later states, and the rows before the present ones; ValueError if they cannot be."""
    arrays, of_later = apart(arrays)
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


def apart(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """All but the arrays of later states, and these by their own names."""
    of_later = {name.removeprefix(LATER): array for name, array in arrays.items() if name.startswith(LATER)}
    return {name: array for name, array in arrays.items() if not name.startswith(LATER)}, of_later


def states_in(
    arrays: dict[str, NDArray[Any]],
    signs: list[float],
    start: Callable[[int], S],
    start_beside: Callable[[int], Learned] | None,
    *,
    calibrate: bool,
    decay: float,
) -> States[S]:
    """The inverse of ``arrays_of``."""
    held: list[S] = []
    all_beside: list[Learned] = []
    for part, part_beside in zip(*_parts_of(arrays, len(signs)), strict=True):
        one = start(_slots_of(part))
        one.take(part)
        held.append(one)
        if start_beside is not None:
            beside = start_beside(_slots_of(part_beside))
            beside.take(part_beside)
            all_beside.append(beside)
    states = States(held, signs, beside=all_beside)
    if calibrate:
        states.readout = _readout.start(len(states.members()), len(held), decay=decay)
    elif all_beside:
        states.readout = _readout.Blend(np.zeros(2), decay)
    if states.readout is not None:
        states.readout.take(arrays)
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


def _validate_beside(part: dict[str, NDArray[Any]], start_beside: Callable[[int], Learned] | None) -> None:
    """Raise ValueError unless the second learner, if there is to be one, could have made these arrays."""
    if start_beside is None:
        checks.only(part)
    else:
        start_beside(_slots_of(part)).validate_all(part)


def _slots_of(part: dict[str, NDArray[Any]]) -> int:
    """Slots, or columns, of a state in a file."""
    base = part.get("base")
    if base is None or base.ndim == 0:
        raise ValueError("array 'base' is missing" if base is None else "array 'base' has no columns")
    return base.shape[-1]


def name_of(k: int, name: str) -> str:
    """The name in a file of an array of state k: of the first, or only one, the array's own."""
    return f"{k}.{name}" if k else name


def _parts_of(
    arrays: dict[str, NDArray[Any]], n: int
) -> tuple[list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]]:
    """The arrays of each state, and of the learner beside it, by their own names, without the comparator.

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
