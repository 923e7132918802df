"""Learners on whole sets, one pass: accuracy, log loss, seconds, and paired differences, ours against other libraries'.

Every figure is a mean over five seeds and its spread: a seed changes the order in which training rows come and, where a
set has no test part of its own, the split too. Differences are of the same seed, with the standard error of their mean.
"""

import numpy as np

import bench_tools
from bench_tools import table
from learning.peers import ADAPTIVE, CEILING, CONSTANT, LEARNERS, NEWTON, OF_NUMBERS
from learning.sets import CLASSIFIED, SETS, SPLITS, subset, task_of
from store import Parts

NAMES = {"accuracy": "accuracy", "log_loss": "log-loss", "rmse": "error", "seconds": "seconds"}
TOLERANCE = 0.3  # points of accuracy that count as even
# Columns of the summaries, and how the labels of their learners begin.
FAMILIES = {
    NEWTON: (NEWTON, OF_NUMBERS[NEWTON]),
    ADAPTIVE: (ADAPTIVE, OF_NUMBERS[ADAPTIVE]),
    "RFD0": "SketchedNewton, the paper",
    "SGD, average=True": ("SGDClassifier, log_loss, average", "SGDRegressor, average"),
    "SGD()": ("SGDClassifier()", "SGDRegressor()"),
    "AdaGrad": "AdaGrad",
    "Vowpal Wabbit": "Vowpal Wabbit",
    "river": "river",
    "ceiling": CEILING,
    "constant": CONSTANT,
}
TINY = ("mushrooms", "diabetes")


def learners(args):
    """Measure accuracy and log loss of one pass, errors on sets of real targets, and differences from the best peer."""
    parts, kept = Parts(args), {}
    for name in TINY if bench_tools.tiny else SETS:
        for seed in range(1 if args.quick else SPLITS):
            task = task_of(name, seed)
            if task is None:
                break
            task = subset(task, 2000) if args.quick else task
            for learner in LEARNERS:
                if learner.kinds in ("numbers" if task.classes is None else "labels", "both"):
                    about = {"group": learner.group, "passes": learner.passes}
                    done = kept.setdefault(name, {}).setdefault(learner.label, about)
                    done[str(seed)] = parts.of(f"{name} {seed} {learner.label}", one, learner, task, seed)
                    print(name, seed, learner.label, done[str(seed)], flush=True)
    runs = f"{1 if args.quick else SPLITS} seeds, mean +- standard deviation"
    matrices(kept, runs)
    verdicts(kept, runs.replace("deviation", "error"))


def one(learner, task, seed):
    """{measure: value} of a learner on a task; {"failed": why} where it cannot."""
    try:
        answer = learner.learn(task, seed)
    except ImportError as error:
        return {"failed": f"absent: {error.name}"}
    except FloatingPointError:
        return {"failed": "diverges"}
    seconds = round(answer.seconds, 4)
    if task.classes is None:
        gap = answer.predicted - task.truth
        if not np.isfinite(gap).all():
            return {"failed": "diverges"}
        return {"rmse": float(np.sqrt(np.mean(gap**2))), "mae": float(np.mean(np.abs(gap))), "seconds": seconds}
    result = {"accuracy": 100 * float(np.mean(answer.predicted == task.truth)), "seconds": seconds}
    if answer.chances is not None:
        result["log_loss"] = log_loss(task, answer.chances)
    return result


def log_loss(task, chances):
    """Mean of -log of the true label's probability; no probability counts as less than 1e-15."""
    places = np.searchsorted(task.classes, task.truth)
    return float(-np.mean(np.log(np.clip(chances[np.arange(len(places)), places], 1e-15, 1.0))))


# -- tables ------------------------------------------------------------------------------------------------------------
def values(result, measure):
    """(seeds,) of one measure, or None where a seed has none."""
    seeds = [result[key] for key in sorted(result) if key.isdigit()]
    return np.array([held[measure] for held in seeds]) if seeds and all(measure in held for held in seeds) else None


def _cell(found, digits):
    if found is None:
        return ""
    return f"{found.mean():.{digits}f} +- {found.std():.{digits}f}" if found.mean() < 1e4 else f"{found.mean():.0e}"


