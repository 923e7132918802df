"""Columns for features with names: in order of first appearance, or by a hash of the name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.features import names as kernel
from fastsketch._validation import as_choice, as_flag, as_integer
from fastsketch.io import _checks as checks

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# indptr (n + 1,) int64, indices (nnz,) int32, data (nnz,) float64; in each row columns ascend
Parts = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]
# A row with names.
NamedRow = Mapping[str, float | str] | Sequence[str | tuple[str, float | str]]
NamedRows = NamedRow | Sequence[NamedRow]

# 2**30 columns are the most that a power of two offers below 2**31 - 1.
MOST_BITS = 30
_UNKNOWN = {"add": kernel.ADD, "ignore": kernel.IGNORE, "refuse": kernel.REFUSE}


def is_named(rows: Any) -> bool:
    """Whether rows have names: a dict, or a list of dicts, of names or of pairs, as its first entry says."""
    if isinstance(rows, dict):
        return True
    if isinstance(rows, list | tuple):
        for row in rows:
            if isinstance(row, Mapping):
                return True
            if not isinstance(row, list | tuple):
                return False
            if row:
                first = row[0]
                return isinstance(first, str) or (
                    isinstance(first, list | tuple) and len(first) == 2 and isinstance(first[0], str)
                )
        return False
    return isinstance(rows, Mapping) or _of_objects(rows)


def _of_objects(rows: Any) -> TypeGuard[NDArray[Any]]:
    return isinstance(rows, np.ndarray) and rows.dtype == object and rows.ndim == 1 and is_named(rows[:1].tolist())


def as_list(rows: Any) -> Sequence[Any]:
    """Rows with names one after another: one dict is one row."""
    if isinstance(rows, Mapping):
        return (rows,)
    if isinstance(rows, list | tuple):
        return rows
    if _of_objects(rows):
        return rows.tolist()
    raise TypeError(f"rows must be a dict, or a list of dicts, of names or of pairs, got {type(rows).__name__}")


class Vocabulary:
    """Columns of features by name, in order of first appearance.

    A row is a dict {name: value}, or a list of names and of pairs (name, value). A value is a finite number, True (1),
    False (0), or a string: {"city": "Paris"} is the feature "city=Paris" with value 1. What occurs twice in a row is
    added up. None and NaN are refused: what is missing is left out of a row.

    Parameters
    ----------
    names : sequence of str, default ()
        The names of columns 0, 1, ...
    unknown : {"add", "ignore", "refuse"}, default "add"
        What becomes of a name without a column: it gets the next one, it is left out, or the rows are refused.

    Examples
    --------
    >>> vocabulary = Vocabulary()
    >>> vocabulary.encode([{"age": 3, "city": "Paris"}, {"city": "Rome"}]).toarray()
    array([[3., 1., 0.],
           [0., 0., 1.]])
    >>> list(vocabulary)
    ['age', 'city=Paris', 'city=Rome']
    """

    def __init__(self, names: Iterable[str] = (), *, unknown: str = "add") -> None:
        self.unknown = as_choice(unknown, "unknown", tuple(_UNKNOWN))
        self._columns: dict[str, int] = {}
        self._pairs: dict[str, dict[str, int]] = {}
        if isinstance(names, str):
            raise TypeError(f"names must be a sequence of strings, got {names!r}: [{names!r}] is one")
        try:
            found = list(names)
        except TypeError:
            raise TypeError(f"names must be a sequence of strings, got {type(names).__name__}") from None
        for name in found:
            if not isinstance(name, str):
                raise TypeError(f"names must be strings, got {name!r}")
        kernel.encode([found], self._kernel("add"))
        if len(self._columns) < len(found):
            raise ValueError("names must be different: one of them stands twice")

    # -- names and columns -----------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> int:
        return self._columns[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Vocabulary(unknown={self.unknown!r}): {len(self)} names>"

    def encode(self, rows: NamedRows, *, unknown: str | None = None) -> "csr_array[np.float64]":
        """Rows as CSR, one column for each name of the vocabulary.

        Parameters
        ----------
        rows : dict, or list of dicts, of names and of pairs
        unknown : {"add", "ignore", "refuse"}, optional
            In place of the vocabulary's own.

        Returns
        -------
        scipy.sparse.csr_array (n, len(vocabulary)), float64

        Raises
        ------
        TypeError, ValueError
            For rows that cannot serve, naming row and feature; the vocabulary is then as it was.
        """
        from scipy.sparse import csr_array

        unknown = self.unknown if unknown is None else as_choice(unknown, "unknown", tuple(_UNKNOWN))
        indptr, indices, data = self.parts(as_list(rows), unknown)
        return csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(self)))

    # -- for models ------------------------------------------------------------------------------------------------
    def _kernel(self, unknown: str) -> kernel.Columns:
        return kernel.by_vocabulary(self._columns, self._pairs, _UNKNOWN[unknown])

    def parts(self, rows: Sequence[Any], unknown: str) -> Parts:
        """The arrays of CSR rows; a refused or interrupted batch leaves no names."""
        before = len(self._columns)
        try:
            return kernel.encode(rows, self._kernel(unknown))
        except BaseException:
            self.cut(before)
            raise

    def cut(self, size: int) -> None:
        """Forget all names but the first ones."""
        if len(self._columns) > size:
            self._pairs.clear()  # which would still know them
            while len(self._columns) > size:
                self._columns.popitem()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The names as arrays: their UTF-8 text, and where each ends."""
        texts = [name.encode() for name in self._columns]
        ends = np.cumsum(np.array([len(text) for text in texts], np.int64))
        return {"names": np.frombuffer(b"".join(texts), np.uint8), "name_ends": ends.astype(np.int64)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Vocabulary":
        """The inverse of ``arrays``; ValueError for what is none."""
        ends = checks.array_of(arrays, "name_ends", (arrays["name_ends"].size,), checks.INT64)
        text = checks.array_of(arrays, "names", (arrays["names"].size,), np.uint8).tobytes()
        starts = np.concatenate([ends[:0], [0], ends[:-1]]) if ends.size else ends
        if (ends < starts).any() or (ends[-1] if ends.size else 0) != len(text):
            raise ValueError("array 'name_ends' does not fit array 'names'")
        try:
            names = [text[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        except UnicodeDecodeError as error:
            raise ValueError(f"array 'names' holds no UTF-8 text: {error}") from None
        return cls(names)


class NameHash:
    """Columns of features by a hash of the name: none is kept, and nothing grows.

    The hash is MurmurHash3 (x86, 32 bits, seed 0) of the UTF-8 text, taken as a signed integer h: the column is
    |h| mod 2**hash_bits, the sign that of h. So do scikit-learn's ``FeatureHasher(2**hash_bits)`` and these agree. Rows
    are those of ``Vocabulary``.

    Parameters
    ----------
    hash_bits : int
        In [1, 30]: there are 2**hash_bits columns.
    signed : bool, default True
        Whether a value is multiplied by the sign: names that share a column then cancel on average.

    Examples
    --------
    >>> rows = NameHash(18).encode([{"age": 3, "city": "Paris"}])
    >>> rows.shape, rows.nnz
    ((1, 262144), 2)
    """

    def __init__(self, hash_bits: int, *, signed: bool = True) -> None:
        self.hash_bits = as_integer(hash_bits, "hash_bits", 1, MOST_BITS + 1)
        self.signed = as_flag(signed, "signed")

    def __repr__(self) -> str:
        return f"NameHash({self.hash_bits}, signed={self.signed})"

    def __len__(self) -> int:
        return 1 << self.hash_bits

    def __getitem__(self, name: str) -> int:
        if not isinstance(name, str):
            raise TypeError(f"names of features must be strings, got {name!r}")
        return int(self.parts([[name]])[1][0])

    def encode(self, rows: NamedRows) -> "csr_array[np.float64]":
        """Rows as CSR.

        Parameters
        ----------
        rows : dict, or list of dicts, of names and of pairs

        Returns
        -------
        scipy.sparse.csr_array (n, 2**hash_bits), float64

        Raises
        ------
        TypeError, ValueError
            For rows that cannot serve, naming row and feature.
        """
        from scipy.sparse import csr_array

        indptr, indices, data = self.parts(as_list(rows))
        return csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(self)))

    def parts(self, rows: Sequence[Any], unknown: str = "add") -> Parts:
        """The arrays of CSR rows; no name is unknown."""
        return kernel.encode(rows, kernel.by_hash(self.hash_bits, self.signed))
