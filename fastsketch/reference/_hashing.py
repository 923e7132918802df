"""Sketching hashing as printed in the FROSH paper (Chen et al.), with an explicit Hadamard matrix.

Notation: rows F (m x d) of one chunk, B (l x d) the sketch (l is `size`), q = l / 2 sampled rows, r bits. `draw(t, m)`
returns for the t-th chunk the signs on the diagonal of D (m of +-1) and the q rows that S samples; so a test can hand
in the numbers that the fast version draws.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# (t, m) -> signs (m,) and sampled rows (q,)
Draw = Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]]
# (B, mean, number of rows)
CentredSketch = tuple[Array, Array, int]
# (B, rows of F that wait, chunks done)
Chunks = tuple[Array, Array, int]


def hadamard(m: int) -> Array:
    """Return the m x m Hadamard matrix, built recursively as [[H, H], [H, -H]].

    Parameters
    ----------
    m : int
        A power of two.

    Returns
    -------
    (m, m) array of float64
        Entries +-1, rows orthogonal: H H' = m I.

    References
    ----------
    Chen, Yang, Zhao, King, Lyu, IEEE TKDE 33 (2021) (FROSH), section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> h = reference.hadamard(4)
    >>> h.astype(int).tolist()
    [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    >>> bool((h @ h.T == 4 * np.eye(4)).all())
    True
    """
    h = np.ones((1, 1))
    while len(h) < m:
        h = np.block([[h, h], [h, -h]])
    return h


def subsampled_hadamard(f: Array, *, signs: NDArray[Any], sample: NDArray[Any]) -> Array:
    """Return a sample of the rows that a randomised Hadamard transform makes of the rows `f`.

    Phi F = sqrt(m / q) S H D F.

    H is H_m / sqrt(m); rows beyond those of F are zero.

    Parameters
    ----------
    f : (up to m, d) array of float64
        The rows F.
    signs : (m,) array of +-1
        The diagonal of D; m is a power of two.
    sample : (q,) array of int
        The rows that S samples.

    Returns
    -------
    (q, d) array of float64
        Phi F; over random signs and samples the mean of its Gram matrix is F'F.

    References
    ----------
    Chen, Yang, Zhao, King, Lyu, IEEE TKDE 33 (2021) (FROSH), section 3.2.

    Examples
    --------
    One row is much longer than the others. A sample of rows has it or has not; after the mixing, every sample has its
    share of it, and half of the rows weigh what all of them weigh.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> f = np.diag([8.0, 1.0, 0.0, 0.0])
    >>> mixed = reference.subsampled_hadamard(f, signs=np.array([1, -1, 1, 1]), sample=np.array([0, 3]))
    >>> (mixed**2).sum(axis=0).round(9).tolist()  # squared lengths of the columns
    [64.0, 1.0, 0.0, 0.0]
    """
    m, q = len(signs), len(sample)
    padded = np.zeros((m, f.shape[1]))
    padded[: len(f)] = f
    h = hadamard(m) / np.sqrt(m)
    return np.sqrt(m / q) * (h @ (signs[:, None] * padded))[sample]


def _shrunk(b: Array, k: int) -> Array:
    """Return a sketch whose squared singular values are all lowered by the k-th one.

    Its smaller directions become rows of zeros.
    """
    _, sigma, vt = np.linalg.svd(b, full_matrices=False)
    cut = sigma[k - 1] ** 2 if k <= len(sigma) else 0.0
    out = np.zeros_like(b)
    out[: len(vt)] = np.sqrt(np.maximum(sigma**2 - cut, 0.0))[:, None] * vt
    return out


def faster_frequent_directions(a: Array, size: int, *, m: int, draw: Draw, state: Chunks | None = None) -> Chunks:
    """Sketch rows by Faster Frequent Directions, which mixes chunks by a Hadamard transform and samples them.
    Return the sketch B, the rows that wait for a full chunk, and the number of chunks.

    Parameters
    ----------
    a : (rows, d) array of float64
        The stream, or its next rows.
    size : int
        l, even: the rows of B; half of them are kept at a shrink.
    m : int
        Rows of a chunk, a power of two.
    draw : callable
        draw(t, m) of the t-th chunk: its signs (m,) of +-1 and the q = size / 2 rows that are sampled.
    state : (B, rows of F that wait, chunks done), optional
        The result of an earlier call, to go on from.

    Returns
    -------
    b : (size, d) array of float64
        The sketch B.
    f : (rows that wait, d) array of float64
        Fewer than m: those that no chunk has taken in yet.
    t : int
        Chunks done.

    References
    ----------
    Chen, Yang, Zhao, King, Lyu, IEEE TKDE 33 (2021) (FROSH), Algorithm 2.

    Examples
    --------
    Of 100 rows three chunks of 32 are sketched, and 4 wait; a direction that stands out is found from 8 rows.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> a = rng.standard_normal((100, 20)) + 3 * rng.standard_normal((100, 1))  # all columns share a factor
    >>> def draw(t, m):
    ...     return rng.choice([-1, 1], m), rng.choice(m, 4, replace=False)
    >>> b, f, t = reference.faster_frequent_directions(a, 8, m=32, draw=draw)
    >>> b.shape, f.shape, t
    ((8, 20), (4, 20), 3)
    >>> top, ours = (np.linalg.svd(rows)[2][0] for rows in (a, b))
    >>> bool(abs(top @ ours) > 0.98)
    True
    """
    q = size // 2
    if state is None:
        state = np.zeros((size, a.shape[1])), np.zeros((0, a.shape[1])), 0  # 1-4
    b, f, t = state
    for row in a:  # 5: for i in [n]
        f = np.vstack([f, row])  # 6: insert into F
        if len(f) == m:  # 7: no zero row left
            signs, sample = draw(t, m)  # 8: Phi_t = S_t H D_t
            b[size - q :] = subsampled_hadamard(f, signs=signs, sample=sample)  # 9: into the last l/2 rows
            b = _shrunk(b, q)  # 10-12: sigma_{l/2} is subtracted
            f, t = np.zeros((0, a.shape[1])), t + 1  # 14
    return b, f, t


def _centred(blocks: Iterable[Array], take: Callable[[Array], None]) -> tuple[Array, int]:
    """Call `take` with each block of rows, less its mean, and return the (mean, number) of all rows.

    From the second block on, a row is added that corrects for the difference of the means (Algorithm 1, steps 2 to 10).
    """
    mean, tau = np.zeros(0), 0
    for block in blocks:
        mu, h = block.mean(axis=0), len(block)  # 2, 6
        rows = block - mu
        if tau == 0:
            mean = mu  # 3
        else:
            shift = np.sqrt(tau * h / (tau + h)) * (mu - mean)  # 7
            rows = np.vstack([rows, shift])  # 8
            mean = tau * mean / (tau + h) + h * mu / (tau + h)  # 9
        take(rows)  # 4, 8
        tau += h  # 10
    return mean, tau


def frosh_sketch(blocks: Iterable[Array], size: int, *, m: int, draw: Draw) -> CentredSketch:
    """Sketch blocks of rows by FROSH, centred by the mean of all rows.
    Return the sketch B, the mean and the number of rows.

    Parameters
    ----------
    blocks : iterable of (rows, d) arrays of float64
        The stream, at least one block.
    size : int
        l, even: the rows of B.
    m : int
        Rows of a chunk, a power of two.
    draw : callable
        draw(t, m) of the t-th chunk: its signs (m,) of +-1 and the q = size / 2 rows that are sampled.

    Returns
    -------
    b : (size, d) array of float64
        The sketch B; rows that still wait for their chunk to be full are not in it.
    mean : (d,) array of float64
        Of all rows.
    n : int
        Number of rows.

    Raises
    ------
    ValueError
        If there is no block.

    References
    ----------
    Chen, Yang, Zhao, King, Lyu, IEEE TKDE 33 (2021) (FROSH), Algorithm 1, steps 1 to 10.

    Examples
    --------
    Every block is moved by its own mean, and one row a block makes up for the difference: the rows may drift.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> blocks = [drift + rng.standard_normal((40, 6)) for drift in (0.0, 5.0, 10.0)]
    >>> def draw(t, m):
    ...     return rng.choice([-1, 1], m), rng.choice(m, 4, replace=False)
    >>> b, mean, n = reference.frosh_sketch(blocks, 8, m=32, draw=draw)
    >>> b.shape, n, np.allclose(mean, np.vstack(blocks).mean(axis=0))
    ((8, 6), 120, True)
    """
    state: Chunks | None = None

    def take(rows: Array) -> None:
        nonlocal state
        state = faster_frequent_directions(rows, size, m=m, draw=draw, state=state)

    mean, n = _centred(blocks, take)
    if state is None:
        raise ValueError("blocks must hold at least one block")
    return state[0], mean, n


def top_directions(b: Array, r: int) -> Array:
    """Return the top r right singular vectors of a sketch, onto which rows are projected for codes of r bits.

    Parameters
    ----------
    b : (l, d) array of float64
        A sketch B.
    r : int
        Number of directions, r <= min(l, d).

    Returns
    -------
    (d, r) array of float64
        W, orthonormal columns; a row x has the code sign((x - mean) W).

    References
    ----------
    Chen, Yang, Zhao, King, Lyu, IEEE TKDE 33 (2021) (FROSH), Algorithm 1, step 13.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> w = reference.top_directions(np.diag([1.0, 3.0, 2.0]), 2)
    >>> abs(w).round(9).tolist()  # the second axis, then the third
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    return np.linalg.svd(b, full_matrices=False)[2][:r].T


def online_sketching_hashing(blocks: Iterable[Array], size: int) -> CentredSketch:
    """Sketch blocks of rows by online sketching hashing (OSH), centred by the mean of all rows.
    Return the sketch B, the mean and the number of rows.

    It is FROSH's Algorithm 1 with plain Frequent Directions instead of sampled chunks.

    Parameters
    ----------
    blocks : iterable of (rows, d) arrays of float64
        The stream, at least one block.
    size : int
        l: the rows of B; a shrink subtracts the square of the (l / 2)-th singular value.

    Returns
    -------
    b : (size, d) array of float64
        The sketch B.
    mean : (d,) array of float64
        Of all rows.
    n : int
        Number of rows.

    References
    ----------
    Leng, Wu, Cheng, Bai, Lu, CVPR (2015).

    Examples
    --------
    B'B lies below the centred rows' Gram matrix, by at most their squared norm / (l / 2):

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rows = 7 + np.random.default_rng(0).standard_normal((120, 6)) * [4, 3, 2, 1, 1, 1]
    >>> b, mean, n = reference.online_sketching_hashing(np.split(rows, 4), 8)
    >>> centred = rows - rows.mean(axis=0)
    >>> errors = np.linalg.eigvalsh(centred.T @ centred - b.T @ b)
    >>> np.allclose(mean, rows.mean(axis=0)), bool(0 <= errors[0]), bool(errors[-1] <= np.sum(centred**2) / 4)
    (True, True, True)
    """
    b = np.zeros((size, 0))

    def take(rows: Array) -> None:
        nonlocal b
        b = b if b.size else np.zeros((size, rows.shape[1]))
        for row in rows:
            if not (b == 0).all(axis=1).any():  # no zero row left: shrink at sigma_{l/2}
                b = _shrunk(b, min(size // 2, *b.shape))
            b[np.flatnonzero((b == 0).all(axis=1))[0]] = row

    mean, n = _centred(blocks, take)
    return b, mean, n


def distributed_frosh(parts: Sequence[CentredSketch], size: int) -> CentredSketch:
    """Merge the FROSH sketches of several parts of the data by Frequent Directions.
    Return the sketch B of all rows, their mean and their number.

    Parameters
    ----------
    parts : sequence of (B_i, mean_i, n_i)
        Sketches (l, d), means (d,) and numbers of rows, at least one, as ``frosh_sketch`` or
        ``online_sketching_hashing`` returns them.
    size : int
        The most rows of the merged sketch.

    Returns
    -------
    b : (up to size, d) array of float64
        The sketch B of all rows less their common mean.
    mean : (d,) array of float64
        Of all rows.
    n : int
        Number of rows.

    References
    ----------
    Chen, Yang, Zhao, King, Lyu, IEEE TKDE 33 (2021) (FROSH), Algorithm 3, steps 4 to 13.

    Examples
    --------
    Two workers see rows about different means. The difference of the means is a direction of the whole, which neither
    worker has seen:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rows = np.random.default_rng(0).standard_normal((100, 6))
    >>> rows[50:, 0] += 10
    >>> parts = [reference.online_sketching_hashing([half], 8) for half in np.split(rows, 2)]
    >>> b, mean, n = reference.distributed_frosh(parts, 8)
    >>> n, np.allclose(mean, rows.mean(axis=0))
    (100, True)
    >>> top = reference.top_directions(b, 1)
    >>> bool(abs(top[0, 0]) > 0.99)
    True
    """
    b, mean, n = parts[0]  # 4-6
    for other, mu, h in parts[1:]:  # 7
        shift = np.sqrt(n * h / (n + h)) * (mu - mean)  # 9
        stacked = np.vstack([b, other, shift])  # 10: sketch into B
        _, sigma, vt = np.linalg.svd(stacked, full_matrices=False)
        cut = sigma[size] ** 2 if len(sigma) > size else 0.0
        b = np.sqrt(np.maximum(sigma[:size] ** 2 - cut, 0.0))[:, None] * vt[:size]
        mean = n * mean / (n + h) + h * mu / (n + h)  # 11
        n += h  # 12
    return b, mean, n
