"""
Drift that truncation loses
===========================

**Does the summary of a stream notice when something new begins slowly?** A method that keeps the leading directions of
all rows so far, and drops the others after every batch, may not: the new direction is weak in each batch, and is
dropped in each.

Here are 60 sensors. For ten hours ten strong vibrations are present. Then these stop, and another one begins, a tenth
as strong. Since it never stops, it has the largest variance in the end. ``IncrementalPCA`` keeps ten directions.
``SketchedPCA`` with default settings adds up all products of 60 columns, which is exact. A sketch of ten rows, which is
what one would use for very wide rows, gives an interval.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import IncrementalPCA

import fastsketch as fs
from fastsketch.sklearn import SketchedPCA

rng = np.random.default_rng(0)
directions = np.linalg.qr(rng.standard_normal((60, 60)))[0].T


def rows_of(hour):
    """50 rows: ten strong vibrations in the first ten hours, then only the eleventh; a little noise."""
    noise = 0.1 * rng.standard_normal((50, 60))
    if hour < 10:
        return noise + 4 * rng.standard_normal((50, 10)) @ directions[:10]
    return noise + 4 * np.sqrt(0.1) * rng.standard_normal((50, 1)) @ directions[10:11]


# %%
# One pass
# --------
#
# After every hour each method is asked for the largest eigenvalue of A'A, where A holds all rows so far less their
# mean. The true value needs all rows, or A'A itself, which is kept here only for comparison.

incremental, default = IncrementalPCA(n_components=10), SketchedPCA(n_components=10)
sketch = fs.FrequentDirections(11, method="fd", solver="gram", center=True)  # 10 rows when it is read
total, gram = np.zeros(60), np.zeros((60, 60))
hours = np.arange(250)
true, truncated, ours, low, high = [], [], [], [], []
for hour in hours:
    rows = rows_of(hour)
    total += rows.sum(axis=0)
    gram += rows.T @ rows
    true.append(np.linalg.eigvalsh(gram - np.outer(total, total) / (50 * (hour + 1)))[-1])
    truncated.append(incremental.partial_fit(rows).singular_values_[0] ** 2)
    ours.append(default.partial_fit(rows).singular_values_[0] ** 2)
    spectrum = sketch.update(rows).spectrum()
    low.append(spectrum.low[0])
    high.append(spectrum.high[0])

new = directions[10]
for name, pca in (("IncrementalPCA", incremental), ("SketchedPCA", default)):
    print(f"length of the new direction within the components of {name}: {np.linalg.norm(pca.components_ @ new):.2f}")
print(f"largest relative error of SketchedPCA: {np.max(np.abs(np.array(ours) / true - 1)):.0e}")
inside = (np.array(low) <= true) & (true <= np.array(high))
print(f"hours in which the interval of the sketch contains the true value: {inside.sum()} of {len(hours)}")

# %%
# The picture
# -----------
#
# ``IncrementalPCA`` stays at the value of the old vibrations, without a warning. ``SketchedPCA`` is exact. The
# interval of the sketch is wide where the sketch has lost something, and it contains the true value all the time.

figure, ax = plt.subplots()
ax.fill_between(hours, np.array(low) / 1000, np.array(high) / 1000, color="#0072B2", alpha=0.2, linewidth=0)
ax.plot(hours, np.array(true) / 1000, color="black", linewidth=4)
ax.plot(hours, np.array(ours) / 1000, color="#56B4E9", linewidth=1.5)
ax.plot(hours, np.array(truncated) / 1000, color="#D55E00", linestyle="--")
ax.text(190, 16.2, "true value (black)\nSketchedPCA (blue)", ha="right")
ax.text(118, 6.2, "interval of a sketch of 10 rows", color="#0072B2", ha="center")
ax.text(60, 10.5, "IncrementalPCA", color="#D55E00")
ax.axvline(10, color="#999999", linewidth=1, linestyle=":")
ax.text(14, 1.2, "a weaker vibration begins", color="#555555")
ax.set(xlabel="hours", ylabel="largest eigenvalue, in thousands", xlim=(0, 250), ylim=(0, 20))
ax.set_title("A slow change that IncrementalPCA misses")
plt.show()

# %%
# **How sure is this?** The interval holds on every stream, by a theorem; this stream was made to mislead truncation. On
# rows in random order truncation is mostly the more accurate of the two (:doc:`bounds
# </gallery/components/plot_bounds>`).
#
# **Next:** :doc:`components of a stream </jobs/components>`, and :doc:`why the interval holds </how/certificate>`.
