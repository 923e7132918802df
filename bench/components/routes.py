"""Coefficients of the model of costs by which SketchedPCA chooses how it finds components."""

import time

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dsyrk

import fastsketch as fs
from bench_tools import few, table
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch.sketching._leading_pairs import leading
from fastsketch.sketching._whole import column_products, row_steps
from fastsketch.sklearn import _routes


def _cpu(function, repeats=3):
    """Processor seconds, the least of some runs: neighbours on the machine count less than in wall time."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def _sketch(size, solver="gram"):
    return fs.FrequentDirections(size, method="tfd", solver=solver, center=True)


def _two(seconds_at, small, large):
    """(a, b) of seconds = a + b size, from two sizes."""
    slope = (seconds_at(large) - seconds_at(small)) / (large - small)
    return seconds_at(small) - slope * small, slope


def _measured(rng):
    """{name of a coefficient: what it is here}."""
    out = {}
    d, side = few(2048, 256), few(1000, 100)
    rows, total = rng.standard_normal((512, d)), np.zeros((d, d), order="F")
    out["DENSE_STEP"] = _cpu(lambda: dsyrk(1.0, rows.T, beta=1.0, c=total, lower=1, overwrite_c=1)) / rows.size / d
    falling = rng.standard_normal((2 * d, d)) * np.arange(1, d + 1) ** -0.5
    gram = falling.T @ falling
    part = np.ascontiguousarray(gram[:side, :side])
    out["EIGH"] = _cpu(lambda: top_eigh(part.copy(), 10)) / side**3
    constant, slope = _two(lambda k: _cpu(lambda: leading(gram, k)), 10, 60)
    out["LANCZOS"], out["LANCZOS_PAIR"] = constant / gram.size, slope / gram.size

    n, d = few(4000, 400), few(4096, 300)
    rows = rng.standard_normal((n, 40)) @ rng.standard_normal((40, d)) + 0.3 * rng.standard_normal((n, d))
    learned = {size: _sketch(size).update(rows) for size in (20, 74)}
    constant, slope = _two(
        lambda size: _cpu(lambda: _sketch(size).update(rows)) - _routes.SHRINK_ROW * n * size, *learned
    )
    out["SKETCH_ENTRY"], out["SKETCH_PAIR"] = constant / rows.size, slope / rows.size
    read = {size: _cpu(sketch._overview) for size, sketch in learned.items()}
    out["READ"] = read[74] / (d * 74**2)
    # the dense part of a second pass: of few rows
    short = {size: _sketch(size).update(rows[:100]) for size in learned}
    out["AGAIN"] = _cpu(lambda: short[74].copy().refine(rows[:100])) / (d * 74**2)
    constant, slope = _two(
        lambda size: _cpu(lambda: learned[size].copy().refine(rows)) - out["AGAIN"] * d * size**2, *learned
    )
    out["PASS_ENTRY"], out["PASS_PAIR"] = constant / rows.size, slope / rows.size

    wide = sparse.random(few(20_000, 2_000), 1_000, 0.02, format="csr", random_state=0)
    setting = fs.FrequentDirections(8, solver="exact", center=True)._setting
    left = _cpu(lambda: column_products(wide, None, setting)) - _routes.SPARSE_OUT * 1e6
    out["SPARSE_STEP"] = left / row_steps(wide)
    return out


def routes(args):
    """Measure the coefficients of fastsketch/sklearn/_routes.py on this machine."""
    rng = np.random.default_rng(0)
    found = _measured(rng)
    table(
        [
            [name, f"{getattr(_routes, name):.1e}", f"{value:.1e}", f"{value / getattr(_routes, name):.2f}"]
            for name, value in found.items()
        ],
        ["coefficient", "in the model, s", "here, s", "ratio"],
        "coefficients",
        runs="the least of 3",
    )
