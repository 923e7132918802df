"""``highly_variable_genes``: gene selection with the interface and the flavors of scanpy."""

# anndata and pandas have incomplete types.
# pyright: basic

from collections.abc import Iterator
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.special import ndtri

from fastsketch._core.validation import as_choice, as_flag, as_integer, as_real, is_sparse
from fastsketch._core.warning import warn_caller
from fastsketch.anndata import _rows
from fastsketch.covariance._moments import FeatureVariance
from fastsketch.data.sources import Source
from fastsketch.data.sources._foreign import needs

Floats = NDArray[np.float64]
# Genes whose scores differ from that at the cut by at most this share of it are listed as ties.
TIE = 1e-9
# Without n_top_genes "seurat_v3" selects 2,000 genes, as Seurat does. A mean of 0 becomes TINY_MEAN, as in scanpy.
N_TOP_GENES, TINY_MEAN = 2000, 1e-12


class Settings(NamedTuple):
    """Settings of a gene selection by dispersion: flavor, number of bins, number of genes, and bounds."""

    flavor: str
    n_bins: int
    n_top_genes: int | None
    bounds: tuple[float, float, float, float]  # smallest and largest mean, smallest and largest dispersion

    def hold(self, means: Floats, dispersions: Floats) -> NDArray[np.bool_]:
        """Return a mask of the genes whose mean and dispersion lie between the bounds; missing dispersions are 0."""
        low, high, low_dispersion, high_dispersion = self.bounds
        score = np.nan_to_num(dispersions)
        return (means > low) & (means < high) & (score > low_dispersion) & (score < high_dispersion)


def highly_variable_genes(
    adata: "AnnData | Source | str | PathLike[str]",
    *,
    layer: str | None = None,
    n_top_genes: int | None = None,
    min_disp: float = 0.5,
    max_disp: float = float("inf"),
    min_mean: float = 0.0125,
    max_mean: float = 3,
    span: float = 0.3,
    n_bins: int = 20,
    flavor: Literal["seurat", "cell_ranger", "seurat_v3"] = "seurat",
    subset: bool = False,
    inplace: bool = True,
    batch_key: str | None = None,
    check_values: bool = True,
) -> Any:
    """Select highly variable genes, as ``scanpy.pp.highly_variable_genes`` does, from memory or from disk.

    The rows are read once, or twice for "seurat_v3", and are not made dense.

    Parameters
    ----------
    adata : AnnData, path of an .h5ad or .zarr file, or source
        Log-normalised values for "seurat" and "cell_ranger", counts for "seurat_v3". ``open_rows`` makes a source that
        normalises counts.
    layer : str, optional
        The layer to use instead of X.
    n_top_genes : int, optional
        Number of genes to select. The cutoffs are then ignored. Without it "seurat_v3" selects 2,000.
    min_disp, max_disp, min_mean, max_mean : float
        Cutoffs of the normalised dispersions and the means, both excluded. "seurat_v3" has none.
    span : float, default 0.3
        Share of the genes in each local regression of "seurat_v3".
    n_bins : int, default 20
        Number of bins of means within which "seurat" normalises dispersions.
    flavor : {"seurat", "cell_ranger", "seurat_v3"}, default "seurat"
        The method. "seurat_v3" needs the package scikit-misc (the extra "loess").
    subset : bool, default False
        Keep only the selected genes.
    inplace : bool, default True
        Write the columns to ``var``, and the flavor to ``uns["hvg"]``. For a path or source the table is returned.
    batch_key : str, optional
        Column of ``obs`` with batches. Genes are selected in each, and ranked by the number of batches.
    check_values : bool, default True
        Whether to warn if the values look like counts where logarithms are expected, or the reverse.

    Returns
    -------
    DataFrame or None
        For each gene "highly_variable", "means", and "dispersions" and "dispersions_norm", or for "seurat_v3"
        "variances", "variances_norm" and "highly_variable_rank". With batches also "highly_variable_nbatches", and
        "highly_variable_intersection" unless the flavor is "seurat_v3".

        ``uns["hvg"]["ties"]``, or ``attrs["ties"]`` of the table, lists the genes whose score equals that at the cut up
        to 1e-9 of it, if there are several: which of them is selected depends on rounding or on their order.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, or an entry is negative or missing.
    ImportError
        If "seurat_v3" is requested without scikit-misc.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> import fastsketch.anndata as fa
    >>> rng = np.random.default_rng(0)
    >>> adata = AnnData(np.log1p(rng.poisson(2, (50, 30)) * np.where(np.arange(30) < 5, 4.0, 1.0)))
    >>> fa.highly_variable_genes(adata, n_top_genes=5)
    >>> int(adata.var["highly_variable"].sum()), adata.uns["hvg"]["flavor"]
    (5, 'seurat')
    """
    as_choice(flavor, "flavor", ("seurat", "cell_ranger", "seurat_v3"))
    for name, value in (("subset", subset), ("inplace", inplace), ("check_values", check_values)):
        as_flag(value, name)
    bounds = (float(min_mean), float(max_mean), float(min_disp), float(max_disp))
    as_integer(1 if n_top_genes is None else n_top_genes, "n_top_genes", 1)
    if subset and inplace and isinstance(adata, AnnData) and adata.isbacked:
        raise ValueError("subset=True of a backed AnnData object needs memory: adata.to_memory()")
    source = _rows.matrix_of(adata, None if layer is None else f"layers/{layer}")
    names = np.array(source.feature_names or tuple(map(str, range(source.n_features))), dtype=object)
    batches = None if batch_key is None else _batches(adata, source, batch_key)
    if flavor == "seurat_v3":
        span = as_real(span, "span", 0.0, 1.0, low_open=True)
        table, ties = _by_regression(source, batches, n_top_genes or N_TOP_GENES, span, check_values)
    else:
        settings = Settings(flavor, as_integer(n_bins, "n_bins", 1), n_top_genes, bounds)
        base = adata.uns.get("log1p", {}).get("base") if isinstance(adata, AnnData) else None
        table, ties = _by_dispersion(source, batches, settings, base, names, check_values)
    if not isinstance(adata, AnnData) or not inplace:
        table.index = pd.Index(names)
        table.attrs["ties"] = names[ties].tolist()
        return table.loc[table["highly_variable"]] if subset else table
    for column in table:
        values = table[column].to_numpy()
        adata.var[column] = values.astype(np.float32) if column == "dispersions_norm" else values
    adata.uns["hvg"] = {"flavor": flavor, "ties": names[ties]}
    if subset:
        adata._inplace_subset_var(table["highly_variable"].to_numpy())
    return None


