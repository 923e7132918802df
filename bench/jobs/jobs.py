"""Jobs on one and two cores: what fs.run reaches of two one-core runs of the same work side by side.

Each line of the table is one kind of work. "side by side": seconds of two processes on one thread each, each over half
of the rows by a plain loop over chunks, which is the most that two cores give. fs.run reads all rows. A column has its
rate by that of the two side by side, and behind it the processor seconds of the two by those of the job, starts of
processes included: what is left of the rate where nobody else is at work. Clocks begin when the library is imported,
in the workers of the Dask cluster, too; processes are begun by the job. All runs of a kind are interleaved, and the
median of their ratios stands.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np

from bench_tools import few, table

D = 1024
WORK = ("sketch", "exact", "hash", "encode", "items")
USERS, ITEMS = 2_000_000, 20_000


def template(work):
    """The model of a kind of work."""
    import fastsketch as fs

    return {
        "sketch": lambda: fs.FrequentDirections(64),
        "exact": lambda: fs.FrequentDirections(64, solver="exact"),
        "hash": lambda: fs.SketchHash(64),
        "items": lambda: fs.SketchedEASE(64),
    }[work]()


def encoder(folder):
    """A hash that has learned."""
    import fastsketch as fs

    path = folder / "hash.fsk"
    if not path.exists():
        rows = np.load(folder / "rows.npy", mmap_mode="r")[: 64 * D]
        fs.SketchHash(64).update(rows).save(path)
    return fs.load(path)


def rows_of(folder, work):
    import fastsketch as fs

    return fs.open_rows(folder / ("users.npz" if work == "items" else "rows.npy"))


# -- what runs in processes of its own -------------------------------------------------------------------------------
def half(folder, work, which):
    """One core's work on a half of the rows, as anybody would write it; returns the seconds of the loop."""
    import fastsketch as fs

    source = rows_of(folder, work)
    middle = source.n_rows // 2
    part = source.between(0, middle) if which == 0 else source.between(middle, source.n_rows)
    with fs.thread_limit(1):
        model = encoder(folder) if work == "encode" else template(work)
        begun = time.perf_counter()
        codes = []
        for rows in part:
            if work == "encode":
                codes.append(model.encode(rows))
            else:
                model.update(rows)
        if work == "encode":
            np.save(folder / f"codes-{which}.npy", np.vstack(codes))
    return time.perf_counter() - begun


def job(folder, work, engine, workers):
    """fs.run, or fs.map_rows, over all rows."""
    import fastsketch as fs

    client = None
    if engine == "dask":
        from dask import config
        from distributed import Client, LocalCluster

        # as docs/jobs/many-cores.md says
        environment = {"MALLOC_TRIM_THRESHOLD_": 128 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}
        with config.set({f"distributed.nanny.pre-spawn-environ.{key}": n for key, n in environment.items()}):
            client = Client(LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None))
        for room in ("sketching", "neighbours.hashing", "recommending"):
            client.run(import_module, f"fastsketch.{room}")
    begun = time.perf_counter()
    options = {"workers": workers, "engine": engine, "progress": False}
    if work == "encode":
        fs.map_rows(encoder(folder).encode, rows_of(folder, work), output=folder / "codes.npy", **options)
    elif workers == 1:
        with fs.thread_limit(1):
            fs.run(template(work), rows_of(folder, work), **options)
    else:
        fs.run(template(work), rows_of(folder, work), **options)
    seconds = time.perf_counter() - begun
    if client is not None:
        client.shutdown()
    return seconds


def child(folder, *args):
    command = [sys.executable, "-W", "ignore", "-P", __file__, str(folder), *map(str, args)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def seconds_of(*processes):
    """(the longest time that one of these says, processor seconds of all and of their children)."""
    said, used = [], 0.0
    for process in processes:
        with process.stdout:
            said.append(json.loads(process.stdout.read().splitlines()[-1]))
        _, process.returncode, usage = os.wait4(process.pid, 0)
        if process.returncode:
            raise SystemExit("a run has failed")
        used += usage.ru_utime + usage.ru_stime
    return max(said), used


def write_rows(folder, n_rows):
    path = folder / "rows.npy"
    if not path.exists():
        rng, scale = np.random.default_rng(0), np.linspace(2, 0.1, D, dtype=np.float32)
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, D))
        for start in range(0, n_rows, 8192):
            rows[start : start + 8192] = rng.standard_normal((len(rows[start : start + 8192]), D), np.float32) * scale
        del rows


def write_users(folder, n_users):
    from scipy import sparse

    path = folder / "users.npz"
    if not path.exists():
        rng = np.random.default_rng(1)
        counts = rng.integers(5, 60, n_users)
        columns = (ITEMS * rng.random(counts.sum()) ** 2).astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        users = sparse.csr_array((np.ones(len(columns), np.float32), columns, indptr), shape=(n_users, ITEMS))
        users.sum_duplicates()
        sparse.save_npz(path, users, compressed=False)


# -- the table -------------------------------------------------------------------------------------------------------
def jobs(args):
    """The table of rates and processor time by those of two one-core runs side by side."""
    folder = args.scratch / "fastsketch-jobs"
    folder.mkdir(exist_ok=True)
    n_rows, repeats = (few(1 << 17, 1 << 11), 1) if args.quick else (1 << 20, 3)
    write_rows(folder, n_rows)
    write_users(folder, few(USERS // (8 if args.quick else 1), 2000))
    encoder(folder)
    runs = [("processes", 1), ("processes", 2), ("threads", 2), ("dask", 2)]
    if os.environ.get("ENGINES"):
        runs = [run for run in runs if run[0] in os.environ["ENGINES"].split(",")]
    lines = []
    for work in os.environ.get("WORK", ",".join(WORK[: few(9, 1)])).split(","):
        pairs, found = [], {run: [] for run in runs}
        for _ in range(repeats):
            best, busy = seconds_of(child(folder, "half", work, 0), child(folder, "half", work, 1))
            pairs.append(best)
            for engine, n in runs:
                seconds, used = seconds_of(child(folder, "job", work, engine, n))
                found[engine, n].append((best / seconds, busy / used))
        lines.append([work, f"{statistics.median(pairs):.2f}", *(_shares(found[run]) for run in runs)])
        print(*lines[-1], flush=True)
    columns = ["work", "side by side, s", *(f"{engine}, {n}" for engine, n in runs)]
    note = (
        "A cell has the rate as a share of that of two processes side by side (lowest "
        "to highest), and the same share in processor time."
    )
    table(lines, columns, "main", runs=f"{repeats} in turn, medians", note=note)


def _shares(pairs):
    rates, work = zip(*pairs, strict=True)
    return f"{statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f}), {statistics.median(work):.2f}"


if __name__ == "__main__":
    where, what, *rest = sys.argv[1:]
    if what == "half":
        print(half(Path(where), rest[0], int(rest[1])))
    else:
        print(job(Path(where), rest[0], rest[1], int(rest[2])))
