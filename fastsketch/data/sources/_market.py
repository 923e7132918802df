"""Read Matrix Market files (.mtx) with scipy, whole, because their entries may be in any order.

scipy ignores what follows a number in a line: 0x10 would be 0, and 0.5 in an integer matrix 0. Therefore all lines are
checked first.
"""

import io
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch._core.escaping import escaped
from fastsketch._core.validation import as_rows
from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import InputFile, SourceError, max_unpacked_bytes
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._npz_source import SparseMatrix
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._streams import name_of

HEADER = "%%MatrixMarket matrix coordinate real general"
_BANNER = rb"(?i:%%matrixmarket)(?: ++[A-Za-z-]++){4} *+\r?\n"
# Possessive quantifiers: without backtracking, a long invalid line costs linear time.
_INDEX, _INTEGER = rb"[0-9]++", rb"[+-]?+[0-9]++"
_REAL = rb"[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"


def open_market(path: Path, options: Options, stream: InputFile | None = None) -> Source:
    """Open a Matrix Market file, or a stream of that format, as a source. A stream is read into memory."""
    if stream is None:
        return MarketMatrix(path, options)
    name = name_of(stream)
    with stream.limited(options.max_unpacked) as text:
        source = ArraySource(_matrix(text, name, options.max_unpacked), name=name)
    source.repeatable = False
    return source


