"""Convert signals such as Ctrl-C to one exception that ends a command, delayed while a result is being written."""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from typing import TextIO

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not everywhere
OF_CTRL_C = 128 + signal.SIGINT

_waiting: list[int] = []
_depth = 0


class Interrupted(KeyboardInterrupt):
    """Raised when a signal arrives; `status` is the exit status of the command."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number  # the convention of shells


@contextlib.contextmanager
def handled() -> Generator[None]:
    """Raise Interrupted on SIGINT, SIGTERM and SIGHUP in this block.

    Signals that the process ignores stay ignored, as under nohup.
    """
    before: dict[int, object] = {}
    if threading.current_thread() is threading.main_thread():
        for number in [getattr(signal, name) for name in NAMES if hasattr(signal, name)]:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, _on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _on_signal(number: int, _: object) -> None:
    if _depth:
        _waiting.append(number)
    else:
        raise Interrupted(number)


@contextlib.contextmanager
def held() -> Generator[None]:
    """Delay signals until the end of this block.

    If the block fails, delayed signals are dropped.
    """
    global _depth
    _depth += 1
    try:
        yield
    except BaseException:
        _depth -= 1
        if not _depth:
            _waiting.clear()
        raise
    _depth -= 1
    if _waiting and not _depth:
        number = _waiting[0]
        _waiting.clear()
        raise Interrupted(number)


def mute(stream: TextIO) -> None:
    """Redirect a stream to the null device after its reader has closed it, so that later writes do not fail."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