def _batches(x: Any, source: Source, batch_key: str) -> NDArray[np.intp]:
    """Return the number of the batch of each cell, (n_cells,)."""
    if (column := _rows.column_of(x, source, "obs", batch_key)) is None:
        raise ValueError(f"batch_key={batch_key!r}: obs has no column of that name")
    codes = np.asarray(pd.Categorical(column).remove_unused_categories().codes, np.intp)
    if codes.shape != (source.n_rows,) or (codes < 0).any():
        raise ValueError(f"batch_key={batch_key!r} must name a batch for each of {source.n_rows} cells, none missing")
    return codes


def _parts(source: Source, batches: NDArray[np.intp] | None) -> Iterator[tuple[int, Any, Any]]:
    """Yield (batch number, its rows, their values) for each chunk of rows and each batch of cells in it.

    The values are the stored entries of CSR rows. ValueError for an invalid entry.
    """
    first = 0
    for chunk in source:
        _rows.check_counts(chunk, source, first, "highly_variable_genes needs values that are")
        rows = _rows.canonical(chunk) if is_sparse(chunk) else chunk
        codes = np.zeros(rows.shape[0], np.intp) if batches is None else batches[first : first + rows.shape[0]]
        for batch in np.unique(codes):
            part = rows[codes == batch]
            yield int(batch), part, part.data if is_sparse(part) else part
        first += rows.shape[0]


