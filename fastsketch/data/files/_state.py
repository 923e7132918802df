"""State files: an uncompressed .npz archive of arrays with a JSON header, the same for every model.

The first member, ``header`` (uint8, JSON), has the format, the schema version, the kind of model, its parameters, and
shape, dtype and crc32 of every other member. Arrays are little-endian and never pickled. A reader checks the header and
all sizes against the length of the file before it allocates memory.

``write`` replaces a file atomically: a reader sees the old file or the new one.
"""

import contextlib
import io
import json
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Generator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch._core.validation import as_integer
from fastsketch.data.files._npy import read_header as read_npy_header
from fastsketch.data.files._replacing import replacing

FORMAT = "fastsketch state"
# Incremented whenever an older reader could misread a file; readers accept all versions up to theirs. Builds before the
# first release wrote 2, 3, and a 1 with "params" in its header: the next number is 4.
SCHEMA = 1
BEFORE_THE_RELEASE = (2, 3)

# Limit of the JSON header in bytes; it has to hold a model's notes, such as the ids of ten million rows.
LONGEST_HEADER = 1 << 28

Source = str | PathLike[str] | BinaryIO

# Bytes that are read at a time: few enough to be in the cache still when their checksum is computed.
PIECE = 1 << 20

# Exceptions that zipfile, json and numpy raise for damaged bytes, for encrypted or compressed members, for JSON that is
# nested too deeply, and for headers that are no Python literals.
DAMAGE = (
    zipfile.BadZipFile,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    OverflowError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
)


class StateError(ValueError):
    """Raised if a state file or byte string is missing, damaged, of another format, or of a newer version.

    Examples
    --------
    >>> import fastsketch as fs
    >>> try:
    ...     fs.from_bytes(b"no model")
    ... except fs.StateError as error:
    ...     print(error)
    the state is not a fastsketch state, or is cut short (File is not a zip file)
    """

    def __init__(self, message: object) -> None:
        super().__init__(escaped(message))


