"""predict and score: what a learned model says of rows, and what that is worth."""

import contextlib
import csv
import io
import time
from argparse import Namespace
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.cli import _lowrank
from fastsketch.cli._answers import Answers, as_answers, shown
from fastsketch.cli._appending import npy_rows
from fastsketch.cli._consumed import length
from fastsketch.cli._job import limited
from fastsketch.cli._labelled import Reading, reading_as_learned
from fastsketch.cli._models import load_model
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._progress import Progress
from fastsketch.cli._report import report
from fastsketch.cli._scoring import scorer_of
from fastsketch.lowrank import LowRankModel
from fastsketch.sources import naming

# Rows whose answers are formed at a time, whatever the number of labels.
ROWS_AT_A_TIME = 4096
# Labels whose counts are printed as a table.
MOST_SHOWN = 20


# -- predict -----------------------------------------------------------------------------------------------------------
def predict(args: Namespace) -> None:
    """Labels, values, probabilities or scores of rows; for a low-rank model values of pairs."""
    model = load_model(args.model)
    if isinstance(model, LowRankModel):
        _lowrank.predict(args, model)
        return
    suffix = ".npy" if args.output.endswith(".npy") else ".csv"
    with output_of(args, suffix) as out:
        answers = as_answers(model, args.model)
        if args.rank is not None:
            raise ValueError("--rank is of pairs: this model predicts rows")
        heads, ask = _asked(args, answers)
        reading = reading_as_learned(model, args, labelled=False)
        started = time.perf_counter()
        with limited(args.threads), out.writing() as file, _writer(file, suffix, heads, answers) as write:
            count = each(args, reading, out, lambda rows, _: write(ask(rows)))
        seconds = time.perf_counter() - started
        facts = {"n_rows": count, "seconds": seconds, "rows_per_second": count / seconds, "output": args.output}
        report(args, facts, out)


def _asked(args: Namespace, answers: Answers) -> tuple[list[str], Callable[[Any], NDArray[Any]]]:
    """(names of the columns, none for labels and values; what gives them)."""
    classes = answers.classes
    if args.probabilities:
        if classes is None:
            raise ValueError(f"--probabilities: the model predicts real values (its loss is {answers.model.loss!r})")
        return [shown(label) for label in classes], answers.probabilities
    if args.scores:
        several = classes is not None and len(classes) > 2
        return [shown(label) for label in classes] if several and classes is not None else ["score"], answers.scores
    return [], answers.predict


@contextlib.contextmanager
def _writer(file: Any, suffix: str, heads: list[str], answers: Answers) -> Generator[Callable[[NDArray[Any]], object]]:
    """What takes answers of some rows, (n,) or (n, columns), as csv with a header, if there are heads, or as .npy."""
    if suffix == ".npy":
        labels = not heads and answers.classes is not None
        dtype = answers.classes.dtype if labels and answers.classes is not None else np.float64
        with npy_rows(file, dtype, *([len(heads)] if len(heads) > 1 else [])) as append:
            yield append
        return
    text = io.TextIOWrapper(file, "utf-8", newline="")
    lines = csv.writer(text, lineterminator="\n")
    if heads:
        lines.writerow(heads)
    yield lambda found: lines.writerows(map(shown, row) for row in (found if found.ndim == 2 else found[:, None]))
    text.flush()
    text.detach()


# -- score -------------------------------------------------------------------------------------------------------------
def score(args: Namespace) -> None:
    """What a learned model is worth on labelled rows."""
    args.output = None
    answers = as_answers(load_model(args.model), args.model)
    with output_of(args) as out:
        started = time.perf_counter()
        with limited(args.threads):
            facts = scored(args, answers, reading_as_learned(answers.model, args, labelled=True), out)
        seconds = time.perf_counter() - started
        counts = None if args.json else facts.pop("confusion", None)
        report(args, facts | {"seconds": seconds, "rows_per_second": facts["examples"] / seconds}, out)
        if counts is not None:
            _show(counts, out)


def _show(confusion: dict[str, dict[str, int]], out: Output) -> None:
    """Counts as a table; of very many labels it would be none that a person reads."""
    if len(confusion) > MOST_SHOWN:
        return
    out.say("confusion: a line for each label, a column for what it was taken for")
    width = max(max(map(len, confusion)), *(len(f"{n:,}") for line in confusion.values() for n in line.values())) + 2
    out.say(" " * width + "".join(f"{name:>{width}}" for name in confusion))
    for name, line in confusion.items():
        out.say(f"{name:>{width}}" + "".join(f"{n:>{width},}" for n in line.values()))


def scored(args: Namespace, answers: Answers, reading: Reading, out: Output) -> dict[str, Any]:
    """What the labelled rows of args.inputs say of a model."""
    scorer = scorer_of(answers)
    each(args, reading, out, scorer.add, labelled=True)
    return scorer.facts()


def each(
    args: Namespace, reading: Reading, out: Output, take: Callable[[Any, Any], object], *, labelled: bool = False
) -> int:
    """Hand the rows of args.inputs over, with their labels if `labelled`, else None, and return how many they are."""
    sources = reading.open(args.inputs)
    total, before, count = sum(source.size for source in sources) or 1, 0, 0
    progress = Progress(out.title, args.progress)
    for source in sources:
        row = 0
        for rows, labels, position in reading.labelled(source) if labelled else reading.unlabelled(source):
            n = length(rows)
            for start in range(0, n, ROWS_AT_A_TIME):
                part = slice(start, min(start + ROWS_AT_A_TIME, n))
                with naming(source, row):
                    take(rows[part], None if labels is None else labels[part])
                row += part.stop - part.start
            progress.show((before + position) / total, count + row)
        before, count = before + source.size, count + row
    progress.show(1.0, count, final=True)
    return count
