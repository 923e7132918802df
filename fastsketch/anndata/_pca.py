"""``pca``: principal components of AnnData, with the interface of ``scanpy.pp.pca``."""

# anndata and pandas have incomplete types.
# pyright: basic

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._core.validation import as_flag, as_integer, is_sparse
from fastsketch._core.warning import warn_caller
from fastsketch.anndata._rows import CellRows, Operations, are_counts, as_mask, column_of, matrix_of
from fastsketch.covariance._moments import FeatureVariance
from fastsketch.data.files._replacing import output_target, replacing, same_file
from fastsketch.data.sources import Source
from fastsketch.data.sources._anndata import IndexedRows
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._select import Checked, Derived, picked
from fastsketch.sketching import FrequentDirections
from fastsketch.sklearn import SketchedPCA
from fastsketch.sklearn._principal_components import components_of

Floats = NDArray[np.float64]
# The number of components of scanpy (``scanpy.settings.N_PCS``).
N_COMPS = 50
# Arguments of scanpy's function that this one lacks, and what replaces them.
REMOVED = {
    **dict.fromkeys(("chunked", "chunk_size"), "rows are always read in chunks, whose size does not matter"),
    "svd_solver": "the method is chosen by its cost, and variance_interval says how accurate the variances are",
    "random_state": "nothing is random",
    "use_highly_variable": "mask_var='highly_variable' or mask_var=None",
}


class _Default:
    """The default of `mask_var`, which differs from None."""

    def __repr__(self) -> str:
        return "'highly_variable' if var has it"


DEFAULT: Any = _Default()


class Selection(NamedTuple):
    """The rows to be decomposed, the genes that a mask keeps, and parameters to be stored with the result."""

    source: Source  # with all columns
    keep: NDArray[np.intp] | None  # positions of the columns of the source that the mask keeps
    params: dict[str, Any]  # for ``uns``
    names: tuple[str, ...]  # of all genes
    genes: NDArray[np.intp]  # positions of the genes that are used, among all genes


class _Observed(Derived):
    """Source that reads another one and records whether its first chunk looks like raw counts."""

    are_counts = False

    def made(self, rows: Any, first: int) -> Any:
        """Return the rows unchanged."""
        if first == 0:
            self.are_counts = are_counts(rows)
        return rows


class Components(NamedTuple):
    """Principal components and the scores of the rows."""

    scores: NDArray[Any]  # (n, k)
    components: NDArray[Any]  # (k, d)
    variance: NDArray[Any]  # (k,)
    variance_ratio: NDArray[Any]  # (k,)
    interval: Floats | None  # (k, 2); None without centring


