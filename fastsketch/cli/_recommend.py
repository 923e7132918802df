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
from fastsketch.cli._flags import TABLE_OPTIONS, Verb, as_column, flag, parameter, split_names
from fastsketch.cli._output import open_output
from fastsketch.cli._reading import load_model, reading_notes, remembered_reading
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.names import IdMap, Triples
from fastsketch.data.names._triples import describe_pair
from fastsketch.recommending import SketchedEASE

# First bytes of a state file, which is a zip archive.
STATE_FILE_START = b"PK\x03\x04"
EVENTS_NOTE = "events"


class EventMeaning(NamedTuple):
    """How a recommender interprets the values of events; it is saved in the notes of the model for later events."""

    relevant: float | None  # a pair of user and item counts 1 if its summed value is at least this, otherwise 0
    binary: bool  # every pair counts 1, whatever its value and however often it occurs

    def liked(self, events: Triples) -> Triples:
        """Return a table of the (user, item) pairs that count as liked, each once, with the values to learn.

        Values of a pair that occurs several times are added up first.
        """
        pairs = events.matrix().tocoo()  # values of a pair are added up
        relevant = None if events.values is None else self.relevant
        is_liked = pairs.data > 0 if relevant is None else pairs.data >= relevant
        liked = copy(events)
        liked.users, liked.items = pairs.row[is_liked], pairs.col[is_liked]
        has_values = not (self.binary or events.values is None or relevant is not None)
        liked.values = pairs.data[is_liked] if has_values else None
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
    SETTABLE = TABLE_OPTIONS

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
    columns: list[str] | None = flag("--columns", type=split_names)
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
        with open_output(self) as out:
            started = time.perf_counter()
            model, learned = (self._load(), None) if saved else self._learn_from_events()
            if self.output:
                out.save(model)
            if self.output is None or learned is None or answers:
                self._print_recommendations(model, learned)
            else:
                seconds = time.perf_counter() - started
                out.report({**model.facts(), "events": learned.matrix().nnz, "seconds": seconds})

    # -- models --------------------------------------------------------------------------------------------------------
    def _refuse_learning(self) -> None:
        """Raise ValueError if the command line sets an argument that only applies to learning."""
        flags = ["--relevant"] * (self.relevant is not None) + ["--binary"] * self.binary
        for flag_name in [*flags, *map(self.flag_of, self.given_parameters())]:
            raise ValueError(f"{flag_name} says how a model is learned from events: {self.source} holds one already")
        if self.output:
            raise ValueError(f"-o saves a model learned from events: {self.source} holds one already")

    def _load(self) -> SketchedEASE:
        """Return the item model that is loaded from the file of the command line.

        Raise SourceError if its items have no ids, or if two ids have the same text.
        """
        advice = "that does a model of 'recommend EVENTS.csv -o MODEL.fsk', or another SketchedEASE"
        model = load_model(self.source, SketchedEASE, f", which recommends nothing here: {advice}")
        if model.item_ids is None:
            raise SourceError(f"{self.source} holds no ids of items: it was learned from a matrix without item_ids")
        if len({str(item) for item in model.item_ids}) < len(model.item_ids):
            raise SourceError(f"{self.source} has two ids that are the same in text, such as 7 and '7'")
        return model

    def _learn_from_events(self) -> tuple[SketchedEASE, Triples]:
        """Learn an item model from the events, and return the model and the events."""
        if self.relevant is not None and not np.isfinite(self.relevant):
            raise ValueError(f"--relevant must be finite, got {self.relevant}")
        reading = self._reading({})
        meaning = EventMeaning(self.relevant, self.binary)
        events = _sort_ids(self._read_file(self.source, reading, meaning))
        if events.values is None and meaning.relevant is None:
            meaning = meaning._replace(binary=True)
        elif events.values is None:
            events.values = np.ones(len(events))  # --relevant N: pairs that occur at least N times
        liked = meaning.liked(events)
        if not len(liked):
            raise ValueError("no event counts: none has a value above 0, or of --relevant or more")
        model = SketchedEASE(**self.parameters(SketchedEASE)).update(liked)
        model.recommend(liked.matrix()[:1], 1)  # derives the item weights from the sketch, a part of learning
        model.notes = {EVENTS_NOTE: meaning._asdict(), **reading_notes(reading)}
        return model, events

    def _reading(self, notes: dict[str, Any]) -> dict[str, Any]:
        """Return the options for reading events: those in the notes of a model, overridden by the command line."""
        remembered = {
            name: value for name, value in remembered_reading(notes).items() if name in (*TABLE_OPTIONS, "columns")
        }
        columns = {} if self.columns is None else {"columns": list(map(as_column, self.columns))}
        return {**remembered, **self.reading, **columns}

    def _read_file(
        self, path: str, reading: dict[str, Any], meaning: EventMeaning, known_items: Sequence[str] = ()
    ) -> Triples:
        """Return the events of a file as Triples; SourceError for negative values without --relevant.

        `known_items` are the items of a model: a first line that contains one is not taken for a header.
        """
        events = _read_events(path, reading, known_items)
        if events.values is not None and meaning.relevant is None and len(events) and events.values.min() < 0:
            worst = int(np.argmax(events.values < 0))
            raise SourceError(
                f"{path}: the value {events.values[worst]:g} of {describe_pair(events, worst)} is negative, and what "
                "has no value for a user leaves no event: --relevant X says which values count"
            )
        return events

    # -- answers -------------------------------------------------------------------------------------------------------
    def _print_recommendations(self, model: SketchedEASE, learned: Triples | None) -> None:
        """Print or write recommendations for users.

        They are based on the events of --events or --items, or on those that the model was learned from, `learned`.
        """
        meaning = _event_meaning(model.notes, self.source)
        user_events = self._events_of_users(model, learned, meaning)
        liked = meaning.liked(user_events)
        best = model.recommend(liked, self.n, exclude_seen=False, exclude=None if self.include_seen else user_events)
        is_known_user = np.zeros(len(user_events.user_ids), bool)
        is_known_user[liked.users[model.popularity[liked.items] > 0]] = True
        entries: list[dict[str, Any]] = [
            {
                "id": user,
                "known": bool(is_known),
                "items": [str(item) for item, score in zip(items, scores, strict=True) if not np.isnan(score)],
                "scores": [float(score) for score in scores if not np.isnan(score)],
            }
            for user, items, scores, is_known in zip(user_events.user_ids, *best[:2], is_known_user, strict=True)
        ]
        with open_output(replace(self, output=self.table), ".csv") as out:
            if self.table:
                out.write_csv(_csv_rows(entries))
                out.report({"users": len(entries), "not_known": int((~is_known_user).sum())})
            elif self.json:
                out.report({"recommendations": entries})
            else:
                for entry in entries:
                    pairs = zip(entry["items"], entry["scores"], strict=True)
                    text = "  ".join(f"{name} ({score:.4g})" for name, score in pairs)
                    out.print_lines(f"{entry['id']}{'' if entry['known'] else ' (unknown: popular items)'}: {text}")

    def _events_of_users(self, model: SketchedEASE, events: Triples | None, meaning: EventMeaning) -> Triples:
        """Return a table of the past events of the users who get recommendations, with the item ids of the model."""
        assert model.item_ids is not None
        names = [str(item) for item in model.item_ids]
        if self.items:
            if unknown := [name for name in self.items if name not in names]:
                raise ValueError(f"--items: the model does not know {', '.join(map(repr, unknown[:5]))}")
            return _select_events(Triples(["--items"] * len(self.items), self.items), ["--items"], model.item_ids)
        if self.events:
            events = self._read_file(self.events, self._reading(model.notes), meaning, names)
        if events is None:
            raise ValueError(
                f"{self.source} holds an item model, which keeps no users: --events FILE has what they have, or "
                "--items ID ... names the items of one"
            )
        users = list(dict.fromkeys(self.ids)) or sorted(map(str, events.user_ids))
        return _select_events(events, users, model.item_ids)


