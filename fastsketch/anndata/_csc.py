"""Convert a CSC matrix on disk to CSR, in two readings and with temporary files."""

# anndata and pandas have incomplete types.
# pyright: basic

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch.data.sources import Source
from fastsketch.data.sources._anndata import IndexedRows
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._foreign import damaged
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._hdf5 import HdfSource
from fastsketch.data.sources._zarr import ZarrSource


def convert(path: Path, key: str | None) -> Source:
    """Convert the CSC matrix `key` of an HDF5 or Zarr file to CSR in temporary files, and return a source of it.

    The files take as many bytes as the matrix, have no name, and are freed with the source. The attribute `stored` of
    the source is the file that was converted.
    """
    from scipy.sparse import csr_array

    # The CSC arrays of X are the CSR arrays of its transpose, whose chunks are the columns of X.
    kind = ZarrSource if path.suffix == ".zarr" else HdfSource
    columns: Any = kind(path, Options(key=key), by_columns=True)
    n, d = columns.n_features, columns.n_rows
    counts = np.zeros(n, np.int64)
    for chunk in columns:
        counts += np.bincount(chunk.indices, minlength=n)
    ends = np.concatenate([[0], np.cumsum(counts)])
    size = max(1, int(ends[-1]))
    with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as index_file:
        data: Any = np.memmap(file, columns.dtype, "w+", shape=(size,))
        indices: Any = np.memmap(index_file, np.int32, "w+", shape=(size,))
    position, first = ends[:-1].copy(), 0
    for chunk in columns:
        turned = chunk.T.tocsr()
        lengths = np.diff(turned.indptr)
        place = np.arange(turned.nnz) + np.repeat(position - turned.indptr[:-1], lengths)
        data[place], indices[place] = turned.data, turned.indices + first
        position += lengths
        first += chunk.shape[0]
    data, indices = data[: int(ends[-1])], indices[: int(ends[-1])]
    rows = csr_array((data, indices, ends.astype(np.int32) if size <= np.iinfo(np.int32).max else ends), shape=(n, d))
    with damaged(columns.path, columns.what, columns.check_unchanged), columns.opened() as root:
        names = [columns._index_names(root, axis, length) for axis, length in (("obs", n), ("var", d))]
    cells, genes = (np.arange(n), None) if names[0] is None or names[1] is None else names
    out: Any = IndexedRows(ArraySource(rows, name=columns.name), cells)
    out.feature_names, out.stored = None if genes is None else tuple(genes), columns
    return out
