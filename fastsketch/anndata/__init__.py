"""Functions for AnnData with the names of scanpy: principal components, rows normalised on the way, gene selection.

They need the extra ``anndata``, and read rows from memory, from .h5ad and .zarr files, or from Dask arrays.
"""

from fastsketch.data.sources._foreign import needs

needs("anndata", "AnnData")

from fastsketch.anndata._genes import highly_variable_genes  # noqa: E402
from fastsketch.anndata._pca import pca  # noqa: E402
from fastsketch.anndata._rows import open_rows  # noqa: E402

__all__ = ["highly_variable_genes", "open_rows", "pca"]
