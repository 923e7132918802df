"""Signed distances of rows to hyperplanes, and packed bits of their signs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import in_place, is_sparse, natural_dtype, not_finite
from fastsketch._kernels.hashing import encode as kernel
from fastsketch.neighbours.codes._layout import Codes
from fastsketch.sketching._plain_rows import plain_rows

Scores = NDArray[np.floating[Any]]

# Bytes of rows of one call of the kernel, during which no interrupt is handled.
SLICE_BYTES = 32 << 20


def compute_scores(
    rows: Any,
    projection: NDArray[np.float64],
    offsets: NDArray[np.float64],
    *,
    scores: Scores | None = None,
    codes: Codes | None = None,
) -> None:
    """Compute rows @ projection - offsets, and write the result (scores) or its sign bits to an array.

    Scores are written to `scores`, or their packed signs to `codes`; exactly one of the two is given.

    ValueError names the first row that is not finite.

    Parameters
    ----------
    rows : ndarray or CSR (n, d)
    projection : ndarray (d, n_bits)
    offsets : ndarray (n_bits,)
    scores : ndarray (n, n_bits), of the dtype of the rows, optional
    codes : ndarray uint8 (n, ceil(n_bits / 8)), optional
    """
    (n, d), dtype = rows.shape, natural_dtype(rows.dtype)
    n_bits = len(offsets)
    projection, offsets = in_place(projection, dtype), in_place(offsets, dtype)
    task_rows = kernel.rows_of_part(d, n_bits)
    step = max(1, SLICE_BYTES // (task_rows * d * dtype.itemsize)) * task_rows
    for start in range(0, n, step):
        piece, stop = rows if n <= step else rows[start : start + step], start + step
        first_bad = _run_kernel(
            piece,
            projection,
            offsets,
            scores=None if scores is None else scores[start:stop],
            codes=None if codes is None else codes[start:stop],
        )
        if first_bad >= 0:
            raise not_finite(start + first_bad)


def _run_kernel(
    rows: Any, projection: Scores, offsets: Scores, *, scores: Scores | None = None, codes: Codes | None = None
) -> int:
    """Compute scores or sign bits in one kernel call. Return the index of the first row that is not finite, or -1."""
    if not is_sparse(rows):
        rows = plain_rows(rows, projection.dtype)
        if rows.strides[0] < rows.shape[1] * rows.itemsize:  # BLAS does not support overlapping or reversed rows
            rows = np.ascontiguousarray(rows)
        return kernel.dense(rows, projection, offsets, scores=scores, codes=codes)
    return kernel.csr(
        in_place(rows.indptr, np.int64),
        in_place(rows.indices, np.int32),
        in_place(rows.data, projection.dtype),
        projection,
        offsets,
        scores=scores,
        codes=codes,
    )
