"""Columns of rows that hold no numbers, for a message."""

# scikit-learn has no types.
# pyright: basic

from typing import Any

import numpy as np


def columns_of_words(X: Any) -> str:
    """Return the columns of rows that hold no numbers, in words; empty where there are none, or no columns."""
    names: Any = getattr(X, "column_names", getattr(X, "columns", None))
    table = names is not None
    if not table:
        X = np.asarray(X)
        names = range(X.shape[1]) if X.ndim == 2 and X.dtype.kind in "OUS" else ()
    odd: list[str] = []
    for name in names:
        column = X[name] if table else X[:, name]
        values = np.asarray(column)
        try:
            number = values.dtype.kind not in "mM"
            values.astype(np.float64)
        except (TypeError, ValueError):
            number = False
        if not number:
            odd.append(f"{name!r} ({getattr(column, 'dtype', values.dtype)})")
    return f"column{'s' * (len(odd) > 1)} {', '.join(odd[:5])}{', ...' * (len(odd) > 5)}" if odd else ""
