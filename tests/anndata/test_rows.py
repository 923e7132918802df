"""open_rows of AnnData against plain NumPy; its order of operations, identity, and what it refuses."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

import fastsketch as fs  # noqa: E402
import fastsketch.anndata as fa  # noqa: E402
from fastsketch.cli import main  # noqa: E402
from fastsketch.data import SourceError  # noqa: E402
from fastsketch.sklearn import SketchedPCA  # noqa: E402
from tests.anndata.cells import N_CELLS, N_GENES, counts  # noqa: E402


def cells(form="csr", dtype=np.float64, case="empty"):
    """Counts with a mask of genes."""
    values = counts(case)[0].astype(dtype)
    adata = anndata.AnnData(values if form == "dense" else sp.csr_array(values))
    adata.var_names = [f"gene{j}" for j in range(N_GENES)]
    adata.obs_names = [f"cell{i}" for i in range(N_CELLS)]
    adata.var["some"] = np.arange(N_GENES) % 3 > 0
    return adata


def whole(source):
    rows = np.vstack([part.toarray() if sp.issparse(part) else part for part in source])
    return rows if getattr(source, "offset", None) is None else rows + source.offset


def reference(values, *, target=None, log1p=False, mask=None, scale=False, max_value=None):
    """The operations in plain NumPy, in float64."""
    X = values.astype(float)
    totals = X.sum(axis=1)
    if target == "median":
        target = np.median(totals[totals > 0])
    if target is not None:
        X[totals > 0] *= target / totals[totals > 0, np.newaxis]
    if log1p:
        X = np.log1p(X)
    if mask is not None:
        X = X[:, mask]
    if scale:
        constant = np.ptp(X, axis=0) == 0
        X = (X - X.mean(axis=0)) / np.where(constant, 1, X.std(axis=0, ddof=1))
        X = X if max_value is None else np.clip(X, -max_value, max_value)
    return X


@pytest.mark.parametrize("form", ["csr", "dense"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("normalize", [None, 50, "median"])
@pytest.mark.parametrize("log1p", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_operations(form, dtype, normalize, log1p, scale):
    """A mask that is applied before the totals gives other rows."""
    adata, mask = cells(form, dtype), cells().var["some"].to_numpy()
    before = pickle.dumps(adata.X)
    arguments = {"normalize": normalize, "log1p": log1p, "scale": scale, "max_value": 1.5 if scale else None}
    source = fa.open_rows(adata, mask_var="some", **arguments)
    arguments["target"] = arguments.pop("normalize")
    values = counts("empty")[0]
    rows = whole(source)
    assert source.sparse == (form == "csr") and rows.dtype == (
        np.float64 if source.offset is not None else source.dtype
    )
    assert source.dtype == (np.float64 if dtype == np.float64 else np.float32)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(rows, reference(values, mask=mask, **arguments), rtol=tolerance, atol=tolerance)
    if normalize is not None:
        other = reference(values[:, mask], **arguments)
        assert np.abs(rows - other).max() > 0.01
    assert pickle.dumps(adata.X) == before
    assert source.feature_names == tuple(adata.var_names[mask])
    part = fa.open_rows(adata, mask_var=mask, normalize=normalize, log1p=log1p).between(30, 40)
    np.testing.assert_allclose(
        whole(part), reference(values, mask=mask, target=arguments["target"], log1p=log1p)[30:40], rtol=1e-5, atol=1e-5
    )


def test_rows_with_duplicate_entries():
    """They are summed before the logarithm, and the matrix is not changed."""
    X = sp.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 3))
    source = fs.open_rows(X)
    np.testing.assert_allclose(whole(fa.open_rows(source, log1p=True)), np.log1p([[0, 3, 0], [4, 0, 0]]))
    assert X.nnz == 3


def test_sums_of_integers_do_not_overflow():
    values = np.full((3, 200), 250, np.uint8)
    source = fa.open_rows(anndata.AnnData(values), normalize="median")
    np.testing.assert_allclose(whole(source), 250.0)  # totals are 50,000
    values = np.full((2, 8), 2**62, np.int64)
    np.testing.assert_allclose(whole(fa.open_rows(anndata.AnnData(values), normalize=8)), 1.0)


def test_readings(monkeypatch):
    """pca reads 2 times, the median once more, and scale once more."""
    adata, readings = cells(case="batches"), []
    source = fs.open_rows(adata)
    plain = type(source).read
    monkeypatch.setattr(type(source), "read", lambda self, start=0: readings.append(self) or plain(self, start))
    for arguments, expected in (({}, 2), ({"normalize": "median", "log1p": True, "scale": True}, 4)):
        readings.clear()
        fa.pca(fa.open_rows(source, **{"log1p": True, **arguments}), 5)
        assert len([one for one in readings if one is source]) == expected


def test_identity_names_the_operations():
    adata, mask = cells(), cells().var["some"].to_numpy()
    variants = [{}, {"normalize": 10}, {"normalize": "median"}, {"log1p": True}, {"mask_var": mask}]
    variants += [{"mask_var": ~mask}, {"scale": True}, {"scale": True, "max_value": 3}]
    found = [fa.open_rows(adata, **variant).identity() for variant in variants]
    assert all(one != other for k, one in enumerate(found) for other in found[:k])
    assert found[1] == fa.open_rows(cells(), normalize=10.0).identity()


# -- jobs --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def files(tmp_path, monkeypatch):
    """Three files with the same genes, the second in another order, of which jobs make small parts."""
    monkeypatch.setattr("fastsketch.jobs._run.PART_BYTES", 8_000)
    monkeypatch.setattr("fastsketch.jobs._run.STATES_OF_A_PART", 0)
    adata, rng = cells(case="batches"), np.random.default_rng(0)
    for k, part in enumerate((adata[:50], adata[50:80, rng.permutation(N_GENES)], adata[80:])):
        part.copy().write_h5ad(tmp_path / f"{k}.h5ad")
    return [tmp_path / f"{k}.h5ad" for k in range(3)]


def test_a_job_over_files_with_genes_in_another_order(files, tmp_path):
    adata = cells(case="batches")
    source = fa.open_rows(files, normalize=50, log1p=True, mask_var="some")
    X = reference(counts("batches")[0], target=50, log1p=True, mask=adata.var["some"].to_numpy())
    np.testing.assert_allclose(whole(source), X)
    estimator = SketchedPCA(5)
    found = fs.run(estimator, source, workers=2)
    np.testing.assert_allclose(found.explained_variance_, np.linalg.eigvalsh(np.cov(X.T))[::-1][:5])
    assert list(found.feature_names_in_) == list(adata.var_names[adata.var["some"]])
    alone = fs.run(estimator, source, workers=1)
    np.testing.assert_array_equal(alone.components_, found.components_)
    names = np.concatenate([anndata.read_h5ad(path).obs_names for path in files])
    assert list(fa.pca(source, 5).obs_names) == list(names)
    parts = [fs.run(SketchedPCA(5), fa.open_rows(path, log1p=True)) for path in files[::2]]
    both = fs.run(SketchedPCA(5), fa.open_rows(files[::2], log1p=True))
    np.testing.assert_allclose(parts[0].merge(parts[1]).components_, both.components_, atol=1e-8)


def test_the_command_matches_genes_by_name(files, tmp_path):
    output = tmp_path / "model.fsk"
    arguments = ["sketch", *map(str, files), "-o", str(output), "--sketch-size", "16", "--workers", "1"]
    assert main(arguments) == 0
    model, values = fs.load(output), counts("batches")[0].astype(float)
    assert model.feature_names == tuple(cells().var_names) and model.n_rows == N_CELLS
    np.testing.assert_allclose(model.squared_norm, (values**2).sum())
    spectrum = np.linalg.norm(values.T @ values - model.gram(), 2)
    assert spectrum <= model.error_bound * (1 + 1e-9)


class Stop(Exception):
    pass


def stop(report):
    if report["parts"] >= 3:
        raise Stop


def test_a_job_is_resumed_with_the_same_operations_only(files, tmp_path, monkeypatch):
    source = fa.open_rows(files, log1p=True)
    whole = fs.run(SketchedPCA(5), source, workers=1)
    arguments = {"checkpoint": tmp_path / "job", "workers": 1}
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr("fastsketch.jobs._progress.PAUSE", 0.0)
        fs.run(SketchedPCA(5), source, progress=stop, **arguments)
    with pytest.raises(ValueError, match="belongs to another job: target is 50.0 now and was none"):
        fs.run(SketchedPCA(5), fa.open_rows(files, normalize=50, log1p=True), resume=True, **arguments)
    resumed = fs.run(SketchedPCA(5), fa.open_rows(files, log1p=True), resume=True, **arguments)
    np.testing.assert_array_equal(whole.components_, resumed.components_)


def test_files_whose_genes_differ(files, tmp_path):
    adata = cells(case="batches")
    adata[:, 5:].copy().write_h5ad(tmp_path / "less.h5ad")
    with pytest.raises(SourceError, match=r"lacks 'gene0', 'gene1', 'gene2', 'gene3', 'gene4'$"):
        fs.run(SketchedPCA(5), [files[0], tmp_path / "less.h5ad"])
    adata.var_names = [f"gene{max(j, 1)}" for j in range(N_GENES)]
    with pytest.warns(UserWarning, match="not unique"):
        adata.write_h5ad(tmp_path / "twice.h5ad")
        adata[:, ::-1].copy().write_h5ad(tmp_path / "turned.h5ad")
    with pytest.raises(SourceError, match=r"'gene1' is there twice"):
        fa.open_rows([tmp_path / "twice.h5ad", tmp_path / "turned.h5ad"])


# -- bad input ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("form", ["csr", "dense"])
@pytest.mark.parametrize("arguments", [{"normalize": 10}, {"log1p": True}, {"normalize": "median"}])
def test_entries_that_are_no_counts(bad, form, arguments):
    adata = cells("dense")
    adata.X[44, 9] = bad
    adata.X = adata.X if form == "dense" else sp.csr_array(adata.X)
    with pytest.raises(ValueError, match="row 44(: .* finite and not negative, got (-1|inf)| holds a NaN)"):
        list(fa.open_rows(adata, **arguments))


def test_masks_that_are_refused(tmp_path):
    adata = cells()
    adata.var["kind"] = pd.Categorical(np.where(adata.var["some"], "a", "b"))
    adata.var["number"] = np.arange(N_GENES)
    adata.var["holes"] = pd.array([True, None] * (N_GENES // 2), dtype="boolean")
    path = tmp_path / "cells.h5ad"
    adata.write_h5ad(path)
    for x in (adata, path):
        for mask, match in (
            (np.zeros(N_GENES, bool), "mask_var is empty"),
            (np.ones(N_GENES - 1, bool), rf"one entry for each of {N_GENES} genes, got shape \({N_GENES - 1},\)"),
            ("kind", "mask_var='kind' must be boolean, .* got dtype category"),
            ("number", "mask_var='number' must be boolean, .* got dtype int64"),
            ("holes", "mask_var='holes' must be boolean, without missing values"),
            ("none", "mask_var='none': var has no column of that name"),
        ):
            with pytest.raises(ValueError, match=match):
                fa.open_rows(x, mask_var=mask)
    with pytest.raises(ValueError, match="same genes in another order"):
        fa.open_rows(adata, mask_var=adata.var["some"][::-1])
    assert fa.open_rows(adata, mask_var=adata.var["some"]).n_features == adata.var["some"].sum()
    assert fa.open_rows(adata, mask_var=adata.var["some"].astype("boolean")).n_features == adata.var["some"].sum()
    with pytest.raises(ValueError, match="var has no column"):
        fa.open_rows(fs.open_rows(np.ones((3, 4))), mask_var="some")


def test_refused_arguments():
    adata = cells()
    for error, match, arguments in (
        (ValueError, "max_value=3.0 needs scale=True", {"max_value": 3}),
        (ValueError, "max_value", {"max_value": 0, "scale": True}),
        (ValueError, "normalize", {"normalize": 0}),
        (TypeError, "'median'.* must be a real number, got 'mean'", {"normalize": "mean"}),
        (TypeError, "log1p", {"log1p": "yes"}),
        (SourceError, "no matrix 'layers/spliced'", {"layer": "spliced"}),
    ):
        with pytest.raises(error, match=match):
            fa.open_rows(adata, **arguments)
    with pytest.raises(ValueError, match="all operations in one call"):
        fa.open_rows(fa.open_rows(adata, normalize=10), log1p=True)
    adata.X = sp.csr_array((N_CELLS, N_GENES))
    with pytest.raises(ValueError, match="needs a cell with counts"):
        fa.open_rows(adata, normalize="median")


def test_refused_choices_of_genes():
    adata = cells()
    for error, match, arguments in (
        (ValueError, "flavor", {"flavor": "pearson"}),
        (ValueError, "n_top_genes", {"n_top_genes": 0}),
        (ValueError, "batch_key='none': obs has no column", {"batch_key": "none"}),
        (ImportError, r"pip install 'fastsketch\[loess\]'", {"flavor": "seurat_v3"}),
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(error, match=match):
            patch.setitem(__import__("sys").modules, "skmisc", None)
            fa.highly_variable_genes(adata, **arguments)
    with pytest.warns(UserWarning, match=r"expects log-normalised values.*flavor='seurat_v3'"):
        fa.highly_variable_genes(adata, n_top_genes=10)
    adata.obs["holes"] = pd.Categorical([None] + ["a"] * (N_CELLS - 1))
    with pytest.raises(ValueError, match="must name a batch for each"):
        fa.highly_variable_genes(adata, batch_key="holes")
    with pytest.raises(ValueError, match="has no cells"):
        fa.highly_variable_genes(adata[:0].copy())
    with pytest.raises(ValueError, match="has no cells"):
        fa.open_rows(adata[:0].copy(), scale=True)
    adata.X = adata.X * -1.0
    with pytest.raises(ValueError, match="finite and not negative"):
        fa.highly_variable_genes(adata, n_top_genes=10)


def test_a_backed_object_is_not_cut(tmp_path):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match=r"needs memory: adata\.to_memory\(\)"):
        fa.highly_variable_genes(backed, n_top_genes=10, subset=True)
    assert list(backed.var) == ["some"] and not backed.uns
    backed.file.close()


def test_genes_of_files_and_subsets(tmp_path):
    adata = cells(case="batches")
    adata.X = np.log1p(adata.X)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    table = fa.highly_variable_genes(tmp_path / "cells.h5ad", n_top_genes=20)
    assert list(table.index) == list(adata.var_names) and table["highly_variable"].sum() == 20
    lazy = fa.highly_variable_genes(fa.open_rows(cells(case="batches"), log1p=True), n_top_genes=20)
    pd.testing.assert_frame_equal(table, lazy)
    kept = fa.highly_variable_genes(adata, n_top_genes=20, inplace=False, subset=True)
    assert list(kept.index) == list(adata.var_names[table["highly_variable"]])
    fa.highly_variable_genes(adata, n_top_genes=20, subset=True)
    assert adata.shape == (N_CELLS, 20)
