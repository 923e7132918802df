"""One line of progress on a terminal, and time for checkpoints."""

import sys
import time


class Progress:
    """Prints ``name: 42 % 1,234,567 rows 56,789 rows/s 0:12 left`` at most twice a second."""

    def __init__(self, name, wanted=None, stream=None):
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty() if wanted is None else wanted
        self.name = name
        self.start = self.last = time.perf_counter()
        self.first_rows = None

    def show(self, fraction, rows, final=False):
        """Tell how far it has got: fraction in [0, 1] and rows so far."""
        now = time.perf_counter()
        if self.first_rows is None:
            self.first_rows = rows
            self.first_fraction = fraction
        if not self.shown or (now - self.last < 0.5 and not final):
            return
        self.last = now
        seconds = max(now - self.start, 1e-9)
        rate = (rows - self.first_rows) / seconds
        done = fraction - self.first_fraction
        left = f"  {_clock(seconds * (1 - fraction) / done)} left" if done > 0 and not final else ""
        end = "\n" if final or not self.stream.isatty() else ""
        start = "\r\x1b[K" if self.stream.isatty() else ""
        print(
            f"{start}{self.name}: {fraction:4.0%}  {rows:,} rows  {rate:,.0f} rows/s{left}",
            end=end,
            file=self.stream,
            flush=True,
        )


def _clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"
