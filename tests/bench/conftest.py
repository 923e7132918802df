"""The modules of bench/ as its commands import each other."""

import sys
from pathlib import Path

BENCH = str(Path(__file__).parents[2] / "bench")
if BENCH not in sys.path:
    sys.path.insert(0, BENCH)  # some packages install a `benchmarks` of their own
