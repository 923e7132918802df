"""Ids of rows and columns: integers, strings, or a mixture by value; the place of each, and how a file holds them."""

# pyright: reportPrivateUsage=false
# (functions of this module are part of the class)
import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.features.ids import IdTable, strings_of
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._id_columns import (
    INTEGERS,
    KINDS,
    MIXED,
    STRINGS,
    Keys,
    keys_of,
    objects,
    plain,
    rank,
    unplain,
)

Places = NDArray[np.int32]

# Strings that are decoded, or made, at a time.
PIECE = 1 << 16


class IdMap:
    """Different ids in an order that never changes: which id has which place, and the other way round.

    Ids are integers of 64 bits, strings, or, by value, a mixture of these with bytes, ``uuid.UUID`` and tuples of all
    of them. Integers and strings are compiled: ten million in a few seconds. True, fractions and dates are no ids
    (``astype(str)`` makes some), and None and NaN are missing ones, which are refused. Numbers of NumPy and of Python
    are the same ids, and so is a whole number that pandas holds as a float; 7 and "7" are different ones.

    Parameters
    ----------
    ids : sequence, array or column of a data frame
        Each id once, in the order of their places.

    Raises
    ------
    TypeError, ValueError
        If there are things among them that are no ids, missing ones, or one twice: the message names its position.

    Examples
    --------
    >>> from fastsketch.data.names import IdMap
    >>> films = IdMap(["Alien", "Heat", "Solaris"])
    >>> films[1], films.places(["Solaris", "Jaws"]).tolist()
    ('Heat', [2, -1])
    """

    def __init__(self, ids: Any) -> None:
        keys = _keys(ids, "ids")
        other = _of(_table(keys.kind))
        places = other._put(keys)
        if len(other) < len(places):
            # the first entry that has the place of an earlier one: it lies below its own position
            at = int(np.argmax(places < np.arange(len(places))))
            raise ValueError(f"ids must be different, got {other[int(places[at])]!r} again as entry {at}")
        self._made = other._table

    _made: "IdTable | dict[Any, int] | None" = None
    _held: "tuple[dict[str, NDArray[Any]], str, str] | None" = None  # arrays, name and kind that make it
    _strings: "NDArray[Any] | None" = None

    @property
    def _table(self) -> "IdTable | dict[Any, int]":
        """The places by id, made when one is first asked for: copies of a model do not ask."""
        if self._made is None:
            assert self._held is not None
            self._made = read_ids(*self._held)._table
            self._held = None
        assert self._made is not None
        return self._made

    # -- what it holds ---------------------------------------------------------------------------------------------
    @property
    def kind(self) -> str:
        """The type of the ids: "integers", "strings" or "mixed"."""
        if self._held is not None:
            return self._held[2]
        if isinstance(self._table, dict):
            return MIXED
        return STRINGS if self._table.is_text else INTEGERS

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids.tolist())

    def __contains__(self, value: object) -> bool:
        try:
            return bool(self.places([value])[0] >= 0)
        except (TypeError, ValueError):
            return False

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self.ids[place].tolist()
        return self.ids[place : place + 1 or None].tolist()[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdMap) or other.kind != self.kind or len(other) != len(self):
            return False
        mine, theirs = arrays_of(self, "ids"), arrays_of(other, "ids")
        return self is other or all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = {name: array.copy() for name, array in arrays_of(self, "ids").items()}
        return read_ids, (arrays, "ids", self.kind)

    def __copy__(self) -> "IdMap":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "IdMap":
        return self

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[place]) for place in range(min(3, len(self))))
        return f"<IdMap: {len(self):,} {self.kind}{': ' if shown else ''}{shown}{', ...' if len(self) > 3 else ''}>"

    @property
    def ids(self) -> NDArray[Any]:
        """All ids in the order of their places, (n,): int64, or an object array; not to be changed."""
        table = self._table
        if isinstance(table, dict):
            return objects(list(table))
        if not table.is_text:
            return table.integers()
        if self._strings is None:
            self._strings = strings_of(table.utf8(), table.integers())
        return self._strings

    # -- where an id is --------------------------------------------------------------------------------------------
    def places(self, ids: Any, name: str = "ids") -> NDArray[np.int64]:
        """Return the places of some ids, (n,) int64: -1 for those that are not in the map.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            What messages call them.

        Raises
        ------
        TypeError
            If strings are asked for where the map has integers, or the other way round, which is no question of
            knowing them; and for what are no ids.
        ValueError
            If one is missing: None, NaN.
        """
        return self._find(_keys(ids, name), name).astype(np.int64)

    def known(self, ids: Any, name: str = "ids") -> NDArray[np.int64]:
        """Return the same, or a KeyError that names those that are not in the map.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            What messages call them.
        """
        keys = _keys(ids, name)
        out = self._find(keys, name).astype(np.int64)
        if len(out) and out.min() < 0:
            unknown = list(dict.fromkeys(keys[int(k)] for k in np.flatnonzero(out < 0)[:100]))
            shown, more = ", ".join(f"{value!r:.60}" for value in unknown[:5]), ", ..." if len(unknown) > 5 else ""
            raise KeyError(f"{name} has ids that the model does not know: {shown}{more}")
        return out

    def extended(self, ids: Any, name: str = "ids") -> "tuple[IdMap, NDArray[np.int64]]":
        """Return (a map that also has the new ones of these, at its end; their places); this one stays as it is.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            What messages call them.
        """
        keys = _keys(ids, name)
        if len(self) == 0:  # which has no kind yet
            out = _of(_table(keys.kind))
            return out, out._put(keys).astype(np.int64)
        if keys.kind != self.kind and len(keys):
            raise self._of_another_kind(keys, name)
        places = self._find(keys, name)
        if len(places) == 0 or places.min() >= 0:
            return self, places.astype(np.int64)
        out = _of(self._table.copy())
        return out, out._put(keys).astype(np.int64)

    def ascending(self) -> "tuple[IdMap, NDArray[np.int64]]":
        """Return (the same ids in ascending order, the new place of each); a mixture by types first."""
        ids = self.ids
        if self.kind == MIXED:
            entries = ids.tolist()
            order = np.array(sorted(range(len(entries)), key=lambda k: rank(entries[k])), np.intp)
        else:
            order = np.argsort(ids, kind="stable")
        out = _of(_table(self.kind))
        out._put(Keys(self.kind, ids[order]))
        moved = np.empty(len(order), np.int64)
        moved[order] = np.arange(len(order))
        return out, moved

    def _find(self, keys: "Keys", name: str) -> Places:
        if len(keys) == 0 or len(self) == 0:
            return np.full(len(keys), -1, np.int32)
        if keys.kind != self.kind:
            if MIXED not in (keys.kind, self.kind):
                raise self._of_another_kind(keys, name)
            keys = Keys(MIXED, keys.values)
        return self._put(keys, add=False)

    def _of_another_kind(self, keys: "Keys", name: str) -> TypeError:
        example = keys[0]
        if keys.kind == MIXED:
            own = int if self.kind == INTEGERS else str
            example = next(key for key in keys.values.tolist() if not isinstance(key, own))
        return TypeError(f"{name} must be {self.kind}, as the ids of the model are, got {example!r}")

    def _put(self, keys: "Keys", *, add: bool = True) -> Places:
        """Return places of keys of the map's own kind (a mixture takes all), after those that it lacks were added."""
        table = self._table
        if isinstance(table, dict):
            ids = cast("list[Any]", keys.values.tolist())
            if add:
                return np.array([table.setdefault(key, len(table)) for key in ids], np.int32)
            return np.array([table.get(key, -1) for key in ids], np.int32)
        if keys.kind == MIXED:  # some of which may be of the map's kind
            mine = int if self.kind == INTEGERS else str
            out = np.full(len(keys), -1, np.int32)
            which = np.array([isinstance(key, mine) for key in keys.values.tolist()], bool)
            if which.any():
                out[which] = self._put(_keys(keys.values[which], "ids"), add=False)
            return out
        if not table.is_text:
            return table.numbers_to_places(keys.values, add)
        pieces = [np.empty(0, np.int32)]
        for start in range(0, len(keys), PIECE):
            piece = keys.values[start : start + PIECE].tolist()
            places, n = table.strings_to_places(piece, add)
            if n < len(piece):
                raise ValueError(f"ids must be Unicode text: entry {start + n} is {piece[n]!r}")
            pieces.append(places)
        return np.concatenate(pieces)


