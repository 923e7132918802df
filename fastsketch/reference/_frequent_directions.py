"""Frequent Directions and its family as printed in the RFD paper (Luo et al., JMLR 20, 2019).

Notation: A (T x d) is the whole stream, m the sketch size (l elsewhere in the library), sigma_1 >= sigma_2 >= ... .
Every function returns the output of its algorithm, with the certificate Delta = sum of the sigma_m^2 removed last.
A stream of fewer than m rows is its own sketch, as the algorithms' inputs imply.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def svd_of(b_hat: Array, m: int) -> tuple[Array, Array]:
    """Return the singular values of a matrix and its first m - 1 right singular vectors, both padded with zeros."""
    _, s, vt = np.linalg.svd(b_hat, full_matrices=False)
    sigma = np.zeros(max(m, len(s)))
    sigma[: len(s)] = s
    v = np.zeros((m - 1, b_hat.shape[1]))
    v[: min(m - 1, len(s))] = vt[: m - 1]
    return sigma, v


def shrunk(b_hat: Array, m: int, *, spared: int = 0) -> tuple[Array, float]:
    """Return (m - 1 rows of a shrunk sketch, the m-th squared singular value), which is subtracted from the others.

    The first `spared` rows keep their length. The others are sqrt(S^2 - sigma_m^2 I) V'.
    """
    sigma, v = svd_of(b_hat, m)
    squares = sigma[: m - 1] ** 2
    squares[spared:] -= sigma[m - 1] ** 2
    return np.sqrt(squares)[:, None] * v, sigma[m - 1] ** 2


def shrink_rows(a: Array, m: int, *, limit: int, alpha0: float = 0.0, spared: int = 0) -> tuple[Array, float, float]:
    """Sketch a matrix by Frequent Directions, with a shrink whenever the sketch has `limit` rows.
    Return (B, alpha, Delta): the sketch, the number for which A'A is near B'B + alpha I, and the sum of the squares
    that shrinks have removed.

    These are Algorithms 1, 2, 4, 5 and 8. limit: m, or 2 m for the fast ones. Line numbers are those of Algorithm 5.
    """
    b, alpha, delta = a[: m - 1].copy(), alpha0, 0.0  # 1: B^(m-1) = first m-1 rows, alpha^(m-1) = alpha0
    for t in range(m - 1, len(a)):  # 2: for t = m..T
        b = np.vstack([b, a[t]])  # 3: append row t; 9, 10: it stays so, and alpha too
        if len(b) == limit:  # 4
            b, removed = shrunk(b, m, spared=spared)  # 5: SVD; 6: sqrt(S^2 - sigma_m^2 I) V'
            alpha += removed / 2  # 7: alpha += sigma_m^2 / 2
            delta += removed
    return b, alpha, delta


def frequent_directions(a: Array, m: int) -> tuple[Array, float]:
    """Sketch a matrix by Frequent Directions, with a shrink after every row.
    Return the sketch B and its error bound Delta.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size, 2 <= m <= d: B has m - 1 rows.

    Returns
    -------
    b : (m - 1, d) array of float64
        The sketch B, with 0 <= A'A - B'B <= Delta I; fewer rows if the stream has fewer.
    delta : float
        The certificate Delta, at most ||A||_F^2 / m. In units of squared rows.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 1; Liberty 2013.

    Examples
    --------
    The certificate holds, and so does the bound that is known in advance:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((100, 10)) * np.linspace(3, 0.1, 10)
    >>> b, delta = reference.frequent_directions(a, 6)
    >>> errors = np.linalg.eigvalsh(a.T @ a - b.T @ b)
    >>> b.shape, bool(0 < errors[0]), bool(errors[-1] < delta), bool(delta < np.sum(a**2) / 6)
    ((5, 10), True, True, True)
    """
    b, _, delta = shrink_rows(a, m, limit=m)
    return b, delta


def robust_frequent_directions(a: Array, m: int, *, alpha0: float = 0.0) -> tuple[Array, float, float]:
    """Sketch a matrix by Robust Frequent Directions, with a shrink after every row.
    Return the sketch B, the regularisation alpha and the bound Delta.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size, 2 <= m <= d: B has m - 1 rows.
    alpha0 : float, default 0.0
        Initial regulariser, in units of squared rows.

    Returns
    -------
    b : (m - 1, d) array of float64
        The sketch B, that of ``frequent_directions``; fewer rows if the stream has fewer.
    alpha : float
        alpha0 + Delta / 2: the error of B'B + alpha I about A'A + alpha0 I is at most Delta / 2 either way.
    delta : float
        The certificate Delta. In units of squared rows.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 2.

    Examples
    --------
    Half of what was removed is put back in every direction, which halves the bound:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((100, 10)) * np.linspace(3, 0.1, 10)
    >>> b, alpha, delta = reference.robust_frequent_directions(a, 6)
    >>> robust = np.linalg.norm(a.T @ a - b.T @ b - alpha * np.eye(10), 2)
    >>> plain = np.linalg.norm(a.T @ a - b.T @ b, 2)
    >>> bool(robust < delta / 2 < plain < delta)
    True
    """
    return shrink_rows(a, m, limit=m, alpha0=alpha0)


def fast_frequent_directions(a: Array, m: int) -> tuple[Array, float]:
    """Sketch a matrix by Fast Frequent Directions, with a shrink whenever the doubled buffer is full.
    Return the sketch B and its error bound Delta.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size, 2 <= m <= d.

    Returns
    -------
    b : (up to 2 m - 1, d) array of float64
        The sketch B, with 0 <= A'A - B'B <= Delta I: the algorithm does not flush at its end.
    delta : float
        The certificate Delta. In units of squared rows.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 4.

    Examples
    --------
    One SVD for seven rows in place of one for each, and less is lost: a shrink sees more rows at a time.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((100, 10)) * np.linspace(3, 0.1, 10)
    >>> b, delta = reference.fast_frequent_directions(a, 6)
    >>> len(b), bool(np.linalg.norm(a.T @ a - b.T @ b, 2) < delta)
    (9, True)
    >>> bool(delta < reference.frequent_directions(a, 6)[1])
    True
    """
    b, _, delta = shrink_rows(a, m, limit=2 * m)
    return b, delta


def fast_robust_frequent_directions(a: Array, m: int, *, alpha0: float = 0.0) -> tuple[Array, float, float]:
    """Sketch a matrix by Fast Robust Frequent Directions, with a shrink whenever the doubled buffer is full.
    Return the sketch B, the regularisation alpha and the bound Delta.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size, 2 <= m <= d.
    alpha0 : float, default 0.0
        Initial regulariser, in units of squared rows.

    Returns
    -------
    b : (up to 2 m - 1, d) array of float64
        The sketch B, that of ``fast_frequent_directions``.
    alpha : float
        alpha0 + Delta / 2: the error of B'B + alpha I about A'A + alpha0 I is at most Delta / 2 either way.
    delta : float
        The certificate Delta. In units of squared rows.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 5.

    Examples
    --------
    The library's sketch is this one, taken to pieces for speed:

    >>> import numpy as np
    >>> import fastsketch as fs
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((103, 10)) * np.linspace(3, 0.1, 10)
    >>> b, alpha, delta = reference.fast_robust_frequent_directions(a, 6)
    >>> fast = fs.RobustFrequentDirections(6, solver="gram").update(a)
    >>> np.allclose(fast.gram(), b.T @ b + alpha * np.eye(10)), np.allclose(fast.shrinkage, delta)
    (True, True)
    """
    return shrink_rows(a, m, limit=2 * m, alpha0=alpha0)


def robust_frequent_directions_blocks(
    blocks: Iterable[Array], m: int, *, alpha0: float = 0.0
) -> tuple[Array, float, float]:
    """Sketch blocks of rows by Robust Frequent Directions, with a shrink after every block but the first.
    Return the sketch B, the regularisation alpha and the bound Delta.

    The sketch starts as the first block, without a shrink.

    Parameters
    ----------
    blocks : iterable of (rows, d) arrays of float64
        A^(1), A^(2), ..., at least one.
    m : int
        Sketch size, 2 <= m <= d.
    alpha0 : float, default 0.0
        Initial regulariser, in units of squared rows.

    Returns
    -------
    b : (m - 1, d) array of float64
        The sketch B; of a single block, the block.
    alpha : float
        alpha0 + Delta / 2: the error of B'B + alpha I about A'A + alpha0 I is at most Delta / 2 either way.
    delta : float
        The certificate Delta. In units of squared rows.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 7.

    Examples
    --------
    The larger the blocks, the fewer the shrinks and the less is lost:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((100, 10)) * np.linspace(3, 0.1, 10)
    >>> b, alpha, delta = reference.robust_frequent_directions_blocks(np.split(a, 4), 6)
    >>> b.shape, bool(np.linalg.norm(a.T @ a - b.T @ b - alpha * np.eye(10), 2) < delta / 2)
    ((5, 10), True)
    >>> bool(delta < reference.robust_frequent_directions_blocks(np.split(a, 20), 6)[2])
    True
    """
    blocks = iter(blocks)
    b, alpha, delta = next(blocks).copy(), alpha0, 0.0  # 1: B^(1) = A^(1)
    for block in blocks:  # 2: for t' = 2..T'
        b, removed = shrunk(np.vstack([b, block]), m)  # 3 to 5
        alpha += removed / 2  # 6: alpha += sigma_m^2 / 2
        delta += removed
    return b, alpha, delta


def greedy_low_rank(a: Array, m: int) -> tuple[Array, float]:
    """Sketch a matrix by repeated truncated SVDs (iterative SVD), which have no error guarantee.
    Return the sketch B and the sum of the squares that were cut off.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size, 2 <= m <= d: B has m - 1 rows.

    Returns
    -------
    b : (m - 1, d) array of float64
        The sketch B, with B'B <= A'A; fewer rows if the stream has fewer.
    delta : float
        The sum of the squares that were cut off: 0 <= A'A - B'B <= Delta I, and nothing bounds Delta in advance.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 8.

    Examples
    --------
    Why a shrink subtracts: here one strong row is followed by a hundred weak ones in another direction. Cutting off the
    smaller of the two forgets each of them in turn; Frequent Directions finds where most of the stream is.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.array([[3.0, 0.0]] + 100 * [[0.0, 1.0]])  # A'A = diag(9, 100)
    >>> b, _ = reference.greedy_low_rank(a, 2)
    >>> (b.T @ b).round(6).tolist()
    [[9.0, 0.0], [0.0, 0.0]]
    >>> b, _ = reference.frequent_directions(a, 2)
    >>> (b.T @ b).round(6).tolist()
    [[0.0, 0.0], [0.0, 91.0]]
    """
    b, _, delta = shrink_rows(a, m, limit=m, spared=m - 1)  # 5: S_{m-1} V'_{m-1}
    return b, delta
