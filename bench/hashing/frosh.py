"""Kernels of FROSH and its section 5.1: Walsh-Hadamard, SRHT, FD against FFD."""

import time
from functools import partial

import numpy as np

import fastsketch as fs
from bench_tools import few, least, table
from benchmarks.rows import frosh_rows
from fastsketch import papers

KINDS = ("srht", "countsketch", "sparse", "gaussian", "sampling")


# -- fwht ------------------------------------------------------------------------------------------------------------
def numpy_fwht(x):
    """Butterflies between rows by whole-array operations of NumPy."""
    gap = 1
    while gap < len(x):
        pairs = x.reshape(-1, 2, gap, x.shape[1])
        high = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = high
        gap *= 2
    return x


def times_over(function, repeat):
    for _ in range(repeat):
        function()


def fwht(args):
    """Both axes and single vectors against a copy of the same array and plain NumPy."""
    rng = np.random.default_rng(0)
    out = []
    shapes = [(64, 784), (256, 784), (1024, 784), (4096, 512), (4096, 784), (16384, 1024), (65536, 256)]
    for dtype in (np.float64, np.float32):
        for shape in shapes[: few(3, 1)] if args.quick else shapes:
            x = rng.standard_normal(shape).astype(dtype)
            work, target = x.copy(), x.copy()
            runs = {
                "ours": lambda w=work: fs.sketching.fwht(w),
                "copy": lambda t=target, a=x: np.copyto(t, a),
                "numpy": lambda w=work: numpy_fwht(w),
            }
            times = least(runs, 3 if x.nbytes > 5e7 else 9)
            work[...] = x  # repeated transforms grow
            out.append(
                {
                    "between": "rows",
                    "shape": f"{shape[0]:,} x {shape[1]:,}",
                    "dtype": np.dtype(dtype).name,
                    "MB": f"{x.nbytes / 1e6:.1f}",
                    "ms": f"{times['ours'] * 1e3:.3f}",
                    "of a copy": f"{times['copy'] / times['ours']:.0%}",
                    "numpy / ours": f"{times['numpy'] / times['ours']:.1f}",
                }
            )
    for dtype in (np.float64, np.float32):
        for n in (1024, 65536, 1 << 20)[: few(3, 1)]:
            x = np.zeros(n, dtype)
            repeat = max(1, (1 << 20) // n)

            target, work = x.copy(), x.copy()
            runs = {"ours": lambda w=work: fs.sketching.fwht(w), "copy": lambda t=target, a=x: np.copyto(t, a)}
            times = least({name: partial(times_over, run, repeat) for name, run in runs.items()})
            out.append(
                {
                    "between": "vector",
                    "shape": f"{n:,}",
                    "dtype": np.dtype(dtype).name,
                    "MB": f"{x.nbytes / 1e6:.1f}",
                    "ms": f"{times['ours'] / repeat * 1e3:.4f}",
                    "of a copy": f"{times['copy'] / times['ours']:.0%}",
                    "numpy / ours": "",
                }
            )
    table(out, name="main", runs="the least of 5 in turn")


# -- srht ------------------------------------------------------------------------------------------------------------
def srht(args):
    """Every random map on one stream: time against one read of it, with and without centring; error, heavy rows too."""
    n, d = few(20_000 if args.quick else 70_000, 300), 784
    rng = np.random.default_rng(0)
    out = []
    for dtype in (np.float64, np.float32):
        rows = frosh_rows(n, d, rng, dtype)
        for q in (32, 64, 128)[: few(3, 1)]:
            runs = {"read": lambda a=rows: a.sum()}
            for kind in KINDS if dtype == np.float64 else KINDS[:1]:
                for center in (False, True):
                    runs[kind, center] = lambda k=kind, c=center, a=rows, q=q: compress_all(k, q, a, c)
            if dtype == np.float64:
                runs["full transform, then sampled"] = lambda a=rows, q=q: full_srht(a, q)
            times = least(runs, 3 if args.quick else 5)
            for name, value in times.items():
                if name != "read":
                    label = name if isinstance(name, str) else name[0]
                    center = "yes" if not isinstance(name, str) and name[1] else ""
                    out.append(
                        [np.dtype(dtype).name, q, label, center, f"{value * 1e3:.0f}", f"{value / times['read']:.2f}"]
                    )
    columns = ["dtype", "q of 4 d rows", "map", "centred", "ms", "in reads of A (sum)"]
    table(out, columns, "main", runs=f"the least of {3 if args.quick else 5} in turn")
    errors = []
    for name, rows in (("FROSH 5.1", frosh_rows(8192, 256, rng)), ("ten heavy rows", _heavy(rng))):
        truth = rows.T @ rows
        scale = np.linalg.norm(truth, 2)
        for q in (32, 128):
            cells = []
            for kind in KINDS:
                found = []
                for seed in range(few(5, 1)):
                    b = np.vstack(
                        [
                            fs.Compressor(kind, q, block_rows=1024, seed=seed).compress(rows[i : i + 1024], i // 1024)
                            for i in range(0, len(rows), 1024)
                        ]
                    )
                    found.append(np.linalg.norm(truth - b.T @ b, 2) / scale)
                cells.append(f"{np.mean(found):.3f}")
            errors.append([name, q, *cells])
    table(errors, ["rows (8,192 x 256)", "q of 1,024 rows", *KINDS], "error", runs="5 seeds, means")


def compress_all(kind, q, rows, center):
    """The random map alone, block after block, as a model runs it."""
    from fastsketch.sketching._random_maps import MappedBlock, sized

    d = rows.shape[1]
    sized_map = sized(fs.Compressor(kind, q), rows_out=q, n_features=d)
    block = MappedBlock(sized_map, d, dtype=rows.dtype, center=center, index=0)
    done = 0
    while done < len(rows):
        done += block.add(rows[done:], offset=done)
        if block.room == 0:
            block.close()
            block.restart(block.index + 1)


def full_srht(rows, q):
    """The transform of whole blocks in a buffer, then row picking: the way without the block structure."""
    m = 4096
    rng = np.random.default_rng(0)
    space = np.empty((m, rows.shape[1]), rows.dtype)
    for start in range(0, len(rows), m):
        part = rows[start : start + m]
        np.multiply(part, rng.choice([-1.0, 1.0], len(part))[:, np.newaxis], out=space[: len(part)])
        space[len(part) :] = 0
        fs.sketching.fwht(space)
        space[rng.choice(m, q, replace=False)].copy()


def _heavy(rng):
    rows = rng.standard_normal((8192, 256))
    rows[rng.choice(8192, 10, replace=False)] *= 100
    return rows


# -- FROSH section 5.1 -----------------------------------------------------------------------------------------------
def relative_error(truth, b, norm):
    return np.linalg.norm(truth - b.T @ b, 2) / norm


def frosh(args):
    """Relative error ||A'A - B'B||_2 / ||A||_F^2 and time of FD and FFD, m = tau d, each axis of the paper in turn."""
    base = {"l": 64, "d": 256, "n": 100_000}
    axes = {
        "l": (16, 32, 64, 100, 128, 200, 256),
        "d": (64, 128, 256, 512),
        "n": (50_000, 100_000, 200_000, 500_000, 1_000_000),
    }
    if args.quick:
        axes = {"l": (16, 64), "d": (64, 256), "n": (50_000, 100_000)}
    out = []
    for axis, values in axes.items():
        for value in values:
            size = {**base, axis: value}
            q, d, n = size["l"] // 2, size["d"], few(size["n"], 2000)
            rows = frosh_rows(n, d, np.random.default_rng(1))
            truth, norm = rows.T @ rows, float((rows**2).sum())
            found = {}

            def timed(name, make, rows=rows, truth=truth, norm=norm, found=found):
                times, sketch = [], None
                for _ in range(2):
                    start = time.process_time()
                    sketch = make().update(rows)
                    b = sketch.sketch()
                    times.append(time.process_time() - start)
                found[name] = (relative_error(truth, b, norm), min(times))

            # the same l rows for both: FD's doubled buffer holds l / 2 kept rows, and so does FFD's
            timed("FD", lambda q=q: papers.fast_frequent_directions(q, solver="gram"))
            for tau in (1, 2, 4, 8):
                call = partial(papers.faster_frequent_directions, block_rows=max(tau * d, q), solver="gram")
                timed(f"FFD m={tau}d", lambda q=q, call=call: call(q))
            timed("exact", lambda q=q: fs.FrequentDirections(q, method="fd", solver="exact"))
            fd = found["FD"]
            for name, (error, t) in found.items():
                out.append(
                    {
                        "varied": axis,
                        "value": f"{value:,}",
                        "method": name,
                        "relative error": f"{error:.2e}",
                        "/ FD": f"{error / fd[0]:.2f}",
                        "ms": f"{t * 1e3:,.0f}",
                        "FD / this": f"{fd[1] / t:.1f}",
                    }
                )
            print(axis, value, {k: (f"{e:.2e}", f"{t:.3f} s") for k, (e, t) in found.items()}, flush=True)
    note = f"Unless varied, {' and '.join(f'{name} = {size:,}' for name, size in base.items())}."
    table(out, name="main", runs="1 stream; times: the least of 2", note=note)
