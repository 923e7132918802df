"""Missing numbers: NaN in rows, array or CSR; missing labels."""

# pyright: basic

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import refuse_final_nul, require_array_like
from fastsketch._core.warning import warn_caller
from fastsketch.data.names._id_columns import is_missing

FILLS = ("mean", "drop")
# Columns that are missing, and the rows in which these and no others are.
Pattern = tuple[NDArray[np.intp], NDArray[np.intp]]


def refuse_labels(labels: Any, name: str = "y") -> None:
    """Raise an error that names the first row whose label is None or NaN, among words or objects, or ends in NUL."""
    require_array_like(labels, name)
    refuse_final_nul(labels, name)
    given: Any = np.asarray(labels)
    if given.dtype.kind in "OU" and isinstance(labels, list | tuple):
        given = np.asarray(labels, object)  # else NaN among words is one of them
    if given.dtype != object or given.ndim == 0:
        return
    for row, label in enumerate(given.ravel().tolist()):
        if is_missing(label) or (isinstance(label, float) and label != label):
            raise TypeError(f"{name} must have a label for every row: that of row {row} is {label!r}")


def filled(rows: Any, values: NDArray[np.float64]) -> Any:
    """Return rows (n, d) with the values (d,) of their columns in the place of NaN; what they came as stays."""
    if isinstance(rows, np.ndarray):
        return np.where(np.isnan(rows), values.astype(rows.dtype), rows)
    data = np.where(np.isnan(rows.data), values[rows.indices].astype(rows.dtype), rows.data)
    return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)


def complete_rows(rows: Any) -> NDArray[np.bool_]:
    """Return a mask (n,) that is True for rows of an array or CSR matrix (n, d) without NaN."""
    if isinstance(rows, np.ndarray):
        return np.asarray(~np.isnan(rows).any(axis=1))
    out = np.ones(rows.shape[0], bool)
    out[np.searchsorted(rows.indptr, np.flatnonzero(np.isnan(rows.data)), side="right") - 1] = False
    return out


def missing_patterns(rows: Any) -> list[Pattern]:
    """Return the rows with NaN of an array or CSR container, grouped by the columns that are missing in them."""
    with_gaps = np.flatnonzero(~complete_rows(rows))
    if not len(with_gaps):
        return []
    some = rows[with_gaps]
    absent = np.isnan(some if isinstance(some, np.ndarray) else some.toarray())
    patterns, numbers = np.unique(absent, axis=0, return_inverse=True)
    order = np.argsort(numbers.ravel(), kind="stable")
    members = np.split(with_gaps[order], np.cumsum(np.bincount(numbers.ravel()))[:-1])
    return [(np.flatnonzero(pattern), rows_of) for pattern, rows_of in zip(patterns, members, strict=True)]


def without_missing(
    rows: Any,
    weights: NDArray[np.float64] | None,
    fill: Literal["mean", "drop"],
    mean: NDArray[np.float64] | None,
    *,
    names: Any = None,
) -> tuple[Any, NDArray[np.float64] | None, int]:
    """Return (rows without NaN, their weights, the number of rows dropped or of numbers filled in).

    `mean` (d,) is filled in; None: that of the other numbers of these rows. UserWarning for a column that has none, by
    its name where `names` (d,) has them.
    """
    n, d = rows.shape
    absent: Any = (
        np.isnan(rows)
        if isinstance(rows, np.ndarray)
        else type(rows)((np.isnan(rows.data).astype(float), rows.indices, rows.indptr), shape=rows.shape)
    )
    count = int(absent.sum())
    if not count:
        return rows, weights, 0
    if fill == "drop":
        whole = np.flatnonzero(absent @ np.ones(d) == 0)
        if not len(whole):
            raise ValueError(f"fill='drop' leaves none of {n} rows: a number is missing in each; take fill='mean'")
        return rows[whole], None if weights is None else weights[whole], n - len(whole)
    if mean is None:
        w = np.ones(n) if weights is None else weights
        if len(empty := np.flatnonzero(absent.T @ (w > 0.0).astype(float) == np.count_nonzero(w))):
            shown = ", ".join(repr(str(names[j])) if names is not None else str(j) for j in empty[:5])
            warn_caller(
                f"fill='mean': there is no number in column {shown}{', ...' if len(empty) > 5 else ''} of the first "
                f"{n} rows, and 0 stands for each: leave such columns out, or begin with more rows"
            )
        sums: Any = filled(rows, np.zeros(d)).T @ w
        return filled(rows, sums / np.maximum(w.sum() - absent.T @ w, np.finfo(np.float64).tiny)), weights, count
    return filled(rows, mean), weights, count
