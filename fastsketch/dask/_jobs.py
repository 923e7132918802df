"""Partitions in, one model out. Tasks are pure and open their own data: a lost worker costs a retry of what it held."""

from functools import reduce

import numpy as np

import fastsketch as fs
from fastsketch._validation import as_integer


def _learn_sketch(rows, parameters):
    with fs.threads(1):
        return fs.FrequentDirections(**parameters).update(rows)


def _learn_hash(rows, parameters, place, seal):
    with fs.threads(1):
        model = fs.SketchHash(**parameters, **place).update(rows)
        return model.seal() if seal else model


def _join(models):
    with fs.threads(1):
        return reduce(lambda left, right: left.merge(right), models[1:], models[0].copy())


def _encode(rows, model):
    with fs.threads(1):
        return model.encode(rows)


def _partitions(data):
    """(delayed partitions, their lengths or None, columns or None)."""
    from dask import array, delayed
    from dask.delayed import Delayed

    if isinstance(data, array.Array):
        if data.ndim != 2:
            raise ValueError(f"data must be two-dimensional, got {data.ndim} dimensions")
        if data.shape[1] == 0 or np.isnan(data.shape[1]):
            raise ValueError(f"data must have a known number of columns, at least one, got {data.shape[1]}")
        data = data.rechunk({1: -1})
        lengths = data.chunks[0]
        known = None if any(np.isnan(length) for length in lengths) else [int(length) for length in lengths]
        return list(data.to_delayed().ravel()), known, data.shape[1]
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise TypeError(f"data must be a dask array or a list of delayed partitions, got {type(data).__name__}")
    parts = [part if isinstance(part, Delayed) else delayed(part)() if callable(part) else None for part in data]
    if any(part is None for part in parts):
        raise TypeError("data must be a dask array, or a list of delayed partitions or of functions that load one")
    if not parts:
        raise ValueError("data must hold at least one partition")
    return parts, None, None


def _tree(level, fan_in):
    from dask import delayed

    join = delayed(_join)
    while len(level) > 1:
        groups = [level[start : start + fan_in] for start in range(0, len(level), fan_in)]
        level = [join(group) if len(group) > 1 else group[0] for group in groups]
    return level[0]


def sketch(data, sketch_size=64, *, fan_in=4, **parameters):
    """Sketch the rows of a Dask collection: a FrequentDirections of all of them.

    Parameters
    ----------
    data : dask.array.Array (n, d), or list of dask.delayed partitions or of functions without arguments
        Each partition is an array or scipy.sparse matrix of rows, loaded by the worker that sketches it.
    sketch_size : int, default 64
    fan_in : int, default 4
        Sketches merged by one task.
    **parameters
        The other parameters of fs.FrequentDirections.

    Returns
    -------
    fs.FrequentDirections
        The same bits for the same partitions, whatever the cluster and whatever was lost on the way.

    Raises
    ------
    TypeError, ValueError
        If the data cannot serve, or what ``update`` raises for a partition.

    Notes
    -----
    Runs on the active ``dask.distributed`` client if there is one, else on Dask's threads.
    """
    from dask import delayed

    fs.FrequentDirections(sketch_size, **parameters)  # a bad parameter is to be told here
    parts, _, _ = _partitions(data)
    learn = delayed(_learn_sketch)
    wanted = {"sketch_size": sketch_size, **parameters}
    return _tree([learn(part, wanted) for part in parts], as_integer(fan_in, "fan_in", 2)).compute()


class SketchHash:
    """DFROSH: fs.SketchHash learned on Dask, one task a partition (FROSH Algorithm 3).

    Parameters
    ----------
    n_bits, sketch, sketch_size, block_rows, rotation, seed, reservoir_size, dtype
        Those of fs.SketchHash.
    fan_in : int, default 4
        Models merged by one task.

    Attributes
    ----------
    model_ : fs.SketchHash
        After ``fit``.

    Notes
    -----
    The result depends on the partitions, not on the number of workers, the order in which they finish, or failures. If
    every partition of an array but the last is a multiple of ``block_rows`` long, it is the model of one pass over all
    rows, bit for bit, whatever the partitions.

    Examples
    --------
    >>> import dask.array as da
    >>> from fastsketch.dask import SketchHash
    >>> rows = da.random.default_rng(0).standard_normal((4000, 50), chunks=(1000, 50))
    >>> hasher = SketchHash(16).fit(rows)
    >>> hasher.encode(rows).shape
    (4000, 2)
    """

    def __init__(
        self,
        n_bits,
        sketch="srht",
        sketch_size=None,
        block_rows=None,
        rotation="random",
        seed=0,
        *,
        fan_in=4,
        **parameters,
    ):
        self.fan_in = as_integer(fan_in, "fan_in", 2)
        self._parameters = {
            "n_bits": n_bits,
            "sketch": sketch,
            "sketch_size": sketch_size,
            "block_rows": block_rows,
            "rotation": rotation,
            "seed": seed,
            **parameters,
        }
        fs.SketchHash(**self._parameters)  # a bad parameter is to be told here

    def fit(self, data):
        """Learn from a dask array (n, d), or a list of delayed partitions or loading functions; returns self."""
        from dask import delayed

        parts, lengths, d = _partitions(data)
        learn = delayed(_learn_hash)
        places = self._blocks(lengths, d)
        if places is None:
            leaves = [learn(part, self._parameters, {"part": i}, True) for i, part in enumerate(parts)]
        else:
            leaves = [
                learn(part, self._parameters, {"first_block": first}, False)
                for part, first in zip(parts, places, strict=True)
            ]
        self.model_ = _tree(leaves, self.fan_in).compute()
        return self

    def _blocks(self, lengths, d):
        """Index of the first block of every partition, if all but the last are whole blocks; else None."""
        if lengths is None:
            return None
        m = self._parameters["block_rows"]
        if m is None:
            # what the model itself will choose
            m = fs.SketchHash(**self._parameters).update(np.empty((0, d))).block_rows
        starts = np.cumsum([0, *lengths])
        return [int(start) // m for start in starts[:-1]] if not (starts[:-1] % m).any() else None

    def encode(self, rows):
        """Codes of rows: a dask array of uint8 for a dask array, else as fs.SketchHash.encode."""
        from dask import array

        if not hasattr(self, "model_"):
            raise ValueError("the model has seen no rows: call fit first")
        if not isinstance(rows, array.Array):
            return self.model_.encode(rows)
        width = -(-self.model_.n_bits // 8)
        rows = rows.rechunk({1: -1})
        return rows.map_blocks(_encode, self.model_, dtype=np.uint8, chunks=(rows.chunks[0], (width,)))
