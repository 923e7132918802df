"""
A search before and after rescoring
===================================

**What do codes of a few bytes find, and what does a look at the rows add?** The rows are patches of two
photographs, 16 x 16 pixels in colour, thousands of bytes each. A code has 16 bytes. A search compares codes first;
with ``rescore`` it then ranks the best candidates by their rows.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_images

import fastsketch as fs

# %%
# The patches
# -----------
#
# Every third patch down and across, in random order: 200 ask, all others are searched. What is true, for once, we
# compute.

images = [np.asarray(image, np.float32) / 255 for image in load_sample_images().images]
windows = [np.lib.stride_tricks.sliding_window_view(image, (16, 16), axis=(0, 1))[::3, ::3] for image in images]
rows = np.vstack([window.transpose(0, 1, 3, 4, 2).reshape(-1, 768) for window in windows])
rows = rows[np.random.default_rng(3).permutation(len(rows))]
queries, rows = rows[:200], rows[200:]
true = np.argsort((rows**2).sum(axis=1) - 2 * queries @ rows.T, axis=1)[:, :10]

# %%
# Three answers
# -------------
#
# ``oversample=10`` reads the rows of ten candidates for each neighbour that is asked for.

hashes = fs.SketchHash(128).update(rows)  # one bit a direction
quantizer = fs.SketchQuantizer(16).update(rows)  # more bits for directions that vary more
codes = quantizer.encode(rows)
answers = {
    "hash,\nHamming": hashes.search(queries, hashes.encode(rows), metric="hamming")[1],
    "quantizer": quantizer.search(queries, codes)[1],
    "quantizer,\nrescored": quantizer.search(queries, codes, rescore=rows, oversample=10)[1],
}
hits = {name: np.any(found[:, :, None] == true[:, None], axis=1) for name, found in answers.items()}
print(f"share of the ten nearest of {len(rows):,} that is found, and queries that find none:")
for name, found in hits.items():
    print(f"{' '.join(name.split()):20s} {found.mean():.2f} {np.sum(~found.any(axis=1)):5d}")

# %%
# The picture
# -----------
#
# Two of the queries that vary much, and right of each its five first answers. A frame means: one of the ten nearest
# indeed. The numbers are shares over all queries.

busy = np.argsort(queries.std(axis=1))[::-1]
figure, axes = plt.subplots(3, 12, figsize=(7, 2.4))
for line, (name, found) in zip(axes, answers.items(), strict=True):
    for side, query in enumerate(busy[[40, 60]]):
        patches = [queries[query], *rows[found[query, :5]]]
        for column, (ax, patch) in enumerate(zip(line[6 * side : 6 * side + 6], patches, strict=True)):
            ax.imshow(patch.reshape(16, 16, 3))
            ax.set(xticks=[], yticks=[])
            right = column and found[query, column - 1] in true[query]
            ax.spines[:].set(visible=bool(right), color="#009E73", linewidth=3)
    line[0].set_ylabel(f"{name}\n{hits[name].mean():.2f}", rotation=0, ha="right", va="center", fontsize=10)
figure.suptitle("Neighbours by 16 bytes a patch, before and after rescoring")
plt.show()

# %%
# **How sure is this?** On patches of photographs, whose leading directions hold nearly everything, a bit for each
# direction is a poor code, and bits where the variance is are a good one; on other rows they are nearer to each
# other (:doc:`a table of four sets </jobs/neighbours>`). Rescored answers are as good as their candidates: raise
# ``oversample`` until answers stay the same. A row unlike all others, for which the quantizer has no bits, may find
# none, even so.
#
# **Next:** :doc:`neighbours </jobs/neighbours>`.
