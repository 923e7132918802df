"""Nearest-neighbour index of compact codes with ids, which is searched exhaustively and saved as one file."""

from functools import partial
from os import PathLike
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import (
    Rows,
    as_array,
    as_choice,
    as_flag,
    as_integer,
    as_rows,
    check_finite,
    is_sparse,
)
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import FeatureNames, as_names, names_of, require_columns, require_same_names
from fastsketch._frame.loading import home_of, kinds, load, name_of, received
from fastsketch._kernels.guard import Guard, changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.files import _state as files
from fastsketch.data.files._replacing import replacing
from fastsketch.data.files._state import StateError
from fastsketch.data.names._id_map import IdMap, id_arrays, ids_at, no_ids, read_ids
from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._blocks import Blocks, CodeRows
from fastsketch.neighbours.codes._encoder import encoder_state as kept_encoder
from fastsketch.neighbours.codes._encoder import restore_encoder as restored_encoder
from fastsketch.neighbours.codes._id_positions import Ids, Order, Positions, find_positions, sorting_permutation
from fastsketch.neighbours.codes._packed_codes import as_codes
from fastsketch.neighbours.codes._rescoring import Source, create_rows_reader
from fastsketch.neighbours.codes._search import (
    Found,
    Metric,
    as_candidates,
    check_metric,
    check_width,
    checked_queries,
    search_codes,
)
from fastsketch.neighbours.codes._search_arguments import Mask, as_integers, format_ids, require_distinct
from fastsketch.neighbours.hashing._hasher import Hasher
from fastsketch.neighbours.quantizing import SketchQuantizer

KeptRows = Literal["float16", "float32"] | None
KEPT_DTYPES: Final[dict[str, np.dtype[Any]]] = {"float16": np.dtype(np.float16), "float32": np.dtype(np.float32)}

# Ids are integers below this number.
ID_LIMIT: Final = checks.MOST_COUNT
# The scan counts codes with 32 bits.
MAX_ROWS: Final = 1 << 31
# Rows that are encoded at a time, so that temporary memory does not grow with a batch.
PIECE_ROWS: Final = 1 << 14
# The capacity is 1,024 rows at first and then grows by a quarter, the largest share of memory that is unused.
FIRST_CAPACITY: Final = 1024
GROWTH_DIVISOR: Final = 4
# A warning is issued if rounding to float16 changes rows by more than 1% of their distances from the mean: neighbours
# then change.
MAX_ROUNDING_SHARE: Final = 0.01
ROWS_CHECKED_FOR_ROUNDING: Final = 1000
# The largest k for which answers are padded beyond the number of rows of the index.
MAX_PADDED_ANSWERS: Final = 1 << 20


