"""evaluate: what recommendations are worth on events that were held out."""

import time
import warnings
from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer
from fastsketch.cli._flags import parameters_of
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._recommenders import MODELS, Recommender, learned
from fastsketch.cli._user_events import UserEvents, levels_of, meaning_of, read_user_events
from fastsketch.recommending import SketchedEASE, ranking

# Of the result, as the table shows them.
COLUMNS = {
    "ndcg": "NDCG",
    "recall": "recall",
    "precision": "precision",
    "average_precision": "MAP",
    "reciprocal_rank": "MRR",
}
TIME_COLUMN = 3


class _Parts(NamedTuple):
    """Split of the events, with summed values, in the items of the file: to learn from, shown, and hidden."""

    train: Any  # CSR (users to learn from, items)
    shown: Any  # CSR (k, items): what those have who are measured
    hidden: Any  # CSR (k, items)
    known: NDArray[np.intp] | None  # (k,) their rows in train; None if they are new


class _Measured(NamedTuple):
    name: str
    result: ranking.Ranking
    ndcg: NDArray[np.float64]  # of each user
    fit_seconds: float
    seconds_per_user: float


def evaluate(args: Namespace) -> None:
    """Hold out, learn, recommend, measure."""
    k = as_integer(args.k, "-k", 1)
    meaning = meaning_of(args)
    column = args.time_column
    if column is None and args.split == "time":
        column = TIME_COLUMN
    elif column is not None and args.split not in ("time", "leave-one-out"):
        raise ValueError("--time-column is of --split time and of --split leave-one-out")
    if isinstance(column, int):
        as_integer(column, "--time-column", 2)
    if args.share is not None and args.split == "leave-one-out":
        raise ValueError("--share says how much is held out: --split leave-one-out holds out one event of each user")
    events = read_user_events(args, args.source, negative=meaning.relevant is not None, time_column=column)
    names = _models(args, events)
    parts, repeated = _split(args, events)
    relevant = meaning.liked(parts.hidden).astype(bool)
    measured = np.flatnonzero(np.diff(relevant.indptr))
    if measured.size == 0:
        raise ValueError("nothing that was held out is relevant: hold out more, or lower --relevant")
    relevant, shown = relevant[measured], parts.shown[measured]
    facts = {
        "events": events.entries.nnz,
        "pairs_given_more_than_once": repeated,
        "users": len(events.users),
        "items": len(events.items),
        "split": args.split,
        "held_out": parts.hidden.nnz,
        "users_measured": len(measured),
        "k": k,
    }
    models: list[_Measured] = []
    with output_of(args) as out:
        for name in names:
            started = time.perf_counter()
            recommender = learned(name, events, parts.train, meaning, args)
            fitted = time.perf_counter()
            lists = _lists(recommender, parts, measured, shown, k)
            ended = time.perf_counter()
            result, ndcg = ranking.evaluate(lists, relevant), ranking.ndcg_at(lists, relevant)
            models.append(_Measured(name, result, ndcg, fitted - started, (ended - fitted) / len(measured)))
        _show(args, out, facts, models, _advice(args, events, models))


def _models(args: Namespace, events: UserEvents) -> list[str]:
    """Return the models that are asked for, or all that the events allow, the simplest first."""
    if args.models is None:
        rated = events.valued and len(np.unique(events.entries.data)) > 1 and _repeated(events) == 0
        return ["popularity", "item", *(["ratings"] if rated else [])]
    names = [name.strip() for name in args.models.split(",")]
    for name in names:
        if name not in MODELS:
            raise ValueError(f"--models: {', '.join(MODELS)} are there, got {name!r}")
    if "ratings" in names and not events.valued:
        raise ValueError("--models ratings needs a third column with their values")
    return list(dict.fromkeys(names))


def _repeated(events: UserEvents) -> int:
    return events.entries.nnz - events.seen.nnz


