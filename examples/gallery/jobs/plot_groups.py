"""
Shops that are alike
====================

**Which of many groups of rows vary in the same way?** ``fs.sketch_groups`` makes a sketch for each of them, in one
pass over rows in any order. Here these are days of sales in 24 shops: 40 products each. What a shop's sales follow
(weather, weekends, the school year) is not in the rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

import fastsketch as fs

rng = np.random.default_rng(0)
kinds = {kind: rng.standard_normal((3, 40)) for kind in ("beach", "office", "school")}
shops = [f"{kind} {number}" for kind in kinds for number in range(1, 9)]
rng.shuffle(shops)
days = rng.integers(len(shops), size=20_000)  # of which shop each row is
rows = 2 * rng.standard_normal((20_000, 40))
for number, shop in enumerate(shops):
    own = days == number
    rows[own] += rng.standard_normal((own.sum(), 3)) @ (kinds[shop.split()[0]] + 0.6 * rng.standard_normal((3, 40)))

# %%
# One pass
# --------
#
# Two shops are alike as far as their three leading directions span the same space: 1 if they do, 0 if they are at
# right angles.

groups = fs.sketch_groups(rows, by=np.array(shops)[days], sketch_size=12, center=True)
names = list(groups.keys())
leading = [groups[name].components[:3] for name in names]
alike = np.array([[np.linalg.norm(a @ b.T) ** 2 / 3 for b in leading] for a in leading])
order = leaves_list(linkage(np.sqrt(np.maximum(0, 1 - alike[np.triu_indices(len(names), 1)])), "average"))
names = [str(names[i]) for i in order]
alike = alike[order][:, order]
same = np.array([[a.split()[0] == b.split()[0] for a in names] for b in names])
off = ~np.eye(len(names), dtype=bool)
print(f"{len(names)} shops; of one kind {alike[same & off].mean():.2f} alike, of two kinds {alike[~same].mean():.2f}")

# %%
# The picture
# -----------

figure, ax = plt.subplots(figsize=(6.2, 5.4))
image = ax.imshow(alike, vmin=0, vmax=1)
ax.set(yticks=range(len(names)), xticks=[], xlabel="the same shops, in the same order")
ax.set_yticklabels(names, fontsize=9)
ax.set_ylabel("shop")
figure.colorbar(image, label="likeness", shrink=0.8)
ax.set_title("Three kinds of shops, found in one pass")
plt.show()

# %%
# **How sure is this?** The kinds were put in, and are strong. Each group's sketch has a certificate of its own;
# here every shop has many times as many rows as its sketch. For 40 columns the covariance of each shop would do as
# well: a sketch is for wide rows, or for more groups than memory has room for.
#
# **Next:** :doc:`many cores and files </jobs/many-cores>`.
