"""The part that the learning commands share: files in, a model learned with checkpoints, facts out."""

import contextlib
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import fastsketch as fs
from fastsketch._validation import as_integer, as_real
from fastsketch.cli import _checkpoint
from fastsketch.cli._consumed import Consumed
from fastsketch.cli._identity import Identity, identity
from fastsketch.cli._output import Output, free_name
from fastsketch.cli._progress import Progress
from fastsketch.cli._reading import Learner, PlainRows, Reader
from fastsketch.cli._signals import held
from fastsketch.io import SourceError
from fastsketch.sketching import SecondPass
from fastsketch.sources import Source, comes_once, naming

L = TypeVar("L", bound=Learner)


def limited(n: int | None) -> contextlib.AbstractContextManager[Any]:
    """The --threads option as a context."""
    return contextlib.nullcontext() if n is None else fs.thread_limit(as_integer(n, "--threads", 1, below=1 << 16))


def given(args: Namespace) -> dict[str, Any]:
    """The model's parameters among the arguments: those that the user gave, and those with a default of the parser."""
    return {name: getattr(args, name) for name in args.parameters if name in args}


def flag(name: str) -> str:
    """The flag of a parameter."""
    return f"--{name.replace('_', '-')}"


def _as_it_is(model: Any) -> None:
    """What most commands do with a model that has learned."""


def learn(
    args: Namespace,
    model: L,
    out: Output,
    *,
    reader: Reader | None = None,
    finish: Callable[[Any], None] = _as_it_is,
) -> tuple[L, dict[str, Any]]:
    """Put the rows of args.inputs through the model and save it; returns the model learned and its facts.

    `finish` is what is done to the model before it is saved. With --passes 2 a sketch reads them twice. An interrupt
    leaves a partial result, from which --resume goes on to the same bits.
    """
    reader = reader or PlainRows()
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
    started, rows_read, passes = time.perf_counter(), 0, getattr(args, "passes", 1)
    current: _Pass[Any] = _Pass(model, consumed)
    checkpoints = _Checkpoints(
        out,
        None if once else args.checkpoint,
        lambda path: _checkpoint.save(path, current.model, job, current.consumed, reader),
    )
    try:
        with limited(args.threads):
            while True:
                title = out.title if passes == 1 else f"{out.title}, pass {current.number} of {passes}"
                progress = Progress(title, args.progress)
                rows_read += current.run(sources, reader, progress, checkpoints)
                if current.number == passes or current.model._is_exact():
                    break
                progress.show(1.0, current.model.n_rows, final=True)
                current = current.again()
            model = current.result(sources)
            notes = {"inputs": [Path(path).name for path in args.inputs], **reader.notes()}
            with held():  # a fit that is complete is saved
                model.notes = notes
                finish(model)
                out.save(model)
                if out.partial is not None:
                    out.partial.unlink(missing_ok=True)
            seconds = time.perf_counter() - started
            progress.show(1.0, model.n_rows, final=True)
            facts = model.facts()
    except KeyboardInterrupt as stop:
        if (current.model.n_rows or current.number > 1) and not out.kept:
            stop.add_note(checkpoints.last_words(current.words()))
        raise
    facts |= {"passes": current.number} if passes > 1 else {}
    facts |= {"seconds": seconds, "rows_per_second": rows_read / seconds}
    return model, facts if out.name is None else {**facts, "output": out.name}


class _Pass(Generic[L]):
    """A model, and what it has consumed: of the first pass a model that learns, of the second a SecondPass."""

    def __init__(self, model: L, consumed: Consumed) -> None:
        self.model, self.consumed = model, consumed
        self.number = 2 if isinstance(model, SecondPass) else 1

    def run(self, sources: Sequence[Source], reader: Reader, progress: Progress, checkpoints: "_Checkpoints") -> int:
        """Read what has not been consumed yet; the number of rows read."""
        model, total, rows_before = self.model, sum(s.size for s in sources) or 1, self.model.n_rows
        done = self.consumed.at(model.n_rows)
        for index in range(len(done) - 1, len(sources)):
            source, before = sources[index], sum(s.size for s in sources[:index])
            row = done[index].rows if index < len(done) else 0
            for arguments, count, position in reader(source, row, model):
                self.consumed.offer(index, arguments)
                with naming(source, row):
                    model.update(*arguments)
                row += count
                progress.show((before + position) / total, model.n_rows)
                checkpoints.when_due()
        if model.n_rows == 0:
            raise ValueError("the inputs hold no rows")
        return model.n_rows - rows_before

    def again(self) -> "_Pass[SecondPass]":
        """The second pass, of which nothing has been read yet."""
        taken = self.consumed.at(self.model.n_rows)
        return _Pass(SecondPass.of(cast(Any, self.model)), Consumed(first=taken))

    def result(self, sources: Sequence[Source]) -> Any:
        """The model learned; SourceError if the inputs have changed between the passes."""
        if not isinstance(self.model, SecondPass):
            return self.model
        for source, then, now in zip_longest(sources, self.consumed.first, self.consumed.at(self.model.n_rows)):
            if now != then:
                raise SourceError(f"{source.name} has changed between the two passes: start again, without --resume")
        return self.model.finish()

    def words(self) -> str:
        """How far it has come."""
        return f"{self.model.n_rows:,} rows{' of the second pass' if self.number > 1 else ''}"


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
