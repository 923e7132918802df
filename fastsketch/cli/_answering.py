"""predict: what a learned model says of rows, and how good that is."""

import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.cli import _lowrank
from fastsketch.cli._labelled import as_list, require_labels, rows_as_learned
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._reading import load_model
from fastsketch.cli._row_by_row import answer_rows, job_of
from fastsketch.cli._scoring import LinearLearner, scorer_of, shown
from fastsketch.data.files import StateError
from fastsketch.data.sources import Source, naming
from fastsketch.jobs._engines import tell
from fastsketch.jobs._mapping import check_names, in_parts, length
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._progress import Reporter
from fastsketch.lowrank import LowRankModel
from fastsketch.ridge import SketchedRidge

# Rows whose answers are formed at a time, whatever the number of labels.
ROWS_AT_A_TIME = 4096
# Labels whose counts are printed as a table.
MOST_SHOWN = 20


# -- predict -----------------------------------------------------------------------------------------------------------
def predict(args: Namespace) -> None:
    """Write labels, values, probabilities or scores of rows, or say how good they are; of pairs by a low-rank model."""
    models = LowRankModel | LinearLearner | SketchedRidge
    model: Any = load_model(args.model, models, ": models of 'learn' and 'complete' predict")
    if isinstance(model, LowRankModel):
        _lowrank.predict(args, model)
        return
    if model.n_rows == 0:
        raise StateError(f"{args.model} holds a model that has seen no rows")
    if args.what == "metrics":
        _measure(args, model)
        return
    if args.target is not None:
        raise ValueError("--target names labels, which --what metrics alone looks at")
    if args.rank is not None:
        raise ValueError("--rank is of pairs: this model predicts rows")
    heads, method = _asked(args.what, model)
    answer_rows(args, method, rows_as_learned(model, args, labelled=False), ".csv", heads)


def _asked(what: str, model: LinearLearner | SketchedRidge) -> tuple[list[str], Callable[[Any], NDArray[Any]]]:
    """Return (names of the columns, none for labels and values; the method that gives them)."""
    if isinstance(model, SketchedRidge):
        target = model.notes.get("target")
        heads = [name for name in as_list(target) if isinstance(name, str)]
        if what == "labels":
            return heads, model.predict
        if what == "intervals":
            return [f"{name} {end}" for end in ("lower", "upper") for name in heads], partial(ends, model)
        raise ValueError(f"--what {what}: the model is a ridge regression, and predicts real values")
    if what == "labels":
        return [], model.predict
    if what == "intervals":
        raise ValueError("--what intervals is of --method ridge, which holds rows out to measure residuals on")
    names = [] if model.classes is None else list(map(shown, model.classes))
    if what == "scores":
        return names if len(names) > 2 else ["score"], model.decision_function
    if not names:
        raise ValueError(f"--what probabilities: the model predicts real values (its loss is {model.loss!r})")
    return names, model.predict_proba


def ends(model: SketchedRidge, rows: Any) -> NDArray[Any]:
    """Return the lower, then the upper ends of intervals for rows."""
    return np.column_stack(model.predict_interval(rows))


# -- metrics -----------------------------------------------------------------------------------------------------------
def _measure(args: Namespace, model: LinearLearner | SketchedRidge) -> None:
    """Print how good a learned model is on labelled rows."""
    if args.output != "-" or args.resume:
        raise ValueError("--what metrics is printed: there is no output to write, nor to go on with")
    args.output = None
    with output_of(args) as out:
        started = time.perf_counter()
        facts = scored(args, model, out)
        seconds = time.perf_counter() - started
        counts = None if args.json else facts.pop("confusion", None)
        out.report(facts | {"seconds": seconds, "rows_per_second": facts["examples"] / seconds})
        if counts is not None:
            _show(counts, out)


def _show(confusion: dict[str, dict[str, int]], out: Output) -> None:
    """Print counts as a table, unless there are more labels than a person reads."""
    if len(confusion) > MOST_SHOWN:
        return
    out.say("confusion: a line for each label, a column for what it was taken for")
    confusion = {escaped(name): line for name, line in confusion.items()}
    width = max(max(map(len, confusion)), *(len(f"{n:,}") for line in confusion.values() for n in line.values())) + 2
    out.say(" " * width + "".join(f"{name:>{width}}" for name in confusion))
    for name, line in confusion.items():
        out.say(f"{name:>{width}}" + "".join(f"{n:>{width},}" for n in line.values()))


def scored(args: Namespace, model: LinearLearner | SketchedRidge, out: Output) -> dict[str, Any]:
    """Return how good a model is on the labelled rows of args.inputs."""
    source, job, scorer = rows_as_learned(model, args, labelled=True), job_of(args, out), scorer_of(model)
    require_labels(source)
    check_names(model.predict, source)
    parts = source.parts(job.part_bytes)
    counts: dict[int, Any] = {}
    with Reporter(job.progress, source, len(parts)) as reporter:
        tasks = ((number, score_part, (part,)) for number, part in enumerate(parts))
        for number, (n_rows, counted) in in_parts(model, tasks, parts, job, reporter):
            counts[number] = counted
            reporter.finished(JobNode(None, n_rows, number, number, {}))
    for number in range(len(parts)):  # in their order: sums depend on it in the last bit
        scorer.join(counts[number])
    return scorer.facts()


def score_part(model: LinearLearner | SketchedRidge, part: Source) -> tuple[int, Any]:
    """Return (rows of a part, counts of how good the answers for them are)."""
    scorer, total = scorer_of(model), 0
    for source in part.each():
        row = 0
        for rows, labels, _ in source.chunks_beside():
            n = length(rows)
            for start in range(0, n, ROWS_AT_A_TIME):
                piece = slice(start, min(start + ROWS_AT_A_TIME, n))
                with naming(source, row):
                    scorer.add(rows[piece], labels[piece])
                row += piece.stop - piece.start
                tell(piece.stop - piece.start)
        total += row
    return total, scorer.counts()
