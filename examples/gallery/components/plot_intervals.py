"""
Components with their intervals
===============================

**What are the principal components of small pieces of a photograph, and how sure is one of them?** A photograph has
hundreds of thousands of patches of 8 x 8 pixels. They come from a generator, a line of pixels at a time, and are
never in memory at once.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import fastsketch as fs
from fastsketch.sklearn import SketchedPCA

image = load_sample_image("china.jpg") / 255


def patches():
    """All patches of 8 x 8 pixels in colour, each a row of 192 numbers."""
    for top in range(image.shape[0] - 7):
        windows = np.lib.stride_tricks.sliding_window_view(image[top : top + 8], 8, axis=1)
        yield windows.transpose(1, 0, 3, 2).reshape(-1, 192)


# %%
# One pass, then a second
# -----------------------
#
# ``solver="gram"`` keeps a sketch of 20 rows. Where rows can be read again ``refine`` does so, and the intervals
# become narrow. (Left to itself ``partial_fit`` would sum up the matrix of 192 x 192, for that is cheap.)

pca = SketchedPCA(8, sketch_size=20, solver="gram")
for rows in patches():
    pca.partial_fit(rows)
once = pca.explained_variance_interval_
pca.refine(fs.open_rows(patches()))
twice = pca.explained_variance_interval_
print(f"{pca.n_samples_seen_:,} patches")
for number in (1, 4, 7):
    print(f"variance {number + 1}: {once[number].round(3)} after one pass, {twice[number].round(3)} after two")

# %%
# The picture
# -----------
#
# Above, what the first eight components look like: brightness, edges, corners. Below, the intervals of the
# variances.

figure, axes = plt.subplots(2, 8, height_ratios=(1, 2.6), sharex="row")
grid = axes[1, 0].get_gridspec()
for ax in axes[1]:
    ax.remove()
for ax, component in zip(axes[0], pca.components_, strict=True):
    ax.imshow(0.5 + 0.5 * component.reshape(8, 8, 3) / np.abs(component).max())
    ax.set_axis_off()
ax = figure.add_subplot(grid[1, :])
numbers = np.arange(8)
ax.bar(numbers, once[:, 1] - once[:, 0], bottom=once[:, 0], width=0.5, color="#0072B2", alpha=0.3)
ax.bar(numbers, twice[:, 1] - twice[:, 0], bottom=twice[:, 0], width=0.5, edgecolor="#0072B2", linewidth=2)
ax.set_yscale("log")
ax.set(xlabel="component", ylabel="variance", xticks=numbers, xticklabels=numbers + 1, xlim=(-0.5, 7.5))
ax.annotate(
    "after one pass", (2.3, 0.36), (3, 1.6), color="#0072B2", arrowprops={"arrowstyle": "-", "color": "#0072B2"}
)
ax.annotate("after two", (1.27, 0.371), (1.6, 4), color="#0072B2", arrowprops={"arrowstyle": "-", "color": "#0072B2"})
figure.suptitle("Components of photograph patches, and their intervals")
plt.show()

# %%
# **How sure is this?** Each variance lies within its interval, certainly; a direction is as sure as its interval is
# apart from those of its neighbours. Where the matrix of 192 x 192 is cheap, as it is here, take the exact way, and
# keep the sketch for wide rows.
#
# **Next:** :doc:`components of a stream </jobs/components>`, and :doc:`read-outs </read-outs>`.
