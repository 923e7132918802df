"""How far a job has come: a line on a terminal, a dict for whoever asks, a line of JSON for machines."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Self, TextIO, TypedDict

from fastsketch.jobs._parts import Node
from fastsketch.jobs._tree import Place
from fastsketch.sources import Source

# Seconds between two reports.
PAUSE = 0.5


class Report(TypedDict, total=False):
    """What ``progress`` is called with; of the certificate what a model has of it without being read."""

    number: int  # of the pass, from 1
    rows: int
    rows_per_second: float
    parts: int  # done, those of an earlier run among them
    parts_before: int  # done by an earlier run
    n_parts: int
    fraction: float
    seconds: float
    final: bool
    certificate: dict[str, float]


class Line:
    """Prints ``name: 42 % 1,234,567 rows 56,789 rows/s 0:12 left`` at most twice a second."""

    def __init__(self, name: str, wanted: bool | None = None, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty() if wanted is None else wanted
        self._name = name
        self._start = self._last = time.perf_counter()
        self._first: tuple[float, int] | None = None  # fraction and rows at the first call

    def show(self, fraction: float, rows: int, *, final: bool = False, more: str = "") -> None:
        """Show how far the work has come: fraction in [0, 1] and rows so far."""
        now = time.perf_counter()
        if self._first is None:
            self._first = fraction, rows
        if not self._shown or (now - self._last < PAUSE and not final):
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
                f"{start}{self._name}: {fraction:4.0%}  {rows:,} rows  {rate:,.0f} rows/s{more}{left}",
                end=end,
                file=self._stream,
                flush=True,
            )
        except OSError:  # nobody reads it any more
            self._shown = False


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"


def json_lines(stream: TextIO) -> Callable[[Report], None]:
    """What prints a report as a line of JSON."""

    def say(report: Report) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more
            print(json.dumps(report), file=stream, flush=True)

    return say


class Progress:
    """The progress of a job whose parts come in any order."""

    def __init__(self, wanted: Any, source: Source, n_parts: int, *, title: str | None = None) -> None:
        if not (wanted is None or isinstance(wanted, bool) or callable(wanted)):
            raise TypeError(f"progress must be True, False, None or a function, got {type(wanted).__name__}")
        self._call: Callable[[Report], object] | None = wanted if callable(wanted) else None
        self._wanted = False if callable(wanted) else wanted
        self._name, self._n_parts, self._rows_expected = title or source.name, n_parts, source.n_rows
        self._start = time.perf_counter()
        self.begin_pass(1)

    def begin_pass(self, number: int) -> None:
        """From now on the rows are read for the second time, or the first."""
        self._number = number
        self._line = Line(self._name if number == 1 else f"{self._name}, pass {number}", self._wanted)
        self._begun, self._last = time.perf_counter(), 0.0
        self._parts = self._before = self._rows = self._rows_before = self._open = 0
        self._nodes: dict[int, Node] = {}  # those that no other covers, by first part, without their content

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self._show(final=True)

    def known(self, node: Node) -> None:
        """An earlier run has done this."""
        self._before += node.last - node.first + 1
        self._rows_before += node.n_rows
        self._put(node)

    def finished(self, place: Place, node: Node) -> None:
        """This has been done now."""
        self._put(node)
        self._open = 0
        self._show()

    def rows_here(self, n_rows: int) -> None:
        """So many more rows of the part that this process is at."""
        self._open += n_rows
        self._show()

    def _put(self, node: Node) -> None:
        covered = [first for first, other in self._nodes.items() if node.first <= first and other.last <= node.last]
        for first in covered:
            other = self._nodes.pop(first)
            self._parts -= other.last - other.first + 1
            self._rows -= other.n_rows
        self._nodes[node.first] = node._replace(content=None)
        self._parts += node.last - node.first + 1
        self._rows += node.n_rows

    def _show(self, *, final: bool = False) -> None:
        rows = self._rows + self._open
        if self._rows_expected:
            fraction = min(1.0, rows / self._rows_expected)
        else:
            fraction = self._parts / self._n_parts
        certificate: dict[str, float] = {}
        now = time.perf_counter()
        if self._call is None or final or now - self._last >= PAUSE:
            for node in self._nodes.values():
                for name, value in node.certificate.items():
                    certificate[name] = certificate.get(name, 0.0) + value
        more = "".join(f"  {name.replace('_', ' ')} {value:.3g}" for name, value in certificate.items())
        self._line.show(1.0 if final else fraction, rows, final=final, more=more)
        if self._call is None or (now - self._last < PAUSE and not final):
            return
        self._last = now
        seconds = now - self._begun
        self._call(
            {
                "number": self._number,
                "rows": rows,
                "rows_per_second": (rows - self._rows_before) / max(seconds, 1e-9),
                "parts": self._parts,
                "parts_before": self._before,
                "n_parts": self._n_parts,
                "fraction": 1.0 if final else fraction,
                "seconds": now - self._start,
                "final": final,
                "certificate": certificate,
            }
        )
