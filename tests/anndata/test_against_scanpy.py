"""The same as scanpy 1.11.5 on generated counts: expected.npz has its answers, expected.py has computed them."""

import inspect
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

import fastsketch.anndata as fa  # noqa: E402
from fastsketch.anndata._pca import DEFAULT, REMOVED  # noqa: E402
from tests.anndata.cells import CASES, counts  # noqa: E402

EXPECTED = np.load(Path(__file__).with_name("expected.npz"))


def raw(case, form="csr"):
    """The counts as AnnData, float64."""
    values, batch = counts(case)
    obs = pd.DataFrame({"batch": pd.Categorical(batch)}, index=[f"c{i}" for i in range(len(values))])
    values = values.astype(float)
    return anndata.AnnData(values if form == "dense" else sp.csr_array(values).asformat(form), obs=obs)


def whole(source):
    """All rows of a source, dense, the offset of scaled sparse rows included."""
    rows = np.vstack([part.toarray() if sp.issparse(part) else part for part in source])
    return rows if getattr(source, "offset", None) is None else rows + source.offset


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
def test_rows(case, form):
    adata = raw(case, form)
    # scanpy 1.11.5 takes the median over empty cells too where rows are sparse, 1.12 and this library do not
    if case == "batches" or form == "dense":
        np.testing.assert_allclose(whole(fa.open_rows(adata, normalize="median"))[::30], EXPECTED[f"{case}/median"])
    logs = fa.open_rows(adata, normalize=100, log1p=True)
    np.testing.assert_allclose(whole(logs)[::30], EXPECTED[f"{case}/logs"], rtol=1e-12)
    scaled = fa.open_rows(adata, normalize=100, log1p=True, scale=True, max_value=2)
    assert scaled.sparse == (form != "dense")
    np.testing.assert_allclose(whole(scaled)[::30], EXPECTED[f"{case}/scaled"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("zero_center", [True, False])
def test_pca(case, dtype, zero_center):
    logs = raw(case)
    logs.X = sp.csr_array(np.asarray(whole(fa.open_rows(logs, normalize=100, log1p=True)), dtype))
    fa.pca(logs, 6, zero_center=zero_center, dtype="float64")
    found, key = logs.uns["pca"], f"{case}/pca/{dtype}/{zero_center}"
    X = logs.X.toarray().astype(float)
    u, s, vt = np.linalg.svd(X - X.mean(axis=0) if zero_center else X, full_matrices=False)
    exact = s[:6] ** 2 / (len(X) - 1) if zero_center else (u * s)[:, :6].var(axis=0)
    gaps = s[:6] - s[1:7]
    assert (gaps > 1e-3 * s[0]).all()  # each component is a direction of its own
    np.testing.assert_allclose(found["variance"], exact, rtol=1e-6)
    np.testing.assert_allclose(
        found["variance_ratio"], exact / X.var(axis=0).sum() * ((len(X) - 1) / len(X) if zero_center else 1), rtol=1e-6
    )
    overlap = np.abs(np.sum(logs.varm["PCs"].T * vt[:6], axis=1))
    np.testing.assert_allclose(overlap, 1, rtol=1e-6)
    # scanpy's own error in float32 is up to 2e-6 in variances and 1e-3 in scores
    rtol, atol = (1e-6, 1e-6) if dtype == "float64" else (1e-4, 2e-3)
    np.testing.assert_allclose(found["variance"], EXPECTED[f"{key}/variance"], rtol=rtol)
    np.testing.assert_allclose(found["variance_ratio"], EXPECTED[f"{key}/variance_ratio"], rtol=rtol)
    np.testing.assert_allclose(logs.varm["PCs"][:, :3], EXPECTED[f"{key}/PCs"], atol=atol)  # signs too
    np.testing.assert_allclose(logs.obsm["X_pca"][::30], EXPECTED[f"{key}/X_pca"], atol=atol)
    if zero_center:
        interval = found["variance_interval"]
        assert (interval[:, 0] <= exact).all() and (exact <= interval[:, 1]).all()
        assert (interval[:, 1] - interval[:, 0] < 1e-4 * exact).all()


class StoredRegression:
    """scikit-misc's loess as expected.npz has it; its input must be that of scanpy."""

    def __init__(self, x, y, *, span, degree):
        assert (span, degree) == (0.5, 2)
        fits = [EXPECTED[key] for key in EXPECTED.files if key.startswith("loess/")]
        (fit,) = (fit for fit in fits if fit.shape[1] == len(x) and np.allclose(fit[:2], [x, y], rtol=1e-9, atol=1e-12))
        self.outputs = types.SimpleNamespace(fitted_values=fit[2])

    def fit(self):
        """Nothing: it is stored."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger", "seurat_v3"])
@pytest.mark.parametrize("batch_key", [None, "batch"])
@pytest.mark.parametrize("form", ["csr", "dense"])
@pytest.mark.parametrize("n_top_genes", [30, None])
def test_genes(case, flavor, batch_key, form, n_top_genes, monkeypatch):
    adata = raw(case, form)
    if flavor == "seurat_v3":
        n_top_genes = 30
        module = types.ModuleType("skmisc.loess")
        module.loess = StoredRegression
        monkeypatch.setitem(sys.modules, "skmisc", types.ModuleType("skmisc"))
        monkeypatch.setitem(sys.modules, "skmisc.loess", module)
    else:
        adata.X = whole(fa.open_rows(adata, normalize=100, log1p=True))
    fa.highly_variable_genes(adata, flavor=flavor, batch_key=batch_key, n_top_genes=n_top_genes, span=0.5)
    prefix = f"{case}/{flavor}/{batch_key}/{n_top_genes}/"
    columns = {key.removeprefix(prefix) for key in EXPECTED.files if key.startswith(prefix)}
    assert columns == set(adata.var)
    tied = len(adata.uns["hvg"]["ties"]) > 0
    for column in columns:
        found, theirs = adata.var[column].to_numpy(float), EXPECTED[prefix + column]
        is_order = column in ("highly_variable", "highly_variable_nbatches", "highly_variable_rank")
        if is_order and (tied or (flavor == "seurat_v3" and batch_key)):
            differ = ~np.isclose(found, theirs, equal_nan=True)  # equal genes, of one batch too, have no order
            most = max(2, len(adata.uns["hvg"]["ties"])) if column == "highly_variable" else 0.03 * len(found)
            assert differ.sum() <= most
        else:
            np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-9, err_msg=column)
    assert not tied or (flavor == "seurat_v3" and batch_key)


# The parameters of scanpy.pp.pca in scanpy 1.12, with their defaults.
SCANPY_1_12 = (
    "data, n_comps=None, *, layer=None, obsm=None, zero_center=True, svd_solver=None, chunked=False, chunk_size=None, "
    "random_state=0, return_info=False, mask_var=_empty, use_highly_variable=None, dtype='float32', key_added=None, "
    "copy=False"
)


def test_the_signature_is_that_of_scanpy():
    theirs, ours = {}, inspect.signature(fa.pca).parameters
    exec(f"def pca({SCANPY_1_12}): ...", {"_empty": DEFAULT}, theirs)
    left = dict(inspect.signature(theirs["pca"]).parameters)
    for name in REMOVED:
        del left[name]  # fails for an argument that scanpy does not have
        with pytest.raises(TypeError, match=name):
            fa.pca(np.eye(3), **{name: None})
    found = {name: (each.kind, each.default) for name, each in ours.items() if name in left}
    assert list(found.items()) == [(name, (each.kind, each.default)) for name, each in left.items()]
    assert set(ours) - set(left) == {"output", "convert", "removed"}