def pca(
    data: "AnnData | ArrayLike | Source | str | PathLike[str]",
    n_comps: int | None = None,
    *,
    layer: str | None = None,
    obsm: str | None = None,
    zero_center: bool = True,
    return_info: bool = False,
    mask_var: "ArrayLike | str | None" = DEFAULT,
    dtype: DTypeLike = "float32",
    key_added: str | None = None,
    copy: bool = False,
    output: "str | PathLike[str] | None" = None,
    convert: bool = False,
    **removed: Any,
) -> Any:
    """Compute principal components of cells, as ``scanpy.pp.pca`` does, from memory or from disk.

    Rows are read in chunks, twice if all genes' products fit into memory (up to 6,400 genes), and are not made dense.

    Parameters
    ----------
    data : AnnData, path, source, or array_like or sparse (n_cells, n_genes)
        Log-normalised values. A path is that of an .h5ad or .zarr file; ``open_rows`` makes a source that normalises
        counts.
    n_comps : int, optional
        Number of components. By default 50, or one less than the smaller of the numbers of cells and genes.
    layer, obsm : str, optional
        The layer, or the entry of ``obsm``, to use instead of X.
    zero_center : bool, default True
        False computes a truncated singular value decomposition of the uncentred rows. `variance` then holds the
        variances of the scores, as in scanpy.
    return_info : bool, default False
        Only for arrays: return also components, ratios and variances.
    mask_var : bool array_like (n_genes,), str or None
        The genes to use: a mask, or the name of a boolean column of ``var``. The default is the column
        "highly_variable" if there is one. None uses all genes.
    dtype : dtype, default "float32"
        Floating-point dtype of the scores.
    key_added : str, optional
        Name of the results in ``obsm``, ``varm`` and ``uns``, instead of "X_pca", "PCs" and "pca".
    copy : bool, default False
        Return a changed copy of an AnnData object instead of changing it.
    output : str or path, optional
        Only for a path or source: an .h5ad file to which the result is written, completely or not at all. It must be
        another file.
    convert : bool, default False
        Whether a file that is stored by columns (CSC) is converted in temporary files, see ``open_rows``.
    **removed
        Arguments of scanpy that do not exist here. They raise a TypeError that says what replaces them.

    Returns
    -------
    AnnData, ndarray, tuple or None
        None for an AnnData object, unless copy=True. For a path or source a new AnnData with the names of cells and
        genes and the results, without X. For an array the scores (n_cells, n_comps); with return_info=True the tuple
        (scores, components, variance_ratio, variance). The results are

        - ``obsm["X_pca"]``, the scores;
        - ``varm["PCs"]``, the components (n_genes, n_comps), zero outside of the mask. With `obsm` they are in
          ``uns["pca"]["components"]``;
        - ``uns["pca"]`` with "params", "variance", "variance_ratio", and "variance_interval" (n_comps, 2): the i-th
          largest variance is guaranteed to lie between the numbers of row i. For sparse cells in memory with many
          genes the upper numbers assume that random starting directions miss no leading component (``SketchedPCA``).
          It is missing with zero_center=False.

        The largest entry of each component is positive, as in scikit-learn.

    Raises
    ------
    SourceError
        If the file cannot be read, is stored by columns, or changes while it is read.
    TypeError, ValueError
        If an argument or an entry of X is invalid. AnnData is then unchanged.

    Warns
    -----
    UserWarning
        If X looks like raw counts.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> import fastsketch.anndata as fa
    >>> adata = AnnData(np.random.default_rng(0).standard_normal((100, 20)) * np.arange(1, 21) ** -1.0)
    >>> fa.pca(adata, n_comps=2)
    >>> adata.obsm["X_pca"].shape, adata.varm["PCs"].shape, adata.uns["pca"]["variance"].round(2)
    ((100, 2), (20, 2), array([0.97, 0.26]))
    """
    for name in removed:
        raise TypeError(f"pca() has no argument {name!r}" + (f": {REMOVED[name]}" if name in REMOVED else ""))
    for value, name in ((zero_center, "zero_center"), (return_info, "return_info"), (copy, "copy")):
        as_flag(value, name)
    if layer is not None and obsm is not None:
        raise ValueError(f"layer={layer!r} and obsm={obsm!r} cannot both be used")
    is_file = isinstance(data, str | PathLike | Source)
    is_same = isinstance(data, str | PathLike) and output is not None and same_file(Path(data), Path(output))
    if output is not None and (is_same or not is_file):
        raise ValueError(f"output={str(output)!r} must be another file than that of data, and data a path or a source")
    if output is not None:
        output_target(output)  # refuses what cannot be written, before the rows are read
    if np.dtype(dtype).kind != "f":
        raise ValueError(f"dtype must be a floating-point dtype, got {dtype!r}")
    if key_added is not None and not isinstance(key_added, str):
        raise TypeError(f"key_added must be a string or None, got {key_added!r}")
    if isinstance(data, AnnData) and data.isbacked and copy:
        raise ValueError(
            "copy=True of a backed AnnData object needs memory or a file: adata.to_memory(), adata.copy(path)"
        )
    is_matrix = not is_file and not isinstance(data, AnnData)
    x: Any = ArraySource(data) if is_matrix else data.copy() if copy and isinstance(data, AnnData) else data
    rows = _select(x, layer=layer, obsm=obsm, mask_var=mask_var, convert=convert)
    found = _find(rows, n_comps, zero_center=zero_center, dtype=np.dtype(dtype))
    if is_matrix:
        return (found.scores, found.components, found.variance_ratio, found.variance) if return_info else found.scores
    out = _empty_result(rows) if is_file else x
    _write(out, found, rows, zero_center=zero_center, key_added=key_added)
    if output is not None:
        with replacing(output) as file, h5py.File(file, "w") as root:
            write_elem(root, "/", out)
    return out if copy or is_file else None


def _select(x: Any, *, layer: str | None, obsm: str | None, mask_var: Any, convert: bool) -> "Selection":
    """Open the rows of AnnData, apply the mask of genes, and return both as a Selection."""
    if isinstance(x, Source) and (layer is not None or obsm is not None):
        raise ValueError("layer and obsm are for AnnData and paths: open_rows takes the layer of a source")
    if obsm is not None and mask_var is not DEFAULT and mask_var is not None:
        raise ValueError("mask_var cannot be used with obsm, whose columns are not genes")
    key = f"layers/{layer}" if layer is not None else f"obsm/{obsm}" if obsm is not None else None
    source = matrix_of(x, key, convert=convert)
    operations = source.operations if isinstance(source, CellRows) else Operations()
    if mask_var is DEFAULT:
        is_masked = obsm is not None or operations.genes is not None
        mask_var = None if is_masked or column_of(x, source, "var", "highly_variable") is None else "highly_variable"
    is_name = isinstance(mask_var, str)
    params = {
        "use_highly_variable": is_name and mask_var == "highly_variable",
        "mask_var": mask_var if is_name or mask_var is None else np.asarray(mask_var),
    }
    params |= {name: value for name, value in (("layer", layer), ("obsm", obsm)) if value is not None}
    genes = np.arange(source.n_features) if operations.genes is None else operations.genes
    of_all = source.made_of if isinstance(source, CellRows) else source
    names = of_all.feature_names or tuple(map(str, range(of_all.n_features)))
    keep = None if mask_var is None else np.flatnonzero(as_mask(x, source, mask_var))
    if keep is not None:
        genes = genes[keep]
    elif operations.genes is not None:  # the mask of open_rows
        params["mask_var"] = np.isin(np.arange(len(names)), genes)
    return Selection(source, keep, params, names, genes)


