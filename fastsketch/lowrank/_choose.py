"""Ridges and rank by held-out entries: one after the other, each along a path that begins at the default.

Biases alone choose bias_ridge: a fit of them is a few passes over the entries. Sweeps then begin where the greedy
ranks have ended, at the largest rank, once for each ridge that is tried; at the best ridge smaller ranks are tried too.
A path is followed, up and down, as long as it gains, which is three or four fits; every fit is the one that an explicit
ridge and rank would have, so that the values found can be given to a fit of all entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fastsketch.lowrank._fitted import Score, SelectionLine
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._setting import Ridges
from fastsketch.lowrank._sweeps import Factors, Sweeps, biases_alone, held_score

BIAS_RIDGES = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)  # observations
RIDGES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # noise levels


def along(path: Sequence[float], start: float, score: Callable[[float], float]) -> float:
    """Return the value with the least score, up or down the path from `start` as long as each step gains."""
    scores = {start: score(start)}
    at = path.index(start)
    for step in (1, -1):
        place = at + step
        while 0 <= place < len(path):
            value = path[place]
            scores[value] = score(value)
            if not scores[value] < scores[path[place - step]]:
                break
            place += step
        if min(scores, key=scores.__getitem__) != start:
            break
    return min(scores, key=scores.__getitem__)


def choose(
    pursuit: Pursuit, sweeps: Sweeps, ridges: Ridges, *, selected_rank: int, ridge: float | None
) -> tuple[Factors, Score, list[SelectionLine]]:
    """Return the model after sweeps with the ridge and the rank that predict the held-out entries best; rank 0 is one.

    With its score, and a line for each model that was tried.

    selected_rank: the best of the pursuit, before sweeps. A `ridge` that is given is kept.
    """
    parts, loss = pursuit.parts, pursuit.loss
    lines: list[SelectionLine] = []
    scored: dict[tuple[float, int], float] = {}
    alone = biases_alone(parts, pursuit.biases, ridges)
    nothing = held_score(parts, loss, alone)
    best, best_score = alone, nothing

    def at(multiple: float, rank: int) -> float:
        nonlocal best, best_score
        if (multiple, rank) not in scored:
            model = sweeps.run(*pursuit.sides(rank), pursuit.path[rank], replace(ridges, ridge=multiple))
            score = held_score(parts, loss, model)
            lines.append(_line(model, score))
            scored[multiple, rank] = score[0]
            if score[0] < best_score[0]:
                best, best_score = model, score
        return scored[multiple, rank]

    top = pursuit.rank
    chosen = ridge if ridge is not None else along(RIDGES, 1.0, lambda multiple: at(multiple, top))
    rank, before = top, at(chosen, top)
    while rank > 1 and (now := at(chosen, rank // 2)) < before:
        rank, before = rank // 2, now
    if selected_rank > 0:
        at(chosen, selected_rank)
    return best, best_score, [*lines, _line(alone, nothing)]


def _line(model: Factors, score: Score) -> SelectionLine:
    return SelectionLine(
        rank=model.rank,
        ridge=model.ridges.ridge if model.rank else None,
        bias_ridge=model.ridges.bias_ridge,
        validation=score[0],
        standard_error=score[1],
    )
