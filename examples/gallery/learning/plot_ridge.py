"""
A ridge that chooses itself, and how sure its coefficients are
==============================================================

**Which of ten measurements tell how a disease goes on, when several of them say the same?** 442 patients, their age,
sex, body mass, blood pressure and six values of their blood, and a score a year later. The clinics' rows come in 17
parts, which are never together.
"""

# needs: sklearn
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import fastsketch as fs

X, y = load_diabetes(scaled=False, return_X_y=True)
order = np.random.default_rng(0).permutation(442)
parts = np.array_split(order, 17)
names = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")

# %%
# A model of each part, and one of all
# ------------------------------------
#
# ``scale=True`` has the ridge count in standard deviations of the columns. What is merged is what one pass over all
# rows would have learned. Of 442 rows a fifth is held out and chooses the ridge; in the end the coefficients are
# learned from all.

models = [fs.SketchedRidge(scale=True, seed=5).update(X[at], y[at]) for at in parts]
whole = fs.merge(models)
path = whole.score_path()
least = path.errors.min()
print(f"ridge {path.ridge:.0f}, chosen on {path.n_rows} rows, error {least:.2f} +- {path.standard_errors.min():.2f}")

# %%
# Intervals of coefficients
# -------------------------
#
# A state without one part is a merge of the others: 17 of these say how much each coefficient depends on who was
# asked (the jackknife), at the chosen ridge, and at none.

spread = np.std(X, axis=0)
found = {}
for ridge in (0.0, path.ridge):
    others = [fs.merge([model for model in models if model is not left]).coef(ridge) * spread for left in models]
    error = np.sqrt(16 / 17 * np.sum((others - np.mean(others, axis=0)) ** 2, axis=0))
    found[ridge] = whole.coef(ridge) * spread, 1.96 * error
for name, value, error in zip(names, *found[path.ridge], strict=True):
    print(f"{name:4} {value:6.1f} +- {error:.1f}")

# %%
# The picture
# -----------

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), width_ratios=(2, 3))
left.plot(path.ridges, 100 * (path.errors / least - 1), "o-")
left.axvline(path.ridge, color="#D55E00", linestyle="--", linewidth=1.5)
left.annotate("chosen", (path.ridge, left.get_ylim()[1]), (4, -12), textcoords="offset points", color="#D55E00")
left.set(xscale="log", xlabel="ridge", ylabel="squared error above the least, %")
left.set_title("Rows held out")
places = np.arange(10)
for shift, (ridge, (values, errors)), colour in zip((-0.15, 0.15), found.items(), ("#999999", "#0072B2"), strict=True):
    label = "ridge 0" if ridge == 0 else f"ridge {ridge:.0f}"
    right.errorbar(places + shift, values, yerr=errors, fmt="o", capsize=3, color=colour, label=label)
right.axhline(0, color="black", linewidth=0.8)
right.set(xticks=places, xticklabels=names, xlabel="feature", ylabel="change of the score for one deviation")
right.legend(frameon=False)
right.set_title("Coefficients, 95%")
plt.show()

# %%
# **How sure is this?** The intervals are approximate: 17 parts are few, and they say how the coefficients of this
# ridge vary, which shrinks them on purpose; they do not say how far these are from the truth. The error on
# the left is known within the standard error that is printed above; that of a difference is far smaller, as all ridges
# are tried on the same rows, and those around the one chosen differ by less than a hundredth.
#
# **Next:** :doc:`regression in one pass </jobs/regression>`.
