"""Sketch engines: classes that hold a sketch's arrays and update them with compiled kernels."""

from fastsketch.sketching._decompose import decompose
from fastsketch.sketching._engines._base import SketchEngine, exponent_for
from fastsketch.sketching._engines._dense_engine import DenseEngine, ExactEngine, dense_form
from fastsketch.sketching._engines._ledger import SketchSummary
from fastsketch.sketching._engines._mapped_engine import MappedEngine
from fastsketch.sketching._engines._operations import (
    AnyEngine,
    add_rows,
    copy_to_read,
    kind_for,
    make_engine,
    merge_engines,
    merges_in_place,
    misses_tolerance,
    put_summary,
    shrink_rows,
    stays_sparse,
    with_columns_multiplied,
)
from fastsketch.sketching._engines._setting import EngineSetting, Reference, SolverName, Tolerance, exact_pays
from fastsketch.sketching._engines._sparse_engine import SparseEngine, by_column, columns_of, moved_arrays

__all__ = [
    "AnyEngine",
    "DenseEngine",
    "SketchEngine",
    "EngineSetting",
    "ExactEngine",
    "Tolerance",
    "SketchSummary",
    "MappedEngine",
    "Reference",
    "SolverName",
    "SparseEngine",
    "by_column",
    "columns_of",
    "decompose",
    "dense_form",
    "exact_pays",
    "exponent_for",
    "kind_for",
    "make_engine",
    "merge_engines",
    "merges_in_place",
    "misses_tolerance",
    "moved_arrays",
    "put_summary",
    "shrink_rows",
    "stays_sparse",
    "copy_to_read",
    "add_rows",
    "with_columns_multiplied",
]
