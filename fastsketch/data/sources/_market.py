"""Matrices of the Matrix Market (.mtx): read whole, since their entries may come in any order."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_rows
from fastsketch._kernels.io import table as kernel
from fastsketch.data.files._input import FREE_BYTES, InputFile, SourceError, whole_lines
from fastsketch.data.files._table import no_number
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._npz_source import SparseMatrix
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._streams import Stream

BLOCK_BYTES, LONGEST_LINE = 4 << 20, 1 << 20

_BANNER = re.compile(
    rb"%%matrixmarket +matrix +(?P<form>coordinate|array) +(?P<field>real|double|integer|pattern|complex) "
    rb"+(?P<symmetry>general|symmetric|skew-symmetric|hermitian) *\r?"
)
_SIZES = re.compile(rb"[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})(?:[ \t]+([0-9]{1,18}))?[ \t]*\r?")


def open_market(path: Path, options: Options, stream: Stream | None = None) -> Source:
    """Return the matrix in a file, or in a stream that is read once and held."""
    if stream is None:
        return MarketMatrix(path, options)
    with stream.held(options.max_unpacked), InputFile(path, stream) as text:
        source = ArraySource(_MarketReader(text, stream.name).matrix(), name=stream.name)
    source.repeatable = False
    return source


class MarketMatrix(SparseMatrix):
    """A matrix in a file: CSR, or, in the form "array", dense."""

    def load(self) -> Any:
        """See SparseMatrix."""
        with InputFile(self.path).held(self._most) as text:
            return _MarketReader(text, self.name).matrix()


class _Header(NamedTuple):
    """Header of a matrix."""

    dense: bool
    pattern: bool
    whole: bool
    symmetry: str
    shape: tuple[int, int]
    entries: int  # lines that follow


class _MarketReader:
    """Text of one matrix."""

    def __init__(self, text: InputFile, name: str) -> None:
        self._name, self._line = name, 0
        self._pieces: Iterator[memoryview] = whole_lines(text, BLOCK_BYTES, LONGEST_LINE)
        self._rest, self._at = b"", 0

    def _error(self, why: str, line: int | None = None) -> SourceError:
        return SourceError(f"{self._name}, line {self._line if line is None else line}: {why}")

    def _next_line(self) -> bytes:
        if self._at == len(self._rest):
            piece = next(self._pieces, None)
            if piece is None:
                raise SourceError(f"{self._name} is cut short: it ends within its header")
            self._rest, self._at = bytes(piece), 0  # whole lines
        start, end = self._at, self._rest.index(b"\n", self._at)
        self._line, self._at = self._line + 1, end + 1
        return self._rest[start:end]

    def _header(self) -> _Header:
        banner = _BANNER.fullmatch(self._next_line().lower())
        if banner is None:
            raise self._error("it is no header like %%MatrixMarket matrix coordinate real general")
        form, field, symmetry = (banner[k].decode() for k in ("form", "field", "symmetry"))
        if field == "complex" or symmetry == "hermitian":
            raise self._error("the matrix must hold real numbers, it is complex")
        line = self._next_line()
        while not line.strip() or line.startswith(b"%"):
            line = self._next_line()
        sizes = _SIZES.fullmatch(line)
        dense = form == "array"
        if sizes is None or (sizes[3] is None) != dense or (dense and field == "pattern"):
            raise self._error(f"it should state rows, columns{'' if dense else ' and entries'} of the matrix")
        shape = int(sizes[1]), int(sizes[2])
        if shape[1] == 0:
            raise self._error("the matrix has no columns")
        if symmetry != "general" and shape[0] != shape[1]:
            raise self._error(f"the matrix is {symmetry}, and has the shape {shape}")
        n = shape[0]
        of_triangle = n * (n + 1) // 2 - (n if symmetry == "skew-symmetric" else 0)
        entries = (shape[0] * shape[1] if symmetry == "general" else of_triangle) if dense else int(sizes[3])
        return _Header(dense, field == "pattern", field == "integer", symmetry, shape, entries)

    def _blocks(self) -> Iterator[bytes]:
        """Yield the lines after the header."""
        yield self._rest[self._at :]
        for piece in self._pieces:
            yield bytes(piece)

    def matrix(self) -> Any:
        """Return the matrix; SourceError names the line that is none of its entries."""
        header = self._header()
        width = 1 if header.dense else 2 if header.pattern else 3
        places = np.arange(width, dtype=np.int32)
        index: list[NDArray[Any]] = [np.empty((2, 0), _index_type(header))]
        values = [np.empty(0)]
        n_found = 0
        first = self._line
        for text in self._blocks():
            try:
                rows, _, missing, newlines = kernel.parse_block(text, ord(" "), places, width)
            except kernel.BadCell as error:
                before, column, why = error.args
                where = "" if column is None else f"column {column + 1}: "
                why = no_number(error.cell) if error.cell is not None else why
                why = why if column is not None else f"an entry of this matrix has {width} numbers"
                raise self._error(where + why, self._line + 1 + before) from None
            if missing:
                raise self._error("a number is missing", self._line + 1)
            self._line += newlines
            if n_found + len(rows) > header.entries:
                raise self._error(f"there are more than the {header.entries:,} entries that line {first} states")
            if not header.dense:
                index.append(self._places(rows, header, n_found))
            if header.whole and (odd := rows[:, -1] != np.floor(rows[:, -1])).any():
                entry = int(np.argmax(odd))
                raise SourceError(
                    f"{self._name}: entry {n_found + entry + 1} is {rows[entry, -1]:g}, in a matrix of integers: write "
                    "real in its first line"
                )
            if not header.pattern:
                values.append(rows[:, -1].copy())
            n_found += len(rows)
        if n_found < header.entries:
            raise SourceError(f"{self._name} is cut short: it has {n_found:,} of {header.entries:,} entries")
        if not header.dense and 8 * header.shape[0] > 64 * self._line + FREE_BYTES + 8 * n_found:
            raise SourceError(f"{self._name} claims {header.shape[0]:,} rows in {self._line:,} lines")
        if header.dense:
            return _dense(np.concatenate(values), header)
        return self._sparse(np.concatenate(index, axis=1), np.concatenate(values), header)

    def _places(self, rows: NDArray[np.float64], header: _Header, before: int) -> NDArray[Any]:
        """Return rows and columns, from 0, of the entries after the first `before`."""
        counted = (rows[:, :2] >= 1) & (rows[:, :2] < 2.0**62)
        index = np.where(counted, rows[:, :2], 0).astype(np.int64)
        for k, what in ((0, "row"), (1, "column")):
            bad = (index[:, k] != rows[:, k]) | (index[:, k] < 1) | (index[:, k] > header.shape[k])
            if bad.any():
                entry = int(np.argmax(bad))
                raise SourceError(
                    f"{self._name}: entry {before + entry + 1} has the {what} {rows[entry, k]:g}, outside [1, "
                    f"{header.shape[k]}]"
                )
        if header.symmetry == "skew-symmetric" and (own := index[:, 0] == index[:, 1]).any():
            entry = int(np.argmax(own))
            raise SourceError(
                f"{self._name}: entry {before + entry + 1} is on the diagonal, where a skew-symmetric matrix has none"
            )
        return np.ascontiguousarray(index.T - 1, _index_type(header))

    def _sparse(self, index: NDArray[Any], values: NDArray[np.float64], header: _Header) -> Any:
        from scipy.sparse import coo_array

        values = np.ones(int(index.shape[1])) if header.pattern else values
        if header.symmetry != "general":
            mirrored = index[0] != index[1]
            sign = -1.0 if header.symmetry == "skew-symmetric" else 1.0
            index = np.concatenate([index, index[::-1, mirrored]], axis=1)
            values = np.concatenate([values, sign * values[mirrored]])
        matrix: Any = coo_array((values, (index[0], index[1])), shape=header.shape)
        return as_rows(matrix, name=f"{self._name}: the matrix")


def _index_type(header: _Header) -> Any:
    return np.int32 if max(header.shape) < 1 << 31 else np.int64


def _dense(values: NDArray[np.float64], header: _Header) -> NDArray[np.float64]:
    """Return entries column by column; of a symmetric matrix those on and below its diagonal."""
    if header.symmetry == "general":
        return np.ascontiguousarray(values.reshape(header.shape, order="F"))
    skew = header.symmetry == "skew-symmetric"
    out = np.zeros(header.shape)
    columns, rows = np.triu_indices(header.shape[0], 1 if skew else 0)
    out[rows, columns] = values
    out[columns, rows] = -values if skew else values
    return out
