"""warm-up: compile once, where a container's image is made, what a first update or fit compiles."""

import time
from argparse import Namespace

import numpy as np

import fastsketch as fs
from fastsketch.cli._job import limited
from fastsketch.cli._report import report


def warm_up(args: Namespace) -> None:
    """Compile everything that any model compiles, and say what is kept, and where."""
    from fastsketch._kernels import jit
    from fastsketch._kernels.online import projection

    begun = time.perf_counter()
    with limited(args.threads):
        projection.addresses(*(function.__name__ for function in projection.SIGNATURES))
        _fit_low_rank()
    report(
        args,
        {
            "compiled": jit.counts["compiled"],
            "kept": jit.counts["kept"],
            "read": jit.counts["read"],
            "folders": sorted(jit.folders) or "none can be written to: every process compiles for itself",
            "seconds": time.perf_counter() - begun,
        },
    )


def _fit_low_rank() -> None:
    """Small models that between them run every loop of Numba, in both precisions."""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        for shape in ((24, 24), (24, 6)):  # eight singular vectors at once, and one
            X = np.where(rng.random(shape) < 0.6, rng.standard_normal(shape), np.nan).astype(dtype)
            fs.LowRankModel(2, loss="huber", sweeps=0).fit(X)
            fs.LowRankModel(2, loss="huber", sweeps=0, refine="full").fit(X)
            fs.LowRankModel(2, loss="absolute", sweeps=0).fit(X)
