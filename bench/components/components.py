"""Principal components: SketchedPCA against IncrementalPCA and PCA, one extra pass, and audits.

Every run has a process of its own, forked from one that holds the rows and nothing else; seconds are of the processor,
runs of the ways follow each other in turn, and a ratio is the median of the rounds' ratios.
"""

import time
from typing import NamedTuple

import numpy as np

import fastsketch as fs
from bench_tools import few, table
from components.sets import QUICK, SETS, captured, spectral_error, truth_of
from components.ways import OF_NOISE, WAYS, Found, apart, fd_with_ledger
from fastsketch.sklearn import SketchedPCA

COUNTS = (10, 32)
# A way that takes longer than this is not repeated; one that takes longer than LIMIT, or more memory than GIGABYTES
# beyond the rows, is not finished.
ONCE, LIMIT, GIGABYTES = 3.0, 40.0, 4.0
OURS, GRAM = "SketchedPCA, fit", "gram"
DEFAULT, SMALL = "IncrementalPCA", "200 rows"


class Quality(NamedTuple):
    worst: float  # relative error of the first k variances
    median: float
    deficit: float  # (best captured variance - captured) / total
    certificate: float  # the sketch's own bound, in squared units; NaN where there is none
    outside: int  # true variances outside their interval
    way: str  # that SketchedPCA took


class Case(NamedTuple):
    """All that was found on one set with one number of components."""

    name: str
    kind: str
    shape: tuple
    k: int
    runs: dict  # way: [Found, ...], results are Quality
    fd: float  # the certificate of Frequent Directions with as many rows
    ledger: float  # the deficit of Frequent Directions with a ledger, on drifting streams
    again: Found  # (Quality, seconds) after one extra pass
    audit: Found

    def quality(self, way):
        return self.runs[way][0].result

    def seconds(self, way):
        return np.array([run.seconds for run in self.runs[way]])

    def faster(self, way, rival):
        """How many times faster: the median over the rounds; for a rival that was given up, from what it would take."""
        mine, theirs = self.seconds(way), self.seconds(rival)
        if np.isnan(theirs[0]):
            return self.given_up(rival) / float(np.median(mine))
        rounds = min(len(mine), len(theirs))
        return float(np.median(theirs[:rounds] / mine[:rounds]))

    def given_up(self, way):
        """Seconds of a way that was not finished, infinite where memory was what it lacked."""
        note = self.runs[way][0].note
        return float(note.strip("~> s")) if note.endswith(" s") else np.inf


# -- measuring ---------------------------------------------------------------------------------------------------------
def variances(model, rows, truth, k):
    """Quality of a fitted estimator."""
    found = np.asarray(model.explained_variance_, np.float64)[:k] * (rows.shape[0] - 1)
    true = truth.eigenvalues[:k]
    errors = np.abs(found - true) / true
    sketch, outside = getattr(model, "sketch_", None), 0
    interval = getattr(model, "explained_variance_interval_", None)
    if interval is not None:
        # the truth itself is known to about 1e-12
        low, high = np.asarray(interval, np.float64)[:k].T * (rows.shape[0] - 1)
        outside = int(np.sum((true < low * (1 - 1e-10)) | (true > high * (1 + 1e-10))))
    return Quality(
        float(errors.max()),
        float(np.median(errors)),
        float((true.sum() - captured(rows, model.components_[:k])) / truth.total),
        np.nan if sketch is None else float(sketch.error_bound),
        outside,
        "" if sketch is None else _way(model),
    )


def _way(model):
    passes = model.n_passes_
    return f"{model.solver_}, {passes} passes" if passes > 1 else model.solver_


def run(way, rows, truth, k, limit=LIMIT):
    """A function for a process of its own: the fit and what is read of it, then its quality beyond the clock."""

    def function():
        model = {**WAYS, **OF_NOISE}[way](rows, k, limit)
        model.components_, model.explained_variance_  # noqa: B018 (SketchedPCA reads them when they are asked for)
        return lambda: variances(model, rows, truth, k)

    return function


def extra_pass(rows, truth, k):
    """What one more pass over the rows makes of one pass with solver="gram"."""

    def function():
        model = SketchedPCA(n_components=k, solver="gram").fit(rows)
        start = time.process_time()
        model.sketch_.refine(rows)
        model.components_, model.explained_variance_  # noqa: B018
        taken = time.process_time() - start
        return lambda: (variances(model, rows, truth, k), taken)

    return function