def _find(rows: "Selection", n_comps: int | None, *, zero_center: bool, dtype: np.dtype[Any]) -> Components:
    """Compute the principal components of the selected rows and the rows' scores, and return them as Components."""
    source = rows.source
    if not zero_center and isinstance(source, CellRows):
        source = source.with_offset()
    if rows.keep is not None:
        source = picked(source, rows.keep.tolist())
    source = _Observed(source)
    source.feature_names = None  # they may not be unique
    n, d = source.n_rows or 0, source.n_features
    smallest = min(n, d)
    if n_comps is None and smallest < 2:
        raise ValueError(f"n_comps=None takes fewer components than cells and genes, of which there are {n} and {d}")
    k = as_integer(min(N_COMPS, smallest - 1) if n_comps is None else n_comps, "n_comps", 1)
    if k > smallest:
        raise ValueError(f"n_comps={k} must not exceed the smaller of {n} cells and {d} genes")
    found = _centred(source, k, dtype) if zero_center else _uncentred(source, k, dtype)
    if source.are_counts and "obsm" not in rows.params:
        warn_caller(
            "pca expects log-normalised values, and X holds whole numbers as counts do: open_rows(x, "
            "normalize='median', log1p=True) normalises them, layer= names another matrix"
        )
    return found


def _centred(source: Source, k: int, dtype: np.dtype[Any]) -> Components:
    is_exact = SketchedPCA(k)._template(source.n_rows, source.n_features, source.dtype).solver == "exact"
    rows = _in_memory(source)
    is_csr = is_sparse(rows) and rows.format == "csr"
    model = SketchedPCA(k)
    try:
        # The products of sparse rows are faster in memory than chunk by chunk.
        model = (
            SketchedPCA(k, solver="exact").fit(rows) if is_exact and is_csr else model.fit(source if is_exact else rows)
        )
    except ValueError:
        model.fit(source)  # its error names the cell
    scores = model._transform_source(source, dtype)
    interval = model.explained_variance_interval_
    return Components(scores, model.components_, model.explained_variance_, model.explained_variance_ratio_, interval)


def _in_memory(source: Source) -> Any:
    """Return the matrix in memory that a source reads without changes, for which more methods exist, or the source."""
    of = source
    while isinstance(of, _Observed | IndexedRows | Checked):
        of = of.made_of
    return of._rows if isinstance(of, ArraySource) else source


def _uncentred(source: Source, k: int, dtype: np.dtype[Any]) -> Components:
    """Return a truncated singular value decomposition as Components, with the variances of the scores."""
    model = SketchedPCA(k)
    like, model._wanted = model._template(source.n_rows, source.n_features, source.dtype), k
    sketch = FrequentDirections(like.sketch_size, method=like.method, solver=like.solver, dtype=like.dtype)
    sketch.update(source)
    if not sketch._is_exact():
        model._read_again(sketch, source, None, model._most_passes(source))
    vt = components_of(sketch, k).vt
    scores, first = np.empty((source.n_rows or 0, k), dtype), 0
    of_scores, of_genes = FeatureVariance(), FeatureVariance()
    for rows in source:
        part = np.asarray(rows @ vt.T)
        scores[first : first + len(part)] = part
        of_scores, of_genes, first = of_scores.after(part), of_genes.after(rows), first + len(part)
    variance = of_scores.value()
    total = of_genes.value().sum()
    return Components(scores, vt, variance, variance / total if total > 0 else np.zeros(k), None)


def _empty_result(rows: "Selection") -> AnnData:
    """Return an AnnData object with the names of cells and genes, and without X."""
    cells = rows.source._row_names()
    cells = np.arange(rows.source.n_rows or 0).astype(str) if cells is None else cells
    return AnnData(obs=pd.DataFrame(index=pd.Index(cells)), var=pd.DataFrame(index=pd.Index(rows.names)))


def _write(out: AnnData, found: Components, rows: "Selection", *, zero_center: bool, key_added: str | None) -> None:
    """Write the results into an AnnData object, with the names that scanpy uses."""
    key_obsm, key_varm, key_uns = ("X_pca", "PCs", "pca") if key_added is None else (key_added,) * 3
    about: dict[str, Any] = {"params": {"zero_center": zero_center, **rows.params}}
    about |= {"variance": found.variance, "variance_ratio": found.variance_ratio}
    if found.interval is not None:
        about["variance_interval"] = found.interval
    out.obsm[key_obsm] = found.scores
    if "obsm" in rows.params:
        about["components"] = found.components.T
    else:
        loadings = np.zeros((out.n_vars, len(found.components)), found.components.dtype)
        loadings[rows.genes] = found.components.T
        out.varm[key_varm] = loadings
    out.uns[key_uns] = about
