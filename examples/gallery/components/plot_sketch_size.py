"""
Sketch size against error
=========================

**How many rows does a sketch need?** On the patches of a photograph, beside the simple rivals: a sample of rows as
large, and ``IncrementalPCA`` with as many components. Two questions give two answers: how far B'B is from A'A, and
how well the leading variances are estimated.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.decomposition import IncrementalPCA

import fastsketch as fs

image = load_sample_image("china.jpg") / 255
windows = np.lib.stride_tricks.sliding_window_view(image, (8, 8), axis=(0, 1))[::4, ::4]
A = windows.transpose(0, 1, 3, 4, 2).reshape(-1, 192)
A = A - A.mean(axis=0)
gram = A.T @ A
norm, true = np.trace(gram), np.linalg.eigvalsh(gram)[::-1]
print(f"{A.shape[0]:,} rows of {A.shape[1]} numbers")

# %%
# Errors at each size
# -------------------

rng = np.random.default_rng(0)
sizes = np.array([8, 12, 16, 24, 32, 48, 64])
names = ("row sample", "fd", "rfd", "tfd", "IncrementalPCA")
covariance = {name: [] for name in names}
variances = {name: [] for name in names}
for size in sizes:
    for name in names:
        alpha = 0.0
        if name == "row sample":
            B = A[rng.choice(len(A), size)] * np.sqrt(len(A) / size)
            values = np.linalg.svd(B, compute_uv=False)[:5] ** 2
        elif name == "IncrementalPCA":
            pca = IncrementalPCA(size, batch_size=500).fit(A)
            B, values = pca.components_ * pca.singular_values_[:, None], pca.singular_values_[:5] ** 2
        else:
            sketch = fs.FrequentDirections(size, method=name, solver="gram").update(A)
            B, alpha, values = sketch.sketch(), sketch.alpha, sketch.spectrum().values[:5]
        covariance[name].append(100 * np.linalg.norm(gram - B.T @ B - alpha * np.eye(192), 2) / norm)
        variances[name].append(100 * np.abs(values / true[:5] - 1).max())
for name in names:
    print(f"{name:15s} size 32: A'A {covariance[name][4]:.3f} %, five variances {variances[name][4]:.1f} %")

# %%
# The picture
# -----------

figure, axes = plt.subplots(1, 2, figsize=(7, 4.2))
for ax, errors in zip(axes, (covariance, variances), strict=True):
    for name, colour in zip(names, ("#999999", "#56B4E9", "#0072B2", "#009E73", "#D55E00"), strict=True):
        ax.plot(sizes, errors[name], "o-", markersize=4, color=colour, label=name)
    ax.set(xscale="log", yscale="log", xlabel="rows kept", xticks=sizes[::2], xticklabels=sizes[::2])
    ax.minorticks_off()
axes[0].set_ylabel("error of A'A, % of its trace")
axes[1].set_ylabel("worst of five variances, error in %")
handles = axes[0].get_lines()
figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False, fontsize=9, columnspacing=1)
figure.suptitle("Error against the size of the sketch")
plt.show()

# %%
# **How sure is this?** One photograph; which method is ahead differs from set to set. The bounds of Frequent
# Directions fall at least like one over the rows kept, by theorem. ``IncrementalPCA`` estimates leading variances
# best here, and has no bound on its error; ``tfd`` comes near it and has one, and ``rfd``, the default, is made for
# A'A.
#
# **Next:** :doc:`components of a stream </jobs/components>`, with which method and which size to take.
