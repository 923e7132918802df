"""The output of a command: a file, the standard output, a pipe or device, or none, and the printed summary.

``Output`` is the one place that prints facts, as text or with --json.
"""

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
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from fastsketch._core.escaping import escaped
from fastsketch._core.threads import thread_limit
from fastsketch._core.validation import as_integer
from fastsketch.cli._flags import Verb
from fastsketch.cli._signals import delay_signals, redirect_to_null
from fastsketch.data.files._lock import lock_name, locked
from fastsketch.data.files._replacing import (
    open_for_writing,
    output_target,
    pour,
    remove_stale_temporary_files,
    replacing,
    same_file,
    spooled,
)

STANDARD_STREAM = "-"
# The fact that `info` prints in lines of its own.
SPECTRUM = "singular_values"
# Names of columns or classes that the text lists. JSON has all of them.
MAX_NAMES = 20
# Names of fields of verbs that hold names of files to read.
INPUT_FIELDS = ("inputs", "model", "source", "events")


class Output:
    """The output of a command, which is checked when it is created, before any work is done.

    - A regular file, or a name that does not exist, is replaced when the content is complete; until then it is locked.
    - "-", or a name of the file behind the standard output, is the standard output; facts then go to standard error.
    - A pipe or device gets its bytes when all of them are known. If it cannot be written, the result is saved in the
      current folder.
    - A folder is checked and locked by the map job that writes it.

    Attributes
    ----------
    name : str or None
        As given on the command line; None for no output.
    path : Path or None
        The regular file; None for every other kind of output.
    kept : str or None
        Where the result is, once it has been written.
    """

    def __init__(self, name: str | None, suffix: str, *, as_json: bool, folder: bool) -> None:
        self.name = name
        self.saved_as: str | None = None
        self._suffix = suffix
        self._standard = name is not None and (name == STANDARD_STREAM or _is_standard_output(name))
        self.path = None if name is None or self._standard or folder else output_target(name)
        self._json, self._quiet = as_json, False
        if self._standard and sys.stdout.isatty() and suffix != ".csv":
            raise ValueError("the result is not text, and standard output is a terminal: name a file, or use a pipe")

    # -- files -----------------------------------------------------------------------------------------------------
    @property
    def title(self) -> str:
        """Short name of the output for progress lines."""
        return self.path.name if self.path else "standard output" if self._standard else str(self.name or "result")

    @property
    def partial(self) -> Path | None:
        """Path of the folder for a partial result, OUTPUT.partial; None if the output is not a regular file."""
        return None if self.path is None else self.path.with_name(f"{self.path.name}.partial")

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Lock the output file for a ``with`` block, and delete temporary files of killed processes.

        Raise LockHeld if another job has locked the file. Signals are delayed while the lock is taken and released. An
        output that is not a regular file is not locked.
        """
        if self.path is None or self.partial is None:
            yield
            return
        stack = contextlib.ExitStack()
        with delay_signals():
            stack.enter_context(locked(self.path))
        try:
            for name in (self.path, self.partial):
                remove_stale_temporary_files(name)
            yield
        finally:
            with (
                contextlib.suppress(KeyboardInterrupt),
                delay_signals(),
            ):  # the job is over, nothing is left to interrupt
                stack.close()

    def save(self, model: Any) -> None:
        """Write a model to the output, if there is one.

        Signals are delayed until it is written. If a file cannot be written, the model is saved in the current folder.
        """
        if self.name is None:
            return
        with delay_signals():
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
        """Open a binary file for a ``with`` block, whose content becomes the output if the block ends without an error.

        The file is seekable, even if the output is a pipe.
        """
        with contextlib.ExitStack() as stack:
            if self.path is not None:
                with replacing(self.path) as file:
                    yield file
                    stack.enter_context(delay_signals())  # until the file has its name
                self.saved_as = str(self.name)
                return
            file = stack.enter_context(spooled())
            yield file
            stack.enter_context(delay_signals())
            self._pour(file)
            self.saved_as = self.title

    def write_csv(self, rows: Iterable[Iterable[Any]]) -> None:
        """Write rows of cells to the output as csv."""
        with self.writing() as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            csv.writer(text, lineterminator="\n").writerows(rows)
            text.flush()
            text.detach()

    def _pour(self, file: BinaryIO) -> None:
        """Copy the content of a file to the standard output, a pipe or a device.

        If that fails, the content is saved in the current folder, and the error gets a note of that.
        """
        try:
            if not self._standard:
                with open_for_writing(str(self.name)) as sink:
                    pour(file, sink)
                return
            sys.stdout.flush()
            if sys.stdout.isatty():  # only csv goes to a terminal, see the constructor
                file.seek(0)
                print(*map(escaped, file.read().decode("utf-8", "replace").split("\n")), sep="\n", end="", flush=True)
            else:
                pour(file, sys.stdout.buffer)
        except (OSError, ValueError) as error:  # ValueError: standard output is closed
            if isinstance(error, BrokenPipeError) and self._standard:
                redirect_to_null(sys.stdout)
            error.add_note(self._rescue(file))
            raise

    def _rescue(self, file: BinaryIO) -> str:
        """Copy a result that could not be written to its output to a new file in the current folder.
        Return a message with the name of that file, or with the error if it could not be written either.
        """
        names = (f"fastsketch-{os.getpid()}{f'-{number}' if number else ''}{self._suffix}" for number in count())
        name = next(name for name in names if not Path(name).exists())
        try:
            with replacing(name) as rescued:
                pour(file, rescued)
        except OSError as error:
            return f"nor could the result be saved as {name}: {error}"
        return f"the result has been saved as {name}"

    # -- facts -----------------------------------------------------------------------------------------------------
    @property
    def stream(self) -> TextIO:
        """The stream to which summaries are printed: standard output, or standard error if the result goes to standard
        output.
        """
        return sys.stderr if self._standard else sys.stdout

    def report(self, facts: dict[str, Any]) -> None:
        """Print a summary of the result, a dict of named values, as JSON or as lines of text.

        The text does not include the spectrum.
        """
        facts = facts if self.name is None else {**facts, "output": self.name}
        if self._json:
            self._print(json.dumps(replace_non_finite(facts)).replace("\x7f", r"\u007f"))
            return
        texts = {
            escaped(name.replace("_", " ")): value if type(value) is str else format_value(value)
            for name, value in facts.items()
            if name != SPECTRUM
        }
        if "rows_per_second" in facts:
            texts["rows per second"] = f"{facts['rows_per_second']:,.0f}"
        width = max(map(len, texts))
        self.print_lines(*(f"{name:<{width}}  {text}" for name, text in texts.items()))

    def print_lines(self, *lines: str) -> None:
        """Print lines of text, with characters that are not printable escaped."""
        self._print("\n".join(map(escaped, lines)))

    def _print(self, text: str) -> None:
        """Print a text to standard output, or to standard error if the result goes to standard output.

        If the stream's reader has gone, raise OSError only if the command has no other result.
        """
        if self._quiet:
            return
        try:
            print(text, file=self.stream, flush=True)
        except OSError as error:
            gone = isinstance(error, BrokenPipeError)
            if self.name is not None and not gone and self.saved_as is None:
                return  # the job continues; the report at its end will fail, too
            redirect_to_null(self.stream)  # otherwise Python would exit with a status of its own
            if self.name is None or not gone:
                if self.saved_as:
                    error.add_note(f"the result is in {self.saved_as}")
                raise
            self._quiet = True


def replace_non_finite(value: Any) -> Any:
    """Return a value, list or dict in which infinity and NaN, which JSON lacks, are replaced by None."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [replace_non_finite(item) for item in cast(list[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_value(value: Any) -> str:
    """Format a value as text on one line: floats with six digits, None as "-", long lists of names shortened."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        items_by_name = cast(dict[str, Any], value)
        return ", ".join(f"{name}={format_value(item)}" for name, item in items_by_name.items() if item is not None)
    if not isinstance(value, list):
        return str(value)
    items = cast(list[Any], value)
    is_long = len(items) > MAX_NAMES and all(isinstance(item, str) for item in items)
    text = ", ".join(map(format_value, items[: MAX_NAMES if is_long else None]))
    return f"{text}, ... ({len(items):,})" if is_long else text


@contextlib.contextmanager
def open_output(
    verb: Verb, suffix: str = ".fsk", *, over_input: bool = False, folder: bool = False
) -> Generator[Output]:
    """Open the output of a subcommand for a ``with`` block: lock it, and apply --threads.

    An interrupt in the block gets a note of what has been saved.

    Parameters
    ----------
    verb : Verb
        Without an ``output`` it only prints facts.
    suffix : str
        Of the name under which a result is saved that the output does not take.
    over_input : bool
        Whether the output may be one of the inputs.
    folder : bool
        Whether the output is a folder, which the map job locks.
    """
    name: str | None = getattr(verb, "output", None)
    out = Output(name, suffix, as_json=verb.json, folder=folder)
    if out.path is not None and not over_input:
        for source in _input_files(verb):
            if same_file(out.path, source):
                raise ValueError(f"the output {name} is also an input: it would be lost")
            if _would_read_lock(out.path, source):
                raise ValueError(
                    f"the output {name} would be read with {source}, and so would its lock: put it into another "
                    "folder, or name the files"
                )
    try:
        with contextlib.ExitStack() as stack:
            if verb.threads is not None:
                stack.enter_context(thread_limit(as_integer(verb.threads, "--threads", 1, below=1 << 16)))
            stack.enter_context(out.lock())
            yield out
    except KeyboardInterrupt as stop:
        if out.saved_as:
            stop.add_note(f"the result is in {out.saved_as}")
        elif out.name is not None and not getattr(stop, "__notes__", ()):
            has_partial = out.partial is not None and out.partial.exists()
            stop.add_note(f"{out.partial} is as it was" if has_partial else "nothing has been saved")
        raise


def _is_standard_output(name: str) -> bool:
    """Return True if a path leads to the same file as the standard output, such as /dev/stdout.

    The null device does not count.
    """
    try:
        status = Path(name).stat()
        is_null = os.path.samestat(status, Path(os.devnull).stat())
        return not is_null and os.path.samestat(status, os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


def _input_files(verb: Verb) -> Generator[str]:
    """Yield the names of the files that a subcommand reads."""
    for name in INPUT_FIELDS:
        value: Any = getattr(verb, name, None)
        yield from cast("list[str]", value) if isinstance(value, list) else [value] if value else []


def _would_read_lock(path: Path, name: str) -> bool:
    """Return True if the lock file of an output would be read as an input, because that is a folder or glob."""
    lock = lock_name(path.absolute())
    if Path(name).is_dir():
        folder = Path(name).absolute()
        within = lock.relative_to(folder).parts if lock.is_relative_to(folder) else (".",)
        return not any(
            folder_name.startswith((".", "_")) for folder_name in within
        )  # names that readers of folders skip
    return has_magic(name) and not Path(name).exists() and fnmatch(str(lock), str(Path(name).absolute()))
