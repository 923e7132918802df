"""Runs the test suite against the installed package, wherever the source tree lies, and says where data is absent.

`run.py` runs everything, a process for each folder of tests/, as many at a time as there are cores (at most 2, as some
tests measure); `run.py ROOM [options of pytest]` runs one folder, `run.py OPTIONS` all in this process.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
AT_A_TIME = 2
OPTIONS = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main():
    # The tree's own fastsketch/ has no compiled kernels unless it was installed in place: take the installed one.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() not in (ROOT, TESTS)]
    sys.path.append(str(ROOT))
    os.environ.setdefault("FASTSKETCH_DATA", str(ROOT.parent / "shared" / "data"))
    os.environ["FASTSKETCH_DATA"] = str(Path(os.environ["FASTSKETCH_DATA"]).resolve())
    print(f"data sets: {os.environ['FASTSKETCH_DATA']}", flush=True)
    # the first argument may be a folder of tests/: only that is run
    room, rest = (sys.argv[1], sys.argv[2:]) if sys.argv[1:2] and sys.argv[1][0] != "-" else ("", sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that processes which the tests start do not find the tree either
        try:
            return pytest.main([str(TESTS / room), *OPTIONS, *rest]) if room or rest else everything()
        finally:
            os.chdir(ROOT)


def everything():
    """0 if all pass. The last line of each room is printed when it has ended, all of it at the end, failures last."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(AT_A_TIME, cores)) as pool:
        ended = list(pool.map(run, rooms().items()))
    for name, status, text in sorted(ended, key=lambda entry: entry[1] not in PASSED):
        print(f"-- {name}: {'passed' if status in PASSED else f'FAILED ({status})'}\n{text}", flush=True)
    return int(any(status not in PASSED for _, status, _ in ended))


def rooms():
    """The arguments of pytest for each, those with the most text first: they take the longest."""
    found = {"tests": sorted(TESTS.glob("test_*.py"))}
    for room in sorted(path for path in TESTS.iterdir() if any(path.rglob("test_*.py"))):
        found[room.name] = [room]
    return dict(sorted(found.items(), key=lambda entry: -_size(entry[1])))


def _size(paths):
    return sum(file.stat().st_size for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))


def run(room):
    """(name, exit status, output) of the tests of a room, in a process of their own."""
    name, paths = room
    code = "import sys; sys.path.append(sys.argv[1]); import pytest; sys.exit(pytest.main(sys.argv[2:]))"
    command = [sys.executable, "-P", "-c", code, str(ROOT), *map(str, paths), *OPTIONS]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"{name}: {done.stdout.strip().rpartition(chr(10))[2]}", flush=True)
    return name, done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
