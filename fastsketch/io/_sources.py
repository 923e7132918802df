"""Rows from files, one chunk after another in constant memory: .npy, CSR .npz, svmlight text."""

import lzma
import zipfile
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._sparse import as_csr
from fastsketch.io._svmlight import count_features, open_text, read_blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# One chunk read at a time: long enough that a read costs nothing beside the work on it, small beside any memory.
CHUNK_BYTES = 8 << 20

P = ParamSpec("P")
R = TypeVar("R")


class SourceError(ValueError):
    """An input file that is missing, empty, cut short or of a format that is not read."""


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
    """
    path = Path(path)
    try:
        if path.stat().st_size == 0:
            raise SourceError(f"{path} is empty")
        if path.is_dir():
            raise SourceError(f"{path} is a directory")
        if path.suffix == ".npy":
            return NpySource(path)
        if path.suffix == ".npz":
            return NpzSource(path)
        return SvmlightSource(path, n_features=n_features, zero_based=zero_based)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


class NpySource:
    """A C- or Fortran-ordered .npy matrix, read with readinto: no memory map, so no pages pile up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            try:
                version = np.lib.format.read_magic(file)
                read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                shape, fortran, dtype = read[version](file)
            except (ValueError, KeyError, EOFError) as error:
                raise SourceError(f"{path} is no .npy file ({error})") from error
            self._offset = file.tell()
        if dtype.hasobject or dtype.kind not in "fiub":
            raise SourceError(f"{path} must hold real numbers, got dtype {dtype}")
        if len(shape) != 2 or shape[1] == 0:
            raise SourceError(f"{path} must hold a matrix with at least one column, got shape {shape}")
        self._length: int
        self._length, self.n_features = shape
        self.n_rows: int | None = self._length
        self.size = self._length
        self._dtype, self._fortran = dtype, fortran
        expected = self._offset + self._length * self.n_features * dtype.itemsize
        if path.stat().st_size < expected:
            raise SourceError(f"{path} is cut short: {path.stat().st_size} bytes of {expected}")

    def chunks(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
        """See Source; one array serves all chunks."""
        if self._fortran:
            yield from self._fortran_chunks(start_row)
            return
        width = self.n_features * self._dtype.itemsize
        step = max(1, CHUNK_BYTES // width)
        space = np.empty((min(step, self._length), self.n_features), self._dtype)
        with self.path.open("rb", buffering=0) as file:
            file.seek(self._offset + start_row * width)
            for start in range(start_row, self._length, step):
                part = space[: min(step, self._length - start)]
                self._read_fully(file, part)
                yield part, start + len(part)

    def _fortran_chunks(self, start_row: int) -> Iterator[tuple[NDArray[Any], int]]:
        # Columns lie one after another: read the same stretch of every column.
        item = self._dtype.itemsize
        step = max(1, CHUNK_BYTES // (self.n_features * item))
        with self.path.open("rb", buffering=0) as file:
            for start in range(start_row, self._length, step):
                part = np.empty((self.n_features, min(step, self._length - start)), self._dtype)
                for column in range(self.n_features):
                    file.seek(self._offset + (column * self._length + start) * item)
                    self._read_fully(file, part[column])
                yield np.ascontiguousarray(part.T), start + part.shape[1]

    def _read_fully(self, file: Any, out: NDArray[Any]) -> None:
        view = out.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(view):
            count = file.readinto(view[done:])
            if not count:
                raise SourceError(f"{self.path} is cut short")
            done += count


class NpzSource:
    """A CSR matrix written by scipy.sparse.save_npz; its arrays are read whole, its rows are never made dense."""

    def __init__(self, path: Path) -> None:
        from scipy.sparse import load_npz

        self.path = path
        try:
            with path.open("rb") as file:
                matrix: Any = load_npz(file)
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise SourceError(f"{path} is no scipy.sparse .npz file, or is damaged ({error})") from error
        try:
            self._matrix = as_csr(matrix, "it")
        except (TypeError, ValueError) as error:
            raise SourceError(f"{path} holds no matrix that can be read: {error}") from error
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
    """svmlight text as blocks of CSR rows, also with their labels."""

    def __init__(self, path: Path, *, n_features: int | None, zero_based: bool) -> None:
        self.path = path
        self._zero_based = zero_based
        self.n_rows: int | None = None
        self.size = path.stat().st_size
        with open_text(self.path) as file:
            head = file.read(4096)
        if b"\0" in head:
            raise SourceError(f"{path} is neither .npy, .npz nor svmlight text")
        if n_features is None:
            with open_text(self.path) as file:
                n_features = self._guard(count_features, file, zero_based=zero_based)
            if n_features == 0:
                raise SourceError(f"{path} holds no features")
        self.n_features = n_features

    def _guard(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (ValueError, EOFError, OSError, lzma.LZMAError) as error:
            raise SourceError(f"{self.path}: {error}") from error

    def chunks(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], int]]":
        """See Source."""
        for rows, _, position in self.labelled_chunks(start_row):
            yield rows, position

    def labelled_chunks(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], NDArray[np.float64], int]]":
        """As chunks, with the labels: (rows, labels, position)."""
        from scipy.sparse import csr_array

        row = 0
        with open_text(self.path) as file:
            blocks = read_blocks(file, CHUNK_BYTES, zero_based=self._zero_based)
            while (block := self._guard(next, blocks, None)) is not None:
                n = len(block.labels)
                if block.width > self.n_features:
                    raise SourceError(
                        f"{self.path}: feature {block.width} in rows {row}..{row + n - 1}, "
                        f"but n_features is {self.n_features}"
                    )
                rows: Any = csr_array((block.data, block.indices, block.indptr), shape=(n, self.n_features))
                first, row = row, row + n
                if row <= start_row:
                    continue
                skipped = max(0, start_row - first)
                yield (rows[skipped:] if skipped else rows), block.labels[skipped:], min(self.size, _place(file))


def _place(file: BinaryIO) -> int:
    """How many bytes have been read of the file itself, which may be compressed."""
    raw = getattr(file, "fileobj", None) or getattr(file, "_fp", None) or file
    return raw.tell()
