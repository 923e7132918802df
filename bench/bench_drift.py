"""Streams whose truth moves: errors of predictions made before each row was learned from."""

import warnings

import numpy as np

import fastsketch as fs
from bench_data import elec
from bench_learner_sets import CLASSIFIED, SPLITS, subset, task_of
from bench_learners import log_loss
from bench_tools import few, rival, table

N_FEATURES, BATCH = 20, 100
# Degrees by which the truth turns a row, and rows after which it is drawn anew.
STREAMS = {"still": (0, 0), "slow": (0.01, 0), "fast": (0.1, 0), "abrupt": (0, 2500)}


def stream(kind, n, seed):
    """(rows, labels, what the truth itself says): y = 1 with probability 1 / (1 + exp(-4 w'x)) for a unit vector w."""
    rng = np.random.default_rng(seed)
    degrees, every = STREAMS[kind]
    truths = np.empty((n, N_FEATURES))
    first, second = np.linalg.qr(rng.standard_normal((N_FEATURES, 2)))[0].T
    for i in range(n):
        if every and i and i % every == 0:
            first = rng.standard_normal(N_FEATURES)
            first /= np.linalg.norm(first)
        angle = np.deg2rad(degrees * i)
        truths[i] = np.cos(angle) * first + np.sin(angle) * second
    rows = rng.standard_normal((n, N_FEATURES))
    score = (rows * truths).sum(axis=1)
    return rows, (rng.random(n) < 1 / (1 + np.exp(-4 * score))).astype(int), (score > 0).astype(int)


def ours(**parameters):
    def said(rows, labels):
        model, out = fs.SketchedNewton(classes=[0, 1], **parameters), []
        for first in range(0, len(labels), BATCH):
            model.update(rows[first : first + BATCH], labels[first : first + BATCH])
            out.append(model.last_scores > 0)
        return np.concatenate(out)

    return said


def river(rate):
    """river's logistic regression by gradient steps of a constant length, with its intercept."""

    def said(rows, labels):
        from river import linear_model, optim

        model, out = linear_model.LogisticRegression(optim.SGD(rate)), []
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
            x = dict(enumerate(row))
            out.append(bool(model.predict_one(x)))
            model.learn_one(x, bool(label))
        return np.array(out)

    return said


def vowpal(rate):
    """Vowpal Wabbit's logistic regression by gradient steps of a constant length."""

    def said(rows, labels):
        import vowpalwabbit

        model = vowpalwabbit.Workspace(f"--quiet --loss_function logistic --sgd -l {rate} --power_t 0")
        out = []
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
            example = model.example(f"{2 * label - 1} | " + " ".join(f"f{j}:{v:.6g}" for j, v in enumerate(row)))
            out.append(model.predict(example) > 0)
            model.learn(example)
            model.finish_example(example)
        model.finish()
        return np.array(out)

    return said


LEARNERS = {
    "SketchedNewton()": ours(),
    "SketchedNewton(decay=0.999)": ours(decay=0.999),
    "SketchedNewton(decay=0.99)": ours(decay=0.99),
    'SketchedNewton(decay="auto")': ours(decay="auto"),
    'SketchedNewton(drift="restart")': ours(drift="restart"),
}
PEERS = {
    "river, SGD(0.01), its default": ("river", river(0.01)),
    "river, SGD(0.1)": ("river", river(0.1)),
    "Vowpal Wabbit, --sgd -l 0.01 --power_t 0": ("vowpalwabbit", vowpal(0.01)),
    "Vowpal Wabbit, --sgd -l 0.1 --power_t 0": ("vowpalwabbit", vowpal(0.1)),
}


def drift(args):
    """Mean error of five seeds and its spread, of four streams; the truth's own is what no learner gets below."""
    n, seeds = (few(2000, 300), 2) if args.quick else (10_000, 5)
    learners = dict(LEARNERS)
    for name, (package, learner) in PEERS.items():
        if rival(package):
            learners[name] = learner
    errors = {}
    for kind in STREAMS:
        for seed in range(seeds):
            rows, labels, truth = stream(kind, n, seed)
            for name, said in {**learners, "the truth": lambda *_, truth=truth: truth}.items():
                errors.setdefault((name, kind), []).append(100 * np.mean(said(rows, labels) != labels))
    lines = [
        [name, *(f"{np.mean(errors[name, kind]):.1f} +- {np.std(errors[name, kind], ddof=1):.1f}" for kind in STREAMS)]
        for name in [*learners, "the truth"]
    ]
    note = f"{n:,} rows of {N_FEATURES} features: % of wrong predictions."
    table(lines, ["learner", *STREAMS], "main", runs=f"{seeds} seeds, mean +- standard deviation", note=note)


