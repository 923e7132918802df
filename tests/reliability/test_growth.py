"""Memory of a process that updates, reads, merges and saves one kind of model for a long time does not grow."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from tests.reliability.figures import environment, report
from tests.reliability.zoo import SPECIMENS

# One of each family: the others share their code.
NAMES = ("sketch-rfd", "sketch-csr", "hash-srht", "online-rfd", "online-ada_ffd", "completion-low-rank")
# A slope that is more than chance would be a leak of one small array in some hundred calls.
BYTES_A_MINUTE = 1 << 20
# Less than this in all may be the allocator's.
BYTES_IN_ALL = 1 << 19
# Rounds before anything is measured, and at least measured.
WARM_UP, ROUNDS = 40, 100


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def once(specimen, seed):
    """Every kind of call on a model that is new each time, so that its state does not grow."""
    model = specimen.learned(40, seed)
    if specimen.name.startswith("completion"):
        specimen.learn(model, specimen.rows(seed + 1))
    else:
        specimen.learn(model, specimen.rows(seed + 1) * 0.1)
    specimen.read(model)
    if hasattr(model, "merge"):
        place = {"part": 1} if "part" in model.parameters else {}
        model.merge(specimen.learn(type(model)(**{**model.parameters, **place}), specimen.rows(seed + 2)))
    return fs.from_bytes(model.to_bytes()).copy()


def child(names, seconds, leak=0):
    """Runs in a process of its own: one line for each specimen, after a warm-up of a quarter of the time.

    `leak` bytes are lost in every round.
    """
    lost = []
    for specimen in SPECIMENS:
        if specimen.name not in names:
            continue
        start, times, sizes, calls = time.monotonic(), [], [], 0
        while (now := time.monotonic() - start) < 1.25 * seconds or calls < WARM_UP + ROUNDS:
            once(specimen, calls % 7)
            if leak:  # a list that grows would be a leak of its own
                lost.append(b"x" * leak)
            calls += 1
            if now > 0.25 * seconds and calls > WARM_UP and (not times or now - times[-1] > seconds / 200):
                times.append(now)
                sizes.append(resident())
        x = np.array(times) - np.mean(times)
        slope = float(x @ np.array(sizes)) / float(x @ x)
        left = np.array(sizes) - np.mean(sizes) - slope * x
        error = float(np.sqrt(left @ left / max(1, len(x) - 2) / (x @ x)))
        # a step of the allocator is no slope: every quarter must be above the one before
        quarters = [float(np.median(part)) for part in np.array_split(sizes, 4)]
        grown = all(np.diff(quarters) > 0) and quarters[-1] - quarters[0] > BYTES_IN_ALL
        grows = bool(grown and 60 * (slope - 3 * error) > BYTES_A_MINUTE)
        print(json.dumps({"name": specimen.name, "calls": calls, "slope": 60 * slope, "grows": grows}), flush=True)


def measured(names, seconds, leak=0):
    """The lines of a child."""
    code = f"from tests.reliability.test_growth import child; child({names!r}, {seconds}, {leak})"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return [json.loads(text) for text in done.stdout.splitlines()]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_does_not_grow(amount):
    seconds = amount(0.2, 25.0)
    found = measured(NAMES, seconds)
    assert [line["name"] for line in found] == [s.name for s in SPECIMENS if s.name in NAMES]
    print(*found, sep="\n")
    report(
        "memory over time",
        f"{len(found)} models, {seconds:g} s each, {sum(line['calls'] for line in found)} rounds of all calls",
        models_that_grow=sum(line["grows"] for line in found),
        also={"largest slope in MB a minute": round(max(line["slope"] for line in found) / 1e6, 2)},
    )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_leak_is_found():
    (line,) = measured(NAMES[:1], 0.2, leak=20_000)
    assert line["grows"]
