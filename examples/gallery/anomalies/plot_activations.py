"""
Digits that a network was not trained on
========================================

**Does a network notice an input of a kind that it has never seen?** A small network learns to tell the handwritten
digits 0 to 7 apart, and is then shown an 8 or a 9. Its answer is one of the eight digits that it knows. Its hidden
activations are often unusual, as their distance from those of the training images shows.
"""

# needs: torch, sklearn
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

from fastsketch.torch import FrequentDirections

torch.set_num_threads(1)
torch.manual_seed(0)
pixels, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
images = torch.tensor(pixels[order] / 16, dtype=torch.float32)
labels = torch.tensor(digits[order])
known = labels < 8
train, classes, held = images[known][:1000], labels[known][:1000], images[known][1000:]
unknown = images[~known]

network = torch.nn.Sequential(
    torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 8)
)
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.1)
for _ in range(150):
    batch = torch.randint(1000, (128,))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(train[batch]), classes[batch]).backward()
    optimizer.step()

# %%
# The activations around the mean of their class
# ----------------------------------------------
#
# The sketch has at most 32 rows for the 512 hidden activations, whose covariance within the classes it estimates. The
# distance of an image is the squared Mahalanobis distance from the nearest mean of a class. Each eigenvalue of the
# covariance has an interval that is guaranteed to hold it.

hidden = network[:2]
with torch.no_grad():
    states = hidden(train)
    means = torch.stack([states[classes == digit].mean(0) for digit in range(8)])
    sketch = FrequentDirections(32, center=False).update(states - means[classes])
    distances = {
        name: sketch.mahalanobis(hidden(rows)[:, None] - means).min(1).values
        for name, rows in (("training images", train), ("new images of 0 to 7", held), ("images of 8 and 9", unknown))
    }
    sure = network(unknown).softmax(1).max(1).values > 0.9
threshold = distances["training images"].quantile(0.95)
for name, found in distances.items():
    print(f"{name}: {float((found > threshold).double().mean()):.0%} beyond the threshold")
print(f"images of 8 and 9 that the network is sure of: {float(sure.double().mean()):.0%}")

# %%
# The picture
# -----------
#
# On the left are the largest variances with their intervals, on the right the distances of the three groups of images.
# The threshold is exceeded by 5% of the training images.

top = sketch.spectrum()
values, low, high = ((x / sketch.n_rows).numpy() for x in (top.values, top.low, top.high))
directions = np.arange(1, len(values) + 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
left.bar(directions, high - low, 0.6, low, color="#0072B2", alpha=0.3, label="interval")
left.plot(directions, values, "o", markersize=3, color="#0072B2", label="estimate")
left.set(xlabel="direction", ylabel="variance within classes", yscale="log", ylim=(high[-1] / 3, 2 * high[0]))
left.legend(frameon=False)
bins = np.linspace(0, float(distances["images of 8 and 9"].max()), 40)
for (name, found), colour in zip(distances.items(), ("#999999", "#0072B2", "#D55E00"), strict=True):
    share = np.full(len(found), 1 / len(found))
    right.hist(found, bins, weights=share, histtype="step", linewidth=1.5, color=colour, label=name)
right.axvline(threshold, color="black", linewidth=1, linestyle=":")
right.set(xlabel="squared Mahalanobis distance", ylabel="share of the images", ylim=(0, 0.22))
right.legend(frameon=False)
figure.suptitle("Hidden activations of a network that knows the digits 0 to 7")
plt.show()

# %%
# **How sure is this?** The intervals of the variances are guaranteed. The threshold is not: it is a quantile of the
# training images, to which the network and the sketch were fitted, so that new images of the same digits lie beyond it
# somewhat more often. Choose the threshold on images that were held out where there are enough of them. Half of the
# images of 8 and 9 are within it: this network has seen few digits, and an 8 may look like a 3.
#
# **Next:** :doc:`activations and gradients </jobs/activations>`.
