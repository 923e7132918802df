"""Two sketches into one."""

from math import frexp

import numpy as np

from fastsketch import _threads
from fastsketch.sketching._engines._base import SAFE_EXPONENTS
from fastsketch.sketching._engines._dense import DenseEngine
from fastsketch.sketching._engines._layout import ROUNDING, SHRINKAGE
from fastsketch.sketching._engines._setting import EngineSetting


def merge_engines(mine, theirs):
    """Add what `theirs` has seen to `mine`. Both are clones: `theirs` is used up.

    The reduced rows of both are stacked, with the correction row of FROSH Algorithm 3 between two means; one shrink
    brings them back to sketch_size - 1 rows, unless they fit as they are.
    """
    if mine.kind == "mapped":
        mine.settle()
        theirs.settle()
        correction = mine.take_over(theirs)
        merge_engines(mine.inner, theirs.inner)
        if correction is not None:
            mine.inner.update(correction, None)
        return
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
    if len(rows) > min(mine.setting.sketch_size, mine.capacity - 1 - mine.setting.center):
        rows = _shrunk(mine, rows)
    mine.replace_rows(rows)


def shrink_rows(rows, sketch_size):
    """One Frequent Directions shrink of loose rows (m, d): sketch_size - 1 rows, and what their squares lost."""
    top = frexp(float(np.abs(rows).max(initial=0.0)))[1]
    low, high, limit = SAFE_EXPONENTS[rows.dtype.itemsize]
    exponent = 0 if low <= top <= high else max(-limit, min(limit, top))
    if exponent:
        rows = np.ldexp(rows, -exponent)
    setting = EngineSetting(sketch_size, buffer_size=max(0, len(rows) - sketch_size), solver="gram")
    bench = DenseEngine(setting, rows.shape[1], dtype=rows.dtype)
    bench.replace_rows(rows, kept=False)
    with _threads.blas_for(bench.capacity):
        bench.flush()
    kept = bench.settled_rows()
    with np.errstate(over="ignore", under="ignore"):
        lost = float(np.ldexp(bench.a["book"][SHRINKAGE], 2 * exponent))
    return np.ldexp(kept, exponent) if exponent else kept, lost


def _shrunk(engine, rows):
    """One shrink of loose rows by the rule of `engine`, whose book takes the delta."""
    size = engine.setting.sketch_size
    bench = DenseEngine(engine.setting.for_one_shrink(max(0, len(rows) - size)), engine.n_features, dtype=engine.dtype)
    bench.replace_rows(rows, kept=False)
    with _threads.blas_for(bench.capacity):
        bench.flush()
    for entry in (SHRINKAGE, ROUNDING):
        engine.a["book"][entry] += bench.a["book"][entry]
    return bench.settled_rows()
