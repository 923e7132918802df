"""Where the time of one shrink goes: each stage on the shapes of a sketch, outside of it."""

import importlib.util
import tempfile
from pathlib import Path

import numpy as np

from bench_tools import ROOT, few, gemm_rate, seconds, table
from benchmarks.rows import frosh_rows


def built(folder):
    """The module of stages.pyx, built in a folder: it calls the kernels that are installed."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    extension = Extension("stages", [str(Path(__file__).with_suffix(".pyx"))], extra_compile_args=["-O2", "-w"])
    modules = cythonize(
        [extension],
        include_path=[str(ROOT)],
        build_dir=folder,
        quiet=True,
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True},
    )
    command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
    command.build_lib = command.build_temp = folder
    command.ensure_finalized()
    command.run()
    specification = importlib.util.spec_from_file_location("stages", next(Path(folder).glob("stages.*.so")))
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def stages(args):
    """Time of each stage of a Gram shrink, measured on the same shapes outside the sketch, and the limit of each."""
    from fastsketch._kernels.sketching import dense

    out, limits, shares = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        time_stages = built(folder).time_stages
        for d, size in [(2048, 64), (2048, 128), (2048, 256), (8192, 64), (8192, 128)][: 1 if args.quick else None]:
            for dtype in (np.float64, np.float32):
                rows = frosh_rows(6 * size, d, np.random.default_rng(0), dtype)
                limit = gemm_rate(dtype)
                parts = time_stages(rows[: 2 * size].copy(), size, 30 if d < 4000 else 12)
                block = rows[: size + 1]
                half = parts.pop("rotate half")
                parts["check and load"] = min(seconds(lambda b=block: dense.scan(b)) for _ in range(20)) * 2
                total = sum(parts.values())
                ideal = 7 * d * size * (size + 1) / limit
                case = [d, size, np.dtype(dtype).name]
                out.append(
                    [
                        *case,
                        *(f"{parts[k] * 1e3:.2f}" for k in parts),
                        f"{total * 1e3:.2f}",
                        f"{ideal * 1e3:.2f}",
                        f"{ideal / total:.0%}",
                        f"{total / (total - parts['rotate'] + half):.2f}",
                    ]
                )
                shape_rate = rate_at_shape(rows[: 2 * size], size)
                least = limits_of(rows[: 2 * size], size, shape_rate, limit)
                limits.append([*case, *(f"{least[k] * 1e3:.2f} ({least[k] / parts[k]:.0%})" for k in parts)])
                shares.append([*case, f"{limit / 1e9:.0f}", f"{shape_rate / 1e9:.0f}", *share_of_update(rows, size)])
    columns = [*(f"{k}, ms" for k in parts), "sum, ms", "7 d l (l+1) at GEMM rate, ms", "share"]
    columns.append("times as fast with half of the rotation")
    table(out, ["d", "l", "dtype", *columns], "main", runs="the least of 12 to 30")
    note = (
        "The limit of a product is its operations at the rate of gemm: for the shape of the buffer in the columns Gram "
        "and rotate, for square matrices elsewhere. The limit of the reduction is to read and write the lower triangle "
        "once per reflection, that of check and load one copy. In brackets: the limit as a share of the time."
    )
    table(limits, ["d", "l", "dtype", *(f"{k}, ms" for k in parts)], "limits", runs="the least of 20", note=note)
    heads = ["square gemm, GFLOP/s", "gemm of this shape, GFLOP/s", "share of the square rate", "share of this shape"]
    table(shares, ["d", "l", "dtype", *heads], "update", runs="medians of 11 pairs in turn")


def rate_at_shape(buffer, size):
    """Return the flops per second of the better of the two products of a shrink, by gemm."""
    from scipy.linalg import blas

    gemm = blas.dgemm if buffer.dtype == np.float64 else blas.sgemm
    columns = buffer.T  # Fortran order, (d, m)
    turn = np.asfortranarray(np.ones((len(buffer), size)), buffer.dtype)
    out = np.zeros((columns.shape[0], size), buffer.dtype, order="F")
    by_turn = min(seconds(lambda: gemm(1.0, columns, turn, c=out, overwrite_c=1)) for _ in range(20))
    by_gram = min(seconds(lambda: gemm(1.0, columns, columns, trans_a=1)) for _ in range(20))
    return max(2 * columns.size * size / by_turn, 2 * columns.size * len(buffer) / by_gram)


def limits_of(buffer, size, shape_rate, square_rate):
    """Return {stage: the seconds below which it cannot be}, by counts of operations and by bandwidth."""
    m, d = buffer.shape
    fresh = m - size + 1
    triangle = np.ones(m * m // 2, buffer.dtype)
    once = min(seconds(lambda: np.multiply(triangle, 1.0, out=triangle)) for _ in range(20))
    block = buffer[:fresh].copy()
    return {
        "Gram": 2 * d * (fresh * (fresh + 1) / 2 + fresh * (m - fresh)) / shape_rate,
        "tridiagonal": once * m / 3,  # triangles of m, m - 1, .. rows
        "divide and conquer": 5 / 6 * m**3 / square_rate,  # the products of all merges, without deflation
        "back": 2 * m * m * size / square_rate,
        "rotate": 2 * d * m * size / shape_rate,
        "check and load": min(seconds(lambda: np.copyto(block, buffer[:fresh])) for _ in range(20)),
    }


def share_of_update(rows, size):
    """Return the time that 7 d l operations a row take at the rate of gemm, as shares of that of an update: texts."""
    import fastsketch as fs

    sketch, d, n = fs.FrequentDirections(size, solver="gram"), rows.shape[1], 4 * (size + 1)
    sketch.update(rows)
    found = []
    for _ in range(few(11, 1)):
        rates = gemm_rate(rows.dtype), rate_at_shape(rows[: 2 * size], size)
        spent = seconds(lambda: sketch.update(rows[:n]))
        found.append([7 * d * size * n / rate / spent for rate in rates])
    return [f"{np.median(share):.0%} ({min(share):.0%} to {max(share):.0%})" for share in zip(*found, strict=True)]