# -- decay="auto": a real stream, and sets that stand still ------------------------------------------------------------
DECAYS = (1.0, 0.999, 0.99, 0.98, 0.95)
KINDS = {"SketchedNewton": fs.SketchedNewton, "AdaptiveSubgradient": fs.AdaptiveSubgradient}
ROWS = 10_000  # of the training rows of a set, at most


def drifting(args):
    """A market row by row, beside constant decays and river's; and test rows of eleven shuffled sets."""
    warnings.simplefilter("ignore")  # that labels come in runs
    market(few(50_000, 300))
    columns = ["set", "decay 1: accuracy, %", "auto - 1, points", "decay 1: log loss", "auto - 1"]
    names = ["mushrooms"] if args.tiny else list(CLASSIFIED)
    for kind, learner in KINDS.items():
        lines = [still(name, learner, 1 if args.quick else SPLITS) for name in names]
        runs = f"{1 if args.quick else SPLITS} seeds, mean, paired differences with the error of their mean"
        table([line for line in lines if line], columns, f"still-{kind}", runs=runs, note=f"{kind}, one shuffled pass.")


def market(n):
    """Accuracy and log loss on elec of scores from before each row was learned from."""
    found = elec()
    if found is None:
        return
    rows, labels = found[0][:n], found[1][:n]
    chances = {}
    for name, learner in KINDS.items():
        for decay in ("auto", *DECAYS):
            scores = learner(classes=[0, 1], decay=decay).update(rows, labels).last_scores
            chances[f"{name}(decay={decay!r})"] = 1 / (1 + np.exp(-scores))
    if rival("river"):
        for rate in (0.01, 0.1, 0.5):
            chances[f"river, scaled logistic regression, SGD({rate})"] = river_chances(rows, labels, rate)
    same = np.concatenate([[0.5], labels[:-1]])
    times, kept = np.arange(1, len(labels) + 1), np.cumsum(np.abs(same - labels) < 0.5)
    share = np.concatenate([[0.5], ((kept + 1) / (times + 2))[:-1]])  # of labels that were those before, so far
    chances["the label before, as likely as it has been right"] = np.where(same > 0.5, share, 1 - share)
    lines = []
    for name, p in chances.items():
        p = np.clip(np.where(labels > 0, p, 1 - p), 2**-52, 1)
        lines.append([name, f"{100 * np.mean(p > 0.5):.2f}", f"{-np.mean(np.log(p)):.4f}"])
    table(lines, ["learner", "accuracy, %", "log loss"], "elec", runs=1, note=f"elec, {len(labels):,} rows in order.")


def river_chances(rows, labels, rate):
    """Probabilities (n,) of the positive class, each from before its row was learned from."""
    from river import linear_model, optim, preprocessing

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression(optim.SGD(rate), intercept_lr=rate)
    out = []
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        x = dict(enumerate(row))
        out.append(model.predict_proba_one(x).get(True, 0.5))
        model.learn_one(x, bool(label))
    return np.array(out)


