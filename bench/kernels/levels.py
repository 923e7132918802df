"""Every C loop at every level of instructions: is one slower than the level below it?"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_tools import ROOT, table

# As setup.py has them.
FLAGS = ("-O3", "-std=c11", "-ffp-contract=off")
LINE = re.compile(r"(.+?)\s+(\d+ x \d+ x \d+)\s+(.*)")  # a loop, its sizes, a time for each level


def levels(args):
    """Build levels.c with the loops and run it; end with its status, 1 if a level is slower."""
    with tempfile.TemporaryDirectory() as folder:
        driver = Path(folder, "levels")
        sources = [Path(__file__).with_suffix(".c"), *sorted((ROOT / "csrc").glob("*.c"))]
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, *FLAGS, f"-I{ROOT / 'csrc'}", *sources, "-lm", "-lpthread", "-o", driver], check=True)
        repeats = 7 if args.quick else 25
        done = subprocess.run([driver, str(repeats)], check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    if done.returncode and not args.tiny:  # whose repeats are too few, beside other work, to say that
        sys.exit(done.returncode)
    head, *lines = done.stdout.splitlines()
    found = head.split()[1:]
    rows = []
    for name, size, rest in (match.groups() for match in map(LINE.fullmatch, lines) if match):
        times = [cell.replace("-", "") for cell in rest.split()[: len(found)]]
        rows.append([name, size, *times])
    columns = ["loop", "size", *(f"{level}, us" for level in found)]
    table(rows, columns, "main", runs=f"the least of {repeats} in turn", note="No level is slower than the one below.")