class MarketMatrix(SparseMatrix):
    """A source of the matrix in a Matrix Market file: sparse (CSR), or dense for the format "array".

    Its columns are read as rows on request, or for files of 10x Genomics.
    """

    def __init__(self, path: Path, options: Options) -> None:
        genes = [] if options.transpose is False else _names_beside(path, "features", "genes")
        if options.transpose is None:
            self._transpose = bool(genes) and _is_10x(path, len(genes))
        else:
            self._transpose = options.transpose
        super().__init__(path, options)
        if self._transpose and len(genes) == self.n_features:
            self.feature_names = tuple(genes)

    def load(self) -> Any:
        """Read and return the matrix, transposed if its columns are to be rows."""
        with InputFile(self.path).limited(self._most) as text:
            return _matrix(text, self.name, self._most, transpose=self._transpose)

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows, and whether the matrix is transposed."""
        return {**super().identity(), **({"transpose": True} if self._transpose else {})}


def _is_10x(path: Path, n_genes: int) -> bool:
    """Warn and return True if a Matrix Market file has a row for each gene and a column for each cell.

    The names of genes and cells are in the tables that 10x Genomics stores in the same folder.
    """
    from scipy.io import mminfo

    with InputFile(path) as file, suppress(ValueError):  # an invalid header is reported when the matrix is read
        if tuple(mminfo(io.BytesIO(file.read(1 << 20)))[:2]) == (n_genes, len(_names_beside(path, "barcodes"))):
            warn_caller(
                f"{escaped(path)} has a row for each gene and a column for each cell, as the names beside it show: "
                "cells are read as rows (transpose=False of fs.open_rows reads the matrix as it is stored)"
            )
            return True
    return False


def _names_beside(path: Path, *kinds: str) -> list[str]:
    """Return the first column of the table of features or barcodes that 10x Genomics stores next to matrix.mtx."""
    prefix, found, _ = path.name.partition("matrix.mtx")
    for other in (path.with_name(f"{prefix}{kind}.tsv{suffix}") for kind in kinds for suffix in ("", ".gz")):
        if found and other.is_file():
            with InputFile(other).limited() as file:
                text = b"".join(iter(lambda: file.read(1 << 20), b""))  # noqa: B023  called at once
            return [line.partition("\t")[0] for line in text.decode("utf-8", "replace").splitlines()]
    return []


def _matrix(file: InputFile, name: str, max_unpacked: int | None, *, transpose: bool = False) -> Any:
    """Parse Matrix Market text and return the matrix, or its transpose, as rows.

    Raise SourceError for invalid text, before memory is allocated for the sizes that the text claims.
    """
    from scipy.io import mminfo, mmread
    from scipy.sparse import coo_array

    buffer = io.BytesIO()
    while part := file.read(1 << 20):
        buffer.write(part)
    buffer.write(b"\n")
    text, size = buffer.getvalue(), buffer.tell()
    del buffer
    try:
        n_rows, n_columns, n_entries, form, field, symmetry = mminfo(io.BytesIO(text))
        if field == "complex" or symmetry == "hermitian":
            raise ValueError("the matrix must hold real numbers, it is complex")
        if n_columns == 0:
            raise ValueError("the matrix has no columns")
        if symmetry != "general" and n_rows != n_columns:
            raise ValueError(f"the matrix is {symmetry}, and has the shape {(n_rows, n_columns)}")
        if n_entries > size:
            raise ValueError(f"it is cut short: {size:,} bytes cannot hold {n_entries:,} entries")
        if form == "coordinate" and 8 * n_rows > max_unpacked_bytes(size, max_unpacked):
            raise ValueError(f"it claims {n_rows:,} rows in {size:,} bytes")
        start = _check_lines(text, form == "array", field)
        # scipy reads missing entries of symmetric matrices as 0, and crashes on a dense matrix without rows
        if form == "array" and (symmetry != "general" or n_rows == 0):
            found = sum(1 for _ in re.finditer(rb"\S+", text[start:]))
            stated = n_rows * (n_rows + 1) // 2 - (n_rows if symmetry == "skew-symmetric" else 0)  # 0 without rows
            if found != stated:
                raise ValueError(f"it has {found:,} of {stated:,} entries")
        matrix: Any = mmread(io.BytesIO(text)) if n_rows or form != "array" else np.empty((0, n_columns))
        del text
        values = (matrix if form == "array" else matrix.data).astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("it holds a number beyond the range of float64")
        if form == "coordinate":
            if symmetry == "skew-symmetric" and (matrix.row == matrix.col).any():
                raise ValueError("it has an entry on the diagonal, where a skew-symmetric matrix has none")
            values = coo_array((values, (matrix.row, matrix.col)), shape=matrix.shape)
        values = values.T if transpose else values
        return as_rows(values if form == "coordinate" else np.ascontiguousarray(values), name="the matrix")
    except (ValueError, OverflowError, TypeError) as error:
        raise SourceError(f"{name} is damaged or no Matrix Market file: {error}") from None


def _check_lines(text: bytes, dense: bool, field: str) -> int:
    """Return the position of the first entry in Matrix Market text. Raise ValueError at the first invalid line.

    Blank lines are allowed.
    """
    number = b"" if field == "pattern" else _INTEGER if "integer" in field else _REAL
    n_indices = 0 if dense else 2
    entry = rb"[ \t]++".join([_INDEX] * n_indices + [number] * bool(number))
    sizes = rb"[ \t]++".join([_INDEX] * (2 if dense else 3))
    head = re.compile(_BANNER + rb"(?:[ \t]*+(?:%%[^\n]*+)?\r?\n)*+[ \t]*+%b[ \t]*+\r?\n" % sizes).match(text)
    if head is None:
        stated = f"rows, columns{'' if dense else ' and entries'}"
        raise ValueError(f"it must begin with a line like {HEADER!r}, then comments, then a line that states {stated}")
    lines = re.compile(rb"(?:[ \t]*+(?:%b)?+[ \t]*+\r?+\n)*+" % entry).match(text, head.end())
    end = len(text) if lines is None else lines.end()
    if end < len(text):
        line = 1 + text.count(b"\n", 0, end)
        what = f"an entry of this {field} matrix has {n_indices + bool(number)} finite decimal numbers"
        near = text[end : text.find(b"\n", end)][:40].decode("ascii", "replace").rstrip("\r")
        raise ValueError(f"line {line}: {what}, got {near!r}")
    return head.end()
