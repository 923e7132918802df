"""asv classes: ``make asv``, ``asv run``, or without asv ``python bench/run.py classes``.

A class has `params` and `param_names`, a `setup` that is not timed, and methods whose prefix says what they yield:
time_ (seconds), peakmem_ (bytes), track_ (a number of quality). For every time there is a track beside it. asv imports
this package by itself, so its modules import nothing else of bench/, and use public names of the library only.
"""

import os
import sys

# asv starts a fresh process for every benchmark and imports this first: BLAS threads are pinned before numpy comes.
# Where it has come, as in bench/run.py, somebody else has chosen.
if "numpy" not in sys.modules:
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")
