"""Ridges and rank by held-out entries: one after the other, each along a path that begins at the default.

Biases alone choose bias_ridge: a fit of them is a few passes over the entries. Sweeps then begin where the greedy
ranks have ended, at the largest rank, once for each ridge that is tried; at the best ridge smaller ranks are tried too.
A path is followed, up and down, as long as it gains, which is three or four fits; every fit is the one that an explicit
ridge and rank would have, so that the values found can be given to a fit of all entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._factors import swept
from fastsketch.lowrank._fitted import Biases, Fitted, Problem, SelectionLine
from fastsketch.lowrank._noise import NoiseLevel, scores
from fastsketch.lowrank._setting import LossSetting, SideSetting

BIAS_RIDGES = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)  # observations
RIDGES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # noise levels

Score = tuple[float, float]  # mean loss, and its standard error


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


def bias_score(held: Observed, loss: LossSetting, biases: Biases) -> Score:
    """Of biases alone."""
    none = np.zeros((held.m, 0), held.o.dtype), np.zeros((held.n, 0), held.o.dtype)
    return _score(held, loss, scores(held, *none, biases.rows, biases.columns))


def model_score(held: Observed, loss: LossSetting, fitted: Fitted) -> Score:
    """Of a model at its selected rank."""
    left, right, coefficients = fitted.sides(fitted.selected_rank)
    z = scores(held, left * coefficients, right, fitted.row + fitted.level, fitted.column)
    return _score(held, loss, z)


def _score(held: Observed, loss: LossSetting, z: np.ndarray) -> Score:
    values = loss.about.value(z.astype(np.float64), held.o.astype(np.float64), loss.parameter)
    if len(held.c):
        values = values * held.c
    with np.errstate(over="ignore", invalid="ignore"):
        mean, error = float(values.mean()), float(values.std() / np.sqrt(len(values)))
    return (mean, error) if np.isfinite(mean) else (np.inf, np.inf)


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
    problem: Problem,
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
    held, loss = problem.held, side.loss
    assert held is not None
    lines: list[SelectionLine] = []
    scored: dict[tuple[float, int], float] = {}
    alone = climbed.without_ranks()
    nothing = model_score(held, loss, alone)
    best, least = alone, nothing[0]

    def at(multiple: float, rank: int) -> float:
        nonlocal best, least
        if (multiple, rank) not in scored:
            ridges = replace(climbed.ridges, ridge=multiple)
            begun = replace(climbed, selected_rank=rank, ridges=ridges)
            setting = replace(side, penalty=ridges.penalty)
            found = swept(problem.data, begun, setting, sweeps=sweeps, noise=noise)
            score = model_score(held, loss, found)
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
