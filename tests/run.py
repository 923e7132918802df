"""Runs the test suite against the installed package, wherever the source tree lies, and says where data is absent."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def main():
    # the first argument may be a folder of tests/: only that is run
    room, rest = (sys.argv[1], sys.argv[2:]) if sys.argv[1:2] and sys.argv[1][0] != "-" else ("", sys.argv[1:])
    # The tree's own fastsketch/ has no compiled kernels unless it was installed in place: take the installed one.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() not in (ROOT, ROOT / "tests")]
    sys.path.append(str(ROOT))
    os.environ.setdefault("FASTSKETCH_DATA", str(ROOT.parent / "shared" / "data"))
    os.environ["FASTSKETCH_DATA"] = str(Path(os.environ["FASTSKETCH_DATA"]).resolve())
    print(f"data sets: {os.environ['FASTSKETCH_DATA']}", flush=True)
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that processes which the tests start do not find the tree either
        try:
            return pytest.main([str(ROOT / "tests" / room), *options, *rest])
        finally:
            os.chdir(ROOT)


if __name__ == "__main__":
    sys.exit(main())
