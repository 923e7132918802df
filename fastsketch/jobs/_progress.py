"""Report the progress of a job to a callback, in a line on a terminal, or as lines of JSON."""

# pyright: reportPrivateUsage=false
# (hooks of the frame for the parts of a job)

import time
from collections.abc import Callable
from typing import Any, Literal, Self, TypedDict

from fastsketch._core.progress import PAUSE, ProgressLine
from fastsketch.data.sources import Source
from fastsketch.jobs._parts import JobNode


class Report(TypedDict):
    """A report on the progress of a job, the dict that the callback ``progress`` receives.

    Attributes
    ----------
    number : int
        Number of the pass, from 1.
    rows, rows_before : int
        Rows that are done, including those of an earlier run that is resumed; rows of the earlier run.
    rows_per_second : float
        Rate of this run.
    parts, parts_before, n_parts : int
        Parts that are done, including those of an earlier run; parts of the earlier run; number of all parts.
    fraction : float
        Completed fraction of the pass, in [0, 1].
    seconds : float
        Time since the job began.
    final : bool
        Whether this is the last report of a pass.
    certificate : dict of float
        Error bounds that the model knows without computation, such as ``error_bound``, summed over parts.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((2000, 30))
    >>> reports = []
    >>> sketch = fs.run(fs.FrequentDirections(8), rows, progress=reports.append)
    >>> last = reports[-1]
    >>> last["rows"], last["parts"], last["fraction"], last["final"]
    (2000, 1, 1.0, True)
    """

    number: int
    rows: int
    rows_before: int
    rows_per_second: float
    parts: int
    parts_before: int
    n_parts: int
    fraction: float
    seconds: float
    final: bool
    certificate: dict[str, float]


class Printed:
    """A progress callback that prints reports on standard error; the attribute `last` is the latest report.

    Parameters
    ----------
    name : str
        Printed in front.
    wanted : bool, "json" or None
        Whether to print a line, lines of JSON, or for None a line only on a terminal.
    passes : int
        Number of passes; if there are several, their number is printed.
    """

    def __init__(self, name: str, progress: bool | Literal["json"] | None = None, *, passes: int = 1) -> None:
        self._name, self._passes = name, passes
        self._progress: bool | Literal["json"] | None = progress
        self._line: ProgressLine | None = None
        self.last: Report | None = None

    def __call__(self, report: Report) -> None:
        """Print a report, on a new line for each pass."""
        if self._line is None or self.last is None or report["number"] != self.last["number"]:
            pass_text = "" if self._passes == 1 else f", pass {report['number']} of {self._passes}"
            rows_before, rate = report["rows_before"], report["rows_per_second"]
            seconds = (report["rows"] - rows_before) / rate if rate else 0.0
            self._line = ProgressLine(
                f"{self._name}{pass_text}", self._progress, pause=0.0, rows=rows_before, seconds=seconds
            )
        self.last = report
        extra_entries: dict[str, Any] = dict(report["certificate"])
        if self._progress == "json":
            extra_entries["number"], extra_entries["n_parts"] = report["number"], report["n_parts"]
            extra_entries["parts"], extra_entries["parts_before"] = report["parts"], report["parts_before"]
        self._line.show(report["fraction"], report["rows"], final=report["final"], extra_entries=extra_entries)


ProgressOption = bool | Literal["json"] | Callable[[Report], object] | None


class Reporter:
    """A counter of the rows and parts that a job has finished, which calls the progress callback.

    The callback is called at most twice a second. Parts may finish in any order. As a context manager it makes the
    final report if the block ends without an error.

    Attributes
    ----------
    model : model or None
        A model that learns rows in order, whose certificate is reported.
    """

    def __init__(self, progress: ProgressOption, source: Source, n_parts: int, *, passes: int = 1) -> None:
        if callable(progress):
            self._callback = progress
        elif progress is None or isinstance(progress, bool) or progress == "json":
            self._callback = Printed(source.name, progress, passes=passes)
        else:
            raise TypeError(f"progress must be True, False, None, 'json' or a function, got {type(progress).__name__}")
        self._n_parts, self._rows_expected = n_parts, source.n_rows
        self._start = time.perf_counter()
        self.model: Any = None
        self._number = 0
        self.begin_pass(1)

    def begin_pass(self, number: int) -> None:
        """Make the final report of the previous pass, if any, and reset the counts for a new pass."""
        if self._number:
            self._report(final=True)
        self._number = number
        self._pass_start, self._last = time.perf_counter(), 0.0
        self._parts_before = self._rows_before = self._open_rows = 0
        self._fraction = 0.0
        self._nodes: dict[int, JobNode] = {}  # the largest nodes, by first part, without models

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self._report(final=True)

    def count_earlier(self, node: JobNode) -> None:
        """Count the parts and rows of a model from the checkpoint as work of an earlier run."""
        self._parts_before += node.last - node.first + 1
        self._rows_before += node.n_rows
        self._store_node(node)

    def count_finished(self, node: JobNode) -> None:
        """Count the parts and rows of a finished model as work of this run, and report the progress."""
        self._store_node(node)
        self._open_rows, self._fraction = 0, 0.0
        self._report()

    def set_earlier_rows(self, n_rows: int) -> None:
        """Set the number of rows that an earlier run had learned, for a model that learns rows in order."""
        self._rows_before = self._open_rows = n_rows

    def count_rows(self, n_rows: int, fraction: float = 0.0) -> None:
        """Count more rows of the part that this process is learning, and make a report.

        `fraction` is the finished fraction of the part, if known.
        """
        self._open_rows, self._fraction = self._open_rows + n_rows, fraction
        self._report()

    def _store_node(self, node: JobNode) -> None:
        """Store the numbers of rows and parts of a finished model, and drop those of models merged into it."""
        uncovered = [
            other for other in self._nodes.values() if not node.first <= other.first <= other.last <= node.last
        ]
        self._nodes = {other.first: other for other in (*uncovered, node._replace(content=None))}

    def _report(self, *, final: bool = False) -> None:
        """Call the progress callback with a Report, unless the last one was less than half a second ago."""
        now = time.perf_counter()
        if now - self._last < PAUSE and not final:
            return
        self._last = now
        parts, rows = 0, self._open_rows
        certificate: dict[str, float] = {} if self.model is None else self.model._certificate()
        for node in self._nodes.values():
            parts, rows = parts + node.last - node.first + 1, rows + node.n_rows
            for name, value in node.certificate.items():
                certificate[name] = certificate.get(name, 0.0) + value
        fraction = rows / self._rows_expected if self._rows_expected else (parts + self._fraction) / self._n_parts
        self._callback(
            {
                "number": self._number,
                "rows": rows,
                "rows_before": self._rows_before,
                "rows_per_second": (rows - self._rows_before) / max(now - self._pass_start, 1e-9),
                "parts": parts,
                "parts_before": self._parts_before,
                "n_parts": self._n_parts,
                "fraction": 1.0 if final else min(1.0, fraction),
                "seconds": now - self._start,
                "final": final,
                "certificate": certificate,
            }
        )
