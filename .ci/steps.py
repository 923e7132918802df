"""Runs what .ci/run promises: one build for all checks, steps side by side, each with a log, a table at the end.

A step is a line of shell; most are the targets of the Makefile that a person types, with the wheel in place of the tree
(PACKAGE) and without installing once more (PIP=true). Its log is build/ci/NAME.log.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "ci"
PYTHON = ".venv/bin/python"
# The long tests, and the tests under sanitizers, come in so many turns: each commit takes one, by its digest.
TURNS, SANITIZED = 12, 3
# Minutes after which a step hangs; seconds that one has to end what it has begun (tests/run.py's parts).
LIMIT, GRACE = 30, 10
# Why a test may be skipped: what it is parametrized by has no such case, it is a comparison with rivals (bench/), or
# the machine has no GPU.
NOTHING_TO_TEST = (
    r"tests/bench/test_commands\.py"
    r"|: (?:no float32|no wider number here|needs alpha0|rounds that teach nothing .*|needs a CUDA device"
    r"|SCIPY_ARRAY_API is not set.*)$"
)

Step = namedtuple("Step", "name cores after command")


def installed(target):
    return f"make PACKAGE=$(ls dist/*.whl) PIP=true {target}"


STEPS = [
    Step("venv", 1, (), "rm -rf .venv dist && make .venv/ready && .venv/bin/pip install -q build"),
    # what is compiled for the wheel is kept here: the sanitizers take the same C
    Step("wheel", 2, ("venv",), 'FASTSKETCH_BUILD="$PWD/build/kernels" make PIP=true build'),
    Step("packages", 1, ("venv",), "make packages"),
    Step(
        "install",
        1,
        ("wheel", "packages"),
        f"{PYTHON} -m pip install -q dist/*.whl && {PYTHON} .ci/wheel.py dist/*.whl",
    ),
    Step("tests", 2, ("install",), installed("test")),
    Step("sanitizers", 2, ("install",), installed("asan TURN=%(sanitized)s")),
    Step("long tests", 2, ("install",), installed("test-long TURN=%(turn)s")),
    Step("types", 1, ("install",), installed("types")),
    Step("stubs", 1, ("install",), installed("stubs")),
    Step("documents", 1, ("install",), installed("docs-quick")),
    Step("demo", 1, ("install",), installed("demo")),
    Step("style", 1, ("packages",), installed("style")),
]

Ended = namedtuple("Ended", "step status seconds")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that `finally` ends what runs
    shutil.rmtree(LOGS, ignore_errors=True)  # what is said below is of this run alone
    LOGS.mkdir(parents=True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting, running, ended = list(STEPS), [], {}
    digest = zlib.crc32(commit().encode())
    turns = {"turn": f"{digest % TURNS}/{TURNS}", "sanitized": f"{digest % SANITIZED}/{SANITIZED}"}
    print(f"{cores} cores; long tests: turn {turns['turn']}, sanitizers: {turns['sanitized']}", flush=True)
    try:
        while waiting or running:
            for step in list(waiting):
                if any(name in ended and ended[name].status for name in step.after):
                    waiting.remove(step)
                    ended[step.name] = Ended(step, "not run", 0.0)
                elif all(name in ended for name in step.after) and fits(step, running, cores):
                    waiting.remove(step)
                    running.append(Running(step, turns))
            time.sleep(0.2)
            for one in [one for one in running if one.over()]:
                running.remove(one)
                ended[one.step.name] = one.end()
                print(line(ended[one.step.name]), flush=True)
    finally:
        for one in running:
            one.stop()
    return report([ended[step.name] for step in STEPS])


def fits(step, running, cores):
    """Return whether a step has cores beside those at work; one that wants more than there are runs alone."""
    return sum(other.step.cores for other in running) + step.cores <= max(cores, step.cores)


def commit():
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def log_of(step):
    return LOGS / f"{step.name.replace(' ', '-')}.log"


class Running:
    """A step at work, in a group of processes of its own."""

    def __init__(self, step, turns):
        self.step, self.began = step, time.monotonic()
        with log_of(step).open("w") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", step.command % turns],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def over(self):
        if self.process.poll() is None and time.monotonic() - self.began > 60 * LIMIT:
            self.stop()
        return self.process.poll() is not None

    def stop(self):
        """End it: first by a signal upon which tests/run.py ends its parts, whose sessions are their own."""
        for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 1)):
            until = time.monotonic() + seconds
            while self.signalled(number) and time.monotonic() < until:
                number = 0
                time.sleep(0.1)

    def signalled(self, number):
        """Send a signal to the whole group (0: none); return whether anybody was left."""
        self.process.poll()
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def end(self):
        return Ended(self.step, self.process.returncode, time.monotonic() - self.began)


def counts(step):
    """Return what the tests of a step counted: the sums over its lines like "12 passed, 0 failed, 1 skipped"."""
    found = {"passed": 0, "failed": 0, "skipped": 0}
    text = log_of(step).read_text() if log_of(step).exists() else ""
    for said in re.findall(r"^(?=.*\bpassed\b)[\d a-z,]+$", text, re.M):
        for number, word in re.findall(r"(\d+) (passed|failed|skipped)", said):
            found[word] += int(number)
    return found


def line(ended):
    passed = "passed" if ended.status == 0 else "NOT RUN" if ended.status == "not run" else f"FAILED ({ended.status})"
    of_tests = ", ".join(f"{number} {word}" for word, number in counts(ended.step).items() if number)
    return f"{ended.step.name:12} {ended.seconds:6.0f} s  {passed:12}  {of_tests}".rstrip()


def report(steps):
    """Print the ends of logs that failed, then the table, then the sum of all tests; return the exit status."""
    failed = [ended for ended in steps if ended.status]
    for ended in failed:
        if ended.status != "not run":
            text = log_of(ended.step).read_text().splitlines()
            print(f"\n-- {ended.step.name}, the end of {log_of(ended.step)}:", *text[-80:], sep="\n")
    missing = without_what_it_needs(steps)
    print("\n" + "\n".join(map(line, steps)))
    total = {word: sum(counts(ended.step)[word] for ended in steps) for word in ("passed", "failed", "skipped")}
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**total))
    return int(bool(failed or missing))


def without_what_it_needs(steps):
    """Say which tests were skipped though they can be run: a package, a data set or a tool is missing."""
    text = "".join(log_of(ended.step).read_text() for ended in steps if ended.status != "not run")
    skipped = re.findall(r"^SKIPPED .*$", text, re.M)
    missing = [line for line in skipped if not re.search(NOTHING_TO_TEST, line)]
    if missing:
        print("\n-- FAILED: tests were skipped for reasons that NOTHING_TO_TEST does not name:", *missing, sep="\n")
    return missing


if __name__ == "__main__":
    sys.exit(main())
