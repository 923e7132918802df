"""Descriptions of columns that do not hold numbers, for error messages."""

# scikit-learn has no types.
# pyright: basic

from typing import Any

import numpy as np

from fastsketch._core.validation import to_numpy

# Advice for such columns.
ENCODE = (
    "encode them before, as make_column_transformer((OneHotEncoder(), [...]), remainder='passthrough') of scikit-learn "
    "does in a pipeline, or leave them out"
)


def holds_times(X: Any) -> bool:
    """Return True if an array or table has a column of dates, times or durations."""
    schema: Any = getattr(getattr(X, "schema", None), "types", None)  # of pyarrow
    kinds = schema or getattr(X, "dtypes", None)
    kinds = [getattr(X, "dtype", None)] if kinds is None else kinds
    return any(str(kind).lower().startswith(("date", "time", "duration")) for kind in kinds)


def columns_of_words(X: Any) -> str:
    """Return a description, for a message, of the columns that cannot be converted to numbers.

    The result is an empty string if there are none.
    """
    names: Any = getattr(X, "column_names", getattr(X, "columns", None))
    table = names is not None
    if not table:
        X = np.asarray(to_numpy(X, "X"))
        names = range(X.shape[1]) if X.ndim == 2 and X.dtype.kind in "OUSmM" else ()
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
