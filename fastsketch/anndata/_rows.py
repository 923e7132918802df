"""``open_rows``: rows of AnnData as a source, normalised, logarithmised, masked and scaled while they are read."""

# anndata and pandas have incomplete types.
# pyright: basic

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import read_elem
from numpy.typing import ArrayLike, NDArray

from fastsketch import data
from fastsketch._core.validation import as_flag, as_real, is_sparse
from fastsketch.anndata._csc import convert as convert_csc
from fastsketch.covariance._moments import FeatureVariance
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources import Source
from fastsketch.data.sources._foreign import damaged
from fastsketch.data.sources._identity import of_rows
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._stored import StoredSource

Floats = NDArray[np.float64]
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Operations:
    """Operations on rows of cells, in the order in which they are applied: normalise, log1p, select, scale, clip."""

    target: float | None = None  # total of each cell after normalisation
    log1p: bool = False
    genes: NDArray[np.intp] | None = None  # (d,) positions of the genes that are kept
    mean: Floats | None = None  # (d,) of the kept genes, with scale=True
    deviation: Floats | None = None  # (d,) their sample standard deviations, 1 for constant genes
    max_value: float | None = None

    def described(self) -> dict[str, Any]:
        """Return the operations as a dict of JSON values, in which arrays are replaced by digests."""
        return {k: of_rows(v) if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def standardised(self, values: Any, mean: Floats, deviation: Floats) -> Any:
        """Return values of genes less `mean`, divided by `deviation`, and clipped at +-max_value."""
        out = (values - mean) / deviation
        return out if self.max_value is None else np.clip(out, -self.max_value, self.max_value, out=out)


class CellRows(Derived):
    """Source of rows of cells, to which operations such as normalisation are applied while they are read.

    Sparse rows stay sparse. A standardised sparse row is the constant row `offset`, the standardised row of zeros, plus
    a sparse row, and only the latter is read. The offset changes no covariance; `dense` adds it.
    """

    def __init__(self, source: Source, operations: Operations, *, dense: bool = False) -> None:
        super().__init__(source)
        self.operations, self._dense = operations, dense
        self.dtype = np.dtype(np.float64 if source.dtype in (np.float64, np.longdouble) else np.float32)
        self.sparse, self.complete = source.sparse and not dense, True  # the source refuses NaN
        genes = operations.genes
        if genes is not None:
            names = source.feature_names
            self.n_features = len(genes)
            self.feature_names = None if names is None else tuple(names[j] for j in genes)
        self.offset: Floats | None = None
        if source.sparse and operations.mean is not None and operations.deviation is not None:
            self.offset = operations.standardised(np.zeros(self.n_features), operations.mean, operations.deviation)

    def like(self, source: Source) -> "CellRows":
        """Return a source that applies the same operations to another source."""
        return CellRows(source, self.operations, dense=self._dense)

    def with_offset(self) -> "CellRows":
        """Return a source of the same rows that is dense if each row is a constant row plus a sparse one."""
        return self if self.offset is None else CellRows(self._of, self.operations, dense=True)

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the original rows and the operations."""
        return {**self._of.identity(), "operations": self.operations.described()}

    def made(self, rows: Any, first: int) -> Any:
        """Return a chunk of rows after the operations; `first` is the number of its first row."""
        do, dtype = self.operations, self.dtype
        if do.target is not None or do.log1p:
            check_counts(rows, self, first)
        sparse = is_sparse(rows)
        rows = canonical(rows) if sparse else rows
        values = (rows.data if sparse else rows).astype(dtype)
        if do.target is not None:
            totals = totals_of(rows)
            factor = np.divide(do.target, totals, out=np.ones_like(totals), where=totals > 0)  # 1 for empty cells
            values *= (np.repeat(factor, np.diff(rows.indptr)) if sparse else factor[:, np.newaxis]).astype(dtype)
        if do.log1p:
            np.log1p(values, out=values)
        out: Any = with_values(rows, values) if sparse else values
        if do.genes is not None:  # after the totals, which are those of all genes
            out = out[:, do.genes] if is_sparse(out) else np.take(out, do.genes, axis=1)
        if do.mean is not None and do.deviation is not None:
            out = self._standardised(out, do.mean, do.deviation)
        return out

    def _standardised(self, rows: Any, mean: Floats, deviation: Floats) -> Any:
        if self.offset is None:
            return self.operations.standardised(rows, mean, deviation).astype(self.dtype)
        column = rows.indices
        moved = self.operations.standardised(rows.data, mean[column], deviation[column]) - self.offset[column]
        out = with_values(rows, moved.astype(self.dtype))
        return (out.toarray() + self.offset).astype(self.dtype) if self._dense else out


def open_rows(
    x: "AnnData | Source | str | PathLike[str] | Sequence[str | PathLike[str]]",
    *,
    layer: str | None = None,
    mask_var: "ArrayLike | str | None" = None,
    normalize: 'float | Literal["median"] | None' = None,
    log1p: bool = False,
    scale: bool = False,
    max_value: float | None = None,
    convert: bool = False,
) -> Source:
    """Open rows of AnnData as a source that normalises, logarithmises, masks and scales them while they are read.

    The operations are those of scanpy's ``normalize_total``, ``log1p`` and ``scale``, in this order: totals over all
    genes, scaling to the target, log1p, the mask, standardisation. Sparse rows stay sparse.

    Parameters
    ----------
    x : AnnData, path of an .h5ad or .zarr file, list of paths, or source
        Files with the same genes in another order are matched by name to the first file.
    layer : str, optional
        A layer to read instead of X.
    mask_var : bool array_like (n_genes,) or str, optional
        The genes to keep, or the name of a boolean column of ``var``.
    normalize : float or "median", optional
        Total of each cell after scaling; "median" is the median total of the cells that have counts. Cells without
        counts are unchanged.
    log1p : bool, default False
        Whether to take log(1 + x).
    scale : bool, default False
        Whether to subtract the mean of each gene and divide by its sample standard deviation. Constant genes are
        divided by 1. For sparse rows the source yields x minus the standardised zero row, see Notes.
    max_value : float, optional
        With scale=True, clip the standardised values to [-max_value, max_value].
    convert : bool, default False
        Whether a file whose matrix is stored by columns (CSC) is converted to CSR in temporary files, which take as
        many bytes as the matrix. By default this is an error.

    Returns
    -------
    source : fastsketch.data.Source
        float64 rows if the data are float64, otherwise float32. Its identity contains the operations, so that a job
        cannot be resumed with other ones.

    Raises
    ------
    SourceError
        If x cannot be read.
    TypeError, ValueError
        If an argument is invalid, or the mask is empty or of another length. While rows are read, for a negative or
        missing entry if `normalize` or `log1p` is set.

    Notes
    -----
    The median total takes one reading of the rows in addition, and the means and deviations of scale=True another one.

    A standardised sparse row is a constant row plus a sparse row. The source yields the sparse row. Covariances,
    components, and centred scores are the same, but the mean differs by the constant row.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> import fastsketch.anndata as fa
    >>> adata = AnnData(np.array([[1.0, 3.0], [0.0, 0.0], [2.0, 0.0]]))
    >>> next(iter(fa.open_rows(adata, normalize=8)))
    array([[2., 6.],
           [0., 0.],
           [8., 0.]])
    """
    for value, name in ((log1p, "log1p"), (scale, "scale"), (convert, "convert")):
        as_flag(value, name)
    if max_value is not None:
        max_value = as_real(max_value, "max_value", 0.0, LARGEST, low_open=True)
        if not scale:
            raise ValueError(f"max_value={max_value} needs scale=True: it clips standardised values")
    source = matrix_of(x, f"layers/{layer}" if layer is not None else None, convert=convert)
    if isinstance(source, CellRows):
        raise ValueError("x is a source of anndata.open_rows already: give all operations in one call")
    genes = None if mask_var is None else np.flatnonzero(as_mask(x, source, mask_var))
    target = None
    if normalize == "median" and isinstance(normalize, str):
        totals = np.concatenate([np.zeros(0), *map(totals_of, source)])  # entries are checked when they are used
        if not (totals > 0).any():
            raise ValueError("normalize='median' needs a cell with counts: all totals are 0")
        target = float(np.median(totals[totals > 0]))
    elif normalize is not None:
        target = as_real(normalize, "normalize (or 'median')", 0.0, LARGEST, low_open=True)
    operations = Operations(target=target, log1p=log1p, genes=genes, max_value=max_value)
    if scale:
        moments = FeatureVariance()
        for rows in CellRows(source, operations):
            moments = moments.after(rows)
        operations = replace(operations, mean=moments.mean(), deviation=deviations(moments))
    return CellRows(source, operations)


def matrix_of(x: Any, key: str | None, *, convert: bool = False) -> Source:
    """Open the matrix `key` of AnnData (X if None) as a source. Raise SourceError if it cannot be read by rows."""
    if not convert or isinstance(x, Source):
        return _with_cells(data.open_rows(x, key=key))
    if isinstance(x, AnnData) and x.isbacked and not x.is_view:
        x = x.filename
    if not isinstance(x, str | PathLike):
        raise ValueError("convert=True needs the path of one file, or an AnnData object that is backed by one")
    try:
        return _with_cells(data.open_rows(x, key=key))
    except SourceError as error:
        if "(CSC)" not in str(error):
            raise
        return convert_csc(Path(x), key)


def _with_cells(source: Source) -> Source:
    """Return the source; ValueError if it has no row, or an unknown number of them."""
    if source.n_rows is None:
        raise ValueError(f"{source.name}: the number of cells must be known: save the rows as .npy, .npz or .h5ad")
    if source.n_rows == 0:
        raise ValueError(f"{source.name} has no cells")
    return source


def column_of(x: Any, source: Source, axis: Literal["obs", "var"], name: str) -> Any:
    """Return the column called `name` of the data frame ``obs`` or ``var``; None if there is none.

    The data frame is that of x, or of the file from which the source reads, the first if there are several.
    """
    if isinstance(x, AnnData):
        table = getattr(x, axis)
        return table.get(name)
    below: Any = source
    while not isinstance(below, StoredSource):
        deeper = [getattr(below, name) for name in ("stored", "made_of", "sources") if hasattr(below, name)]
        if not deeper:
            return None
        below = deeper[0][0] if isinstance(deeper[0], list) else deeper[0]
    with damaged(below.path, below.what, below.check_unchanged), below.opened() as root:
        item = below.find(root, f"{axis}/{name}")
        return None if item is None else read_elem(item)


def as_mask(x: Any, source: Source, mask_var: Any) -> NDArray[np.bool_]:
    """Return a mask of genes, given as an array or as the name of a column, as a boolean array.

    ValueError if it is not boolean, has another length, or is empty.
    """
    what = "mask_var"
    if isinstance(mask_var, str):
        what, name = f"mask_var={mask_var!r}", mask_var
        mask_var = column_of(x, source, "var", name)
        if mask_var is None:
            raise ValueError(f"{what}: var has no column of that name")
    index, names = getattr(mask_var, "index", None), source.feature_names
    if isinstance(index, pd.Index) and names is not None and set(index) == set(names) and tuple(index) != names:
        raise ValueError(f"{what} is indexed by the same genes in another order: take mask_var.loc[var_names]")
    mask = np.asarray(mask_var)
    if mask.dtype == object and all(isinstance(value, bool | np.bool_) for value in mask.ravel()):
        mask = mask.astype(bool)
    if mask.dtype != bool:
        kind = getattr(mask_var, "dtype", mask.dtype)
        raise ValueError(f"{what} must be boolean, without missing values, got dtype {kind}: compare it with a value")
    n = source.n_features
    if mask.shape != (n,):
        raise ValueError(f"{what} must have one entry for each of {n} genes, got shape {mask.shape}")
    if not mask.any():
        raise ValueError(f"{what} is empty: it must keep at least one gene")
    return mask


# -- chunks of rows ----------------------------------------------------------------------------------------------------
def canonical(rows: Any) -> Any:
    """Return CSR rows with sorted indices and without duplicate entries; the argument is not changed."""
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def with_values(rows: Any, values: Any) -> Any:
    """Return CSR rows with the same structure and other values."""
    return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape)


def totals_of(rows: Any) -> Floats:
    """Return the sum of each row in float64, in which sums of integers cannot overflow."""
    return np.asarray(rows.sum(axis=1, dtype=np.float64)).ravel()


def check_counts(rows: Any, source: Source, first: int, needs: str = "normalize and log1p need counts,") -> None:
    """Raise ValueError if an entry is negative, missing or infinite."""
    values = rows.data if is_sparse(rows) else rows
    if values.size and not (values.min() >= 0 and values.max() < np.inf):
        bad = ~((values >= 0) & (values < np.inf))
        row = int(np.searchsorted(rows.indptr, np.argmax(bad), side="right")) - 1 if is_sparse(rows) else None
        row = int(np.argmax(bad.any(axis=1))) if row is None else row
        raise ValueError(f"{source.where(first + row)}: {needs} finite and not negative, got {values[bad][0]}")


def deviations(moments: FeatureVariance) -> Floats:
    """Return the sample standard deviations of the genes, 1 for those whose variance is 0 up to rounding."""
    variance = moments.value()
    return np.sqrt(np.where(variance > rounding_of(moments), sample_variance(moments), 1.0))


def sample_variance(moments: FeatureVariance) -> Floats:
    """Return the variances of the genes with the divisor n - 1."""
    return moments.value() * (moments.weight / max(1.0, moments.weight - 1.0))


def rounding_of(moments: FeatureVariance) -> Floats:
    """Return a bound on the rounding error of the genes' variances.

    That of a sum of n squares is at most n eps times the sum (Higham, Accuracy and Stability of Numerical Algorithms,
    2002, eq. 4.4).
    """
    return moments.weight * np.finfo(np.float64).eps * (moments.value() + moments.mean() ** 2)


def are_counts(rows: Any) -> bool:
    """Return True if rows look like raw counts: whole numbers that are not negative, and not all 0 or 1."""
    values = rows.data if is_sparse(rows) else np.asarray(rows)
    return bool(values.size and values.max() > 1 and values.min() >= 0 and (values == np.trunc(values)).all())