def positions(answers: NDArray[Any], scores: NDArray[np.float64], ids: IdMap | None) -> NDArray[np.int64]:
    """Return answers of a model as indices: those that stand for none, whose scores are NaN, are -1."""
    if ids is None:
        return answers
    out = np.full(answers.shape, -1, np.int64)
    there = ~np.isnan(scores)
    out[there] = ids.places(answers[there])
    return out


# -- answers and questions ---------------------------------------------------------------------------------------------
def taken(ids: IdMap, places: NDArray[Any]) -> NDArray[Any]:
    """Return the ids of places, in their shape; of place -1 None, in an array of integers -1.

    An array of integers is int64, any other an object array.
    """
    places = np.asarray(places)
    if len(ids) == 0:
        return np.full(places.shape, -1) if ids.kind == INTEGERS else np.full(places.shape, None, object)
    out = ids.ids[places]
    out[places < 0] = -1 if ids.kind == INTEGERS else None
    return out


def ids_of_text(ids: IdMap, texts: Iterable[str]) -> NDArray[Any]:
    """Return ids as a text writes them: of a map of integers the numbers, where they are such, else an id it lacks.

    What reads tables in text has strings alone.
    """
    strings = list(texts)
    if ids.kind != INTEGERS:
        return objects(strings)
    numbers = [int(text) if _is_integer(text) else None for text in strings]
    lacking = _unused(ids)
    return np.array([lacking if value is None else value for value in numbers], np.int64)


