"""State files: one npz of plain arrays and a JSON header, the same format for every model of the library.

Member ``header`` (uint8, JSON) comes first: format, schema version, kind, the model's own parameters, and for every
other member its shape, dtype and crc32. Arrays are little-endian, stored without compression, never pickled. A
reader checks the header and all sizes against the file's length before it allocates an array.

A file is written beside its final name, flushed to the disk and renamed: a reader sees the old file or the new one.
"""

import contextlib
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Generator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastsketch.io._replacing import replacing

FORMAT = "fastsketch state"
# Raised whenever an older reader could misread a file; readers accept every version up to their own.
SCHEMA = 2

Source = str | PathLike[str] | BinaryIO

# Raised by zipfile and numpy for damaged bytes: also "encrypted", "compression method".
DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, UnicodeError, struct.error, zlib.error)


class StateError(ValueError):
    """A state file or byte string that cannot be read: missing, damaged, of another format or too new."""


def pack(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bytes:
    """Bytes of a state file; `about` (values that json can write) becomes part of its header."""
    members = {name: _portable(array) for name, array in arrays.items()}
    header = {
        "format": FORMAT,
        "schema": SCHEMA,
        **about,
        "arrays": {
            name: {"shape": list(a.shape), "dtype": a.dtype.str, "crc32": zlib.crc32(a.data)}
            for name, a in members.items()
        },
    }
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    out = io.BytesIO()
    archive = zipfile.ZipFile(out, "w", zipfile.ZIP_STORED)
    try:
        for name, array in {"header": text, **members}.items():
            # A fixed date makes equal states equal bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.close()
    except BaseException:
        archive.fp = None  # closing it would hide an interrupt behind an error of its own: a member is open
        raise
    return out.getvalue()


def write(path: str | PathLike[str], content: bytes) -> None:
    """Write bytes so that path holds either its old content or all of the new one, even after an interrupt."""
    with replacing(path) as file:
        file.write(content)


def read(source: Source) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """(header, arrays) of a state file, checked against its length and checksums; StateError for anything else."""
    with _opened(source) as (archive, size, name):
        header = _header(archive, size, name)
        return header, {key: _array(archive, key, about, name) for key, about in header["arrays"].items()}


def read_header(source: Source) -> dict[str, Any]:
    """The checked header of a state file as a dict, without its arrays."""
    with _opened(source) as (archive, size, name):
        return _header(archive, size, name)


def _portable(array: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(array, order="C")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


@contextlib.contextmanager
def _opened(source: Source) -> Generator[tuple[zipfile.ZipFile, int, str]]:
    if not isinstance(source, str | PathLike) and not hasattr(source, "seek"):
        raise TypeError(f"source must be a path or an open binary file, got {type(source).__name__}")
    name = str(source) if isinstance(source, str | PathLike) else "the state"
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(Path(source).open("rb")) if isinstance(source, str | PathLike) else source
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size == 0:
                raise StateError(f"{name} is empty")
            yield stack.enter_context(zipfile.ZipFile(file)), size, name
    except DAMAGE as error:
        raise StateError(f"{name} is not a fastsketch state, or is cut short ({error})") from error
    except OSError as error:
        raise StateError(f"{name} cannot be read: {error.strerror or error}") from error


def _member(archive: zipfile.ZipFile, key: str, name: str) -> zipfile.ZipInfo:
    try:
        info = archive.getinfo(f"{key}.npy")
    except KeyError:
        reason = "not a fastsketch state" if key == "header" else f"damaged: array {key!r} is missing"
        raise StateError(f"{name} is {reason}") from None
    if info.compress_type != zipfile.ZIP_STORED:
        raise StateError(f"{name} is damaged: member {key!r} is compressed")
    return info


def _header(archive: zipfile.ZipFile, size: int, name: str) -> dict[str, Any]:
    info = _member(archive, "header", name)
    if info.file_size > min(size, 2**24):
        raise StateError(f"{name} is damaged: its header claims {info.file_size} bytes")
    try:
        with archive.open(info) as member:
            header = json.loads(np.lib.format.read_array(member, allow_pickle=False).tobytes())
        if header["format"] != FORMAT:
            raise KeyError("format")
        schema = header["schema"]
        if (
            not isinstance(schema, int)
            or schema < 1
            or not isinstance(header["kind"], str)
            or not isinstance(header["arrays"], dict)
        ):
            raise KeyError("types")
    except (ValueError, KeyError, TypeError, *DAMAGE) as error:
        raise StateError(f"{name} is not a fastsketch state") from error
    if schema > SCHEMA:
        raise StateError(f"{name} was written by a newer version (schema {schema}; this one reads up to {SCHEMA})")
    return header


def _array(archive: zipfile.ZipFile, key: str, about: Any, name: str) -> NDArray[Any]:
    info = _member(archive, key, name)
    try:
        shape = tuple(int(n) for n in about["shape"])
        dtype = np.dtype(about["dtype"])
        crc = about["crc32"]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StateError(f"{name} is damaged: the header of array {key!r} is not readable") from error
    bytes_wanted = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or not bytes_wanted <= info.file_size <= bytes_wanted + 4096:
        raise StateError(f"{name} is damaged: array {key!r} does not have the size that its header states")
    try:
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            found = read(member)
            if found != (shape, False, dtype):
                raise ValueError("shape, order or dtype differ")
            content = member.read(bytes_wanted + 1)
    except (ValueError, OSError, *DAMAGE) as error:
        raise StateError(f"{name} is damaged: array {key!r}: {error}") from error
    if len(content) != bytes_wanted or zlib.crc32(content) != crc:
        raise StateError(f"{name} is damaged: array {key!r} fails its checksum")
    return np.frombuffer(bytearray(content), dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
