"""Ridges and rank by held-out entries: one after the other, each along a path that begins at the default.

Biases alone choose bias_ridge: a fit of them is a few passes over the entries. Sweeps then begin where the greedy
ranks have ended, at the largest rank, once for each ridge that is tried; at the best ridge smaller ranks are tried too.
A path is followed, up and down, as long as it gains, which is three or four fits; every fit is the one that an explicit
ridge and rank would have, so that the values found can be given to a fit of all entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fastsketch.lowrank._fitted import Fitted, Score, SelectionLine
from fastsketch.lowrank._ground import Ground
from fastsketch.lowrank._noise import NoiseLevel
from fastsketch.lowrank._setting import SideSetting

BIAS_RIDGES = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)  # observations
RIDGES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # noise levels


def along(path: Sequence[float], start: float, score: Callable[[float], float]) -> float:
    """The value with the least score, up or down the path from `start` as long as each step gains."""
    found = {start: score(start)}
    at = path.index(start)
    for step in (1, -1):
        place = at + step
        while 0 <= place < len(path):
            value = path[place]
            found[value] = score(value)
            if not found[value] < found[path[place - step]]:
                break
            place += step
        if min(found, key=found.__getitem__) != start:
            break
    return min(found, key=found.__getitem__)


def line_of(fitted: Fitted, score: Score, *, alone: bool = False) -> SelectionLine:
    """What is told of a candidate."""
    return SelectionLine(
        rank=0 if alone else fitted.selected_rank,
        ridge=None if alone else fitted.ridges.ridge,
        bias_ridge=fitted.ridges.bias_ridge,
        validation=score[0],
        standard_error=score[1],
    )


def choose(
    ground: Ground,
    climbed: Fitted,
    side: SideSetting,
    noise: NoiseLevel,
    *,
    ridge: float | None,
    sweeps: int,
) -> tuple[Fitted, list[SelectionLine]]:
    """The model after sweeps with the ridge and the rank that predict the held-out entries best; rank 0 is one.

    `climbed`: all ranks found, the one selected the best of them before sweeps. A `ridge` that is given is kept.
    """
    loss = side.loss
    lines: list[SelectionLine] = []
    scored: dict[tuple[float, int], float] = {}
    alone = climbed.without_ranks()
    nothing = ground.model_score(loss, alone)
    best, least = alone, nothing[0]

    def at(multiple: float, rank: int) -> float:
        nonlocal best, least
        if (multiple, rank) not in scored:
            ridges = replace(climbed.ridges, ridge=multiple)
            begun = replace(climbed, selected_rank=rank, ridges=ridges)
            setting = replace(side, penalty=ridges.penalty)
            found = ground.swept(begun, setting, sweeps=sweeps, noise=noise)
            score = ground.model_score(loss, found)
            lines.append(line_of(found, score))
            scored[multiple, rank] = score[0]
            if score[0] < least:
                best, least = found, score[0]
        return scored[multiple, rank]

    top = climbed.history[-1]["rank"]
    chosen = ridge if ridge is not None else along(RIDGES, 1.0, lambda multiple: at(multiple, top))
    rank, before = top, at(chosen, top)
    while rank > 1 and (now := at(chosen, rank // 2)) < before:
        rank, before = rank // 2, now
    if climbed.selected_rank > 0:
        at(chosen, climbed.selected_rank)
    return best, [*lines, line_of(alone, nothing, alone=True)]
