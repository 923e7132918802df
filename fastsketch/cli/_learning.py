"""learn: a linear model from labelled rows, with the loss as it goes."""

import tempfile
from pathlib import Path

import numpy as np

from fastsketch._validation import as_integer
from fastsketch.cli._job import learn, limited, report
from fastsketch.io import open_source
from fastsketch.io._sources import SourceError
from fastsketch.online import AdaptiveSubgradient, SketchedNewton


def learn_online(args):
    """Learn from svmlight files; progressive loss, accuracy on a test set, a model file."""
    as_integer(args.every, "--every", 0)
    if args.method == "newton":
        model = SketchedNewton(args.sketch_size, args.sketch, args.loss, args.alpha0, args.projection, seed=args.seed)
    else:
        model = AdaptiveSubgradient(
            args.sketch_size,
            args.method,
            args.form,
            args.loss,
            args.eta,
            args.delta,
            penalty=args.penalty,
            strength=args.strength,
            seed=args.seed,
        )
    for path in [*args.inputs, *([args.test] if args.test else [])]:
        if Path(path).suffix in (".npy", ".npz"):
            raise SourceError(f"{path}: labels are read from svmlight text only")
    if args.test:
        open_source(args.test, n_features=1)  # whether it is there is to be known before the work is done
    with tempfile.TemporaryDirectory() as folder:
        if args.output is None:
            args.output = str(Path(folder) / "model.fsk")
        facts = learn(args, model, lambda learned: describe(learned, args), Chunks(args))
        if args.output.startswith(folder):
            del facts["output"]
    report(args, facts)


class Chunks:
    """Labelled pieces of a file as arguments of update; prints a line every so many examples."""

    def __init__(self, args):
        self.args = args
        self.labels = set()

    def __call__(self, source, start_row, model):
        step = self.args.every or 2**62
        for rows, labels, position in source.labelled_chunks(start_row):
            targets = self.signs(labels, source.path)
            for start in range(0, rows.shape[0], step):
                part = slice(start, min(start + step, rows.shape[0]))
                yield (rows[part], targets[part]), part.stop - part.start, position
                if self.args.every and not self.args.json:
                    told = model.progress
                    error = "" if self.args.regression else f"  error rate {told['error_rate']:.4f}"
                    print(f"{told['rounds']:>12,} examples  mean loss {told['mean_loss']:.5f}{error}", flush=True)

    def signs(self, labels, path):
        """Targets of a classification are the signs of two labels: -1 and 1, 0 and 1, or 1 and 2."""
        if self.args.regression:
            return labels
        before = set(self.labels)
        self.labels.update(np.unique(labels).tolist())
        if before == {1.0} and 2.0 in self.labels:
            raise ValueError(f"{path}: labels are 1 and 2, but the first rows had only 1, taken for the positive one")
        if not any(self.labels <= set(pair) for pair in ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))):
            listed = ", ".join(f"{label:g}" for label in sorted(self.labels)[:6])
            raise ValueError(
                f"{path}: labels must be two, -1 and 1, 0 and 1, or 1 and 2, got {listed}; "
                "real targets need --regression"
            )
        return np.where(labels >= 2, 1.0, -1.0) if 2.0 in self.labels else np.where(labels > 0, 1.0, -1.0)


def describe(model, args):
    """The facts of a learner, with what it does on the test rows."""
    progress = model.progress
    facts = {
        "method": args.method,
        "sketch_size": model.sketch_size,
        "loss": model.loss,
        "examples": model.n_rounds,
        "features": model.n_features,
        "mean_loss": progress["mean_loss"],
    }
    if args.method == "newton":
        facts.update(sketch=model.sketch, alpha=model.alpha)
    else:
        facts.update(eta=model.eta, delta=model.delta)
    if not args.regression:
        facts["online_error_rate"] = progress["error_rate"]
    if args.test:
        chunks, right, squares, count = Chunks(args), 0, 0.0, 0
        source = open_source(args.test, n_features=model.n_features, zero_based=args.zero_based)
        with limited(args.threads):
            args.every = 0
            for (rows, targets), n, _ in chunks(source, 0, model):
                predicted = model.predict(rows)
                right += int(((predicted > 0) == (targets > 0)).sum())
                squares += float(((predicted - targets) ** 2).sum())
                count += n
        facts["test_examples"] = count
        if args.regression:
            facts["test_mean_squared_error"] = squares / max(count, 1)
        else:
            facts["test_accuracy"] = right / max(count, 1)
    return facts
