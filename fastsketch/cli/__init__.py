"""The command line: ``fastsketch sketch | info | audit | transform | merge | learn | predict | recommend | watch``.

Exit status:

- 0: done. Warnings do not change the status; each is one line on standard error.
- 1: the rows of an audit are not those of the sketch (the report is complete); with a traceback, an error of the
  library itself.
- 2: wrong usage, or an input or output that cannot be used. One line on standard error says which and why.
- 3: ``watch`` has detected a change.
- 130, 143, 129: interrupted by Ctrl-C, SIGTERM, SIGHUP. One line says what has been saved.
- 141: the reader of the standard output has closed it, and there is no other output. A file has been saved: status 0.
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Generator, Sequence
from typing import Any, cast

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the name of the program. Default: those of the process.

    Returns
    -------
    int
        0 for success; the module's docstring lists the others.

    Examples
    --------
    >>> from fastsketch.cli import main
    >>> main(["info", "no such file.fsk"])  # which says so on standard error
    2
    """
    with contextlib.ExitStack() as stack:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by the shell
                null_device = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123  pathlib takes 3 ms
                stack.callback(setattr, sys, name, None)
                setattr(sys, name, null_device)
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    """Parse and execute a command, and return its exit status. Errors of usage are printed as one line."""
    from fastsketch.cli._parser import parse
    from fastsketch.cli._signals import CTRL_C_STATUS, delay_signals, raise_on_signals, redirect_to_null

    try:
        with raise_on_signals():
            with delay_signals():  # argparse fails in its own way where it is interrupted
                verb = parse(argv)
            with _messages_on_standard_error():
                status = verb.run() or 0
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        _print_error("interrupted", stop)
        return getattr(stop, "status", CTRL_C_STATUS)
    except BrokenPipeError as error:
        redirect_to_null(sys.stdout)
        if getattr(error, "__notes__", ()):
            _print_error("the reader of the output has gone", error)
        return 141
    except (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        _print_error(f"error: {error or type(error).__name__}", error)
        return 2
    return status


@contextlib.contextmanager
def _messages_on_standard_error() -> Generator[None]:
    """Print warnings and log records of the library, during a ``with`` block, as lines on standard error.
    Source lines are not printed.

    Of log records that differ only in their first argument, the first one is printed.
    """
    import logging

    printed_keys: set[object] = set()

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        _print_line(f"warning: {message}")

    def print_record(record: logging.LogRecord) -> bool:
        key = (record.msg, *cast("tuple[object, ...]", record.args or ())[1:])
        if key not in printed_keys:
            printed_keys.add(key)
            _print_line(record.getMessage())
        return False

    logger = logging.getLogger("fastsketch")
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = warn
        stack.callback(logger.setLevel, logger.level)
        stack.callback(logger.removeFilter, print_record)
        logger.setLevel(logging.INFO)
        logger.addFilter(print_record)
        yield


def _print_error(text: str, error: BaseException) -> None:
    """Print an error and its notes as one line on standard error."""
    _print_line("; ".join([text, *getattr(error, "__notes__", ())]))


def _print_line(text: str) -> None:
    """Print one line on standard error, prefixed by "fastsketch: ".

    Line breaks become blanks, and characters that are not printable are escaped.
    """
    from fastsketch._core.escaping import escaped

    with contextlib.suppress(OSError):
        print(f"fastsketch: {escaped(' '.join(text.split()))}", file=sys.stderr)
