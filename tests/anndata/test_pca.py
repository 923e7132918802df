"""pca of AnnData: where the rows are, what is written, and what is refused."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

import fastsketch as fs  # noqa: E402
import fastsketch.anndata as fa  # noqa: E402
from fastsketch.anndata import _pca  # noqa: E402
from fastsketch.data import SourceError  # noqa: E402
from fastsketch.sklearn import SketchedPCA  # noqa: E402
from tests.anndata.cells import N_CELLS, N_GENES, counts  # noqa: E402


def logs(form="csr", dtype=np.float64):
    """Log-normalised cells with a mask of genes and a layer."""
    values = np.log1p(counts("batches")[0] * 1.5).astype(dtype)
    rows = values if form == "dense" else sp.csr_array(values).asformat(form)
    adata = anndata.AnnData(rows)
    adata.obs_names, adata.var_names = [f"cell{i}" for i in range(N_CELLS)], [f"gene{j}" for j in range(N_GENES)]
    adata.var["some"] = np.arange(N_GENES) % 3 > 0
    return adata


def exact(X, k=5):
    X = np.asarray(X.toarray() if sp.issparse(X) else X, float)
    u, s, vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    signs = np.sign(vt[np.arange(k), np.abs(vt[:k]).argmax(axis=1)])
    return s[:k] ** 2 / (len(X) - 1), vt[:k] * signs[:, np.newaxis], (u * s)[:, :k] * signs


def check(adata, X, key=("X_pca", "PCs", "pca")):
    variance, vt, scores = exact(X)
    np.testing.assert_allclose(adata.uns[key[2]]["variance"], variance, rtol=1e-6)
    np.testing.assert_allclose(adata.varm[key[1]], vt.T, atol=1e-5)
    np.testing.assert_allclose(adata.obsm[key[0]], scores, atol=1e-4)


def stored(folder, kind, form="csr", dtype=np.float64):
    """The path of a file."""
    adata = logs(form, dtype)
    path = folder / f"cells.{'h5ad' if kind == 'h5ad' else 'zarr'}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "h5ad":
            adata.write_h5ad(path)
        else:
            with anndata.settings.override(zarr_write_format=3 if kind == "zarr3" else 2):
                adata.write_zarr(path)
    return path


@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_in_memory(form, dtype):
    adata = logs(form, dtype)
    assert fa.pca(adata, 5) is None
    check(adata, adata.X)
    assert adata.obsm["X_pca"].dtype == np.float32
    assert adata.uns["pca"]["params"] == {"zero_center": True, "use_highly_variable": False, "mask_var": None}
    assert adata.uns["pca"]["variance_interval"].shape == (5, 2)
    view = adata[20:90, 10:200]
    out = fa.pca(view, 5, copy=True, key_added="again")
    check(out, view.X, ("again",) * 3)
    assert "again" not in adata.obsm and "X_pca" in out.obsm


def test_mask():
    adata = logs()
    adata.var["highly_variable"] = adata.var["some"]
    fa.pca(adata, 5)
    mask = adata.var["some"].to_numpy()
    check(adata[:, mask], adata.X[:, mask])
    assert (adata.varm["PCs"][~mask] == 0).all()
    assert adata.uns["pca"]["params"]["mask_var"] == "highly_variable"
    other = logs()
    fa.pca(other, 5, mask_var=mask)
    np.testing.assert_array_equal(other.varm["PCs"], adata.varm["PCs"])
    fa.pca(adata, 5, mask_var=None)
    check(adata, adata.X)


def test_layer_obsm_and_defaults():
    adata = logs()
    adata.layers["twice"] = adata.X * 2
    fa.pca(adata, layer="twice")
    assert adata.obsm["X_pca"].shape == (N_CELLS, 50) and adata.uns["pca"]["params"]["layer"] == "twice"
    fa.pca(adata, 5, obsm="X_pca", key_added="second")
    assert adata.uns["second"]["components"].shape == (50, 5) and "second" not in adata.varm
    few = adata[:20].copy()
    fa.pca(few)
    assert few.obsm["X_pca"].shape == (20, 19)


def test_arrays():
    adata = logs("dense")
    variance, vt, scores = exact(adata.X)
    np.testing.assert_allclose(fa.pca(adata.X, 5), scores, atol=1e-4)
    found = fa.pca(sp.csr_array(adata.X), 5, return_info=True, dtype="float64")
    assert found[0].dtype == np.float64
    for ours, theirs in zip(found, (scores, vt, variance / adata.X.var(axis=0, ddof=1).sum(), variance), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("kind", ["h5ad", "zarr2", "zarr3"])
@pytest.mark.parametrize("form", ["csr", "dense"])
def test_of_paths(kind, form, tmp_path):
    path = stored(tmp_path, kind, form)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    found = fa.pca(path, 5, mask_var="some")
    assert before == {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    adata = logs(form)
    mask = adata.var["some"].to_numpy()
    assert found.X is None and list(found.obs_names) == list(adata.obs_names)
    assert list(found.var_names) == list(adata.var_names)
    check(found[:, mask], adata.X[:, mask])
    output = tmp_path / "found.h5ad"
    fa.pca(str(path), 5, output=output)
    check(anndata.read_h5ad(output), adata.X)


def test_backed(tmp_path):
    path = stored(tmp_path, "h5ad")
    adata = anndata.read_h5ad(path, backed="r")
    with pytest.raises(ValueError, match=r"copy=True .* needs memory or a file"):
        fa.pca(adata, 5, copy=True)
    fa.pca(adata, 5)
    check(adata, logs().X)
    with pytest.raises(SourceError, match=r"to_memory"):
        fa.pca(adata[:50], 5)
    adata.file.close()


def test_dask():
    da = pytest.importorskip("dask.array")
    adata = logs("dense")
    lazy = anndata.AnnData(da.from_array(adata.X, chunks=(40, 100)), obs=adata.obs, var=adata.var)
    fa.pca(lazy, 5)
    check(lazy, adata.X)


@pytest.mark.parametrize("kind", ["h5ad", "zarr3"])
def test_stored_by_columns(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("fastsketch.data.sources._source.CHUNK_BYTES", 4096)  # several chunks of columns
    path = stored(tmp_path, kind, "csc")
    with pytest.raises(SourceError, match=r"\(CSC\)"):
        fa.pca(path, 5)
    found, adata = fa.pca(path, 5, convert=True, mask_var="some"), logs()
    mask = adata.var["some"].to_numpy()
    check(found[:, mask], adata.X[:, mask])
    assert list(found.obs_names) == list(adata.obs_names)
    rows = np.vstack([part.toarray() for part in fa.open_rows(path, convert=True)])
    np.testing.assert_array_equal(rows, adata.X.toarray())
    with pytest.raises(ValueError, match="convert=True needs the path"):
        fa.open_rows([path, path], convert=True)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_of_sources(tmp_path, dtype):
    values = counts("batches")[0]
    adata = logs()
    adata.X = sp.csr_array(values.astype(dtype))
    adata.write_h5ad(tmp_path / "raw.h5ad")
    source = fa.open_rows(tmp_path / "raw.h5ad", normalize=100, log1p=True, mask_var="some", scale=True, max_value=2)
    mask, totals = adata.var["some"].to_numpy(), values.sum(axis=1, keepdims=True)
    X = np.log1p(values / np.maximum(totals, 1) * 100)[:, mask]
    X = np.clip((X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0, ddof=1), 1), -2, 2)
    found = fa.pca(source, 5)
    check(found[:, mask], X)
    assert found.shape == adata.shape and list(found.obs_names) == list(adata.obs_names)
    assert np.array_equal(found.uns["pca"]["params"]["mask_var"], mask)
    u, s, _ = np.linalg.svd(X, full_matrices=False)
    uncentred = fa.pca(source, 5, zero_center=False)
    np.testing.assert_allclose(uncentred.uns["pca"]["variance"], (u * s)[:, :5].var(axis=0), rtol=1e-5)
    assert "variance_interval" not in uncentred.uns["pca"]


def test_wide_rows_in_memory():
    """Wider than sums of products go: the methods for a matrix in memory are used."""
    rng = np.random.default_rng(0)
    X = sp.random_array((650, 6_500), density=0.01, rng=rng, format="csr")
    adata = anndata.AnnData(X)
    fa.pca(adata, 5)
    centred = X.toarray() - X.mean(axis=0)
    variance = np.linalg.eigvalsh(centred @ centred.T)[::-1][:5] / 649
    np.testing.assert_allclose(adata.uns["pca"]["variance"], variance, rtol=1e-6)


# -- the estimator -----------------------------------------------------------------------------------------------------
def test_the_estimator_takes_cells(tmp_path):
    adata, path = logs(), stored(tmp_path, "h5ad")
    _, vt, scores = exact(adata.X)
    for cells in (adata, path, str(path), fs.open_rows(path)):
        model = SketchedPCA(5).fit(cells)
        assert list(model.feature_names_in_) == list(adata.var_names)
        np.testing.assert_allclose(model.components_, vt, atol=1e-8)
        np.testing.assert_allclose(model.transform(cells), scores, atol=1e-8)
        np.testing.assert_allclose(SketchedPCA(5).fit_transform(cells), scores, atol=1e-8)
        table = model.set_output(transform="pandas").transform(cells)
        assert list(table.index) == list(adata.obs_names)
        part = model.transform(adata[30:40])
        np.testing.assert_allclose(part, scores[30:40], atol=1e-8)
        assert list(part.index) == list(adata.obs_names[30:40])
    with pytest.raises(ValueError, match="missing are|column 0 is"):
        model.transform(adata[:, ::-1])


# -- bad input ---------------------------------------------------------------------------------------------------------
def test_arguments_of_scanpy_that_are_gone():
    adata = logs()
    for name in ("chunked", "chunk_size", "svd_solver", "random_state", "use_highly_variable"):
        with pytest.raises(TypeError, match=rf"pca\(\) has no argument '{name}': \w+"):
            fa.pca(adata, **{name: True})
    with pytest.raises(TypeError, match=r"has no argument 'n_components'$"):
        fa.pca(adata, n_components=3)
    assert not adata.obsm and not adata.uns


def test_raw_counts_are_pointed_out():
    adata = logs()
    adata.X = sp.csr_array(counts("batches")[0].astype(np.float32))
    with pytest.warns(UserWarning, match=r"open_rows\(x, normalize='median', log1p=True\).* layer="):
        fa.pca(adata, 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["csr", "dense"])
def test_entries_that_are_not_finite(bad, form):
    adata = logs("dense")
    adata.X[33, 4] = bad
    adata.X = adata.X if form == "dense" else sp.csr_array(adata.X)
    with pytest.raises(ValueError, match="row 33"):
        fa.pca(adata, 5)
    assert not adata.obsm and not adata.varm and not adata.uns


def test_genes_without_variance_and_duplicated_names():
    adata = logs("dense")
    adata.X[:, 3] = 7.0
    adata.var_names = ["same"] * N_GENES
    fa.pca(adata, 5)
    check(adata, adata.X)
    np.testing.assert_allclose(adata.varm["PCs"][3], 0, atol=1e-12)


def test_results_of_that_name_are_replaced():
    adata = logs()
    adata.obsm["X_pca"], adata.uns["pca"] = np.zeros((N_CELLS, 2)), {"old": 1}
    fa.pca(adata, 5)
    assert adata.obsm["X_pca"].shape == (N_CELLS, 5) and "old" not in adata.uns["pca"]


def test_refused_arguments(tmp_path):
    adata, path = logs(), stored(tmp_path, "h5ad")
    adata.obsm["X_other"] = np.ones((N_CELLS, 3))
    for error, match, arguments in (
        (ValueError, "must not exceed the smaller", {"n_comps": N_CELLS + 1}),
        (ValueError, "n_comps", {"n_comps": 0}),
        (TypeError, "n_comps", {"n_comps": 2.5}),
        (ValueError, "cannot both be used", {"layer": "a", "obsm": "b"}),
        (ValueError, "not genes", {"obsm": "X_other", "mask_var": "some"}),
        (SourceError, "no matrix 'layers/a'", {"layer": "a"}),
        (ValueError, "data a path or a source", {"output": "x.h5ad"}),
        (TypeError, "zero_center", {"zero_center": 1}),
        (ValueError, "floating-point dtype, got 'int8'", {"dtype": "int8"}),
        (TypeError, "key_added", {"key_added": 3}),
    ):
        with pytest.raises(error, match=match):
            fa.pca(adata, **arguments)
    assert not adata.uns
    with pytest.raises(ValueError, match="must be another file"):
        fa.pca(path, 5, output=path)
    with pytest.raises(ValueError, match="layer of a source"):
        fa.pca(fa.open_rows(path), 5, layer="a")


def test_an_output_that_cannot_be_written_is_refused_before_the_rows_are_read(tmp_path, monkeypatch):
    path = stored(tmp_path, "h5ad")
    monkeypatch.setattr(_pca, "_find", lambda *args, **kwargs: pytest.fail("rows were read"))
    for output, match in ((tmp_path / "none" / "x.h5ad", "does not exist"), (tmp_path, "is a directory")):
        with pytest.raises(ValueError, match=match):
            fa.pca(path, 5, output=output)


def test_an_output_is_replaced_completely_or_not_at_all(tmp_path, monkeypatch):
    path, output = stored(tmp_path, "h5ad"), tmp_path / "out.h5ad"
    found = fa.pca(path, 5, output=output)
    again = anndata.read_h5ad(output)
    assert list(again.obs_names) == list(found.obs_names)
    np.testing.assert_array_equal(again.obsm["X_pca"], found.obsm["X_pca"])
    before = output.read_bytes()

    def half(root, key, value):
        root.create_dataset("half", data=np.ones(1000))
        raise KeyboardInterrupt

    monkeypatch.setattr(_pca, "write_elem", half)
    with pytest.raises(KeyboardInterrupt):
        fa.pca(path, 5, output=output)
    assert output.read_bytes() == before and sorted(tmp_path.iterdir()) == sorted([path, output])


def test_too_few_cells_or_genes():
    for adata, match in (
        (logs()[:0].copy(), "has no cells"),
        (logs()[:1].copy(), f"of which there are 1 and {N_GENES}"),
        (logs()[:, :1].copy(), f"of which there are {N_CELLS} and 1"),
    ):
        with pytest.raises(ValueError, match=match):
            fa.pca(adata)
        assert not adata.obsm and not adata.uns


def test_an_unknown_number_of_cells(tmp_path):
    (tmp_path / "cells.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ValueError, match="number of cells must be known"):
        fa.pca(tmp_path / "cells.csv", 1)


def test_without_a_matrix(tmp_path):
    adata = anndata.AnnData(obs=logs().obs, var=logs().var)
    adata.write_h5ad(tmp_path / "none.h5ad")
    with pytest.raises(SourceError, match=r"has no X: name a layer \(layer="):
        fa.pca(adata, 5)
    with pytest.raises(SourceError, match="there is no matrix 'X'"):
        fa.pca(tmp_path / "none.h5ad", 5)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_file_that_is_cut_off(share, tmp_path):
    path = stored(tmp_path, "h5ad")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(SourceError, match="is damaged or no HDF5 file"):
        fa.pca(path, 5)


@pytest.mark.skipif(sys.platform == "win32", reason="locks are others there")
def test_a_file_that_another_process_has_open_for_writing(tmp_path):
    path = stored(tmp_path, "h5ad")
    code = "import h5py, sys; file = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        with pytest.raises(SourceError, match="is being written by another process"):
            fa.pca(path, 5)
        writer.stdin.close()
    assert fa.pca(path, 5).obsm["X_pca"].shape == (N_CELLS, 5)


def test_a_file_that_another_process_writes(tmp_path):
    path = stored(tmp_path, "h5ad")
    source = fa.open_rows(path)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SourceError, match="changed since it was opened"):
        fa.pca(source, 5)


# -- what it needs -----------------------------------------------------------------------------------------------------
def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_nothing_else_is_imported(tmp_path):
    path = stored(tmp_path, "h5ad")
    done = run(
        "import sys, fastsketch, fastsketch.sklearn; assert 'anndata' not in sys.modules\n"
        "import fastsketch.anndata as fa; fa.pca(sys.argv[1], 5)\n"
        "print([name for name in ('scanpy', 'skmisc', 'torch') if name in sys.modules])",
        str(path),
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_without_anndata():
    done = run("import sys; sys.modules['anndata'] = None; import fastsketch.sklearn; import fastsketch.anndata")
    assert "pip install 'fastsketch[anndata]'" in done.stderr and done.returncode == 1


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of the address space here")
def test_no_dense_array_of_many_cells(tmp_path):
    """150,000 x 1,000 would take 600 MB dense, in float32, and 500 MB are allowed in addition to the imports.

    These are addresses, of which each thread reserves 64 MB.
    """
    rng = np.random.default_rng(0)
    n, d, each = 150_000, 1_000, 10
    indices = np.sort(rng.integers(0, d // each, (n, each)) + np.arange(each) * (d // each), axis=1)
    data = rng.poisson(2, n * each).astype(np.float32) + 1
    X = sp.csr_array((data, indices.ravel().astype(np.int32), np.arange(n + 1) * each), shape=(n, d))
    anndata.AnnData(X).write_h5ad(tmp_path / "many.h5ad")
    done = run(
        "import resource, sys, fastsketch.anndata as fa\n"
        "path = sys.argv[1]\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 500_000_000,) * 2)\n"
        "found = fa.pca(fa.open_rows(path, normalize='median', log1p=True, scale=True, max_value=10), 5)\n"
        "print(found.obsm['X_pca'].shape)",
        str(tmp_path / "many.h5ad"),
    )
    assert done.stdout.strip() == "(150000, 5)", done.stderr
