"""The part that the learning commands share: files in, a model learned with checkpoints, facts out."""

import contextlib
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import fastsketch as fs
from fastsketch._validation import as_integer, as_real
from fastsketch.cli import _checkpoint
from fastsketch.cli._consumed import Consumed
from fastsketch.cli._identity import Identity, identity
from fastsketch.cli._output import Output, free_name
from fastsketch.cli._progress import Progress
from fastsketch.cli._reading import Learner, Reader
from fastsketch.cli._signals import held
from fastsketch.sources import Source, comes_once, naming

L = TypeVar("L", bound=Learner)


def limited(n: int | None) -> contextlib.AbstractContextManager[Any]:
    """The --threads option as a context."""
    return contextlib.nullcontext() if n is None else fs.thread_limit(as_integer(n, "--threads", 1, below=1 << 16))


def flag(name: str) -> str:
    """The flag of a parameter."""
    return f"--{name.replace('_', '-')}"


def learn(args: Namespace, model: L, out: Output, reader: Reader) -> tuple[L, dict[str, Any]]:
    """Put the rows of args.inputs through the model, in order, and save it; returns the model learned and its facts.

    An interrupt leaves a partial result, from which --resume goes on to the same bits.
    """
    as_real(args.checkpoint, "--checkpoint", 0.0, 1e9)
    if args.resume and out.partial is None:
        raise ValueError("--resume needs an output that is a file: its partial result lies beside it")
    once = [path for path in args.inputs if comes_once(path)]  # nobody could go on with the rest of a stream
    if args.resume and once:
        raise ValueError(f"--resume: {once[0]} is no file, and its rows cannot be read again")
    sources = reader.open(args)
    job: Identity = {} if once else identity(args, model, sources)
    consumed = Consumed()
    if args.resume and out.partial is not None:
        model, consumed = _checkpoint.resumed(out.partial, model, job, sources, reader)
    else:
        if out.partial is not None and out.partial.exists():
            print(f"fastsketch: {out.partial} will be replaced: --resume would go on from it", file=sys.stderr)
        reader.begin(sources)
    started, rows_before = time.perf_counter(), model.n_rows
    checkpoints = _Checkpoints(
        out,
        None if once else args.checkpoint,
        lambda path: _checkpoint.save(path, model, job, consumed, reader),
    )
    try:
        with limited(args.threads):
            progress = Progress(out.title, args.progress, rows=rows_before)
            _read(model, consumed, sources, reader, progress, checkpoints)
            notes = {"inputs": [Path(path).name for path in args.inputs], **reader.notes()}
            with held():  # a fit that is complete is saved
                model.notes = notes
                out.save(model)
                if out.partial is not None:
                    out.partial.unlink(missing_ok=True)
            seconds = time.perf_counter() - started
            progress.show(1.0, model.n_rows, final=True)
            facts = model.facts()
    except KeyboardInterrupt as stop:
        if model.n_rows and not out.kept:
            stop.add_note(checkpoints.last_words(f"{model.n_rows:,} rows"))
        raise
    facts |= {"seconds": seconds, "rows_per_second": (model.n_rows - rows_before) / seconds}
    return model, facts if out.name is None else {**facts, "output": out.name}


def _read(
    model: Learner,
    consumed: Consumed,
    sources: Sequence[Source],
    reader: Reader,
    progress: Progress,
    checkpoints: "_Checkpoints",
) -> None:
    """Read what has not been consumed yet."""
    total = sum(source.size for source in sources) or 1
    done = consumed.at(model.n_rows)
    for index in range(len(done) - 1, len(sources)):
        source, before = sources[index], sum(other.size for other in sources[:index])
        row = done[index].rows if index < len(done) else 0
        for arguments, count, position in reader(source, row, model):
            consumed.offer(index, arguments)
            with naming(source, row):
                model.update(*arguments)
            row += count
            progress.show((before + position) / total, model.n_rows)
            checkpoints.when_due()
    if model.n_rows == 0:
        raise ValueError("the inputs hold no rows")


class _Checkpoints:
    """Partial results every so many seconds, and a last one when the job is interrupted; none if seconds is None."""

    def __init__(self, out: Output, seconds: float | None, save: Callable[[Path], None]) -> None:
        self._out, self._seconds, self._save = out, seconds, save
        self._saved_at = time.perf_counter()

    def when_due(self) -> None:
        """Save if it is time."""
        if self._seconds and self._out.partial and time.perf_counter() - self._saved_at >= self._seconds:
            with held():
                self._save(self._out.partial)
            self._saved_at = time.perf_counter()

    def last_words(self, so_far: str) -> str:
        """Save, and say how to go on."""
        if self._seconds is None:
            return "nothing has been saved: the rows of a stream cannot be read again"
        if self._out.name is None:
            return "nothing has been saved: there is no --output"
        name = free_name(".fsk") if self._out.path is None else self._out.name
        path = Path(f"{name}.partial") if self._out.partial is None else self._out.partial
        try:
            with contextlib.suppress(KeyboardInterrupt), held():  # an impatient second one changes nothing
                self._save(path)
        except OSError as error:
            return f"the partial result cannot be saved as {path}: {error}"
        how = "--resume" if self._out.partial else f"-o {name} --resume"
        return f"the partial result of {so_far} is in {path}; the same command with {how} goes on from it"
