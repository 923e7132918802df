"""
Clicks learned in one pass
==========================

**How soon does a learner know what will be clicked, and are its probabilities what they say?** 60,000 impressions
come once each, few of them clicked. Each is predicted before it is learned from, so that what is measured is what
would have been said at that moment. ``SGDClassifier`` has a learning rate to choose, and is tried with three;
``SketchedNewton`` has none.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.linear_model import SGDClassifier

import fastsketch as fs

rng = np.random.default_rng(0)
mixing = rng.standard_normal((100, 100)) @ np.diag(np.geomspace(3, 0.3, 100))
X = rng.standard_normal((60_000, 100)) @ mixing.T  # correlated features
score = X @ np.linalg.solve(mixing @ mixing.T + np.eye(100), mixing @ rng.standard_normal(100))
chance = 1 / (1 + np.exp(2.5 - 1.5 * score / score.std()))
y = (rng.random(len(X)) < chance).astype(int)
print(f"{y.mean():.1%} of {len(X):,} impressions are clicked")

# %%
# Predict, then learn
# -------------------
#
# To be fair to ``SGDClassifier`` its features are divided by the standard deviations of the first batch.

scaled = X / X[:500].std(axis=0)
said = {}
for rate in (0.001, 0.003, 0.03):
    said[f"SGD, {rate}"] = np.full(len(X), 0.5)
    sgd = SGDClassifier("log_loss", alpha=0, learning_rate="constant", eta0=rate, random_state=0)
    for start in range(0, len(X), 500):
        at = slice(start, start + 500)
        if start:
            said[f"SGD, {rate}"][at] = sgd.predict_proba(scaled[at])[:, 1]
        sgd.partial_fit(scaled[at], y[at], classes=[0, 1])

said["SketchedNewton"] = np.full(len(X), 0.5)
model = fs.SketchedNewton(classes=[0, 1])
for start in range(0, len(X), 500):
    at = slice(start, start + 500)
    if start:
        said["SketchedNewton"][at] = model.predict_proba(X[at])[:, 1]
    model.update(X[at], y[at])
said["best possible"] = chance  # what the clicks were drawn with

losses = {name: -np.log(np.clip(np.where(y == 1, p, 1 - p), 1e-9, 1)) for name, p in said.items()}
for name, loss in losses.items():
    print(f"log loss of all but the first batch, {name}: {loss[500:].mean():.3f}")

# %%
# The picture
# -----------

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.8), width_ratios=(3, 2))
colours = dict(zip(said, ("#E69F00", "#D55E00", "#CC79A7", "#0072B2", "black"), strict=True))
for name, loss in losses.items():
    blocks = loss.reshape(-1, 5_000).mean(axis=1)
    left.plot(np.arange(5, 61, 5), blocks, color=colours[name], label=name)
left.set(xlabel="impressions, thousands", ylabel="log loss of the last 5,000", ylim=(0.29, 0.55))
left.legend(frameon=False, fontsize=9, ncols=2, loc="upper right", columnspacing=1)
left.set_title("Loss while learning")
for name in ("SGD, 0.003", "SketchedNewton"):
    clicked, stated = calibration_curve(y[500:], said[name][500:], n_bins=10, strategy="quantile")
    right.plot(stated, clicked, "o-", markersize=4, color=colours[name])
right.plot([0, 0.6], [0, 0.6], color="#999999", linewidth=1)
right.set(xlabel="probability said", ylabel="share clicked")
right.set_title("Calibration")
plt.show()

# %%
# **How sure is this?** The features here are correlated, which is what second-order steps are for. Where they
# are not, a first-order learner with a good rate can be as accurate, and is faster; who does not know the rate pays
# for the wrong one. A solver that goes over all rows until it converges is better on most sets that we measured, not
# on all.
#
# **Next:** :doc:`learning from clicks </jobs/learning>`.
