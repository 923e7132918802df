"""
Heavy rows made even
====================

**Why mix rows before sampling them?** If a few rows hold most of a matrix, a sample of rows misses them. A
Walsh-Hadamard transform with random signs spreads each row over all: then every sample has its share.
``fs.sketching.srht`` does both at once, and is what ``compressor="srht"`` puts in front of a sketch.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsketch as fs

rng = np.random.default_rng(0)
n, d = 1_024, 50
rows = 0.3 * rng.standard_normal((n, d))
rows[rng.choice(n, 8, replace=False)] += 10 * rng.standard_normal((8, d))
mixed = fs.sketching.fwht(rows * rng.choice([-1.0, 1.0], (n, 1)), axis=0) / np.sqrt(n)
gram = rows.T @ rows

# %%
# The error of a sample, before and after
# ---------------------------------------
#
# 200 samples of 128 of the 1,024 rows, without and with the transform.


def error(sample):
    """Of the sample's B'B, as a share of the norm of A'A."""
    return np.linalg.norm(gram - sample.T @ sample, 2) / np.linalg.norm(gram, 2)


sampled = [error(rows[rng.choice(n, 128, replace=False)] * np.sqrt(n / 128)) for _ in range(200)]
mapped = [error(fs.sketching.srht(rows, 128, seed=seed)) for seed in range(200)]
for name, errors in (("sampled rows", sampled), ("sampled mixtures", mapped)):
    print(f"{name}: median error {np.median(errors):.2f}, one in ten above {np.quantile(errors, 0.9):.2f}")

# %%
# The picture
# -----------

figure, axes = plt.subplots(1, 3, figsize=(7, 3.4), width_ratios=(1, 1, 1.1))
for ax, matrix, name in zip(axes, (rows, mixed), ("rows", "mixed rows"), strict=False):
    ax.plot(np.linalg.norm(matrix, axis=1), color="#0072B2", linewidth=0.8)
    ax.set(xlabel="row", ylim=(0, 100), xticks=(0, 500, 1_000))
    ax.set_title(name)
axes[0].set_ylabel("length")
axes[1].sharey(axes[0])
axes[2].boxplot([sampled, mapped], tick_labels=["rows", "mixed"], showfliers=False, medianprops={"color": "#D55E00"})
axes[2].set(ylabel="error, of the norm of A'A", xlabel="sample of", ylim=(0, None))
axes[2].set_title("error")
figure.suptitle("Eight heavy rows, and what mixing makes of them")
plt.show()

# %%
# **How sure is this?** The error after mixing depends hardly on the rows, that of a sample very much: these rows
# were made so that it shows. On rows of about one length a plain sample is as good, and costs nothing.
#
# **Next:** :doc:`random maps </how/random-maps>`, and :doc:`many cores and files </jobs/many-cores>`.
