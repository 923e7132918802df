"""Arrays and ids in files that are no rows to learn from."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files import SourceError
from fastsketch.data.sources._npy_source import read_npy_header


def matrix(path: str, dtype: Any = None) -> NDArray[Any]:
    """Return a C-ordered matrix of an .npy file, mapped; of one dtype if it is given."""
    header = _header(path)
    wanted = header.dtype if dtype is None else np.dtype(dtype)
    if header.dtype != wanted or len(header.shape) != 2 or header.fortran:
        what = "a matrix" if dtype is None else f"a matrix of {wanted}"
        how = ", Fortran-ordered" if header.fortran else ""
        raise SourceError(f"{path} must hold {what}, a row after the other, got {header.dtype} {header.shape}{how}")
    return _mapped(path, header)


def read_ids(path: str) -> NDArray[Any]:
    """Return the integers of an .npy file, or of text with one in every line."""
    if path.endswith(".npy"):
        header = _header(path)
        if header.dtype.kind not in "iu" or len(header.shape) != 1:
            raise SourceError(f"{path} must hold one integer for each row, got {header.dtype} {header.shape}")
        return np.array(_mapped(path, header))
    found: list[int] = []
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    found.append(int(line))
                except ValueError:
                    text = line.strip()[:40]
                    raise SourceError(f"{path}, line {number}: an id must be an integer, got {text!r}") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{path} must be text with an integer in every line, or an .npy file") from None
    try:
        return np.array(found, np.int64)
    except OverflowError:
        raise SourceError(f"{path}: ids must be integers of 64 bits") from None


def _header(path: str) -> Any:
    try:
        return read_npy_header(Path(path))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None


def _mapped(path: str, header: Any) -> NDArray[Any]:
    shape: tuple[int, ...] = header.shape
    found: NDArray[Any] = (
        np.memmap(path, header.dtype, "r", header.offset, shape)
        if all(shape)  # or there is nothing to map
        else np.empty(shape, header.dtype)
    )
    return found
