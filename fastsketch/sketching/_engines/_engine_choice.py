"""Choice of the engine for a stream: once, by its first row, so that no cut into batches has a say."""

from typing import Any

import numpy as np

from fastsketch._core.validation import is_sparse
from fastsketch.sketching._engines._dense_engine import DenseEngine
from fastsketch.sketching._engines._engine_setting import EngineSetting, exact_pays
from fastsketch.sketching._engines._exact_engine import dense_form
from fastsketch.sketching._engines._mapped_engine import MappedEngine
from fastsketch.sketching._engines._sparse_engine import SparseEngine

AnyEngine = DenseEngine | SparseEngine | MappedEngine

# Share of nonzeros above which the dense kernels are faster on CSR rows.
DENSE_ABOVE = 0.15
# Bytes of a dense buffer that sparse rows may be given: they themselves say nothing of so much memory.
MOST_BYTES = 1e9


def make_engine(setting: EngineSetting, rows: Any, *, dtype: np.dtype[Any]) -> AnyEngine:
    """Return an empty engine for a stream that begins with `rows`, array or CSR (n, d).

    ValueError for sparse rows of so many columns that the buffer of solver "svd", which is dense, is beyond MOST_BYTES.
    """
    d = rows.shape[1]
    solver = setting.solver
    if solver == "auto":
        exact = setting.compressor is None and exact_pays(d, setting.sketch_size)
        solver = "exact" if exact else "gram"
    setting = setting.resolved(solver)
    kind = kind_for(setting, sparse=stays_sparse(rows[:1]))
    if kind is SparseEngine:
        setting = SparseEngine.for_features(setting, d)
    elif solver == "svd" and kind is DenseEngine and stays_sparse(rows[:1]):
        m = DenseEngine.capacity_for(setting)
        if (need := m * d * dtype.itemsize) > MOST_BYTES:
            raise ValueError(
                f"solver='svd' has a dense buffer of {m:,} x {d:,}, {need:,} bytes, more than {MOST_BYTES:g} for "
                "sparse rows: take solver='gram', whose buffer is sparse"
            )
    return kind(setting, d, dtype=dtype)


def stays_sparse(rows: Any) -> bool:
    """Return whether rows, an array or CSR, are sparse enough for the sparse engine."""
    return is_sparse(rows) and rows.nnz <= DENSE_ABOVE * rows.shape[0] * rows.shape[1]


def kind_for(setting: EngineSetting, *, sparse: bool) -> type[AnyEngine]:
    """Return the engine of a resolved setting; only solver gram has a form of its own for sparse rows."""
    if setting.compressor is not None:
        return MappedEngine
    return SparseEngine if sparse and setting.solver == "gram" else dense_form(setting)
