"""The subcommand recommend, which prints the best items for users, by an item model that is learned from events or
loaded.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from fastsketch._core.validation import as_integer
from fastsketch._core.warning import warn_caller
from fastsketch.cli._flags import TABLES, Verb, as_column, flag, listed, parameter
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import load_model, reading_notes, remembered_reading
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.names import IdMap, Triples
from fastsketch.data.names._triples import pair_of
from fastsketch.recommending import SketchedEASE

# First bytes of a state file, which is a zip archive.
STATE = b"PK\x03\x04"
EVENTS = "events"


class Meaning(NamedTuple):
    """How a recommender interprets the values of events; it is saved in the notes of the model for later events."""

    relevant: float | None  # a pair of user and item counts 1 if its summed value is at least this, otherwise 0
    binary: bool  # every pair counts 1, whatever its value and however often it occurs

    def liked(self, events: Triples) -> Triples:
        """Return the (user, item) pairs that count as liked, each once, with the value that the model learns."""
        pairs = events.matrix().tocoo()  # values of a pair are added up
        relevant = None if events.values is None else self.relevant
        counts = pairs.data > 0 if relevant is None else pairs.data >= relevant
        liked = copy(events)
        liked.users, liked.items = pairs.row[counts], pairs.col[counts]
        valued = not (self.binary or events.values is None or relevant is not None)
        liked.values = pairs.data[counts] if valued else None
        return liked


@dataclass(kw_only=True)
class Recommend(Verb):
    """Learn from events which items go together (SketchedEASE), and print the best items for users; or use a model that
    was saved with -o.

    Events are lines of user, item and optionally value, in comma- or tab-separated text (also .gz, .bz2, .xz) or
    Parquet. Columns are found by their names, such as user, item and rating, and a line says which were chosen. Values
    of one user and item are added up; without values each pair counts 1, however often it occurs. A user without events
    gets the most popular items, and the line says so.

    Parameters
    ----------
    source : EVENTS.csv|MODEL.fsk
        events to learn from, or a saved model
    ids : ID
        users (default: all of the file)
    n : N
        number of items for each user (default 10)
    events : FILE
        events of these users, if not the file that is learned from
    items : ID
        items of one user, instead of IDs
    include_seen
        recommend also items that the user has
    table : OUT.csv
        write lines of user, place, item and score there, or to -
    output : MODEL.fsk
        save the model; without IDs, --items, --events and --table nothing is recommended
    relevant : X
        values of at least X count 1; lower ones only mark an item as seen (4 for five stars)
    binary
        every pair counts 1, whatever its value and however often it occurs
    columns : A,B[,C]
        names or numbers (from 0) of the columns of users, items and values (default: by their names; without such
        names, two or three columns in this order; never times)
    sketch_size : L
        maximal number of rows of the sketch, at least 2 (default 256)

    Examples
    --------
    fastsketch recommend ratings.csv alice bob -n 3
    """

    MODELS = ("SketchedEASE",)
    SETTABLE = TABLES

    source: str = flag()
    ids: list[str] = flag(nargs="*")
    n: int = flag("-n", type=int, default=10)
    events: str | None = flag("--events")
    items: list[str] | None = flag("--items", nargs="+")
    include_seen: bool = flag("--include-seen", action="store_true")
    table: str | None = flag("--table")
    output: str | None = flag("-o", "--output")
    relevant: float | None = flag("--relevant", type=float)
    binary: bool = flag("--binary", action="store_true")
    columns: list[str] | None = flag("--columns", type=listed)
    sketch_size: str | None = parameter("-l", "--sketch-size")

    def run(self) -> None:
        """Learn or load a model, save it if requested, and print recommendations."""
        as_integer(self.n, "-n", 1)
        if self.items and (self.ids or self.events):
            raise ValueError("--items are those of one user: it goes with neither IDs nor --events")
        answers = bool(self.ids or self.items or self.events or self.table)
        saved = _is_state(self.source)
        if saved:
            self._refuse_learning()
        if answers and self.output == "-" and self.table in (None, "-"):
            raise ValueError("-o - writes the model to standard output: what is recommended needs --table OUT.csv")
        with output_of(self) as out:
            started = time.perf_counter()
            model, learned = (self._loaded(), None) if saved else self._learned()
            if self.output:
                out.save(model)
            if self.output is None or learned is None or answers:
                self._answer(model, learned)
            else:
                seconds = time.perf_counter() - started
                out.report({**model.facts(), "events": learned.matrix().nnz, "seconds": seconds})

    # -- models --------------------------------------------------------------------------------------------------------
    def _refuse_learning(self) -> None:
        """Raise ValueError if the command line sets an argument that only applies to learning."""
        given = ["--relevant"] * (self.relevant is not None) + ["--binary"] * self.binary
        for shown in [*given, *map(self.flag_of, self.given_parameters())]:
            raise ValueError(f"{shown} says how a model is learned from events: {self.source} holds one already")
        if self.output:
            raise ValueError(f"-o saves a model learned from events: {self.source} holds one already")

    def _loaded(self) -> SketchedEASE:
        """Load the item model from its file.

        Raise SourceError if its items have no ids, or if two ids have the same text.
        """
        does = "that does a model of 'recommend EVENTS.csv -o MODEL.fsk', or another SketchedEASE"
        model = load_model(self.source, SketchedEASE, f", which recommends nothing here: {does}")
        if model.item_ids is None:
            raise SourceError(f"{self.source} holds no ids of items: it was learned from a matrix without item_ids")
        if len({str(item) for item in model.item_ids}) < len(model.item_ids):
            raise SourceError(f"{self.source} has two ids that are the same in text, such as 7 and '7'")
        return model

    def _learned(self) -> tuple[SketchedEASE, Triples]:
        """Learn an item model from the events, and return the model and the events."""
        if self.relevant is not None and not np.isfinite(self.relevant):
            raise ValueError(f"--relevant must be finite, got {self.relevant}")
        reading = self._reading({})
        meaning = Meaning(self.relevant, self.binary)
        events = _in_order_of_names(self._read(self.source, reading, meaning))
        if events.values is None and meaning.relevant is None:
            meaning = meaning._replace(binary=True)
        elif events.values is None:
            events.values = np.ones(len(events))  # --relevant N: pairs that occur at least N times
        liked = meaning.liked(events)
        if not len(liked):
            raise ValueError("no event counts: none has a value above 0, or of --relevant or more")
        model = SketchedEASE(**self.parameters(SketchedEASE)).update(liked)
        model.recommend(liked.matrix()[:1], 1)  # derives the item weights from the sketch, a part of learning
        model.notes = {EVENTS: meaning._asdict(), **reading_notes(reading)}
        return model, events

    def _reading(self, notes: dict[str, Any]) -> dict[str, Any]:
        """Return the options for reading events: those in the notes of a model, overridden by the command line."""
        remembered = {name: value for name, value in remembered_reading(notes).items() if name in (*TABLES, "columns")}
        columns = {} if self.columns is None else {"columns": list(map(as_column, self.columns))}
        return {**remembered, **self.reading, **columns}

    def _read(self, path: str, reading: dict[str, Any], meaning: Meaning, known: Sequence[str] = ()) -> Triples:
        """Read the events of a file. Raise SourceError for negative values without --relevant.

        `known` are the items of a model: a first line that contains one is not taken for a header.
        """
        events = _events_in(path, reading, known)
        if events.values is not None and meaning.relevant is None and len(events) and events.values.min() < 0:
            worst = int(np.argmax(events.values < 0))
            raise SourceError(
                f"{path}: the value {events.values[worst]:g} of {pair_of(events, worst)} is negative, and what has no "
                "value for a user leaves no event: --relevant X says which values count"
            )
        return events

    # -- answers -------------------------------------------------------------------------------------------------------
    def _answer(self, model: SketchedEASE, learned: Triples | None) -> None:
        """Print recommendations for users, based on the events of --events or those that the model was learned from."""
        meaning = _meaning_in(model.notes, self.source)
        seen = self._seen(model, learned, meaning)
        liked = meaning.liked(seen)
        best = model.recommend(liked, self.n, exclude_seen=False, exclude=None if self.include_seen else seen)
        known = np.zeros(len(seen.user_ids), bool)
        known[liked.users[model.popularity[liked.items] > 0]] = True
        entries: list[dict[str, Any]] = [
            {
                "id": user,
                "known": bool(is_known),
                "items": [str(item) for item, score in zip(found, scores, strict=True) if not np.isnan(score)],
                "scores": [float(score) for score in scores if not np.isnan(score)],
            }
            for user, found, scores, is_known in zip(seen.user_ids, *best[:2], known, strict=True)
        ]
        with output_of(replace(self, output=self.table), ".csv") as out:
            if self.table:
                out.write_csv(_lines(entries))
                out.report({"users": len(entries), "not_known": int((~known).sum())})
            elif self.json:
                out.report({"recommendations": entries})
            else:
                for entry in entries:
                    pairs = zip(entry["items"], entry["scores"], strict=True)
                    shown = "  ".join(f"{name} ({score:.4g})" for name, score in pairs)
                    out.say(f"{entry['id']}{'' if entry['known'] else ' (unknown: popular items)'}: {shown}")

    def _seen(self, model: SketchedEASE, learned: Triples | None, meaning: Meaning) -> Triples:
        """Return the events of the users who get recommendations, with the item ids of the model."""
        assert model.item_ids is not None
        names = [str(item) for item in model.item_ids]
        if self.items:
            if unknown := [name for name in self.items if name not in names]:
                raise ValueError(f"--items: the model does not know {', '.join(map(repr, unknown[:5]))}")
            return _of_model(Triples(["--items"] * len(self.items), self.items), ["--items"], model.item_ids)
        if self.events:
            learned = self._read(self.events, self._reading(model.notes), meaning, names)
        if learned is None:
            raise ValueError(
                f"{self.source} holds an item model, which keeps no users: --events FILE has what they have, or "
                "--items ID ... names the items of one"
            )
        users = list(dict.fromkeys(self.ids)) or sorted(map(str, learned.user_ids))
        return _of_model(learned, users, model.item_ids)


def _is_state(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(STATE)) == STATE
    except (OSError, ValueError):
        return False


def _events_in(path: str, reading: dict[str, Any], known: Sequence[str]) -> Triples:
    """Read a table of events.

    If it is ambiguous whether line 1 is a header, it is not one if it contains a known item.
    """
    try:
        return Triples.of(path, **reading)
    except SourceError:
        if not known or "header" in reading:
            raise
        with contextlib.suppress(SourceError):
            table = Triples.of(path, **reading, header=False)
            if str(table.item_ids[int(table.items[0])]) in known:
                return table
        raise


def _meaning_in(notes: dict[str, Any], path: str) -> Meaning:
    """Return how to interpret the values of events, from the notes of a model.

    Without such a note values are used unchanged. Raise StateError if the note is invalid.
    """
    events: Any = notes.get(EVENTS, {})
    known = cast("dict[str, Any]", events) if isinstance(events, dict) else {}
    relevant, binary = known.get("relevant"), known.get("binary")
    if events != {} and not (isinstance(binary, bool) and (relevant is None or isinstance(relevant, float))):
        raise StateError(f"{path} is damaged: its notes do not say what its events mean")
    return Meaning(relevant, bool(binary))


def _in_order_of_names(events: Triples) -> Triples:
    """Return the events with users and items sorted by id, so that the order of lines has no influence."""
    ordered = copy(events)
    ordered.user_ids, ordered.item_ids = (IdMap(sorted(ids, key=str)) for ids in (events.user_ids, events.item_ids))
    ordered.users = ordered.user_ids.places(events.user_ids).astype(np.int32)[events.users]
    ordered.items = ordered.item_ids.places(events.item_ids).astype(np.int32)[events.items]
    return ordered


def _of_model(events: Triples, users: Sequence[str], items: IdMap) -> Triples:
    """Return the events of the given users with items that the model knows, numbered as in `users` and `items`.

    Users without events have no lines. Ids are compared as text. A warning counts events with unknown items.
    """
    user = IdMap(users).places(list(map(str, events.user_ids))).astype(np.int32)[events.users]
    item = IdMap(list(map(str, items))).places(list(map(str, events.item_ids))).astype(np.int32)[events.items]
    kept, known = (user >= 0) & (item >= 0), copy(events)
    if lost := int(((user >= 0) & (item < 0)).sum()):
        warn_caller(
            f"{lost:,} of {lost + int(kept.sum()):,} events of these users are of items that the model does not know"
        )
    known.user_ids, known.item_ids = IdMap(users), items
    known.users, known.items = user[kept], item[kept]
    known.values = None if events.values is None else events.values[kept]
    return known


def _lines(entries: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield csv rows of recommendations: a header, then (user, rank from 1, item, score)."""
    yield "user", "place", "item", "score"
    for entry in entries:
        for place, (item, score) in enumerate(zip(entry["items"], entry["scores"], strict=True), 1):
            yield entry["id"], place, item, f"{score:.9g}"
