"""Move the columns of a sketch to other positions of a wider matrix, whose remaining columns are zero."""

# pyright: reportPrivateUsage=false

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.model import Arrays
from fastsketch._kernels.features.columns import ColumnMap
from fastsketch.sketching._engines import moved_arrays
from fastsketch.sketching._frequent_directions import FrequentDirections


def with_columns(sketch: FrequentDirections, places: NDArray[np.int64], width: int) -> FrequentDirections:
    """Return a copy of a sketch for wider rows, in which column j has moved to places[j] and others are zero.
    A model with new columns needs it.

    For sketches without centring and compressor, whose only arrays with columns are the rows of the buffer.
    """
    state, arrays = sketch._state()
    out = type(sketch)(**sketch.parameters)
    about = state["engine"]
    if about is None:
        return out
    assert not sketch.center
    assert sketch.compressor is None
    # for sparse rows only the numbers of the columns change; slot 0 always belongs to column 0
    moved = _sparse(arrays, places) if about["kind"] == "sparse" else {**arrays, **_dense(arrays, places, width)}
    out._restore({"engine": {**about, "n_features": width}}, moved)
    return out


def _dense(arrays: Arrays, places: NDArray[np.int64], width: int) -> Arrays:
    buffer = arrays["buffer"]
    out = np.zeros((len(buffer), width), buffer.dtype)
    out[:, places] = buffer
    return {"buffer": out}


def _sparse(arrays: Arrays, places: NDArray[np.int64]) -> Arrays:
    own = places[arrays["columns"]]
    columns = np.append(0, own[own != 0])
    return moved_arrays(arrays, ColumnMap(columns).find(own, len(columns)), columns)
