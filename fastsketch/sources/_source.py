"""What every source of rows is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    Rows: TypeAlias = "NDArray[Any] | csr_array[Any]"

# One chunk read at a time: long enough that a read costs nothing beside the work on it, small beside any memory.
CHUNK_BYTES = 8 << 20


class Source(ABC):
    """Rows of one width from somewhere, a chunk at a time.

    A source whose rows can be read again (``repeatable``) is a description: it opens what it names only while it is
    read, pickles as its names and numbers, and may be read by several threads or processes at once. ``parts`` cuts it
    into sources of consecutive rows, by the data alone.

    Attributes
    ----------
    name : str
        In messages: a path, "standard input", the type of an object.
    n_rows : int or None
        None if only the end of the rows shows it.
    n_features : int
    feature_names : tuple of str or None
        Names of the columns, in their order; None if they have none.
    dtype : dtype or None
        Of the rows that are given; None if it is not known before.
    sparse : bool
        Whether rows are CSR.
    size : int
        In the units of the positions that ``chunks`` gives: rows, or bytes of text; 0 if it is not known.
    repeatable : bool
        Whether rows can be read more than once, and from another process.
    first_row : int
        Where the rows of a part begin in the source that was cut; 0 otherwise.
    """

    repeatable: ClassVar[bool] | bool = True

    name: str
    n_rows: int | None
    n_features: int
    feature_names: tuple[str, ...] | None = None
    dtype: np.dtype[Any] | None = None
    sparse: bool = False
    size: int = 0
    first_row: int = 0

    @abstractmethod
    def chunks(self, start_row: int = 0) -> "Iterator[tuple[Rows, int]]":
        """Rows from start_row on, as (rows, position after them); rows hold until the next chunk is read."""

    def __iter__(self) -> "Iterator[Rows]":
        """The rows, a chunk at a time; each chunk holds until the next one is read."""
        for rows, _ in self.chunks():
            yield rows

    def parts(self, n_bytes: int, *, multiple: int = 1) -> "list[Source]":
        """Consecutive sources of about n_bytes of rows in memory, with a multiple of `multiple` rows in all but the last.

        The cuts depend on the data and on the two numbers alone. A source that cannot be cut, or not there, gives itself
        or longer parts; parts whose n_rows is None, or no multiple, come of sources that know no better.
        """
        return [self]

    def identity(self) -> dict[str, Any]:
        """What json can write and tells these rows from others: names, sizes, times, digests of samples.

        Raises
        ------
        SourceError
            If the rows come once.
        """
        raise NotImplementedError

    def where(self, row: int) -> str:
        """How a message names a row, counted from 0 within this source: the file, the row and, in text, the line."""
        return f"{self.name}, row {self.first_row + row}"
