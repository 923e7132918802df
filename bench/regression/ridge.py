"""Ridge regression in one pass beside its rivals: losses over five splits, seconds, memory, intervals, passes."""

from functools import partial

import numpy as np
from sklearn.linear_model import SGDRegressor

import bench_tools
import fastsketch as fs
from bench_tools import seconds, table
from learning.sets import SPLITS
from regression.peers import COVERAGES, LEARNERS, conjugate_gradients, learned
from regression.sets import SETS, loss, stream, task_of
from store import Parts

OURS, FIT = "SketchedRidge()", "SketchedRidge().fit"
RIVALS = [name for name in LEARNERS if not name.startswith(OURS)]
TINY = ("a9a",)
REFINED = ("farm-ads", "news20", "MNIST features", "ml-1m")


def ridge(args):
    """Losses of every learner on every set, differences to the exact ridge, coverage of intervals, passes of refine."""
    parts, kept, splits = Parts(args), {}, 1 if args.quick else SPLITS
    for name in TINY if bench_tools.tiny else SETS:
        for seed in range(splits):
            task = task_of(name, seed)
            if task is None:
                break
            done = kept.setdefault(name, {})
            for learner in LEARNERS:
                found = parts.of(f"{name} {seed} {learner}", one, learner, task)
                done.setdefault(learner, {})[str(seed)] = found
                print(name, seed, learner, found and found["loss"], flush=True)
            if seed == 0 and name in REFINED:
                done["passes"] = parts.of(f"{name}, passes", passes, task)
            if seed == 0 and name == "generated":
                done["stream"] = parts.of("stream", streamed)
    tables(kept, splits)


def tables(kept, splits):
    """Tables of what was measured; the words about runs name the sets where some learners had fewer splits."""
    counts = {name: min(len(done[other]) for other in LEARNERS if other in done) for name, done in kept.items()}
    fewer = ", ".join(f"{name} from {n}" for name, n in counts.items() if n < splits)
    runs = f"{splits} splits" + (f" ({fewer})" if fewer else "")
    for measure, digits, words in (
        ("loss", 4, "mean +- standard deviation"),
        ("seconds", 2, "median"),
        ("megabytes", 1, "median"),
    ):
        lines = [
            [name, *(cell(values(done, other, measure), digits) for other in LEARNERS)] for name, done in kept.items()
        ]
        table(lines, ["set", *LEARNERS], measure, runs=f"{runs}, {words}")
    differences(kept, f"{runs}, mean +- standard error of paired differences")
    intervals(kept, runs)
    if "stream" in kept.get("generated", {}):
        columns = ["model", "rows", "s", "rows/s", "s to read out", "1 - R2"]
        table(kept["generated"]["stream"], columns, "stream", runs=1)
    columns = ["set", "ridge", "passes, plain", "passes, by the sketch", "of plain"]
    table([[name, *done["passes"]] for name, done in kept.items() if "passes" in done], columns, "passes", runs=1)


def one(learner, task):
    """{measure: value} of a learner on a task, None where it cannot; {"failed": why} where a package is absent."""
    answer = []
    try:
        spent = seconds(lambda: answer.append(learned(learner, task)))
    except ImportError as error:
        return {"failed": f"absent: {error.name}", "loss": None}
    if answer[0] is None:
        return None
    predicted, megabytes, chosen, *covered = answer[0]
    measured = {"loss": loss(task, predicted), "seconds": round(spent, 3), "megabytes": round(megabytes, 2)}
    return measured | {"chosen": chosen} | ({"covered": covered[0]} if covered else {})


def passes(task):
    """Cells of the passes to a residual of 1e-6: CG by itself, and preconditioned by the sketch."""
    strength = fs.SketchedRidge(solver="gram").update(task.x, task.y).facts()["ridge"]
    model = fs.SketchedRidge(ridge=strength, solver="gram").update(task.x, task.y)
    plain = conjugate_gradients(task.x, task.y, strength, 1e-6)[2]
    mine = model.refine(task.x, passes=1000, tolerance=1e-6).passes
    return [f"{strength:.3g}", plain, mine, f"{mine / plain:.2f}"]


