"""Read matrices in scipy.sparse .npz files.

Every size is checked against the length of the file before memory is allocated.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsketch._core.validation import as_rows
from fastsketch.data.files._input import SourceError, max_unpacked_bytes, unpacked_too_large_error
from fastsketch.data.files._npy import Header, read_header

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# The largest compression factor of deflate; a member that claims more is damaged.
MAX_GROWTH = 1032

MEMBERS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}


def read_matrix(path: Path, max_unpacked: int | None = None) -> "csr_array[Any]":
    """Read a matrix that scipy.sparse.save_npz has written, and return it as CSR with sorted, unique indices.

    The file may hold CSR, CSC or COO. Raise SourceError if it is damaged, holds no such matrix, or unpacks to more than
    ``max_unpacked_bytes``.
    """
    from scipy import sparse

    try:
        length = path.stat().st_size
        limit = max(length, max_unpacked_bytes(length, max_unpacked))
        with zipfile.ZipFile(path) as archive:
            headers = {name.removesuffix(".npy"): _member(archive, name, length) for name in archive.namelist()}
        if sum(header.end for header in headers.values()) > limit:
            raise unpacked_too_large_error(path, limit)
        with np.load(path, allow_pickle=False) as arrays:
            _check(headers, arrays, length, limit)
        return as_rows(sparse.load_npz(path), name="the matrix")
    except SourceError:
        raise
    except Exception as error:  # zipfile, zlib, numpy and scipy raise many kinds for damaged bytes
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = error or type(error).__name__
        raise SourceError(f"{path} is no scipy.sparse .npz file, or is damaged ({reason})") from error


def _check(headers: Mapping[str, Header], arrays: Mapping[str, Any], length: int, limit: int) -> None:
    """Raise ValueError unless the arrays form a CSR, CSC or COO matrix of real numbers."""

    def check(name: str, kinds: str, n_dimensions: int) -> None:
        if name not in headers:
            raise ValueError(f"array {name!r} is missing")
        dtype, shape = headers[name].dtype, headers[name].shape
        if dtype.kind not in kinds or len(shape) != n_dimensions:
            raise ValueError(f"array {name!r} is {dtype} with shape {shape}")

    check("format", "SU", 0)
    value = arrays["format"].item()
    form = value.decode("latin-1") if isinstance(value, bytes) else value
    if form not in MEMBERS:
        raise ValueError(f"it holds a matrix in the format {form[:20]!r}: save it as CSR")
    check("data", "fiub", 1)
    new_coo = form == "coo" and "coords" in headers
    for name in ("coords",) if new_coo else MEMBERS[form]:
        check(name, "iu", 2 if new_coo else 1)
    check("shape", "iu", 1)
    n_rows, *others = map(int, arrays["shape"])
    if len(others) != 1 or min(n_rows, *others) < 0 or max(n_rows, *others) >= 1 << 62:
        raise ValueError(f"the matrix has the shape {(n_rows, *others)}")
    if form != "csr" and 8 * n_rows > limit:  # CSC and COO files need no bytes for an empty row, CSR needs 8
        raise ValueError(f"it claims {n_rows} rows in {length} bytes")


def _member(archive: zipfile.ZipFile, name: str, length: int) -> Header:
    """Return the header of the array called `name` in an .npz archive.

    Raise ValueError if it states more bytes than the archive can hold.
    """
    info, name = archive.getinfo(name), name.removesuffix(".npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"array {name!r} is compressed in a way that is not read")
    growth = 1 if info.compress_type == zipfile.ZIP_STORED else MAX_GROWTH
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
