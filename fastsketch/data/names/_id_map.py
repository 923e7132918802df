"""Map the ids of rows and columns (integers, strings or mixed types) to positions, and store the map in state files."""

# pyright: reportPrivateUsage=false
# (functions of this module are part of the class)
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files import _checks as checks
from fastsketch.data.names._id_columns import (
    INTEGERS,
    KINDS,
    MIXED,
    STRINGS,
    convert_ids,
    decode_id,
    encode_id,
    mixed_id_sort_key,
    object_array,
)


class IdMap:
    """An immutable sequence of distinct ids, with a fast search for the position of an id.

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
        self.kind, id_list = _kind_and_ids(ids, "ids")
        self._positions_by_id = {}
        positions = self._append(id_list, "ids")
        if len(self._positions_by_id) < len(positions):
            # A repeated id has the position of its first occurrence, which is smaller than its own.
            repeated = int(np.argmax(positions < np.arange(len(positions))))
            raise ValueError(f"ids must be different, got {id_list[repeated]!r} again as entry {repeated}")

    kind: str
    _positions_by_id: "dict[Any, int] | None" = None
    _stored_arrays: "tuple[dict[str, NDArray[Any]], str] | None" = None  # the arrays of the state file, and their name
    _ids: "NDArray[Any] | None" = None

    @property
    def _positions(self) -> dict[Any, int]:
        """The dict {id: position}, which is decoded from the stored arrays when it is first used.

        Copies of a model may never use it.
        """
        if self._positions_by_id is None:
            assert self._stored_arrays is not None
            self._positions_by_id = read_ids(*self._stored_arrays, self.kind)._positions
        return self._positions_by_id

    # -- what it holds ---------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._positions)

    def __contains__(self, value: object) -> bool:
        try:
            return bool(self.places([value])[0] >= 0)
        except (TypeError, ValueError):
            return False

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return self.ids[position].tolist()
        return self.ids[position : position + 1 or None].tolist()[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdMap):
            return False
        return self is other or (self.kind == other.kind and list(self) == list(other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return read_ids, (id_arrays(self, "ids"), "ids", self.kind)

    def __copy__(self) -> "IdMap":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "IdMap":
        return self

    def __repr__(self) -> str:
        first_ids = ", ".join(repr(self[position]) for position in range(min(3, len(self))))
        more = ", ..." if len(self) > 3 else ""
        return f"<IdMap: {len(self):,} {self.kind}{': ' if first_ids else ''}{first_ids}{more}>"

    @property
    def ids(self) -> NDArray[Any]:
        """All ids in the order of their positions, as an int64 or object array (n,). The caller must not change it."""
        if self._ids is None:
            ids = list(self._positions)
            self._ids = np.array(ids, np.int64) if self.kind == INTEGERS else object_array(ids)
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
        return self._lookup(*_kind_and_ids(ids, name), name)

    def known(self, ids: Any, name: str = "ids") -> NDArray[np.int64]:
        """Return the positions of ids as an int64 array; an id that the map does not contain raises KeyError.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            Name of the ids in messages.
        """
        kind, id_list = _kind_and_ids(ids, name)
        out = self._lookup(kind, id_list, name)
        if len(out) and out.min() < 0:
            unknown = list(dict.fromkeys(id_list[k] for k in np.flatnonzero(out < 0)[:100]))
            listed, ellipsis = ", ".join(f"{value!r:.60}" for value in unknown[:5]), ", ..." if len(unknown) > 5 else ""
            raise KeyError(f"{name} has ids that the model does not know: {listed}{ellipsis}")
        return out

    def extended(self, ids: Any, name: str = "ids") -> "tuple[IdMap, NDArray[np.int64]]":
        """Return a new map with the unknown ones of the given ids appended, and the positions of all given ids.

        This map is unchanged. If no id is new, it is returned itself.

        Parameters
        ----------
        ids : sequence, array or column of a data frame
        name : str, default "ids"
            Name of the ids in messages.
        """
        kind, id_list = _kind_and_ids(ids, name)
        if len(self) == 0:  # an empty map accepts ids of any kind
            out = _from_positions(kind, {})
            return out, out._append(id_list, name)
        if kind != self.kind and id_list:
            raise self._kind_error(kind, id_list, name)
        positions = self._lookup(kind, id_list, name)
        if len(positions) == 0 or positions.min() >= 0:
            return self, positions
        out = _from_positions(kind, self._positions.copy())
        return out, out._append(id_list, name)

    def ascending(self) -> "tuple[IdMap, NDArray[np.int64]]":
        """Return a map with the same ids in ascending order, and an array with the new position of each id."""
        out = _from_positions(self.kind, {})
        out._append(sorted(self, key=mixed_id_sort_key if self.kind == MIXED else None), "ids")
        return out, out.places(self)

    def _lookup(self, kind: str, id_list: list[Any], name: str) -> NDArray[np.int64]:
        """Return the position of each id of a list, or -1 for an unknown one. TypeError if the ids are of another type
        than those of the map.
        """
        if kind != self.kind and MIXED not in (kind, self.kind) and id_list and len(self):
            raise self._kind_error(kind, id_list, name)
        position_of = self._positions.get
        return np.fromiter((position_of(value, -1) for value in id_list), np.int64, len(id_list))

    def _kind_error(self, kind: str, id_list: list[Any], name: str) -> TypeError:
        """Create the TypeError for ids of another kind than those of the map."""
        own_type = int if self.kind == INTEGERS else str
        example = id_list[0] if kind != MIXED else next(value for value in id_list if not isinstance(value, own_type))
        return TypeError(f"{name} must be {self.kind}, as the ids of the model are, got {example!r}")

    def _append(self, id_list: list[Any], name: str) -> NDArray[np.int64]:
        """Append the unknown ids of a list to this map, in place. Return the position of each id of the list."""
        positions = self._positions
        n_before, position_of = len(positions), positions.setdefault
        out = np.fromiter((position_of(value, len(positions)) for value in id_list), np.int64, len(id_list))
        for value in [*positions][n_before:] if self.kind == STRINGS else ():
            if not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError:
                    raise ValueError(
                        f"{name} must be Unicode text: entry {id_list.index(value)} is {value!r}"
                    ) from None
        return out


def positions(answers: NDArray[Any], scores: NDArray[np.float64], ids: IdMap | None) -> NDArray[np.int64]:
    """Convert an array of recommended ids to positions (int64), with -1 where the score is NaN.

    NaN means that there is no recommendation. Without `ids` the answers are positions already and are returned.
    """
    if ids is None:
        return answers
    out = np.full(answers.shape, -1, np.int64)
    has_answer = ~np.isnan(scores)
    out[has_answer] = ids.places(answers[has_answer])
    return out


def ids_at(ids: IdMap, positions: NDArray[Any]) -> NDArray[Any]:
    """Look up the ids at an array of positions. Return an array of the same shape.

    The result is int64 for integer ids and an object array otherwise. Position -1 gives -1 or None.
    """
    positions, missing = np.asarray(positions), -1 if ids.kind == INTEGERS else None
    if len(ids) == 0:
        return np.full(positions.shape, missing)
    out = ids.ids[positions]
    out[positions < 0] = missing
    return out


# -- files -------------------------------------------------------------------------------------------------------------
def id_arrays(ids: IdMap, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays by name in which a state file stores an IdMap.

    The array `name` holds integers, or UTF-8 text (JSON for a mixture). For strings, `name`_ends holds the end of each.
    The arrays are cached in the map.
    """
    if ids._stored_arrays is None:  # cached, because every copy of a model needs them
        if ids.kind == STRINGS:
            arrays = checks.text_arrays(ids, *array_names(name))
        elif ids.kind == MIXED:
            arrays = {name: np.frombuffer(json.dumps(list(map(encode_id, ids))).encode(), np.uint8)}
        else:
            arrays = {name: ids.ids}
        ids._stored_arrays = arrays, name
    arrays, stored_name = ids._stored_arrays
    return {name + key.removeprefix(stored_name): array for key, array in arrays.items()}