def audited(rows):
    """sketch.audit against the exact spectral error."""

    def function():
        sketch = fs.FrequentDirections(30, method="tfd", solver="gram", center=True).update(rows)
        start = time.process_time()
        audit = sketch.audit(rows)
        taken = time.process_time() - start
        return lambda: (audit.error, spectral_error(rows, sketch), audit.error_bound, audit.passes, taken)

    return function


def deficit_with_ledger(rows, truth, k):
    vt = fd_with_ledger(rows - rows.mean(axis=0), 2 * k + 10)[1][:k]
    return float((truth.eigenvalues[:k].sum() - captured(rows, vt)) / truth.total)


def bound_of_fd(rows, k):
    sketch = fs.FrequentDirections(2 * k + 10, method="fd", solver="gram", center=True)
    return float(sketch.update(rows).error_bound)


def warm_up():
    """Every way once, so that no measurement pays for first calls."""
    rows = np.random.default_rng(0).standard_normal((60, 20))
    for way in WAYS.values():
        way(rows, 2, np.inf).components_  # noqa: B018
    bound_of_fd(rows, 2)


def measure(name, *, counts, repeats):
    """[Case, ...] of one set, in the process that holds its rows."""
    rows = SETS[name].make()
    if rows is None:
        return []
    kind = SETS[name].kind
    truth = apart(lambda: truth_of(rows, max(counts)))
    if truth.note:
        raise SystemExit(f"{name}: no truth ({truth.note})")
    truth = truth.result
    runs = {(k, way): [] for k in counts for way in WAYS}
    for _ in range(repeats):
        for (k, way), found in runs.items():
            if found and not found[0].seconds < ONCE:
                continue
            found.append(apart(run(way, rows, truth, k), limit=LIMIT, gigabytes=GIGABYTES))
    out, again = [], kind == "text" or name in ("MNIST", "Isolet")
    for k in counts:
        rounds = {way: runs[k, way] for way in WAYS}
        none = Found(note="not asked")
        out.append(
            Case(
                name,
                kind,
                rows.shape,
                k,
                rounds,
                apart(lambda k=k: bound_of_fd(rows, k)).result,
                apart(lambda k=k: deficit_with_ledger(rows, truth, k)).result if kind == "drift" else np.nan,
                apart(extra_pass(rows, truth, k)) if again else none,
                apart(audited(rows)) if k == counts[0] and kind != "size" else none,
            )
        )
    return out


def components(args):
    """Tables of accuracy, time and memory on real sets and adversarial streams."""
    warm_up()
    names, counts = (QUICK, COUNTS[:1]) if args.quick else (SETS, COUNTS)
    cases = []
    for name in names:
        found = apart(lambda name=name: measure(name, counts=counts, repeats=1 if args.quick else 3))
        if found.note:
            raise SystemExit(f"{name}: {found.note}")
        if found.result:
            print(f"{name}: {found.result[0].shape[0]:,} x {found.result[0].shape[1]:,}", flush=True)
        cases += found.result
    tables(cases, 1 if args.quick else 3)


def noise(args):
    """Measure seconds and the worst relative error of k variances of flat noise, where no direction stands out."""
    side = few(600 if args.quick else 4000, 200)
    rows = np.random.default_rng(0).standard_normal((side, side))
    truth, lines = apart(lambda: truth_of(rows, max(COUNTS))).result, []
    for k in COUNTS:
        for way in (OURS, "PCA arpack", DEFAULT, "PCA"):
            found = apart(run(way, rows, truth, k, np.inf))
            lines.append([k, way, f"{found.seconds:.3g}", f"{found.result.worst:.1e}"])
    table(lines, ["k", "way", "s", "worst error"], runs=1, note=f"Flat noise, {side:,} x {side:,}.")


# -- tables ------------------------------------------------------------------------------------------------------------
def share(value):
    """A relative error."""
    if not np.isfinite(value):
        return "none"
    if value >= 1e-3:
        return f"{100 * value:.2g}%"
    return "0" if abs(value) < 5e-14 else f"{100 * value:.0e}%"


