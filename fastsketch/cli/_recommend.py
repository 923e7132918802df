"""recommend: from events, or from a model that was learned from them."""

import time
import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fastsketch._core.losses import LOSSES
from fastsketch._core.validation import as_integer
from fastsketch.cli._flags import flag_of
from fastsketch.cli._output import output_of
from fastsketch.cli._recommenders import (
    ItemModel,
    Ratings,
    Recommender,
    learned,
    loaded,
    warn_of_ratings,
)
from fastsketch.cli._user_events import Meaning, UserEvents, meaning_of, pairs_of, places_of, read_user_events, rows_for
from fastsketch.data.files import SourceError
from fastsketch.data.names._events import read_ids

# How a state file begins: it is a zip.
STATE = b"PK\x03\x04"
# Flags that say how a model is learned, beside those of its parameters.
OF_LEARNING = {"kind": "--model", "relevant": "--relevant", "binary": "--binary"}


def recommend(args: Namespace) -> None:
    """Print the best items for users, or save a model that recommends."""
    as_integer(args.n, "-n", 1)
    if args.items and (args.ids or args.events):
        raise ValueError("--items are those of one user: it goes with neither IDs nor --events")
    answers = bool(args.ids or args.items or args.events or args.table)
    saved = _is_state(args.source)
    if saved:
        _refuse_learning(args)
        if args.output:
            raise ValueError(f"-o saves a model learned from events: {args.source} holds one already")
    if answers and args.output == "-" and args.table in (None, "-"):
        raise ValueError("-o - writes the model to standard output: what is recommended needs --table OUT.csv")
    with output_of(args) as out:
        started = time.perf_counter()
        recommender, own = (loaded(args.source, args.rank), None) if saved else _learn(args)
        model = recommender.noted() if args.output else None
        if model is not None:
            out.save(model)
        if model is None or own is None or answers:
            _answer(args, recommender, own)
        else:
            seconds = time.perf_counter() - started
            out.report({**model.facts(), "events": own.entries.nnz, "seconds": seconds})


def _learn(args: Namespace) -> tuple[Recommender, UserEvents]:
    name = args.kind or "item"
    meaning = meaning_of(args)
    events = read_user_events(args, args.source, negative=name == "ratings" or meaning.relevant is not None)
    if name != "ratings" and args.rank is not None:
        raise ValueError("--rank is of --model ratings")
    recommender = learned(name, events, events.entries, meaning, args)
    if name == "ratings":
        warn_of_ratings()
    return recommender, events


def _is_state(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(STATE)) == STATE
    except (OSError, ValueError):
        return False


def _refuse_learning(args: Namespace) -> None:
    given = [shown for name, shown in OF_LEARNING.items() if getattr(args, name) not in (None, False)]
    for shown in [*given, *(flag_of(args, name) for name in args.settings)]:
        raise ValueError(f"{shown} says how a model is learned from events: {args.source} holds one already")


# -- users -------------------------------------------------------------------------------------------------------------
def _answer(args: Namespace, recommender: Recommender, own: UserEvents | None) -> None:
    """Print recommendations for these users, out of `--events`, or of the file that was learned from."""
    users, seen = _users(args, recommender, own)
    exclude = _left_out(args, recommender, users, seen)
    allow = None if args.allow is None else _allowed(args.allow, recommender.items)
    # a model of ratings knows the users that it has learned from
    told = None if isinstance(recommender, Ratings) and args.events is None and not args.items else seen
    answers = recommender.best(users, told, args.n, exclude, allow)
    entries: list[dict[str, Any]] = [
        {
            "id": user,
            "known": bool(known),
            "items": [recommender.items[j] for j in items if j >= 0],
            "scores": [float(score) for j, score in zip(items, scores, strict=True) if j >= 0],
        }
        for user, items, scores, known in zip(users, *answers, strict=True)
    ]
    with output_of(Namespace(**{**vars(args), "output": args.table}), ".csv") as out:
        if args.table:
            out.write_csv(_lines(entries))
            out.report({"users": len(users), "not_known": int((~answers.known).sum())})
        elif args.json:
            out.report({"recommendations": entries})
        else:
            for entry in entries:
                pairs = zip(entry["items"], entry["scores"], strict=True)
                shown = "  ".join(f"{name} ({score:.4g})" for name, score in pairs)
                out.say(f"{entry['id']}{'' if entry['known'] else f' (unknown: {recommender.fallback})'}: {shown}")


