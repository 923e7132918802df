"""Ways to principal components: what each costs and gives, and the coefficients of the model that chooses."""

import time

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dsyrk

import fastsketch as fs
from bench_tools import table
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch.sketching._leading_pairs import leading
from fastsketch.sketching._whole import RowProducts, column_products, row_steps
from fastsketch.sklearn import SketchedPCA, _routes
from fastsketch.sklearn._routes import by_columns, by_rows, by_sketch, choose, problem_of


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
    rows, total = rng.standard_normal((512, 2048)), np.zeros((2048, 2048), order="F")
    out["DENSE_STEP"] = _cpu(lambda: dsyrk(1.0, rows.T, beta=1.0, c=total, lower=1, overwrite_c=1)) / rows.size / 2048
    falling = rng.standard_normal((4096, 2048)) * np.arange(1, 2049) ** -0.5
    gram = falling.T @ falling
    part = np.ascontiguousarray(gram[:1000, :1000])
    out["EIGH"] = _cpu(lambda: top_eigh(part.copy(), 10)) / 1000**3
    constant, slope = _two(lambda k: _cpu(lambda: leading(gram, k)), 10, 60)
    out["LANCZOS"], out["LANCZOS_PAIR"] = constant / gram.size, slope / gram.size

    n, d = 4000, 4096
    rows = rng.standard_normal((n, 40)) @ rng.standard_normal((40, d)) + 0.3 * rng.standard_normal((n, d))
    learned = {size: _sketch(size).update(rows) for size in (20, 74)}
    constant, slope = _two(
        lambda size: _cpu(lambda: _sketch(size).update(rows)) - _routes.SHRINK_ROW * n * size, *learned
    )
    out["SKETCH_ENTRY"], out["SKETCH_PAIR"] = constant / rows.size, slope / rows.size
    read = {size: _cpu(sketch._overview) for size, sketch in learned.items()}
    out["READ"] = read[74] / (d * 74**2)
    # the dense part of a second pass: of few rows
    few = {size: _sketch(size).update(rows[:100]) for size in learned}
    out["AGAIN"] = _cpu(lambda: few[74].copy().refine(rows[:100])) / (d * 74**2)
    constant, slope = _two(
        lambda size: _cpu(lambda: learned[size].copy().refine(rows)) - out["AGAIN"] * d * size**2, *learned
    )
    out["PASS_ENTRY"], out["PASS_PAIR"] = constant / rows.size, slope / rows.size

    few = sparse.random(20_000, 1_000, 0.02, format="csr", random_state=0)
    setting = fs.FrequentDirections(8, solver="exact", center=True)._setting
    left = _cpu(lambda: column_products(few, None, setting)) - _routes.SPARSE_OUT * 1e6
    out["SPARSE_STEP"] = left / row_steps(few)
    return out


def _by(way, rows, k, size):
    """A function that goes one way and reads k components, for the processor's clock."""

    def run():
        if way == "sketch":
            return SketchedPCA(k, sketch_size=size, max_memory=0).fit(rows)
        sketch = _sketch(size, "exact" if way == "columns" else "gram")
        if way == "columns":
            whole = column_products(rows, None, sketch._setting)
        else:
            whole = RowProducts(rows, None, center=True).whole(sketch._setting)
        sketch._begin_with(whole.engine, whole.certain_high)
        return sketch._overview(k)

    return run


def routes(args):
    """The coefficients of fastsketch/sklearn/_routes.py, and what the model says against what is measured."""
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
    out = []
    shapes = [(200, 10_000, 10), (1_427, 4_322, 10), (20_000, 784, 10), (8_000, 2_048, 32), (6_000, 4_096, 10)]
    for n, d, k in shapes[:2] if args.quick else shapes:
        signal = rng.standard_normal((n, 50)) * np.arange(1, 51) ** -0.5
        rows = 8 * signal @ rng.standard_normal((50, d)) / np.sqrt(50) + 0.3 * rng.standard_normal((n, d))
        p = problem_of(rows, k=k, size=2 * k + 10)
        for route in (by_rows(p), by_columns(p), by_sketch(p, passes=2)):
            told = route.seconds
            if told > 15:
                out.append([f"{n:,} x {d:,}", k, route.way, f"{told:.2f}", "", "", ""])
                continue
            took = _cpu(_by(route.way, rows, k, p.size), 2)
            taken = "x" if choose(p, max_memory=1e9).way == route.way else ""
            out.append(
                [f"{n:,} x {d:,}", k, route.way, f"{told:.2f}", f"{took:.2f}", f"{route.bytes / 1e6:.0f}", taken]
            )
    columns = ["rows", "components", "way", "model, s", "measured, s", "model, MB", "taken"]
    table(out, columns, "main", runs="the least of 2")