class _Contents(NamedTuple):
    """Everything that an index stores at one moment: codes, ids and, optionally, rows. Changes create a new object, so
    that searches in other threads need no lock.

    Arrays have capacity beyond the first ``n_rows`` entries. An addition writes there, which no reader accesses, and
    replaces the snapshot when it is complete; a removal allocates new arrays. Searches therefore need no lock, and an
    interrupted call leaves the index unchanged.
    """

    codes: CodeRows
    ids: Ids
    kept_rows: NDArray[np.floating[Any]] | None  # in units of ``CodeIndex._scale``
    n_rows: int
    next_id: int  # larger than every id that the index ever had
    names: IdMap | None  # string ids by number; None: the numbers are the ids
    order: Order  # sorts the ids

    @property
    def live_ids(self) -> Ids:
        """Internal integer ids of all rows in the index, a view. The arrays have unused capacity after them."""
        return self.ids[: self.n_rows]

    def user_ids(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Convert internal integer ids to the ids that the user gave, integers or strings. In string ids, -1 becomes
        None.
        """
        return ids if self.names is None else ids_at(self.names, ids)

    def find_positions(self, ids: Ids) -> Positions:
        """Return at which position of the index each internal integer id is stored, or -1 if it is not there."""
        return find_positions(self.order, self.live_ids, ids)

    def internal_ids(self, ids: ArrayLike, name: str = "ids") -> Ids:
        """Convert the user's ids, integers or strings, to internal integer ids. An unknown string becomes -1."""
        if self.names is not None:
            return self.names.places(np.atleast_1d(ids), name)
        array = np.atleast_1d(as_array(ids, name))
        if array.dtype.kind in "iu" and array.size and (array.min() < 0 or array.max() >= ID_LIMIT):
            raise ValueError(
                f"{name} must lie in [0, 2**62), got {format_ids(array[(array < 0) | (array >= ID_LIMIT)])}"
            )
        return as_integers(array, name)

    def positions_of(self, ids: ArrayLike, name: str, *, distinct: bool = False) -> Positions:
        """Return at which position of the index each of the user's ids is stored. IndexError if one is not in the
        index.

        With `distinct`, duplicates raise ValueError.
        """
        numbers = self.internal_ids(ids, name)
        positions = self.find_positions(numbers)
        if (positions < 0).any():
            raise IndexError(f"{name} must be in the index: {format_ids(np.atleast_1d(ids)[positions < 0])} not found")
        if distinct:
            self.require_distinct(numbers, name)
        return positions

    def require_distinct(self, numbers: Ids, name: str = "ids") -> None:
        """Raise ValueError if internal ids repeat. The message contains the ids that the user gave."""
        if self.names is None:
            require_distinct(numbers, name)
            return
        values, counts = np.unique(numbers, return_counts=True)
        if (counts > 1).any():
            raise ValueError(
                f"{name} must be different, got {format_ids(self.user_ids(values[counts > 1]))} more than once"
            )

    def assign_ids(self, ids: ArrayLike | None, n: int) -> tuple["_Contents", Ids]:
        """Return (contents, internal ids) for n new rows, whose ids the user gives or which get the next integers.
        Nothing is stored yet.

        Strings are added to the names of the returned contents; for integers these contents are `self`.
        """
        id_list: Any = [] if ids is None else ids if as_array(ids, "ids").ndim else [ids]
        if type(ids) is tuple:
            id_list = list(cast("tuple[Any, ...]", ids))
        are_strings = np.size(id_list) > 0 and isinstance(np.asarray(id_list).flat[0], str)
        contents = self
        if self.names is not None or are_strings:
            if ids is None:
                raise ValueError("the ids of this index are strings: pass one for each row")
            if self.names is None and self.next_id:
                raise TypeError("ids must be integers, as those of the index are, got strings")
            names, numbers = (no_ids() if self.names is None else self.names).extended(id_list)
            if names.kind != "strings":
                raise TypeError("ids must be all integers or all strings")
            contents = self._replace(names=names)
        elif ids is None:
            if self.next_id + n > ID_LIMIT:
                raise ValueError("there are no ids above those in the index: pass ids")
            return self, np.arange(self.next_id, self.next_id + n)
        else:
            numbers = self.internal_ids(ids).copy()
        if len(numbers) != n:
            raise ValueError(f"ids must have one entry for each of the {n} rows, got {len(numbers)}")
        contents.require_distinct(numbers)
        exists = self.find_positions(numbers) >= 0
        if exists.any():
            existing_ids = format_ids(contents.user_ids(numbers[exists]))
            raise ValueError(f"ids must be new: {existing_ids} in the index already (remove them first)")
        return contents, numbers

    def with_capacity(self, capacity: int) -> "_Contents":
        """Return a copy whose arrays have space for `capacity` rows in total."""
        kept_rows = self.kept_rows
        if kept_rows is not None:
            kept_rows = np.empty((capacity, kept_rows.shape[1]), kept_rows.dtype)
            kept_rows[: self.n_rows] = cast("Any", self.kept_rows)[: self.n_rows]
        ids = np.empty(capacity, np.int64)
        ids[: self.n_rows] = self.live_ids
        return self._replace(codes=self.codes.copy_with_capacity(self.n_rows, capacity), ids=ids, kept_rows=kept_rows)

    def select(self, positions: Positions) -> "_Contents":
        """Return new contents with copies of the rows at the given positions only."""
        n = len(positions)
        codes = self.codes.empty(n, self.codes.layout)
        for start in range(0, n, PIECE_ROWS):
            codes.write(start, np.ascontiguousarray(self.codes.take(positions[start : start + PIECE_ROWS])))
        ids = self.ids[positions]
        kept_rows = None if self.kept_rows is None else self.kept_rows[positions]
        return self._replace(codes=codes, ids=ids, kept_rows=kept_rows, n_rows=n, order=sorting_permutation(ids))


class CodeIndex:
    """Index that stores rows as compact codes and finds the nearest neighbours of real-valued queries.

    Rows are encoded by ``model.encoder()`` at the time the index is made; what the model learns later does not change
    the index. A search scans all codes. For an inverted file, pass the codes to faiss by ``SketchQuantizer.to_faiss``.

    Parameters
    ----------
    model : SketchQuantizer, SketchHash or another hash, or the encoder of one
        The model must have seen rows.
    rows : {None, "float16", "float32"}, default None
        Whether the rows themselves are stored, and in which dtype: they take 2 or 4 bytes a feature. Searches then
        rank candidates by exact distances (``rescore``). float16 has 11 significant bits; a warning is issued if the
        first rows are so far from 0 that this is coarse compared with their spread.
    metric : {"euclidean", "inner_product", "cosine", "hamming"}, default "euclidean"
        Metric of ``search``. "hamming" is for hashes only.

    Attributes
    ----------
    metric, rows
        As given.
    encoder : Encoder
        Encodes rows, and queries for "hamming".
    n_features : int
        Number of columns.
    n_rows : int
        Number of rows in the index, equal to ``len(index)``.
    ids : ndarray int64 (n_rows,), of objects where ids are strings
        In the order in which the rows were added.
    feature_names : tuple of str, or None
        Column names: those of the model, or of the first data frame that was added.

    Raises
    ------
    TypeError, ValueError
        If the model is of another type or has seen no rows, or a parameter has an unknown value.

    Notes
    -----
    Ids are integers in [0, 2**62), or strings. An index takes the bytes of the codes, 8 bytes for each id (and the
    text of strings), the bytes of stored rows, and 4 bytes for each row if ids do not ascend; up to a quarter more is
    unused capacity. A removal copies the remaining rows, and so does an addition of ids that do not ascend with the 4
    bytes of each. A call that fails or is interrupted leaves the index unchanged.

    One thread at a time may change an index; a second one gets a RuntimeError. Any number of threads may search at the
    same time, and see the index before or after the change.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((5000, 32)) * np.geomspace(3, 0.1, 32)
    >>> index = fs.CodeIndex(fs.SketchHash(16).update(rows), rows="float16")
    >>> index.add(rows)[:3]
    array([0, 1, 2])
    >>> distances, ids = index.search(rows[7], k=2)
    >>> int(ids[0, 0])
    7
    >>> index.remove([7])
    >>> len(index), 7 in index
    (4999, False)
    """

    def __init__(self, model: Any, *, rows: KeptRows = None, metric: Metric = "euclidean") -> None:
        if rows is not None:
            if not isinstance(rows, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"rows must be None or the name of a dtype, a string, got {type(rows).__name__}")
            as_choice(rows, "rows", KEPT_DTYPES)
        as_choice(metric, "metric", get_args(Metric))
        encoder = _encoder_of(model, metric)
        check_metric(metric, encoder)
        self._initialise(encoder, rows, metric, encoder.feature_names)

    def _initialise(self, encoder: Encoder, rows: str | None, metric: str, feature_names: FeatureNames | None) -> None:
        """Set all attributes of a new index without rows, from the encoder, the stored dtype, the metric and names."""
        self._encoder, self._rows, self._metric, self._feature_names = encoder, rows, metric, feature_names
        # float16 ranges from 6e-8 to 65,504: rows are stored in units of the encoder, a power of two
        self._scale = encoder.length if rows == "float16" else 1.0
        self._contents = _empty_contents(encoder, rows, metric)
        self._guard = Guard()

    # -- what it is ----------------------------------------------------------------------------------------------------
    @property
    def rows(self) -> str | None:
        """Data type of the stored rows, "float16" or "float32"; None if only codes are stored."""
        return self._rows

    @property
    def metric(self) -> str:
        """Name of the distance or similarity that ``search`` uses."""
        return self._metric

    @property
    def encoder(self) -> Encoder:
        """The encoder that turns rows into codes."""
        return self._encoder

    @property
    def n_features(self) -> int:
        """Number of columns of the rows."""
        return self._encoder.n_features

    @property
    def n_rows(self) -> int:
        """Number of rows in the index."""
        return self._contents.n_rows

    @property
    def feature_names(self) -> FeatureNames | None:
        """Column names; None if neither the model nor an added data frame had any."""
        return self._feature_names

    @property
    def ids(self) -> Ids:
        """Ids of all rows, integers or strings, in the order in which the rows were added."""
        contents = self._contents
        return contents.user_ids(contents.live_ids.copy())

    def __len__(self) -> int:
        return self._contents.n_rows

    def facts(self) -> dict[str, Any]:
        """Return a dictionary that describes the index, for example its size and metric.

        All values can be written as JSON.

        Returns
        -------
        dict
            "kind", "n_rows", "n_features", "metric", "rows", "encoder" (its kind), "fingerprint" (of the encoder),
            "width" (bytes of a code) and "n_bytes" (bytes of all arrays, including unused capacity).
        """
        contents = self._contents
        arrays = (contents.codes.data, contents.ids, contents.kept_rows, contents.order)
        return {
            "kind": type(self).__name__,
            "n_rows": contents.n_rows,
            "n_features": self.n_features,
            "metric": self._metric,
            "rows": self._rows,
            "encoder": type(self._encoder).__name__,
            "fingerprint": self._encoder.fingerprint,
            "width": self._encoder.width,
            "n_bytes": sum(array.nbytes for array in arrays if array is not None),
        }

    def __repr__(self) -> str:
        stored = "" if self._rows is None else f", rows={self._rows!r}"
        return f"<CodeIndex({self._encoder!r}{stored}, metric={self._metric!r}): {len(self)} rows>"

    # -- changes -------------------------------------------------------------------------------------------------------
    @changes
    def add(self, rows: Rows, ids: ArrayLike | None = None) -> Ids:
        """Encode rows, add them to the index and return their ids.

        Parameters
        ----------
        rows : array_like, data frame or scipy.sparse (n, d), or one row (d,)
            Real and finite. The columns of a data frame must have the names and the order of the model's.
        ids : array_like of int or of str (n,), optional
            Distinct new ids: integers in [0, 2**62), or strings; an index has ids of one kind. Default: consecutive
            integers above all ids that the index ever had.

        Returns
        -------
        ndarray int64 (n,), of objects where ids are strings
            The ids.

        Raises
        ------
        TypeError, ValueError
            If rows are not a finite real matrix of this width (or too large for the dtype in which they are stored),
            or ids are invalid. The index is then unchanged.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> index.add(rows[:3]), index.add(rows[3:5], ids=[100, 50]), index.add(rows[5])
        (array([0, 1, 2]), array([100,  50]), array([101]))
        """
        return self._add(rows, None, ids)

    @changes
    def add_codes(
        self, codes: ArrayLike, ids: ArrayLike | None = None, *, fingerprint: str, rows: Rows | None = None
    ) -> Ids:
        """Add rows that the same model has already encoded, and return their ids.

        Parameters
        ----------
        codes : array_like of uint8 (n, width)
        ids : array_like of int or of str (n,), optional
            As for ``add``.
        fingerprint : str
            ``model.encoder().fingerprint`` of the model that made the codes; must equal that of ``index.encoder``.
        rows : array_like or scipy.sparse (n, d), optional
            The rows themselves; required if the index stores them, and refused otherwise.

        Returns
        -------
        ndarray int64 (n,), of objects where ids are strings
            The ids.

        Raises
        ------
        TypeError, ValueError
            If the codes are of another model or not a uint8 matrix of its width, or ids or rows are invalid as in
            ``add``. The index is then unchanged.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> index.add_codes(model.encode(rows[:3]), fingerprint=model.encoder().fingerprint)
        array([0, 1, 2])
        """
        if not isinstance(fingerprint, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"fingerprint must be a string, got {type(fingerprint).__name__}")
        if fingerprint != self._encoder.fingerprint:
            raise ValueError(
                f"the codes are of another model: its fingerprint is {fingerprint[:12]!r}, that of this index "
                f"{self._encoder.fingerprint[:12]!r} (make an index of that model, or add the rows)"
            )
        checked = as_codes(codes, "codes")
        check_width(checked, self._encoder)
        if (rows is None) != (self._rows is None):
            needed = "the rows of the codes, which it stores" if rows is None else "rows=None: it stores none"
            raise ValueError(f"this index needs {needed}")
        return self._add(rows, checked, ids)

    def _add(self, rows: Rows | None, codes: NDArray[np.uint8] | None, ids: ArrayLike | None) -> Ids:
        """Validate rows or codes with their ids, and add them to the index, all or none. Return the user's ids."""
        names = require_same_names(None if rows is None else names_of(rows), self._feature_names)
        checked_rows = None if rows is None else as_rows(rows, self.n_features)
        n = len(cast("Any", codes)) if checked_rows is None else checked_rows.shape[0]
        if codes is not None and len(codes) != n:
            raise ValueError(f"rows must be as many as the {len(codes)} codes, got {n}")
        previous = self._contents
        if previous.n_rows + n >= MAX_ROWS:
            raise ValueError(f"an index holds fewer than 2**31 rows, got {previous.n_rows} and {n}")
        contents, numbers = previous.assign_ids(ids, n)
        stop = previous.n_rows + n
        if stop > len(previous.ids):
            capacity = max(stop, previous.n_rows + previous.n_rows // GROWTH_DIVISOR, FIRST_CAPACITY)
            contents = contents.with_capacity(capacity)
        for start in range(0, n, PIECE_ROWS):
            piece = slice(start, min(n, start + PIECE_ROWS))
            target = slice(previous.n_rows + piece.start, previous.n_rows + piece.stop)
            if checked_rows is not None and contents.kept_rows is not None:
                contents.kept_rows[target] = self._to_stored_rows(checked_rows[piece], start)
            if codes is not None:
                contents.codes.write(target.start, codes[piece])
            else:
                check_finite(cast("Any", checked_rows)[piece], offset=start)
                contents.codes.write(target.start, self._encoder.encode(cast("Any", checked_rows)[piece]))
        contents.ids[previous.n_rows : stop] = numbers
        order = sorting_permutation(contents.ids[:stop], previous.order, previous.n_rows)
        next_id = max(previous.next_id, 1 + int(numbers.max(initial=-1)))
        self._contents, self._feature_names = contents._replace(n_rows=stop, order=order, next_id=next_id), names
        return self._contents.user_ids(numbers)

    def _to_stored_rows(self, rows: Any, offset: int) -> NDArray[np.floating[Any]]:
        """Convert rows to the dtype and scale in which the index stores them. ValueError if a value overflows.

        For the first rows of an index, a warning is issued if rounding to float16 is coarse.
        """
        check_finite(rows, offset=offset)
        dtype = KEPT_DTYPES[cast("str", self._rows)]
        dense: NDArray[Any] = rows.toarray() if is_sparse(rows) else rows
        with np.errstate(over="ignore", under="ignore"):
            stored = (dense if self._scale == 1.0 else dense / self._scale).astype(dtype)
        if not np.isfinite(stored).all():
            row = int(np.argmin(np.isfinite(stored).all(axis=1)))
            advice = ': store them as rows="float32"' if dtype == np.float16 else ""
            raise ValueError(
                f"rows must be numbers that {dtype} holds: row {offset + row} has one that is too large{advice}"
            )
        if dtype == np.float16 and not offset and not self._contents.n_rows:
            self._warn_of_rounding(dense[:ROWS_CHECKED_FOR_ROUNDING], stored[:ROWS_CHECKED_FOR_ROUNDING])
        return stored

    def _warn_of_rounding(self, rows: NDArray[Any], stored: NDArray[Any]) -> None:
        """Compare rows with their stored form. Warn if rounding to float16 changes them by more than 1% of their
        distances from the mean.
        """
        exact = rows / self._scale
        mean = getattr(self._encoder, "mean", None)
        mean = exact.mean(axis=0) if mean is None else mean / self._scale
        lost, spread = np.square(exact - stored).sum(), np.square(exact - mean).sum()
        if lost > MAX_ROUNDING_SHARE**2 * spread > 0:
            warn_caller(
                f'rows="float16" stores these rows with errors of {np.sqrt(lost / spread):.1%} of their distances from '
                f"the mean, more than {MAX_ROUNDING_SHARE:.0%}, so that near ones change places: subtract the mean "
                'from rows and queries, or take rows="float32"'
            )

    @changes
    def remove(self, ids: ArrayLike) -> None:
        """Remove the rows with the given ids.

        Each call copies all remaining rows, so remove many ids in one call.

        Parameters
        ----------
        ids : array_like of int or of str (n,), or one id

        Raises
        ------
        IndexError
            If an id is not in the index. The index is then unchanged.
        TypeError, ValueError
            If they are not ids, or have duplicates.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> _ = index.add(rows)
        >>> index.remove([3, 5])
        >>> len(index), 3 in index, 4 in index
        (998, False, True)
        """
        contents = self._contents
        positions = contents.positions_of(ids, "ids", distinct=True)
        if len(positions):
            remaining = np.ones(contents.n_rows, np.bool_)
            remaining[positions] = False
            self._contents = contents.select(np.flatnonzero(remaining))

    # -- reading -------------------------------------------------------------------------------------------------------
    def search(
        self,
        queries: Rows,
        k: int = 10,
        *,
        oversample: float = 4,
        rescore: bool | Source | None = None,
        allow: ArrayLike | None = None,
        pad: bool = True,
    ) -> Found:
        """Find the k rows nearest to each of m queries, and return (distances, ids), both (m, k), nearest first.

        Parameters
        ----------
        queries : array_like, data frame or scipy.sparse (m, d), or one row (d,)
            Real and finite. The columns of a data frame must have the names and the order of the index's.
        k : int, default 10
        oversample : float, default 4
            ceil(k * oversample) candidates are rescored.
        rescore : bool, array_like (n, d) or callable, optional
            True: candidates are ranked by exact distances to the stored rows. False: by codes only. Default: True if
            rows are stored. An array or memmap whose row i is that of id i, or a function that returns the rows (c, d)
            of ids (c,): candidates are ranked by exact distances to these rows.
        allow : array_like of int or of str, or of bool (n_rows,), optional
            Ids of the rows that may be found, or a mask in the order of ``ids``.
        pad : bool, default True
            If fewer than k rows may be found, fill up answers with the id -1 (None where ids are strings) at an
            infinite distance, an inner product of -inf, or the Hamming distance 2**31 - 1. False: raise ValueError.

        Returns
        -------
        distances : ndarray (m, k)
            Euclidean distances, estimated or exact, ascending; inner products or cosines, descending; or Hamming
            distances int32, ascending. With "hamming", rescored distances are Euclidean.
        ids : ndarray int64 (m, k), of objects where ids are strings
            Equal distances are ordered by id; strings by the order of addition.

        Raises
        ------
        IndexError
            If an id of allow is not in the index.
        TypeError, ValueError
            If queries are not a finite real matrix of this width or have other column names, k exceeds the number of
            rows that may be found and pad is False, or rows to rescore by are missing, too few or of another width.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model, rows="float16")
        >>> _ = index.add(rows)
        >>> distances, ids = index.search(rows[7], k=3)
        >>> int(ids[0, 0]), bool(distances[0, 0] < distances[0, 1])
        (7, True)
        >>> distances, ids = index.search(rows[7], k=3, allow=np.arange(100, 200))
        >>> bool((ids >= 100).all())
        True
        """
        source: Any = self._rows is not None if rescore is None else rescore
        if isinstance(source, bool | np.bool_):
            if source and self._rows is None:
                raise ValueError('rescore=True needs stored rows: make the index with rows="float16", or pass the rows')
            source = True if source else None
        require_columns(queries, self._feature_names, "queries")
        contents, encoder = self._contents, self._encoder
        checked = checked_queries(queries, encoder)
        mask = _allowed_mask(contents, allow)
        n_allowed = contents.n_rows if mask is None else int(np.count_nonzero(mask))
        k_requested = as_integer(k, "k", 1)
        if k_requested > n_allowed and not as_flag(pad, "pad"):
            raise ValueError(f"k must be at most the {n_allowed} rows that may be found, got {k_requested}")
        if k_requested > max(n_allowed, MAX_PADDED_ANSWERS):
            raise ValueError(f"k must be at most {max(n_allowed, MAX_PADDED_ANSWERS):,}, got {k_requested}")
        as_flag(pad, "pad")
        k_found = min(k_requested, n_allowed)
        n_candidates = k_found if source is None else as_candidates(k_found, oversample, n_allowed)
        rows_at = None if source is None else self._rows_reader(contents, source)
        metric = "euclidean" if self._metric == "hamming" and rows_at is not None else self._metric
        if k_found:
            distances, positions = search_codes(
                encoder,
                checked,
                contents.codes.prefix(contents.n_rows),
                metric=self._metric,
                k=k_found,
                n_candidates=n_candidates,
                rows_at=rows_at,
                ids=None if contents.order is None else contents.live_ids,
                allow=mask,
            )
            ids = contents.user_ids(contents.ids[positions])
        else:
            distances = np.empty((checked.shape[0], 0), np.int32 if metric == "hamming" else np.float64)
            ids = contents.user_ids(np.empty((checked.shape[0], 0), np.int64))
        if k_found == k_requested:
            return distances, ids
        width = (0, 0), (0, k_requested - k_found)
        farthest = np.iinfo(np.int32).max if metric == "hamming" else np.inf if metric == "euclidean" else -np.inf
        missing_id = -1 if contents.names is None else None
        return np.pad(distances, width, constant_values=farthest), np.pad(
            ids, width, constant_values=cast("Any", missing_id)
        )

    def _rows_reader(self, contents: _Contents, source: Any) -> Any:
        """Return a function that takes ascending positions of the index and returns the original rows stored there.
        A search uses it to rank candidates by exact distances.

        It reads the stored rows if `source` is True, and otherwise the rows of `source` by their ids.
        """
        if source is True:
            return partial(self._stored_rows, contents)
        read_rows = create_rows_reader(source, self.n_features, "rescore", feature_names=self._feature_names)

        def rows_at(positions: Positions) -> Any:
            ids = contents.ids[positions]
            order = np.argsort(ids)  # so that a memory map is read in ascending order
            rows = read_rows(ids[order], contents.user_ids(ids[order]))
            return rows[np.argsort(order)]

        return rows_at

    def _stored_rows(self, contents: _Contents, positions: Positions) -> NDArray[np.floating[Any]]:
        """Return the stored rows at the given positions, in the units of the user."""
        rows = cast("Any", contents.kept_rows)[positions]
        return rows if self._rows == "float32" else rows.astype(np.float64) * self._scale

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return a boolean array that is True for each id in the index.

        Parameters
        ----------
        ids : array_like of int or of str (n,)

        Returns
        -------
        ndarray bool (n,)

        Raises
        ------
        TypeError, ValueError
            If they are not ids.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> _ = index.add(rows)
        >>> index.contains([0, 999, 1000])
        array([ True,  True, False])
        """
        contents = self._contents
        return contents.find_positions(contents.internal_ids(ids)) >= 0

    def __contains__(self, value: object) -> bool:
        if self._contents.names is not None:
            return isinstance(value, str) and bool(self.contains([value])[0])
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or not 0 <= value < ID_LIMIT:
            return False
        return bool(self.contains(np.array([value], np.int64))[0])

    def get(self, ids: ArrayLike) -> NDArray[np.floating[Any]]:
        """Return the rows with the given ids, decoded from their codes if the index stores no rows.

        Parameters
        ----------
        ids : array_like of int or of str (n,), or one id

        Returns
        -------
        ndarray float32 (n, d), or float64 if rows are stored as float16

        Raises
        ------
        IndexError
            If an id is not in the index.
        TypeError, ValueError
            If they are not ids, or rows are not stored and codes of this kind cannot be decoded.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model, rows="float16")
        >>> _ = index.add(rows)
        >>> bool(np.allclose(index.get([7]), rows[7], atol=0.01))
        True
        """
        contents = self._contents
        positions = contents.positions_of(ids, "ids")
        if contents.kept_rows is None:
            return self._encoder.decode(np.ascontiguousarray(contents.codes.take(positions)))
        return self._stored_rows(contents, positions)

    def to_faiss(self) -> Any:
        """Convert the index to a faiss index of its codes and ids.

        This requires the package faiss.

        Returns
        -------
        faiss.IndexIDMap2 or faiss.IndexBinaryIDMap2
            For codes of a quantizer, the index that ``SketchQuantizer.to_faiss`` returns for this metric, with the ids
            of this index. For codes of a hash, an IndexBinaryFlat of the sign bits, without factors. Strings are
            replaced by numbers in the order of addition.

        Raises
        ------
        ImportError
            Without faiss.
        ValueError
            If faiss cannot give the same answers: see ``SketchQuantizer.to_faiss``.
        """
        from fastsketch.neighbours._faiss import faiss_index_with_ids

        contents = self._contents
        codes = np.ascontiguousarray(contents.codes.read_slice(0, contents.n_rows))
        return faiss_index_with_ids(self._encoder, codes, contents.live_ids, metric=self._metric)

    # -- keeping it ----------------------------------------------------------------------------------------------------
    def _file_contents(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete index as a JSON-compatible header and a dict of arrays, for a file."""
        contents = self._contents
        encoder, encoder_arrays = kept_encoder(self._encoder)
        names = contents.names
        arrays: dict[str, NDArray[Any]] = {
            "codes": contents.codes.read_slice(0, contents.n_rows),
            "ids": contents.live_ids,
            **({} if contents.kept_rows is None else {"rows": contents.kept_rows[: contents.n_rows]}),
            **({} if names is None else id_arrays(names, "names")),
            **{f"encoder_{name}": array for name, array in encoder_arrays.items()},
        }
        header: dict[str, Any] = {
            "kind": type(self).__name__,
            "home": home_of(type(self)),
            "parameters": {"metric": self._metric, "rows": self._rows},
            "notes": {},
            "state": {
                "encoder": encoder,
                "next_id": contents.next_id,
                "names": None if names is None else names.kind,
            },
        }
        if self._feature_names is not None:
            header["feature_names"] = list(self._feature_names)
        return header, arrays

    def to_bytes(self) -> bytes:
        """Serialise the index to bytes, which ``fs.from_bytes`` reads."""
        return files.pack(*self._file_contents())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the index to a file, which ``fs.load`` reads.

        An existing file is replaced atomically.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        OSError
            If it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> index = fs.CodeIndex(fs.SketchQuantizer(8).update(rows))
        >>> _ = index.add(rows)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index.save(Path(folder, "shop.fsk"))
        ...     print(len(fs.load(Path(folder, "shop.fsk"))))
        1000
        """
        header, arrays = self._file_contents()
        with replacing(path) as file:
            files.pack_into(file, header, arrays)

    @classmethod
    def load(cls, source: str | PathLike[str] | BinaryIO) -> Self:
        """Read a saved index into memory.

        Parameters
        ----------
        source : str, path or binary file

        Raises
        ------
        StateError
            If the file is not an index, or is truncated, changed or of a newer version.
        """
        index = load(source)
        if not isinstance(index, cls):
            raise StateError(f"{name_of(source)} holds a {type(index).__name__}, not a {cls.__name__}")
        return index

    @classmethod
    def _built(
        cls,
        parameters: dict[str, Any],
        notes: dict[str, Any],
        state: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        *,
        feature_names: Any = None,
        trusted: bool = False,
    ) -> Self:
        """Return an index made from the header and arrays of a file, which may be untrusted. ValueError if they are
        invalid.

        The contents may be untrusted.
        """
        metric, rows = parameters["metric"], parameters["rows"]
        as_choice(metric, "metric", get_args(Metric))
        encoder_arrays = {
            name.removeprefix("encoder_"): array for name, array in arrays.items() if name.startswith("encoder_")
        }
        encoder = restored_encoder(state["encoder"], encoder_arrays)
        check_metric(metric, encoder)
        index = cls.__new__(cls)
        if rows is not None:
            as_choice(rows, "rows", KEPT_DTYPES)
        index._initialise(encoder, rows, metric, as_names(feature_names, encoder.n_features))
        n, next_id = len(arrays["ids"]), checks.as_count(state["next_id"], "next_id")
        if n >= MAX_ROWS:
            raise ValueError(f"an index holds fewer than 2**31 rows, got {n}")
        ids = checks.array_of(arrays, "ids", (n,), np.int64)
        codes = checks.array_of(arrays, "codes", (n, encoder.width), np.uint8)
        kept_rows = None
        if rows is not None:
            kept_rows = checks.finite(arrays, "rows", (n, encoder.n_features), KEPT_DTYPES[rows])
        names = None if state["names"] is None else read_ids(arrays, "names", state["names"])
        if names is not None and (names.kind != "strings" or len(names) < next_id):
            raise ValueError(f"it has {len(names)} names of {names.kind} for ids below {next_id}")
        expected = {"codes", "ids", *(f"encoder_{name}" for name in encoder_arrays)}
        expected |= set() if rows is None else {"rows"}
        expected |= set() if names is None else {"names", "names_ends"}
        checks.only(arrays, *expected)
        if n and (ids.min() < 0 or ids.max() >= next_id):
            raise ValueError(f"an id is outside [0, {next_id})")
        require_distinct(ids)
        collection = index._contents.codes.from_codes(codes, encoder.layout)
        index._contents = _Contents(collection, ids, kept_rows, n, next_id, names, sorting_permutation(ids))
        return index

    @changes
    def copy(self) -> Self:
        """Return an independent copy of the index."""
        duplicate = type(self).__new__(type(self))
        duplicate._initialise(self._encoder, self._rows, self._metric, self._feature_names)
        duplicate._contents = self._contents.with_capacity(self._contents.n_rows)
        return duplicate

    def __reduce__(self) -> tuple[Any, ...]:
        header, arrays = self._file_contents()
        copies = {name: array.copy() for name, array in arrays.items()}
        return received, (type(self), header["parameters"], {}, header["state"], copies, self._feature_names)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()


kinds[home_of(CodeIndex), CodeIndex.__name__] = CodeIndex


def _encoder_of(model: Any, metric: str) -> Encoder:
    """Return the encoder of a hash or quantizer, with which an index encodes rows and queries. An encoder itself is
    returned unchanged.

    Codes of a hash contain factors of the rows, unless the metric is "hamming".
    """
    if isinstance(model, Encoder):
        return model
    if isinstance(model, Hasher):
        return model.encoder(factors=metric != "hamming")
    if isinstance(model, SketchQuantizer):
        return model.encoder()
    raise TypeError(f"model must be a hash, a quantizer or the encoder of one, got {type(model).__name__}")


def _empty_contents(encoder: Encoder, rows: str | None, metric: str) -> _Contents:
    """Return the contents of an index without rows.

    Codes are stored in the blocks of the search kernel, except for the metric "hamming".
    """
    storage = CodeRows if metric == "hamming" else Blocks
    kept_rows = None if rows is None else np.empty((0, encoder.n_features), KEPT_DTYPES[rows])
    return _Contents(storage.empty(0, encoder.layout), np.empty(0, np.int64), kept_rows, 0, 0, None, None)


def _allowed_mask(contents: _Contents, allow: ArrayLike | None) -> Mask | None:
    """Return a boolean mask over the rows of the index for the argument `allow` of a search, a list of ids or a mask.
    None stays None.
    """
    if allow is None:
        return None
    array = as_array(allow, "allow")
    if array.dtype.kind == "b":
        if array.shape != (contents.n_rows,):
            raise ValueError(
                f"allow as a mask must have one entry for each of the {contents.n_rows} rows, got shape {array.shape}"
            )
        return np.ascontiguousarray(array)
    mask = np.zeros(contents.n_rows, np.bool_)
    mask[contents.positions_of(allow, "allow", distinct=True)] = True
    return mask
