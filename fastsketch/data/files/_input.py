"""Bytes of an input file, decompressed by the suffix of its name: whatever they are, an error names file and byte."""

import bz2
import contextlib
import io
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self, cast

from fastsketch._core.escaping import escaped

# Bytes of the file that are handed to a decompressor at a time.
RAW_BYTES = 1 << 16
# What is read whole may unpack to so many bytes, and so many times its length beside: tables and matrices as people
# have them shrink by 3 to 15, lines made for it by 1,000.
FREE_BYTES, GROWTH = 16 << 20, 32
# An .xz header may ask for a dictionary of 4 GiB; `xz -9` takes 65 MiB.
XZ_MEMORY = 512 << 20


# A file that somebody else has opened.
Opened = BinaryIO | io.RawIOBase


class SourceError(ValueError):
    """An input file that is missing, empty, damaged, cut short or of a format that is not read.

    Examples
    --------
    >>> import fastsketch as fs
    >>> try:
    ...     fs.open_rows("no such file.npy")
    ... except fs.data.SourceError as error:
    ...     print(error)
    no such file.npy cannot be read: No such file or directory
    """

    def __init__(self, message: object) -> None:
        super().__init__(escaped(message))


def most_unpacked(length: int, given: int | None) -> int:
    """Return bytes that a file of this length, which is read whole, may unpack to.

    What was `given`, or by its length.
    """
    return FREE_BYTES + GROWTH * length if given is None else given


def too_large(name: Path | str, most: int) -> SourceError:
    """Return the error of a file that unpacks to more."""
    return SourceError(
        f"{name} would be held in memory, and unpacks to more than {most:,} bytes: if it is as it should be, store it "
        "without compression (a matrix: or raise max_unpacked of fs.open_rows)"
    )


class _Gzip:
    """zlib's object for a gzip stream with the interface of the other two; it checks length and checksum."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


# One compressed stream.
Decompressor = _Gzip | bz2.BZ2Decompressor | lzma.LZMADecompressor
# By suffix: how a stream is opened, and whether zeros may stand between streams and after the last.
DECOMPRESSORS: dict[str, tuple[Callable[[], Decompressor], bool]] = {
    ".gz": (_Gzip, True),
    ".bz2": (bz2.BZ2Decompressor, False),
    ".xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=XZ_MEMORY), True),
}


# How compressed streams begin, and the suffix of such files.
COMPRESSED = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz"}


def compression_of(path: Path) -> str:
    """Return the suffix of how a file is compressed, by its first bytes, and else by its name; "" if it is not."""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(6)
        for magic, suffix in COMPRESSED.items():
            if start.startswith(magic):
                return suffix
    return path.suffix if path.suffix in DECOMPRESSORS else ""


class InputFile:
    """A file that is read once, from its first byte to its last.

    Several compressed streams in one file are one text, as tools that compress in parallel write them. The readers of
    the standard library take a damaged second stream of .bz2 or .xz for the end of the file; here it is an error.

    Parameters
    ----------
    path : Path
    file : binary file, optional
        What to read in place of the file of that name: it stays open, and is decompressed only by `suffix`.
    suffix : str, optional
        What says how it is compressed, in place of the suffix of the path.
    start, stop : int, optional
        Bytes [start, stop) alone, of a file that is not compressed.
    """

    def __init__(
        self,
        path: Path,
        file: Opened | None = None,
        *,
        suffix: str | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.path = path
        self.place = 0  # bytes that have been read of the file itself, which may be compressed
        self._own = file is None
        self._left = None if stop is None else stop - start
        try:
            suffix = compression_of(path) if suffix is None and file is None and not start else suffix
            make, self._padded = DECOMPRESSORS.get(suffix or "", (None, False))
            opened = path.open("rb", buffering=0) if file is None else file
            if start:
                opened.seek(start)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
        self._file = cast("io.BufferedIOBase", opened)  # BinaryIO knows no read1
        self._make = make
        self._stream = make() if make else None
        self._unpacked, self._held = 0, False
        self._most: int | None = None

    def held(self, most: int | None = None) -> Self:
        """Return the same file, whose text will be in memory as a whole.

        SourceError where it unpacks to more than that.
        """
        self._held, self._most = True, most
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._file.close()

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer than size at the end only (or from a terminal); none after it."""
        parts: list[bytes] = []
        wanted = size
        with self._errors():
            while wanted and (part := self._next(wanted)):
                parts.append(part)
                wanted -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_some(self, size: int) -> bytes:
        """Return some of the next bytes, as many as are there; none at the end alone."""
        with self._errors():
            if self._make is None and hasattr(self._file, "read1"):
                part = self._file.read1(size)
                self.place += len(part)
                return part
            return self._next(size)

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if error.errno is not None:
                raise SourceError(f"{self.path} cannot be read: {error.strerror}") from error
            raise self._damaged(error) from error
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> SourceError:
        kind = "cut short" if isinstance(error, EOFError) else "damaged"
        return SourceError(f"{self.path} is {kind}, near byte {self.place} of the file: {error}")

    def _raw(self, size: int) -> bytes:
        part = self._file.read(size if self._left is None else min(size, self._left - self.place))
        self.place += len(part)
        return part

    def _next(self, size: int) -> bytes:
        if self._make is None or self._stream is None:
            return self._raw(size)
        while True:
            pending = b""
            if self._stream.eof:
                pending = self._after(self._stream.unused_data)
                if not pending:
                    return b""
                self._stream = self._make()
            elif self._stream.needs_input:
                pending = self._raw(RAW_BYTES)
                if not pending:
                    raise EOFError("the compressed stream does not end")
            if part := self._stream.decompress(pending, size):
                self._unpacked += len(part)
                if self._held and self._unpacked > (most := most_unpacked(self.place, self._most)):
                    raise too_large(self.path, most)
                return part

    def _after(self, rest: bytes) -> bytes:
        """Return the bytes after the end of a stream: the start of another one, or nothing."""
        while True:
            if self._padded:
                rest = rest.lstrip(b"\0")
            if rest:
                return rest
            rest = self._raw(RAW_BYTES)
            if not rest:
                return b""


def whole_lines(
    file: InputFile,
    block_bytes: int,
    longest: int,
    *,
    newline: bytes = b"\n",
    last_end: Callable[[bytes], int] | None = None,
    start: bytes = b"",
) -> Iterator[bytes]:
    """Yield the text of a file in pieces of whole lines, of about block_bytes unless a line is longer.

    A line of more than `longest` bytes (at least block_bytes) is an error: nobody is to run out of memory because a
    file has no line ends.

    Parameters
    ----------
    file : InputFile
    block_bytes, longest : int
    newline : bytes
        The end of a line, which the last line gets where it has none.
    last_end : callable, optional
        Returns the place after the last line end of a text at which it may be cut: by default after the last of all.
    start : bytes
        What has been read of the file before.
    """
    rest = start
    while data := file.read(max(block_bytes, len(rest))):
        data = rest + data if rest else data
        stop = data.rfind(newline) + 1 if last_end is None else last_end(data)
        if (data.find(newline) if stop else len(data)) > longest:
            raise SourceError(
                f"{file.path}: a line is longer than {longest:,} bytes, near byte {file.place} of the file"
            )
        if stop:
            yield data[:stop]
        rest = data[stop:]
    if rest:
        yield rest if rest.endswith(newline) else rest + newline
