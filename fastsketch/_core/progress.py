"""Progress of a job, printed as a line on a terminal or as JSON lines for programs."""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal, TextIO

from fastsketch._core.escaping import escaped

# Seconds between two lines.
PAUSE = 0.5


class ProgressLine:
    """Printer of a job's progress as a line of text or JSON, at most twice a second.

    The line is ``name: 42 % 1,234,567 rows 56,789 rows/s 0:12 left``.

    rows, seconds: rows and time of an earlier run that is resumed.
    """

    def __init__(
        self,
        name: str,
        wanted: bool | Literal["json"] | None = None,
        *,
        stream: TextIO | None = None,
        pause: float = PAUSE,
        rows: int = 0,
        seconds: float = 0.0,
    ) -> None:
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty() if wanted is None else bool(wanted)
        self._json, self._pause = wanted == "json", pause
        self._name = name
        self._last = time.perf_counter()
        self._start, self._before = self._last - seconds, rows
        self._first: float | None = None  # fraction at the first call

    def show(self, fraction: float, rows: int, *, final: bool = False, more: Mapping[str, Any] | None = None) -> None:
        """Print the progress, if printing is on and the last line is not too recent.

        fraction: share of the job that is done, in [0, 1]. rows: number of rows so far. more: further entries of the
        line. A final line is always printed.
        """
        now = time.perf_counter()
        self._first = fraction if self._first is None else self._first
        if not self._shown or (now - self._last < self._pause and not final):
            return
        self._last = now
        seconds = max(now - self._start, 1e-9)
        rate = (rows - self._before) / seconds
        if self._json:
            about = {"name": self._name, "fraction": fraction, "rows": rows, "rows_per_second": rate}
            self._print(json.dumps(about | {"seconds": seconds, "final": final} | dict(more or {})), "", "\n")
            return
        done = fraction - self._first
        left = f"  {_clock(seconds * (1 - fraction) / done)} left" if done > 0 and not final else ""
        said = "".join(f"  {name.replace('_', ' ')} {value:.3g}" for name, value in (more or {}).items())
        terminal = self._stream.isatty()
        self._print(
            f"{escaped(self._name)}: {fraction:4.0%}  {rows:,} rows  {rate:,.0f} rows/s{said}{left}",
            "\r\x1b[K" if terminal else "",
            "\n" if final or not terminal else "",
        )

    def _print(self, text: str, start: str, end: str) -> None:
        try:
            print(f"{start}{text}", end=end, file=self._stream, flush=True)
        except OSError:  # the reader has closed it
            self._shown = False


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"
