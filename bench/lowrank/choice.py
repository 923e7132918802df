"""A comparison of methods whose settings are chosen, in every split, on a part of its training entries alone."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench_tools import spread
from fastsketch import LowRankModel
from lowrank.sets import matrix

Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]  # scores of pairs (rows, columns)
Settings = dict[str, Any]


@dataclass
class Way:
    """A method: how it is fitted, and among what its settings are chosen."""

    name: str
    fit: Callable[..., Predict]  # fit(x, **settings)
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # the values of each setting, in order
    # along(x, **settings): the further settings that one fit has models of (its ranks), each with its scores
    along: Callable[..., Iterator[tuple[Settings, Predict]]] | None = None
    once: bool = False  # chosen in the first split alone, for all of them: where fits take seconds


@dataclass
class Result:
    """Of one way: an entry for each split."""

    errors: list[np.ndarray] = field(default_factory=list)  # (measures,) each
    processor: list[float] = field(default_factory=list)  # seconds of fit and prediction
    wall: list[float] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)


@dataclass
class Comparison:
    """Of ways on one set."""

    found: Any  # (rows, columns, values, shape)
    target: Callable[[np.ndarray], np.ndarray]  # target(train) -> values to fit, scaled by what those entries show
    measure: Callable[[np.ndarray, np.ndarray, np.ndarray], list[float]]  # measure(scores, train, test) -> errors
    looks: int = 1  # how many fifths of the training entries are held out, one after the other, for a choice
    repeats: int = 1  # timed fits of each way in each split

    def run(self, ways, splits):
        """{name: Result}: in every split first all choices, then the fits in turn, on all its training entries."""
        results = {way.name: Result() for way in ways}
        for number, (train, test) in enumerate(splits):
            for way in ways:
                known = results[way.name].settings
                known.append(known[0] if known and way.once else self.choose(way, train, number))
            self._fits(ways, results, train, test)
            for way in ways:
                last = results[way.name]
                errors = " ".join(f"{error:.4f}" for error in last.errors[-1])
                print(f"{number} {way.name}: {errors}, {last.processor[-1]:.3f} s, {last.settings[-1]}", flush=True)
        return results

    def choose(self, way, train, seed):
        """The settings with the smallest first error on entries held out of the training entries."""
        if not way.grid and way.along is None:
            return {}
        order = np.random.default_rng((14, seed)).permutation(train)

        def score(settings):
            """(mean error, settings) of the best along the way."""
            sums: dict[str, list[Any]] = {}
            for k in range(self.looks):
                held = order[k::5]
                learn = order[np.arange(len(order)) % 5 != k]
                x = matrix(self.found, learn, self.target(learn))
                models = way.along(x, **settings) if way.along else [({}, way.fit(x, **settings))]
                for extra, predict in models:
                    error = self.measure(predict(self.found[0][held], self.found[1][held]), learn, held)[0]
                    sums.setdefault(repr(extra), [extra, 0.0, 0])[1] += error
                    sums[repr(extra)][2] += 1
            error, extra = min(((e, x) for x, e, many in sums.values() if many == self.looks), key=lambda pair: pair[0])
            return error, {**settings, **extra}

        return climb(way.grid, score)[1][1]

    def _fits(self, ways, results, train, test):
        x = matrix(self.found, train, self.target(train))
        taken = {way.name: [] for way in ways}
        for _ in range(self.repeats):
            for way in ways:
                wall, processor = time.perf_counter(), time.process_time()
                z = way.fit(x, **results[way.name].settings[-1])(self.found[0][test], self.found[1][test])
                taken[way.name].append((time.process_time() - processor, time.perf_counter() - wall))
                if len(taken[way.name]) == self.repeats:
                    results[way.name].errors.append(np.array(self.measure(z, train, test)))
        for name, seconds in taken.items():
            processor, wall = np.min(seconds, axis=0)
            results[name].processor.append(float(processor))
            results[name].wall.append(float(wall))


def ranks(most, call=LowRankModel, **fixed):
    """fit and along of a model without sweeps whose rank is chosen: one fit has models of every rank."""

    def fit(x, rank, **options):
        return call(rank, sweeps=0, **fixed, **options).fit(x).decision_function

    def along(x, **options):
        model = call(most, sweeps=0, **fixed, **options).fit(x)
        for rank in sorted({line["rank"] for line in model.history}):
            yield {"rank": rank}, partial(model.decision_function, rank=rank)

    return {"fit": fit, "along": along}


def climb(grid, score, starts=()):
    """Climb from the best start, or the middle values, until both neighbours of every value are worse.

    score(settings) -> (error, ...); returns the settings, what score returned for them, and the number of fits.
    """
    known, moved = {}, True

    def at(settings):
        key = tuple(settings.values())
        if key not in known:
            known[key] = score(settings)
        return known[key]

    starts = starts or [{name: values[len(values) // 2] for name, values in grid.items()}]
    best = min(starts, key=lambda settings: at(settings)[0])
    while moved:
        moved = False
        for name, values in grid.items():
            for step in (-1, 1):
                place = values.index(best[name]) + step
                while 0 <= place < len(values) and at({**best, name: values[place]})[0] < at(best)[0]:
                    best, moved = {**best, name: values[place]}, True
                    place += step
    return best, at(best), len(known)


def less(one, other, k, digits=4):
    """Mean and standard deviation of the differences of a measure, split by split."""
    return spread(np.array([a[k] - b[k] for a, b in zip(one.errors, other.errors, strict=True)]), digits)


def seconds_of(result):
    """Of the processor and by the clock, means over splits of the fastest run."""
    return f"{np.mean(result.processor):.3f}", f"{np.mean(result.wall):.3f}"


def chosen(result):
    """What was chosen, split by split, in one cell."""
    cells = []
    for name in result.settings[0]:
        values = [settings[name] for settings in result.settings]
        shown = sorted({f"{value:g}" if isinstance(value, float) else str(value) for value in values}, key=_number)
        cells.append(f"{name} {' or '.join(shown)}")
    return "; ".join(cells)


def _number(text):
    try:
        return float(text), ""
    except ValueError:
        return float("inf"), text
