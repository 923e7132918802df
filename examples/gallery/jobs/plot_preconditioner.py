"""
A preconditioner from one pass
==============================

**How many passes over the rows does a ridge regression take?** Each step of conjugate gradients reads all rows
once. A sketch, made in one pass, is a preconditioner: ``sketch.operator(inverse=True)`` is what ``scipy`` calls M.
The simple rival costs one pass, too: the diagonal (Jacobi).
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

import fastsketch as fs

rng = np.random.default_rng(0)
d, ridge = 400, 1.0
scales = np.concatenate([np.logspace(3, 1, 40), np.ones(d - 40)])  # 40 strong directions
rows = rng.standard_normal((3_000, d)) * scales @ np.linalg.qr(rng.standard_normal((d, d)))[0]
wanted = rng.standard_normal(d)
system = LinearOperator((d, d), matvec=lambda v: rows.T @ (rows @ v) + ridge * v, dtype=float)
target = system @ wanted

# %%
# Three solutions
# ---------------

sketch = fs.FrequentDirections(60, solver="gram").update(rows)
diagonal = (rows**2).sum(axis=0) + ridge
preconditioners = {
    "none": None,
    "diagonal": LinearOperator((d, d), matvec=lambda v: v / diagonal, dtype=float),
    "sketch": sketch.operator(inverse=True, alpha=sketch.alpha + ridge),
}
residuals = {}
for name, M in preconditioners.items():
    solutions = [np.zeros(d)]
    cg(system, target, M=M, rtol=1e-8, callback=lambda x, solutions=solutions: solutions.append(x.copy()))
    residuals[name] = [np.linalg.norm(system @ x - target) / np.linalg.norm(target) for x in solutions]
    print(f"{name:10s} {len(solutions) - 1:5d} steps")

# %%
# The picture
# -----------
#
# Where directions differ much in length and lie across the columns the diagonal is of no use.

figure, ax = plt.subplots()
for values, colour in zip(residuals.values(), ("#999999", "#D55E00", "#0072B2"), strict=True):
    ax.plot(values, color=colour)
ax.set(xlabel="steps, each a pass over the rows", ylabel="residual", yscale="log")
ax.legend(residuals, frameon=False)
ax.set_title("Conjugate gradients, preconditioned")
plt.show()

# %%
# **How sure is this?** It rests on a few strong directions and a flat rest: what the sketch does not keep decides
# the number of steps. Where lengths fall evenly over many powers of ten a sketch saves a part of the steps, no
# more. With as few columns as here a factorization of A'A is the answer.
#
# **Next:** :doc:`components of a stream </jobs/components>`.
