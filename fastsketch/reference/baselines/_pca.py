"""Hashing by exact principal components, without and with an ITQ rotation."""

from fastsketch._frame.parameters import choice, integer
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.hashing._sketch_hash import METHODS, RESERVOIR_ROWS, ROTATIONS, Method, Rotation

# More rows than any stream has: the reservoir keeps them all.
ALL_ROWS = 2**40


class PCAHash(SketchHash):
    """Hashing by the signs of exact principal components.

    It equals ``SketchHash(n_bits, method="exact", rotation=None)``.

    Parameters
    ----------
    n_bits, seed, part, first_block, dtype
        Those of fastsketch.SketchHash.

    Examples
    --------
    Rows of two kinds: those of the kind of the first differ from it in fewer bits.

    >>> import numpy as np, fastsketch as fs
    >>> from fastsketch.reference import baselines
    >>> rows = np.random.default_rng(0).standard_normal((100, 20))
    >>> rows[:50] += 3
    >>> codes = baselines.PCAHash(8).update(rows).encode(rows)
    >>> apart = fs.hamming_distances(codes[:1], codes)[0]
    >>> codes.shape, bool(apart[:50].mean() < apart[50:].mean())
    ((100, 1), True)
    """

    method: Method = choice(METHODS, default="exact", init=False)
    sketch_size: int | None = integer(default=None, init=False)
    block_rows: int | None = integer(default=None, init=False)
    rotation: Rotation = choice(ROTATIONS, default=None, init=False)
    reservoir_size: int = integer(default=RESERVOIR_ROWS, init=False)


class ITQ(PCAHash):
    """Hashing by exact principal components with an ITQ rotation learned on all rows (Gong, Lazebnik 2011).

    It keeps every row in memory.

    Parameters
    ----------
    n_bits, seed, part, first_block, dtype
        Those of fastsketch.SketchHash.

    Examples
    --------
    Rows of two kinds: the nearest by codes are of the kind of the query.

    >>> import numpy as np, fastsketch as fs
    >>> from fastsketch.reference import baselines
    >>> rows = np.random.default_rng(0).standard_normal((100, 20))
    >>> rows[:50] += 3
    >>> codes = baselines.ITQ(8).update(rows).encode(rows)
    >>> distances, found = fs.hamming_topk(codes[:1], codes, k=10)
    >>> codes.shape, bool((found < 50).all())
    ((100, 1), True)
    """

    rotation: Rotation = choice(ROTATIONS, default="itq", init=False)
    reservoir_size: int = integer(default=ALL_ROWS, init=False)
