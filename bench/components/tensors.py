"""Steps of 4,096 tokens of 4,096 features: sketches of tensors beside incremental PCAs and a dense covariance.

Every method is given the same batches as float32 tensors on the CPU, and one thread. Steps run in turn; the peak memory
of each method is that of a process of its own. peft's `IncrementalPCA` is measured where peft is installed, alone or
with its dependencies: its module needs nothing but torch.
"""

import importlib.util
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse.linalg import eigsh, svds

import store
from bench_tools import few, table
from components.ways import apart

N_TOKENS, N_FEATURES = 4096, 4096
SKETCH_SIZES = (64, 128, 256)
N_FIRST = 1280  # tokens of a first batch, which is not timed
REPEATS = 3
N_LEADING = 16  # directions whose variance is compared: the rank of peft's adapters by EVA is 8 to 64


def activations(seed):
    """Return tensors (tokens, features) of 512 factors with variances k^-1, noise and a mean; the first is short."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    n, d, rank = few(N_TOKENS, 300), few(N_FEATURES, 200), few(512, 50)
    factors = torch.randn(rank, d, generator=generator) * torch.arange(1, rank + 1)[:, None] ** -0.5
    mean = torch.randn(d, generator=generator)

    def draw():
        rows = torch.randn(n, rank, generator=generator) @ factors
        return rows.add_(torch.randn(n, d, generator=generator), alpha=0.3).add_(mean)

    return draw()[:N_FIRST], *(draw() for _ in range(few(REPEATS, 1)))


# -- methods: a step is a call with a batch; `directions` are orthonormal rows, the leading one first ------------------
class TensorSketch:
    def __init__(self, size):
        from fastsketch.torch import FrequentDirections

        self.sketch = FrequentDirections(size)

    def step(self, rows):
        self.sketch.update(rows)

    def directions(self):
        return self.sketch.components


class HostSketch:
    """The sketch of arrays, which has the same buffer; the array shares the memory of the tensor."""

    def __init__(self, size):
        import fastsketch as fs

        self.sketch = fs.FrequentDirections(size, solver="gram", buffer_size=5 * size, center=True)

    def step(self, rows):
        self.sketch.update(rows.numpy())

    def directions(self):
        import torch

        return torch.from_numpy(np.array(self.sketch.components))


class DefaultHostSketch(HostSketch):
    def __init__(self, size):
        import fastsketch as fs

        self.sketch = fs.FrequentDirections(size, center=True)


class FullPCA:
    """scikit-learn's `IncrementalPCA` on tensors: an SVD of the components, the centred batch and a correction row."""

    def __init__(self, size, batch=None):
        self.size, self.batch, self.n_seen = size, batch, 0

    def step(self, rows):
        for part in rows.split(self.batch or len(rows)):
            self.partial_fit(part)

    def partial_fit(self, rows):
        import torch

        count, mean = len(rows), rows.mean(0)
        stacked = rows - mean
        if self.n_seen:
            total = self.n_seen + count
            row = (self.n_seen * count / total) ** 0.5 * (self.mean - mean)
            stacked = torch.cat([self.values[:, None] * self.vt, stacked, row[None]])
            mean = self.mean + count / total * (mean - self.mean)
        _, values, vt = self.svd(stacked)
        self.values, self.vt, self.mean = values[: self.size].clone(), vt[: self.size].clone(), mean
        self.n_seen += count

    def svd(self, stacked):
        import torch

        return torch.linalg.svd(stacked, full_matrices=False)

    def directions(self):
        return self.vt


class RandomizedPCA(FullPCA):
    """The rule of peft's `IncrementalPCA(lowrank=True)`, which is used itself where peft is installed."""

    def svd(self, stacked):
        import torch

        left, values, right = torch.svd_lowrank(stacked, q=min(2 * self.size, *stacked.shape), niter=4)
        return left, values, right.T


class PeftPCA:
    """peft's `IncrementalPCA` with its defaults, as EVA calls it: randomized SVDs of 2 l directions, 4 iterations."""

    def __init__(self, size, batch=None):
        self.model = peft_module().IncrementalPCA(size, copy=True, lowrank=True, lowrank_seed=42)
        self.batch = batch

    def step(self, rows):
        for part in rows.split(self.batch or len(rows)):
            if len(part) >= self.model.n_components:  # it refuses shorter ones
                self.model.partial_fit(part)

    def directions(self):
        return self.model.components_


class DenseCovariance:
    """The sum of X'X in float32, centred by the mean of the first batch."""

    def __init__(self, size):
        self.size, self.n_seen = size, 0

    def step(self, rows):
        import torch

        if not self.n_seen:
            self.shift = rows.mean(0)
            self.sums, self.gram = torch.zeros_like(self.shift), torch.zeros(rows.shape[1], rows.shape[1])
        centred = rows - self.shift
        self.gram.addmm_(centred.T, centred)
        self.sums += centred.sum(0)
        self.n_seen += len(rows)

    def directions(self):
        import torch

        mean = self.sums / self.n_seen
        centred = (self.gram - self.n_seen * torch.outer(mean, mean)).numpy()
        return torch.from_numpy(eigsh(centred, N_LEADING, v0=np.ones(len(centred), np.float32))[1][:, ::-1].T.copy())