def still(name, learner, n_seeds):
    """Line of the table of a set; None where it is absent."""
    found = []
    for seed in range(n_seeds):
        task = task_of(name, seed)
        if task is None:
            return None
        task = subset(task, few(ROWS, 200))
        models = [learner(classes=task.classes, decay=decay).update(task.x, task.y) for decay in (1.0, "auto")]
        right = [100 * np.mean(model.predict(task.test) == task.truth) for model in models]
        found.append([*right, *(log_loss(task, model.predict_proba(task.test)) for model in models)])
    a, b, c, d = np.array(found).T
    gaps = [(gap.mean(), gap.std(ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else 0) for gap in (b - a, d - c)]
    points, losses = (
        f"{mean:+.{digits}f} +- {error:.{digits}f}" for (mean, error), digits in zip(gaps, (2, 4), strict=True)
    )
    return [name, f"{a.mean():.2f}", points, f"{c.mean():.4f}", losses]


# -- progress["moved"]: silent where nothing moves, and how soon it says so where something does -----------------------
CHANGED = 5000  # the row from which on a stream is another one
WARNED = 50.0  # nats, from which on a model warns


def moved(args):
    """When a model says that its stream moves, beside river's detectors of that model's errors, all as they come."""
    warnings.simplefilter("ignore")  # what is counted here
    detectors = {"river DDM": by_ddm, "river ADWIN": by_adwin} if rival("river") else {}
    n_seeds, lines = (1 if args.quick else 3), []
    for name in ["mushrooms"] if args.tiny else CLASSIFIED:
        most, alarms = [], np.zeros(len(detectors), int)
        for seed in range(n_seeds):
            task = task_of(name, seed)
            if task is None:
                break
            task = subset(task, few(ROWS, 200))
            halves = (task.y > np.median(np.unique(task.classes))) if task.y.dtype.kind != "U" else task.y == task.y[0]
            _, nats, errors = _said(task.x, halves.astype(int))
            most.append(nats.max())
            alarms += np.array([len(detector(errors)) > 0 for detector in detectors.values()], dtype=int)
        if most:
            cells = [f"{max(most):.1f}", str(sum(nats >= WARNED for nats in most)), *map(str, alarms)]
            lines.append([name, f"{len(errors):,}", *cells])
    heads = ["set", "rows", "nats, the most", "moved", *detectors]
    note = f"orders with an alarm, of shuffled rows, several classes as two; a model warns at {WARNED:g} nats"
    table(lines, heads, "still", runs=f"{n_seeds} orders", note=note)
    lines = []
    for kind in ("jump", "bias", "slow turn", "elec"):
        firsts, n_streams = [], 1 if kind == "elec" or args.quick else 5
        for seed in range(n_streams):
            found = elec() if kind == "elec" else changed(kind, few(2 * CHANGED, 300), seed)
            if found is None:
                break
            rows, nats, errors = _said(found[0][: few(50_000, 300)], found[1][: few(50_000, 300)])
            change = 0 if kind == "elec" else few(2 * CHANGED, 300) // 2
            calls = [rows[nats >= WARNED], *(detector(errors) for detector in detectors.values())]
            firsts.append([next((row - change for row in said.tolist() if row > change), None) for said in calls])
        if firsts:
            lines.append([kind, *(_median_of(said) for said in zip(*firsts, strict=True))])
    note = f"median rows from the change to an alarm, streams with one; 20 features that change at row {CHANGED:,}"
    table(lines, ["stream", "moved", *detectors], "moving", runs="5 streams a kind, elec once", note=note)


def _median_of(said):
    """Text of the median of rows to an alarm, where one that never comes counts as later than all, and of how many."""
    found = sorted(row for row in said if row is not None)
    middle = len(said) // 2
    median = f"{found[middle]:,}" if len(found) > middle else "none"
    return f"{median}, {len(found)} of {len(said)}"


def changed(kind, n, seed):
    """(rows, labels) of logistic regression on normal features whose truth is another one from the middle on."""
    rng = np.random.default_rng(1000 + seed)
    (first, second), at = np.linalg.qr(rng.standard_normal((N_FEATURES, 2)))[0].T, n // 2
    rows, late = rng.standard_normal((n, N_FEATURES)), np.arange(n) >= at
    angle = np.deg2rad({"jump": 60, "bias": 0, "slow turn": 90}[kind]) * late
    if kind == "slow turn":
        angle = angle * np.clip((np.arange(n) - at) / at, 0, 1)
    truths = np.cos(angle)[:, None] * first + np.sin(angle)[:, None] * second
    score = 4 * ((rows * truths).sum(axis=1) + (0.5 * late if kind == "bias" else 0))
    return rows, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int)


def _said(rows, labels):
    """Rows seen, the nats of `moved` by then, and whether each row was wrong."""
    model, nats, errors = fs.SketchedNewton(classes=[0, 1]), [], []
    ends = np.minimum(np.arange(BATCH, len(labels) + BATCH, BATCH), len(labels))
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        model.update(rows[start:stop], labels[start:stop])
        nats.append(model.progress["moved"])
        errors.append((model.last_scores > 0) != labels[start:stop])
    return ends, np.array(nats), np.concatenate(errors)


def by_ddm(errors):
    """Rows at which river's DDM says that errors have become more, as it comes."""
    from river.drift.binary import DDM

    return _alarms_of(DDM(), errors)


def by_adwin(errors):
    """Rows at which river's ADWIN says that errors are others, as it comes."""
    from river.drift import ADWIN

    return _alarms_of(ADWIN(), errors)


def _alarms_of(detector, errors):
    out = []
    for row, wrong in enumerate(errors.tolist()):
        detector.update(int(wrong))
        if detector.drift_detected:
            out.append(row + 1)
    return np.array(out, int)
