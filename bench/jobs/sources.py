"""Rows from files: open_rows beside the plain readers of the same files, and a sketch behind it; peak memory."""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from bench_tools import few, fresh, table

D = 1024
ROWS_OF_FILE = 26_215  # 10 files of 1 GB

# A fresh process reads one set in one way: seconds, seconds of the CPU, rows, and peak memory above what imports take.
ONE = """
import json, sys, time
from pathlib import Path
import numpy as np
import fastsketch as fs
from fastsketch.data import open_rows

way, kind, where, rows_at_once = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
columns = "embedding" if kind == "embedding" else None
if kind in ("parquet", "embedding"):
    import pyarrow.parquet as pq
elif kind == "hdf5":
    import h5py
elif kind == "zarr":
    import zarr

def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3

def plain():
    if kind == "npy":
        space = np.empty((rows_at_once, 1024), np.float32)
        with where.open("rb", buffering=0) as file:
            file.seek(128)
            while n := file.readinto(space):
                yield n // 4096
    elif kind == "hdf5":
        space = np.empty((rows_at_once, 1024), np.float32)
        with h5py.File(where) as file:
            x = file["x"]
            for first in range(0, len(x), rows_at_once):
                n = min(rows_at_once, len(x) - first)
                x.read_direct(space[:n], np.s_[first : first + n])
                yield n
    elif kind == "zarr":
        x = zarr.open(where, mode="r")
        for first in range(0, x.shape[0], rows_at_once):
            yield len(x[first : first + rows_at_once])
    else:
        for path in sorted(where.iterdir()):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(rows_at_once, columns=columns and [columns], use_threads=False):
                    yield batch.num_rows

fs.FrequentDirections(4).update(np.ones((9, 3), np.float32)).sketch()
before, start, cpu = peak(), time.perf_counter(), time.process_time()
if way == "plain":
    n = sum(plain())
elif way == "open_rows":
    n = sum(len(rows) for rows in open_rows(where, columns=columns))
else:
    model = fs.FrequentDirections(64)
    for rows in open_rows(where, columns=columns):
        model.update(rows)
    model.sketch()
    n = model.n_rows
print(json.dumps([time.perf_counter() - start, time.process_time() - cpu, n, peak() - before]))
"""


def write_npy(path, n):
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, D)})
        for first in range(0, n, 8192):
            file.write(rng.standard_normal((min(8192, n - first), D), np.float32).tobytes())


def write_parquet(rows, folder, *, lists):
    """As pyarrow writes by default: a column for each feature, or one of lists of a fixed size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for k, first in enumerate(range(0, len(rows), ROWS_OF_FILE)):
        some = np.array(rows[first : first + ROWS_OF_FILE])
        if lists:
            t = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), D)})
        else:
            t = pa.table({f"x{j}": np.ascontiguousarray(some[:, j]) for j in range(D)})
        pq.write_table(t, folder / f"part-{k:02}.parquet")


def write_hdf5(rows, path):
    import h5py

    with h5py.File(path, "w") as file:
        out = file.create_dataset("x", rows.shape, "f4", chunks=(1024, D))
        for first in range(0, len(rows), 8192):
            out[first : first + 8192] = rows[first : first + 8192]


def write_zarr(rows, path):
    import zarr

    out = zarr.create_array(path, shape=rows.shape, chunks=(2048, D), dtype="f4")
    for first in range(0, len(rows), 8192):
        out[first : first + 8192] = rows[first : first + 8192]


def sources(args):
    """1 GB of float32 (d = 1,024) as .npy, 10 Parquet files of columns or of lists, HDF5 and Zarr."""
    n = few(1 << 16, 1 << 12) if args.quick else 1 << 18
    repeats = few(2, 1) if args.quick else 3
    out = []
    with tempfile.TemporaryDirectory(dir=args.scratch) as home:
        home = Path(home)
        write_npy(home / "x.npy", n)
        rows = np.load(home / "x.npy", mmap_mode="r")
        sets = {
            "npy": (home / "x.npy", lambda path: None, [2048]),
            "parquet": (home / "columns", lambda path: write_parquet(rows, path, lists=False), [2048, 65536]),
            "embedding": (home / "lists", lambda path: write_parquet(rows, path, lists=True), [2048, 65536]),
            "hdf5": (home / "x.h5", lambda path: write_hdf5(rows, path), [2048]),
            "zarr": (home / "x.zarr", lambda path: write_zarr(rows, path), [2048]),
        }
        for kind, (where, write, sizes) in sets.items():
            write(where)
            ways = [("plain", size) for size in sizes] + [("open_rows", 0)]
            found = {way: [] for way in ways}
            for _ in range(repeats):
                for way in ways:
                    found[way].append(fresh(ONE, way[0], kind, where, way[1]))
            found["sketch", 0] = [fresh(ONE, "sketch", kind, where, 0)]
            best = max(rate(runs, column=1) for way, runs in found.items() if way[0] == "plain")
            for (way, size), runs in found.items():
                assert all(run[2] == n for run in runs)
                out.append(
                    {
                        "set": kind,
                        "way": f"{way}, {size:,} rows a time" if size else way,
                        "GB/s, best run": f"{rate(runs):.2f}",
                        "worst run": f"{rate(runs, max):.2f}",
                        "GB/s of CPU time": f"{rate(runs, column=1):.2f}",
                        "of the best plain reader's": f"{rate(runs, column=1) / best:.0%}",
                        "MB above imports": f"{max(run[3] for run in runs):.0f}",
                    }
                )
                print(*out[-1].values(), flush=True)
            if kind != "npy":
                shutil.rmtree(where) if where.is_dir() else where.unlink()
    table(out, name="main", runs=f"{repeats}, the sketch 1")


def rate(runs, choose=min, column=0):
    """GB of rows a second, of the best run or another."""
    return runs[0][2] * D * 4 / 1e9 / choose(run[column] for run in runs)
