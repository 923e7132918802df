"""The Walsh-Hadamard transform, and the subsampled randomized Hadamard transform of one matrix."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import Rows, as_integer, in_place
from fastsketch._kernels.linalg import hadamard as kernel
from fastsketch.sketching._random_maps import Compressor

Array = TypeVar("Array", bound=NDArray[Any])


def fwht(x: Array, axis: int = 0) -> Array:
    """Apply the Walsh-Hadamard transform along one axis, in place.

    Parameters
    ----------
    x : ndarray (m,) or (m, d), float32 or float64, writeable
        Overwritten by H x (axis 0) or x H (axis 1). The length of that axis is a power of two.
    axis : {0, 1, -1, -2}, default 0

    Returns
    -------
    ndarray
        x itself.

    Raises
    ------
    TypeError, ValueError
        If x is not such an array; it is then unchanged.

    Notes
    -----
    H has entries +-1 in natural (Hadamard) order, H[i, j] = (-1)^(number of common bits of i and j). H H = m I, so the
    transform divided by m is its own inverse. It takes m log2(m) additions a column. Along axis 0 of a C-ordered array
    it runs at about half the rate of a copy; arrays with other strides are copied to a buffer and back.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> fs.sketching.fwht(np.array([1.0, 0.0, 2.0, 0.0]))
    array([ 3.,  3., -1., -1.])
    """
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"x must be a numpy array, since it is overwritten, got {type(x).__name__}")
    if x.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"x must be float32 or float64 in the machine's byte order, got {x.dtype}")
    if x.ndim not in (1, 2):
        raise ValueError(f"x must have one or two dimensions, got {x.ndim}")
    if not x.flags.writeable:
        raise ValueError("x must be writeable: the transform is made in place")
    axis = as_integer(axis, "axis", -x.ndim)
    if axis >= x.ndim:
        raise ValueError(f"axis must be below {x.ndim}, got {axis}")
    n = x.shape[axis]
    if n & (n - 1) or n == 0:
        raise ValueError(f"the length of the axis must be a power of two, got {n}")
    if x.size == 0:
        return x
    view = x[np.newaxis] if x.ndim == 1 else np.moveaxis(x, axis, 1)
    # the transform is along axis 1 of the view, which has contiguous rows, contiguous columns, or neither
    size = x.itemsize
    good = x.flags.aligned
    if good and view.strides[1] == size and view.strides[0] % size == 0:
        kernel.fwht_rows(view)
    elif good and view.strides[0] == size and view.strides[1] % size == 0:
        kernel.fwht_columns(view.T)
    else:
        inside = in_place(view.T, x.dtype)
        kernel.fwht_columns(inside)
        view[...] = inside.T
    return x


def srht(rows: Rows, q: int, *, seed: int = 0) -> NDArray[Any]:
    """Reduce a matrix to q rows by the subsampled randomized Hadamard transform.

    Returns Phi A for rows A, with E[Phi' Phi] = I.

    Parameters
    ----------
    rows : array_like or scipy.sparse (n, d)
        A: real and finite; n need not be a power of two.
    q : int
        Rows of the result, 1 <= q <= n.
    seed : int, default 0
        Determines the signs and the sample.

    Returns
    -------
    ndarray (q, d), float32 for rows of float16 or float32, else float64
        sqrt(m / q) S H D A with m the next power of two, D random signs, H / sqrt(m) orthogonal, S rows of I_m sampled
        without replacement.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range.

    Notes
    -----
    A is read once and never padded or copied; memory O(q d). For streams use a sketch with ``compressor="srht"``.

    References
    ----------
    FROSH, Algorithm 2 and Remark 3.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 5))
    >>> few = fs.sketching.srht(rows, 300)
    >>> error = np.linalg.norm(few.T @ few - rows.T @ rows, 2) / np.linalg.norm(rows.T @ rows, 2)
    >>> few.shape, bool(error < 0.2)  # 300 rows instead of 1,000
    ((300, 5), True)
    """
    return Compressor("srht", as_integer(q, "q", 1), seed=seed).compress(rows)
