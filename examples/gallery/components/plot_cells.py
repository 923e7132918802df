"""
Principal components of cells
=============================

**Which kinds of blood cells do the principal components of their genes separate, and how sure is each variance?** The
cells are those of scanpy's small data set ``pbmc68k_reduced``, in an AnnData object, with logarithms of normalised
counts.
"""

# needs: anndata, sklearn, scanpy
import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc

import fastsketch.anndata as fa
from fastsketch.sklearn import SketchedPCA

cells = sc.datasets.pbmc68k_reduced().raw.to_adata()
kinds = cells.obs["bulk_labels"]
print(f"{cells.n_obs} cells, {cells.n_vars} genes, {kinds.nunique()} kinds of cells")

# %%
# The function of scanpy, and an interval for each variance
# ---------------------------------------------------------
#
# ``fa.pca`` writes what ``sc.pp.pca`` writes, and ``uns["pca"]["variance_interval"]`` in addition. It takes the path of
# a file as well, and then reads the cells in chunks. With 765 genes the matrix of their covariances fits into memory,
# so the variances are exact up to rounding. For comparison, ``SketchedPCA`` reads the cells once and keeps 60 rows.

fa.pca(cells, 20)
variance, interval = cells.uns["pca"]["variance"], cells.uns["pca"]["variance_interval"]
sketch = SketchedPCA(20, sketch_size=60, solver="gram", passes=1).fit(cells)
wide = sketch.explained_variance_interval_
width = ((interval[:, 1] - interval[:, 0]) / variance).max()
print(f"the widest interval is {width:.0e} of its variance")
print(f"after one pass of a sketch the first variance lies between {wide[0, 0]:.1f} and {wide[0, 1]:.1f}")

# %%
# The picture
# -----------
#
# On the left every cell, by its two leading components. On the right the variances: points are the exact ones, bars are
# the intervals of the sketch.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=(1.2, 1))
frequent = list(kinds.value_counts().index[:5])
for kind, colour in zip(frequent, ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"), strict=True):
    scores = cells.obsm["X_pca"][kinds == kind]
    left.scatter(scores[:, 0], scores[:, 1], s=8, color=colour, label=kind)
others = ~kinds.isin(frequent)
left.scatter(*cells.obsm["X_pca"][others, :2].T, s=8, color="#BBBBBB", label="other kinds", zorder=0)
left.legend(fontsize=7, markerscale=1.5, loc="upper left", ncols=2)
left.set(xlabel="first component", ylabel="second component", ylim=(-10, 16), title="Cells")
numbers = np.arange(1, 21)
right.bar(numbers, wide[:, 1] - wide[:, 0], bottom=wide[:, 0], width=0.7, color="#0072B2", alpha=0.3, label="one pass")
right.plot(numbers, variance, "o", color="#D55E00", markersize=4, label="exact")
right.set_yscale("log")
right.set_yticks((2, 5, 10, 20, 50), ("2", "5", "10", "20", "50"))
right.minorticks_off()
right.legend(fontsize=8)
right.set(xlabel="component", ylabel="variance", xticks=(1, 5, 10, 15, 20), title="Variances and their intervals")
plt.show()

# %%
# **How sure is this?** Each variance lies within its interval, guaranteed. The intervals say nothing about other cells:
# a variance of few cells differs from that of the tissue.
#
# **Next:** :doc:`coming from scanpy </coming-from/scanpy>`, :doc:`components of a stream </jobs/components>`.
