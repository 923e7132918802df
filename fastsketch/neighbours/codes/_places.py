"""Where an id is: sorted runs over ids, as they lie where they ascend, by an order where they do not.

Runs at least halve in length from one to the next, so that there are few of them however many batches came, and a row
takes part in few sorts. Ids that ascend, as those that an index gives itself, need no memory and no sort at all.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Positions = NDArray[np.int64]


def ascending(values: Ids) -> bool:
    """Return whether each is larger than the one before."""
    return bool((values[1:] > values[:-1]).all())


class Run(NamedTuple):
    """A stretch ids[start:stop]; `order` sorts it (the later of equal ones last), None if it ascends strictly."""

    start: int
    stop: int
    order: NDArray[np.int32] | None


Runs = tuple[Run, ...]


def run_of(ids: Ids, start: int, stop: int) -> Run:
    """Return one run of a stretch."""
    stretch = ids[start:stop]
    return Run(start, stop, None if ascending(stretch) else np.argsort(stretch, kind="stable").astype(np.int32))


def with_run(runs: Runs, ids: Ids) -> Runs:
    """Return the runs of all ids, of which the first ones have `runs` already."""
    start = runs[-1].stop if runs else 0
    if start == len(ids):
        return runs
    new = run_of(ids, start, len(ids))
    while runs:
        last = runs[-1]
        in_order = last.order is None and new.order is None and ids[last.stop - 1] < ids[new.start]
        if in_order:
            new = Run(last.start, new.stop, None)
        elif last.stop - last.start < 2 * (new.stop - new.start):
            new = run_of(ids, last.start, new.stop)
        else:
            break
        runs = runs[:-1]
    return (*runs, new)


def find(runs: Runs, ids: Ids, wanted: Ids) -> Positions:
    """Return position of the last entry of ids that is equal to each of `wanted`, -1 where there is none."""
    positions = np.full(len(wanted), -1, np.int64)
    for run in reversed(runs):
        stretch = ids[run.start : run.stop]
        at = np.searchsorted(stretch, wanted, side="right", sorter=run.order) - 1
        inside = np.maximum(at, 0)
        at_place = inside if run.order is None else run.order[inside]
        hit = (positions < 0) & (at >= 0) & (stretch[at_place] == wanted)
        positions[hit] = run.start + at_place[hit]
    return positions
