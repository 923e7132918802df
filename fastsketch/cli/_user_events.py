"""Events of users as matrices with names, and what a model of items learns from them."""

import warnings
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch.cli._reading import columns_of, dialect_of
from fastsketch.data.files import SourceError, StateError
from fastsketch.data.files._table import Dialect, as_dialect
from fastsketch.data.names import IdMap
from fastsketch.data.names._events import read_events
from fastsketch.lowrank import LowRankModel
from fastsketch.recommending import SketchedEASE

# A scale of ratings has so many levels at most.
MOST_LEVELS = 21


class Meaning(NamedTuple):
    """What events say of a user's liking, as a model of items learns it: kept in its notes, for later events."""

    relevant: float | None  # events of at least this value count as 1, others say no more than that they were seen
    binary: bool  # every event counts as 1, whatever its value and however often it came

    @property
    def unvalued(self) -> float:
        """Return the value of an event that comes without one: that it is there says that it counts."""
        return 1.0 if self.relevant is None else max(1.0, self.relevant)

    def liked(self, seen: Any) -> Any:
        """Return the rows that a model of items takes, of rows of summed values (CSR)."""
        data = seen.data
        if self.relevant is not None:
            data = (data >= self.relevant).astype(np.float64)
        elif self.binary:
            data = (data > 0).astype(np.float64)
        out = sparse.csr_array((data, seen.indices, seen.indptr), shape=seen.shape, copy=True)
        out.eliminate_zeros()  # in place
        return out


def meaning_of(args: Namespace) -> Meaning:
    """Return what the flags say that events mean."""
    if args.relevant is not None and not np.isfinite(args.relevant):
        raise ValueError(f"--relevant must be finite, got {args.relevant}")
    return Meaning(args.relevant, args.binary)


def meaning_in(notes: dict[str, Any], path: str) -> Meaning:
    """Return what the notes of a model say that events mean; one of 'items' takes values as they are."""
    if "events" not in notes:
        return Meaning(None, False)
    events = notes["events"]
    if isinstance(events, dict):
        relevant, binary = events.get("relevant"), events.get("binary")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(binary, bool) and (relevant is None or isinstance(relevant, float)):
            return Meaning(relevant, binary)
    raise StateError(f"{path} is damaged: its notes do not say what its events mean")


class UserEvents(NamedTuple):
    """The events of a file."""

    users: list[str]  # in the order of their names
    items: list[str]
    entries: Any  # COO (users, items): each event with its value, or 1
    valued: bool  # whether there is a column of values
    times: NDArray[np.float64] | None  # of the entries

    @property
    def seen(self) -> Any:
        """Return CSR (users, items): values summed over the events of one user and item; zeros are entries too."""
        return self.entries.tocsr()


def read_user_events(
    args: Namespace,
    path: str,
    *,
    negative: bool = False,
    time_column: str | int | None = None,
    known: Sequence[str] = (),
) -> UserEvents:
    """Read the events of a file; a value below 0 is an error with its line, unless `negative`.

    known: items that a model has, of which none is the name of a column.
    """
    dialect = as_dialect(**dialect_of(args))._replace(known=frozenset(known))
    events = read_events(path, dialect, columns=columns_of(args), time=time_column)
    values = events.values
    if values is not None and not negative and (values < 0).any():
        worst = int(np.argmax(values < 0))
        raise SourceError(
            f"{path}, line {events.lines[worst]}: the value {values[worst]:g} is negative, and what has no value "
            "for a user leaves no event: --relevant X says which values count"
        )
    users, items = sorted(set(events.users)), sorted(set(events.items))
    places = places_of(events.users, users), places_of(events.items, items)
    data = np.ones(len(events.lines)) if values is None else values
    entries = sparse.coo_array((data, places), shape=(len(users), len(items)))
    return UserEvents(users, items, entries, values is not None, events.times)


def rows_for(events: UserEvents, users: Sequence[str], items: Sequence[str]) -> Any:
    """Return the rows of users in a model's items, CSR (len(users), len(items)); empty for those without events."""
    seen = events.seen
    empty = sparse.csr_array((1, seen.shape[1]))
    stacked = sparse.csr_array(sparse.vstack([seen, empty], format="csr"))
    chosen = stacked[places_of(users, events.users)]  # -1, the last, for whom it does not know
    if list(items) == events.items:
        return chosen
    places, coo = places_of(events.items, items), chosen.tocoo()
    keep = places[coo.col] >= 0
    if not keep.all():
        warnings.warn(
            f"{int((~keep).sum()):,} of {len(keep):,} events of these users are of items that the model does not know",
            UserWarning,
            stacklevel=2,
        )
    return sparse.csr_array((coo.data[keep], (coo.row[keep], places[coo.col[keep]])), shape=(len(users), len(items)))


def levels_of(events: UserEvents) -> NDArray[np.float64] | None:
    """Return the values, each once, if they look like a scale of ratings."""
    if not events.valued:
        return None
    levels = np.unique(events.entries.data)
    return levels if 2 < len(levels) <= MOST_LEVELS and levels[0] >= 0 else None


# -- ids of text -------------------------------------------------------------------------------------------------------
def ids_of(model: LowRankModel | SketchedEASE, path: str) -> list[IdMap]:
    """Return the ids of the sides of a model: of rows and columns, or of the items of an item model."""
    sides = [model.item_ids] if isinstance(model, SketchedEASE) else [model.row_ids, model.column_ids]
    ids = [side for side in sides if side is not None]
    if len(ids) == len(sides):
        return ids
    raise SourceError(
        f"{path} holds no ids: it was written by none of 'complete', 'recommend' and 'items --names', nor learned from "
        "a table"
    )


def names_of(model: LowRankModel | SketchedEASE, path: str) -> list[list[str]]:
    """Return the ids of the sides of a model as text has them."""
    names = [[str(value) for value in side] for side in ids_of(model, path)]
    for side in names:
        if len(set(side)) < len(side):
            raise SourceError(f"{path} has two ids that are the same in text, such as 7 and '7'")
    return names


def places_of(ids: Sequence[str], known: Sequence[str]) -> NDArray[np.intp]:
    """Return the index of each id, -1 for one that is not known."""
    index = {name: place for place, name in enumerate(known)}
    return np.array([index.get(name, -1) for name in ids], np.intp)


def pairs_of(path: str, rows: list[str], columns: list[str]) -> Any:
    """Return the pairs of a table whose ids are both known, CSR (rows, columns). A header is a pair that is not."""
    events = read_events(path, Dialect(header=False), values=False)
    one, two = places_of(events.users, rows), places_of(events.items, columns)
    keep = (one >= 0) & (two >= 0)
    ones = np.ones(int(keep.sum()))
    return sparse.csr_array((ones, (one[keep], two[keep])), shape=(len(rows), len(columns)))