def _is_state(path: str) -> bool:
    """Return True if a path is a regular file that begins like a state file."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(STATE_FILE_START)) == STATE_FILE_START
    except (OSError, ValueError):
        return False


def _read_events(path: str, reading: dict[str, Any], known_items: Sequence[str]) -> Triples:
    """Return the users, items and values of a file of events, as Triples.

    If it is ambiguous whether the first line is a header, it is not one if it contains a known item.
    """
    try:
        return Triples.of(path, **reading)
    except SourceError:
        if not known_items or "header" in reading:
            raise
        with contextlib.suppress(SourceError):
            table = Triples.of(path, **reading, header=False)
            if str(table.item_ids[int(table.items[0])]) in known_items:
                return table
        raise


def _event_meaning(notes: dict[str, Any], path: str) -> EventMeaning:
    """Return the EventMeaning in the notes of a model, or one that uses values unchanged if there is no such note.

    Raise StateError if the note is invalid.
    """
    events: Any = notes.get(EVENTS_NOTE, {})
    note = cast("dict[str, Any]", events) if isinstance(events, dict) else {}
    relevant, binary = note.get("relevant"), note.get("binary")
    if events != {} and not (isinstance(binary, bool) and (relevant is None or isinstance(relevant, float))):
        raise StateError(f"{path} is damaged: its notes do not say what its events mean")
    return EventMeaning(relevant, bool(binary))


def _sort_ids(events: Triples) -> Triples:
    """Return events with users and items numbered in the order of their ids, independent of the order of lines."""
    ordered = copy(events)
    ordered.user_ids, ordered.item_ids = (IdMap(sorted(ids, key=str)) for ids in (events.user_ids, events.item_ids))
    ordered.users = ordered.user_ids.places(events.user_ids).astype(np.int32)[events.users]
    ordered.items = ordered.item_ids.places(events.item_ids).astype(np.int32)[events.items]
    return ordered


def _select_events(events: Triples, users: Sequence[str], items: IdMap) -> Triples:
    """Return the events of the given users with known items, renumbered as in `users` and `items`.

    Users without events have no lines. Ids are compared as text. A warning counts events with unknown items.
    """
    user = IdMap(users).places(list(map(str, events.user_ids))).astype(np.int32)[events.users]
    item = IdMap(list(map(str, items))).places(list(map(str, events.item_ids))).astype(np.int32)[events.items]
    is_known, selected = (user >= 0) & (item >= 0), copy(events)
    if lost := int(((user >= 0) & (item < 0)).sum()):
        warn_caller(
            f"{lost:,} of {lost + int(is_known.sum()):,} events of these users are of items that the model does not "
            "know"
        )
    selected.user_ids, selected.item_ids = IdMap(users), items
    selected.users, selected.items = user[is_known], item[is_known]
    selected.values = None if events.values is None else events.values[is_known]
    return selected


def _csv_rows(entries: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield csv rows of recommendations: a header, then (user, rank from 1, item, score)."""
    yield "user", "place", "item", "score"
    for entry in entries:
        for rank, (item, score) in enumerate(zip(entry["items"], entry["scores"], strict=True), 1):
            yield entry["id"], rank, item, f"{score:.9g}"
