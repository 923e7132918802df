"""Streams, tolerances and parameters that several tests share."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.cli import main

METHODS = ("fd", "pfd", "cfd", "isvd", "rfd", "tfd")
SOLVERS = ("gram", "svd", "exact")
DTYPES = (np.float32, np.float64)
KINDS = ("noise", "signal", "drift", "heavy", "repeated", "lowrank", "decaying", "zeros")


def data_dir():
    """Where real data sets lie: FASTSKETCH_DATA, or ../shared/data beside the project's root."""
    return Path(os.environ.get("FASTSKETCH_DATA", Path(__file__).parents[2] / "shared" / "data"))


def some(values, n):
    """Parameters of a test of which the short form takes the first n."""
    return [value if k < n else pytest.param(value, marks=pytest.mark.long) for k, value in enumerate(values)]


def tol(dtype, scale):
    """Rounding allowed for a quantity of this scale: 64 units in the last place of the dtype."""
    return 64 * float(np.finfo(dtype).eps) * float(scale)


def stream(kind, rng, n, d):
    """Rows by name, on which sketches are known to fail."""
    if kind == "noise":
        return rng.standard_normal((n, d))
    if kind == "signal":
        k = min(d, 6)
        signal = (rng.standard_normal((n, k)) * np.linspace(1, 0.1, k)) @ rng.standard_normal((k, d))
        return signal + 0.05 * rng.standard_normal((n, d))
    if kind == "drift":  # late rows in a direction of their own, each a little shorter than what is kept
        a = np.zeros((n, d))
        half = n // 2
        # lengths that differ: among equals, which one a shrink drops would be a matter of rounding
        a[np.arange(half), np.arange(half) % max(1, d - 1)] = np.linspace(1.0, 1.1, half)
        a[half:, d - 1] = 0.99
        return a
    if kind == "heavy":  # one huge row
        a = rng.standard_normal((n, d))
        a[n // 2] *= 1e4
        return a
    if kind == "repeated":
        return np.repeat(rng.standard_normal((n // 10 + 1, d)), 10, axis=0)[:n]
    if kind == "lowrank":
        return rng.standard_normal((n, 3)) @ rng.standard_normal((3, d))
    if kind == "decaying":  # spectrum 1 .. 1e-10
        q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        return (rng.standard_normal((n, d)) * np.logspace(0, -10, d)) @ q
    if kind == "zeros":
        return np.zeros((n, d))
    raise ValueError(kind)


def sparse_rows(rng, n, d, density, dtype=np.float64):
    """CSR rows with this share of entries other than zero, uniform on (0, 1]: the same with every version of scipy."""
    places = rng.choice(n * d, size=round(density * n * d), replace=False)
    values = (1 - rng.random(places.size)).astype(dtype)
    return sparse.csr_array((values, (places // d, places % d)), shape=(n, d))


def error_interval(rows, sketch):
    """Smallest and largest eigenvalue of A'A + alpha0 I - B'B - alpha I, in float64."""
    a = np.asarray(rows, np.float64)
    b = sketch.sketch().astype(np.float64)
    values = np.linalg.eigvalsh(a.T @ a - b.T @ b)
    shift = sketch.alpha0 - sketch.alpha
    return values[0] + shift, values[-1] + shift


# The command line in another process, with parts of 100,000 bytes.
IN_SMALL_PARTS = [
    sys.executable,
    "-c",
    "import sys; from fastsketch.jobs import _run; _run.PART_BYTES, _run.STATES_OF_A_PART = 100_000, 0;"
    "_run.SECONDS, _run.SHARE, _run.EXAMPLES_AT_A_TIME = 0, 0, 50;"
    "from fastsketch.cli import main; sys.exit(main())",
]


def command(*args, cwd, status=0):
    """What the command line says in a folder, as a process that has ended: in this one, which has the imports.

    status: what it must be, None for any
    """
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            got = main([str(arg) for arg in args])
        except SystemExit as stop:  # argparse
            got = stop.code
    assert status in (None, got), err.getvalue()
    return subprocess.CompletedProcess(args, got, out.buffer.getvalue().decode(), err.getvalue())


def same_state(one, other):
    """Whether two sketches hold the same bits."""
    return one.to_bytes() == other.to_bytes()


# What the papers' learners are in this library: no intercept, rows as they come, scores as they are.
AS_IN_PAPERS = {"fit_intercept": False, "scale": None, "calibrate": False}


class papers:  # a namespace that reads as one
    """The online learners with the papers' settings."""

    @staticmethod
    def SketchedNewton(*args, **parameters):
        return fs.SketchedNewton(
            *args, **{**AS_IN_PAPERS, "loss": "squared_hinge", "constraint": "current", **parameters}
        )

    @staticmethod
    def AdaptiveSubgradient(*args, **parameters):
        return fs.AdaptiveSubgradient(
            *args, **{**AS_IN_PAPERS, "loss": "squared_hinge", "learning_rate": 0.1, **parameters}
        )


class Interrupt(Exception):
    """Raised by the timer of ``interrupted``."""


def interrupted(call, delay):
    """Make a call that a timer may interrupt after so many seconds, wherever it is then."""

    def ring(*_):
        raise Interrupt

    old = signal.signal(signal.SIGALRM, ring)
    try:
        with contextlib.suppress(Interrupt):  # the timer rings once: before, within or after the call
            signal.setitimer(signal.ITIMER_REAL, delay)
            call()
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
