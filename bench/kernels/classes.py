"""Runs the asv classes of benchmarks/ without asv."""

import importlib
import inspect
import itertools
import pkgutil
import tracemalloc

import benchmarks
from bench_tools import seconds, table


def found():
    """(name, class) of every class in the modules of benchmarks/."""
    for info in pkgutil.iter_modules(benchmarks.__path__, "benchmarks."):
        module = importlib.import_module(info.name)
        for name, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == info.name:
                yield name, cls


def classes(args):
    """Every method of every class for every combination of parameters."""
    out = []
    for name, cls in found():
        methods = [m for m in vars(cls) if m.startswith(("time_", "peakmem_", "track_"))]
        combinations = list(itertools.product(*cls.params))
        for values in combinations[:1] if args.quick else combinations:
            for method in methods:
                bench = cls()
                try:
                    bench.setup(*values)
                except NotImplementedError:
                    continue
                out.append([f"{name}.{method}", *_one(bench, method, values)])
                out[-1].insert(1, ", ".join(f"{p}={v}" for p, v in zip(cls.param_names, values, strict=True)))
    table(out, ["bench", "parameters", "result"], "main", runs="times: the least of 5")


def _one(bench, method, values):
    function = getattr(bench, method)
    if method.startswith("time_"):
        return [f"{min(seconds(lambda: function(*values)) for _ in range(5)) * 1e3:.3f} ms"]
    if method.startswith("peakmem_"):
        tracemalloc.start()
        function(*values)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return [f"{peak / 1e6:.2f} MB"]
    return [f"{function(*values):.3g}"]