def streamed(n_chunks=51, few=3):
    """Cells of models that learn ten million rows a chunk at a time, the sketch fewer; the last chunk tests."""
    n, few = 200 if bench_tools.tiny else 200_000, n_chunks - 1 if bench_tools.tiny else few
    total, models = NormalEquations(), [fs.SketchedRidge(), fs.SketchedRidge(solver="gram"), SGDRegressor()]
    names = ["SketchedRidge()", "SketchedRidge(), a sketch", "SGDRegressor(), one pass", "normal equations"]
    spent, rows, cells = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0), []
    for k, (x, y) in enumerate(stream(n_chunks, n)):
        last = k == n_chunks - 1
        for name, model in zip(names, [*models, total], strict=True):
            if last:
                taken = seconds(partial(model.predict, x[:1]))
                loss = np.mean((model.predict(x) - y) ** 2) / y.var()
                cells.append([name, f"{rows[name]:,}", f"{spent[name]:.1f}", f"{rows[name] / spent[name]:,.0f}"])
                cells[-1] += [f"{taken:.1f}", f"{loss:.4f}"]
            elif name != names[1] or k < few:
                learn = model.partial_fit if hasattr(model, "partial_fit") else model.update
                spent[name], rows[name] = spent[name] + seconds(partial(learn, x, y)), rows[name] + n
    return cells


class NormalEquations:
    """X'X and X'y of sparse rows, added up, with means; a ridge of 1e-9 of the trace against rounding."""

    def __init__(self):
        self.n, self.mean, self.gram, self.cross, self.y = 0, 0.0, 0.0, 0.0, 0.0

    def update(self, x, y):
        self.n, self.mean, self.y = self.n + len(y), self.mean + x.sum(axis=0), self.y + y.sum()
        self.gram, self.cross = self.gram + (x.T @ x).toarray(), self.cross + x.T @ y

    def predict(self, x):
        mu, nu = self.mean / self.n, self.y / self.n
        h = self.gram - self.n * np.outer(mu, mu)
        h[np.diag_indices_from(h)] += 1e-9 * np.trace(h)
        w = np.linalg.solve(h, self.cross - self.n * nu * mu)
        return nu + x @ w - mu @ w


# -- tables ------------------------------------------------------------------------------------------------------------
def values(done, learner, measure):
    """(splits,) of one measure, or None where a split has none."""
    splits = list(done.get(learner, {}).values())
    whole = splits and all(split and split.get(measure) is not None for split in splits)
    return np.array([split[measure] for split in splits]) if whole else None


def cell(measured, digits):
    if measured is None:
        return ""
    if digits < 4:
        return f"{np.median(measured):.{digits}f}"
    return f"{measured.mean():.4f}" + (f" +- {measured.std():.4f}" if len(measured) > 1 else "")


def difference(mine, theirs):
    """Mean and standard error of the paired differences, as text."""
    if mine is None or theirs is None:
        return ""
    n = min(len(mine), len(theirs))  # where fewer splits are there
    gap = mine[:n] - theirs[:n]
    spread = f" +- {gap.std(ddof=1) / np.sqrt(n):.4f}" if n > 1 else ""
    return f"{gap.mean():+.4f}{spread}"


def differences(kept, runs):
    """Losses of ours less those of the rivals: below zero ours is better."""
    lines = []
    for name, done in kept.items():
        for learner in (OURS, FIT):
            mine = values(done, learner, "loss")
            if mine is not None:
                lines.append([name, learner, *(difference(mine, values(done, other, "loss")) for other in RIVALS)])
    table(lines, ["set", "model", *RIVALS], "differences", runs=runs)


def intervals(kept, runs):
    """Shares of test targets within their intervals: the mean, and of single targets and splits the least and most."""
    lines = []
    for learner in LEARNERS:
        for name, done in kept.items():
            splits = [split["covered"] for split in done.get(learner, {}).values() if split and "covered" in split]
            if splits:
                shares = [np.array([split[str(coverage)] for split in splits]) for coverage in COVERAGES]
                cells = [f"{100 * s.mean():.1f} ({100 * s.min():.1f} to {100 * s.max():.1f})" for s in shares]
                lines.append([name, learner, *cells])
    columns = ["set", "model", *(f"{100 * coverage:.0f}%" for coverage in COVERAGES)]
    table(lines, columns, "coverage", runs=f"{runs}, mean (least to most of targets and splits)")
