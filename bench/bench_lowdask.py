"""Low-rank models of rows in partitions on Dask: one worker and two, beside the fit of one process."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from bench_tools import few, fresh, resident, table

OPTIONS = {"rank": 10}
PARTITIONS = 4


def lowdask(args):
    """10 million generated observations, 80,000 x 10,000, in four files: seconds, objective, memory of the client."""
    count = few(1_000_000 if args.quick else 10_000_000, 20_000)
    paths = _write(args.scratch, count)
    try:
        input_mb = sum(path.stat().st_size for path in paths) / 1e6
        out, first = [], None
        for label, workers in (
            ("one process, 1 thread", -1),
            ("one process, 2 threads", -2),
            ("Dask, 1 worker", 1),
            ("Dask, 2 workers", 2),
        ):
            seconds, objective, mb = _measured(paths, workers, 1 if args.quick else 2)
            first = objective if first is None else first
            apart = abs(objective / first - 1)
            out.append([label, f"{min(seconds):.2f}", f"{np.median(seconds):.2f}", f"{apart:.0e}", f"{mb:.1f}",
                        f"{mb / input_mb:.1%}"])  # fmt: skip
            print(*out[-1], flush=True)
    finally:
        for path in paths:
            path.unlink()
    heads = ["fit", "s, least", "s, median", "objective apart", "MB beside imports", "of the data"]
    repeats = 1 if args.quick else 2
    table(out, heads, "main", runs=repeats, note=f"{count:,} observations, {input_mb:.0f} MB.")


def _write(folder, count):
    m, n, rank = 80_000, 10_000, 12
    rng = np.random.default_rng(0)
    one, two = (rng.standard_normal((size, rank)).astype(np.float32) for size in (m, n))
    popular = np.cumsum(1 / np.arange(1, n + 1.0) ** 0.7)
    paths = []
    for part in range(PARTITIONS):
        rows = np.sort(
            rng.integers(part * m // PARTITIONS, (part + 1) * m // PARTITIONS, int(1.2 * count / PARTITIONS))
        )
        columns = np.searchsorted(popular / popular[-1], rng.random(len(rows)))
        keys = np.unique(rows * n + columns)
        keys = np.sort(rng.permutation(keys)[: count // PARTITIONS])
        rows, columns = keys // n, keys % n
        values = 3 + 0.3 * np.einsum("kq,kq->k", one[rows], two[columns]) + 0.5 * rng.standard_normal(len(keys))
        counts = np.bincount(rows - part * m // PARTITIONS, minlength=m // PARTITIONS)
        path = folder / f"fastsketch-lowdask-{part}.npz"
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        np.savez(path, data=values.astype(np.float32), indices=columns.astype(np.int32), indptr=indptr, n=n)
        paths.append(path)
    return paths


def load(path):
    """The rows of a file."""
    with np.load(path) as file:
        indptr, n = file["indptr"], int(file["n"])
        return sparse.csr_array((file["data"], file["indices"], indptr), shape=(len(indptr) - 1, n))


def _measured(paths, workers, repeats):
    """(seconds of every fit, objective, MB that the fitting process took): in a process of its own."""
    job = Path(__file__), json.dumps([[str(path) for path in paths], workers, repeats])
    if workers < 0:
        return fresh(*job, "-")
    from distributed import LocalCluster

    os.environ["PYTHONPATH"] = os.pathsep.join([entry for entry in sys.path if entry])
    options = {"threads_per_worker": 1, "dashboard_address": None, "worker_dashboard_address": None}
    with LocalCluster(n_workers=workers, **options) as cluster:
        return fresh(*job, cluster.scheduler_address)


def main():
    import fastsketch as fs

    (paths, workers, repeats), address = json.loads(sys.argv[1]), sys.argv[2]
    small = sparse.random_array((40, 30), density=0.5, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    seconds = []
    if workers < 0:
        fs.LowRankModel(2).fit(small)
        first = resident()
        rows = sparse.csr_array(sparse.vstack([load(path) for path in paths], format="csr"))
        with fs.thread_limit(-workers):
            for _ in range(repeats):
                began = time.perf_counter()
                model = fs.LowRankModel(**OPTIONS).fit(rows)
                seconds.append(time.perf_counter() - began)
    else:
        from functools import partial

        from dask import delayed
        from distributed import Client, wait

        import fastsketch.jobs.dask as fsd
        from bench_lowdask import load as loader  # by the name that workers know

        with Client(address) as client:
            fsd.fit(fs.LowRankModel(2), [partial(sparse.csr_array, small)] * max(PARTITIONS, workers))
            first = resident()
            # loaded before the clock runs, as the rows of one process are
            workers = sorted(client.scheduler_info()["workers"])
            parts = [
                client.submit(loader, path, workers=[workers[k * len(workers) // len(paths)]])
                for k, path in enumerate(paths)
            ]
            wait(parts)

            for _ in range(repeats):
                began = time.perf_counter()
                model = fsd.fit(fs.LowRankModel(**OPTIONS), [delayed(part) for part in parts])
                seconds.append(time.perf_counter() - began)
    print(json.dumps([seconds, model.facts()["objective"], (resident("VmHWM") - first) / 1e6]))


if __name__ == "__main__":
    main()
