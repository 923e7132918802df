"""Map the ids of rows and columns (integers, strings or mixed types) to positions, and store the map in state files."""

# pyright: reportPrivateUsage=false
# (functions of this module are part of the class)
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files import _checks as checks
from fastsketch.data.names._id_columns import INTEGERS, KINDS, MIXED, STRINGS, ids_in, objects, plain, rank, unplain


class IdMap:
    """A fixed sequence of distinct ids that finds the position of each id.

    Ids are integers of 64 bits, strings, or a mixture of these with bytes, ``uuid.UUID`` and tuples of such values.
    Positions are found with a dict. Booleans, fractions and dates are no ids (``astype(str)`` converts them), and None
    and NaN are refused as missing. Integers of NumPy and of Python are equal ids, and so is an integer that pandas
    stores as a float; 7 and "7" are different ids.

    Parameters
    ----------
    ids : sequence, array or column of a data frame
        Different ids, in the order of their positions.

    Attributes
    ----------
    kind : {"integers", "strings", "mixed"}
        The type of the ids.

    Raises
    ------
    TypeError, ValueError
        For an invalid, missing or repeated id; the message names its position.

    Examples
    --------
    >>> from fastsketch.data.names import IdMap
    >>> films = IdMap(["Alien", "Heat", "Solaris"])
    >>> films[1], films.places(["Solaris", "Jaws"]).tolist()
    ('Heat', [2, -1])
    """

    def __init__(self, ids: Any) -> None:
        self.kind, given = _given(ids, "ids")
        self._made = {}
        places = self._add(given, "ids")
        if len(self._made) < len(places):
            # A repeated id has the position of its first occurrence, which is smaller than its own.
            at = int(np.argmax(places < np.arange(len(places))))
            raise ValueError(f"ids must be different, got {given[at]!r} again as entry {at}")

    kind: str
    _made: "dict[Any, int] | None" = None
    _held: "tuple[dict[str, NDArray[Any]], str] | None" = None  # the arrays of the state file, and their name
    _ids: "NDArray[Any] | None" = None

    @property
    def _places(self) -> dict[Any, int]:
        """The dict {id: position}, which is built when it is first used.

        Copies of a model may never use it.
        """
        if self._made is None:
            assert self._held is not None
            self._made = read_ids(*self._held, self.kind)._places
        return self._made

    # -- what it holds ---------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._places)

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
        if not isinstance(other, IdMap):
            return False
        return self is other or (self.kind == other.kind and list(self) == list(other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return read_ids, (arrays_of(self, "ids"), "ids", self.kind)

    def __copy__(self) -> "IdMap":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "IdMap":
        return self

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[place]) for place in range(min(3, len(self))))
        return f"<IdMap: {len(self):,} {self.kind}{': ' if shown else ''}{shown}{', ...' if len(self) > 3 else ''}>"

    @property
    def ids(self) -> NDArray[Any]:
        """All ids in the order of their positions, as an int64 or object array (n,). The caller must not change it."""
        if self._ids is None:
            ids = list(self._places)
            self._ids = np.array(ids, np.int64) if self.kind == INTEGERS else objects(ids)
        return self._ids

    # -- where an id is --------------------------------------------------------------------------------------------
    def places(self, ids: Any, name: str = "ids") -> NDArray[np.int64]:
        """Return the positions of ids as an int64 array, with -1 for an id that the map does not contain.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            Name of the ids in messages.

        Raises
        ------
        TypeError
            For strings if the map has integers, or the other way round, and for values that are no ids.
        ValueError
            If an id is missing: None, NaN.
        """
        return self._find(*_given(ids, name), name)

    def known(self, ids: Any, name: str = "ids") -> NDArray[np.int64]:
        """Return the positions of ids as an int64 array; an id that the map does not contain raises KeyError.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            Name of the ids in messages.
        """
        kind, given = _given(ids, name)
        out = self._find(kind, given, name)
        if len(out) and out.min() < 0:
            unknown = list(dict.fromkeys(given[k] for k in np.flatnonzero(out < 0)[:100]))
            shown, more = ", ".join(f"{value!r:.60}" for value in unknown[:5]), ", ..." if len(unknown) > 5 else ""
            raise KeyError(f"{name} has ids that the model does not know: {shown}{more}")
        return out

    def extended(self, ids: Any, name: str = "ids") -> "tuple[IdMap, NDArray[np.int64]]":
        """Return a new map with further ids appended, and the positions of the given ids in it.

        This map is unchanged. If no id is new, it is returned itself.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            Name of the ids in messages.
        """
        kind, given = _given(ids, name)
        if len(self) == 0:  # an empty map accepts ids of any kind
            out = _of(kind, {})
            return out, out._add(given, name)
        if kind != self.kind and given:
            raise self._of_another_kind(kind, given, name)
        places = self._find(kind, given, name)
        if len(places) == 0 or places.min() >= 0:
            return self, places
        out = _of(kind, self._places.copy())
        return out, out._add(given, name)

    def ascending(self) -> "tuple[IdMap, NDArray[np.int64]]":
        """Return a map with the same ids in ascending order, and an array with the new position of each id."""
        out = _of(self.kind, {})
        out._add(sorted(self, key=rank if self.kind == MIXED else None), "ids")
        return out, out.places(self)

    def _find(self, kind: str, given: list[Any], name: str) -> NDArray[np.int64]:
        if kind != self.kind and MIXED not in (kind, self.kind) and given and len(self):
            raise self._of_another_kind(kind, given, name)
        place = self._places.get
        return np.fromiter((place(one, -1) for one in given), np.int64, len(given))

    def _of_another_kind(self, kind: str, given: list[Any], name: str) -> TypeError:
        own = int if self.kind == INTEGERS else str
        example = given[0] if kind != MIXED else next(one for one in given if not isinstance(one, own))
        return TypeError(f"{name} must be {self.kind}, as the ids of the model are, got {example!r}")

    def _add(self, given: list[Any], name: str) -> NDArray[np.int64]:
        """Append the ids that the map does not contain, changing the map, and return the positions of all given ids."""
        places = self._places
        known, place = len(places), places.setdefault
        out = np.fromiter((place(one, len(places)) for one in given), np.int64, len(given))
        for one in [*places][known:] if self.kind == STRINGS else ():
            if not one.isascii():
                try:
                    one.encode()
                except UnicodeEncodeError:
                    raise ValueError(f"{name} must be Unicode text: entry {given.index(one)} is {one!r}") from None
        return out


