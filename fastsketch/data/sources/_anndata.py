"""Open AnnData objects, in memory or backed by a file, as sources of rows; _hdf5 and _zarr open AnnData files."""

from pathlib import Path
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._hdf5 import HdfSource
from fastsketch.data.sources._source import Source


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
        raise SourceError("the AnnData object has no X: name a layer in key=")
    source = ArraySource(rows, name="the AnnData object")
    if home in ("", "layers", "raw"):
        names = (x.raw if home == "raw" else x).var_names
        source.feature_names = tuple(map(str, names))
    return source
