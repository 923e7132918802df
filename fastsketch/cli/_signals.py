"""Convert signals such as Ctrl-C to one exception that ends a command, delayed while a result is being written."""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from typing import TextIO

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not everywhere
CTRL_C_STATUS = 128 + signal.SIGINT

_delayed: list[int] = []
_depth = 0


class Interrupted(KeyboardInterrupt):
    """Raised when a signal arrives; `status` is the exit status of the command."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number  # the convention of shells


@contextlib.contextmanager
def raise_on_signals() -> Generator[None]:
    """Raise Interrupted when SIGINT, SIGTERM or SIGHUP arrives during a ``with`` block.

    Signals that the process ignores stay ignored, as under nohup.
    """
    previous_handlers: dict[int, object] = {}
    if threading.current_thread() is threading.main_thread():
        for number in [getattr(signal, name) for name in SIGNAL_NAMES if hasattr(signal, name)]:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                previous_handlers[number] = signal.signal(number, _on_signal)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _on_signal(number: int, _: object) -> None:
    """Raise Interrupted for a signal, or record the signal while signals are delayed."""
    if _depth:
        _delayed.append(number)
    else:
        raise Interrupted(number)


@contextlib.contextmanager
def delay_signals() -> Generator[None]:
    """Delay signals that arrive during a ``with`` block until its end.

    If the block fails, delayed signals are dropped.
    """
    global _depth
    _depth += 1
    try:
        yield
    except BaseException:
        _depth -= 1
        if not _depth:
            _delayed.clear()
        raise
    _depth -= 1
    if _delayed and not _depth:
        number = _delayed[0]
        _delayed.clear()
        raise Interrupted(number)


def redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream to the null device after its reader has closed it, so that later writes do not fail."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
