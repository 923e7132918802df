"""Whole calls at each level of instructions, with BLAS and Numba held to the same instruction set."""

import json
import os

import numpy as np

import bench_tools
from bench_tools import ROOT, few, fresh, rival, seconds, table

# What makes a machine of less: for the C kernels, for OpenBLAS, for Numba.
MACHINES = {
    "AVX-512": {},
    "AVX2": {"FASTSKETCH_LEVEL": "avx2", "OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell"},
    "SSE2": {"FASTSKETCH_LEVEL": "sse2", "OPENBLAS_CORETYPE": "Nehalem", "NUMBA_CPU_NAME": "nehalem"},
}
# A folder with another build, to be run in turn with this one on the machine as it is: older ones know no levels.
OLD = "FASTSKETCH_OLD"


def processors(args):
    """Seconds, and shares of GEMM, of this build and of the one in the folder FASTSKETCH_OLD, machine by machine."""
    builds = {"new": None}
    if os.environ.get(OLD):
        builds["old"] = os.environ[OLD]
    found = {}
    for _ in range(1 if args.quick else 3):
        for machine, settings in MACHINES.items():
            for build, folder in builds.items():
                if folder and settings:
                    continue
                code = f"import sys; sys.path.insert(1, {str(ROOT / 'bench')!r}); from kernels import processors as b; "
                code += f"b.work({args.tiny})"
                older = {"PYTHONPATH": folder} if folder else {}
                for name, value in fresh(code, **{"OPENBLAS_CORETYPE": None} | settings | older).items():
                    found.setdefault((name, machine, build), []).append(value)
    names = dict.fromkeys(name for name, _, _ in found)
    rows = []
    for name in names:
        row = [name]
        for machine in MACHINES:
            for build in builds if not MACHINES[machine] else ("new",):
                values = found.get((name, machine, build), [])
                row.append(f"{np.median(values):.3g} ({min(values):.3g} .. {max(values):.3g})" if values else "")
        rows.append(row)
    columns = ["what", *(f"AVX-512, {build}" for build in builds), *list(MACHINES)[1:]]
    table(rows, columns, "main", runs=f"{1 if args.quick else 3} rounds, median (lowest .. highest)")


def _best(function, repeats):
    return 1e3 * min(seconds(function) for _ in range(repeats))


def work(tiny):
    """Print a line of JSON: shares in per cent, times in milliseconds."""
    bench_tools.tiny = tiny
    import scipy.sparse as sp

    import fastsketch as fs

    rng = np.random.default_rng(0)
    out = {}
    for d, size, dtype in (
        (2048, 64, np.float64),
        (8192, 64, np.float64),
        (2048, 64, np.float32),
        (8192, 32, np.float32),
        (8192, 64, np.float32),
    )[: few(5, 1)]:
        rows = rng.standard_normal((20 * size, d)).astype(dtype)
        sketch = fs.FrequentDirections(size, method="fd", solver="gram").update(rows[: 3 * size])
        shares = []
        for _ in range(4):
            a = np.asfortranarray(rng.standard_normal((few(1200, 200), few(1200, 200))), dtype)
            limit = 2 * len(a) ** 3 / min(seconds(lambda a=a: _gemm(a)) for _ in range(3))
            spent = min(seconds(lambda rows=rows, sketch=sketch: sketch.update(rows)) for _ in range(2))
            shares.append(100 * 7 * d * size * len(rows) / spent / limit)
        out[f"FD d = {d:,}, l = {size}, {np.dtype(dtype).name}: % of GEMM"] = float(np.median(shares))
    x, y = rng.standard_normal((300, 4000)), np.sign(rng.standard_normal(300))
    newton = fs.SketchedNewton(20).update(x[:100], y[:100])
    out["Newton, dense, d = 4,000, 300 rows: ms"] = _best(lambda: newton.copy().update(x, y), 5)
    n = few(30_000, 1000)
    i, j = rng.integers(0, 900, n), rng.integers(0, 700, n)
    left, right = rng.standard_normal((900, 5)), rng.standard_normal((700, 5))
    values = (left[i] * right[j]).sum(1) + 0.1 * rng.standard_normal(n)
    matrix = sp.coo_array((values, (i, j)), shape=(900, 700)).tocsr()
    fs.LowRankModel(loss="huber").fit(matrix)
    out["LowRankModel huber, 30,000 entries: ms"] = _best(lambda: fs.LowRankModel(loss="huber").fit(matrix), 3)
    faiss = rival("faiss")
    for bits in (64, 128, 256):
        codes = rng.integers(0, 256, (few(200_000, 2000), bits // 8), dtype=np.uint8)
        queries = codes[:50].copy()
        out[f"Hamming top-k, 200,000 x {bits} bits, 50 queries: ms"] = _best(
            lambda q=queries, c=codes: fs.hamming_topk(q, c, k=10), 5
        )
        if faiss is not None:
            index = faiss.IndexBinaryFlat(bits)
            index.add(codes)
            out[f"the same, faiss {bits} bits"] = _best(lambda q=queries, index=index: index.search(q, 10), 5)
    print(json.dumps(out))


def _gemm(a):
    from scipy.linalg import blas

    return (blas.dgemm if a.dtype == np.float64 else blas.sgemm)(1.0, a, a)
