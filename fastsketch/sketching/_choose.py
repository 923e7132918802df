"""Which engine serves a stream best; decided once, at its first batch."""

from fastsketch._validation import is_sparse
from fastsketch.sketching._compressed import CompressedEngine
from fastsketch.sketching._dense import DenseEngine
from fastsketch.sketching._sparse import SparseEngine

# Accumulating A'A costs d^2 flops a row, a shrink 7 d l and an eigensolver of size 2 l. Up to this d the exact matrix
# is faster (a line through the crossings measured on one core for l = 16 .. 128: bench/README.md), and its only error
# is that of the final read-out.
EXACT_SLOPE, EXACT_OFFSET = 11, 300


def exact_pays(d, sketch_size):
    """Whether accumulating d x d is faster than sketching with l = sketch_size."""
    return d <= EXACT_SLOPE * sketch_size + EXACT_OFFSET


# Share of nonzeros above which the dense kernels are faster on CSR rows.
DENSE_ABOVE = 0.15


def make_engine(config, rows, dtype):
    """An empty engine for a stream whose first batch is `rows`."""
    d = rows.shape[1]
    solver = config.solver
    if config.compressor is not None:
        return CompressedEngine(config.resolved("gram" if solver == "auto" else solver), d, dtype)
    if solver == "auto":
        solver = "exact" if exact_pays(d, config.sketch_size) else "gram"
    config = config.resolved(solver)
    if is_sparse(rows) and solver == "gram" and rows.nnz <= DENSE_ABOVE * rows.shape[0] * d:
        return SparseEngine(config, d, dtype)
    return DenseEngine(config, d, dtype)


ENGINES = {engine.kind: engine for engine in (DenseEngine, SparseEngine, CompressedEngine)}
