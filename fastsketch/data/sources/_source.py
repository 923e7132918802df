"""The interface of sources of rows, and a base class for sources that can be read from any row on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._prefetch import prefetch
from fastsketch.data.sources._stamped_file import StampedFile

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    _Rows: TypeAlias = "NDArray[Any] | csr_array[Any]"

# The extra column, or several as a tuple, by name or position.
Beside: TypeAlias = str | int | tuple[str | int, ...]

# Bytes of a chunk: large enough that the cost of a read is negligible, and small compared with the memory.
CHUNK_BYTES = 8 << 20
# Bytes of text that are scanned at a time, and the longest line: a row of 20 million values.
BLOCK_BYTES, LONGEST_LINE = 4 << 20, 256 << 20
# Column indices and the number of columns are 32-bit integers.
MAX_FEATURES = 2**31 - 1


class Place(NamedTuple):
    """Position of a row in its file, for error messages: name of the file, row number and line number."""

    name: str  # of the file or object
    row: int | None  # counted from 0 within it; None where rows before it would have to be counted
    line: int | None  # of text, counted from 1; None if it cannot be read again

    def __str__(self) -> str:
        row = None if self.row is None else f"row {self.row}"
        line = None if self.line is None else f"line {self.line}"
        return ", ".join(filter(None, (self.name, line, row)))


class Source(ABC):
    """A source of rows of one width that is read in chunks.

    A source that can be read again (``repeatable``) opens its files only while it is read, can be pickled, and may be
    read by several threads or processes at the same time. ``parts`` splits it into sources of consecutive rows; the
    split depends on the data only.

    A subclass implements ``read`` and, if it knows its number of rows, ``between``; or it implements ``parts``. Most
    derive from ``RowSource`` and implement only how rows are read from a given row on.

    Attributes
    ----------
    name : str
        Name for messages: a path, "standard input", the type of an object.
    n_rows : int or None
        None if it is unknown until all rows are read.
    n_features : int
    feature_names : tuple of str or None
        Names of the columns; None if they have none.
    dtype : dtype or None
        Dtype of the rows; None if it is unknown until they are read.
    sparse : bool
        Whether rows are CSR.
    size : int
        Total size in the units of the positions that ``chunks`` yields: rows, or bytes of text; 0 if unknown.
    repeatable : bool
        Whether rows can be read more than once, and from another process.
    first_row : int
        For a part, its first row in the source that was split; 0 otherwise, and if that is unknown (text).

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> source = fs.open_rows(np.arange(12.0).reshape(6, 2))
    >>> isinstance(source, fs.data.Source), source.n_rows, source.n_features
    (True, 6, 2)
    >>> [part.n_rows for part in source.parts(n_bytes=64)]
    [4, 2]
    >>> source.between(4, 6).where(1)
    'the rows, row 5'
    >>> sum(len(rows) for rows in source)
    6
    """

    repeatable: bool = True
    # Whether reading waits for a disk or a decompressor, so that a thread prefetches chunks.
    waits: bool = True

    name: str
    n_rows: int | None
    n_features: int
    feature_names: tuple[str, ...] | None = None
    dtype: np.dtype[Any] | None = None
    sparse: bool = False
    size: int = 0
    first_row: int = 0
    # Whether no entry can be missing, so that rows are not checked for NaN.
    complete: bool = False

    @abstractmethod
    def read(self, start_row: int = 0) -> "Iterator[tuple[_Rows, int]]":
        """Yield each chunk as (rows, position after it), reading in the calling thread.

        Parameters
        ----------
        start_row : int, default 0
        """

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[_Rows, int]]":
        """Return an iterator over chunks as (rows, position after them), from row start_row on.

        The rows are valid until the next chunk is read. For sources that have to wait (for a disk, a decompressor), a
        thread reads at most two chunks ahead; it ends with the iterator.

        Parameters
        ----------
        start_row : int, default 0
        """
        if self.waits and (self.n_rows is None or self.n_bytes > CHUNK_BYTES):
            return prefetch(self.read(start_row))
        return self.read(start_row)

    # The requested columns, if the source itself has selected them.
    taken: tuple[str | int, ...] | None = None
    # The extra column, or several as a tuple: the key of a group, or targets. The rows do not contain it.
    beside: "Beside | None" = None
    # Whether the rows have labels that are no column, as in svmlight text.
    labelled: bool = False

    def read_beside(self, start_row: int = 0) -> "Iterator[tuple[_Rows, NDArray[Any], int]]":
        """Yield each chunk with the values of the extra column `beside`, as (rows, values, position).

        Values are numbers, strings or objects; missing ones are None or NaN. Several extra columns hold numbers, (n,
        k). ValueError if the source has no extra column.

        Parameters
        ----------
        start_row : int, default 0
        """
        raise ValueError(f"{self.name}: no column lies beside these rows: open_rows(..., beside=...) sets one apart")

    def chunks_beside(self, start_row: int = 0) -> "Iterator[tuple[_Rows, NDArray[Any], int]]":
        """Return an iterator like ``chunks`` that also yields the values of the extra column `beside`.

        Parameters
        ----------
        start_row : int, default 0
        """
        if self.waits and (self.n_rows is None or self.n_bytes > CHUNK_BYTES):
            return prefetch(self.read_beside(start_row))
        return self.read_beside(start_row)

    def __repr__(self) -> str:
        shape = f"{'?' if self.n_rows is None else self.n_rows} x {self.n_features}"
        kind = f"{', sparse' if self.sparse else ''}{'' if self.dtype is None else f', {self.dtype}'}"
        return f"<source of {self.name}: {shape}{kind}>"

    def __iter__(self) -> "Iterator[_Rows]":
        """Yield chunks of rows; each is valid until the next one is read."""
        for rows, _ in self.chunks():
            yield rows

    @property
    def n_bytes(self) -> int:
        """Approximate size of the rows in memory in bytes, or the size of the text; 0 if unknown."""
        if self.n_rows is None:
            return 0
        return self.n_rows * self.n_features * (8 if self.dtype is None else self.dtype.itemsize)

    def between(self, start: int, stop: int) -> "Source":
        """Return rows [start, stop) as a source; only for repeatable sources with a known number of rows.

        Parameters
        ----------
        start, stop : int
            Rows, counted from 0 within this source.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be cut by rows")

    def parts(self, n_bytes: int, *, multiple: int = 1) -> "list[Source]":
        """Split the source into consecutive sources of about n_bytes each, and return them as a list.

        All but the last have a multiple of `multiple` rows, if the source knows its number of rows. The split depends
        only on the data and on the two arguments. A source that cannot be split returns itself, or longer parts.

        Parameters
        ----------
        n_bytes : int
            Approximate size of the rows of a part.
        multiple : int, default 1
        """
        if self.n_rows is None or not self.repeatable or type(self).between is Source.between:
            return [self]
        step = rows_of_part(self, n_bytes, multiple)
        if step >= self.n_rows:
            return [self]
        return [self.between(start, min(start + step, self.n_rows)) for start in range(0, self.n_rows, step)]

    def _row_names(self) -> "NDArray[Any] | None":
        """Return the names of the rows as an array of strings (n_rows,), or None if the source has none."""
        return None

    def varied(self, **fields: Any) -> Self:
        """Return a shallow copy of the source whose attributes in `fields` have new values.

        Parameters
        ----------
        **fields
            Attributes and their values.
        """
        other = object.__new__(type(self))
        for name, value in {**vars(self), **fields}.items():
            setattr(other, name, value)
        return other

    def only(self, columns: Sequence[int]) -> "Source | None":
        """Return a source that reads only the columns at these positions; None if the format always reads all."""
        return None

    def each(self) -> "list[Source]":
        """Return the list of sources that this one concatenates, or a list of only itself."""
        return [self]

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows, such as file names, sizes, times and digests of samples.

        Raises
        ------
        SourceError
            If the rows come once.
        """
        if not self.repeatable:
            raise SourceError(f"{self.name} can be read only once")
        raise NotImplementedError

    _begun = False

    def _begin(self) -> None:
        """Record that reading starts. SourceError if the source can be read only once and has been read before."""
        if not self.repeatable:
            if self._begun:
                raise SourceError(f"{self.name} has been read, and can be read only once: save it to a file first")
            self._begun = True

    def place(self, row: int) -> Place:
        """Return the file name, row number and line of row `row` of this source as a ``Place``; rows count from 0."""
        return Place(self.name, self.first_row + row, None)

    def where(self, row: int) -> str:
        """Describe a row, counted from 0 within this source, for an error message by file, row and, for text, line."""
        return str(self.place(row))


class RowSource(Source):
    """Base class of sources that can start reading at any row. Subclasses implement ``_chunks``, which reads from a
    given row on.
    """

    file: StampedFile | None = None  # the file that is read; None for rows in memory

    @property
    def path(self) -> Path:
        """Path of the file that is read. Rows in memory have none."""
        return self.open_file.path

    @property
    def open_file(self) -> StampedFile:
        """The file that is read, of a source that has one."""
        assert self.file is not None
        return self.file

    def _chunks(self, start: int) -> "Iterator[_Rows]":
        """Yield matrices with the rows from index `start` to the end of this part. `start` is counted from the
        beginning of the whole file or object.
        """
        raise NotImplementedError

    @property
    def _stop(self) -> int:
        """Index of the row after the last one of this part, counted from the beginning of the whole file or object."""
        return self.first_row + self.size

    def _steps(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield pairs (first, stop) of row indices, one for each chunk that is to be read."""
        step = rows_of_chunk(self)
        for first in range(start, self._stop, step):
            yield first, min(first + step, self._stop)

    def check_unchanged(self) -> None:
        """Check that the file is the same as when it was opened. SourceError if it has changed; sources in memory are
        not checked.
        """
        if self.file is not None:
            self.file.check_unchanged(self.name)

    def read(self, start_row: int = 0) -> "Iterator[tuple[_Rows, int]]":
        """Yield each chunk as (rows, position after it). SourceError if the file is changed while it is read."""
        self._begin()
        self.check_unchanged()
        for rows in self._chunks(self.first_row + start_row):
            start_row += length(rows)
            yield rows, start_row if self.size else 0
        self.check_unchanged()

    def between(self, start: int, stop: int) -> Source:
        """Return rows [start, stop) as a source."""
        return self.varied(first_row=self.first_row + start, n_rows=stop - start, size=stop - start)

    def identity(self) -> dict[str, Any]:
        """Return JSON values by which a resumed job recognises the rows of this part, with those of the file.

        SourceError if the file has changed since it was opened.
        """
        if not self.repeatable:
            return super().identity()
        self.check_unchanged()
        return {**({} if self.file is None else self.file.identity()), "rows": [self.first_row, self.n_rows]}


def length(rows: Any) -> int:
    """Return the number of rows of a matrix, or of a list of rows with named features."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def rows_of_chunk(source: Source) -> int:
    """Return how many rows of a source make a chunk of about 8 MiB; at least 1."""
    if source.n_rows:
        return rows_of_part(source, CHUNK_BYTES, 1)
    return max(1, CHUNK_BYTES // (source.n_features * np.dtype(source.dtype).itemsize))


def rows_of_part(source: Source, n_bytes: int, multiple: int) -> int:
    """Return how many rows of a source take about n_bytes. The number is a positive multiple of `multiple`."""
    n_bytes, multiple = as_integer(n_bytes, "n_bytes", 1), as_integer(multiple, "multiple", 1)
    bytes_of_row = max(1, source.n_bytes // max(1, source.n_rows or 0))
    return max(1, n_bytes // (bytes_of_row * multiple)) * multiple
