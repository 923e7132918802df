"""
Shards merged
=============

**What does it cost in accuracy to sketch a hundred shards apart and merge them?** Rows lie in shards, in files or
on machines. Each is sketched where it is, and ``fs.merge`` makes one sketch of all. The certificate holds for any
tree of merges; here it stands beside the true error.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsketch as fs

rng = np.random.default_rng(0)
scales = np.arange(1, 201) ** -0.5
turns = [np.linalg.qr(rng.standard_normal((200, 200)))[0] for _ in range(4)]
rows = np.vstack([rng.standard_normal((5_120, 200)) * scales @ turn for turn in turns])  # shards are not alike
gram = rows.T @ rows

# %%
# From one shard to 256
# ---------------------

shards = 2 ** np.arange(9)
errors, bounds = [], []
for count in shards:
    sketches = [fs.FrequentDirections(40, solver="gram").update(part) for part in np.array_split(rows, count)]
    merged = fs.merge(sketches)
    B = merged.sketch()
    errors.append(100 * np.linalg.norm(gram - B.T @ B - merged.alpha * np.eye(200), 2) / merged.squared_norm)
    bounds.append(100 * merged.error_bound / merged.squared_norm)
print(f"one pass: error {errors[0]:.2f} %, bound {bounds[0]:.2f} % of the squared norm")
print(f"{shards[-1]} shards: error {errors[-1]:.2f} %, bound {bounds[-1]:.2f} %")

# %%
# The picture
# -----------

figure, ax = plt.subplots()
ax.plot(shards, bounds, "--", color="#0072B2")
ax.plot(shards, errors, "o-", color="#0072B2")
ax.set(xscale="log", xlabel="shards", ylabel="% of the squared norm", xticks=shards, xticklabels=shards, ylim=(0, None))
ax.minorticks_off()
ax.text(20, 0.61, "certificate", color="#0072B2")
ax.text(20, 0.42, "true error", color="#0072B2", va="top")
ax.set_title("Sketches of shards, merged into one")
plt.show()

# %%
# **How sure is this?** The bound holds for every tree of merges, and a merge adds no more than the shrink of one
# more buffer. Here shards come in order, so that most of them hold rows of one kind; ``fs.merge`` joins neighbours
# first.
#
# **Next:** :doc:`many cores and files </jobs/many-cores>`, and :doc:`how merging works </how/merging>`.
