"""Several threads against one: within one call, next to what gemm gains on the same machine; and one model a thread."""

import hashlib
import threading
import time

import numpy as np

import fastsketch as fs
from bench_tools import few, seconds, table
from benchmarks.rows import frosh_rows, random_csr
from fastsketch._kernels import cpus, pool

# Numbers of threads whose results must have the same bits.
SAME = (1, 2, 3, 8)


def threads(args):
    """The tables: two threads (and as many as there are cores) within a call; two Python threads with a model each."""
    cases = _cases(np.random.default_rng(0))
    if args.quick:
        cases = cases[:1] + cases[-1:]
    counts = sorted({2, cpus.usable()} - {1})
    rows = []
    for name, run in cases:
        rows += _one(name, run, counts, few(3, 1) if args.quick else 7)
    note = f"The machine has {cpus.usable()} cores, and the pool {pool.get()} threads."
    table(rows, name="main", runs=f"{few(3, 1) if args.quick else 7} in turn, medians", note=note)
    _side_by_side(few(3, 1) if args.quick else 5)


# -- within one call ---------------------------------------------------------------------------------------------------
def _one(name, run, counts, repeats):
    """Lines of one case: each run of n threads follows one of one thread and both are followed by gemm's."""
    with fs.thread_limit(1):
        run()  # whatever is compiled or loaded
    digests = set()
    for n in SAME:
        with fs.thread_limit(n):
            digests.add(hashlib.sha256(run()).hexdigest())
    times = {n: [] for n in (1, *counts)}
    gemm = {n: [] for n in (1, *counts)}
    for _ in range(repeats):
        for n in times:
            with fs.thread_limit(n):
                times[n].append(seconds(run, time.perf_counter))
                gemm[n].append(_gemm())
    lines = []
    for n in counts:
        ratio, limit = (float(np.median(t[1]) / np.median(t[n])) for t in (times, gemm))
        lines.append(
            {
                "what": name,
                "threads": n,
                "1, ms": f"{np.median(times[1]) * 1e3:.0f}",
                "n, ms": f"{np.median(times[n]) * 1e3:.0f}",
                "ratio": f"{ratio:.2f}",
                "gemm's": f"{limit:.2f}",
                "of gemm's": f"{ratio / limit:.0%}",
                "same bits": "yes" if len(digests) == 1 else "NO",
            }
        )
        print(*lines[-1].values(), flush=True)
    return lines


def _gemm(n=1200):
    from scipy.linalg import blas

    if n not in _square:
        _square[n] = np.asfortranarray(np.random.default_rng(0).standard_normal((n, n)))
    spent = seconds(lambda: blas.dgemm(1.0, _square[n], _square[n]), time.perf_counter)
    time.sleep(0.1)  # OpenBLAS's threads look for work for a while, on the cores that are ours next
    return spent


_square = {}


def _cases(rng):
    """(Name, function that does the whole of it and returns bytes of the result)."""
    cases = []
    for d, size in [(2048, 64), (2048, 128), (8192, 64), (8192, 128)][: few(4, 1)]:
        rows = frosh_rows(max(2000, 12 * size) if d > 4000 else 40 * size + 2000, d, rng)
        cases.append((f"FD {d} x {size}, f64", _sketches(rows, size)))
        if size == 64:
            cases.append((f"FD {d} x {size}, f32", _sketches(rows.astype(np.float32), size)))
    cases.append(("CSR FD 47,000 x 100", _sketches(random_csr(few(8000, 300), 47_000, 0.001, rng), 100)))
    cases.append(("CSR FD 5,000 x 50", _sketches(random_csr(few(8000, 300), 5_000, 0.01, rng), 50)))

    rows = frosh_rows(few(20_000, 1000), 784, rng)
    hash64 = fs.SketchHash(64).update(rows[:4000])
    cases.append(("SketchHash(64), 784", lambda: fs.SketchHash(64).update(rows).encode(rows[:50]).tobytes()))
    cases.append(("encode, 784 to 64 bits", lambda: hash64.encode(rows).tobytes()))
    codes, queries = (rng.integers(0, 256, (n, 8), dtype=np.uint8) for n in (few(1_000_000, 5000), 30))
    cases.append(("hamming_topk, 1 M x 64", lambda: _bytes(*fs.hamming_topk(queries, codes, k=10))))

    stars = _stars(rng, few(6000, 300), few(3700, 200), few(600_000, 6000))
    fitted = fs.LowRankModel(10, sweeps=1).fit(stars)
    new, everybody = stars[:2000], np.arange(stars.shape[0])
    cases.append(("LowRankModel(10) fit, square", _fits(stars, sweeps=0)))
    cases.append(("LowRankModel(5) fit, huber", _fits(stars, rank=5, sweeps=0, loss="huber")))
    cases.append(("LowRankModel(10), 4 sweeps", _fits(stars, sweeps=4)))
    cases.append(("fold-in of 2,000", lambda: _bytes(fitted.fold_in(new).factors)))
    cases.append(("recommend to 6,000", lambda: _bytes(*fitted.recommend(everybody, 10, exclude=stars))))

    return cases


