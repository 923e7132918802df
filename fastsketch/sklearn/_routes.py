"""The cheapest way to principal components, by a model of seconds and bytes.

The coefficients are those of one core of the machine of bench/README.md, where ``bench/run.py routes`` measures them
again: what counts is their ratio. A model that is off by a third moves a border between two ways that cost the same.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fastsketch._core.validation import is_sparse
from fastsketch.sketching._engines import stays_sparse
from fastsketch.sketching._leading_pairs import steps, takes_lanczos
from fastsketch.sketching._whole import BLOCK_BYTES, column_steps, row_steps

WayName = Literal["rows", "columns", "pairs", "sketch"]

# How much dearer than the sketch (in ``fit`` with its second pass) an exact way may be: in one pass the sketch gives
# variances to a few percent, with the second to a few tenths of one.
WORTH_IN_FIT, WORTH_IN_STREAM = 3.0, 6.0

# Seconds, each per unit named.
DENSE_STEP = 1.1e-11  # multiply-add of dsyrk, both triangles counted
SPARSE_STEP, SPARSE_OUT = 3.0e-9, 6.0e-9  # multiply-add of a product of two CSR matrices; entry of what comes out
LOAD = 1.5e-9  # entry of a dense block: converted, centred, squared
EIGH = 4.2e-11  # m^3: all eigenvalues and a few vectors
VECTOR = 2.0e-11  # m^2 k: a vector more
LANCZOS, LANCZOS_PAIR = 2.0e-9, 4.0e-10  # m^2, m^2 k: of a spectrum that falls
READ, AGAIN = 2.5e-9, 4.7e-9  # d l^2: a read-out; what a second pass does beside the rows
# a pass of the sketch over dense rows, and a further pass: n l; entry; entry and l
SHRINK_ROW, SKETCH_ENTRY, SKETCH_PAIR = 1.0e-7, 1.9e-9, 9.0e-11
PASS_ENTRY, PASS_PAIR = 2.5e-9, 8.0e-11
# the same of CSR rows: n l, n l^2; stored entry and l; n d, n d l
SPARSE_ROW, SPARSE_ROW_PAIR, SPARSE_PAIR = 1.2e-7, 1.6e-9, 7.0e-9
SPARSE_WIDE, SPARSE_KEPT = 2.5e-10, 3.0e-12
# a step of Lanczos with CSR rows: stored entry (both products); row or column; row or column and vector kept
PAIR_ENTRY, PAIR_PLACE, PAIR_KEPT = 1.7e-9, 8.0e-9, 6.0e-10
ROUNDS = 1.3  # steps over vectors kept, of a spectrum that falls
SPARSE_PASS = 2.0e-9  # stored entry and l: a further pass


class FitProblem(NamedTuple):
    """Rows that are to be learned from, as the model of costs sees them."""

    n: int  # rows
    d: int  # columns
    k: int  # pairs that are wanted
    size: int  # rows of the sketch
    itemsize: int = 8
    stored: float | None = None  # entries of CSR rows that stay sparse
    row_steps: float = 0.0  # their multiply-adds of X'X
    column_steps: float = 0.0  # and of X X'


@dataclass(frozen=True)
class Route:
    """Way to components, with what it costs beyond the rows themselves."""

    way: WayName
    seconds: float
    bytes: float


def problem_of(rows: Any, *, k: int, size: int) -> FitProblem:
    """Describe checked rows, array or CSR, to the model."""
    sparse = (float(rows.nnz), row_steps(rows), column_steps(rows)) if is_sparse(rows) and stays_sparse(rows) else None
    n, d = rows.shape
    return FitProblem(n, d, k, size, rows.dtype.itemsize, *(sparse or (None, 0.0, 0.0)))


def _eigen(m: int, k: int) -> tuple[float, float]:
    """Return (seconds, bytes) of k leading pairs of a symmetric matrix of side m, which is not counted."""
    if takes_lanczos(m, k):
        return m * m * (LANCZOS + LANCZOS_PAIR * k), 8.0 * m * (3 * k + 40)
    return EIGH * m**3 + VECTOR * m * m * k, 8.0 * m * (m + k)


def by_rows(p: FitProblem) -> Route:
    """Estimate the n x n matrix of products, and the l leading directions from it."""
    kept = min(p.n, p.size)
    seconds, size = _eigen(p.n, kept)
    if p.stored is None:
        seconds += DENSE_STEP * p.n * p.n * p.d + 2.0 * LOAD * p.n * p.d
    else:
        seconds += SPARSE_STEP * p.column_steps + SPARSE_OUT * p.n * p.n + SPARSE_PASS * p.stored * p.size
    work = 40.0 * (p.stored or 0.0) + 3.0 * BLOCK_BYTES
    seconds += 2.0 * READ * p.d * kept * kept
    return Route("rows", seconds, 8.0 * p.n * p.n + size + work + 8.0 * 6 * kept * p.d)


def by_columns(p: FitProblem) -> Route:
    """Estimate the d x d matrix of products."""
    dense = DENSE_STEP * p.n * p.d * p.d + LOAD * p.n * p.d
    work = 40.0 * (p.stored or 0.0) + 3.0 * BLOCK_BYTES
    if p.stored is not None:
        dense = min(dense, SPARSE_STEP * p.row_steps + SPARSE_OUT * p.d * p.d)
    seconds, size = _eigen(p.d, p.k + 1)
    # a spectrum without a gap goes through the whole matrix, in a copy
    return Route("columns", dense + seconds, 8.0 * 2 * p.d * p.d + size + work + 8.0 * 256 * p.d)


def by_pairs(p: FitProblem) -> Route:
    """Estimate Lanczos steps with CSR rows: k + 1 pairs, in the space of rows or of columns, whichever is smaller."""
    m = min(p.n, p.d)
    kept = steps(m, p.k + 1)
    count = ROUNDS * kept + 40.0
    stored = p.stored or float(p.n) * p.d
    seconds = count * (PAIR_ENTRY * stored + PAIR_PLACE * (p.n + p.d) + PAIR_KEPT * kept * m)
    seconds += READ * p.d * p.k * p.k
    return Route("pairs", seconds, 8.0 * m * (2 * kept + 8) + 24.0 * stored + 8.0 * 4 * p.k * max(p.n, p.d))


def by_sketch(p: FitProblem, *, passes: int) -> Route:
    """Estimate the sketch, and the passes after the first."""
    n, d, size, again = p.n, p.d, p.size, passes - 1
    seconds = READ * d * size * size + again * (READ + AGAIN) * d * size * size
    if p.stored is None:
        entries = float(n) * d
        seconds += SHRINK_ROW * n * size + entries * (SKETCH_ENTRY + SKETCH_PAIR * size + LOAD)
        seconds += again * entries * (PASS_ENTRY + PASS_PAIR * size)
    else:
        seconds += n * size * (SPARSE_ROW + SPARSE_ROW_PAIR * size) + SPARSE_PAIR * p.stored * size
        seconds += float(n) * d * (SPARSE_WIDE + SPARSE_KEPT * size) + again * SPARSE_PASS * p.stored * size
    kept = p.itemsize * 3.0 * size * d + 8.0 * 8 * size * d * again
    return Route("sketch", seconds, kept + 6.0 * BLOCK_BYTES + 8.0 * 2 * 256 * d)


def cheapest_exact(p: FitProblem, *, max_memory: float, pairs: bool = False) -> Route | None:
    """Return the cheaper exact way, if one fits the memory.

    `pairs`: whether Lanczos steps with the rows may be tried, which needs CSR rows and a k that is known.
    """
    ways = [by_rows(p), by_columns(p)]
    if pairs and p.stored is not None and p.k + 1 < min(p.n, p.d):
        ways.append(by_pairs(p))
    return min((way for way in ways if way.bytes <= max_memory), key=lambda way: way.seconds, default=None)


def choose(p: FitProblem, *, max_memory: float, pairs: bool = False) -> Route:
    """Choose the way of a fit: the cheaper exact one, unless it costs too much; the sketch needs the least memory."""
    best, sketch = cheapest_exact(p, max_memory=max_memory, pairs=pairs), by_sketch(p, passes=2)
    return best if best is not None and best.seconds <= WORTH_IN_FIT * sketch.seconds else sketch


def most_rows_in_stream(p: FitProblem, *, max_memory: float, most: int) -> int:
    """Return how many rows of a stream, like those that it begins with, are kept for the products of all pairs.

    At most `most`, in steps of a twentieth; the memory is that of the rows, twice while they are read, and of the
    products.
    """
    for n in range(most, 0, -max(1, most // 20)):
        times = n / max(p.n, 1)
        like = p._replace(n=n, stored=None if p.stored is None else times * p.stored)
        like = like._replace(row_steps=times * p.row_steps, column_steps=times * times * p.column_steps)
        rows, own = by_rows(like), 12.0 * like.stored if like.stored is not None else float(p.itemsize) * n * p.d
        if rows.bytes + 2.0 * own <= max_memory and rows.seconds <= WORTH_IN_STREAM * by_sketch(like, passes=1).seconds:
            return n
    return 0


def sums_in_stream(p: FitProblem, *, max_memory: float) -> bool:
    """Return whether a stream of such rows is accumulated exactly, d x d; what reading costs is not counted."""
    # rows of CSR are made dense: a stream has no end at which all could be multiplied at once
    many = p._replace(n=max(p.n, 1))
    sums = DENSE_STEP * many.n * p.d * p.d + LOAD * many.n * p.d
    sketch = by_sketch(many, passes=1).seconds - READ * p.d * p.size * p.size
    # a batch is undone from a copy of the sum, and what is read is a copy
    return by_columns(p).bytes + 8.0 * p.d * p.d <= max_memory and sums <= WORTH_IN_STREAM * sketch
