"""Treatment of missing values: NaN in dense or CSR rows."""

# pyright: basic

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.warning import warn_caller

FILLS = ("mean", "drop")
# Missing columns, and the rows in which exactly these are missing.
Pattern = tuple[NDArray[np.intp], NDArray[np.intp]]


def filled(rows: Any, values: NDArray[np.float64]) -> Any:
    """Return rows, dense or CSR, in which each NaN is replaced by the given value of its column.

    `values` has shape (d,). The dtype and the container are kept; the argument is not changed.
    """
    if isinstance(rows, np.ndarray):
        return np.where(np.isnan(rows), values.astype(rows.dtype), rows)
    data = np.where(np.isnan(rows.data), values[rows.indices].astype(rows.dtype), rows.data)
    return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)


def complete_rows(rows: Any) -> NDArray[np.bool_]:
    """Return a boolean mask of the rows, dense or CSR, that have no NaN."""
    if isinstance(rows, np.ndarray):
        return np.asarray(~np.isnan(rows).any(axis=1))
    out = np.ones(rows.shape[0], bool)
    out[np.searchsorted(rows.indptr, np.flatnonzero(np.isnan(rows.data)), side="right") - 1] = False
    return out


def missing_patterns(rows: Any) -> list[Pattern]:
    """Return a list of (missing columns, row indices), one for each set of missing columns among rows with NaN."""
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
    """Return a batch without missing values, its weights, and the number of entries filled or rows dropped.
    Missing values are filled with column means, or their rows are dropped.

    Parameters
    ----------
    rows : array or CSR (n, d)
    weights : ndarray (n,) or None
    fill : {"mean", "drop"}
    mean : ndarray (d,) or None
        Means of earlier rows. None computes the weighted means of the observed entries of these rows.
    names : sequence of str (d,), optional
        Column names, for the warning.

    Returns
    -------
    rows, weights : as given
    n_affected : int
        Number of rows dropped, or of entries filled.

    Warns
    -----
    UserWarning
        If a column has no observed entry in the first rows; it is filled with 0.
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
