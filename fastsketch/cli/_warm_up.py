"""warm-up: compile once, where a container's image is made, what a first update or fit compiles."""

import time
from argparse import Namespace

from fastsketch.cli._job import limited
from fastsketch.cli._report import report


def warm_up(args: Namespace) -> None:
    """Compile everything that any model compiles, and say what is kept, and where."""
    from fastsketch._kernels import jit
    from fastsketch._kernels.lowrank import products
    from fastsketch._kernels.online import projection

    begun = time.perf_counter()
    with limited(args.threads):
        projection.addresses(*(function.__name__ for function in projection.SIGNATURES))
        for dtype in ("float32", "float64"):
            products.address(dtype)
    folders = "all was there" if jit.counts["compiled"] == 0 else "none can be written to: each process compiles"
    report(
        args,
        {
            "compiled": jit.counts["compiled"],
            "kept": jit.counts["kept"],
            "read": jit.counts["read"],
            "folders": sorted(jit.folders) or folders,
            "seconds": time.perf_counter() - begun,
        },
    )
