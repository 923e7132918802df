"""Where the time of one shrink goes: each stage on the shapes of a sketch, outside of it."""

import importlib.util
import tempfile
from pathlib import Path

import numpy as np

from bench_tools import ROOT, gemm_rate, seconds, table
from benchmarks.rows import frosh_rows


def built(folder):
    """The module of bench/stages.pyx, built in a folder: it calls the kernels that are installed."""
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
    """Time of each stage of a Gram shrink, measured on the same shapes outside the sketch."""
    from fastsketch._kernels.sketching import dense

    out = []
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
                out.append(
                    [
                        d,
                        size,
                        np.dtype(dtype).name,
                        *(f"{parts[k] * 1e3:.2f}" for k in parts),
                        f"{total * 1e3:.2f}",
                        f"{ideal * 1e3:.2f}",
                        f"{ideal / total:.0%}",
                        f"{total / (total - parts['rotate'] + half):.2f}",
                    ]
                )
    columns = [*(f"{k}, ms" for k in parts), "sum, ms", "7 d l (l+1) at GEMM rate, ms", "share"]
    columns.append("times as fast with half of the rotation")
    table(out, ["d", "l", "dtype", *columns], "main", runs="the least of 12 to 30")
