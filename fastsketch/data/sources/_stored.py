"""Read a matrix in a file of many arrays (HDF5, Zarr), dense or stored as three CSR arrays as in AnnData.

Subclasses open the file and find objects in it by name. The choice of the matrix, and how its rows are read and
checked, is common to both formats.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import SourceError, max_unpacked_bytes
from fastsketch.data.sources import _source
from fastsketch.data.sources._foreign import damaged
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import MAX_FEATURES, RowSource, Source, rows_of_chunk, rows_of_part
from fastsketch.data.sources._stamped_file import StampedFile

# A larger storage chunk is not kept in memory, but decompressed again for every chunk of rows that is read from it.
HELD_BYTES = 112 << 20
# Names of rows that are converted from bytes to text at a time.
NAMES_AT_ONCE = 8192


def check_numbers(dtype: Any, name: str) -> None:
    """Raise SourceError unless the dtype is real: floating point, integer or Boolean."""
    if getattr(dtype, "kind", "O") not in "fiub":
        raise SourceError(f"{name} must hold real numbers, got dtype {dtype}")


def check_matrix(shape: tuple[int, ...], dtype: Any, name: str) -> np.dtype[Any]:
    """Check that a stored array is a matrix of real numbers, and return its dtype in native byte order.

    Raises SourceError if it is not two-dimensional, has no columns or holds other values.
    """
    check_numbers(dtype, name)
    if len(shape) != 2 or shape[1] == 0:
        raise SourceError(f"{name} must be a matrix with at least one column, got shape {tuple(shape)}")
    return np.dtype(dtype).newbyteorder("=")


def check_held(n_bytes: int, stored: int, given: int | None, name: str) -> None:
    """Raise SourceError if reading needs far more memory than the size of the file suggests.

    Chunks that nobody has written are not stored, so a few bytes can state any shape.
    """
    if n_bytes > max_unpacked_bytes(stored, given):
        raise SourceError(
            f"{name} would take {n_bytes:,} bytes of memory at a time, and {stored:,} are stored: if it is as it "
            "should be, raise max_unpacked of fs.open_rows"
        )


class StoredSource(RowSource):
    """A source that reads the matrix called `key` in an HDF5 or Zarr file.

    The default is X of AnnData, otherwise the only matrix in the file. A subclass implements ``opened``, ``find`` and
    ``names``.
    """

    what: str  # name of the format for messages
    separator = ""  # prefix of the names of arrays

    def __init__(self, path: Path, options: Options, *, by_columns: bool = False) -> None:
        self.file, self.name = self._look_at(path), escaped(path)
        self.by_columns = by_columns  # whether a CSC matrix is read, as the CSR matrix of its transpose
        self._max_unpacked = options.max_unpacked
        with damaged(path, self.what), self.opened() as root:
            key = self._chosen(root, options.key)
            self._key = f"{self.separator}{key}" if key else ""
            self.name = escaped(f"{path}, {self._key}" if key else path)
            self._describe(self.find(root, key))
            self._set_names(root, key)

    def _look_at(self, path: Path) -> StampedFile:
        return StampedFile(path)

    def opened(self) -> AbstractContextManager[Any]:
        """Return a context manager that opens the file and yields its root, a group or an array."""
        raise NotImplementedError

    def find(self, root: Any, key: str) -> Any:
        """Return the array or group called `key`, or None if it does not exist."""
        raise NotImplementedError

    def names(self, root: Any) -> Iterator[tuple[str, Any]]:
        """Yield (name, object) for all arrays and groups in the file."""
        raise NotImplementedError

    def _chosen(self, root: Any, key: str | None) -> str:
        """Return the name of the matrix to read: the one called `key`, or the default one if `key` is None."""
        if hasattr(root, "shape"):
            if key is not None:
                raise SourceError(f"{self.path} is an array, and no group: there is no key={key!r}")
            return ""
        chosen = None if key is None else key.strip("/")
        if self._is_annotated(root):
            chosen = chosen or "X"
            if "/" not in chosen and self.find(root, f"layers/{chosen}") is not None:
                chosen = f"layers/{chosen}"
        if chosen is None:
            return self._the_only_one(root)
        if not chosen or self.find(root, chosen) is None:
            known = _listed(self._matrices(root))
            raise SourceError(f"{self.path}: there is no matrix {chosen!r}; there are: {known}")
        return chosen

    def _is_annotated(self, root: Any) -> bool:
        """Return True if the file has the layout of AnnData."""
        if _text(root.attrs.get("encoding-type", "")) == "anndata" or self.path.suffix == ".h5ad":
            return True
        table = self.find(root, "var")
        return table is not None and not hasattr(table, "shape") and self.find(root, "X") is not None

    def _is_10x(self, group: Any) -> bool:
        """Return True if a group is a 10x Genomics matrix.

        Such a matrix is CSC, its columns are cells, and they are read as rows.
        """
        if hasattr(group, "shape") or _kind(group):
            return False
        return None not in (self.find(group, name) for name in ("barcodes", "indptr", "shape"))

    def _matrices(self, root: Any) -> list[str]:
        """Return the names of all two-dimensional numeric arrays and sparse matrices."""
        return sorted(
            name
            for name, item in self.names(root)
            if (len(getattr(item, "shape", None) or ()) == 2 and getattr(item.dtype, "kind", "O") in "fiub")
            or _kind(item).startswith(("csr", "csc"))
            or self._is_10x(item)
        )

    def _the_only_one(self, root: Any) -> str:
        names = self._matrices(root)
        if len(names) == 1:
            return names[0]
        if not names:
            raise SourceError(f"{self.path} has no matrix of two dimensions that holds numbers")
        raise SourceError(f"{self.path} has {len(names)} matrices: name one of them in key=: {_listed(names)}")

    def _describe(self, item: Any) -> None:
        """Set the shape and dtype of the source from the stored matrix.

        Raise SourceError if its rows cannot be read.
        """
        if hasattr(item, "shape"):
            self.dtype = check_matrix(item.shape or (), item.dtype, self.name)
            self.size, self.n_features = (int(size) for size in item.shape)
            self._chunk_rows = int((getattr(item, "shards", None) or item.chunks or (1,))[0])
            n_bytes = self.n_features * self.dtype.itemsize
            check_held(n_bytes, self.open_file.n_bytes, self._max_unpacked, f"{self.name}: a row")
        else:
            matrix = self._csr(item)
            self.sparse, self.dtype = True, np.dtype(matrix.data.dtype).newbyteorder("=")
            self.size, self.n_features = matrix.shape
            self._bytes_of_row = max(1, (self.dtype.itemsize + 4) * matrix.data.shape[0] // max(1, self.size) + 8)
        self.n_rows = self.size

    def _set_names(self, root: Any, key: str) -> None:
        """Set the column names that AnnData or 10x Genomics stores, if there is one for each column."""
        names = None
        folder = key.partition("/")[0]
        if not hasattr(root, "shape") and self._is_10x(self.find(root, key)):
            names = self.find(root, f"{key}/features/id")
            names = self.find(root, f"{key}/genes") if names is None else names
        elif folder in ("X", "layers", "raw") and self._is_annotated(root):
            names = self._index_of(root, "raw/var" if folder == "raw" else "var")
        if names is not None and names.shape == (self.n_features,):
            self._check_names_held(names)
            self.feature_names = tuple(map(_text, names[:]))

    def _index_of(self, root: Any, table: str) -> Any:
        """Return the stored array with the index of a data frame of AnnData; None if there is none."""
        group = self.find(root, table)
        names = None if group is None else self.find(group, _text(group.attrs.get("_index", "_index")))
        if names is not None and not hasattr(names, "shape"):  # AnnData stores nullable strings as values and mask
            names = self.find(names, "values")
        return names

    def _check_names_held(self, names: Any) -> None:
        n_bytes = names.shape[0] * max(8, names.dtype.itemsize)
        check_held(n_bytes, self.open_file.n_bytes, self._max_unpacked, f"{self.path}, {names.name}")

    def _row_names(self) -> NDArray[Any] | None:
        with damaged(self.path, self.what, self.check_unchanged), self.opened() as root:
            names = self._index_names(root, "obs", self._stop)
            return None if names is None else names[self.first_row :]

    def _index_names(self, root: Any, table: str, n: int) -> NDArray[Any] | None:
        """Return the first n names in the index of a data frame of AnnData; None if it has fewer."""
        names = self._index_of(root, table) if self._is_annotated(root) else None
        if names is None or len(names.shape) != 1 or names.shape[0] < n:
            return None
        self._check_names_held(names)
        out = np.empty(n, dtype=object)
        for start in range(0, n, NAMES_AT_ONCE):  # names are read as bytes, which take as much memory as the text
            stop = min(start + NAMES_AT_ONCE, n)
            out[start:stop] = [_text(name) for name in names[start:stop]]
        return out

    @property
    def n_bytes(self) -> int:
        """Approximate size of the rows in memory, in bytes."""
        return self._bytes_of_row * self.size if self.sparse else super().n_bytes

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows: the file, the range of rows and the name of the matrix."""
        return {**super().identity(), "key": self._key}

    def _chunks(self, start: int) -> Iterator[Any]:
        with damaged(self.path, self.what, self.check_unchanged), self.opened() as root:
            item = self.find(root, self._key)
            if self.sparse:
                yield from self._sparse_chunks(self._csr(item), start)
                return
            if item.shape[0] < self._stop or item.shape[1] != self.n_features:
                raise SourceError(f"{self.name} has changed since it was opened: its shape is {item.shape}")
            yield from self._dense_chunks(item, start)

    def _dense_chunks(self, item: Any, start: int) -> Iterator[NDArray[Any]]:
        """Yield the rows of a dense array from row `start` on, one chunk at a time.

        Whole storage chunks are read at a time if they fit HELD_BYTES.
        """
        step = n_rows = rows_of_chunk(self)
        if self._chunk_rows * self.n_features * np.dtype(self.dtype).itemsize <= HELD_BYTES:
            step = max(1, step // self._chunk_rows) * self._chunk_rows
        while start < self._stop:
            stop = min((start // step + 1) * step, self._stop)
            rows = np.ascontiguousarray(item[start:stop], self.dtype)
            for first in range(0, len(rows), n_rows):
                yield rows[first : first + n_rows]
            start = stop

    def _csr(self, group: Any) -> "_Csr":
        """Return the stored arrays of a CSR matrix. Raise SourceError if the group is not a valid CSR matrix."""
        kind = "csr" if self._is_10x(group) else _kind(group)
        if kind.startswith("csc") and not self.by_columns:
            raise SourceError(
                f"{self.name} is stored by columns (CSC), which cannot be read by rows: write it again with "
                "adata.X = adata.X.tocsr(), or take convert=True of fastsketch.anndata"
            )
        if not kind.startswith("csc" if self.by_columns else "csr"):
            raise SourceError(f"{self.name} is no matrix that rows can be read of, but {kind or 'a group'}")
        arrays: list[Any] = []
        for name in ("indptr", "indices", "data"):
            array, kinds = self.find(group, name), "fiub" if name == "data" else "iu"
            if array is None:
                raise SourceError(f"{self.name} is damaged: {name!r} is not there")
            if len(getattr(array, "shape", None) or ()) != 1 or array.dtype.kind not in kinds:
                what = "real numbers" if name == "data" else "integers"
                found = f"{array.dtype} of shape {array.shape}" if hasattr(array, "shape") else "a group"
                raise SourceError(f"{self.name}/{name} must hold {what}, got {found}")
            arrays.append(array)
        stated = np.asarray(group.attrs.get("shape", group.attrs.get("h5sparse_shape", ())))
        if self._is_10x(group) and self.find(group, "shape").shape == (2,):
            stated = np.asarray(self.find(group, "shape")[:])[::-1]
        if stated.shape != (2,) or stated.dtype.kind not in "iu":
            raise SourceError(f"{self.name} has no shape of two dimensions")
        if self.by_columns:
            stated = stated[::-1]
        shape, lengths = (int(stated[0]), int(stated[1])), tuple(array.shape[0] for array in arrays)
        if not (0 < lengths[0] == shape[0] + 1 and lengths[1] == lengths[2] and 0 < shape[1] <= MAX_FEATURES):
            raise SourceError(f"{self.name} is damaged: lengths {lengths} of indptr, indices, data, shape {shape}")
        return _Csr(shape, *arrays)

    def _sparse_chunks(self, matrix: "_Csr", first: int) -> Iterator[Any]:
        """Yield the CSR rows from row `first` on in chunks of limited size. Raise SourceError for invalid indices."""
        from scipy.sparse import csr_array

        dtype = np.dtype(self.dtype)
        most = max(1, _source.CHUNK_BYTES // (dtype.itemsize + 4))  # entries of a chunk
        rows_at_once = 2 * rows_of_chunk(self) + 1
        while first < self._stop:
            ends = np.asarray(matrix.indptr[first : min(first + rows_at_once, self._stop) + 1]).astype(np.int64)
            if ends[0] < 0 or (first == 0 and ends[0] > 0) or (np.diff(ends) < 0).any():
                raise SourceError(f"{self.name} is damaged: indptr goes backwards after row {first}")
            n = max(1, int(np.searchsorted(ends, int(ends[0]) + most, side="right")) - 1)
            low, high = int(ends[0]), int(ends[n])
            if high > matrix.data.shape[0]:
                raise SourceError(f"{self.name} is damaged: indptr of row {first + n} is beyond its entries")
            if (wide := np.diff(ends[: n + 1]) > self.n_features).any():
                row = first + int(np.argmax(wide))
                raise SourceError(f"{self.name} is damaged: row {row} has more entries than columns")
            if n == 1:  # a single row may be larger than a chunk
                n_bytes = (high - low) * (dtype.itemsize + matrix.indices.dtype.itemsize)
                check_held(n_bytes, self.open_file.n_bytes, self._max_unpacked, f"{self.name}: row {first}")
            values, columns = np.asarray(matrix.data[low:high]), np.asarray(matrix.indices[low:high])
            if len(columns) and (int(columns.min()) < 0 or int(columns.max()) >= self.n_features):
                raise SourceError(f"{self.name} is damaged: an index beyond its columns after row {first}")
            values, columns = values.astype(dtype, copy=False), columns.astype(np.int32, copy=False)
            yield csr_array((values, columns, (ends[: n + 1] - low).astype(np.int32)), shape=(n, self.n_features))
            first += n

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """Split the matrix into consecutive sources of about n_bytes each, and return them as a list.
        A dense array is split at the ends of its storage chunks.
        """
        if self.sparse:
            return super().parts(n_bytes, multiple=multiple)
        step, parts, place = rows_of_part(self, n_bytes, multiple), list[Source](), 0
        while place < self.size:
            stop = min(self.size, cut(self.first_row + place, step, multiple, self._chunk_rows) - self.first_row)
            parts.append(self.between(place, stop))
            place = stop
        return parts or [self]


class _Csr(NamedTuple):
    """A CSR matrix whose arrays are stored in a file."""

    shape: tuple[int, int]
    indptr: Any
    indices: Any
    data: Any


def _kind(item: Any) -> str:
    """Return AnnData's encoding name of a group, such as "csr_matrix" or "dataframe"; "" if it has none."""
    return _text(item.attrs.get("encoding-type", item.attrs.get("h5sparse_format", "")))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _listed(names: list[str]) -> str:
    return (", ".join(map(repr, names[:20])) or "none") + (", ..." if len(names) > 20 else "")


def cut(place: int, step: int, multiple: int, chunk_rows: int) -> int:
    """Return the row at which a part of a stored matrix that begins at row `place` should end.
    It is near the end of a storage chunk.

    The part has about `step` rows and a multiple of `multiple` rows; to ensure that, it may end a few rows before the
    end of the chunk.
    """
    stop = place + max(step, multiple)
    if chunk_rows > 1 and step >= chunk_rows:
        stop = stop // chunk_rows * chunk_rows
    return max(place + multiple, stop - (stop - place) % multiple)