def peft_module():
    """Return the module of peft that has `IncrementalPCA`, without importing the package; None if it is absent."""
    found = importlib.util.find_spec("peft")
    if found is None or not found.origin:
        return None
    name = "peft_incremental_pca"
    if name not in sys.modules:
        path = Path(found.origin).parent / "utils" / "incremental_pca.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def methods_for(size):
    """Return {name: function that makes the method}; the randomized PCA is peft's where that is installed.

    The full SVD of a whole step takes too long to be measured, and is left out.
    """
    short = 5 * size  # rows of the buffer of a sketch
    has_peft = peft_module() is not None
    randomized, name = (PeftPCA, "peft's PCA") if has_peft else (RandomizedPCA, "randomized PCA")
    return {
        OURS: partial(TensorSketch, size),
        f"{HOST}, same buffer": partial(HostSketch, size),
        HOST: partial(DefaultHostSketch, size),
        f"full-SVD PCA, {SHORT}": partial(FullPCA, size, short),
        name: partial(randomized, size),
        f"{name}, {SHORT}": partial(randomized, size, short),
        "dense covariance": partial(DenseCovariance, size),
    }


OURS, HOST, SHORT = "fastsketch.torch.FrequentDirections", "fs.FrequentDirections", "batches of 5 l"


def time_in_turn(methods, batches):
    """Return {name: [(seconds by the processor's clock, on the wall), ...]} of all steps but the first."""
    made, times = {name: make() for name, make in methods.items()}, {name: [] for name in methods}
    for rows in batches:
        for name, method in made.items():
            times[name].append(seconds_of(method, rows))
    return {name: runs[1:] for name, runs in times.items()}


def seconds_of(method, rows):
    cpu, wall = time.process_time(), time.perf_counter()
    method.step(rows)
    return time.process_time() - cpu, time.perf_counter() - wall


def run_apart(make, batches):
    """Return a function for a process of its own: two steps, and after its peak the leading directions, ms to compute
    them, and the seconds of the second step.
    """

    def steps():
        method = make()
        method.step(batches[0])
        taken = seconds_of(method, batches[1])

        def read():
            start = time.process_time()
            directions = method.directions()
            milliseconds = 1e3 * (time.process_time() - start)
            return directions[:N_LEADING].numpy().astype(np.float64), milliseconds, taken

        return read

    return steps


def tensors(args):
    """One table for each sketch size."""
    import torch

    import fastsketch.torch

    torch.set_num_threads(1)
    batches = activations(seed=0)
    fastsketch.torch.FrequentDirections(2).update(batches[0][:50]).spectrum()  # so that nothing is loaded later
    rows = torch.cat(batches[:2]).numpy().astype(np.float64)
    rows -= rows.mean(axis=0)
    largest = float((svds(rows, N_LEADING, return_singular_vectors=False, random_state=0) ** 2).sum())
    for size in SKETCH_SIZES[: 1 if args.quick else None]:
        methods = methods_for(few(size, 16))
        found = {name: apart(run_apart(make, batches)) for name, make in methods.items()}
        times = time_in_turn({name: make for name, make in methods.items() if name.startswith((OURS, HOST))}, batches)
        for k, clock in enumerate(("process_time", "perf_counter")):
            store.add_timing(f"l={size}", clock, {name: [run[k] for run in runs] for name, runs in times.items()})
        lines = []
        for name, run in found.items():
            if run.note:
                raise RuntimeError(f"{name}: {run.note}")
            directions, read_ms, taken = run.result
            cpu, wall = np.median(times.get(name, [taken]), axis=0)
            variance = float(((rows @ directions.T) ** 2).sum())
            cells = [f"{1e3 * cpu:.0f}", f"{1e3 * wall:.0f}", f"{cpu / np.median(times[OURS], axis=0)[0]:.2f}"]
            lines.append([name, *cells, f"{run.megabytes:.0f}", f"{read_ms:.0f}", f"{1 - variance / largest:.1e}"])
        n, d = batches[-1].shape
        note = f"The sketch has l = {size} rows, and steps are {n:,} x {d:,} float32 numbers. {RULES}"
        table(lines, COLUMNS, f"l{size}", runs=f"median of {few(REPEATS, 1)} steps, rivals one, one thread", note=note)


COLUMNS = ["method", "ms a step", "ms on the wall", "of ours", "peak MB", "ms to read", "variance missed"]
RULES = (
    "The full-SVD PCA is scikit-learn's IncrementalPCA, on tensors with torch.linalg.svd. The PCA of peft is its "
    "IncrementalPCA with lowrank=True, and a randomized PCA has the same rule. An incremental PCA takes a training "
    "step as one batch, or in batches of 5 l rows. Both kinds of sketches run in turn, and all other methods in a "
    "process each. All times but those on the wall are processor time. Memory is the peak of two steps in addition to "
    "the rows, and the first step has 1,280 rows. The variance missed is that missed by the 16 leading directions "
    "after two steps."
)
