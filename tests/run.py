"""Runs the tests against the installed package, wherever the source tree lies, and says where data is absent.

`run.py` runs the short form of all tests: a process for each folder of tests/ or for a part of a large one, three at a
time, as some wait and some measure, those that take longest first (tests/durations.json, which `--store-durations`
writes).
`run.py --long` runs the long form, too, `run.py --turn 3/8` what has its turn of the long form alone (conftest.py).
`run.py [ROOM] [options of pytest]` runs one folder, or all, in this process.
"""

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
DURATIONS = TESTS / "durations.json"
AT_A_TIME = 3
# A room that takes more than this share of the whole is run in parts.
SHARE = 0.1
# Seconds after which a part is ended, one whose process does not end when its tests have: below the limit of a step of
# .ci/steps.py; of the whole long form more.
PATIENCE, PATIENCE_LONG = 1500, 3 * 3600
OPTIONS = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]


def main():
    # The tree's own fastsketch/ has no compiled kernels unless it was installed in place: take the installed one.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() not in (ROOT, TESTS)]
    sys.path.append(str(ROOT))
    os.environ.setdefault("FASTSKETCH_DATA", str(ROOT.parent / "shared" / "data"))
    os.environ["FASTSKETCH_DATA"] = str(Path(os.environ["FASTSKETCH_DATA"]).resolve())
    print(f"data sets: {os.environ['FASTSKETCH_DATA']}", flush=True)
    # Some processes share the cores, and threads of BLAS that wait for each other cost more than they bring. What says
    # something of many threads asks for them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="the long form, too")
    parser.add_argument("--turn", metavar="K/N", help="of the long form alone the tests whose turn it is")
    parser.add_argument("--store-durations", action="store_true", help="write what each file took")
    parser.add_argument("--logs", metavar="FOLDER", type=lambda name: Path(name).resolve(), help="where to leave them")
    asked, rest = parser.parse_known_args()
    if rest and (asked.store_durations or asked.logs):
        parser.error("--store-durations and --logs are of a run of all rooms, without options of pytest")
    form = ["--long"] * asked.long + (["--turn", asked.turn] if asked.turn else [])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that processes which the tests start do not find the tree either
        try:
            if rest:  # the first may be a folder of tests/
                room, rest = (rest[0], rest[1:]) if rest[0][0] != "-" else ("", rest)
                return pytest.main([str(TESTS / room), *OPTIONS, *form, *rest])
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that `finally` ends the parts
            return everything(form, asked.logs or Path(folder, "logs"), store=asked.store_durations)
        finally:
            os.chdir(ROOT)


# -- parts -------------------------------------------------------------------------------------------------------------
def parts(seconds):
    """{name: test files that one process runs}: those that take longest first, by what files took before.

    A folder within a room stays whole: what its tests share (a cluster) is begun once.
    """
    files = {path: seconds.get(path.relative_to(ROOT).as_posix(), 1.0) for path in sorted(TESTS.rglob("test_*.py"))}
    rooms, found, took = {}, {}, lambda paths: sum(map(files.get, paths))
    for path in files:
        rooms.setdefault(path.relative_to(ROOT).parts[1] if path.parent != TESTS else "tests", []).append(path)
    for room, paths in rooms.items():
        folders = {}
        for path in paths:
            folders.setdefault(path if path.parent.parent in (TESTS, ROOT) else path.parent, []).append(path)
        n = min(len(folders), math.ceil(took(paths) / (SHARE * took(files))))
        heaps = [[] for _ in range(n)]
        for together in sorted(folders.values(), key=took, reverse=True):
            min(heaps, key=took).extend(together)
        found |= {f"{room} {k + 1} of {n}" if n > 1 else room: sorted(heap) for k, heap in enumerate(heaps)}
    return dict(sorted(found.items(), key=lambda part: -took(part[1])))


class Running(NamedTuple):
    """A part under way; its session is its own, so that it ends with all that it has begun."""

    name: str
    log: Path
    began: float
    process: subprocess.Popen
    patience: float

    def over(self):
        """Whether it has ended; one that never would is ended."""
        if self.process.poll() is None and time.monotonic() - self.began > self.patience:
            self.log.open("a").write(f"\nended after {self.patience} s\n")
            self.end()
        return self.process.poll() is not None

    def end(self):
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):  # nobody is left
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()


