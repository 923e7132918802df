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
        enabled: bool | Literal["json"] | None = None,
        *,
        stream: TextIO | None = None,
        pause: float = PAUSE,
        rows: int = 0,
        seconds: float = 0.0,
    ) -> None:
        self._stream = stream or sys.stderr
        self._enabled = self._stream.isatty() if enabled is None else bool(enabled)
        self._json, self._pause = enabled == "json", pause
        self._name = name
        self._last_time = time.perf_counter()
        self._start, self._earlier_rows = self._last_time - seconds, rows
        self._first_fraction: float | None = None  # fraction at the first call

    def show(
        self, fraction: float, rows: int, *, final: bool = False, extra_entries: Mapping[str, Any] | None = None
    ) -> None:
        """Print the progress, if printing is enabled and the last line is not too recent.

        `fraction` is the share of the job that is done, in [0, 1], `rows` the number of rows so far, and
        `extra_entries` are further entries of the line. A final line is always printed.
        """
        now = time.perf_counter()
        self._first_fraction = fraction if self._first_fraction is None else self._first_fraction
        if not self._enabled or (now - self._last_time < self._pause and not final):
            return
        self._last_time = now
        seconds = max(now - self._start, 1e-9)
        rate = (rows - self._earlier_rows) / seconds
        if self._json:
            entries = {"name": self._name, "fraction": fraction, "rows": rows, "rows_per_second": rate}
            self._print(
                json.dumps(entries | {"seconds": seconds, "final": final} | dict(extra_entries or {})), "", "\n"
            )
            return
        progress_made = fraction - self._first_fraction
        time_left = (
            f"  {_clock(seconds * (1 - fraction) / progress_made)} left" if progress_made > 0 and not final else ""
        )
        extra_text = "".join(f"  {name.replace('_', ' ')} {value:.3g}" for name, value in (extra_entries or {}).items())
        terminal = self._stream.isatty()
        self._print(
            f"{escaped(self._name)}: {fraction:4.0%}  {rows:,} rows  {rate:,.0f} rows/s{extra_text}{time_left}",
            "\r\x1b[K" if terminal else "",
            "\n" if final or not terminal else "",
        )

    def _print(self, text: str, start: str, end: str) -> None:
        try:
            print(f"{start}{text}", end=end, file=self._stream, flush=True)
        except OSError:  # the reader has closed it
            self._enabled = False


def _clock(seconds: float) -> str:
    """Format a duration as minutes:seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"
