"""The life of an index: rows that come and go, two generations, saves that are killed, answers beside a fresh build."""

import os
import shutil
import signal
import time

import numpy as np

import fastsketch as fs
from bench_code_sets import generated
from bench_tools import few, table

N_FEATURES, N_BYTES, BATCH = 128, 16, 10_000
KILLS = 20


def codeindex(args):
    """A million rows, 100,000 removed, two generations, twenty saves interrupted by SIGKILL."""
    n = few(100_000 if args.quick else 1_000_000, 2_000)
    rows, queries, _ = generated(n, N_FEATURES)
    queries = queries[:100]
    folder = args.scratch / "codeindex"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    times = {}
    model = fs.SketchQuantizer(N_BYTES).update(rows[: n // 4])
    first = model.encoder()
    index = fs.CodeIndex(model, rows="float16")
    with _timed(times, "add, a row in us", n // 2 / 1e6):
        for start in range(0, n // 2, BATCH):
            index.add(rows[start : start + BATCH])
    with _timed(times, "save of half the rows, s"):
        index.save(folder)
    model.update(rows[n // 4 : n // 2])
    second = model.encoder()
    index.renew(model)
    for start in range(n // 2, n, BATCH):
        index.add(rows[start : start + BATCH])
    gone = np.random.default_rng(1).permutation(n)[: n // 10]
    with _timed(times, "remove, a row in us", len(gone) / 1e6):
        for part in np.array_split(gone, 100):
            index.remove(part)
    with _timed(times, "save of the rest, s"):
        index.save(folder)
    ended = _killed(folder, rows)
    with _timed(times, "load, mapped, s"):
        index = fs.CodeIndex.load(folder)
    index.remove(index.ids[index.ids >= n])  # what came with saves that were done
    index.save(folder)
    same = _like_fresh(index, rows, queries, first, second, n)
    for name, options in (("codes alone", {"rescore": False}), ("40 rescored from the file", {})):
        with _timed(times, f"search, 100 queries, {name}, ms a query", len(queries) / 1e3):
            index.search(queries, k=10, **options)
    with _timed(times, "reencode, a row in us", n // 2 / 1e6):
        index.reencode()
    size = sum(file.stat().st_size for file in folder.iterdir())
    facts = [
        ["rows at the end", f"{len(index):,}"],
        *([name, f"{value:.3g}"] for name, value in times.items()),
        ["bytes of the folder a row", f"{size / len(index):.1f}"],
        [f"saves killed at a random moment: {KILLS}", ended],
        ["answers equal those of a fresh build", same],
    ]
    table(facts, ["what", "measured"], "main", runs=1)


class _timed:
    def __init__(self, times, name, unit=1.0):
        self.times, self.name, self.unit = times, name, unit

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *error):
        self.times[self.name] = (time.perf_counter() - self.start) / self.unit


def _killed(folder, rows):
    """Children that change the index and save it, killed after a random share of the time that a save takes."""
    rng = np.random.default_rng(2)
    seconds, ends = 0.0, {"before": 0, "after": 0, "neither": 0}
    for number in range(-1, few(KILLS, 2)):
        index = fs.CodeIndex.load(folder)
        before = index.ids
        came = before[before >= len(rows)]
        index.remove(came[: len(came) // 10])
        index.add(rows[rng.choice(len(rows), min(BATCH, len(rows) // 2), replace=False)])
        after = index.ids
        start = time.perf_counter()
        child = os.fork()
        if not child:
            try:
                index.save(folder)
            finally:
                os._exit(0)
        if number < 0:  # one that ends: how long it takes
            os.waitpid(child, 0)
            seconds = time.perf_counter() - start
            continue
        time.sleep(rng.uniform(0, 1.6 * seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        now = fs.CodeIndex.load(folder, memory_map=False).ids
        state = "after" if np.array_equal(now, after) else "before" if np.array_equal(now, before) else "neither"
        ends[state] += 1
    return f"{ends['before']} left what was there, {ends['after']} had done; {ends['neither']} anything else"


def _like_fresh(index, rows, queries, first, second, n):
    """Whether answers are, bit for bit, those of an index built at once of the same rows."""
    ids = index.ids
    fresh = fs.CodeIndex(first, rows="float16")
    old, new = ids[ids < n // 2], ids[ids >= n // 2]
    fresh.add(rows[old], old)
    fresh.renew(second).add(rows[new], new)
    for options in ({"rescore": False}, {"rescore": True}, {"rescore": False, "allow": ids[::3]}):
        answers = [one.search(queries, k=10, **options) for one in (index, fresh)]
        if not all(np.array_equal(a, b) for a, b in zip(*answers, strict=True)):
            return f"NO, with {options}"
    return "yes"
