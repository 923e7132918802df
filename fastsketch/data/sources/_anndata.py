"""AnnData: files (.h5ad) read by h5py alone, and objects, in memory or backed by a file; dense rows and CSR."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources import _source
from fastsketch.data.sources._file_sources import FileSource
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._hdf5 import WHAT, HdfSource, dataset, within
from fastsketch.data.sources._source import MAX_FEATURES, Source
from fastsketch.data.sources._stored import check_held


def open_h5ad(path: Path, options: Options) -> Source:
    """Return the matrix X of an .h5ad file, or with `key` a layer or another matrix ("obsm/X_pca", "raw/X")."""
    h5py = needs("h5py", ".h5ad files")
    with damaged(path, "AnnData file"), h5py.File(path, "r") as file:
        key = _key(options.key, lambda name: within(file, name, path) is not None)
        matrix = within(file, key, path)
        if matrix is None:
            layers, others = (within(file, name, path) or () for name in ("layers", "obsm"))
            known = ["X", *layers, *(f"obsm/{name}" for name in others)]
            raise SourceError(f"{path}: there is no matrix {key!r}; there are: {', '.join(known)}")
        names = _names(file, key, path, options.max_unpacked)
        kind = matrix.attrs.get("encoding-type", matrix.attrs.get("h5sparse_format", ""))
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        if isinstance(matrix, h5py.Dataset):
            source: Source = HdfSource(path, dataset(file, key, path), options.max_unpacked)
        elif kind.startswith("csc"):
            raise SourceError(
                f"{path}: {key} is stored by columns (CSC), which cannot be read by rows: write it again with "
                "adata.X = adata.X.tocsr()"
            )
        elif kind.startswith("csr"):
            source = CsrSource(path, matrix, options.max_unpacked)
        else:
            raise SourceError(f"{path}: {key} is no matrix that rows can be read of, but {kind or 'a group'}")
    if names is not None and len(names) == source.n_features:
        source.feature_names = names
    return source


def open_object(x: Any, options: Options) -> Source:
    """Return the matrix X of an AnnData object or, with `key`, a layer or another matrix."""
    if x.isbacked and not x.is_view:
        return open_h5ad(Path(x.filename), options)
    if x.isbacked:
        raise SourceError("a view of an AnnData object that is backed by a file: take view.to_memory(), or the whole")
    from fastsketch.data.sources._arrays import ArraySource

    key = _key(options.key, lambda name: name.removeprefix("layers/") in x.layers)
    home, _, name = key.rpartition("/")
    try:
        rows: Any = x.raw.X if key == "raw/X" else x.X if key == "X" else getattr(x, home)[name]
    except (KeyError, AttributeError):
        raise SourceError(f"the AnnData object has no matrix {key!r}") from None
    if rows is None:
        raise SourceError("the AnnData object has no X: name a layer in key=")
    source = ArraySource(rows, name="the AnnData object")
    if home in ("", "layers", "raw"):
        names = (x.raw if home == "raw" else x).var_names
        source.feature_names = tuple(map(str, names))
    return source


def _key(key: str | None, is_layer: Callable[[str], bool]) -> str:
    """Return the path of a matrix: X by default; a name without a folder is that of a layer."""
    if key is None or key == "X":
        return "X"
    if "/" not in key and is_layer(f"layers/{key}"):
        return f"layers/{key}"
    return key


def _names(file: Any, key: str, path: Path, max_unpacked: int | None) -> tuple[str, ...] | None:
    """Return names of the variables, for matrices that have a column for each."""
    h5py = needs("h5py", ".h5ad files")
    home = "raw/var" if key.startswith("raw/") else "var"
    if key != "X" and not key.startswith(("layers/", "raw/")):
        return None
    table = within(file, home, path)
    if table is None:
        return None
    index = table.attrs.get("_index", "_index")
    index = index.decode() if isinstance(index, bytes) else str(index)
    if within(table, index, path) is None:
        return None
    if isinstance(within(table, index, path), h5py.Group):  # strings that may be missing: values beside a mask
        table, index = table[index], "values"
    names = dataset(table, index, path)
    n_bytes = names.size * max(8, names.dtype.itemsize)
    check_held(n_bytes, path.stat().st_size, max_unpacked, f"{path}, {names.name}")
    return tuple(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in names[:])


class CsrSource(FileSource):
    """A CSR matrix in an HDF5 file: its three arrays are read a stretch at a time."""

    sparse = True

    def __init__(self, path: Path, group: Any, max_unpacked: int | None) -> None:
        super().__init__(path)
        self._most = max_unpacked
        self._key: str = group.name
        self.name = escaped(f"{path}, {group.name}")
        shape = np.asarray(group.attrs.get("shape", group.attrs.get("h5sparse_shape", ())))
        if shape.shape != (2,) or shape.dtype.kind not in "iu":
            raise SourceError(f"{self.name} has no shape of two dimensions")
        self.size, self.n_features = (int(size) for size in shape)
        indptr, indices, data = self._parts(group)
        lengths = tuple(len(part) for part in (indptr, indices, data))
        whole = 0 < lengths[0] == self.size + 1 and lengths[1] == lengths[2]
        if not whole or not 0 < self.n_features <= MAX_FEATURES:
            of = self.size, self.n_features
            raise SourceError(f"{self.name} is damaged: lengths {lengths} of indptr, indices, data, shape {of}")
        self.dtype, self.n_rows = np.dtype(data.dtype).newbyteorder("="), self.size
        self._entries_of_row = lengths[1] / max(1, self.size)

    def _parts(self, group: Any) -> list[Any]:
        """Return the arrays indptr, indices and data of a group."""
        parts = [dataset(group, name, self.path) for name in ("indptr", "indices", "data")]
        for part, kinds, what in zip(
            parts, ("iu", "iu", "fiub"), ("integers", "integers", "real numbers"), strict=True
        ):
            if len(part.shape or ()) != 1 or part.dtype.kind not in kinds:
                raise SourceError(f"{self.path}, {part.name} must hold {what}, got {part.dtype} of shape {part.shape}")
        return parts

    @property
    def n_bytes(self) -> int:
        """See Source."""
        return int((np.dtype(self.dtype).itemsize + 4) * self._entries_of_row * self.size) + 8 * self.size

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {**super().identity(), "key": self._key}

    def _chunks(self, start: int) -> Iterator[Any]:
        h5py = needs("h5py", ".h5ad files")
        with damaged(self.path, WHAT, self.check_unchanged), h5py.File(self.path, "r") as file:
            indptr, indices, data = self._parts(within(file, self._key, self.path))
            yield from self._stretches(indptr, indices, data, start, self._stop)

    def _stretches(self, indptr: Any, indices: Any, data: Any, first: int, stop: int) -> Iterator[Any]:
        csr: Any = import_module("scipy.sparse").csr_array
        dtype = np.dtype(self.dtype)
        most = max(1, _source.CHUNK_BYTES // (dtype.itemsize + 4))  # entries of a chunk
        rows_at_once = 2 * int(most / max(self._entries_of_row, 1.0)) + 1
        while first < stop:
            ends = cast("NDArray[np.int64]", indptr[first : min(first + rows_at_once, stop) + 1].astype(np.int64))
            if ends[0] < 0 or (first == 0 and ends[0] > 0) or (np.diff(ends) < 0).any():
                raise SourceError(f"{self.name} is damaged: indptr goes backwards after row {first}")
            n = max(1, int(np.searchsorted(ends, int(ends[0]) + most, side="right")) - 1)
            low, high = int(ends[0]), int(ends[n])
            if high > len(data):
                raise SourceError(f"{self.name} is damaged: indptr of row {first + n} is beyond its entries")
            if (wide := np.diff(ends[: n + 1]) > self.n_features).any():
                raise SourceError(
                    f"{self.name} is damaged: row {first + int(np.argmax(wide))} has more entries than columns"
                )
            if n == 1:  # others are a chunk
                n_bytes = (high - low) * (dtype.itemsize + indices.dtype.itemsize)
                check_held(n_bytes, self.file_bytes, self._most, f"{self.name}: row {first}")
            values, columns = data[low:high], indices[low:high]
            if len(columns) and (int(columns.min()) < 0 or int(columns.max()) >= self.n_features):
                raise SourceError(f"{self.name} is damaged: an index beyond its columns after row {first}")
            columns = columns.astype(np.int32, copy=False)
            pointers = (ends[: n + 1] - low).astype(np.int32)
            yield csr((values.astype(dtype, copy=False), columns, pointers), shape=(n, self.n_features))
            first += n
