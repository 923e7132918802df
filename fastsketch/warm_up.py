"""``python -m fastsketch.warm_up``: a command that compiles ahead of time what models compile at their first call.

The first update of a SketchedNewton and the first fit of a LowRankModel compile loops by Numba, and keep them in
NUMBA_CACHE_DIR or the user's cache folder. Run this once when the image of a container is built: its processes then
read the compiled loops, even where nothing can be written. It prints one line of JSON.
"""

import json
import time

__all__ = ["main"]


def main() -> None:
    """Compile all Numba loops ahead of time, and print counts, cache folders and seconds as a line of JSON."""
    from fastsketch._kernels import jit
    from fastsketch._kernels.lowrank import block_loop
    from fastsketch._kernels.online import projection

    started = time.perf_counter()
    for function in projection.SIGNATURES:
        projection.address(function)
    for dtype in ("float32", "float64"):
        block_loop.address(dtype)
    facts = {name: jit.counts[name] for name in ("compiled", "kept", "read")}
    print(json.dumps({**facts, "folders": sorted(jit.folders), "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