def _ties(score: Floats, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the positions of the genes whose score is that of the lowest selected gene, if there are several."""
    cut = np.nanmin(score[chosen]) if (chosen & ~np.isnan(score)).any() else np.nan
    same = np.flatnonzero(np.abs(score - cut) <= TIE * np.abs(cut))
    return same if len(same) > 1 else same[:0]


# -- "seurat" and "cell_ranger": dispersions ---------------------------------------------------------------------------
def _by_dispersion(
    source: Source, batches: Any, settings: Settings, base: float | None, names: NDArray[Any], check_values: bool
) -> tuple[pd.DataFrame, NDArray[np.intp]]:
    """Select genes by dispersion relative to genes of similar mean; return (table, positions of tied genes).
    Dispersion is variance / mean.

    `base` is that of the logarithms, None for e. Return the table and the positions of tied genes.
    """
    count, d, may_be_counts = 1 if batches is None else int(batches.max(initial=0)) + 1, source.n_features, check_values
    moments, expressed = [FeatureVariance() for _ in range(count)], np.full((count, d), batches is None)
    for batch, rows, values in _parts(source, batches):
        may_be_counts = may_be_counts and _rows.are_counts(rows)
        expressed[batch, rows.indices[values > 0] if is_sparse(rows) else (values > 0).any(axis=0)] = True
        if settings.flavor == "seurat":
            values = np.expm1(values * np.result_type(values, np.float32).type(1.0 if base is None else np.log(base)))
        moments[batch] = moments[batch].after(_rows.with_values(rows, values) if is_sparse(rows) else values)
    if may_be_counts:
        warn_caller(
            f"flavor={settings.flavor!r} expects log-normalised values, and X holds whole numbers as counts do: take "
            "flavor='seurat_v3', or a source of open_rows(x, normalize='median', log1p=True)"
        )
    found = np.zeros((4, count, d))  # means, dispersions, normalised dispersions, and whether a gene is selected
    for batch in range(count):
        found[:, batch, expressed[batch]] = _normalised(moments[batch], expressed[batch], settings)
    chosen, ties = found[3, 0] > 0, np.zeros(0, np.intp)
    if settings.n_top_genes is not None:
        ties = np.unique(np.concatenate([_ties(*pair) for pair in zip(found[2], found[3] > 0, strict=True)]))
    # means over batches skip NaN
    means, dispersions, score = (
        found[:3, 0] if batches is None else np.array([pd.DataFrame(x).mean() for x in found[:3]])
    )
    n_selected = found[3].sum(axis=0).astype(int)
    if batches is not None and settings.n_top_genes is None:
        score = np.nan_to_num(score)
        chosen = settings.hold(means, score)
    elif batches is not None:  # equal genes are ordered by name, as in scanpy
        by_name = np.argsort(np.argsort(names))
        order = np.lexsort((by_name, -np.nan_to_num(score, nan=-np.inf), -n_selected))[: settings.n_top_genes]
        chosen = np.isin(np.arange(d), order)
        ties = np.union1d(ties, _ties(np.where(n_selected == n_selected[order[-1]], score, np.nan), chosen))
    columns = {"highly_variable": chosen, "means": means, "dispersions": dispersions, "dispersions_norm": score}
    if batches is not None:
        columns |= {"highly_variable_nbatches": n_selected, "highly_variable_intersection": n_selected == count}
    return pd.DataFrame(columns), ties


def _normalised(moments: FeatureVariance, expressed: NDArray[np.bool_], settings: Settings) -> Floats:
    """Return four rows (4, g) for the g expressed genes of a batch: means, dispersions, scores, selection.
    The scores are normalised dispersions.
    """
    if not expressed.any():
        return np.zeros((4, 0))
    mean, variance = moments.mean()[expressed], _rows.sample_variance(moments)[expressed]
    mean = np.where(mean == 0, TINY_MEAN, mean)
    dispersion, bins = variance / mean, settings.n_bins
    if settings.flavor == "seurat":
        dispersion, mean = np.log(np.where(dispersion == 0, np.nan, dispersion)), np.log1p(mean)
    else:
        bins = np.r_[-np.inf, np.percentile(mean, np.arange(10, 105, 5)), np.inf]
    groups = pd.Series(dispersion).groupby(pd.cut(mean, bins), observed=True)
    if settings.flavor == "seurat":
        centre, spread = groups.transform("mean"), groups.transform("std")
        alone = spread.isna()  # a gene that is alone in its bin gets the normalised dispersion 1
        centre, spread = centre.where(~alone, 0.0), spread.where(~alone, centre)
    else:  # the spread is the median absolute deviation, divided by that of a standard normal variable
        centre = groups.transform("median")
        spread = groups.transform(lambda some: (some - some.median()).abs().median() / ndtri(0.75))
    score = np.asarray((dispersion - centre) / spread, float)
    if settings.n_top_genes is None:
        chosen = settings.hold(mean, score)
    else:
        known = np.sort(score[~np.isnan(score)])[::-1]
        if settings.n_top_genes > len(known):
            warn_caller(f"n_top_genes={settings.n_top_genes} exceeds the {len(known)} genes that have a dispersion")
        chosen = score >= known[min(settings.n_top_genes, len(known)) - 1 :][:1].max(initial=-np.inf)
    return np.array([mean, dispersion, score, chosen], float)


# -- "seurat_v3": variances of clipped, standardised counts ------------------------------------------------------------
def _by_regression(
    source: Source, batches: Any, n_top: int, span: float, check_values: bool
) -> tuple[pd.DataFrame, NDArray[np.intp]]:
    """Select genes by variance relative to a regression on the mean; return (table, positions of tied genes).
    The regression is of log variances on log means.

    Stuart et al., Comprehensive Integration of Single-Cell Data, Cell 177 (2019).
    """
    loess = needs("skmisc", "genes by flavor='seurat_v3'", "skmisc.loess").loess
    count, d, whole = 1 if batches is None else int(batches.max(initial=0)) + 1, source.n_features, True
    moments = [FeatureVariance() for _ in range(count)]
    for batch, rows, values in _parts(source, batches):
        whole = whole and bool((values == np.trunc(values)).all())
        moments[batch] = moments[batch].after(rows)
    if check_values and not whole:
        warn_caller("flavor='seurat_v3' expects counts, and X holds fractions: name the counts in layer")
    fitted = np.zeros((count, d))
    for batch, one in enumerate(moments):
        varies = one.value() > _rows.rounding_of(one)
        if varies.any():
            variance = _rows.sample_variance(one)
            model = loess(np.log10(one.mean()[varies]), np.log10(variance[varies]), span=span, degree=2)
            model.fit()
            fitted[batch, varies] = model.outputs.fitted_values
    deviation, n = np.sqrt(10.0**fitted), np.array([[one.weight] for one in moments])
    mean, sums = np.array([one.mean() for one in moments]), np.zeros((2, count, d))
    largest = deviation * np.sqrt(n) + mean
    for batch, rows, values in _parts(source, batches):
        clipped = np.minimum(values, largest[batch, rows.indices] if is_sparse(rows) else largest[batch])
        for power in (0, 1):
            terms = clipped ** (power + 1)
            summed = np.bincount(rows.indices, terms, minlength=d) if is_sparse(rows) else terms.sum(axis=0)
            sums[power, batch] += summed
    score = (n * mean**2 + sums[1] - 2 * sums[0] * mean) / (np.maximum(1.0, n - 1) * deviation**2)
    # genes are ranked by the median of their ranks in the batches in which they are among the first
    places = np.argsort(np.argsort(-score, axis=1, kind="stable"), axis=1)
    n_selected = (places < n_top).sum(axis=0)
    rank = np.asarray(pd.DataFrame(np.where(places < n_top, places, np.nan)).median(), float)
    order = np.lexsort((-n_selected, np.nan_to_num(rank, nan=np.inf)))[:n_top]
    chosen, last = np.isin(np.arange(d), order), order[-1]
    ties = np.concatenate([_ties(*pair) for pair in zip(score, places < n_top, strict=True)])
    equal = (rank == rank[last]) & (n_selected == n_selected[last])
    ties = np.union1d(ties, np.flatnonzero(equal)) if equal.sum() > 1 and batches is not None else np.unique(ties)
    overall = moments[0]
    for one in moments[1:]:
        overall = overall.merged(one)
    columns = {"highly_variable": chosen, "highly_variable_rank": rank, "means": overall.mean()}
    columns |= {"variances": _rows.sample_variance(overall), "variances_norm": score.mean(axis=0)}
    return pd.DataFrame(columns if batches is None else {**columns, "highly_variable_nbatches": n_selected}), ties
