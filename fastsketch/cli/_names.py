"""Ids of text: where they stand in a model, and the lists of them in its notes."""

import re
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch._model import Model
from fastsketch.io import SourceError, StateError
from fastsketch.io._table import Ids, read_table

Places = NDArray[np.intp]


def names_of(model: Model, path: str, sides: tuple[tuple[str, int | None], ...]) -> list[list[str]]:
    """The ids of the sides of a model, ("rows" or "columns", how many it has), out of its notes."""
    if sides[-1][0] not in model.notes:
        raise SourceError(f"{path} holds no ids: it was written by none of 'complete', 'recommend' and 'items --names'")
    names: list[list[str]] = []
    for side, size in sides:
        found = model.notes.get(side)
        if not is_names(found) or len(found) != size:
            raise StateError(f"{path} is damaged: the ids of its {side} are not {size} different names")
        names.append(found)
    return names


def is_names(value: Any) -> TypeGuard[list[str]]:
    """Whether a note is a list of different strings."""
    if not isinstance(value, list):
        return False
    items = cast(list[Any], value)
    return all(isinstance(item, str) for item in items) and len(set(items)) == len(items)


def places_of(ids: Ids, known: list[str]) -> Places:
    """Index of each id, -1 for one that is not known."""
    index = {name: place for place, name in enumerate(known)}
    return np.array([index.get(name, -1) for name in ids.names], np.intp)[ids.places]


def pairs_of(path: str, rows: list[str], columns: list[str]) -> Any:
    """The pairs of a table whose ids are both known, CSR (rows, columns)."""
    table = read_table(path, values=False)
    one, two = places_of(table.rows, rows), places_of(table.columns, columns)
    keep = (one >= 0) & (two >= 0)
    ones = np.ones(int(keep.sum()))
    return sparse.csr_array((ones, (one[keep], two[keep])), shape=(len(rows), len(columns)))


def with_ids(message: str, names: list[list[str]]) -> str:
    """An entry that an error names by its indices, by its ids."""
    found = re.search(r"entry \((\d+), (\d+)\)", message)
    if found is None:
        return message
    i, j = int(found[1]), int(found[2])
    return message.replace(found[0], f"the pair ({names[0][i]}, {names[1][j]})")
