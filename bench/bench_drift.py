"""Streams whose truth moves: errors of predictions made before each row was learned from."""

import numpy as np

import fastsketch as fs
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
