"""
Drift that truncation loses
===========================

**Does the summary of a stream notice when something new begins, slowly?** One that keeps the leading directions of
what it has seen and drops the rest after every batch may not: what is new is small in each single batch, and
dropped in each.

Here are 60 sensors. For ten hours ten strong vibrations fill them. Then these stop, and another one begins, a tenth
as strong. As it never stops, it is the largest of all in the end. ``IncrementalPCA`` keeps ten directions, and so
does the sketch; both read every row once.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import IncrementalPCA

import fastsketch as fs

rng = np.random.default_rng(0)
directions = np.linalg.qr(rng.standard_normal((60, 60)))[0].T


def rows_of(hour):
    """50 rows: ten strong vibrations in the first ten hours, then the eleventh alone; a little noise."""
    noise = 0.1 * rng.standard_normal((50, 60))
    if hour < 10:
        return noise + 4 * rng.standard_normal((50, 10)) @ directions[:10]
    return noise + 4 * np.sqrt(0.1) * rng.standard_normal((50, 1)) @ directions[10:11]


# %%
# One pass
# --------
#
# After every hour both are asked how much the leading direction holds (the largest eigenvalue of A'A). The sketch
# answers with an interval. What is true takes all rows, or the whole matrix A'A, which is kept here to compare
# with.

pca = IncrementalPCA(n_components=10)
sketch = fs.FrequentDirections(11, method="fd", solver="gram")  # at most 11 rows, 10 when it is read
gram = np.zeros((60, 60))
hours = np.arange(250)
true, truncated, low, high = [], [], [], []
for hour in hours:
    rows = rows_of(hour)
    gram += rows.T @ rows
    true.append(np.linalg.eigvalsh(gram)[-1])
    truncated.append(pca.partial_fit(rows).singular_values_[0] ** 2)
    spectrum = sketch.update(rows).spectrum()
    low.append(spectrum.low[0])
    high.append(spectrum.high[0])

new = directions[10]
print(f"length of the new direction within what IncrementalPCA keeps: {np.linalg.norm(pca.components_ @ new):.2f}")
print(f"length of the new direction within what the sketch keeps:     {np.linalg.norm(sketch.components @ new):.2f}")
inside = (np.array(low) <= true) & (true <= np.array(high))
print(f"hours in which the truth lies in the sketch's interval:       {inside.sum()} of {len(hours)}")

# %%
# The picture
# -----------
#
# ``IncrementalPCA`` stands still and says nothing. The sketch's interval widens while it loses something, so that
# one sees that there is something to lose, and the new direction comes into it.

figure, ax = plt.subplots()
ax.fill_between(hours, np.array(low) / 1000, np.array(high) / 1000, color="#0072B2", alpha=0.25, linewidth=0)
ax.plot(hours, np.array(true) / 1000, color="black")
ax.plot(hours, np.array(truncated) / 1000, color="#D55E00", linestyle="--")
ax.text(140, 6.2, "fastsketch: interval", color="#0072B2", ha="center")
ax.text(190, 15.8, "truth", ha="right")
ax.text(60, 10.5, "IncrementalPCA", color="#D55E00")
ax.axvline(10, color="#999999", linewidth=1, linestyle=":")
ax.text(14, 1.2, "a weaker vibration begins", color="#555555")
ax.set(xlabel="hours", ylabel="largest eigenvalue of A'A, in thousands", xlim=(0, 250), ylim=(0, 20))
ax.set_title("A slow change that IncrementalPCA misses")
plt.show()

# %%
# **How sure is this?** The interval holds on every stream, by a theorem; this stream was made to fool truncation.
# On rows that come in no order truncation is mostly the more accurate of the two (:doc:`bounds
# </gallery/components/plot_bounds>`), and where A'A fits in memory nothing beats summing it up.
#
# **Next:** :doc:`components of a stream </jobs/components>`, and :doc:`why the interval holds </how/certificate>`.
