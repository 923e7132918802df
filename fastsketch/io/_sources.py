"""Rows from files, one chunk after another in constant memory: .npy, CSR .npz, svmlight text."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsketch._validation import as_flag, as_integer
from fastsketch.io._input import InputFile, SourceError, whole_lines
from fastsketch.io._npy import Header, read_header
from fastsketch.io._npz import read_matrix
from fastsketch.io._svmlight import BLOCK_BYTES, LONGEST_LINE, MOST_FEATURES, count_features, read_blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# One chunk read at a time: long enough that a read costs nothing beside the work on it, small beside any memory.
CHUNK_BYTES = 8 << 20


class Source(Protocol):
    """Rows of one file, read a chunk at a time.

    Attributes
    ----------
    path : Path
    n_rows : int or None
        None if only the end of the file shows it.
    n_features : int
    size : int
        In the units of the positions that ``chunks`` gives: rows, or bytes of text.
    """

    path: Path
    n_rows: int | None
    n_features: int
    size: int

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[NDArray[Any] | csr_array[Any], int]]":
        """Rows from start_row on, as (rows, position after them); rows hold until the next chunk is read."""
        ...


def open_source(path: str | PathLike[str], *, n_features: int | None = None, zero_based: bool = False) -> Source:
    """A source of rows for one file, by its name: .npy, .npz (scipy CSR) or svmlight text (also .gz, .bz2, .xz).

    Parameters
    ----------
    path : str or path
    n_features : int, optional
        Columns of svmlight text; without it the file is read once before, to find the largest index.
    zero_based : bool, default False
        Whether feature indices in svmlight text start at 0.

    Returns
    -------
    source : fastsketch.io.Source
        With ``n_features``, ``n_rows`` (None if unknown), ``size`` (in the units of ``position``), and
        ``chunks(start_row=0)``, an iterator over (rows, position).

    Raises
    ------
    SourceError
        If the file is missing, empty, damaged or of another format.
    TypeError, ValueError
        If an argument is out of its range.
    """
    path = Path(path)
    if n_features is not None:
        n_features = as_integer(n_features, "n_features", 1, MOST_FEATURES + 1)
    zero_based = as_flag(zero_based, "zero_based")
    try:
        if path.is_dir():
            raise SourceError(f"{path} is a directory")
        if path.exists() and not path.is_file():
            raise SourceError(f"{path} is no regular file: rows may be read twice; save them to a file first")
        if path.stat().st_size == 0:
            raise SourceError(f"{path} is empty")
        if path.suffix == ".npy":
            return NpySource(path)
        if path.suffix == ".npz":
            return NpzSource(path)
        return SvmlightSource(path, n_features=n_features, zero_based=zero_based)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def read_npy_header(path: Path) -> Header:
    """The header of an .npy file that is exactly as long as it states; SourceError for anything else.

    Bytes beyond the array are an error like missing ones: which of header and length is the damaged one, nobody knows.
    """
    with path.open("rb") as file:
        try:
            header = read_header(file)
        except ValueError as error:
            raise SourceError(f"{path} is no .npy file ({error})") from error
        length = path.stat().st_size
    if header.dtype.kind not in "fiub":
        raise SourceError(f"{path} must hold real numbers, got dtype {header.dtype}")
    if length < header.end:
        raise SourceError(f"{path} is cut short: {length} bytes of {header.end}")
    if length > header.end:
        raise SourceError(f"{path} is damaged: its header states {header.end} bytes, there are {length}")
    return header


class NpySource:
    """A C- or Fortran-ordered .npy matrix, read with readinto: no memory map, so no pages pile up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = read_npy_header(path)
        if len(header.shape) != 2 or header.shape[1] == 0:
            raise SourceError(f"{path} must hold a matrix with at least one column, got shape {header.shape}")
        self._offset = header.offset
        self._length: int
        self._length, self.n_features = header.shape
        self.n_rows: int | None = self._length
        self.size = self._length
        self._dtype, self._fortran = header.dtype, header.fortran

    def chunks(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
        """See Source; one array serves all chunks."""
        if start_row >= self._length:
            return
        if self._fortran:
            yield from self._fortran_chunks(start_row)
            return
        width = self.n_features * self._dtype.itemsize
        step = max(1, CHUNK_BYTES // width)
        space = np.empty((min(step, self._length), self.n_features), self._dtype)
        with self.path.open("rb", buffering=0) as file:
            for start in range(start_row, self._length, step):
                part = space[: min(step, self._length - start)]
                self._read_fully(file, self._offset + start * width, part)
                yield part, start + len(part)

    def _fortran_chunks(self, start_row: int) -> Iterator[tuple[NDArray[Any], int]]:
        # Columns lie one after another: read the same stretch of every column.
        item = self._dtype.itemsize
        step = max(1, CHUNK_BYTES // (self.n_features * item))
        with self.path.open("rb", buffering=0) as file:
            for start in range(start_row, self._length, step):
                part = np.empty((self.n_features, min(step, self._length - start)), self._dtype)
                for column in range(self.n_features):
                    self._read_fully(file, self._offset + (column * self._length + start) * item, part[column])
                yield np.ascontiguousarray(part.T), start + part.shape[1]

    def _read_fully(self, file: Any, place: int, out: NDArray[Any]) -> None:
        view = out.reshape(-1).view(np.uint8).data
        done = 0
        try:
            file.seek(place)
            while done < len(view):
                count = file.readinto(view[done:])
                if not count:
                    raise SourceError(f"{self.path} has been cut short: it ends before byte {place + len(view)}")
                done += count
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read at byte {place + done}: {error.strerror}") from error


class NpzSource:
    """A CSR matrix written by scipy.sparse.save_npz; its arrays are read whole, its rows are never made dense."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._matrix: Any = read_matrix(path)
        self.size: int
        self.size, self.n_features = self._matrix.shape
        self.n_rows: int | None = self.size

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], int]]":
        """See Source."""
        average = max(1, self._matrix.nnz // max(1, self.size))
        step = max(1, CHUNK_BYTES // (16 * average))
        for start in range(start_row, self.size, step):
            stop = min(start + step, self.size)
            yield self._matrix[start:stop], stop


class SvmlightSource:
    """svmlight text as blocks of CSR rows, also with their labels.

    A stream (``file``: an open binary file, the path its name in errors) is read once, from where it is, and its width
    must be known.
    """

    def __init__(self, path: Path, *, n_features: int | None, zero_based: bool, file: BinaryIO | None = None) -> None:
        self.path = path
        self._zero_based = zero_based
        self._file = file
        self.n_rows: int | None = None
        self.size = path.stat().st_size if file is None else 0
        if file is None:
            with InputFile(path) as start:
                head = start.read(4096)
            if b"\0" in head:
                raise SourceError(f"{path} is neither .npy, .npz nor svmlight text")
        if n_features is None:
            with InputFile(path, file) as whole:
                n_features = count_features(whole, zero_based=zero_based)
            if n_features == 0:
                raise SourceError(f"{path} holds no features")
        self.n_features = n_features

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], int]]":
        """See Source."""
        for rows, _, position in self.labelled_chunks(start_row):
            yield rows, position

    def labelled_chunks(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], NDArray[np.float64], int]]":
        """As chunks, with the labels: (rows, labels, position)."""
        from scipy.sparse import csr_array

        row = 0
        with InputFile(self.path, self._file) as file:
            for block in read_blocks(file, CHUNK_BYTES, zero_based=self._zero_based):
                n = len(block.labels)
                if block.width > self.n_features:
                    raise SourceError(
                        f"{self.path}: feature {block.width} in row {row + block.widest_row()}, "
                        f"but n_features is {self.n_features}"
                    )
                rows: Any = csr_array((block.data, block.indices, block.indptr), shape=(n, self.n_features))
                first, row = row, row + n
                if row <= start_row:
                    continue
                skipped = max(0, start_row - first)
                yield (rows[skipped:] if skipped else rows), block.labels[skipped:], min(self.size, file.place)

    def line_of(self, row: int) -> int | None:
        """The line of a row, counted from 1; rows count from 0, and empty lines and comments are none."""
        if self._file is not None:
            return None
        with InputFile(self.path) as file:
            blocks = whole_lines(file, BLOCK_BYTES, LONGEST_LINE)
            for number, line in enumerate((line for block in blocks for line in bytes(block).splitlines()), 1):
                if line.split(b"#", 1)[0].strip():
                    row -= 1
                    if row < 0:
                        return number
        return None
