"""Two sketches into one."""

import numpy as np

from fastsketch import _threads
from fastsketch.sketching._dense import DenseEngine
from fastsketch.sketching._layout import ROUNDING, SHRINKAGE


def merge_engines(mine, theirs):
    """Add what `theirs` has seen to `mine`. Both are clones: `theirs` is used up.

    The reduced rows of both are stacked, with the correction row of FROSH Algorithm 3 between two means; one shrink
    brings them back to sketch_size - 1 rows, unless they fit as they are.
    """
    mine.align(theirs)
    if getattr(mine, "exact", False):
        with _threads.blas_for(mine.capacity):
            mine.add_exact(theirs)
        return
    parts = [mine.reduce(), theirs.reduce()]
    correction = mine.take_over(theirs)
    if correction is not None:
        parts.append(correction)
    rows = np.vstack(parts)
    if len(rows) > min(mine.config.sketch_size, mine.capacity - 1 - mine.config.center):
        rows = _shrunk(mine, rows)
    mine.replace_rows(rows)


def _shrunk(engine, rows):
    """One shrink of loose rows by the rule of `engine`, whose book takes the delta."""
    size = engine.config.sketch_size
    bench = DenseEngine(engine.config.plain(buffer_size=max(0, len(rows) - size)), engine.n_features, engine.dtype)
    bench.replace_rows(rows, kept=False)
    with _threads.blas_for(bench.capacity):
        bench.flush()
    for entry in (SHRINKAGE, ROUNDING):
        engine.a["book"][entry] += bench.a["book"][entry]
    return bench.settled_rows()
