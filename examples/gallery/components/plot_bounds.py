"""
Bounds beside true errors
=========================

**How good is a bound that a sketch knows without a second look at the rows?** A sketch B of the rows A promises
that B'B + alpha I differs from A'A by at most ``error_bound``, in spectral norm. To find the true error one needs
A'A. Here both are followed while rows come: of Robust Frequent Directions (the default), and of truncation, which
``IncrementalPCA`` does, too, and which ``method="isvd"`` does with the same certificate.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsketch as fs

rng = np.random.default_rng(0)
scales = np.arange(1, 161) ** -0.6  # 160 features, of which the first vary most
turn = np.linalg.qr(rng.standard_normal((160, 160)))[0]

# %%
# Rows in no order, then others
# -----------------------------
#
# The first 7,500 rows come in no order. Then the directions of the rows turn, and rows are shorter.

sketches = {method: fs.FrequentDirections(24, method=method, solver="gram") for method in ("rfd", "isvd")}
bounds, errors = {"rfd": [], "isvd": []}, {"rfd": [], "isvd": []}
gram, n_rows = np.zeros((160, 160)), np.arange(250, 15_001, 250)
for count in n_rows:
    rows = rng.standard_normal((250, 160)) * scales
    if count > 7_500:
        rows = 0.3 * rows @ turn
    gram += rows.T @ rows
    for method, sketch in sketches.items():
        B = sketch.update(rows).sketch()
        error = np.linalg.norm(gram - B.T @ B - sketch.alpha * np.eye(160), 2)
        errors[method].append(100 * error / sketch.squared_norm)
        bounds[method].append(100 * sketch.error_bound / sketch.squared_norm)

for method in sketches:
    half, end = errors[method][29], errors[method][-1]
    print(
        f"{method}: error {half:.2f} % after half of the rows, {end:.2f} % after all; bound {bounds[method][-1]:.2f} %"
    )

# %%
# The picture
# -----------
#
# The bound of Robust Frequent Directions is nearly its error. Truncation is a little more accurate as long as rows
# come in no order, but it cannot promise that, and does not follow when they turn.

figure, ax = plt.subplots()
for method, colour in (("rfd", "#0072B2"), ("isvd", "#D55E00")):
    ax.plot(n_rows, bounds[method], color=colour, linestyle="--", linewidth=1.5)
    ax.plot(n_rows, errors[method], color=colour, linewidth=4, alpha=0.5)
ax.text(1_000, 2.2, "truncation: bound", color="#D55E00")
ax.text(13_800, 1.45, "truncation: error", color="#D55E00", ha="right")
ax.text(1_000, 0.85, "fastsketch: bound and error", color="#0072B2")
ax.axvline(7_500, color="#999999", linewidth=1, linestyle=":")
ax.text(7_700, 0.1, "the rows turn", color="#555555")
ax.set(xlabel="rows", ylabel="% of the squared norm of A", xlim=(0, 15_000), ylim=(0, 4))
ax.set_title("The bound is nearly the error")
plt.show()

# %%
# **How sure is this?** That errors stay below their bounds is a theorem (rounding: an allowance). How near they are
# depends on the rows: ``sketch.audit(rows)`` measures it on yours. On rows that come in no order truncation is
# mostly the more accurate one, and where all A'A fits in memory neither is needed.
#
# **Next:** :doc:`components of a stream </jobs/components>`, and :doc:`how the bound is proved </how/certificate>`.
