"""One sketch a group: time beside one sketch of all rows and a loop over sketches; memory and disk of many groups."""

import time

import numpy as np

from bench_tools import few, fresh, least, table

L, D = 16, 256
CHUNK = 8192

MANY = """
import json, sys, time
import numpy as np
import fastsketch as fs

n_groups, rows_of_each, memory, folder = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]


class Interleaved:
    shape, dtype = (n_groups * rows_of_each, 257), np.dtype(np.float32)
    base = np.random.default_rng(0).standard_normal((8192, 257), dtype=np.float32)

    def __getitem__(self, part):
        rows = self.base[: part.stop - part.start].copy()
        rows[:, 0] = np.arange(part.start, part.stop, dtype=np.int64) * 7919 % n_groups
        return rows


def peak():  # getrusage would give that of the process that this one was forked from
    lines = open("/proc/self/status").read().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


fs.sketch_groups(np.eye(40, dtype=np.float32), by=0)
before, start = peak(), time.process_time()
told = []
groups = fs.sketch_groups(Interleaved(), by=0, max_memory=memory, folder=folder, progress=told.append)
seconds = time.process_time() - start
groups.save(f"{folder}/groups.fsk")
saving = time.process_time() - start - seconds
print(json.dumps([seconds, saving, peak() - before, told[-1]["spilled"]]))
"""


def groups(args):
    """Both tables, the second of Linux alone."""
    import fastsketch as fs

    lines = []
    n, n_groups = (few(20_000, 2000), 1000) if args.quick else (200_000, 1000)
    rng = np.random.default_rng(0)
    with fs.thread_limit(1):
        for dtype in (np.float32, np.float64):
            rows = (rng.standard_normal((n, D), dtype=np.float32) * np.arange(1, D + 1) ** -0.7).astype(dtype)
            keys = rng.integers(0, n_groups, n)
            ways = {
                "groups": lambda r=rows, k=keys: fs.sketch_groups(r, by=k, sketch_size=L),
                "one": lambda r=rows: fs.FrequentDirections(L, solver="gram").update(r),
                "exact": lambda r=rows: fs.FrequentDirections(L).update(r),
                "loop": lambda r=rows, k=keys: _loop(fs, r, k),
            }
            groups, mine = ways["groups"](), ways["loop"]()
            assert all(groups[key].to_bytes() == sketch.to_bytes() for key, sketch in mine.items())
            found = least(ways, 1 if args.quick else 5, time.process_time)
            line = [f"{1e6 * found[name] / n:.2f}" for name in ways]
            line += [f"{found['groups'] / found[name]:.2f}" for name in ("one", "exact", "loop")]
            lines.append([np.dtype(dtype).name, *line])
    heads = [
        "dtype",
        "groups, us/row",
        "one sketch",
        "one sum (default)",
        "loop",
        "to one",
        "to the sum",
        "to the loop",
    ]
    table(lines, heads, "main", runs=f"the least of {1 if args.quick else 5} in turn")
    cases = [(1000, 200, 1e9), (100_000, 5, 3e8), (100_000, 40, 5e8)]
    lines = []
    for case in [(500, 20, 2e6)] if args.quick else cases:
        seconds, saving, peak, spilled = fresh(MANY, *case, args.scratch)
        file = args.scratch / "groups.fsk"
        size = file.stat().st_size
        file.unlink()
        lines.append(
            {
                "groups": f"{case[0]:,}",
                "rows of each": case[1],
                "max_memory, MB": f"{case[2] / 1e6:,.0f}",
                "peak, MB": f"{peak:,.0f}",
                "to disk": "yes" if spilled else "no",
                "us/row": f"{1e6 * seconds / case[0] / case[1]:.2f}",
                "save, s": f"{saving:.1f}",
                "file, MB": f"{size / 1e6:,.0f}",
            }
        )
    table(lines, name="memory", runs=1)


def _loop(fs, rows, keys):
    """What one would write: the rows of a chunk by group, each group's into its own sketch."""
    found = {}
    for start in range(0, len(rows), CHUNK):
        some = keys[start : start + CHUNK]
        order = np.argsort(some, kind="stable")
        sorted_rows, sorted_keys = rows[start : start + CHUNK][order], some[order]
        cuts = np.flatnonzero(np.diff(sorted_keys)) + 1
        for key, part in zip(sorted_keys[np.r_[0, cuts]].tolist(), np.split(sorted_rows, cuts), strict=True):
            if key not in found:
                found[key] = fs.FrequentDirections(L, solver="gram")
            found[key].update(part)
    return found
