"""Run as a program of its own: does work in forks of itself, and kills some of them.

A fork costs milliseconds where a new interpreter costs a second. What is to be done comes as JSON on standard input,
what was seen goes as JSON to standard output.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch.cli import _signals, main
from fastsketch.jobs import _run
from tests.helpers import papers

# A run takes part of a second: one that takes this long hangs.
LIMIT = 60.0
# Parts of small inputs, and checkpoints of what learns in order.
_run.PART_BYTES, _run.STATES_OF_A_PART = 20_000, 0
_run.SECONDS, _run.SHARE = 0.003, 0
ENDED_BY = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextlib.contextmanager
def open_to_signals(handled=_signals.raise_on_signals):
    """The command's own handling of signals, for those that have waited too."""
    with handled():
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDED_BY)
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDED_BY)


def forked(work):
    """The process number of a fork that ends with the status that work() returns."""
    # a signal waits until the command handles it: before, it is Python's
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDED_BY)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDED_BY)
        return pid
    status = 99
    _signals.raise_on_signals = open_to_signals
    try:
        with open(os.devnull, "w") as null:  # noqa: PTH123
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        status = work()
    finally:
        os._exit(status)


def waited(pid, delay=None, by=signal.SIGKILL, until=lambda: False):
    """How a fork ended: its status, -N by signal N, "hang"; after `delay`, or when `until()`, it gets a signal."""
    start = time.monotonic()
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        passed = time.monotonic() - start
        if delay is not None and (passed >= delay or until()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, by)
            delay = None
        if passed > LIMIT:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "hang"
        time.sleep(0.0005)


def small_pieces():
    """Files come in pieces of 4 kB, so that a short job has many checkpoints."""
    from fastsketch.data.sources import _source

    _source.CHUNK_BYTES = 4 << 10


def of_command(about, rng, seen):
    """Kill a command at random moments, resume it if it can be, and compare what it made with what it should have."""
    name, line, resumable = about["name"], about["line"], about["resumable"]
    small_pieces()

    def run(output, *more):
        return forked(lambda: main([*line, "-o", output, *more]))

    def left():
        """Files that no run should leave."""
        return [path.name for path in Path().iterdir() if path.name.startswith((f"{name}.", f".{name}."))]

    for _ in range(2):  # the second one finds everything in the caches of the system
        start = time.monotonic()
        if waited(run("whole")) != 0:
            seen["failed"] += 1
            return
        seconds = time.monotonic() - start
    whole = content(Path("whole"))
    for number in range(about["kills"]):
        by = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)[number % 3]
        # most in the second half of the first run, where there is something to lose
        delay = seconds * rng.uniform(0.0, 1.3)
        partial = Path(f"{name}.partial")
        if resumable and number == 0:  # where there is something to go on from
            ended = waited(run(name), LIMIT, until=lambda partial=partial: goes_on(partial))
        else:
            ended = waited(run(name), delay, by)
        seen["killed"] += ended == -signal.SIGKILL
        seen["interrupted"] += ended in ENDED_BY.values()
        seen["hangs"] += ended == "hang"
        seen["wrong_status"] += ended not in (0, ENDED_BY.get(by, -by))
        if by != signal.SIGKILL and ended == ENDED_BY[by]:
            seen["left_behind"] += any(not entry.endswith(".partial") for entry in left())
        if Path(name).exists():
            seen["damaged"] += content(Path(name)) != whole
        elif ended == 0:
            seen["damaged"] += 1
        for file in partial.glob("node-*.fsk"):
            try:
                fs.load(file)
            except fs.data.StateError:
                seen["damaged"] += 1
        tries = 0
        while not Path(name).exists() or tries == 0:
            resume = ["--resume"] if resumable and goes_on(partial) else []
            seen["resumed"] += bool(resume)
            # killed a second time, then let through
            ended = waited(run(name, *resume), seconds * rng.random() if tries == 0 else None)
            seen["killed"] += ended == -signal.SIGKILL
            seen["refused"] += ended not in (0, -signal.SIGKILL)
            tries += 1
            if tries > 5:
                break
        if ended != 0:  # the result is there, and the run that was killed had not removed its traces
            seen["refused"] += waited(run(name, *(["--resume"] if resumable and goes_on(partial) else []))) != 0
        seen["other_results"] += not Path(name).exists() or content(Path(name)) != whole
        seen["left_behind"] += bool(left())
        for path in [Path(name), *map(Path, left())]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def goes_on(partial):
    """Whether there is what --resume goes on from: a folder with a journal."""
    return (partial / "manifest.json").exists()


def content(path):
    """What a result says: its bytes, but for the times that low-rank models and archives note."""
    found = path.read_bytes()
    if found.startswith(b"PK") and b"fastsketch state" not in found[:4096]:  # an .npz notes the time, too
        with np.load(path) as arrays:
            return b"".join(arrays[name].tobytes() for name in arrays.files)
    if b'"LowRankModel"' not in found[:4096]:
        return found
    model = fs.load(path)
    said = json.dumps([model.notes, model.row_ids, model.column_ids], default=list)
    return model.predict_block(model.row_ids).tobytes() + said.encode()


def of_saving(about, rng, seen):
    """Kill a process that saves two states to one name in turn."""
    states = [
        fs.FrequentDirections(40).update(np.random.default_rng(seed).standard_normal((200, 600))) for seed in (0, 1)
    ]
    allowed = [state.to_bytes() for state in states]

    def die(handle):
        os.kill(os.getpid(), signal.SIGKILL)

    def save_for_ever(last):
        for turn in range(10**6):
            if turn == last:  # all is written, and nothing has its name
                os.fsync = die
            states[turn % 2].save("state.fsk")
        return 0

    states[0].save("state.fsk")
    for number in range(about["kills"]):
        last = None if number % 3 else number % 5
        delay = rng.uniform(0.0, 0.03) if number % 3 else None
        seen["runs_killed"] += waited(forked(lambda last=last: save_for_ever(last)), delay) == -signal.SIGKILL
        try:
            seen["damaged"] += fs.load("state.fsk").to_bytes() not in allowed
        except fs.data.StateError:
            seen["damaged"] += 1
        seen["files_found"] += len(list(Path().iterdir())) - 1
    states[0].save("state.fsk")
    seen["left_behind"] += len(list(Path().iterdir())) - 1


if __name__ == "__main__":
    import scipy.linalg  # noqa: F401  once, not in every fork

    import fastsketch.lowrank
    import fastsketch.neighbours
    import fastsketch.online  # noqa: F401

    # Numba is loaded, and its functions are compiled: kills are to come while a command learns
    for warm in (np.ones((8, 8)), sparse.csr_array(np.eye(8))):
        papers.SketchedNewton(5).update(warm, np.ones(8))
        papers.AdaptiveSubgradient(5, method="ada_fd").update(warm, np.ones(8))
    task = json.loads(sys.stdin.read())
    os.chdir(task["folder"])
    counts = Counter()
    {"command": of_command, "saving": of_saving}[task["what"]](task, random.Random(task["seed"]), counts)
    print(json.dumps(counts))
