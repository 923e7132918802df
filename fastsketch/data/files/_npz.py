"""A sparse matrix from an .npz of scipy: every size is checked against the file before anything is allocated."""

import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_rows
from fastsketch.data.files._input import SourceError, most_unpacked, too_large
from fastsketch.data.files._npy import Header, read_header

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# No deflate stream shrinks by more: a member that claims more is damaged.
MOST_GROWTH = 1032
READ_BYTES = 1 << 20

# Raised by zipfile for damaged bytes (RuntimeError: encrypted), then by scipy for arrays that are no matrix.
DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, struct.error, zlib.error)
NO_MATRIX = (ValueError, TypeError, OverflowError)

MEMBERS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}


class _Member(NamedTuple):
    """An array in the archive, its header read and its size checked."""

    info: zipfile.ZipInfo
    header: Header


def read_matrix(path: Path, max_unpacked: int | None = None) -> "csr_array[Any]":
    """Return a matrix that scipy.sparse.save_npz wrote as CSR (also CSC and COO), as canonical CSR.

    Raises SourceError for a file that is none, is damaged, holds arrays that are no matrix, or unpacks to more than it
    may.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            length = path.stat().st_size
            return _matrix(path, archive, length, max(length, most_unpacked(length, max_unpacked)))
    except SourceError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(path, error) from error
    except (*DAMAGE, *NO_MATRIX) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> SourceError:
    return SourceError(f"{path} is no scipy.sparse .npz file, or is damaged ({error or type(error).__name__})")


def _matrix(path: Path, archive: zipfile.ZipFile, length: int, most: int) -> "csr_array[Any]":
    from scipy.sparse import csr_array

    form = _text(archive, _member(archive, "format", length))
    if form not in MEMBERS:
        raise ValueError(f"it holds a matrix in the format {form[:20]!r}: save it as CSR")
    names = ("data", "coords") if form == "coo" and "coords.npy" in archive.NameToInfo else MEMBERS[form]
    members = {name: _member(archive, name, length) for name in ("shape", *names)}
    n_rows, n_columns = _shape(archive, members.pop("shape"))
    for name, member in members.items():
        wanted = "fiub" if name == "data" else "iu"
        if member.header.dtype.kind not in wanted or len(member.header.shape) != (2 if name == "coords" else 1):
            raise ValueError(f"array {name!r} is {member.header.dtype} with shape {member.header.shape}")
    if form != "csr" and 8 * n_rows > most:  # they need no bytes in a file of columns or coordinates, but 8 each here
        raise ValueError(f"it claims {n_rows} rows in {length} bytes")
    if sum(member.info.file_size for member in members.values()) > most:
        raise too_large(path, most)
    arrays = {name: _read(archive, member, name) for name, member in members.items()}
    if form == "coo":
        return _from_coordinates(arrays, n_rows, n_columns)
    if form == "csr":
        return _compressed(arrays, (n_rows, n_columns))
    if n_rows == 0:  # no matrix of no columns passes the check
        return as_rows(csr_array((0, n_columns)), name="the matrix")
    return _compressed(arrays, (n_columns, n_rows)).T.tocsr()


def _compressed(arrays: dict[str, NDArray[Any]], shape: tuple[int, int]) -> "csr_array[Any]":
    from scipy.sparse import csr_array

    return as_rows(csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape), name="the matrix")


def _from_coordinates(arrays: dict[str, NDArray[Any]], n_rows: int, n_columns: int) -> "csr_array[Any]":
    from scipy.sparse import coo_array

    row, column = arrays["coords"] if "coords" in arrays else (arrays["row"], arrays["col"])
    for name, index, limit in (("row", row, n_rows), ("col", column, n_columns)):
        if index.size and not 0 <= int(index.min()) <= int(index.max()) < limit:
            raise ValueError(f"array {name!r} has an index outside [0, {limit})")
    return as_rows(coo_array((arrays["data"], (row, column)), shape=(n_rows, n_columns)), name="the matrix")


def _member(archive: zipfile.ZipFile, name: str, length: int) -> _Member:
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise ValueError(f"array {name!r} is missing") from None
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"array {name!r} is compressed in a way that is not read")
    growth = 1 if info.compress_type == zipfile.ZIP_STORED else MOST_GROWTH
    if not info.file_size <= growth * min(info.compress_size, length):
        raise ValueError(f"array {name!r} claims {info.file_size} bytes, but takes {info.compress_size} in the file")
    with archive.open(info) as file:
        try:
            header = read_header(file)
        except ValueError as error:
            raise ValueError(f"array {name!r}: {error}") from None
    if header.dtype.hasobject:
        raise ValueError(f"array {name!r} holds Python objects")
    if header.end != info.file_size:
        raise ValueError(f"array {name!r} has {info.file_size} bytes, its header states {header.end}")
    return _Member(info, header)


def _read(archive: zipfile.ZipFile, member: _Member, name: str) -> NDArray[Any]:
    header = member.header
    out = np.empty(header.end - header.offset, np.uint8)
    with archive.open(member.info) as file:
        file.read(header.offset)
        done = 0
        while done < len(out):
            part = file.read(min(READ_BYTES, len(out) - done))
            if not part:
                raise ValueError(f"array {name!r} is cut short")
            out[done : done + len(part)] = np.frombuffer(part, np.uint8)
            done += len(part)
        file.read(1)  # the checksum is looked at when the end is reached
    array = out.view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")
    return array.astype(header.dtype.newbyteorder("="), copy=False)


def _text(archive: zipfile.ZipFile, member: _Member) -> str:
    if member.header.dtype.kind not in "SU" or member.header.shape != () or member.header.dtype.itemsize > 64:
        raise ValueError("array 'format' is no name")
    value = _read(archive, member, "format")[()]
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _shape(archive: zipfile.ZipFile, member: _Member) -> tuple[int, int]:
    if member.header.dtype.kind not in "iu" or member.header.shape != (2,):
        raise ValueError("array 'shape' is not that of a matrix")
    n_rows, n_columns = (int(size) for size in _read(archive, member, "shape"))
    if min(n_rows, n_columns) < 0 or max(n_rows, n_columns) >= 1 << 62:
        raise ValueError(f"the matrix has the shape ({n_rows}, {n_columns})")
    return n_rows, n_columns
