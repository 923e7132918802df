"""Ids of text: where they stand in a model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch.data.files import SourceError
from fastsketch.data.files._table import Dialect
from fastsketch.data.names import IdMap
from fastsketch.data.names._events import read_events
from fastsketch.lowrank import LowRankModel
from fastsketch.recommending import SketchedEASE

Places = NDArray[np.intp]


def ids_of(model: LowRankModel | SketchedEASE, path: str) -> list[IdMap]:
    """Return the ids of the sides of a model: of rows and columns, or of the items of an item model."""
    found = [model.item_ids] if isinstance(model, SketchedEASE) else [model.row_ids, model.column_ids]
    ids = [side for side in found if side is not None]
    if len(ids) == len(found):
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


def places_of(ids: list[str], known: list[str]) -> Places:
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
