"""Fingerprints of files and arrays: size, time, and a digest of samples of the content."""

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch._core.validation import is_sparse

# At most 1 MiB of an input is digested: 32 blocks at equal distances, or all of a smaller input. Changes outside the
# blocks are recognised by the modification time.
BLOCKS, BLOCK_BYTES = 32, 32 << 10


def fingerprint_of_file(path: Path) -> dict[str, Any]:
    """Return a fingerprint of a file as JSON values: path, size, modification time and a digest of samples."""
    about = path.stat()
    return {
        "path": str(path.resolve()),
        "format": path.suffix,
        "bytes": about.st_size,
        "modified": about.st_mtime_ns,
        "digest": sampled_digest(path, about.st_size),
    }


def sampled_digest(path: Path, size: int) -> str:
    """Return a digest of 32 blocks spread over a file, by which a changed file is recognised. A small file is read
    completely.
    """
    digest = blake2b(digest_size=16)
    with path.open("rb", buffering=0) as file:
        if size <= BLOCKS * BLOCK_BYTES:
            digest.update(file.read())
        else:
            for block in range(BLOCKS):
                file.seek((size - BLOCK_BYTES) * block // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def fingerprint_of_ends(source: Any, kind: str) -> dict[str, Any]:
    """Return a fingerprint of rows that are not in a file: shape, column names, and a digest of the first and last 16
    rows.
    """
    few = min(16, source.n_rows)
    ends = source.between(0, few), source.between(source.n_rows - few, source.n_rows)
    rows = [rows.toarray() if is_sparse(rows) else np.array(rows) for end in ends for rows, _ in end.read()]
    return {
        "format": kind,
        "shape": [source.n_rows, source.n_features],
        "dtype": str(source.dtype),
        "columns": list(source.feature_names or ()),
        "digest": of_rows(*rows),
    }


def of_rows(*arrays: Any) -> str:
    """Return a digest of samples of arrays, by which a resumed job recognises rows in memory."""
    digest = blake2b(digest_size=16)
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        n = array.shape[0]
        width = max(1, array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64)))
        step = max(1, BLOCK_BYTES // width)
        starts = range(0, n, step) if n <= BLOCKS * step else ((n - step) * k // (BLOCKS - 1) for k in range(BLOCKS))
        for start in starts:
            digest.update(np.ascontiguousarray(array[start : start + step]).tobytes())
    return digest.hexdigest()
