"""Signed distances of rows to hyperplanes, rows @ projection - offsets, and their signs as codes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import in_place, is_sparse, natural_dtype, not_finite
from fastsketch._kernels.hashing import encode as kernel
from fastsketch.neighbours.codes._layout import Codes
from fastsketch.sketching._plain_rows import plain_rows

Scores = NDArray[np.floating[Any]]

# Rows of one call of the kernel, which an interrupt has to wait for; what cannot be read in place is copied.
SLICE_BYTES = 32 << 20


def fill(
    rows: Any,
    projection: NDArray[np.float64],
    offsets: NDArray[np.float64],
    *,
    scores: Scores | None = None,
    codes: Codes | None = None,
) -> None:
    """Fill in the one that is given, for rows (n, d) whose shape and kind are checked; ValueError for a NaN.

    projection (d, n_bits), offsets (n_bits,); scores are of the rows' own dtype.
    """
    (n, d), dtype = rows.shape, natural_dtype(rows.dtype)
    n_bits = len(offsets)
    projection, offsets = in_place(projection, dtype), in_place(offsets, dtype)
    part = kernel.rows_of_part(d, n_bits)
    step = max(1, SLICE_BYTES // (part * d * dtype.itemsize)) * part
    for start in range(0, n, step):
        piece, stop = rows if n <= step else rows[start : start + step], start + step
        bad = _filled(
            piece,
            projection,
            offsets,
            scores=None if scores is None else scores[start:stop],
            codes=None if codes is None else codes[start:stop],
        )
        if bad >= 0:
            raise not_finite(start + bad)


def _filled(
    rows: Any, projection: Scores, offsets: Scores, *, scores: Scores | None = None, codes: Codes | None = None
) -> int:
    """Return the kernel's answer: the first row that is not finite, or -1."""
    if not is_sparse(rows):
        rows = plain_rows(rows, projection.dtype)
        if rows.strides[0] < rows.shape[1] * rows.itemsize:  # BLAS takes no rows that overlap or lie backwards
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