def begun(name, paths, form, folder, temporary):
    """Begin a part, with temporary files of its own: pytests that share a folder fail where two remove its old ones."""
    log = folder / f"{name.replace(' ', '-')}.log"
    own = Path(temporary, log.stem)
    own.mkdir()
    code = "import sys; sys.path.append(sys.argv[1]); import pytest; sys.exit(pytest.main(sys.argv[2:]))"
    report = [f"--junitxml={log.with_suffix('.xml')}", "-o", "junit_family=xunit1"]
    command = [sys.executable, "-P", "-c", code, str(ROOT), *map(str, paths), *OPTIONS, *report, *form]
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTEST_DEBUG_TEMPROOT": str(own)},
        )
    return Running(name, log, time.monotonic(), process, PATIENCE_LONG if "--long" in form else PATIENCE)


# -- all of them -------------------------------------------------------------------------------------------------------
def everything(form, folder, *, store):
    """0 if all pass. A line for each part when it has ended; then what was skipped, what took longest, and failures."""
    stored = json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
    which = "long" if form else "short"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    waiting, running, ended = list(parts(stored.get(which, {})).items()), [], []
    temporary = tempfile.mkdtemp(prefix="tests-")
    try:
        while waiting or running:
            while waiting and len(running) < AT_A_TIME:
                running.append(begun(*waiting.pop(0), form, folder, temporary))
            time.sleep(0.05)
            for part in [part for part in running if part.over()]:
                running.remove(part)
                part.end()
                ended.append(Ended.of(part))
                print(ended[-1].line(), flush=True)
    finally:
        for part in running:
            part.end()
        shutil.rmtree(temporary, ignore_errors=True)
    if store:
        # a turn is a part of the long form: of the files that it has no test of, what is known stays
        stored[which] = {**(stored.get(which, {}) if "--turn" in form else {}), **seconds_of_files(ended)}
        DURATIONS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return told(ended)


class Ended(NamedTuple):
    """What became of a part."""

    name: str
    log: Path
    status: int
    seconds: float
    tests: list  # (seconds, file, name, outcome)

    @classmethod
    def of(cls, part):
        """Read what pytest has reported; a process that died has reported nothing."""
        report, tests = part.log.with_suffix(".xml"), []
        if report.exists():
            for case in ElementTree.parse(report).iter("testcase"):
                kinds = {child.tag for child in case}
                outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
                tests.append((float(case.get("time", 0)), case.get("file", ""), case.get("name"), outcome))
        status = part.process.returncode
        if status in (0, pytest.ExitCode.NO_TESTS_COLLECTED):  # as a test may say that ends the process
            failed = any(test[-1] == "failed" for test in tests)
            status = "no report" if not report.exists() else int(failed)
        return cls(part.name, part.log, status, time.monotonic() - part.began, tests)

    def count(self, outcome):
        found = sum(test[-1] == outcome for test in self.tests)
        return max(found, 1) if outcome == "failed" and self.status else found

    def line(self):
        counts = ", ".join(f"{self.count(outcome)} {outcome}" for outcome in ("passed", "failed", "skipped"))
        return f"{self.name:24s} {self.seconds:6.1f} s  {counts}"


def seconds_of_files(ended):
    """{file: seconds}, but for those that take less than one."""
    found = {}
    for seconds, file, *_ in (test for part in ended for test in part.tests):
        found[file] = found.get(file, 0.0) + seconds
    return {file: round(seconds) for file, seconds in sorted(found.items()) if seconds >= 1}


def told(ended):
    """Print all that remains to be said; 1 if anything has failed, or nothing was tried."""
    for part in ended:
        skipped = [line for line in part.log.read_text(errors="replace").splitlines() if line.startswith("SKIPPED")]
        print(*skipped, sep="\n", end="\n" if skipped else "")
    print("\nslowest:")
    for seconds, file, name, _ in sorted((test for part in ended for test in part.tests), reverse=True)[:10]:
        print(f"{seconds:7.1f} s  {file}::{name}")
    if hasattr(os, "times"):
        print(f"{sum(os.times()[2:4]):7.1f} s of processors in all\n")
    for part in ended:
        if part.status:
            print(f"-- {part.name}: FAILED ({part.status})\n{part.log.read_text(errors='replace')}")
    counts = (f"{sum(part.count(outcome) for part in ended)} {outcome}" for outcome in ("passed", "failed", "skipped"))
    print(", ".join(counts), flush=True)
    return int(any(part.status for part in ended) or not any(part.tests for part in ended))


if __name__ == "__main__":
    sys.exit(main())
