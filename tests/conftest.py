"""Shared helpers: data location, tolerances, streams."""

import os
from pathlib import Path

import numpy as np
import pytest


def data_dir():
    """Where real data sets lie: FASTSKETCH_DATA, or ../shared/data beside the project's root."""
    return Path(os.environ.get("FASTSKETCH_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture
def dataset():
    """A function that returns the path of a file of the data sets, or skips the test, saying which is absent."""

    def find(name):
        path = data_dir() / name
        if not path.exists():
            pytest.skip(f"data set absent: {name} (set FASTSKETCH_DATA)")
        return path

    return find


def tol(dtype, scale):
    """Rounding allowed for a quantity of this scale: 64 units in the last place of the dtype."""
    return 64 * np.finfo(dtype).eps * scale


def stream(kind, rng, n, d):
    """Rows on which sketches are known to fail: by name."""
    if kind == "noise":
        return rng.standard_normal((n, d))
    if kind == "signal":
        k = min(d, 6)
        return (rng.standard_normal((n, k)) * np.linspace(1, 0.1, k)) @ rng.standard_normal((k, d)) + 0.05 * (
            rng.standard_normal((n, d))
        )
    if kind == "drift":  # a late direction, each row a little shorter than what is kept
        a = np.zeros((n, d))
        half = n // 2
        a[np.arange(half), np.arange(half) % max(1, d - 1)] = 1.0
        a[half:, d - 1] = 0.99
        return a
    if kind == "heavy":  # one huge row in the middle
        a = rng.standard_normal((n, d))
        a[n // 2] *= 1e4
        return a
    if kind == "repeated":
        return np.repeat(rng.standard_normal((max(1, n // 10), d)), 10, axis=0)[:n]
    if kind == "lowrank":
        return rng.standard_normal((n, 3)) @ rng.standard_normal((3, d))
    if kind == "decaying":  # spectrum 1 .. 1e-10
        q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        return (rng.standard_normal((n, d)) * np.logspace(0, -10, d)) @ q
    if kind == "zeros":
        return np.zeros((n, d))
    raise ValueError(kind)


KINDS = ("noise", "signal", "drift", "heavy", "repeated", "lowrank", "decaying", "zeros")