def _lines(entries: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield lines of user, place from 1, item, score."""
    yield "user", "place", "item", "score"
    for entry in entries:
        for place, (item, score) in enumerate(zip(entry["items"], entry["scores"], strict=True), 1):
            yield entry["id"], place, item, f"{score:.9g}"


def _users(args: Namespace, recommender: Recommender, own: UserEvents | None) -> tuple[list[str], Any]:
    """Return (users, their rows of summed values in the model's items, CSR; None where no file has them)."""
    free, one = _of_events(recommender)
    if args.items:
        _refuse_unvalued(recommender, "--items ID ... has none")
        return ["--items"], _row_of(args.items, recommender.items) * one
    if args.events:
        own = read_user_events(args, args.events, negative=free, known=recommender.items)
        if not own.valued:
            _refuse_unvalued(recommender, f"{args.events} has none")
            own = own._replace(entries=own.entries * one)
    if own is None:
        if recommender.users is None:
            raise ValueError(
                f"{args.source} holds an item model, which keeps no users: --events FILE has what they have, or "
                "--items ID ... names the items of one"
            )
        return args.ids or recommender.users, None
    users = args.ids or own.users
    return users, rows_for(own, users, recommender.items)


def _of_events(recommender: Recommender) -> tuple[bool, float]:
    """Return (whether events may have negative values, the value of those without one)."""
    if isinstance(recommender, Ratings):
        return True, 1.0
    meaning = recommender.meaning if isinstance(recommender, ItemModel) else Meaning(None, False)
    return meaning.relevant is not None, meaning.unvalued


def _refuse_unvalued(recommender: Recommender, what: str) -> None:
    """Raise ValueError for a model of numbers, which would take 1 for the rating of what has no value."""
    if isinstance(recommender, Ratings) and LOSSES[recommender.model.loss].targets == "real":
        raise ValueError(
            f"a model of ratings needs the values of what new users have, and {what}: --events FILE with a third column"
        )


def _row_of(names: list[str], items: list[str]) -> Any:
    """Return the row of one user."""
    places, row = places_of(names, items), np.zeros((1, len(items)))
    unknown = [name for name, place in zip(names, places, strict=True) if place < 0]
    if unknown:
        raise ValueError(f"--items: the model does not know {', '.join(map(repr, unknown[:5]))}")
    row[0, places] = 1.0
    return sparse.csr_array(row)


def _left_out(args: Namespace, recommender: Recommender, users: list[str], seen: Any) -> Any:
    """Return pairs that are not recommended, CSR (users, items): seen ones, unless --include-seen, and --exclude."""
    parts = [] if seen is None or args.include_seen else [seen.tocoo()]
    if args.exclude:
        each = sorted(set(users))
        pairs = pairs_of(args.exclude, each, recommender.items)
        parts.append(pairs[places_of(users, each)].tocoo())
    rows = np.concatenate([np.zeros(0, np.intp), *(part.row for part in parts)])
    columns = np.concatenate([np.zeros(0, np.intp), *(part.col for part in parts)])
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(users), len(recommender.items)))


def _allowed(path: str, items: list[str]) -> Any:
    """Return the places of the items of a list."""
    names = read_ids(path)
    places = places_of(list(names), items)
    unknown = [name for name, place in zip(names, places, strict=True) if place < 0]
    if unknown:
        said = f"{path}, line {names[unknown[0]]}: the model does not know the item {unknown[0]!r}"
        if len(unknown) == len(names):
            raise SourceError(f"{said}, nor any other of the list")
        more = f", nor {len(unknown) - 1:,} more of {len(names):,}" if len(unknown) > 1 else ""
        warnings.warn(said + more, UserWarning, stacklevel=2)
    return places[places >= 0]