def pack(header_entries: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bytes:
    """Encode a state file with the given arrays, and return its bytes.

    `header_entries` (JSON values) become part of its header.

    Raises
    ------
    MemoryError
        If there is no room for them.
    """
    out = io.BytesIO()
    pack_into(out, header_entries, arrays)
    return out.getvalue()


def pack_into(out: BinaryIO, header_entries: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a state file with the given arrays to an open binary file.

    `header_entries` (JSON values) become part of its header.
    """
    members = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    array_entries = {
        name: {
            "shape": list(array.shape),
            "dtype": array.dtype.str,
            "crc32": zlib.crc32(array.data),
        }
        for name, array in members.items()
    }
    header = {"format": FORMAT, "schema": SCHEMA, **header_entries, "arrays": array_entries}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    archive = zipfile.ZipFile(out, "w", zipfile.ZIP_STORED)
    try:
        for name, array in {"header": text, **members}.items():
            # The date is fixed, so that equal states have equal bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.close()
    except BaseException as error:
        archive.fp = None  # close() would raise because a member is open, and hide the interrupt
        _raise_lack_of_memory(error)
        raise


def _raise_lack_of_memory(error: BaseException | None) -> None:
    """Raise the MemoryError in a chain of exceptions, if there is one; otherwise do nothing.

    Closing a half-written archive raises another error, which would hide the MemoryError.
    """
    while error is not None:
        if isinstance(error, MemoryError):
            raise error from None
        error = error.__cause__ or error.__context__


def write(path: str | PathLike[str], content: bytes) -> None:
    """Replace the file at `path` by these bytes atomically."""
    with replacing(path) as file:
        file.write(content)


def read(source: Source) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read and verify a state file; return its (header, arrays). Raise StateError if it is invalid."""
    with _opened(source) as (archive, size, name):
        header = _header(archive, size, name)
        return header, {key: _array(archive, key, entry, name) for key, entry in header["arrays"].items()}


def read_header(source: Source) -> dict[str, Any]:
    """Return the header of a state file as a dict, without reading the arrays.

    Parameters
    ----------
    source : str, path or binary file

    Returns
    -------
    dict
        "kind", "home", "parameters", "notes", "state", and of each of the "arrays" shape, dtype and crc32.

    Raises
    ------
    StateError
        As for ``fs.load``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, fastsketch as fs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fs.FrequentDirections(8).update(np.eye(10)).save(Path(folder, "rows.fsk"))
    ...     header = fs.data.read_header(Path(folder, "rows.fsk"))
    >>> header["kind"], header["parameters"]["sketch_size"]
    ('FrequentDirections', 8)
    """
    with _opened(source) as (archive, size, name):
        return _header(archive, size, name)


@contextlib.contextmanager
def _opened(source: Source) -> Generator[tuple[zipfile.ZipFile, int, str]]:
    """Open a state file for a ``with`` block. Yield (archive, size in bytes, name); StateError if it is damaged."""
    if not isinstance(source, str | PathLike) and not hasattr(source, "seek"):
        raise TypeError(f"source must be a path or an open binary file, got {type(source).__name__}")
    name = str(source) if isinstance(source, str | PathLike) else "the state"
    try:
        with contextlib.ExitStack() as stack:
            if isinstance(source, str | PathLike) and Path(source).is_fifo():  # opening it might block forever
                raise StateError(f"{name} is a pipe, and a state is read from a file")
            file = stack.enter_context(Path(source).open("rb")) if isinstance(source, str | PathLike) else source
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size == 0:
                raise StateError(f"{name} is empty")
            archive = stack.enter_context(zipfile.ZipFile(file))
            _check_members(archive, size)
            yield archive, size, name
    except StateError:
        raise
    except OSError as error:
        raise StateError(f"{name} cannot be read: {error.strerror or error}") from error
    except DAMAGE as error:
        raise StateError(f"{name} is not a fastsketch state, or is cut short ({error})") from error


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError if members of the archive have equal names or are together larger than the file."""
    members = archive.infolist()
    if len({info.filename for info in members}) < len(members):
        raise ValueError("two of its members have one name")
    if members and min(info.header_offset for info in members) > 0:
        # A truncated file may end in a state that was stored within it; zipfile would find the directory of that one.
        raise ValueError("it does not begin with its first member")
    if sum(info.file_size for info in members) > size:
        raise ValueError("its members are larger than the file")


def _member(archive: zipfile.ZipFile, key: str, name: str) -> zipfile.ZipInfo:
    """Return the entry of an array in the archive. StateError if it is missing or compressed."""
    try:
        info = archive.getinfo(f"{key}.npy")
    except KeyError:
        reason = "not a fastsketch state" if key == "header" else f"damaged: array {key!r} is missing"
        if "[Content_Types].xml" in archive.namelist():
            reason += " but an Excel workbook: save the sheet as CSV UTF-8"
        raise StateError(f"{name} is {reason}") from None
    if info.compress_type != zipfile.ZIP_STORED:
        raise StateError(f"{name} is damaged: member {key!r} is compressed")
    return info


def _header(archive: zipfile.ZipFile, size: int, name: str) -> dict[str, Any]:
    """Read and verify the JSON header of a state file. StateError if it is invalid."""
    info = _member(archive, "header", name)
    if info.file_size > min(size, LONGEST_HEADER):
        raise StateError(f"{name} is damaged: its header claims {info.file_size} bytes")
    try:
        with archive.open(info) as member:
            head = read_npy_header(member)
            text = member.read()
        if head.dtype != np.uint8 or head.shape != (len(text),):
            raise ValueError("its header is no text")
        header = json.loads(text, object_pairs_hook=_dict_without_duplicates)
        if header["format"] != FORMAT:
            raise KeyError("format")
        schema = as_integer(header["schema"], "schema", 1)
        if not isinstance(header["kind"], str) or not isinstance(header["arrays"], dict):
            raise KeyError("types")
    except DAMAGE as error:
        raise StateError(f"{name} is not a fastsketch state") from error
    if schema in BEFORE_THE_RELEASE or "params" in header:
        raise StateError(f"{name} was written by a build before the first release, and is not read: make it anew")
    if schema > SCHEMA:
        raise StateError(f"{name} was written by a newer version (schema {schema}; this one reads up to {SCHEMA})")
    return header


def _dict_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert the pairs of a JSON object to a dict. Raise ValueError for a repeated key.

    Other JSON parsers may read a repeated key differently.
    """
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError("a name comes twice")
    return out


def _array(archive: zipfile.ZipFile, key: str, entry: Any, name: str) -> NDArray[Any]:
    """Read one array of a state file, and verify its size and checksum. `entry` is its entry in the header."""
    info = _member(archive, key, name)
    try:
        shape = tuple(as_integer(n, "size", 0) for n in entry["shape"])
        dtype, crc = np.dtype(str(entry["dtype"])), entry["crc32"]
        if dtype.hasobject or dtype.itemsize == 0 or dtype.str != entry["dtype"]:
            raise ValueError("its dtype is none that a state has")
    except DAMAGE as error:
        raise StateError(f"{name} is damaged: the header of array {key!r} is not readable") from error
    n_bytes = math.prod(shape) * dtype.itemsize
    if not n_bytes <= info.file_size <= n_bytes + 4096:
        raise StateError(f"{name} is damaged: array {key!r} does not have the size that its header states")
    try:
        with archive.open(info) as member:
            if read_npy_header(member)[:3] != (shape, False, dtype):
                raise ValueError("shape, order or dtype differ")
            content, checksum = _content(member, n_bytes)
        if checksum != crc:
            raise ValueError("it fails its checksum")
        return content.view(dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
    except DAMAGE as error:
        raise StateError(f"{name} is damaged: array {key!r}: {error}") from error


def _content(member: Any, n: int) -> tuple[NDArray[np.uint8], int]:
    """Read exactly n bytes from a member of the archive; return them and their crc32."""
    out = np.empty(n, np.uint8)
    crc = position = 0
    while piece := member.read(PIECE):
        if position + len(piece) > n:
            raise ValueError("it is longer than its header states")
        out[position : position + len(piece)] = np.frombuffer(piece, np.uint8)
        crc, position = zlib.crc32(piece, crc), position + len(piece)
    if position < n:
        raise ValueError("it is shorter than its header states")
    return out, crc
