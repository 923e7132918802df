"""
Recall against bytes
====================

**How many bytes does a row need, to be found again by its neighbours?** Handwritten digits are no hard case, and
small enough to know what is true. The simple rival keeps the first principal components as float16 numbers, two
bytes each.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import fastsketch as fs

digits = np.asarray(load_digits(return_X_y=True)[0], np.float32)  # 8 x 8 pixels, from 0 to 16
rng = np.random.default_rng(0)
digits = digits[rng.permutation(len(digits))]
queries, rows = digits[:297], digits[297:]


def nearest(asked, kept):
    """The ten nearest of `kept` for each of `asked`."""
    return np.argsort((kept**2).sum(axis=1) - 2 * asked @ kept.T, axis=1)[:, :10]


true = nearest(queries, rows)


def recall(found):
    """Share of the ten nearest that is found."""
    return np.mean(np.any(found[:, :, None] == true[:, None], axis=1))


# %%
# 4 to 32 bytes
# -------------

sizes = [4, 6, 8, 12, 16, 24, 32]
found = {"components": [], "quantizer": [], "quantizer, rescored": [], "hash": []}
for size in sizes:
    pca = PCA(size // 2).fit(rows)
    kept = pca.transform(rows).astype(np.float16).astype(np.float32)
    found["components"].append(recall(nearest(pca.transform(queries), kept)))
    quantizer = fs.SketchQuantizer(size).update(rows)
    codes = quantizer.encode(rows)
    found["quantizer"].append(recall(quantizer.search(queries, codes)[1]))
    found["quantizer, rescored"].append(recall(quantizer.search(queries, codes, rescore=rows)[1]))
    if 8 * size <= rows.shape[1]:  # at most a bit for each pixel
        hashes = fs.SketchHash(8 * size, method="exact").update(rows)
        found["hash"].append(recall(hashes.search(queries, hashes.encode(rows), metric="hamming")[1]))
print(f"{len(rows)} rows of {rows.shape[1]} pixels")
for name, values in found.items():
    shown = ", ".join(f"{value:.2f}" for value in values)
    print(f"{name:20s} {shown}")

# %%
# The picture
# -----------

figure, ax = plt.subplots()
colours = {"components": "#D55E00", "quantizer": "#0072B2", "quantizer, rescored": "#009E73", "hash": "#CC79A7"}
for name, values in found.items():
    ax.plot(sizes[: len(values)], values, "o-", color=colours[name])
ax.text(9, 1.02, "quantizer, rescored by the rows", color="#009E73")
ax.text(12.5, 0.83, "quantizer", color="#0072B2", va="top")
ax.text(24.5, 0.68, "components as float16", color="#D55E00", va="top", ha="center")
ax.text(8.4, 0.6, "hash, Hamming", color="#CC79A7", va="center")
ax.set(xlabel="bytes a row", ylabel="share of the ten nearest found", ylim=(0, 1.08), xticks=sizes)
ax.set_title("Recall against bytes, handwritten digits")
plt.show()

# %%
# **How sure is this?** Rows of one kind, few of them. Larger sets stand in :doc:`a table </jobs/neighbours>`, beside
# faiss's product quantizers: ahead of ours at few bytes on some sets, behind on others, and longer to learn. For as few
# rows as these no code is needed at all: the product of two matrices is fast enough.
#
# **Next:** :doc:`neighbours </jobs/neighbours>`.
