"""Encode rows of named features as sparse matrices, with a vocabulary or by feature hashing."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsketch._core.validation import as_choice, as_flag, as_integer
from fastsketch.data.names._naming import UNKNOWN, CsrArrays, HashedNames, NamedRows, NameTable, as_list

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# 2**30 is the largest power of two below 2**31 - 1.
MAX_HASH_BITS = 30


def _as_matrix(parts: CsrArrays, width: int) -> "csr_array[np.float64]":
    """Create a CSR matrix of `width` columns from the arrays (indptr, indices, data)."""
    from scipy.sparse import csr_array

    indptr, indices, data = parts
    out: Any = csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))
    return out


class Vocabulary:
    """A mapping from feature names to columns, numbered in order of first appearance.

    A row is a dict {name: value}, or a list of names and of pairs (name, value). A value is a finite number, True (1),
    False (0), or a string: {"city": "Paris"} is the feature "city=Paris" with value 1. Values of a feature that a row
    has several times are summed. None and NaN are refused; leave missing values out of the row.

    Parameters
    ----------
    names : sequence of str, default ()
        The names of columns 0, 1, ...
    unknown : {"add", "ignore", "refuse"}, default "add"
        What to do with a name that has no column: add a column, ignore the name, or refuse the rows.

    Examples
    --------
    >>> from fastsketch.data.names import Vocabulary
    >>> vocabulary = Vocabulary()
    >>> vocabulary.encode([{"age": 3, "city": "Paris"}, {"city": "Rome"}]).toarray()
    array([[3., 1., 0.],
           [0., 0., 1.]])
    >>> list(vocabulary)
    ['age', 'city=Paris', 'city=Rome']
    """

    def __init__(self, names: Iterable[str] = (), *, unknown: str = "add") -> None:
        self.unknown = as_choice(unknown, "unknown", tuple(UNKNOWN))
        self._name_table = NameTable()
        if isinstance(names, str):
            raise TypeError(f"names must be a sequence of strings, got {names!r}: [{names!r}] is one")
        try:
            name_list = list(names)
        except TypeError:
            raise TypeError(f"names must be a sequence of strings, got {type(names).__name__}") from None
        for name in name_list:
            if not isinstance(name, str):
                raise TypeError(f"names must be strings, got {name!r}")
        self._name_table.add(name_list)

    def __len__(self) -> int:
        return len(self._name_table.columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._name_table.columns)

    def __contains__(self, name: object) -> bool:
        return name in self._name_table.columns

    def __getitem__(self, name: str) -> int:
        return self._name_table.columns[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Vocabulary(unknown={self.unknown!r}): {len(self)} names>"

    def encode(self, rows: NamedRows, *, unknown: str | None = None) -> "csr_array[np.float64]":
        """Encode rows of named features as a CSR matrix with one column for each name.

        With unknown="add", new names are added.

        Parameters
        ----------
        rows : dict, or list of dicts, of names and of pairs
        unknown : {"add", "ignore", "refuse"}, optional
            Overrides the attribute.

        Returns
        -------
        scipy.sparse.csr_array (n, len(vocabulary)), float64

        Raises
        ------
        TypeError, ValueError
            For invalid rows; the message names row and feature, and the vocabulary is unchanged.
        """
        unknown = self.unknown if unknown is None else as_choice(unknown, "unknown", tuple(UNKNOWN))
        parts = self._name_table.parts(as_list(rows), unknown)
        return _as_matrix(parts, len(self))


class NameHash:
    """A feature hasher, which maps feature names to columns without storing the names.

    The hash is MurmurHash3 (x86, 32 bits, seed 0) of the UTF-8 text, read as a signed integer h. The column is ``|h|
    mod 2**hash_bits`` and the sign is that of h, as in scikit-learn's ``FeatureHasher(2**hash_bits)``. Rows are those
    of ``Vocabulary``.

    Parameters
    ----------
    hash_bits : int
        In [1, 30]; the number of columns is 2**hash_bits.
    signed : bool, default True
        Whether values are multiplied by the sign, so that collisions of names cancel on average.

    Examples
    --------
    >>> from fastsketch.data.names import NameHash
    >>> rows = NameHash(18).encode([{"age": 3, "city": "Paris"}])
    >>> rows.shape, rows.nnz
    ((1, 262144), 2)
    """

    def __init__(self, hash_bits: int, *, signed: bool = True) -> None:
        self.hash_bits = as_integer(hash_bits, "hash_bits", 1, MAX_HASH_BITS + 1)
        self.signed = as_flag(signed, "signed")
        self._encoder = HashedNames(self.hash_bits, signed=self.signed)

    def __repr__(self) -> str:
        return f"NameHash({self.hash_bits}, signed={self.signed})"

    def __len__(self) -> int:
        return 1 << self.hash_bits

    def __getitem__(self, name: str) -> int:
        if not isinstance(name, str):
            raise TypeError(f"names of features must be strings, got {name!r}")
        return int(self._encoder.parts([[name]], "add")[1][0])

    def encode(self, rows: NamedRows) -> "csr_array[np.float64]":
        """Encode rows of named features as a CSR matrix with 2**hash_bits columns.

        Parameters
        ----------
        rows : dict, or list of dicts, of names and of pairs

        Returns
        -------
        scipy.sparse.csr_array (n, 2**hash_bits), float64

        Raises
        ------
        TypeError, ValueError
            For invalid rows; the message names row and feature.
        """
        return _as_matrix(self._encoder.parts(as_list(rows), "add"), len(self))
