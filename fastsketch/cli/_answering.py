"""predict: what a learned model says of rows, and how good that is."""

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from fastsketch.cli import _lowrank
from fastsketch.cli._job import limited
from fastsketch.cli._labelled import Reading, reading_as_learned
from fastsketch.cli._learner_answers import Answers, as_answers, shown
from fastsketch.cli._models import load_model
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._report import report
from fastsketch.cli._row_by_row import InTurn, job_of, named_output, suffix_of, timed, write_answers
from fastsketch.cli._scoring import scorer_of
from fastsketch.data.sources import Source, naming
from fastsketch.jobs._engines import tell
from fastsketch.jobs._mapping import check_names, in_parts, length
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._progress import Reporter
from fastsketch.lowrank import LowRankModel

# Rows whose answers are formed at a time, whatever the number of labels.
ROWS_AT_A_TIME = 4096
# Labels whose counts are printed as a table.
MOST_SHOWN = 20


# -- predict -----------------------------------------------------------------------------------------------------------
def predict(args: Namespace) -> None:
    """Write labels, values, probabilities or scores of rows, or say how good they are; of pairs by a low-rank model."""
    model = load_model(args.model)
    if isinstance(model, LowRankModel):
        _lowrank.predict(args, model)
        return
    if args.what == "metrics":
        _measure(args, model)
        return
    if args.target is not None:
        raise ValueError("--target names labels, which --what metrics alone looks at")
    suffix = suffix_of(args.output, ".csv")
    with output_of(args, suffix, name=named_output(args)) as out:
        answers = as_answers(model, args.model)
        if args.rank is not None:
            raise ValueError("--rank is of pairs: this model predicts rows")
        heads, ask = _asked(args, answers)
        source = reading_as_learned(model, args, labelled=False).whole(args.inputs)
        found = write_answers(args, out, ask, source, suffix, heads)
        report(args, {"n_rows": found.n_rows, **timed(found), "output": args.output}, out)


def _asked(args: Namespace, answers: Answers) -> tuple[list[str], Callable[[Any], NDArray[Any]]]:
    """Return (names of the columns, none for labels and values; the function that gives them)."""
    classes = answers.classes
    if args.what == "probabilities":
        if classes is None:
            raise ValueError(
                f"--what probabilities: the model predicts real values (its loss is {answers.model.loss!r})"
            )
        return [shown(label) for label in classes], answers.probabilities
    if args.what == "scores":
        several = classes is not None and len(classes) > 2
        return [shown(label) for label in classes] if several and classes is not None else ["score"], answers.scores
    return [], answers.predict


# -- metrics -----------------------------------------------------------------------------------------------------------
def _measure(args: Namespace, model: Any) -> None:
    """Print how good a learned model is on labelled rows."""
    if args.output != "-" or args.resume:
        raise ValueError("--what metrics is printed: there is no output to write, nor to go on with")
    args.output = None
    answers = as_answers(model, args.model)
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
    """Print counts as a table, unless there are more labels than a person reads."""
    if len(confusion) > MOST_SHOWN:
        return
    out.say("confusion: a line for each label, a column for what it was taken for")
    width = max(max(map(len, confusion)), *(len(f"{n:,}") for line in confusion.values() for n in line.values())) + 2
    out.say(" " * width + "".join(f"{name:>{width}}" for name in confusion))
    for name, line in confusion.items():
        out.say(f"{name:>{width}}" + "".join(f"{n:>{width},}" for n in line.values()))


def scored(args: Namespace, answers: Answers, reading: Reading, out: Output) -> dict[str, Any]:
    """Return how good a model is on the labelled rows of args.inputs."""
    source, job, scorer = reading.whole(args.inputs), job_of(args, out), scorer_of(answers)
    if not isinstance(source, InTurn):
        check_names(answers.predict, source)
    parts = source.parts(job.part_bytes)
    found: dict[int, Any] = {}
    with Reporter(job.progress, source, len(parts)) as told:
        tasks = ((number, score_part, (reading, part)) for number, part in enumerate(parts))
        for number, (n_rows, counts) in in_parts(answers, tasks, parts, job, told):
            found[number] = counts
            told.finished(JobNode(None, n_rows, number, number, {}))
    for number in range(len(parts)):  # in their order: sums depend on it in the last bit
        scorer.join(found[number])
    return scorer.facts()


def score_part(answers: Answers, reading: Reading, part: Source) -> tuple[int, Any]:
    """Return (rows of a part, counts of how good the answers for them are)."""
    scorer, total = scorer_of(answers), 0
    for source in part.each():
        row = 0
        for rows, labels, _ in reading.labelled(source):
            n = length(rows)
            for start in range(0, n, ROWS_AT_A_TIME):
                piece = slice(start, min(start + ROWS_AT_A_TIME, n))
                with naming(source, row):
                    scorer.add(rows[piece], labels[piece])
                row += piece.stop - piece.start
                tell(piece.stop - piece.start)
        total += row
    return total, scorer.counts()
