"""Choice between methods for principal components by their floating-point operations and memory.

An exact method is chosen if it takes no more operations than a randomized singular value decomposition with as many
directions as the sketch has rows, and with the seven power iterations of scikit-learn (Halko, Martinsson, Tropp,
"Finding Structure with Randomness", SIAM Review 53(2), 2011; ``PCA(svd_solver="randomized")``). Operations are counted
as in Golub and Van Loan, "Matrix Computations", fourth edition, 2013: n m^2 for a symmetric product of n rows of m
columns, 4/3 m^3 + 4 m^2 k for k leading eigenpairs of a symmetric matrix of side m (section 8.3), 4 n d l for a product
of n rows of d columns with l vectors and back.
"""

from typing import Any, Literal, NamedTuple

from fastsketch._core.validation import is_sparse
from fastsketch.sketching._decompose import steps, takes_lanczos
from fastsketch.sketching._engines import stays_sparse
from fastsketch.sketching._exact_products import BLOCK_BYTES, column_steps, krylov_width, row_steps

WayName = Literal["rows", "columns", "pairs", "krylov", "sketch"]

# Power iterations of scikit-learn's randomized_svd with its default n_iter="auto" for fewer than a tenth of all pairs.
POWER_ITERATIONS = 7


class FitProblem(NamedTuple):
    """Size of a principal component analysis, from which costs of methods are computed: rows, columns, components."""

    n: int  # rows
    d: int  # columns
    k: int  # components wanted
    size: int  # rows of the sketch
    itemsize: int = 8
    stored: float | None = None  # stored entries of CSR rows; None for dense rows
    row_steps: float = 0.0  # their multiply-adds of X'X
    column_steps: float = 0.0  # and of X X'

    @property
    def entries(self) -> float:
        """Return the number of entries that a product of the rows with a vector reads."""
        return float(self.n) * self.d if self.stored is None else self.stored

    @property
    def randomized(self) -> float:
        """Return the number of operations of a randomized SVD of this size, with which exact methods are compared."""
        return 4.0 * (POWER_ITERATIONS + 1) * self.entries * self.size


class Route(NamedTuple):
    """Cost of one method: floating-point operations, and the bytes that it needs in addition to the rows."""

    way: WayName
    operations: float
    bytes: float


def problem_of(rows: Any, *, k: int, size: int) -> FitProblem:
    """Return the size of a principal component analysis of `rows`, with k components, as a FitProblem.

    It asks for k components, or a sketch of `size` rows.
    """
    sparse = (float(rows.nnz), row_steps(rows), column_steps(rows)) if is_sparse(rows) and stays_sparse(rows) else None
    n, d = rows.shape
    return FitProblem(n, d, k, size, rows.dtype.itemsize, *(sparse or (None, 0.0, 0.0)))


def by_rows(p: FitProblem) -> Route:
    """Return the cost (Route) of the exact method that decomposes the n x n matrix of products of rows."""
    kept = min(p.n, p.size)
    products = float(p.n) ** 2 * p.d if p.stored is None else 2.0 * p.column_steps
    work = 8.0 * 6 * kept * p.d + 40.0 * (p.stored or 0.0) + 3.0 * BLOCK_BYTES
    return Route("rows", products + _eigen(p.n, kept) + 4.0 * p.entries * kept, 8.0 * 2 * p.n * p.n + work)


def by_columns(p: FitProblem) -> Route:
    """Return the cost (Route) of the exact method that decomposes the d x d matrix of products of columns."""
    products = float(p.n) * p.d**2
    if p.stored is not None:
        products = min(products, 2.0 * p.row_steps)
    # Without a gap in the spectrum LAPACK decomposes a copy of the matrix. Products of the dense columns of sparse rows
    # are summed up separately.
    copies = 2 if p.stored is None else 3
    work = 8.0 * 256 * p.d + 40.0 * (p.stored or 0.0) + 3.0 * BLOCK_BYTES
    return Route("columns", products + _eigen(p.d, p.k + 1), 8.0 * copies * p.d * p.d + work)


