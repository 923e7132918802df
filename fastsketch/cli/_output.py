"""Results of commands, in a file, the standard output, what is no regular file, or nowhere; and facts about them."""

import contextlib
import csv
import io
import json
import math
import os
import sys
from collections.abc import Generator, Iterable
from fnmatch import fnmatch
from glob import has_magic
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from fastsketch._core.escaping import escaped
from fastsketch._core.threads import thread_limit
from fastsketch._core.validation import as_integer
from fastsketch.cli._flags import Verb
from fastsketch.cli._signals import held, mute
from fastsketch.data.files._lock import lock_name, locked
from fastsketch.data.files._replacing import output_target, pour, replacing, same_file, spooled, straight, sweep

STANDARD = "-"
# A fact that is printed in lines of its own, and plotted.
SPECTRUM = "singular_values"
# Names of columns or classes that the text lists; JSON has them all.
MOST_NAMES = 20


class Output:
    """The output of a command, checked before any work is done.

    A regular file, or one that is not there yet, is replaced when its content is complete, and is this job's alone
    meanwhile (``path``, None for everything else; a folder is for the map job to check and hold). "-" is the standard
    output, as is a name that leads to it: then facts go to standard error. What is no regular file gets its bytes when
    all of them are there; if it does not take them, they are saved in the current folder.
    """

    def __init__(self, name: str | None, suffix: str, *, as_json: bool, folder: bool) -> None:
        self.name = name
        self.kept: str | None = None  # where the result is
        self._suffix = suffix
        self._standard = name is not None and (name == STANDARD or _is_standard_output(name))
        self.path = None if name is None or self._standard or folder else output_target(name)
        self._json, self._quiet = as_json, False
        if self._standard and sys.stdout.isatty() and suffix != ".csv":
            raise ValueError("the result is not text, and standard output is a terminal: name a file, or use a pipe")

    # -- files -----------------------------------------------------------------------------------------------------
    @property
    def title(self) -> str:
        """Return a short name."""
        return self.path.name if self.path else "standard output" if self._standard else str(self.name or "result")

    @property
    def partial(self) -> Path | None:
        """Return the file of a partial result; None if it has no name of its own."""
        return None if self.path is None else self.path.with_name(f"{self.path.name}.partial")

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Hold the output for this block; a living job that holds it is an error."""
        if self.path is None:
            yield
            return
        stack = contextlib.ExitStack()
        with held():
            stack.enter_context(locked(self.path))
        try:
            for name in (self.path, self.path.with_name(f"{self.path.name}.partial")):
                sweep(name)
            yield
        finally:
            with contextlib.suppress(KeyboardInterrupt), held():  # too late: all is done, or given up already
                stack.close()

    def save(self, model: Any) -> None:
        """Write a model; a signal waits until it is there."""
        if self.name is None:
            return
        with held():
            content: bytes = model.to_bytes()
            try:
                with self.writing() as file:
                    file.write(content)
            except OSError as error:
                if self.path is not None:
                    error.add_note(self._rescue(io.BytesIO(content)))
                raise

    @contextlib.contextmanager
    def writing(self) -> Generator[BinaryIO]:
        """Open a binary file, which becomes the result when the block ends; it may be seeked in."""
        with contextlib.ExitStack() as stack:
            if self.path is not None:
                with replacing(self.path) as file:
                    yield file
                    stack.enter_context(held())  # until it has its name
                self.kept = str(self.name)
                return
            file = stack.enter_context(spooled())
            yield file
            stack.enter_context(held())
            self._pour(file)
            self.kept = self.title

    def write_csv(self, rows: Iterable[Iterable[Any]]) -> None:
        """Write lines of cells as the result."""
        with self.writing() as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            csv.writer(text, lineterminator="\n").writerows(rows)
            text.flush()
            text.detach()

    def _pour(self, file: BinaryIO) -> None:
        try:
            if self._standard:
                sys.stdout.flush()
                if sys.stdout.isatty():  # text, as the constructor has seen to
                    file.seek(0)
                    lines = file.read().decode("utf-8", "replace").split("\n")
                    sys.stdout.write("\n".join(map(escaped, lines)))
                    sys.stdout.flush()
                else:
                    pour(file, sys.stdout.buffer)
            else:
                with straight(str(self.name)) as sink:
                    pour(file, sink)
        except (OSError, ValueError) as error:  # ValueError: standard output is closed
            if isinstance(error, BrokenPipeError) and self._standard:
                mute(sys.stdout)
            error.add_note(self._rescue(file))
            raise

    def _rescue(self, file: BinaryIO) -> str:
        name = free_name(self._suffix)
        try:
            with replacing(name) as rescued:
                pour(file, rescued)
        except OSError as error:
            return f"nor could the result be saved as {name}: {error}"
        return f"the result has been saved as {name}"

    # -- words -----------------------------------------------------------------------------------------------------
    @property
    def stream(self) -> TextIO:
        """Return the stream that facts are printed on."""
        return sys.stderr if self._standard else sys.stdout

    def report(self, facts: dict[str, Any]) -> None:
        """Print facts, with the output, as JSON or as text, a line each; a spectrum is left out of the text."""
        facts = facts if self.name is None else {**facts, "output": self.name}
        if self._json:
            self._print(json.dumps(finite(facts)).replace("\x7f", r"\u007f"))
            return
        texts = {
            escaped(name.replace("_", " ")): value if type(value) is str else as_text(value)
            for name, value in facts.items()
            if name != SPECTRUM
        }
        if "rows_per_second" in facts:
            texts["rows per second"] = f"{facts['rows_per_second']:,.0f}"
        width = max(map(len, texts))
        self.say(*(f"{name:<{width}}  {text}" for name, text in texts.items()))

    def say(self, *lines: str) -> None:
        """Print lines of facts, with what is no printable character escaped."""
        self._print("\n".join(map(escaped, lines)))

    def _print(self, text: str) -> None:
        """Print a text. Nobody may be reading any more: that ends a command that has no other result."""
        if self._quiet:
            return
        try:
            print(text, file=self.stream, flush=True)
        except OSError as error:
            gone = isinstance(error, BrokenPipeError)
            if self.name is not None and not gone and self.kept is None:
                return  # work goes on: the facts at its end will fail, too
            mute(self.stream)  # or Python would end with a status of its own
            if self.name is None or not gone:
                if self.kept:
                    error.add_note(f"the result is in {self.kept}")
                raise
            self._quiet = True


def finite(value: Any) -> Any:
    """Return the same with None for infinities and NaN: JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [finite(item) for item in cast(list[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(value: Any) -> str:
    """Return a fact on one line."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        named = cast(dict[str, Any], value)
        return ", ".join(f"{name}={as_text(item)}" for name, item in named.items() if item is not None)
    if not isinstance(value, list):
        return str(value)
    items = cast(list[Any], value)
    many = len(items) > MOST_NAMES and all(isinstance(item, str) for item in items)
    text = ", ".join(map(as_text, items[: MOST_NAMES if many else None]))
    return f"{text}, ... ({len(items):,})" if many else text


# Arguments of verbs that name files to read.
INPUTS = ("inputs", "model", "source", "events")


@contextlib.contextmanager
def output_of(verb: Verb, suffix: str = ".fsk", *, over_input: bool = False, folder: bool = False) -> Generator[Output]:
    """Hold the output of a verb, and --threads, for as long as it runs; an interrupt says what has become of it.

    It must be none of the inputs, unless `over_input`. A verb without an output prints its facts only.
    """
    name: str | None = getattr(verb, "output", None)
    out = Output(name, suffix, as_json=verb.json, folder=folder)
    if not over_input and out.path is not None:
        for source in _inputs(verb):
            if same_file(out.path, source):
                raise ValueError(f"the output {name} is also an input: it would be lost")
            if _among(out.path, source):
                raise ValueError(
                    f"the output {name} would be read with {source}, and so would its lock: put it into another "
                    "folder, or name the files"
                )
    try:
        with _limit(verb.threads), out.alone():
            yield out
    except KeyboardInterrupt as stop:
        if out.kept:
            stop.add_note(f"the result is in {out.kept}")
        elif out.name is not None and not getattr(stop, "__notes__", ()):
            kept = out.partial is not None and out.partial.exists()
            stop.add_note(f"{out.partial} is as it was" if kept else "nothing has been saved")
        raise


def _limit(n: int | None) -> contextlib.AbstractContextManager[Any]:
    """Return the limit of --threads as a context."""
    return contextlib.nullcontext() if n is None else thread_limit(as_integer(n, "--threads", 1, below=1 << 16))


def free_name(suffix: str) -> str:
    """Return a name in the current folder that no file has, for a result without a place."""
    stem = f"fastsketch-{os.getpid()}"
    tried = 0
    while Path(name := f"{stem}{f'-{tried}' if tried else ''}{suffix}").exists():
        tried += 1
    return name


def _is_standard_output(name: str) -> bool:
    """Return whether a name leads to the file behind the standard output, which the null device never is."""
    try:
        about = Path(name).stat()
        if os.path.samestat(about, Path(os.devnull).stat()):
            return False
        return os.path.samestat(about, os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


def _inputs(verb: Verb) -> Generator[str]:
    for name in INPUTS:
        given: Any = getattr(verb, name, None)
        yield from cast("list[str]", given) if isinstance(given, list) else [given] if given else []


def _among(path: Path, name: str) -> bool:
    """Return whether a folder, or a glob, that is read would have the lock of an output among its files."""
    lock = lock_name(path.absolute())
    if Path(name).is_dir():
        folder = Path(name).absolute()
        within = lock.relative_to(folder).parts if lock.is_relative_to(folder) else (".",)
        return not any(part.startswith((".", "_")) for part in within)  # as folders are read
    return has_magic(name) and not Path(name).exists() and fnmatch(str(lock), str(Path(name).absolute()))
