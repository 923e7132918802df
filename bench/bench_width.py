"""Cost by what occurs: examples/s of wide sparse rows whose active columns are few, at every width, and memory."""

import time
import tracemalloc

import numpy as np

import fastsketch as fs
from bench_papers import RFD0
from bench_tools import few, table

BATCH = 1000
NONZEROS = 5
LEARNERS = {
    "SketchedNewton(10)": lambda: fs.SketchedNewton(10),
    "SketchedNewton(10), RFD0": lambda: fs.SketchedNewton(10, **RFD0),
    "ADA-FFD(20)": lambda: fs.AdaptiveSubgradient(20),
    "ada_diag": lambda: fs.AdaptiveSubgradient(method="ada_diag"),
}


def hashed(d, active, n, seed=0):
    """(CSR rows of n examples in d columns, the same with the columns that occur renumbered, labels).

    As from the hashing trick: `active` fixed columns at random places, the r-th of which comes with a probability
    proportional to r^-0.7; values 1; labels of a linear model with noise.
    """
    from scipy import sparse

    rng = np.random.default_rng(seed)
    places = np.sort(rng.choice(d, active, replace=False)).astype(np.int32)
    rng = np.random.default_rng(seed + 1)  # the same rows at every width
    share = np.arange(1, active + 1) ** -0.7
    drawn = rng.permutation(active)[rng.choice(active, (n, NONZEROS), p=share / share.sum())]
    starts = np.arange(0, drawn.size + 1, NONZEROS, dtype=np.int32)  # scikit-learn takes no others
    dense = sparse.csr_array((np.ones(drawn.size), drawn.ravel().astype(np.int32), starts), (n, active))
    dense.sum_duplicates()
    wide = sparse.csr_array((dense.data, places[dense.indices], dense.indptr), (n, d))
    score = dense @ rng.standard_normal(active) + rng.standard_normal(n)
    return wide, dense, np.where(score > 0, 1, -1)


def learn(make, rows, labels, batch=BATCH):
    """Seconds of this process's own time for all rows in batches, and the model."""
    model, start = make(), time.process_time()
    for first in range(0, rows.shape[0], batch):
        model.update(rows[first : first + batch], labels[first : first + batch])
    return time.process_time() - start, model


class Sgd:
    """scikit-learn's SGDClassifier by the same calls."""

    def __init__(self):
        from sklearn.linear_model import SGDClassifier

        self.model = SGDClassifier(random_state=0)

    def update(self, rows, labels):
        self.model.partial_fit(rows, labels, classes=[-1, 1])


def sgd_fit(rows, labels):
    """Seconds of one epoch of its fit."""
    from sklearn.linear_model import SGDClassifier

    start = time.process_time()
    SGDClassifier(max_iter=1, tol=None, random_state=0).fit(rows, labels)
    return time.process_time() - start


def width(args):
    """Examples/s at every width, as a share of those of the renumbered stream; scikit-learn's SGD; memory."""
    repeats = few(2, 1) if args.quick else 3
    for active, exponents, n in ((1300, (14, 16, 18, 20, 22, 24), 20000), (100_000, (18, 20, 22, 24), 20000))[
        : few(2, 1)
    ]:
        n = few(n // 4 if args.quick else n, 300)
        learners = {**LEARNERS, "SGDClassifier.partial_fit": Sgd}
        out, least = {}, {}
        for exponent in exponents:
            wide, dense, labels = hashed(2**exponent, active, n)
            for name, make in learners.items():
                for kind, rows in (("renumbered", dense), (exponent, wide)):
                    used = [learn(make, rows, labels)[0] for _ in range(repeats)]
                    least[name, kind] = min([*used, least.get((name, kind), np.inf)])
            for kind, rows in (("renumbered", dense), (exponent, wide)):
                used = [learn(LEARNERS["ada_diag"], rows, labels, n)[0] for _ in range(repeats)]
                least["ada_diag, one update", kind] = min(used)
            least["SGDClassifier.fit, an epoch", exponent] = min(sgd_fit(wide, labels) for _ in range(repeats))
            least["SGDClassifier.fit, an epoch", "renumbered"] = min(sgd_fit(dense, labels) for _ in range(repeats))
        for (name, kind), used in least.items():
            out.setdefault(name, {})[kind] = n / used
        lines = []
        for name, speeds in out.items():
            at_widths = [speeds[exponent] for exponent in exponents]
            lines.append(
                [name, f"{speeds['renumbered']:,.0f}", *(f"{speed:,.0f}" for speed in at_widths)]
                + [f"{min(at_widths) / max(at_widths):.2f}", f"{min(at_widths) / speeds['renumbered']:.2f}"]
            )
        note = f"{active:,} active columns, {NONZEROS} nonzeros a row, batches of {BATCH:,}: examples/s."
        columns = ["learner", "renumbered", *(f"d = 2^{exponent}" for exponent in exponents)]
        columns += ["least / most", "least / renumbered"]
        table(lines, columns, "few" if active < 10_000 else "many", runs=f"the least of {repeats}", note=note)
    memory(args)


def memory(args):
    """Bytes of the state, and the most that one more update takes, by width and active columns."""
    lines = []
    for active in (1300, 100_000):
        for name, make in LEARNERS.items():
            line = [f"{active:,}", name]
            for exponent in (18, 24):
                wide, _, labels = hashed(2**exponent, active, few(5000 if args.quick else 20000, 300))
                model = learn(make, wide, labels)[1]
                state = sum(array.nbytes for array in model._state()[1].values())
                tracemalloc.start()
                model.update(wide[:BATCH], labels[:BATCH])
                model.decision_function(wide[:BATCH])
                most = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                line += [f"{state / 1e6:.2f}", f"{most / 1e6:.2f}"]
            lines.append(line)
    note = "MB of the state, and the most that an update and a prediction take beside it."
    columns = ["active", "learner", "d = 2^18: state", "an update", "d = 2^24: state", "an update"]
    table(lines, columns, "memory", runs=1, note=note)
