"""Ids of the rows and columns of a low-rank model, and the conversion of tables with ids to matrices."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_array
from fastsketch._frame.batches import FeatureNames, column_order, names_of, with_columns
from fastsketch.data.names._events import ColumnNames
from fastsketch.data.names._id_map import (
    IdMap,
    array_names,
    as_id_map,
    id_arrays,
    ids_at,
    no_ids,
    read_ids,
    trusted_ids,
)
from fastsketch.data.names._triples import Triples, as_triples, describe_repeated_pair, select_lines, to_csr_matrix
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._queries import as_indices

# Names of the sides in state files; the names of their arrays begin with these and "_ids".
SIDE_NAMES = ("row", "column")


@dataclass(frozen=True)
class Ids:
    """Ids of the rows and of the columns of a model. They are None on an axis that is indexed by position."""

    rows: IdMap | None = None
    columns: IdMap | None = None

    def of_axis(self, axis: int) -> IdMap | None:
        """Return the ids of the rows (axis=0) or of the columns (axis=1), or None if there are none."""
        return self.columns if axis else self.rows

    def positions(self, values: Any, axis: int, size: int, name: str) -> NDArray[np.int64]:
        """Return the positions of rows (axis=0) or columns (axis=1) given by id or position; -1 for an unknown id."""
        ids = self.of_axis(axis)
        return as_indices(values, size, name) if ids is None else ids.places(values, name)

    def pair_positions(
        self, rows: Any, columns: Any, shape: tuple[int, int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of rows and of columns that are given in pairs; ValueError if their shapes differ."""
        row_positions, column_positions = (
            self.positions(rows, 0, shape[0], "rows"),
            self.positions(columns, 1, shape[1], "columns"),
        )
        if row_positions.shape != column_positions.shape:
            raise ValueError(
                f"rows and columns must have the same shape, got {row_positions.shape} and {column_positions.shape}"
            )
        return row_positions, column_positions

    def position(self, value: Any, axis: int, size: int, name: str) -> int:
        """Return the position of one row or column. Raise KeyError for an unknown id."""
        ids = self.of_axis(axis)
        if ids is None:
            indices = as_indices([value], size, name)
            if len(indices) != 1:
                raise TypeError(f"{name} must be an integer, got {value!r:.60}")
            return int(indices[0])
        return int(ids.known([value], name)[0])

    def sorted_positions(self, values: Any, axis: int, name: str) -> Any:
        """Return the positions of ids, sorted and without repetitions. Raise KeyError for an unknown id.

        None is returned unchanged, and so are `values` if the model has no ids.
        """
        ids = self.of_axis(axis)
        return values if values is None or ids is None else np.unique(ids.known(values, name))

    def ids_at(self, indices: NDArray[np.int64], axis: int) -> NDArray[Any]:
        """Return the ids at given positions, or the positions themselves if there are no ids."""
        ids = self.of_axis(axis)
        return indices if ids is None else ids_at(ids, indices)

    # -- files -----------------------------------------------------------------------------------------------------
    def scalars(self) -> dict[str, Any]:
        """Return the kinds of the ids of rows and columns as a JSON-compatible dict, for the saved state."""
        kinds = {
            side: ids.kind for side, ids in zip(SIDE_NAMES, (self.rows, self.columns), strict=True) if ids is not None
        }
        return {"ids": kinds} if kinds else {}

    def arrays(self) -> dict[str, Array]:
        """Return the ids as named arrays, for the saved state."""
        out: dict[str, Array] = {}
        for side, ids in zip(SIDE_NAMES, (self.rows, self.columns), strict=True):
            if ids is not None:
                out.update(id_arrays(ids, f"{side}_ids"))
        return out

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, Array], *, shape: tuple[int, int] | None
    ) -> "Ids":
        """Return the ids of a saved state. Raise ValueError if they do not match the shape of the model.

        With `shape` None, for a state that has been validated, they are not checked.
        """
        kinds: dict[str, Any] = dict(state.get("ids", {}))
        if not set(kinds) <= set(SIDE_NAMES):
            raise ValueError(f"a low-rank model has ids of rows and columns, not of {sorted(kinds)}")
        maps: list[IdMap | None] = [None, None]
        for axis, side in enumerate(SIDE_NAMES):
            name = f"{side}_ids"
            if side not in kinds:
                continue
            maps[axis] = ids = (trusted_ids if shape is None else read_ids)(arrays, name, kinds[side])
            if shape is not None and len(ids) != shape[axis]:
                raise ValueError(f"there are {len(ids)} ids of {shape[axis]} {side}s")
        return cls(*maps)


