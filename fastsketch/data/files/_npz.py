"""A sparse matrix from an .npz of scipy: every size is checked against the file before anything is allocated."""

import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsketch._core.validation import as_rows
from fastsketch.data.files._input import SourceError, most_unpacked, too_large
from fastsketch.data.files._npy import Header, read_header

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# No deflate stream shrinks by more: a member that claims more is damaged.
MOST_GROWTH = 1032

# Raised by zipfile for damaged bytes (RuntimeError: encrypted), then by scipy for arrays that are no matrix.
DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, struct.error, zlib.error)
NO_MATRIX = (ValueError, TypeError, OverflowError)

MEMBERS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}


def read_matrix(path: Path, max_unpacked: int | None = None) -> "csr_array[Any]":
    """Return a matrix that scipy.sparse.save_npz wrote as CSR (also CSC and COO), as canonical CSR.

    Raises SourceError for a file that is none, is damaged, holds arrays that are no matrix, or unpacks to more than it
    may.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            length = file.seek(0, os.SEEK_END)
            file.seek(0)
            arrays = np.load(file, allow_pickle=False)
            return _matrix(path, archive, arrays, length, max(length, most_unpacked(length, max_unpacked)))
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


def _matrix(path: Path, archive: zipfile.ZipFile, arrays: Any, length: int, most: int) -> "csr_array[Any]":
    from scipy import sparse

    name_of_form = _member(archive, "format", length)
    if name_of_form.dtype.kind not in "SU" or name_of_form.shape != () or name_of_form.dtype.itemsize > 64:
        raise ValueError("array 'format' is no name")
    value = arrays["format"].item()
    form = value.decode("ascii") if isinstance(value, bytes) else str(value)
    if form not in MEMBERS:
        raise ValueError(f"it holds a matrix in the format {form[:20]!r}: save it as CSR")
    names = ("data", "coords") if form == "coo" and "coords.npy" in archive.NameToInfo else MEMBERS[form]
    members = {name: _member(archive, name, length) for name in ("shape", *names)}
    stated = members.pop("shape")
    if stated.dtype.kind not in "iu" or stated.shape != (2,):
        raise ValueError("array 'shape' is not that of a matrix")
    n_rows, n_columns = shape = int(arrays["shape"][0]), int(arrays["shape"][1])
    if min(shape) < 0 or max(shape) >= 1 << 62:
        raise ValueError(f"the matrix has the shape ({n_rows}, {n_columns})")
    for name, header in members.items():
        wanted = "fiub" if name == "data" else "iu"
        if header.dtype.kind not in wanted or len(header.shape) != (2 if name == "coords" else 1):
            raise ValueError(f"array {name!r} is {header.dtype} with shape {header.shape}")
    if form != "csr" and 8 * n_rows > most:  # they need no bytes in a file of columns or coordinates, but 8 each here
        raise ValueError(f"it claims {n_rows} rows in {length} bytes")
    if sum(header.end for header in members.values()) > most:
        raise too_large(path, most)
    data, *index = (arrays[name] for name in names)
    if form == "coo":
        row, column = index if len(index) == 2 else index[0]
        for name, index, limit in (("row", row, n_rows), ("col", column, n_columns)):
            if index.size and not 0 <= int(index.min()) <= int(index.max()) < limit:
                raise ValueError(f"array {name!r} has an index outside [0, {limit})")
        return as_rows(sparse.coo_array((data, (row, column)), shape=shape), name="the matrix")
    make = sparse.csr_array if form == "csr" else sparse.csc_array
    return as_rows(make((data, *index), shape=shape), name="the matrix")


def _member(archive: zipfile.ZipFile, name: str, length: int) -> Header:
    """Return the header of an array in an archive of this many bytes, whose size has been held against it."""
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
    return header
