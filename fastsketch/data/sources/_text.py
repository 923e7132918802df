"""What sources of text have in common: stretches of a file that end with a line, and the lines of their rows."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Self

from fastsketch.data.files._input import DECOMPRESSORS, InputFile, Opened, SourceError, whole_lines
from fastsketch.data.files._svmlight import BLOCK_BYTES, LONGEST_LINE
from fastsketch.data.sources._file_sources import FileSource, reading
from fastsketch.data.sources._source import Place, Source

# What is looked at for the end of a line at a time.
LOOK_BYTES = 64 << 10


class TextSource(FileSource):
    """Rows that are lines: of a file, of a stretch of it, or of a stream that is read once."""

    n_rows: int | None = None

    def __init__(self, path: Path, file: Opened | None = None) -> None:
        self._file = file
        if file is None:
            super().__init__(path)
            self._from, self._stop = 0, self.file_bytes
            self.size = self.file_bytes
        else:
            self.path, self.name = path, "standard input" if str(path) == "-" else str(path)
            self.repeatable = self.waits = False
            self._from, self._stop, self._read_once = 0, 0, False

    @property
    def n_bytes(self) -> int:
        """See Source."""
        return self.size

    @contextlib.contextmanager
    def opened(self) -> Generator[InputFile]:
        """Open the text at its first line."""
        if self._file is not None:
            if self._read_once:
                raise SourceError(f"{self.name} can be read only once: save it to a file first")
            self._read_once = True
            with self._file, InputFile(self.path, self._file) as text:
                yield text
            return
        self.check_unchanged()
        with InputFile(self.path, start=self._from, stop=self._stop if self._is_part() else None) as text:
            try:
                yield text
            except SourceError:
                self.check_unchanged()  # which may be why
                raise
        self.check_unchanged()

    def _is_part(self) -> bool:
        return (self._from, self._stop) != (0, self.file_bytes)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source: stretches of about n_bytes of text that end with a line; whole where it is compressed."""
        if not self.repeatable or self.path.suffix in DECOMPRESSORS or self.size <= n_bytes:
            return [self]
        self.check_unchanged()
        cuts = [self._from]
        with reading(self.path), self.path.open("rb", buffering=0) as file:
            while cuts[-1] < self._stop:
                cuts.append(min(self._line_end(file, cuts[-1] + n_bytes), self._stop))
        return [self._stretch(start, stop) for start, stop in zip(cuts[:-1], cuts[1:], strict=True)]

    def _line_end(self, file: Any, place: int) -> int:
        """Return the byte after the first end of a line at or after a place."""
        file.seek(place - 1)
        while place < self._stop:
            block = file.read(LOOK_BYTES)
            if not block:
                break
            if (at := block.find(b"\n")) >= 0:
                return place + at
            place += len(block)
        return self._stop

    def _stretch(self, start: int, stop: int) -> Self:
        return self.varied(_from=start, _stop=stop, size=stop - start)

    def identity(self) -> dict[str, Any]:
        """See Source."""
        if not self.repeatable:
            raise SourceError(f"{self.name} can be read only once")
        found = super().identity()
        return {**found, "part": [self._from, self._stop]} if self._is_part() else found

    # -- lines -----------------------------------------------------------------------------------------------------
    def is_row(self, line: bytes) -> bool:
        """Return whether a line of the file stands for a row."""
        raise NotImplementedError

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from the first of this stretch on, with their numbers in the file."""
        with InputFile(self.path, start=self._from) as file:
            number = self.line_at(0)
            for block in whole_lines(file, BLOCK_BYTES, LONGEST_LINE):
                for line in bytes(block).splitlines():
                    yield number, line
                    number += 1

    def line_at(self, number: int) -> int:
        """Return the number in the file, from 1, of a line of this stretch, from 0."""
        before = 0
        if self._from:
            with InputFile(self.path, stop=self._from) as file:
                while block := file.read(BLOCK_BYTES):
                    before += block.count(b"\n")
        return 1 + before + number

    def line_of(self, row: int) -> int | None:
        """Return the line of a row, counted from 1; rows count from 0, and empty lines and comments are none."""
        if not self.repeatable:
            return None
        for number, line in self.lines():
            if self.is_row(line):
                row -= 1
                if row < 0:
                    return number
        return None

    def place(self, row: int) -> Place:
        """See Source."""
        return Place(self.name, None if self._from else row, self.line_of(row))


LineOf = Callable[[int], int]
