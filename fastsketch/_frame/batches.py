"""Conversion of the rows that models accept: arrays in memory, tables, and sources that are read in chunks.

Arrays, sparse matrices and lists are used as they are. Everything else that has columns, a table or an array outside of
memory (in a file, on other machines), becomes a source (``fastsketch.data.sources``) that is read chunk by chunk.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_array, as_rows, as_weights, is_sparse
from fastsketch.data.sources import Source, open_rows
from fastsketch.data.sources._column_names import names_of_labels
from fastsketch.data.sources._formats import refuse_lazy

FeatureNames = tuple[str, ...]
# What ``update`` takes; to a type checker tables and arrays outside of memory are arrays.
Batch: TypeAlias = Rows | Source

IN_MEMORY = (list, tuple, dict, bytes, memoryview)
# Names that a message lists at most.
MAX_LISTED = 3


def as_source(rows: Any) -> Source | None:
    """Return a source that reads tables, files and lazy arrays in chunks; None for arrays and lists in memory.

    Arrays of any library that expose their memory are in memory. Tables, data sets of HDF5 and Zarr, dask arrays and
    memory-mapped files are read chunk by chunk. A text is the name of files.
    """
    if isinstance(rows, str | PathLike):
        return open_rows(rows)
    if type(rows) is np.ndarray or isinstance(rows, IN_MEMORY) or is_sparse(rows):  # most rows
        return None
    if isinstance(rows, Source):
        return rows
    if isinstance(rows, np.ndarray):
        mapped = isinstance(rows, np.memmap) and rows.ndim == 2
        return open_rows(rows) if mapped else None
    refuse_lazy(rows)
    if is_table(rows):
        return _open_table(rows)
    shape: Any = getattr(rows, "shape", None)
    lies_elsewhere = hasattr(rows, "__getitem__") and isinstance(shape, tuple) and len(cast("Any", shape)) == 2
    in_memory = hasattr(rows, "__array_interface__") or hasattr(rows, "__dlpack__")
    return open_rows(rows) if lies_elsewhere and not in_memory else None


def is_table(rows: Any) -> bool:
    """Return True if rows are a data frame or table, for example from pandas, polars or pyarrow."""
    return hasattr(rows, "__arrow_c_stream__") or (hasattr(rows, "iloc") and hasattr(rows, "columns"))


def _open_table(rows: Any) -> Source | None:
    """Open a data frame or table as a source of rows. Return None if the package that reads such tables is not
    installed.
    """
    try:
        return open_rows(rows)
    except ImportError:  # of a package that reads such tables: NumPy converts the whole table
        return None


def labels_of(rows: Any) -> list[Any]:
    """Return the column labels of a data frame as a list. They may be of any type; ``names_of`` converts them to
    strings.
    """
    labels: Any = getattr(rows, "column_names", None) or getattr(rows, "columns", ())
    return list(labels)


def names_of(rows: Any, name: str = "rows") -> FeatureNames | None:
    """Return the column names of a table; None for rows that are not a table.

    ``names_of_labels`` converts labels to names.
    """
    return names_of_labels(labels_of(rows), name) if is_table(rows) else None


def names_in(rows: Any) -> FeatureNames | None:
    """Return the column names of a data frame or of a source, or None for rows that have no names."""
    return rows.feature_names if isinstance(rows, Source) else names_of(rows)


def require_columns(rows: Any, feature_names: FeatureNames | None, name: str = "rows") -> None:
    """Check that the columns of new rows have the names and the order that a model has learned. ValueError if they
    differ; rows without names pass.

    Every method that takes rows calls this function, or ``require_same_names``. Rows without column names (arrays,
    sparse matrices, lists) are accepted. If `feature_names` is None everything is accepted, except a data frame whose
    columns are numbered in another order: see ``names_of_labels``.
    """
    if type(rows) not in (np.ndarray, list, dict):
        require_same_names(names_in(rows), feature_names, name)


def column_order(rows: Any, feature_names: FeatureNames | None, name: str = "rows") -> list[int] | None:
    """Return for each column that a model has learned its position in new rows, matched by name. Return None if the
    order is the same.

    None if nothing needs to be reordered.

    For models whose columns are items. None if rows have no names, or the same in the same order; ValueError if a name
    is missing or unknown. Labels of a data frame that are not strings are compared as text, unless they are 0 to n - 1
    in order and the learned names are others.
    """
    if feature_names is None or not is_table(rows):
        names = names_in(rows)
    else:
        labels = labels_of(rows)
        names = tuple(map(str, labels))
        if labels == list(range(len(labels))) and set(names) != set(feature_names):
            return None
    if names is None or feature_names is None or names == feature_names:
        return None
    position = {label: index for index, label in enumerate(names)}
    if len(position) < len(names) or position.keys() != set(feature_names):
        require_same_names(names, feature_names, name)
    return [position[label] for label in feature_names]


def with_columns(rows: Any, order: list[int] | None, name: str = "rows") -> Any:
    """Return rows with their columns in the given order, a result of ``column_order``. With None they are returned
    unchanged.
    """
    if order is None:
        return rows
    return open_rows(rows, columns=order) if isinstance(rows, Source) else as_rows(rows, name=name)[:, order]


def require_same_names(
    names: FeatureNames | None, learned_names: FeatureNames | None, owner: str = "rows"
) -> FeatureNames | None:
    """Check that new rows have the same column names as earlier ones. Return the names that both have; ValueError if
    they differ.

    Names that are None match any names. The error explains what differs, and what to do.
    """
    if names is None or learned_names is None or names == learned_names:
        return learned_names if names is None else names
    if len(names) != len(learned_names):
        extra = [name for name in names if name not in set(learned_names)]
        missing = [name for name in learned_names if name not in set(names)]
        details = "; ".join(
            f"{text} {_listed(listed)}" for text, listed in (("unknown are", extra), ("missing are", missing)) if listed
        )
        raise ValueError(
            f"{owner} must have the {len(learned_names)} columns that came before, got {len(names)}"
            f"{': ' if details else ''}"
            f"{details}: choose them by name, as open_rows(rows, columns=model.feature_names)"
        )
    index = next(
        index
        for index, (learned_name, new_name) in enumerate(zip(learned_names, names, strict=True))
        if learned_name != new_name
    )
    is_permutation = sorted(names) == sorted(learned_names)
    advice = (
        "give the columns in that order, as open_rows(rows, columns=model.feature_names)"
        if is_permutation
        else "these are not the columns that the model has learned from: rename them, or choose others"
    )
    raise ValueError(
        f"{owner} must have the columns that came before{', in their order' if is_permutation else ''}: column {index} "
        f"is {names[index]!r}, it was {learned_names[index]!r}; {advice}"
    )


def _listed(names: Sequence[str]) -> str:
    """Format the first column names for a message."""
    return ", ".join(map(repr, names[:MAX_LISTED])) + (", ..." if len(names) > MAX_LISTED else "")


def as_names(names: Any, n_features: int | None) -> FeatureNames | None:
    """Validate the column names that a state file contains, and return them as a tuple. None stays None.

    ValueError unless there is one string for each feature.
    """
    if names is None:
        return None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in cast("list[Any]", names)):
        raise ValueError("feature_names must be a list of strings")
    name_tuple = tuple(cast("list[str]", names))
    if n_features is not None and len(name_tuple) != n_features:
        raise ValueError(f"feature_names must be {n_features}, one for each column, got {len(name_tuple)}")
    return name_tuple


class WeightedChunks:
    """Iterable over the chunks of a source, each with its part of the sample weights.

    ``row`` is the index of the first row of the current chunk.
    """

    def __init__(self, source: Source, sample_weight: ArrayLike | None) -> None:
        self.source = source
        self._weights: NDArray[np.float64] | None = None
        self._each: ArrayLike | None = None  # one weight for every row
        if sample_weight is not None:
            array = as_array(sample_weight, "sample_weight")
            if array.ndim == 0:
                self._each = sample_weight
            else:
                self._weights = as_weights(sample_weight, len(array) if source.n_rows is None else source.n_rows)
        self.row = 0

    def __iter__(self) -> "Iterator[tuple[Any, Any]]":
        self.row = 0
        for rows in self.source:
            n = rows.shape[0]
            weights: Any = None
            if self._each is not None:
                weights = as_weights(self._each, n)
            elif self._weights is not None:
                weights = self._weights[self.row : self.row + n]
                if len(weights) < n:
                    raise ValueError(
                        f"sample_weight must have one entry for each row of {self.source.name}, which has more than "
                        f"the {len(self._weights)} given"
                    )
            yield rows, weights
            self.row += n
        if self._weights is not None and len(self._weights) != self.row:
            raise ValueError(
                f"sample_weight must have one entry for each of the {self.row} rows, got {len(self._weights)}"
            )
