"""The harness of the benches: timing in turn, fresh processes, memory, rivals that may be absent, tables.

A command is a function of ``args`` that measures one idea and gives `table` the rows of what it found. `bench_data` has
the data sets, `store` keeps what `table` and `interleaved` were given.
"""

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import store

ROOT = Path(__file__).resolve().parents[1]
tiny = False  # whether commands have to show no more than that they run: run.py --tiny


def few(n, tiny_n):
    """Return n, or with --tiny no more than `tiny_n`."""
    return min(n, tiny_n) if tiny else n


def header():
    """Return a line that says where and with what a table is made."""
    import scipy
    import threadpoolctl

    import fastsketch

    pools = ", ".join(
        f"{p['internal_api']} {p['version']} {p.get('architecture', '')} x{p['num_threads']}"
        for p in threadpoolctl.threadpool_info()
        if p["user_api"] == "blas"
    )
    presets = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_") and "NUM" not in name}
    return (
        f"fastsketch {fastsketch.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"python {platform.python_version()}; {pools}; OPENBLAS presets: {presets or 'none'}"
    )


def seconds(function, clock=time.process_time):
    """Return seconds of the processor: what runs in one thread is not slower for others on the machine."""
    start = clock()
    function()
    return clock() - start


def interleaved(functions, repeats=5, clock=time.process_time, name_of_runs=""):
    """Return {name: (min, median) seconds} of functions run in turn, by the processor's clock by default."""
    times = {name: [] for name in functions}
    for _ in range(few(repeats, 1)):
        for name, function in functions.items():
            times[name].append(seconds(function, clock))
    store.add_timing(name_of_runs, clock.__name__, times)
    return {name: (min(t), float(np.median(t))) for name, t in times.items()}


def least(functions, repeats=5, clock=time.process_time):
    """Return {name: seconds}, the least of functions run in turn."""
    return {name: low for name, (low, _) in interleaved(functions, repeats, clock).items()}


def spread(values, digits=4):
    """Return mean and standard deviation, as text."""
    return f"{np.mean(values):.{digits}f} +- {np.std(values):.{digits}f}"


def rival(name):
    """Return the module of another library, on one thread, or None where it is not installed."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        print(f"{name}: absent; pip install '.[bench]' has most rivals")
        return None
    if name == "faiss":
        module.omp_set_num_threads(1)
    return module


# -- processes and memory ----------------------------------------------------------------------------------------------
def fresh(code, *arguments, **environment):
    """Run Python code, or a file, in a fresh process, and return the JSON it prints last; None unsets a variable.

    The folder of a file, and the current one, are not searched for modules: the library that is installed is measured.
    """
    command = [sys.executable, "-P", *([str(code)] if isinstance(code, Path) else ["-c", code]), *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry), **environment}
    env = {name: str(value) for name, value in env.items() if value is not None}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def resident(field="VmRSS"):
    """Return the bytes of this process in memory; "VmHWM": at its peak (ru_maxrss includes that of its parent)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}: memory is measured on Linux only")


def gemm_rate(dtype, n=1500):
    """Return the flops per second of a large square gemm, the limit that everything else is measured against."""
    from scipy.linalg import blas

    n = few(n, 200)
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((n, n)), dtype)
    gemm = blas.dgemm if a.dtype == np.float64 else blas.sgemm
    return 2 * n**3 / min(seconds(lambda: gemm(1.0, a, a)) for _ in range(3))


def table(rows, columns=None, name="", *, runs=None, note=""):
    """Print a Markdown table and keep it in the record of the command under this name.

    rows: lists of cells for `columns`, or dicts {column: cell}; runs: of how many runs a cell is and how they became
    one, a number or words; note: a sentence under the table.
    """
    rows = list(rows)
    if columns is None:
        columns, rows = list(rows[0]) if rows else [], [list(row.values()) for row in rows]
    if not rows:
        return
    store.add_table(rows, columns, name, runs, note)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    text = "\n".join(lines)
    print("\n" + (f"{note}\n\n" if note else "") + text + "\n", flush=True)
