"""Arrays of an index in files of their own: written once, whole or not at all, checked before they are believed.

A folder has a manifest, the one file that is ever replaced, and files that it names: a plain .npy for each array of a
segment, a state file for each encoder. Names of arrays are random, those of encoders their fingerprints: whoever writes
changes no file that a manifest names.
"""

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.loading import MANIFEST
from fastsketch.data.files import _state as files
from fastsketch.data.files._npy import read_header
from fastsketch.data.files._replacing import replacing
from fastsketch.data.files._state import PIECE, StateError
from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._encoder import kept, restored
from fastsketch.neighbours.index._segment import CODES, IDS, MIDDLES, REMOVED, ROWS, STARTS, Written

ENCODER = "encoder"
ENCODER_KIND = "Encoder"

_ARRAY = "|".join((CODES, IDS, ROWS, REMOVED, MIDDLES, STARTS))
_NAME = re.compile(rf"({_ARRAY})-[0-9a-f]{{16}}\.npy|{ENCODER}-[0-9a-f]{{16}}\.fsk")
# What a killed writer of one of these, or of the manifest, has left: see ``io._replacing``.
_UNFINISHED = re.compile(rf"\.({_NAME.pattern}|{re.escape(MANIFEST)})\..*\.[0-9a-f]{{8}}\.tmp", re.DOTALL)


def new_name(what: str) -> str:
    """Return a name that no file of an array has."""
    return f"{what}-{os.urandom(8).hex()}.npy"


def is_ours(name: str) -> bool:
    """Return whether a file of this name, in the folder of an index, was written by an index and is no manifest."""
    return bool(_NAME.fullmatch(name) or _UNFINISHED.fullmatch(name))


def as_name(value: Any, what: str) -> str:
    """Return the name of a file of this kind, in the folder itself; ValueError for anything else."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or not value.startswith(f"{what}-"):
        raise ValueError(f"{value!r} is no name of a file of {what}")
    return value


# -- arrays ------------------------------------------------------------------------------------------------------------
def write_array(folder: Path, what: str, array: NDArray[Any]) -> Written:
    """Write an array to a new file."""
    name = new_name(what)
    array = np.ascontiguousarray(array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    with replacing(folder / name) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        for piece in _byte_pieces(array):
            file.write(piece)
    return Written(folder, name, checksum(array))


def open_array(written: Written, shape: tuple[int, ...], dtype: Any, *, memory_map: bool, verify: bool) -> NDArray[Any]:
    """Open the array of a file; StateError unless it is the one of this shape, dtype and (verify) checksum.

    No memory is taken before the file has been found to be as long as it must be.
    """
    path = written.folder / written.file
    dtype = np.dtype(dtype).newbyteorder("<")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise StateError(f"{path} is no regular file")
        with path.open("rb") as file:
            header = read_header(file)
            if header[:3] != (shape, False, dtype):
                raise ValueError(f"it states {header.shape} of {header.dtype}, expected {shape} of {dtype}")
            size = os.fstat(file.fileno()).st_size
            if size != header.end:
                raise ValueError(f"it has {size} bytes, not {header.end}: it is cut short, or something follows")
            array: NDArray[Any]
            if memory_map:
                array = np.memmap(file, dtype, mode="r", offset=header.offset, shape=shape)
                array = array.view(np.ndarray)
            else:
                array = np.empty(shape, dtype)
                content = array.reshape(-1).view(np.uint8).data
                if file.readinto(content) != content.nbytes:
                    raise ValueError("it became shorter while it was read")
    except FileNotFoundError:
        raise StateError(f"{path} is missing") from None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, OverflowError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"{path} is damaged: {error}") from error
    if verify and checksum(array) != written.crc32:
        raise StateError(f"{path} is damaged: it fails its checksum")
    return array if array.dtype.isnative else array.astype(dtype.newbyteorder("="))


def checksum(array: NDArray[Any]) -> int:
    """Return the crc32 of the bytes of a contiguous array."""
    crc = 0
    for piece in _byte_pieces(array):
        crc = zlib.crc32(piece, crc)
    return crc


def _byte_pieces(array: NDArray[Any]) -> Iterator[memoryview]:
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(content), PIECE):
        yield content[start : start + PIECE]


def is_there(folder: Path, written: Written, array: NDArray[Any]) -> bool:
    """Return whether the file of an array is in this folder, as long as it must be."""
    with contextlib.suppress(StateError):
        open_array(written, array.shape, array.dtype, memory_map=True, verify=False)
        return written.folder == folder
    return False


# -- encoders ----------------------------------------------------------------------------------------------------------
def write_encoder(folder: Path, encoder: Encoder) -> tuple[str, bool]:
    """Write an encoder to the file of its fingerprint unless it is there: its name, and whether there was none."""
    name = f"{ENCODER}-{encoder.fingerprint[:16]}.fsk"
    state, arrays = kept(encoder)
    content = files.pack({"kind": ENCODER_KIND, "encoder": state}, arrays)
    new = not (folder / name).exists()
    if new or (folder / name).read_bytes() != content:
        files.write(folder / name, content)
    return name, new


def read_encoder(folder: Path, name: str, fingerprint: Any) -> Encoder:
    """Read the encoder of a file; StateError if it is none, or not the one of this fingerprint."""
    path = folder / name
    about, arrays = files.read(path)
    try:
        if about["kind"] != ENCODER_KIND:
            raise ValueError(f"it holds a {about['kind']}")
        encoder = restored(about["encoder"], arrays)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StateError(f"{path} holds no encoder: {error}") from error
    if encoder.fingerprint != fingerprint:
        raise StateError(f"{path} holds another encoder than the index had: its fingerprint differs")
    return encoder


# -- the folder --------------------------------------------------------------------------------------------------------
def clean(folder: Path, needed: Iterable[str]) -> None:
    """Remove what an index has written to its folder and no manifest names; only the holder of its lock may."""
    wanted = set(needed)
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError:
        return
    for name in names:
        if is_ours(name) and name not in wanted:
            remove(folder / name)


def remove(path: Path) -> None:
    """Remove a file, if that can be: some systems keep one as long as it is mapped, and the next save tries again."""
    with contextlib.suppress(OSError):
        path.unlink()
