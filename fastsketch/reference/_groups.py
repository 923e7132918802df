"""Reference for grouped sketches: a separate sketch of each group, with all rows in memory."""

from collections.abc import Hashable, Sequence

from fastsketch.reference._frequent_directions import Array, fast_robust_frequent_directions


def group_sketches(
    a: Array, keys: Sequence[Hashable], *, m: int, alpha0: float = 0.0
) -> dict[Hashable, tuple[Array, float, float]]:
    """Return a separate Fast Robust Frequent Directions sketch of each group of rows.

    Parameters
    ----------
    a : (n, d) array of float64
        The rows.
    keys : sequence of n hashables
        The group of each row.
    m : int
        Sketch size, 2 <= m <= d.
    alpha0 : float, default 0.0
        Initial regulariser of every group, in units of squared rows.

    Returns
    -------
    dict
        {key: (B, alpha, Delta)} of the rows of each key in their order.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 5.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((60, 10))
    >>> shops = ["north", "south", "south"] * 20
    >>> found = reference.group_sketches(a, shops, m=4)
    >>> list(found)
    ['north', 'south']
    >>> alone = reference.fast_robust_frequent_directions(a[::3], 4)
    >>> np.array_equal(found["north"][0], alone[0])
    True
    """
    rows = {key: [k for k, other in enumerate(keys) if other == key] for key in dict.fromkeys(keys)}
    return {key: fast_robust_frequent_directions(a[places], m, alpha0=alpha0) for key, places in rows.items()}
