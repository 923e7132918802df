"""Writes expected.npz: what scanpy 1.11.5 computes for the matrices of cells.py.

Run it where scanpy and scikit-misc are installed: python -m tests.anndata.expected
"""

import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scanpy as sc
import skmisc.loess

from tests.anndata.cells import CASES, counts

FILE = Path(__file__).with_name("expected.npz")
FLAVORS = ("seurat", "cell_ranger", "seurat_v3")


def main():
    warnings.simplefilter("ignore")
    found: dict = {}
    fits: list = []
    plain = skmisc.loess.loess

    class Recorded:
        """scikit-misc's regression, whose input and output are kept."""

        def __init__(self, x, y, **settings):
            self.model, self.x, self.y = plain(x, y, **settings), x, y

        def fit(self):
            self.model.fit()
            self.outputs = self.model.outputs
            fits.append(np.array([self.x, self.y, self.outputs.fitted_values]))

    skmisc.loess.loess = Recorded
    for case in CASES:
        values, batch = counts(case)
        obs = pd.DataFrame({"batch": pd.Categorical(batch)}, index=[f"c{i}" for i in range(len(values))])
        raw = anndata.AnnData(values.astype(float), obs=obs)
        median = sc.pp.normalize_total(raw, copy=True)
        logs = sc.pp.log1p(sc.pp.normalize_total(raw, target_sum=100, copy=True), copy=True)
        scaled = sc.pp.scale(logs, max_value=2, copy=True)
        for name, adata in (("median", median), ("logs", logs), ("scaled", scaled)):
            found[f"{case}/{name}"] = adata.X[::30]
        for dtype in (np.float64, np.float32):
            for centred in (True, False):
                adata = logs.copy()
                adata.X = adata.X.astype(dtype)
                sc.pp.pca(adata, 6, svd_solver="arpack", zero_center=centred, dtype="float64")
                key = f"{case}/pca/{np.dtype(dtype)}/{centred}"
                found[f"{key}/variance"] = adata.uns["pca"]["variance"]
                found[f"{key}/variance_ratio"] = adata.uns["pca"]["variance_ratio"]
                found[f"{key}/PCs"], found[f"{key}/X_pca"] = adata.varm["PCs"][:, :3], adata.obsm["X_pca"][::30]
        for flavor in FLAVORS:
            for batch_key in (None, "batch"):
                for n_top in (30,) if flavor == "seurat_v3" else (30, None):
                    adata = (raw if flavor == "seurat_v3" else logs).copy()
                    sc.pp.highly_variable_genes(adata, flavor=flavor, batch_key=batch_key, n_top_genes=n_top, span=0.5)
                    for column in adata.var:
                        found[f"{case}/{flavor}/{batch_key}/{n_top}/{column}"] = adata.var[column].to_numpy(np.float32)
    for k, fit in enumerate(fits):
        found[f"loess/{k}"] = fit
    np.savez_compressed(FILE, **found)


if __name__ == "__main__":
    main()