# -- files -------------------------------------------------------------------------------------------------------------
def arrays_of(ids: IdMap, name: str) -> dict[str, NDArray[Any]]:
    """Return arrays of a map: `name`, integers or UTF-8 text (JSON of a mixture); `name`_ends, the end of each text."""
    held = ids._held
    if held is not None:
        return {name + key.removeprefix(held[1]): array for key, array in held[0].items()}
    table = ids._table
    if isinstance(table, dict):
        return {name: np.frombuffer(json.dumps([plain(key) for key in table]).encode(), np.uint8)}
    if not table.is_text:
        return {name: table.integers()}
    return {name: table.utf8(), f"{name}_ends": table.integers()}


def own_ids(arrays: Mapping[str, NDArray[Any]], name: str, kind: str) -> IdMap:
    """Return the inverse of ``arrays_of``, of one's own, which are not looked at before they are needed."""
    out = IdMap.__new__(IdMap)
    out._held = {key: array for key, array in arrays.items() if key in array_names(name)}, name, kind
    return out


def read_ids(arrays: Mapping[str, NDArray[Any]], name: str, kind: Any) -> IdMap:
    """Return the inverse of ``arrays_of``, of a stranger's; ValueError for what is none."""
    if kind not in KINDS:
        raise ValueError(f"ids are {', '.join(KINDS)}, not {kind!r}")
    if name not in arrays:
        raise ValueError(f"array {name!r} is missing")
    size = arrays[name].size
    out = _of(_table(kind))
    table = out._table
    if isinstance(table, dict):
        entries: Any = json.loads(checks.array_of(arrays, name, (size,), np.uint8).tobytes())
        if not isinstance(entries, list):
            raise ValueError(f"array {name!r} holds no list of ids")
        n = len(cast("list[Any]", entries))
        out._put(_keys(objects([unplain(entry) for entry in cast("list[Any]", entries)]), name, mixed=True))
    elif not table.is_text:
        n = size
        table.numbers_to_places(checks.array_of(arrays, name, (size,), checks.INT64), True)
    else:
        text = checks.array_of(arrays, name, (size,), np.uint8)
        ends = checks.array_of(arrays, f"{name}_ends", (arrays[f"{name}_ends"].size,), checks.INT64)
        n = len(ends)
        if n and (ends[0] < 0 or (np.diff(ends) < 0).any()) or (ends[-1] if n else 0) != size:
            raise ValueError(f"array '{name}_ends' does not fit array {name!r}")
        starts = ends[:-1][ends[:-1] < size]
        if ((text[starts] & 0xC0) == 0x80).any():  # an end within a character
            raise ValueError(f"array '{name}_ends' does not fit array {name!r}")
        _require_text(text, name)
        table.texts_to_places(np.ascontiguousarray(text), np.ascontiguousarray(ends), True)
    if len(out) != n:
        raise ValueError(f"array {name!r} must hold different ids: one of them stands twice")
    return out


def array_names(name: str) -> tuple[str, str]:
    """Return the names of the arrays of a map, of which only strings have the second."""
    return name, f"{name}_ends"


def _require_text(text: NDArray[np.uint8], name: str) -> None:
    """Raise ValueError unless these bytes are UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(text), PIECE):
            decoder.decode(text[start : start + PIECE].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"array {name!r} holds no UTF-8 text: {error}") from None


def _keys(values: Any, name: str, *, mixed: bool = False) -> Keys:
    return Keys(values.kind, values.ids) if isinstance(values, IdMap) else keys_of(values, name, mixed=mixed)


def _table(kind: str) -> "IdTable | dict[Any, int]":
    return {} if kind == MIXED else IdTable(kind == STRINGS)


def _of(table: "IdTable | dict[Any, int]") -> IdMap:
    out = IdMap.__new__(IdMap)
    out._made = table
    return out


def no_ids() -> IdMap:
    """Return a map without ids, to be extended."""
    return _of(IdTable(False))


def as_id_map(ids: Any, size: int, name: str) -> IdMap:
    """Return the ids of a side of a matrix: one for each of `size` rows or columns."""
    if isinstance(ids, IdMap):
        out = ids
    else:
        try:
            out = IdMap(ids)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("ids", name, 1)) from None
    if len(out) != size:
        raise ValueError(f"{name} must have {size} ids, got {len(out)}")
    return out


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 19


def _unused(ids: IdMap) -> int:
    """Return an integer that is no id of the map."""
    numbers = ids.ids
    value = -1
    while len(numbers) and (numbers == value).any():
        value -= 1
    return value
