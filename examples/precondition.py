"""Ridge regression on a stream: the sketch of its rows preconditions conjugate gradients."""

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

import fastsketch as fs


def main(n=3000, d=600):
    rng = np.random.default_rng(0)
    ridge = 1.0
    scales = np.logspace(2, -1, d)
    rows = rng.standard_normal((n, d)) * scales

    sketch = fs.RobustFrequentDirections(100, solver="gram").update(rows)
    system = LinearOperator((d, d), matvec=lambda v: rows.T @ (rows @ v) + ridge * v, dtype=float)
    target = rows.T @ rng.standard_normal(n)

    counts = {}
    for name, m in (("plain", None), ("preconditioned", sketch.operator(inverse=True, alpha=sketch.alpha + ridge))):
        steps = []
        _, info = cg(system, target, M=m, rtol=1e-8, maxiter=5000, callback=steps.append)
        counts[name] = len(steps)
        print(f"{name:15s} {len(steps):5d} iterations{'' if info == 0 else ' (not converged)'}")
    return counts


if __name__ == "__main__":
    main()
