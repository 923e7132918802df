"""Variants of Frequent Directions: one whose size grows until a tolerance is met, and two of Desai et al. (2016).

Notation as in the RFD paper: A (T x d) is the whole stream, m the sketch size, sigma_1 >= sigma_2 >= ...
"""

from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.reference._frequent_directions import Array, frequent_directions, shrink_rows, shrunk


def growing_frequent_directions(
    a: Array, m: int, *, tolerance: float, share: float, factor: float, counts: float = 0.5, of_largest: bool = False
) -> tuple[Array, float, int]:
    """Sketch rows by Fast Frequent Directions, with a sketch size that grows to meet an error tolerance.
    Return the sketch B, its error bound Delta and the last sketch size.

    At any moment counts Delta <= tolerance ||A||_F^2 (or sigma_1^2). A shrink is not made where Delta would go beyond
    `share` of what the rows so far allow; m then becomes the smallest that keeps it within, and at least `factor` m. No
    paper has it.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size at the start, at least 2.
    tolerance : float
        In (0, 1): the share of what it is relative to.
    share : float
        In (0, 1]: part of the tolerance that shrinks may use up; the rest is for the last one.
    factor : float
        At least 1: by how much m grows.
    counts : float, default 0.5
        Share of Delta that counts: 0.5 for the robust method, 1 for the plain one.
    of_largest : bool, default False
        Whether the tolerance is relative to sigma_1^2, by its certified lower end, in place of ||A||_F^2.

    Returns
    -------
    b : (rows, d) array of float64
        The sketch B, of the fewest rows that meet the tolerance.
    delta : float
        The certificate Delta. In units of squared rows.
    m : int
        Sketch size in use at the end.

    Examples
    --------
    Twenty directions that fade: the finer the tolerance, the more rows are kept, and it is met.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((300, 20)) * 0.7 ** np.arange(20)
    >>> for tolerance in (0.1, 0.01, 0.001):
    ...     b, delta, _ = reference.growing_frequent_directions(a, 4, tolerance=tolerance, share=0.9, factor=1.15)
    ...     print(len(b), bool(delta / 2 <= tolerance * np.sum(a**2)))
    2 True
    6 True
    8 True
    """

    def fits(squares: NDArray[Any], size: int, part: float) -> bool:
        """Return True if a shrink to size - 1 rows keeps the error bound within the share `part` of the tolerance."""
        removed = squares[size - 1] if size <= len(squares) else 0.0
        whole = max(squares[0] - removed, 0.0) if of_largest else norm
        return counts * (delta + removed) <= part * tolerance * whole

    def smallest(squares: NDArray[Any], part: float) -> int:
        return next(size for size in range(2, len(squares) + 2) if fits(squares, size, part))

    b, delta, norm = a[:0], 0.0, 0.0
    for row in a:
        b, norm = np.vstack([b, row]), norm + row @ row
        if len(b) == 2 * m:
            squares = np.linalg.svd(b, compute_uv=False) ** 2
            if fits(squares, m, share) or m > len(row):
                b, removed = shrunk(b, m)
                delta += removed
            else:
                m = min(max(ceil(factor * m), m + 1, smallest(squares, share)), len(row) + 1)
    size = smallest(np.linalg.svd(b, compute_uv=False) ** 2, 1.0)
    if len(b) > size:
        b, removed = shrunk(b, size)
        delta += removed
    return b, delta, m


def parameterized_frequent_directions(a: Array, m: int, *, beta: float) -> tuple[Array, float]:
    """Sketch rows by parameterized Frequent Directions (PFD), which shrinks only the weakest directions.
    Return the sketch B and its error bound Delta.

    It shrinks the last floor(beta m) of m rows.

    beta = 1 is Algorithm 1 of the RFD paper, beta = 0 its Algorithm 8.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size, 2 <= m <= d: B has m - 1 rows.
    beta : float
        In [0, 1]: the share of rows that is shrunk.

    Returns
    -------
    b : (m - 1, d) array of float64
        The sketch B, with 0 <= A'A - B'B <= Delta I; fewer rows if the stream has fewer.
    delta : float
        The certificate Delta, at most ||A||_F^2 / floor(beta m). In units of squared rows.

    References
    ----------
    Desai, Ghashami, Phillips, IEEE TKDE 28 (2016).

    Examples
    --------
    Leading directions keep their length. Where two of them stand out the error is smaller, and the certificate weaker:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((100, 10)) * np.array([5, 3] + 8 * [1])
    >>> for beta in (1.0, 0.5):
    ...     b, delta = reference.parameterized_frequent_directions(a, 6, beta=beta)
    ...     print(f"error {np.linalg.norm(a.T @ a - b.T @ b, 2):.0f}, certificate {delta:.1f}")
    error 174, certificate 174.5
    error 123, certificate 198.3
    """
    b, _, delta = shrink_rows(a, m, limit=m, spared=min(m - floor(beta * m), m - 1))
    return b, delta


def compensative_frequent_directions(a: Array, m: int) -> tuple[Array, float]:
    """Sketch rows by Frequent Directions, and add the total of all shrinks to every squared singular value.
    Return the sketch B and its error bound Delta.

    Parameters
    ----------
    a : (T, d) array of float64
        The whole stream.
    m : int
        Sketch size, 2 <= m <= d.

    Returns
    -------
    b : (up to m - 1, d) array of float64
        The sketch B, with -Delta I <= A'A - B'B <= Delta I.
    delta : float
        The certificate Delta, that of ``frequent_directions``. In units of squared rows.

    References
    ----------
    Desai, Ghashami, Phillips, IEEE TKDE 28 (2016).

    Examples
    --------
    Frequent Directions only ever shortens; the compensation is too long in some directions, and closer by as much.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((100, 10)) * np.linspace(3, 0.1, 10)
    >>> b, delta = reference.compensative_frequent_directions(a, 6)
    >>> errors = np.linalg.eigvalsh(a.T @ a - b.T @ b)
    >>> bool(-delta < errors[0] < 0 < errors[-1] < delta)
    True
    """
    b, delta = frequent_directions(a, m)
    _, s, vt = np.linalg.svd(b, full_matrices=False)
    has = s > s.max(initial=0.0) * np.finfo(float).eps  # directions that B does have
    return np.sqrt(s[has] ** 2 + delta)[:, None] * vt[has], delta