def drop_id_arrays(arrays: Mapping[str, Array], state: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of a saved state by name, except those that store ids."""
    kinds: dict[str, Any] = dict(state.get("ids", {}))
    id_names = {name for side in SIDE_NAMES if side in kinds for name in array_names(f"{side}_ids")}
    return {name: array for name, array in arrays.items() if name not in id_names}


# -- tables ------------------------------------------------------------------------------------------------------------
class FitArguments(NamedTuple):
    """Arguments of a fit as matrices, with the ids of their rows and columns."""

    X: Any
    sample_weight: Any
    validation: Any
    ids: Ids
    feature_names: FeatureNames | None = None


def as_matrices(
    X: Any, sample_weight: Any, validation: Any, *, columns: ColumnNames | None, row_ids: Any, column_ids: Any
) -> FitArguments:
    """Convert the arguments of ``LowRankModel.fit`` to matrices with ids.

    Rows and columns of a table are its ids in ascending order, so that the order of its lines does not matter.
    """
    table = as_triples(X, columns)
    if table is None:
        names = names_of(X)
        validation = with_columns(validation, column_order(validation, names, "validation"), "validation")
        order = column_order(sample_weight, names, "sample_weight")
        sample_weight = with_columns(sample_weight, order, "sample_weight")
        shape = X.shape if hasattr(X, "shape") else as_array(X, "X").shape
        if len(shape) != 2 or (row_ids is None and column_ids is None):
            return FitArguments(X, sample_weight, require_matrix(validation), Ids(), names)
        rows = None if row_ids is None else as_id_map(row_ids, shape[0], "row_ids")
        column_map = None if column_ids is None else as_id_map(column_ids, shape[1], "column_ids")
        return FitArguments(X, sample_weight, require_matrix(validation), Ids(rows, column_map), names)
    if row_ids is not None or column_ids is not None:
        raise ValueError("row_ids and column_ids are for matrices: X is a table, which has ids")
    if len(table) == 0:
        raise ValueError("X must hold at least one observation, got none")
    if sample_weight is not None:
        sample_weight = validate_line_weights(table, sample_weight)
        table, sample_weight = select_lines(table, sample_weight != 0), sample_weight[sample_weight != 0]
        if len(table) == 0:
            raise ValueError("X must hold at least one observation of a weight above 0, got none")
    validation_share = validation if isinstance(validation, Real) else None
    validation_table = (
        None if validation is None or validation_share is not None else require_table(validation, columns)
    )
    id_maps = [sorted_ids(table, validation_table, axis) for axis in (0, 1)]
    ids, shape = Ids(*id_maps), (len(id_maps[0]), len(id_maps[1]))
    weight = None if sample_weight is None else to_csr_matrix(table, *table_positions(table, ids), shape, sample_weight)
    return FitArguments(
        table_matrix(table, ids, shape, "X"),
        weight,
        validation_share if validation_table is None else table_matrix(validation_table, ids, shape, "validation"),
        ids,
    )


def require_matrix(validation: Any) -> Any:
    if isinstance(validation, Triples):
        raise TypeError("validation must be a matrix, as X is, or a share: it is a table")
    return validation


def require_table(validation: Any, columns: ColumnNames | None) -> Triples:
    table = as_triples(validation, None if isinstance(validation, Triples) else columns, "validation")
    if table is None:
        raise TypeError("validation must be a table, as X is, or a share")
    return table


def sorted_ids(table: Triples, held_out_table: Triples | None, axis: int) -> IdMap:
    """Return the sorted ids of the rows (axis=0) or columns (axis=1) of a table and of its held-out table, if any."""
    ids = table.item_ids if axis else table.user_ids
    if held_out_table is not None:
        ids = ids.extended(held_out_table.item_ids if axis else held_out_table.user_ids, "validation")[0]
    return ids.ascending()[0]


def table_positions(table: Triples, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    assert ids.rows is not None
    assert ids.columns is not None
    return ids.rows.places(table.user_ids), ids.columns.places(table.item_ids)


def table_matrix(table: Triples, ids: Ids, shape: tuple[int, int], name: str) -> Any:
    matrix = to_csr_matrix(table, *table_positions(table, ids), shape)
    if matrix.nnz < len(table):
        raise ValueError(
            f"{name} holds {describe_repeated_pair(table)} more than once: an entry has one value, so keep one of "
            "them, or the mean"
        )
    return matrix


def validate_line_weights(table: Triples, sample_weight: Any) -> NDArray[Any]:
    """Validate the weights of the lines of a table and return them as an array."""
    values = as_array(sample_weight, "sample_weight")
    if values.dtype.kind not in "fiub":
        raise TypeError(f"sample_weight must hold real numbers, got dtype {values.dtype}")
    if values.shape != (len(table),):
        raise ValueError(f"sample_weight must have one entry for each of the {len(table)} lines, got {values.shape}")
    return values.astype(np.float32 if values.dtype.name == "float32" else np.float64)


def matrix_of_new_table(table: Any, model_ids: IdMap | None, axis: int, name: str = "X") -> tuple[Any, IdMap] | None:
    """Return the matrix, for a fitted model, of a table of new rows (axis=0) or columns (axis=1).

    `model_ids` are the ids of the model's columns (or rows). Returns (matrix, ids of the new rows or columns in order
    of appearance), or None if the argument is not a table. Entries of columns (or rows) that the model does not know
    are dropped.
    """
    triples = as_triples(table, None, name)
    if triples is None:
        return None
    if model_ids is None:
        raise ValueError(f"{name} is a table, and the model was fitted to a matrix without ids")
    new_ids, other_ids = (triples.user_ids, triples.item_ids) if axis == 0 else (triples.item_ids, triples.user_ids)
    new_positions, model_positions = (
        np.arange(len(new_ids)),
        model_ids.places(other_ids, "items" if axis == 0 else "users"),
    )
    if axis == 0:
        return to_csr_matrix(triples, new_positions, model_positions, (len(new_ids), len(model_ids))), new_ids
    return to_csr_matrix(triples, model_positions, new_positions, (len(model_ids), len(new_ids))), new_ids


def exclusion_matrix(exclude: Any, rows: Any, ids: Ids) -> Any:
    """Return a CSR matrix (n_requested_rows, n_columns) of the entries to exclude that a table lists.

    `rows` are the ids of the requested rows. Returns None if `exclude` is not a table.
    """
    table = None if exclude is None else as_triples(exclude, None, "exclude")
    if table is None:
        return None
    if ids.rows is None or ids.columns is None:
        raise ValueError("exclude is a table: only a model with ids of rows and columns can read it")
    requested_ids, request_position = no_ids().extended(rows, "rows")
    line_numbers, columns = requested_ids.places(table.user_ids, "users"), ids.columns.places(table.item_ids, "items")
    return to_csr_matrix(table, line_numbers, columns, (len(requested_ids), len(ids.columns)))[request_position]
