"""
A photograph restored
=====================

**Can a matrix be completed when part of it is missing and part of the rest is wrong?** A photograph shows how well.
Of its numbers (pixels down, pixels and colours across) a third is missing, and a tenth of the others are 0 or 1 at
random. A model of low rank is fitted to what is left, by the square loss, which believes everything, and by
Huber's, which does not.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import fastsketch as fs

rng = np.random.default_rng(0)
image = load_sample_image("flower.jpg")[::2, ::2] / 255
damaged = image.copy()
wrong = rng.random(image.shape) < 0.1
damaged[wrong] = rng.integers(0, 2, wrong.sum())
damaged[rng.random(image.shape) < 1 / 3] = np.nan  # missing

# %%
# Two fits, and a rule without any model
# --------------------------------------
#
# The rule is the median of the known pixels in a square of five by five around each.

matrix = damaged.reshape(len(damaged), -1)
pictures = {"photograph": image, "what is left": np.nan_to_num(damaged, nan=0.5)}
for loss in ("square", "huber"):
    model = fs.LowRankModel(30, loss=loss, clip=(0, 1)).fit(matrix)
    pictures[f"{loss} loss"] = model.predict_block(np.arange(len(matrix))).reshape(image.shape)
padded = np.pad(damaged, ((2, 2), (2, 2), (0, 0)), constant_values=np.nan)
around = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(0, 1))
pictures["median"] = np.nanmedian(around, axis=(3, 4))

quality = {name: -10 * np.log10(np.mean((pictures[name] - image) ** 2)) for name in list(pictures)[1:]}
for name, value in quality.items():
    print(f"{name:13s} {value:.1f} dB")

# %%
# The median is better: it knows that pixels beside each other are alike. A table of customers and products knows
# nothing of the kind. Shuffle rows and columns, and the model finds the same; the median finds nothing.

order, across = rng.permutation(matrix.shape[0]), rng.permutation(matrix.shape[1])
shuffled = fs.LowRankModel(30, loss="huber", clip=(0, 1)).fit(matrix[order][:, across])
restored = shuffled.predict_block(np.arange(len(matrix)))
error = restored - image.reshape(matrix.shape)[order][:, across]
print(f"huber loss, shuffled: {-10 * np.log10(np.mean(error**2)):.1f} dB")

# %%
# The picture
# -----------

figure, axes = plt.subplots(2, 2, figsize=(7, 5.2))
for ax, name in zip(axes.flat, pictures, strict=False):
    ax.imshow(pictures[name])
    ax.set_title(f"{name}, {quality[name]:.1f} dB" if name in quality else name)
    ax.set_axis_off()
plt.show()

# %%
# **How sure is this?** The gain of a loss that doubts is large where entries are wrong and small where they are
# only noisy. For photographs there are better methods than any low rank; for tables, ``model.facts()`` says by how much
# factors are better than biases alone on entries held out, and how sure that is.
#
# **Next:** :doc:`completing a matrix </jobs/completing>`.
