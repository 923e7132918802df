"""Base class of text sources, which split files into byte ranges at line ends and find the lines of rows."""

import contextlib
from collections.abc import Generator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import InputFile, SourceError, compression_of, iterate_whole_lines
from fastsketch.data.sources._source import BLOCK_BYTES, LONGEST_LINE, Place, RowSource, Source
from fastsketch.data.sources._stamped_file import StampedFile, reading
from fastsketch.data.sources._streams import name_of

# Bytes that are searched for a line end at a time.
LOOK_BYTES = 64 << 10


class TextSource(RowSource):
    """Base class of sources that read rows from the lines of a file, of a byte range of it, or of a stream."""

    n_rows: int | None = None
    _newline = b"\n"

    def __init__(self, path: Path, stream: InputFile | None) -> None:
        self._stream, self._from = stream, 0
        if stream is None:
            self.file, self.name = StampedFile(path), escaped(path)
            self._to = self.size = self.file.n_bytes
        else:
            self.name = name_of(stream)
            self.repeatable = self.waits = False
            self._to = 0

    @property
    def path(self) -> Path:
        """Path of the file, also of a stream."""
        return self.open_file.path if self._stream is None else self._stream.path

    @property
    def n_bytes(self) -> int:
        """Size of the text of this part, in bytes."""
        return self.size

    @contextlib.contextmanager
    def opened(self) -> Generator[InputFile]:
        """Open the text at the first line of this part, and yield it as an InputFile.

        Raise SourceError if the file has changed, before or after.
        """
        self._begin()
        if self._stream is not None:
            with self._stream as text:
                yield text
            return
        self.check_unchanged()
        with InputFile(self.path, start=self._from, stop=self._to if self._is_part() else None) as text:
            try:
                yield text
            except SourceError:
                self.check_unchanged()  # a changed file may be the cause
                raise
        self.check_unchanged()

    def _is_part(self) -> bool:
        return (self._from, self._to) != (0, self.open_file.n_bytes)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield (rows, position in bytes) for each chunk, from row `start_row` on."""
        for rows, _, position in self.read_beside(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """Yield (rows, values, position in bytes) for each chunk.

        The values are labels of svmlight text, or the extra column's strings of a table, with None for an empty cell.
        """
        row = 0
        with self.opened() as file:
            for rows, values in self._blocks(file):
                first, row = row, row + rows.shape[0]
                if row > start_row:
                    skipped = max(0, start_row - first)
                    position = min(self.size, file.place) if self.repeatable else file.place
                    yield (rows[skipped:] if skipped else rows), values[skipped:], position

    def _blocks(self, file: InputFile) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Yield (rows, values of the extra column), one chunk at a time."""
        raise NotImplementedError

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """Split the file into byte ranges of about n_bytes that end at line ends, and return a list of their sources.
        Compressed text is not split.
        """
        if not self.repeatable or self.size <= n_bytes:
            return [self]
        self.check_unchanged()
        if compression_of(self.path):
            return [self]
        cuts = [self._from]
        with reading(self.path), self.path.open("rb", buffering=0) as file:
            while cuts[-1] < self._to:
                cuts.append(min(self._line_end(file, cuts[-1] + n_bytes), self._to))
        return [self.varied(_from=start, _to=stop, size=stop - start) for start, stop in pairwise(cuts)]

    def _line_end(self, file: Any, place: int) -> int:
        """Return the position after the first line end at or after the position `place`."""
        file.seek(place - 1)
        while place < self._to:
            block = file.read(LOOK_BYTES)
            if not block:
                break
            if (at := block.find(self._newline)) >= 0:
                return place + at
            place += len(block)
        return self._to

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows: the file and the byte range."""
        return {**super().identity(), "part": [self._from, self._to]}

    # -- lines -----------------------------------------------------------------------------------------------------
    def is_row(self, line: bytes) -> bool:
        """Return True if a line is a row, not a blank or comment line."""
        raise NotImplementedError

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (line number in the file, line) from the start of this part to the end of the file."""
        with InputFile(self.path, start=self._from) as file:
            number = self.line_at(0)
            for block in iterate_whole_lines(file, BLOCK_BYTES, LONGEST_LINE):
                for line in block.splitlines():
                    yield number, line
                    number += 1

    def line_at(self, number: int) -> int:
        """Convert a line number of this part (from 0) to a line number in the file (from 1)."""
        before = 0
        if self._from:
            with InputFile(self.path, stop=self._from) as file:
                while block := file.read(BLOCK_BYTES):
                    before += block.count(self._newline)
        return 1 + before + number

    def line_of(self, row: int) -> int | None:
        """Return the line number of a row of this part, or None for a stream; rows count from 0, lines from 1."""
        if not self.repeatable:
            return None
        for number, line in self.lines():
            if self.is_row(line):
                row -= 1
                if row < 0:
                    return number
        return None

    def place(self, row: int) -> Place:
        """Return the file, row and line of a row, for messages. Parts after the first do not know its number in the
        file.
        """
        return Place(self.name, None if self._from else row, self.line_of(row))
