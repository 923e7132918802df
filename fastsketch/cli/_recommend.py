"""recommend: the best items for users, from their events or from an item model that was learned from some."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import sparse

from fastsketch._core.validation import as_integer
from fastsketch._core.warning import warn_caller
from fastsketch.cli._flags import TABLES, Verb, as_column, flag, listed, parameter
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import load_model, reading_notes, remembered_reading
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.names import Triples
from fastsketch.recommending import SketchedEASE

# How a state file begins: it is a zip.
STATE = b"PK\x03\x04"
EVENTS = "events"


class Meaning(NamedTuple):
    """What events say of a user's liking, as an item model learns it: a note of the model, for later events."""

    relevant: float | None  # events of at least this value count as 1, others say no more than that they were seen
    binary: bool  # every event counts as 1, whatever its value and however often it came

    def liked(self, seen: Any) -> Any:
        """Return the rows that an item model takes, of rows of summed values (CSR)."""
        data = seen.data
        if self.relevant is not None:
            data = (data >= self.relevant).astype(np.float64)
        elif self.binary:
            data = (data > 0).astype(np.float64)
        out = sparse.csr_array((data, seen.indices, seen.indptr), shape=seen.shape, copy=True)
        out.eliminate_zeros()  # in place
        return out


class Events(NamedTuple):
    """Events of users: rows of summed values, CSR (users, items); zeros are entries too."""

    users: list[str]
    items: list[Any]
    rows: Any
    valued: bool


