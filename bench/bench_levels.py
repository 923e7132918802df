"""Every C loop at every level of instructions: is one slower than the level below it?"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_tools import ROOT

# As setup.py has them.
FLAGS = ("-O3", "-std=c11", "-ffp-contract=off")


def levels(args):
    """Build bench/levels.c with the loops and run it; end with its status, 1 if a level is slower."""
    with tempfile.TemporaryDirectory() as folder:
        driver = Path(folder, "levels")
        sources = [ROOT / "bench" / "levels.c", *sorted((ROOT / "csrc").glob("*.c"))]
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, *FLAGS, f"-I{ROOT / 'csrc'}", *sources, "-lm", "-lpthread", "-o", driver], check=True)
        sys.exit(subprocess.run([driver, "7" if args.quick else "25"], check=False).returncode)