def _eigen(m: int, k: int) -> float:
    """Return the number of operations that the k leading eigenvectors of a symmetric m x m matrix take."""
    return 4.0 / 3.0 * float(m) ** 3 + 4.0 * float(m) ** 2 * k


def by_pairs(p: FitProblem) -> Route:
    """Return the cost (Route) of finding the leading singular pairs of CSR rows by the Lanczos method.

    The steps are on the smaller of the two sides.
    """
    m = min(p.n, p.d)
    kept = steps(m, p.k + 1)
    own = 8.0 * m * (2 * kept + 8) + 24.0 * p.entries + 8.0 * 4 * p.k * max(p.n, p.d)
    return Route("pairs", kept * (4.0 * p.entries + 4.0 * m * kept), own)


def krylov_steps(p: FitProblem) -> int:
    """Return the largest number of vectors that a block Krylov method multiplies, equal to that of a randomized SVD."""
    return (POWER_ITERATIONS + 1) * p.size


def by_krylov(p: FitProblem) -> Route:
    """Return the cost (Route) of a block Krylov method for CSR rows, whose entries are not copied."""
    steps = min(krylov_steps(p), p.d)
    own = 8.0 * p.d * (steps + 8 * krylov_width(p.k)) + 8.0 * 4 * steps**2
    return Route("krylov", steps * (4.0 * p.entries + 4.0 * p.d * steps), own)


def cheapest_exact(p: FitProblem, *, max_memory: float) -> Route | None:
    """Return the cost (Route) of the cheaper of two exact methods that fit into the memory; None if neither fits.

    These are the products of rows and the products of columns.
    """
    ways = [way for way in (by_rows(p), by_columns(p)) if way.bytes <= max_memory]
    return min(ways, key=lambda way: way.operations, default=None)


def choose(p: FitProblem, *, max_memory: float, pairs: bool = False, exact: bool = False) -> WayName:
    """Return the name of the method by which components of rows in memory are computed: an exact one, or "sketch".

    `pairs` allows Lanczos steps for CSR rows, scikit-learn's "arpack", and where their copy of the entries does not fit
    into the memory a block Krylov method. They need a known number of components. `exact` takes an exact method
    whenever it fits into the memory.
    """
    if pairs and p.stored is not None and takes_lanczos(min(p.n, p.d), p.k + 1):
        if by_pairs(p).bytes <= max_memory:
            return "pairs"
        if not exact and by_krylov(p).bytes <= max_memory:
            return "krylov"
    best = cheapest_exact(p, max_memory=max_memory)
    return best.way if best is not None and (exact or best.operations <= p.randomized) else "sketch"


def most_rows_in_stream(p: FitProblem, *, max_memory: float, most: int) -> int:
    """Return how many rows of a stream ``partial_fit`` may store to compute components exactly later; 0 for none.

    The result is `most`, halved until the memory suffices (for the rows, twice while they are read, and for the
    products) and the operations stay below those of a randomized SVD, or 0. Later rows are assumed to be like the first
    ones.
    """
    for n in (most >> k for k in range(most.bit_length())):
        times = n / max(p.n, 1)
        like = p._replace(n=n, stored=None if p.stored is None else times * p.stored)
        like = like._replace(row_steps=times * p.row_steps, column_steps=times * times * p.column_steps)
        rows, own = by_rows(like), 12.0 * like.stored if like.stored is not None else float(p.itemsize) * n * p.d
        if rows.bytes + 2.0 * own <= max_memory and rows.operations <= like.randomized:
            return n
    return 0


def sums_in_stream(p: FitProblem, *, max_memory: float) -> bool:
    """Return True if ``partial_fit`` should sum up the exact d x d matrix for a stream of rows like these, because it
    fits into memory.

    A dense row takes d^2 operations, less than a tenth of those of scikit-learn's IncrementalPCA, which decomposes
    batches of 5 d rows (14 m d^2 + 8 d^3 for m rows). Therefore only memory decides. CSR rows are made dense for the
    sum, and must also pass the test of operations. A refused batch is undone from a copy of the sum, and reading takes
    a copy.
    """
    few = p.stored is None or float(p.n) * p.d**2 <= p.randomized
    return few and by_columns(p).bytes + 8.0 * p.d * p.d <= max_memory
