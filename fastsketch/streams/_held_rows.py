"""Rows that a model holds as they came: dense or CSR, in batches and in its state."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from scipy import sparse

from fastsketch._core.validation import is_sparse
from fastsketch._frame.batches import FeatureNames
from fastsketch._frame.model import Arrays
from fastsketch.data.files import _checks as checks


def with_names(rows: Any, names: FeatureNames | None) -> tuple[FeatureNames, list[list[Any]]] | None:
    """Return the names and values of a dict {name: number} or a list of them; None of other rows."""
    if is_sparse(rows):  # scipy's dok_array is a dict
        return None
    listed = cast("Any", [rows] if isinstance(rows, Mapping) else rows)
    if not (isinstance(listed, list | tuple) and listed and isinstance(listed[0], Mapping)):
        return None
    dicts = cast("list[Any]", listed)
    names = tuple(map(str, dicts[0])) if names is None else names
    for place, row in enumerate(dicts):
        if not isinstance(row, Mapping) or cast("Any", row).keys() != set(names):
            raise ValueError(f"row {place} must be a dict of the same names as those before, all text, got {row!r}")
    return names, [[row[name] for name in names] for row in dicts]


def stacked(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts, which are all dense or all CSR."""
    if len(parts) == 1:
        return parts[0]
    return sparse.vstack(parts, format="csr") if is_sparse(parts[0]) else np.vstack(parts)


def arrays_of(rows: Any) -> Arrays:
    """Return rows as the arrays of a state."""
    if not is_sparse(rows):
        return {"rows": rows}
    indices, indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return {"rows": rows.data, "rows_indices": indices, "rows_indptr": indptr}


def rows_from(arrays: Arrays, d: int) -> Any:
    """Return the rows that ``arrays_of`` has written."""
    if "rows_indptr" not in arrays:
        return arrays["rows"]
    parts = (arrays["rows"], arrays["rows_indices"], arrays["rows_indptr"])
    return sparse.csr_array(parts, shape=(len(parts[2]) - 1, d))


def check_rows(arrays: Arrays, shape: tuple[int, int], *, are_sparse: bool) -> None:
    """Raise ValueError unless arrays of a state are rows of this shape in double."""
    if not are_sparse:
        checks.finite(arrays, "rows", shape)
        return
    stored = len(arrays.get("rows", ()))
    checks.finite(arrays, "rows", (stored,))
    indptr = checks.array_of(arrays, "rows_indptr", (shape[0] + 1,), np.dtype(np.int64))
    indices = checks.array_of(arrays, "rows_indices", (stored,), np.dtype(np.int64))
    checks.csr_rows(indptr, indices, n_stored=stored, n_columns=shape[1], what="the rows held")