def _bytes(*arrays):
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def _sketches(rows, size):
    def run():
        return fs.FrequentDirections(size, method="fd", solver="gram").update(rows).sketch().tobytes()

    return run


def _fits(stars, *, rank=10, **options):
    def run():
        return _bytes(*fs.LowRankModel(rank, **options).fit(stars).factors())

    return run


def _stars(rng, m, n, observed):
    """Ratings of MovieLens-1M's shape: some rows and columns have most of them."""
    from scipy.sparse import csr_array

    places = np.unique(
        (m * rng.random(observed) ** 2).astype(np.int64) * n + (n * rng.random(observed) ** 2).astype(np.int64)
    )
    rows, columns = np.divmod(places, n)
    left, right = rng.standard_normal((m, 8)), rng.standard_normal((n, 8))
    scores = 3.5 + 0.3 * (left[rows] * right[columns]).sum(1) + 0.5 * rng.standard_normal(len(rows))
    return csr_array((np.clip(np.round(scores), 1, 5), (rows, columns)), shape=(m, n))


# -- a model a thread --------------------------------------------------------------------------------------------------
def _side_by_side(repeats):
    """Two Python threads with a model each against one thread with one: models done in the same time."""
    out = []
    for name, work in _servers(np.random.default_rng(1)):
        line = [name]
        work()
        for limit in (pool.get(), 1):
            with fs.thread_limit(limit):
                alone, both = [], []
                for _ in range(repeats):
                    alone.append(seconds(work, time.perf_counter))
                    both.append(seconds(lambda work=work: _in_threads(work, 2), time.perf_counter))
            one, two = np.median(alone), np.median(both)
            line += [f"{one * 1e3:.0f}", f"{two * 1e3:.0f}", f"{2 * one / two:.2f}"]
        out.append(line)
        print(*line, flush=True)
    each = ["one, ms", "two, ms", "throughput"]
    columns = ["a model in each Python thread", *each, *(f"{name}, one thread each" for name in each)]
    table(out, columns, "models", runs=f"{repeats} in turn, medians")


def _in_threads(work, count):
    crew = [threading.Thread(target=work) for _ in range(count)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


def _servers(rng):
    """(Name, function that makes a model and updates it in batches of 50 rows, or fits it)."""
    rows, csr, stars = (
        frosh_rows(few(4000, 200), 784, rng),
        random_csr(few(3000, 200), 20_000, 0.002, rng),
        _stars(rng, few(2000, 200), few(1200, 100), few(80_000, 3000)),
    )
    targets = np.sign(rows @ rng.standard_normal(784))

    def batches(make, x, *y):
        def work():
            model = make()
            for start in range(0, x.shape[0], 50):
                model.update(x[start : start + 50], *(values[start : start + 50] for values in y))

        return work

    return [
        ("FrequentDirections(50), 784", batches(lambda: fs.FrequentDirections(50, solver="gram"), rows)),
        ("FrequentDirections(50), CSR", batches(lambda: fs.FrequentDirections(50, solver="gram"), csr)),
        ("SketchHash(64), 784", batches(lambda: fs.SketchHash(64), rows)),
        ("SketchedNewton(10), 784", batches(lambda: fs.SketchedNewton(10), rows, targets)),
        ("AdaptiveSubgradient(), 784", batches(lambda: fs.AdaptiveSubgradient(), rows, targets)),
        ("LowRankModel(5)", lambda: fs.LowRankModel(5).fit(stars)),
    ]
