"""Runs the long form of these tests and writes what they counted into docs/reliability.md."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
# What reports: this room, and a file beside it.
RUN = ("reliability", "neighbours/test_code_index.py")
START, END = "<!-- table: written by make reliability -->\n", "<!-- end of table -->\n"


def line(figure):
    """One row of the table."""
    never = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in figure["never"].items())
    also = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figure["also"].items())
    return f"| {figure['what']} | {figure['tried']} | {never} | {also} |"


def is_run(path):
    """Return whether main() runs a test file."""
    return any((ROOT / "tests" / name) in (path, *path.parents) for name in RUN)


def main():
    """Run, then replace the table; the page stays as it is if a test fails."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.jsonl"
        environment = {**os.environ, "FASTSKETCH_FIGURES": str(figures)}
        paths = [RUN[0], *(str(ROOT / "tests" / path) for path in RUN[1:])]
        command = [sys.executable, str(ROOT / "tests" / "run.py"), *paths, "--long", "-s", *sys.argv[1:]]
        status = subprocess.run(command, env=environment).returncode
        if status or sys.argv[1:]:  # a part of the tests makes no table
            return status
        lines = map(json.loads, figures.read_text(encoding="utf-8").splitlines())
        found = {figure["what"]: figure for figure in lines}.values()  # of both forms the long one, which comes last
    rows = ["| what | tried | never, and counted (target 0 each) | also |", "|---|---|---|---|", *map(line, found)]
    page = PAGE.read_text(encoding="utf-8")
    head, tail = page.split(START)[0], page.split(END)[1]
    PAGE.write_text(head + START + "\n".join(rows) + "\n" + END + tail, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