def by_way(cases, cell):
    """A line a set: for every way the cells of its numbers of components."""
    out = []
    for name in dict.fromkeys(case.name for case in cases):
        of = [case for case in cases if case.name == name]
        n, d = of[0].shape
        line = [name, f"{n:,} x {d:,}"]
        for way in WAYS:
            cells = [case.runs[way][0].note or cell(case, way) for case in of]
            line.append(" / ".join(cells))
        out.append(line)
    return out


def seconds_of(case, way):
    taken = case.seconds(way)
    spread = f" +- {100 * (taken.max() - taken.min()) / 2 / np.median(taken):.0f}%" if len(taken) > 1 else ""
    return f"{np.median(taken):.3g}{spread}"


def tables(cases, repeats):
    head = ["set", "rows", *WAYS]
    cells = f"The cells have {' / '.join(f'k = {case.k}' for case in cases if case.name == cases[0].name)} components."
    for name, title, cell in (
        (
            "worst",
            "the largest relative error of the first k variances",
            lambda case, way: share(case.quality(way).worst),
        ),
        (
            "median",
            "the median relative error of the first k variances",
            lambda case, way: share(case.quality(way).median),
        ),
        ("deficit", "the deficit of captured variance", lambda case, way: f"{max(case.quality(way).deficit, 0.0):.1e}"),
        ("seconds", "processor seconds, as the median +- half of the range", seconds_of),
        (
            "memory",
            "the peak of memory in MB, in addition to the rows",
            lambda case, way: f"{max(f.megabytes for f in case.runs[way]):.3g}",
        ),
    ):
        runs = f"{repeats} runs, 1 of what takes longer" if name == "seconds" else 1
        table(by_way(cases, cell), head, name, runs=runs, note=f"The table shows {title}. {cells}")
    note = "Ways, certificates, drifts, intervals."
    table([_certificates(case) for case in cases], name="ways", runs=1, note=note)
    note = "One extra pass after solver='gram'."
    table([_again(case) for case in cases if case.again.note != "not asked"], AGAIN, "refine", runs=1, note=note)
    note = "The audits are of Tracked FD with sketches of l = 30 rows."
    table([_audit(case) for case in cases if case.audit.note != "not asked"], AUDIT, "audits", runs=1, note=note)


AGAIN = ["set", "k", "worst variance", "after", "deficit", "after", "s of the pass"]
AUDIT = ["set", "audited error", "true", "audited / true - 1", "certificate / true", "passes", "s"]


def _certificates(case):
    got = case.quality(GRAM)
    ours = [case.runs[way][0].result for way in (OURS, "partial_fit", GRAM)]
    ways = [quality.way if quality else "" for quality in ours[:2]]
    return {
        "set": case.name,
        "k": case.k,
        "way of fit": ways[0],
        "of partial_fit": ways[1],
        "certificate of gram / FD's": f"{certificate(case):.2f}" if got and case.fd > 0 else "",
        "times faster than IncrementalPCA": f"{case.faster(OURS, DEFAULT):.1f}",
        "than batches of 200": f"{case.faster(OURS, SMALL):.1f}",
        "deficit of gram": f"{got.deficit:.1e}" if got else "",
        "of FD with ledger": "" if np.isnan(case.ledger) else f"{case.ledger:.1e}",
        "true variances outside intervals (fit, partial_fit, gram)": sum(q.outside for q in ours if q),
    }


def certificate(case):
    """Of one pass in gram mode, over that of FD with as many rows."""
    return case.quality(GRAM).certificate / case.fd


def _again(case):
    if case.again.note:
        return [case.name, case.k, case.again.note, *[""] * 4]
    before, (after, taken) = case.quality(GRAM), case.again.result
    return [
        case.name,
        case.k,
        share(before.worst),
        share(after.worst),
        f"{before.deficit:.1e}",
        f"{after.deficit:.1e}",
        f"{taken:.2f}",
    ]


def _audit(case):
    if case.audit.note:
        return [case.name, case.audit.note, *[""] * 5]
    error, true, bound, passes, taken = case.audit.result
    return [
        case.name,
        f"{error:.4g}",
        f"{true:.4g}",
        f"{error / true - 1:.1e}" if true else "",
        f"{bound / true:.2f}" if true else "",
        passes,
        f"{taken:.2f}",
    ]