def _split(args: Namespace, events: UserEvents) -> tuple[_Parts, int]:
    """Return (parts, events that were added to others of the same user and item)."""
    share = 0.2 if args.share is None else args.share
    chosen = parameters_of(args, SketchedEASE).get("seed", 0)
    seen, repeated = events.seen, _repeated(events)
    if args.split == "users":
        split = ranking.user_split(seen, float(share), seed=chosen)
        return _Parts(split.train, split.shown, split.hidden, None), repeated
    times = events.times
    if times is None:
        two = ranking.random_split(seen, share, seed=chosen) if args.split == "random" else None
        two = two or ranking.leave_one_out(seen, chosen)
    else:
        times = _first_times(events, seen, times)
        if args.split == "time":
            two = ranking.Split(*ranking.time_split(seen, times, share=share)[:2])
        else:
            two = ranking.leave_one_out(seen, times=times)
    return _Parts(two.train, two.train, two.test, np.arange(seen.shape[0], dtype=np.intp)), repeated


def _first_times(events: UserEvents, seen: Any, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time of each pair of user and item: that of the first of its events."""
    coo, n = events.entries, seen.shape[1]
    users = np.repeat(np.arange(seen.shape[0], dtype=np.int64), np.diff(seen.indptr))
    place = np.asarray(np.searchsorted(users * n + seen.indices, coo.row.astype(np.int64) * n + coo.col), np.intp)
    first = np.full(seen.nnz, np.inf)
    np.minimum.at(first, place, times)
    return first


def _lists(recommender: Recommender, parts: _Parts, measured: Any, shown: Any, k: int) -> NDArray[np.int64]:
    """Return recommendations (measured users, k) without what these users have been shown to have."""
    names = recommender.users
    if names is not None and parts.known is not None:  # a model that knows its users, and has learned from these
        users = [names[int(i)] for i in parts.known[measured]]
        return recommender.best(users, None, k, shown, None).items
    return recommender.best([""] * len(measured), shown, k, shown, None).items


# -- what is said ------------------------------------------------------------------------------------------------------
def _advice(args: Namespace, events: UserEvents, models: list[_Measured]) -> list[str]:
    """Return warnings of models that the figures show to be the wrong tool."""
    said: list[str] = []
    by_name = {one.name: one for one in models}
    ratings = by_name.get("ratings")
    for other in ("item", "popularity"):
        if ratings is None or other not in by_name:
            continue
        gap = ranking.mean_of(by_name[other].ndcg - ratings.ndcg)
        if gap.mean > 2 * gap.standard_error:
            said.append(
                f"ratings is the wrong tool for lists of recommendations here: its NDCG is {gap.mean:.4f} "
                f"(+- {gap.standard_error:.4f}, paired) below that of {other}; it says what users would think of an "
                "item, not what they will choose"
            )
            break
    levels = levels_of(events)
    if levels is not None and args.relevant is None and not args.binary:
        said.append(
            f"values take {len(levels)} levels from {levels[0]:g} to {levels[-1]:g}: if they are ratings, --relevant "
            f"{levels[int(0.6 * len(levels))]:g} counts as a hit what was liked, not what was seen"
        )
    values = events.entries.data
    if levels is None and events.valued and args.relevant is None and not args.binary and (values % 1 == 0).all():
        said.append(
            f"values are whole numbers up to {values.max():g}: if they are counts, --binary lets every pair of user "
            "and item count once, which is mostly better than that a few large ones outweigh the rest"
        )
    return said


def _show(args: Namespace, out: Output, facts: dict[str, Any], models: list[_Measured], advice: list[str]) -> None:
    if args.json:
        shown = [
            {
                "model": one.name,
                **{name: getattr(one.result, name)._asdict() for name in COLUMNS},
                "coverage": one.result.coverage,
                "fit_seconds": one.fit_seconds,
                "seconds_per_user": one.seconds_per_user,
            }
            for one in models
        ]
        out.report({**facts, "models": shown, "notes": advice})
        return
    out.report(facts)
    heads = [f"{title}@{facts['k']}" for title in COLUMNS.values()]
    out.say(f"{'model':<12}{''.join(f'{head:>18}' for head in heads)}  {'coverage':>8}  {'fit, s':>8}  {'ms/user':>8}")
    for one in models:
        means = [getattr(one.result, name) for name in COLUMNS]
        cells = [f"{mean.mean:.4f} +- {mean.standard_error:.4f}" for mean in means]
        out.say(
            f"{one.name:<12}{''.join(f'{cell:>18}' for cell in cells)}  {one.result.coverage:>8.4f}  "
            f"{one.fit_seconds:>8.2f}  {1e3 * one.seconds_per_user:>8.3f}"
        )
    for line in advice:
        warnings.warn(line, UserWarning, stacklevel=2)