@dataclass(kw_only=True)
class Recommend(Verb):
    """Learn from events, lines of user, item and, if there is one, value, which items go together (SketchedEASE), and
    print the best items for users; or ask a model that was saved by -o. Comma- or tab-separated text (.gz, .bz2, .xz
    too) or Parquet, whose columns are known by their names, such as user, item and rating; a line says which were
    taken. Without values a user's item counts 1, however often it comes; values of one user and item are added up. A
    user without events gets the most popular items, and the line says so.

    Parameters
    ----------
    source : EVENTS.csv|MODEL.fsk
        events to learn from, or a model
    ids : ID
        users (default: all of the file)
    n : N
        items of each (default 10)
    events : FILE
        what these users have, if not the file learned from
    items : ID
        what one user has, instead of IDs
    include_seen
        also what a user has in the events
    table : OUT.csv
        write user, place, item, score there, or to -
    output : MODEL.fsk
        save the model; alone: and print nothing else
    relevant : X
        values from X on count as 1, lower ones as seen and no more (4 for five stars)
    binary
        every event counts 1, whatever its value, however often
    columns : A,B[,C]
        names or numbers (from 0) of the columns of users, items and values (default: by their names; without such
        names, two or three columns in this order; never times)
    sketch_size : L
        rows of the sketch, at least 2 (default 256)

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
        """Print the best items for users, or save a model that recommends."""
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
                out.report({**model.facts(), "events": learned.rows.nnz, "seconds": seconds})

    # -- models --------------------------------------------------------------------------------------------------------
    def _refuse_learning(self) -> None:
        given = ["--relevant"] * (self.relevant is not None) + ["--binary"] * self.binary
        for shown in [*given, *map(self.flag_of, self.given_parameters())]:
            raise ValueError(f"{shown} says how a model is learned from events: {self.source} holds one already")
        if self.output:
            raise ValueError(f"-o saves a model learned from events: {self.source} holds one already")

    def _loaded(self) -> SketchedEASE:
        """Return the item model in a state file, whose items have ids."""
        does = "that does a model of 'recommend EVENTS.csv -o MODEL.fsk', or another SketchedEASE"
        model = load_model(self.source, SketchedEASE, f", which recommends nothing here: {does}")
        if model.item_ids is None:
            raise SourceError(f"{self.source} holds no ids of items: it was learned from a matrix without item_ids")
        if len({str(item) for item in model.item_ids}) < len(model.item_ids):
            raise SourceError(f"{self.source} has two ids that are the same in text, such as 7 and '7'")
        return model

    def _learned(self) -> tuple[SketchedEASE, Events]:
        if self.relevant is not None and not np.isfinite(self.relevant):
            raise ValueError(f"--relevant must be finite, got {self.relevant}")
        reading = self._reading({})
        meaning = Meaning(self.relevant, self.binary)
        events = self._read(self.source, reading, meaning)
        if not events.valued and meaning.relevant is None:
            meaning = meaning._replace(binary=True)  # as tables without values in ``update``
        liked = meaning.liked(events.rows)
        if not liked.nnz:
            raise ValueError("no event counts: none has a value above 0, or of --relevant or more")
        model = SketchedEASE(**self.parameters(SketchedEASE))
        _check_size(liked, events.items, model)
        model.update(liked, item_ids=events.items)
        model.recommend(liked[:1], 1)  # reads the sketch, which is a part of learning
        model.notes = {EVENTS: meaning._asdict(), **reading_notes(reading)}
        return model, events

    def _reading(self, notes: dict[str, Any]) -> dict[str, Any]:
        """Return how tables of events are read: as the notes remember, but for the options that are given."""
        remembered = {name: value for name, value in remembered_reading(notes).items() if name in (*TABLES, "columns")}
        columns = {} if self.columns is None else {"columns": list(map(as_column, self.columns))}
        return {**remembered, **self.reading, **columns}

    def _read(self, path: str, reading: dict[str, Any], meaning: Meaning, known: Sequence[str] = ()) -> Events:
        """Read the events of a file, users and items in the order of their names; only --relevant allows negatives.

        known: items of a model, of which none is the name of a column.
        """
        table = _events_in(path, reading, known)
        if table.values is not None and meaning.relevant is None and len(table) and table.values.min() < 0:
            worst = int(np.argmax(table.values < 0))
            pair = f"({table.user_ids[int(table.users[worst])]}, {table.item_ids[int(table.items[worst])]})"
            raise SourceError(
                f"{path}: the value {table.values[worst]:g} of the pair {pair} is negative, and what has no value for "
                "a user leaves no event: --relevant X says which values count"
            )
        users, items = (np.array([str(name) for name in ids]) for ids in (table.user_ids, table.item_ids))
        by_user, by_item = np.argsort(users, kind="stable"), np.argsort(items, kind="stable")
        rows = sparse.csr_array(table.matrix()[by_user][:, by_item]).astype(np.float64)
        named = [table.item_ids[int(k)] for k in by_item]
        return Events(users[by_user].tolist(), named, rows, table.values is not None)

    # -- answers -------------------------------------------------------------------------------------------------------
    def _answer(self, model: SketchedEASE, learned: Events | None) -> None:
        """Print recommendations for users by the events of --events, or of the file that was learned from."""
        users, seen = self._users(model, learned)
        liked = _meaning_in(model.notes, self.source).liked(seen)
        assert model.item_ids is not None
        items: Sequence[Any] = list(model.item_ids)
        _check_size(liked, items, model)
        exclude = None if self.include_seen else seen
        best = model.recommend(liked, self.n, exclude_seen=False, exclude=exclude)
        known = liked @ (model.popularity > 0) > 0
        entries: list[dict[str, Any]] = [
            {
                "id": user,
                "known": bool(is_known),
                "items": [str(item) for item, score in zip(found, scores, strict=True) if not np.isnan(score)],
                "scores": [float(score) for score in scores if not np.isnan(score)],
            }
            for user, found, scores, is_known in zip(users, *best[:2], known, strict=True)
        ]
        with output_of(replace(self, output=self.table), ".csv") as out:
            if self.table:
                out.write_csv(_lines(entries))
                out.report({"users": len(users), "not_known": int((~known).sum())})
            elif self.json:
                out.report({"recommendations": entries})
            else:
                for entry in entries:
                    pairs = zip(entry["items"], entry["scores"], strict=True)
                    shown = "  ".join(f"{name} ({score:.4g})" for name, score in pairs)
                    out.say(f"{entry['id']}{'' if entry['known'] else ' (unknown: popular items)'}: {shown}")

    def _users(self, model: SketchedEASE, learned: Events | None) -> tuple[list[str], Any]:
        """Return (users, their rows of summed values in the model's items, CSR)."""
        assert model.item_ids is not None
        items, meaning = [str(item) for item in model.item_ids], _meaning_in(model.notes, self.source)
        unvalued = 1.0 if meaning.relevant is None else max(1.0, meaning.relevant)  # an event that is there counts
        if self.items:
            places = _places(self.items, items)
            if unknown := [name for name, place in zip(self.items, places, strict=True) if place < 0]:
                raise ValueError(f"--items: the model does not know {', '.join(map(repr, unknown[:5]))}")
            row = np.zeros((1, len(items)))
            row[0, places] = unvalued
            return ["--items"], sparse.csr_array(row)
        if self.events:
            learned = self._read(self.events, self._reading(model.notes), meaning, items)
            if not learned.valued:
                learned = learned._replace(rows=learned.rows * unvalued)
        if learned is None:
            raise ValueError(
                f"{self.source} holds an item model, which keeps no users: --events FILE has what they have, or "
                "--items ID ... names the items of one"
            )
        users = self.ids or learned.users
        return users, _rows_of(learned, users, items)


def _is_state(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(STATE)) == STATE
    except (OSError, ValueError):
        return False


def _events_in(path: str, reading: dict[str, Any], known: Sequence[str]) -> Triples:
    """Return a table of events. Where nothing else tells, a first line with a known item is no header."""
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
    """Return what the notes of a model say that events mean; one without such a note takes values as they are."""
    events: Any = notes.get(EVENTS, {})
    known = cast("dict[str, Any]", events) if isinstance(events, dict) else {}
    relevant, binary = known.get("relevant"), known.get("binary")
    if events != {} and not (isinstance(binary, bool) and (relevant is None or isinstance(relevant, float))):
        raise StateError(f"{path} is damaged: its notes do not say what its events mean")
    return Meaning(relevant, bool(binary))


def _check_size(liked: Any, items: Sequence[Any], model: SketchedEASE) -> None:
    """Raise ValueError with the id of an item whose values leave the range of the model's numbers."""
    dtype = model.resolved["dtype"]
    huge = liked.data > np.finfo(dtype).max
    if huge.any():
        place = int(np.argmax(huge))
        raise ValueError(
            f"the values of a user for the item {items[liked.indices[place]]!r} add up to {liked.data[place]:g}, more "
            f"than {dtype} holds: --binary counts every event as 1"
        )


def _places(ids: Sequence[str], known: Sequence[str]) -> list[int]:
    """Return the index of each id, -1 for one that is not known."""
    index = {name: place for place, name in enumerate(known)}
    return [index.get(name, -1) for name in ids]


def _rows_of(events: Events, users: Sequence[str], items: Sequence[str]) -> Any:
    """Return the rows of users in a model's items, CSR (len(users), len(items)); empty for those without events."""
    empty = sparse.csr_array((1, len(events.items)))
    stacked = sparse.csr_array(sparse.vstack([events.rows, empty], format="csr"))
    chosen = stacked[_places(users, events.users)].tocoo()  # -1, the last, for whom it does not know
    places = np.array(_places([str(item) for item in events.items], items), np.intp)[chosen.col]
    kept = places >= 0
    if not kept.all():
        warn_caller(
            f"{int((~kept).sum()):,} of {len(kept):,} events of these users are of items that the model does not know"
        )
    entries = chosen.data[kept], (chosen.row[kept], places[kept])
    return sparse.csr_array(sparse.coo_array(entries, shape=(len(users), len(items))))


def _lines(entries: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield lines of user, place from 1, item, score."""
    yield "user", "place", "item", "score"
    for entry in entries:
        for place, (item, score) in enumerate(zip(entry["items"], entry["scores"], strict=True), 1):
            yield entry["id"], place, item, f"{score:.9g}"