def trusted_ids(arrays: Mapping[str, NDArray[Any]], name: str, kind: str) -> IdMap:
    """Create the IdMap that is stored in arrays of this process, without validation.

    It is decoded at first use. The arrays are those that ``id_arrays`` returned. Use ``read_ids`` for untrusted arrays.
    """
    out = IdMap.__new__(IdMap)
    out.kind, out._stored_arrays = (
        kind,
        ({key: array for key, array in arrays.items() if key in array_names(name)}, name),
    )
    return out


def read_ids(arrays: Mapping[str, NDArray[Any]], name: str, kind: Any) -> IdMap:
    """Decode the IdMap that is stored in arrays of a state file, which may be untrusted.

    The arrays are those that ``id_arrays`` returned. Raise ValueError if they are invalid.
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
        _, ids = convert_ids(object_array([decode_id(entry) for entry in cast("list[Any]", entries)]), name, mixed=True)
    elif kind == INTEGERS:
        ids = checks.array_of(arrays, name, (size,), checks.INT64).tolist()
    else:
        ids = checks.texts_of(arrays, *array_names(name))
    out = _from_positions(kind, {value: position for position, value in enumerate(ids)})
    if len(out) < len(ids):
        raise ValueError(f"array {name!r} must hold different ids: one of them stands twice")
    return out


def array_names(name: str) -> tuple[str, str]:
    """Return the names of the two arrays that store an IdMap; the second exists only for string ids."""
    return name, f"{name}_ends"


def _kind_and_ids(values: Any, name: str) -> tuple[str, list[Any]]:
    """Return the type of ids ("integers", "strings" or mixed) and the ids as a list. An IdMap is accepted too."""
    return (values.kind, list(values)) if isinstance(values, IdMap) else convert_ids(values, name)


def _from_positions(kind: str, positions: dict[Any, int]) -> IdMap:
    """Return an IdMap that uses the given dict {id: position} itself, without checks."""
    out = IdMap.__new__(IdMap)
    out.kind, out._positions_by_id = kind, positions
    return out


def no_ids() -> IdMap:
    """Return an empty IdMap, to which ids of any kind can be appended with ``extended``."""
    return _from_positions(INTEGERS, {})


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
