"""Memory, cold start, and many Python threads."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fastsketch as fs
from bench_tools import table

PEAK = """
import resource, sys
import fastsketch as fs
fs.FrequentDirections(4).update([[1.0, 2.0]]).sketch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
s = fs.FrequentDirections(128, solver="gram").update(sys.argv[1])
s.sketch()
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, s.n_rows)
"""


def memory(args):
    """Peak resident memory of a process that sketches a 4 GB .npy (l = 128, d = 1024), and of single updates."""
    import tracemalloc

    n = 60_000 if args.quick else 524_288
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        path = Path(folder) / "big.npy"
        rng = np.random.default_rng(0)
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n, 1024)})
            for _ in range(0, n, 4096):
                file.write(rng.standard_normal((min(4096, n), 1024)).tobytes())
        start, size = time.perf_counter(), path.stat().st_size
        out = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
        before, after, rows = map(int, out.stdout.split())
        taken = time.perf_counter() - start
    line = [f"{size / 1e9:.2f}", f"{rows:,}", f"{taken:.0f}", f"{before / 1e3:.0f}", f"{after / 1e3:.0f}"]
    columns = ["GB of file", "rows", "s", "MB before", "MB at the peak", "MB above"]
    table([[*line, f"{(after - before) / 1e3:.0f}"]], columns, "main", runs=1, note="l = 128; target: 150 MB above.")
    out = []
    for d, size, count in [(2048, 64, 1000), (8192, 128, 2000), (8192, 128, 6000)]:
        rows = np.random.default_rng(0).standard_normal((count, d))
        fs.FrequentDirections(4, solver="gram").update(rows[:8, :8])
        tracemalloc.start()
        fs.FrequentDirections(size, solver="gram").update(rows)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        allowed = 8 * (2 * size * d + 3 * (2 * size) ** 2)
        out.append([d, size, count, f"{peak / 1e6:.2f}", f"{allowed / 1e6:.2f}", f"{peak / allowed:.2f}"])
    columns = ["d", "l", "rows in one update", "peak MB", "(l+b) d + 3 (l+b)^2, MB", "ratio"]
    table(out, columns, "update", runs=1)


def cold(args):
    """Processor seconds of fresh processes, in turn, the least of several."""
    script = Path(sys.executable).with_name("fastsketch")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "fastsketch"]
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import scipy.linalg": [sys.executable, "-c", "import scipy.linalg"],
        "import fastsketch": [sys.executable, "-c", "import fastsketch"],
        "import fastsketch and make a sketch": [
            sys.executable,
            "-c",
            "import fastsketch as fs; fs.FrequentDirections(8).update([[1., 2.]])",
        ],
        "fastsketch --help": [*program, "--help"],
    }
    times = {name: [] for name in commands}
    for _ in range(5 if args.quick else 15):
        for name, command in commands.items():
            start = _of_children()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(_of_children() - start)
    base = min(times["import scipy.linalg"])
    table(
        [
            [name, f"{min(t) * 1e3:.0f}", f"{np.median(t) * 1e3:.0f}", f"{min(t) / base:.2f}"]
            for name, t in times.items()
        ],
        ["command", "min ms", "median ms", "of scipy.linalg"],
        "main",
        runs=f"{5 if args.quick else 15} in turn",
    )


def _of_children():
    """Processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


THREADS = """
import sys, threading, time
import numpy as np
import fastsketch as fs
workers, limit = int(sys.argv[1]), int(sys.argv[2])
rows = np.random.default_rng(0).standard_normal((2000, 784))
fs.FrequentDirections(50, solver="gram").update(rows[:200])
def work():
    fs.FrequentDirections(50, solver="gram").update(rows)
def run():
    threads = [threading.Thread(target=work) for _ in range(workers)]
    start = time.perf_counter()
    [t.start() for t in threads]
    [t.join() for t in threads]
    return time.perf_counter() - start
if limit:
    with fs.thread_limit(limit):
        print(min(run() for _ in range(3)))
else:
    print(min(run() for _ in range(3)))
"""


def servers(args):
    """Eight Python threads, each with its own sketch, under default BLAS settings and under explicit limits."""
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    out = []
    for name, limit, env in (
        ("defaults", 0, clean),
        ("fs.thread_limit(1)", 1, clean),
        ("fs.thread_limit(2)", 2, clean),
        ("OPENBLAS_NUM_THREADS=1", 0, {**clean, "OPENBLAS_NUM_THREADS": "1"}),
    ):
        run = subprocess.run(
            [sys.executable, "-c", THREADS, "8", str(limit)], capture_output=True, text=True, check=True, env=env
        )
        out.append([name, float(run.stdout)])
    best = min(value for _, value in out)
    lines = [[name, f"{value:.3f}", f"{value / best:.2f}"] for name, value in out]
    table(lines, ["setting", "s", "of the best"], "main", runs="the least of 3")
