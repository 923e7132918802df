"""Peak memory, and the start of fresh processes."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench_tools import few, fresh, table

PEAK = """
import resource, sys
import fastsketch as fs
fs.FrequentDirections(4).update([[1.0, 2.0]]).sketch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
s = fs.FrequentDirections(128, solver="gram").update(sys.argv[1])
s.sketch()
print([before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, s.n_rows])
"""


def memory(args):
    """Peak resident memory of a process that sketches a 4 GB .npy (l = 128, d = 1024)."""
    n = few(60_000 if args.quick else 524_288, 1000)
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        path = Path(folder) / "big.npy"
        rng = np.random.default_rng(0)
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n, 1024)})
            for first in range(0, n, 4096):
                file.write(rng.standard_normal((min(4096, n - first), 1024)).tobytes())
        start, size = time.perf_counter(), path.stat().st_size
        before, after, rows = fresh(PEAK, path)
        taken = time.perf_counter() - start
    line = [f"{size / 1e9:.2f}", f"{rows:,}", f"{taken:.0f}", f"{before / 1e3:.0f}", f"{after / 1e3:.0f}"]
    columns = ["GB of file", "rows", "s", "MB before", "MB at the peak", "MB above"]
    table([[*line, f"{(after - before) / 1e3:.0f}"]], columns, "main", runs=1, note="l = 128; target: 150 MB above.")


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
    for _ in range(few(5, 1) if args.quick else 15):
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
