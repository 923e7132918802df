"""Read files, pipes and standard input as decompressed bytes."""

import bz2
import contextlib
import io
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self

from fastsketch._core.escaping import escaped

# Bytes of the file that are passed to a decompressor at a time.
RAW_BYTES = 1 << 16
# A file of n bytes that is held in memory may unpack to FREE_BYTES + GROWTH n bytes. Real tables and matrices are
# compressed by factors of 3 to 15; decompression bombs reach 1,000.
FREE_BYTES, GROWTH = 16 << 20, 32
# An .xz header may ask for a dictionary of 4 GiB; `xz -9` takes 65 MiB.
XZ_MEMORY = 512 << 20


# An open file.
Opened = BinaryIO | io.RawIOBase


class SourceError(ValueError):
    """Raised if an input file is missing, empty, damaged, truncated or of an unsupported format.

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


def max_unpacked_bytes(length: int, requested: int | None) -> int:
    """Return the maximum number of bytes that a file may unpack to if it is kept in memory.

    That is `requested`, if the caller has set it, and otherwise a limit that grows with the length of the file.
    """
    return FREE_BYTES + GROWTH * length if requested is None else requested


def unpacked_too_large_error(name: Path | str, limit: int) -> SourceError:
    """Create the SourceError for a file that unpacks to more than `limit` bytes."""
    return SourceError(
        f"{name} would be held in memory, and unpacks to more than {limit:,} bytes: if it is as it should be, store it "
        "without compression (a matrix: or raise max_unpacked of fs.open_rows)"
    )


class _Gzip:
    """A gzip decompressor with the interface of BZ2Decompressor; zlib verifies length and checksum."""

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


# The decompressor of one compressed stream.
Decompressor = _Gzip | bz2.BZ2Decompressor | lzma.LZMADecompressor
# By suffix: the decompressor, and whether padding with zeros is allowed between streams and after the last.
DECOMPRESSORS: dict[str, tuple[Callable[[], Decompressor], bool]] = {
    ".gz": (_Gzip, True),
    ".bz2": (bz2.BZ2Decompressor, False),
    ".xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=XZ_MEMORY), True),
}


# The first bytes of compressed streams, and the suffix of such files.
MAGIC_BYTES = 6
COMPRESSED = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz"}


def compression_of(path: Path) -> str:
    """Return the suffix of a file's compression format, ".gz", ".bz2" or ".xz", or "" if it is not compressed.

    The first bytes decide, or else the suffix of the name.
    """
    with path.open("rb") as file:
        suffix = _suffix_of(file.read(MAGIC_BYTES)) or path.suffix
    return suffix if suffix in DECOMPRESSORS else ""


def _suffix_of(start: bytes) -> str:
    """Return the suffix (".gz", ".bz2" or ".xz") of the compression format that these first bytes of a file indicate,
    or "" for none.
    """
    return next((suffix for magic, suffix in COMPRESSED.items() if start.startswith(magic)), "")


class InputFile:
    """A file, pipe or standard input that is read once from start to end and decompressed if necessary.

    The compression is that of the first bytes, otherwise that of the suffix of the path. Several compressed streams in
    one file are one text, as tools that compress in parallel write them. The readers of the standard library take a
    damaged second stream of .bz2 or .xz for the end of the file; here it is an error.

    Parameters
    ----------
    path : Path
    file : binary file, optional
        Read instead of opening `path`; it is not closed.
    start, stop : int, optional
        Read bytes [start, stop) only. A file that is read from a later byte on is not decompressed.
    """

    _close: Callable[[], None] | None = None

    def __init__(self, path: Path, file: Opened | None = None, *, start: int = 0, stop: int | None = None) -> None:
        self.path = path
        self.place = 0  # position in the file before decompression
        self.waits = True  # whether `read` waits for as many bytes as were requested
        self._left = None if stop is None else stop - start
        try:
            opened: Any = path.open("rb", buffering=0) if file is None else file
            if start:
                opened.seek(start)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
        self._close = opened.close if file is None else None
        self._some: Callable[[int], bytes] = getattr(opened, "read1", opened.read)
        self._start = self._ahead = b""  # bytes read in advance: of the file, and of the decompressed text
        self._unpacked, self._held = 0, False
        self._most: int | None = None
        suffix = ""
        if not start:
            first_bytes = b""
            with self._errors():
                while len(first_bytes) < MAGIC_BYTES and (block := self._raw(MAGIC_BYTES - len(first_bytes))):
                    first_bytes += block
            self._start = first_bytes
            suffix = _suffix_of(first_bytes) or (path.suffix if file is None else "")
        self._make: Callable[[], Any] | None
        self._make, self._padded = DECOMPRESSORS.get(suffix, (None, False))
        self._stream = self._make() if self._make else None

    def limited(self, most: int | None = None) -> Self:
        """Limit how much text may be unpacked, because the caller keeps it in memory; return the file itself.

        The limit is ``max_unpacked_bytes``. Reading beyond it raises SourceError.
        """
        self._held, self._most = True, most
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the underlying file if this object opened it."""
        if self._close is not None:
            self._close()

    __del__ = close  # a stream is closed with the source that reads it

    def head(self, size: int, *, lines: int = 0) -> bytes:
        """Return up to `size` bytes from the current position without advancing.

        With `lines` > 0, return as soon as that many line ends have been read.
        """
        while len(self._ahead) < size and not (lines and self._ahead.count(b"\n") >= lines):
            more = self._more(size - len(self._ahead))
            if not more:
                break
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes, or b"" at the end of the file.

        Fewer bytes are returned at the end of the file, and, if ``waits`` is false, as soon as any are available.
        """
        parts: list[bytes] = []
        n_missing = size
        while n_missing and (block := self._next(n_missing)):
            parts.append(block)
            n_missing = n_missing - len(block) if self.waits else 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        """Convert errors of reading and decompression that a ``with`` block raises to SourceError."""
        try:
            yield
        except OSError as error:
            if error.errno is not None:
                raise SourceError(f"{self.path} cannot be read: {error.strerror}") from error
            raise self._damaged(error) from error
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> SourceError:
        """Return the SourceError for a file that is damaged or truncated, to be raised by the caller."""
        kind = "cut short" if isinstance(error, EOFError) else "damaged"
        return SourceError(f"{self.path} is {kind}, near byte {self.place} of the file: {error}")

    def _raw(self, size: int) -> bytes:
        """Return up to `size` bytes of the file as they are, before decompression."""
        if self._start:
            block, self._start = self._start[:size], self._start[size:]
            return block
        block = self._some(size if self._left is None else min(size, self._left - self.place))
        self.place += len(block)
        return block

    def _next(self, size: int) -> bytes:
        """Return up to `size` decompressed bytes. Those that ``head`` has read in advance come first; b"" means the end
        of the file.
        """
        if self._ahead:
            block, self._ahead = self._ahead[:size], self._ahead[size:]
            return block
        return self._more(size)

    def _more(self, size: int) -> bytes:
        """Return up to `size` decompressed bytes, ignoring those that ``head`` has read in advance; b"" means the end
        of the file.
        """
        with self._errors():
            return self._raw(size) if self._stream is None else self._decompressed(self._stream, size)

    def _decompressed(self, stream: Decompressor, size: int) -> bytes:
        """Return up to `size` decompressed bytes of the file; b"" at the end."""
        while True:
            pending = b""
            if stream.eof:
                pending = self._after(stream.unused_data)
                if not pending:
                    return b""
                assert self._make is not None
                self._stream = stream = self._make()
            elif stream.needs_input:
                pending = self._raw(RAW_BYTES)
                if not pending:
                    raise EOFError("the compressed stream does not end")
            if block := stream.decompress(pending, size):
                self._unpacked += len(block)
                if self._held and self._unpacked > (limit := max_unpacked_bytes(self.place, self._most)):
                    raise unpacked_too_large_error(self.path, limit)
                return block

    def _after(self, data: bytes) -> bytes:
        """Return the bytes that follow a complete compressed stream, where another one may begin. b"" means the end of
        the file.
        """
        while True:
            if self._padded:
                data = data.lstrip(b"\0")
            if data:
                return data
            data = self._raw(RAW_BYTES)
            if not data:
                return b""


def iterate_whole_lines(
    file: InputFile,
    block_bytes: int,
    longest: int,
    *,
    newline: bytes = b"\n",
    last_end: Callable[[bytes], int] | None = None,
) -> Iterator[bytes]:
    """Yield a text file in pieces of about block_bytes that end at line ends.

    A piece is longer only if a line is. SourceError for a line of more than `longest` bytes (at least block_bytes), so
    that a file without line ends does not fill the memory.

    Parameters
    ----------
    file : InputFile
    block_bytes, longest : int
    newline : bytes
        The end of a line, which the last line gets where it has none.
    last_end : callable, optional
        Returns the place after the last line end of a text at which it may be cut: by default after the last of all.
    """
    unfinished_line = b""
    while data := file.read(max(block_bytes, len(unfinished_line))):
        data = unfinished_line + data if unfinished_line else data
        stop = data.rfind(newline) + 1 if last_end is None else last_end(data)
        if (data.find(newline) if stop else len(data)) > longest:
            raise SourceError(
                f"{file.path}: a line is longer than {longest:,} bytes, near byte {file.place} of the file"
            )
        if stop:
            yield data[:stop]
        unfinished_line = data[stop:]
    if unfinished_line:
        yield unfinished_line if unfinished_line.endswith(newline) else unfinished_line + newline
