"""Read standard input, pipes and other streams, which can be read only once; their first bytes decide the format."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import InputFile, SourceError
from fastsketch.data.files._npy import MAGIC, read_header
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._formats import TEXT, Options, function
from fastsketch.data.sources._paths import STANDARD_INPUT
from fastsketch.data.sources._source import RowSource, Source
from fastsketch.data.sources._stored import check_matrix

# First bytes from which the format of a stream or text is recognised.
HEAD_BYTES = 64 << 10
# Formats that need random access.
NOT_STREAMED = {
    b"PK\x03\x04": "an archive (.npz)",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "an HDF5 file",
}
_PAIRS = re.compile(rb"[ \t]*[^\s:,;]+(?:[ \t]+(?:qid:)?[0-9]+:\S+)+[ \t]*\r?")


def text_format(head: bytes) -> str:
    """Return which text format the first lines of a stream have: "svmlight", "table" or "market"."""
    if head[:14].lower() == b"%%matrixmarket":
        return "market"
    line = next((line for line in head.split(b"\n") if line.split(b"#", 1)[0].strip()), b"")
    pairs = _PAIRS.fullmatch(line.split(b"#", 1)[0])
    return "table" if not pairs and re.search(rb"[,;\t]", line) else "svmlight"


def open_text(path: Path, options: Options) -> Source:
    """Open a text file whose suffix does not determine its format as a source."""
    with InputFile(path) as file:
        head = file.head(HEAD_BYTES)
    return function(TEXT["table" if options.dialect.separator else text_format(head)])(path, options)


def open_stream(path: Path, options: Options) -> Source:
    """Open a pipe or standard input as a source. The stream is closed if an error is raised."""
    with ExitStack() as stack:
        file = sys.stdin.buffer if str(path) == STANDARD_INPUT else None
        source = of_stream(stack.enter_context(InputFile(path, file)), options)
        if options.columns is not None and source.taken is None:
            positions(source, options.columns)
        stack.pop_all()
        return source


def name_of(stream: InputFile) -> str:
    """Return the name of a stream for messages."""
    return "standard input" if str(stream.path) == STANDARD_INPUT else escaped(stream.path)


def of_stream(stream: InputFile, options: Options) -> Source:
    """Return a source that reads a stream from its beginning. The first bytes decide the format."""
    start = stream.head(8)
    if not start:
        raise SourceError(f"{name_of(stream)} is empty")
    if start.startswith(MAGIC):
        return StreamedMatrix(stream)
    for magic, what in NOT_STREAMED.items():
        if start.startswith(magic):
            raise SourceError(f"{name_of(stream)} is {what}, which is not read from a stream: save it to a file first")
    kind = "table" if options.dialect.separator else text_format(stream.head(HEAD_BYTES, lines=1))
    return function(TEXT[kind])(stream.path, options, stream)


class StreamedMatrix(RowSource):
    """A source that reads an .npy matrix from a stream."""

    repeatable = waits = False

    def __init__(self, stream: InputFile) -> None:
        self._stream, self.name = stream, name_of(stream)
        try:
            header = read_header(stream)
        except ValueError as error:
            raise SourceError(f"{self.name} is no .npy file ({error})") from error
        check_matrix(header.shape, header.dtype, self.name)
        self.size, self.n_features = header.shape
        self.n_rows, self.dtype = self.size, header.dtype
        if header.fortran and min(header.shape) > 1:
            raise SourceError(
                f"{self.name} holds a matrix column by column, which is not read from a stream: save it to a file"
            )

    def _chunks(self, start: int) -> Iterator[Any]:
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        for first, stop in self._steps(0):
            content = self._stream.read((stop - first) * row_bytes)
            if len(content) < (stop - first) * row_bytes:
                row = first + len(content) // row_bytes
                raise SourceError(f"{self.name} is cut short: it ends in row {row} of {self.size:,}")
            rows = np.frombuffer(content, self.dtype).reshape(-1, self.n_features)
            if stop > start:
                yield rows[max(0, start - first) :]
        more = self._stream.head(1)
        self._stream.close()
        if more:
            raise SourceError(f"{self.name} goes on after the {self.size:,} rows that its header states")
