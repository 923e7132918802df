"""
Forgetting old rows
===================

**Which directions matter now, when they turn all the time?** A sketch of all rows answers for all time. With
``decay`` every new row takes a little weight from the earlier ones. The stream here has one strong direction that
turns slowly, and in the middle jumps.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import IncrementalPCA

import fastsketch as fs

rng = np.random.default_rng(0)
plane = np.linalg.qr(rng.standard_normal((100, 2)))[0].T


def direction(hour):
    """Turns by half in 200 hours, and after 100 by a quarter at once."""
    angle = np.pi * (hour / 200 + (hour >= 100) / 2)
    return np.cos(angle) * plane[0] + np.sin(angle) * plane[1]


# %%
# The angle to what is true now
# -----------------------------

models = {
    "all rows": fs.FrequentDirections(20),
    "decay 0.999": fs.FrequentDirections(20, decay=0.999),
    "decay 0.99": fs.FrequentDirections(20, decay=0.99),
}
pca = IncrementalPCA(19)
angles = {name: [] for name in (*models, "IncrementalPCA")}
hours = np.arange(200)
for hour in hours:
    now = direction(hour)
    rows = 2 * rng.standard_normal((100, 1)) * now + rng.standard_normal((100, 100))
    found = {name: model.update(rows).components[0] for name, model in models.items()}
    found["IncrementalPCA"] = pca.partial_fit(rows).components_[0]
    for name, leading in found.items():
        angles[name].append(np.degrees(np.arccos(min(1, abs(leading @ now)))))
for name, values in angles.items():
    print(f"{name:15s} mean angle {np.mean(values):.0f} degrees")

# %%
# The picture
# -----------
#
# What is ten hours old has a weight of about a third with a decay of 0.999. With 0.99 an hour is enough for that,
# too few rows to tell the direction from noise.

figure, ax = plt.subplots()
for (name, values), colour in zip(angles.items(), ("black", "#0072B2", "#56B4E9", "#D55E00"), strict=True):
    ax.plot(hours, values, color=colour, linewidth=1.8, label=name)
ax.set(xlabel="hours", ylabel="angle to the direction of now, degrees", ylim=(0, 90))
ax.legend(frameon=False)
ax.set_title("Decay follows a direction that turns")
plt.show()

# %%
# **How sure is this?** The right decay depends on how fast things turn, which has to be known or tried. With 100
# columns ``solver="auto"`` sums up A'A, so that this is the classic exponentially weighted covariance; with wide
# rows it is a sketch, and its certificate is about the weighted rows.
#
# **Next:** :doc:`components of a stream </jobs/components>`.