def matrices(kept, runs):
    """A table for each measure: sets downwards, learners across; of a library's variants of one pass the best."""
    measures = {"accuracy": (1, 2), "log_loss": (-1, 4), "rmse": (-1, 3), "seconds": (-1, 3)}
    for measure, (sign, digits) in measures.items():
        lines = []
        for name, results in kept.items():
            cells = [_best_cell(results, start, measure, sign, digits) for start in FAMILIES.values()]
            if any(cells):
                lines.append([name, *cells])
        if lines:
            table(lines, ["set", *FAMILIES], NAMES[measure], runs=runs)


def _best_cell(results, start, measure, sign, digits):
    """Mean and spread of the best of the learners of at most one pass, or of the ceiling, whose labels begin so."""
    held = [values(result, measure) for label, result in results.items() if label.startswith(start)]
    held = [found for found in held if found is not None]
    if not held:
        return ""
    best = max(held, key=lambda found: sign * found.mean())
    return f"{np.median(best):.{digits}f}" if measure == "seconds" else _cell(best, digits)


def best_peer(results, measure, sign):
    """(label, values) of the best of other libraries' learners of one pass."""
    found = {label: values(result, measure) for label, result in results.items() if _one_pass_peer(result)}
    found = {label: held for label, held in found.items() if held is not None}
    best = max(found, key=lambda label: sign * found[label].mean())
    return best, found[best]


def _one_pass_peer(result):
    return result["group"] == "peers" and result["passes"] == "1"


def paired(mine, theirs):
    """(mean, standard error) of the differences of seeds."""
    gap = mine - theirs
    return gap.mean(), gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan


def verdicts(kept, runs):
    """Ours as they come against the best one-pass learner of other libraries, and the log loss beside its bounds."""
    for kind, label in (("newton", NEWTON), ("adaptive", ADAPTIVE)):
        right, chance, numbers = [], [], []
        for name, results in kept.items():
            mine = label if name in CLASSIFIED else OF_NUMBERS[label]
            if mine not in results or not any(_one_pass_peer(result) for result in results.values()):
                continue
            if name in CLASSIFIED:
                right.append(_right(name, results, mine))
                chance.append(_chance(name, results, mine))
            else:
                numbers.append(_number(name, results, mine))
        peer = "best peer of one pass"
        for measure, lines, heads in (
            ("accuracy", right, ["accuracy, %", peer, "its accuracy, %", "difference, points", "verdict"]),
            ("log_loss", chance, ["log loss", peer, "its log loss", "difference", "of the ceiling", "constant"]),
            ("rmse", numbers, ["error", peer, "its error", "difference", "of the ceiling", "verdict"]),
        ):
            if lines:
                table(lines, ["set", *heads], f"{kind}-{NAMES[measure]}", runs=runs, note=f"{label}.")


def _right(name, results, label):
    mine = values(results[label], "accuracy")
    if mine is None:
        return [name, "fails", "", "", "", ""]
    peer, theirs = best_peer(results, "accuracy", 1)
    gap, error = paired(mine, theirs)
    verdict = "best" if gap > 1e-9 else "even" if -gap <= max(TOLERANCE, error) else "behind"
    return [name, f"{mine.mean():.2f}", peer, f"{theirs.mean():.2f}", f"{gap:+.2f} +- {error:.2f}", verdict]


def _chance(name, results, label):
    mine = values(results[label], "log_loss")
    if mine is None:
        return [name, "none", "", "", "", "", ""]
    peer, theirs = best_peer(results, "log_loss", -1)
    gap, error = paired(mine, theirs)
    cells = [name, f"{mine.mean():.4f}", peer, f"{theirs.mean():.4f}", f"{gap:+.4f} +- {error:.4f}"]
    most, least = (values(results[bound], "log_loss").mean() for bound in (CONSTANT, CEILING))
    return [*cells, f"{mine.mean() / least:.2f}", f"{most:.4f}" + (" (better)" if mine.mean() > most else "")]


def _number(name, results, label):
    mine = values(results[label], "rmse")
    if mine is None:
        return [name, "fails", "", "", "", "", ""]
    peer, theirs = best_peer(results, "rmse", -1)
    gap, error = paired(mine, theirs)
    least = values(results[CEILING], "rmse").mean()
    verdict = "best" if gap < -1e-9 else "even" if gap <= error else "behind"
    cells = [name, f"{mine.mean():.3f}", peer, f"{theirs.mean():.3f}", f"{gap:+.3f} +- {error:.3f}"]
    return [*cells, f"{mine.mean() / least:.2f}", verdict]
