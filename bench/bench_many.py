"""Many classes, one pass: examples/s of the learners as they come, one thread and two, beside two classes."""

import time

import numpy as np
from threadpoolctl import threadpool_limits

from bench_learner_sets import subset, task_of
from bench_tools import table

SETS = ("MNIST", "Isolet", "news20")


def many(args):
    """Examples/s on sets of many classes, by threads: wall and CPU seconds, each the least of some runs."""
    from fastsketch import AdaptiveSubgradient, SketchedNewton

    lines = []
    for name in SETS:
        task = task_of(name, 0)
        if task is None:
            continue
        task = subset(task, 2000) if args.quick else task
        for model in (SketchedNewton, AdaptiveSubgradient):
            for threads in (1, 2):
                with threadpool_limits(threads):
                    model().update(task.x[:50], task.y[:50])
                    runs = [_timed(model, task.x, task.y) for _ in range(1 if args.quick else 3)]
                    two = _timed(model, task.x, task.y == task.classes[0])
                wall, busy = np.min(runs, axis=0)
                n, k = task.x.shape[0], len(task.classes)
                lines.append([name, str(k), model.__name__, str(threads), f"{n / wall:,.0f}", f"{n / busy:,.0f}"])
                lines[-1].append(f"{wall / two[0]:.1f}")
    heads = ["set", "classes", "learner", "threads", "examples/s", "per CPU second", "time of two classes"]
    table(lines, heads, "main", runs=f"the least of {1 if args.quick else 3}")


def _timed(model, x, y):
    wall, busy = time.perf_counter(), time.process_time()
    model().update(x, y)
    return time.perf_counter() - wall, time.process_time() - busy
