"""
An anomaly that no single sensor shows
======================================

**Which rows of a stream do not fit, when every single number in them is ordinary?** A plant has 80 sensors that
follow five hidden causes. At three times the order of some sensors is broken for a few minutes: a cable is in the
wrong socket. No value is unusual. What is unusual is that these values come together.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np

from fastsketch.sklearn import SketchedCovariance

rng = np.random.default_rng(0)
causes = rng.standard_normal((5, 80))


def minutes(count):
    """Rows of 80 sensors."""
    return rng.standard_normal((count, 5)) @ causes + 0.5 * rng.standard_normal((count, 80))


rows = minutes(6_000)
broken = np.zeros(6_000, dtype=bool)
for start in (2_500, 4_000, 5_200):
    at = slice(start, start + 30)
    swapped = rng.choice(80, 4, replace=False)
    rows[at, swapped] = rows[at, np.roll(swapped, 1)]
    broken[at] = True

# %%
# Score, then learn
# -----------------
#
# Every batch is scored by what came before it and then learned from, but for rows above the threshold. That is set
# by scores of ordinary minutes that the model has not learned from, such that one in a thousand is above it.

model = SketchedCovariance().fit(minutes(2_000))
threshold = np.quantile(model.mahalanobis(minutes(5_000)), 0.999)
scores = np.empty(len(rows))
for start in range(0, len(rows), 100):
    batch = rows[start : start + 100]
    scores[start : start + 100] = found = model.mahalanobis(batch)
    model.partial_fit(batch[found < threshold])

# The simple rule: how far the farthest sensor is from its mean, in its standard deviations.
single = np.abs((rows - model.location_) / np.sqrt(np.diag(model.covariance_))).max(axis=1)
rule = np.quantile(single[~broken], 0.999)
for name, values, level in (("all sensors together", scores, threshold), ("the farthest sensor", single, rule)):
    found, false = np.mean(values[broken] > level), np.mean(values[~broken] > level)
    print(f"{name}: {found:.0%} of the broken minutes found, {false:.2%} of the others")

# %%
# The picture
# -----------

figure, axes = plt.subplots(2, 1, sharex=True)
for ax, values, level, name in zip(
    axes, (scores, single), (threshold, rule), ("Mahalanobis distance", "farthest sensor"), strict=True
):
    ax.plot(values, ".", markersize=2, color="#999999")
    ax.plot(np.flatnonzero(broken), values[broken], ".", markersize=5, color="#D55E00")
    ax.axhline(level, color="#0072B2", linewidth=1.2)
    ax.set_ylabel(name)
axes[1].set_xlabel("minutes")
axes[0].set_title("Three faults (orange): only all sensors together show them")
plt.show()

# %%
# **How sure is this?** The threshold is as good as the rows that it is set by: later rows of another kind have
# another share above it. With 80 sensors the model keeps the exact matrix, as scikit-learn's
# ``EmpiricalCovariance`` would if it could learn from batches; a sketch begins where d x d numbers are too many.
# The first rows must be ordinary.
#
# **Next:** :doc:`anomalies </jobs/anomalies>`.
