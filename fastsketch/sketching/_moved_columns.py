"""Sketches moved to other columns of a wider matrix; new columns are zero, and cost no more than that."""

# pyright: reportPrivateUsage=false

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.model import Arrays
from fastsketch.sketching._frequent_directions import FrequentDirections


def with_columns(sketch: FrequentDirections, places: NDArray[np.int64], width: int) -> FrequentDirections:
    """Return the sketch of the same rows with column j at places[j] of `width`, and zeros in all others; a new one.

    Of a sketch that neither centres nor has a compressor: rows of the buffer and kept ones are all that has columns.
    """
    state, arrays = sketch._state()
    out = type(sketch)(**sketch.parameters)
    about = state["engine"]
    if about is None:
        return out
    assert not sketch.center
    assert sketch.compressor is None
    moved = _sparse(arrays, places, width) if about["kind"] == "sparse" else _dense(arrays, places, width)
    out._restore({"engine": {**about, "n_features": width}}, {**arrays, **moved})
    return out


def _dense(arrays: Arrays, places: NDArray[np.int64], width: int) -> Arrays:
    buffer = arrays["buffer"]
    out = np.zeros((len(buffer), width), buffer.dtype)
    out[:, places] = buffer
    return {"buffer": out}


def _sparse(arrays: Arrays, places: NDArray[np.int64], width: int) -> Arrays:
    from scipy.sparse import csr_array

    z, indptr = arrays["z"], arrays["indptr"]
    kept = np.zeros((width, z.shape[1]), z.dtype)
    kept[places] = z
    indices = places[arrays["indices"]].astype(np.int32)
    new: Any = csr_array((arrays["data"].copy(), indices, indptr.copy()), shape=(len(indptr) - 1, width))
    new.sort_indices()
    return {"z": kept, "indices": new.indices.astype(np.int32), "data": new.data}
