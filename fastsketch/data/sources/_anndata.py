"""Open AnnData objects, in memory or backed by a file, as sources of rows; _hdf5 and _zarr open AnnData files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._formats import Options, function, opener_of_object
from fastsketch.data.sources._hdf5 import HdfSource
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._sliced import SlicedSource
from fastsketch.data.sources._source import Source

# A CSC matrix is converted to CSR in this many blocks of rows. Slicing reads all of its entries for each block.
CSC_BLOCKS = 16


def open_object(x: Any, options: Options) -> Source:
    """Open a matrix of an AnnData object as a source: X, or the one that the option `key` names ("obsm/X_pca",
    "raw/X").
    """
    if x.isbacked and not x.is_view:
        return HdfSource(Path(x.filename), options)
    if x.isbacked:
        raise SourceError("a view of an AnnData object that is backed by a file: take view.to_memory(), or the whole")
    key = options.key or "X"
    if "/" not in key and key in x.layers:
        key = f"layers/{key}"
    home, _, name = key.rpartition("/")
    try:
        rows: Any = x.raw.X if key == "raw/X" else x.X if key == "X" else getattr(x, home)[name]
    except (KeyError, AttributeError):
        raise SourceError(f"the AnnData object has no matrix {key!r}") from None
    if rows is None:
        raise SourceError("the AnnData object has no X: name a layer (layer=, or key= of fs.open_rows)")
    source = IndexedRows(_open_matrix(rows, options), x.obs_names)
    if home in ("", "layers", "raw"):
        names = (x.raw if home == "raw" else x).var_names
        source.feature_names = tuple(map(str, names))
    return source


def _open_matrix(rows: Any, options: Options) -> Source:
    """Return a source of a matrix in memory or a lazy matrix; a CSC matrix is converted to CSR by blocks of rows."""
    if getattr(rows, "format", None) == "csc":
        return SlicedSource(rows, name="the AnnData object", step=-(-rows.shape[0] // CSC_BLOCKS) or 1)
    if (name := opener_of_object(rows)) is not None:  # a Dask or Zarr array
        return function(name)(rows, options)
    return ArraySource(rows, name="the AnnData object")


class IndexedRows(Derived):
    """A source whose rows have names."""

    def __init__(self, source: Source, names: Any) -> None:
        super().__init__(source)
        self._names = names

    def like(self, source: Source) -> Source:
        """Return a part of the original source with the names of its rows."""
        first = source.first_row - self.first_row
        part = IndexedRows(source, self._names[first : first + (source.n_rows or 0)])
        part.feature_names = self.feature_names
        return part

    def made(self, rows: Any, first: int) -> Any:
        """Return the rows unchanged."""
        return rows

    def _row_names(self) -> NDArray[Any]:
        return np.array(list(map(str, self._names)), dtype=object)