def positions(answers: NDArray[Any], scores: NDArray[np.float64], ids: IdMap | None) -> NDArray[np.int64]:
    """Convert an array of recommended ids to positions, with -1 where the score is NaN (no recommendation).

    With ids=None the answers are positions already and are returned unchanged.
    """
    if ids is None:
        return answers
    out = np.full(answers.shape, -1, np.int64)
    there = ~np.isnan(scores)
    out[there] = ids.places(answers[there])
    return out


def taken(ids: IdMap, places: NDArray[Any]) -> NDArray[Any]:
    """Convert an array of positions, `places`, to an array of ids of the same shape.

    The result is int64 for integer ids and an object array otherwise. Position -1 gives -1 or None.
    """
    places, missing = np.asarray(places), -1 if ids.kind == INTEGERS else None
    if len(ids) == 0:
        return np.full(places.shape, missing)
    out = ids.ids[places]
    out[places < 0] = missing
    return out


# -- files -------------------------------------------------------------------------------------------------------------
def arrays_of(ids: IdMap, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays in which a state file stores an IdMap.

    They are `name`, which holds integers, or UTF-8 text (JSON for a mixture), and for strings `name`_ends, the end of
    each.
    """
    if ids._held is None:  # cached, because every copy of a model needs them
        if ids.kind == STRINGS:
            arrays = checks.text_arrays(ids, *array_names(name))
        elif ids.kind == MIXED:
            arrays = {name: np.frombuffer(json.dumps(list(map(plain, ids))).encode(), np.uint8)}
        else:
            arrays = {name: ids.ids}
        ids._held = arrays, name
    arrays, held = ids._held
    return {name + key.removeprefix(held): array for key, array in arrays.items()}


def own_ids(arrays: Mapping[str, NDArray[Any]], name: str, kind: str) -> IdMap:
    """Return the IdMap stored in arrays of this process, without validation; it is decoded at first use.

    The arrays are those that ``arrays_of`` returned. Use ``read_ids`` for untrusted arrays.
    """
    out = IdMap.__new__(IdMap)
    out.kind, out._held = kind, ({key: array for key, array in arrays.items() if key in array_names(name)}, name)
    return out


def read_ids(arrays: Mapping[str, NDArray[Any]], name: str, kind: Any) -> IdMap:
    """Return the IdMap stored in arrays of a state file. Raise ValueError if the arrays are invalid.

    The arrays are those that ``arrays_of`` returned, and may be untrusted.
    """
    if kind not in KINDS:
        raise ValueError(f"ids are {', '.join(KINDS)}, not {kind!r}")
    if name not in arrays:
        raise ValueError(f"array {name!r} is missing")
    size, ids = arrays[name].size, list[Any]()
    if kind == MIXED:
        entries: Any = json.loads(checks.array_of(arrays, name, (size,), np.uint8).tobytes())
        if not isinstance(entries, list):
            raise ValueError(f"array {name!r} holds no list of ids")
        _, ids = ids_in(objects([unplain(entry) for entry in cast("list[Any]", entries)]), name, mixed=True)
    elif kind == INTEGERS:
        ids = checks.array_of(arrays, name, (size,), checks.INT64).tolist()
    else:
        ids = checks.texts_of(arrays, *array_names(name))
    out = _of(kind, {one: place for place, one in enumerate(ids)})
    if len(out) < len(ids):
        raise ValueError(f"array {name!r} must hold different ids: one of them stands twice")
    return out


def array_names(name: str) -> tuple[str, str]:
    """Return the names of the two arrays that store an IdMap; the second exists only for string ids."""
    return name, f"{name}_ends"


def _given(values: Any, name: str) -> tuple[str, list[Any]]:
    """Convert ids, or an IdMap, to (kind, list of ids)."""
    return (values.kind, list(values)) if isinstance(values, IdMap) else ids_in(values, name)


def _of(kind: str, places: dict[Any, int]) -> IdMap:
    out = IdMap.__new__(IdMap)
    out.kind, out._made = kind, places
    return out


def no_ids() -> IdMap:
    """Return an empty IdMap, to which ids of any kind can be appended with ``extended``."""
    return _of(INTEGERS, {})


def as_id_map(ids: Any, size: int, name: str) -> IdMap:
    """Convert the ids of a matrix's rows or columns to an IdMap. Raise ValueError unless there are `size` ids."""
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
