"""One line of progress on a terminal."""

import sys
import time
from typing import TextIO


class Progress:
    """Prints ``name: 42 % 1,234,567 rows 56,789 rows/s 0:12 left`` at most twice a second."""

    def __init__(self, name: str, wanted: bool | None = None, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty() if wanted is None else wanted
        self._name = name
        self._start = self._last = time.perf_counter()
        self._first: tuple[float, int] | None = None  # fraction and rows at the first call

    def show(self, fraction: float, rows: int, *, final: bool = False) -> None:
        """Show how far the work has come: fraction in [0, 1] and rows so far."""
        now = time.perf_counter()
        if self._first is None:
            self._first = fraction, rows
        if not self._shown or (now - self._last < 0.5 and not final):
            return
        self._last = now
        first_fraction, first_rows = self._first
        seconds = max(now - self._start, 1e-9)
        rate = (rows - first_rows) / seconds
        done = fraction - first_fraction
        left = f"  {_clock(seconds * (1 - fraction) / done)} left" if done > 0 and not final else ""
        end = "\n" if final or not self._stream.isatty() else ""
        start = "\r\x1b[K" if self._stream.isatty() else ""
        try:
            print(
                f"{start}{self._name}: {fraction:4.0%}  {rows:,} rows  {rate:,.0f} rows/s{left}",
                end=end,
                file=self._stream,
                flush=True,
            )
        except OSError:  # nobody reads it any more
            self._shown = False


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"
