"""Tracked Frequent Directions, a variant that does not shrink the directions with the largest estimated mass.

No paper describes it; docs/read-outs.md does. It extends PFD, parameterized Frequent Directions.

Every step is done with the directions themselves, where the library takes it from the eigenvectors of one small matrix.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """A Frequent Directions sketch with its error bound and estimates of the mass in each direction.

    Attributes
    ----------
    squares : (r,) array of float64
        Squared lengths of the rows of the sketch B.
    v : (r, d) array of float64
        Their directions V, orthonormal rows.
    delta : float
        The certificate: 0 <= A'A - B'B <= Delta I.
    seen : (r, r) array of float64
        Estimate of V A'A V' from the rows that were seen while these directions were kept.
    leaked : (r, r) array of float64
        Estimate of the part of V A'A V' from rows that shrinks removed before these directions were kept.
    lost : float
        Trace of A'A less that of seen.

    Examples
    --------
    The leading eigenvalue is estimated better than by B, whose rows were shortened. The mass of all rows is accounted
    for.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((300, 12)) * 0.7 ** np.arange(12)
    >>> sketch = reference.tracked_frequent_directions(np.split(a, 30), 6, beta=1.0)
    >>> true = np.linalg.norm(a, 2) ** 2
    >>> values, directions = sketch.read_out()
    >>> bool(abs(values[0] - true) < 0.1 * abs(sketch.squares[0] - true))
    True
    >>> np.allclose(np.trace(sketch.seen) + sketch.lost, np.sum(a**2))
    True
    """

    squares: Array  # (r,) squared lengths of the rows of B
    v: Array  # (r, d) orthonormal
    delta: float  # Delta
    seen: Array  # (r, r) estimate of V A'A V' from the rows that were seen while these directions were kept
    leaked: Array  # (r, r) estimate of what V holds of rows that were lost before
    lost: float  # trace of A'A less that of seen

    @property
    def b(self) -> Array:
        """Return the sketch matrix B, shape (r, d)."""
        return np.sqrt(self.squares)[:, None] * self.v

    def read_out(self) -> tuple[Array, Array]:
        """Return estimates of the leading eigenvalues of A'A, in descending order, and their eigenvectors as rows."""
        values, u = np.linalg.eigh(self.seen + self.leaked)
        return values[::-1], u[:, ::-1].T @ self.v

    def faded(self, factor: float) -> "Tracked":
        """Return a copy of the sketch, in which the weight of all rows so far is multiplied by `factor`."""
        return Tracked(**{name: value if name == "v" else factor * value for name, value in vars(self).items()})


def _carried(sketch: Tracked, v: Array) -> tuple[Array, Array]:
    """Return a sketch's estimates of observed and removed mass, (seen, leaked), along other directions `v`.

    See the attributes of ``Tracked``.
    """
    turn = v @ sketch.v.T  # T = V_new V_old'
    d, kept = sketch.v.shape[1], len(sketch.v)
    density = sketch.lost / (d - kept) if d > kept else 0.0  # what is lost, spread evenly outside the old directions
    return turn @ sketch.seen @ turn.T, turn @ sketch.leaked @ turn.T + density * (np.eye(len(v)) - turn @ turn.T)


def tracked_empty(d: int) -> Tracked:
    """Return an empty sketch of rows of d columns.

    Parameters
    ----------
    d : int
        Length of a row.

    Returns
    -------
    Tracked
        With no directions; merging it with rows sketches these.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> none = reference.tracked_empty(3)
    >>> none.b.shape, none.delta
    ((0, 3), 0.0)
    >>> one = reference.tracked_merge([none], 4, x=np.array([[0.0, 2.0, 0.0]]), beta=1.0)
    >>> abs(one.b).tolist()
    [[0.0, 2.0, 0.0]]
    """
    none = np.zeros((0, 0))
    return Tracked(squares=np.zeros(0), v=np.zeros((0, d)), delta=0.0, seen=none, leaked=none, lost=0.0)


def tracked_merge(parts: Iterable[Tracked], m: int, *, x: Array, beta: float, flush: bool = True) -> Tracked:
    """Return the merge of sketches and further rows, a sketch of m - 1 rows.

    Parameters
    ----------
    parts : iterable of Tracked
        At least one.
    m : int
        Sketch size, 2 <= m <= d.
    x : (rows, d) array of float64
        Further rows, perhaps none: (0, d).
    beta : float
        In [0, 1]: floor(beta m) of m rows are shortened, and the others, which have the largest estimated mass, are
        spared.
    flush : bool, default True
        Without it all directions are kept, for m or fewer.

    Returns
    -------
    Tracked
        Of all rows; its Delta is the sum of those of the parts and of this shrink.

    References
    ----------
    The estimates of mass are in no paper: see docs/read-outs.md. The shrink is that of Desai, Ghashami, Phillips, IEEE
    TKDE 28 (2016).

    Examples
    --------
    Two halves, each sketched by itself: the certificate of the whole holds.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((300, 12)) * 0.7 ** np.arange(12)
    >>> parts = [reference.tracked_frequent_directions(np.split(half, 15), 6, beta=0.45) for half in np.split(a, 2)]
    >>> whole = reference.tracked_merge(parts, 6, x=np.zeros((0, 12)), beta=0.45)
    >>> errors = np.linalg.eigvalsh(a.T @ a - whole.b.T @ whole.b)
    >>> bool(-1e-9 < errors[0]), bool(errors[-1] <= whole.delta), bool(parts[0].delta + parts[1].delta < whole.delta)
    (True, True, True)
    """
    parts = list(parts)
    _, s, v = np.linalg.svd(np.vstack([*(part.b for part in parts), x]), full_matrices=False)
    rank = int((s > s.max(initial=0.0) * np.finfo(float).eps).sum())
    squares, v, delta = s[:rank] ** 2, v[:rank], 0.0
    if flush and rank >= m:
        delta, squares, v = float(squares[m - 1]), squares[: m - 1], v[: m - 1]
    carried = [_carried(part, v) for part in parts]
    p = v @ x.T
    seen = sum((one for one, _ in carried), np.zeros((len(v), len(v)))) + p @ p.T
    leaked = sum((one for _, one in carried), np.zeros((len(v), len(v))))
    total = sum(part.lost + float(np.trace(part.seen)) for part in parts) + float((x**2).sum())
    # spare those that hold most
    lowered = np.argsort(-np.diag(seen + leaked), kind="stable")[m - floor(beta * m) :]
    squares[lowered] -= delta
    delta += sum(part.delta for part in parts)
    lost = max(0.0, total - float(np.trace(seen)))
    return Tracked(squares=squares, v=v, delta=delta, seen=seen, leaked=leaked, lost=lost)


def tracked_frequent_directions(blocks: Iterable[Array], m: int, *, beta: float) -> Tracked:
    """Sketch blocks of rows by Tracked Frequent Directions, with a shrink after every block.

    Parameters
    ----------
    blocks : iterable of (rows, d) arrays of float64
        The stream, at least one block.
    m : int
        Sketch size, 2 <= m <= d.
    beta : float
        In [0, 1]: floor(beta m) of m rows are shortened, and the others, which have the largest estimated mass, are
        spared.

    Returns
    -------
    Tracked
        Of at most m - 1 rows.

    Raises
    ------
    ValueError
        If there is no block.

    References
    ----------
    The estimates of mass are in no paper: see docs/read-outs.md. The shrink is that of Desai, Ghashami, Phillips, IEEE
    TKDE 28 (2016).

    Examples
    --------
    Three leading eigenvalues to a thousandth, from a sketch whose certificate allows for more than ten times that:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((300, 12)) * 0.7 ** np.arange(12)
    >>> sketch = reference.tracked_frequent_directions(np.split(a, 30), 6, beta=0.45)
    >>> values, _ = sketch.read_out()
    >>> true = np.linalg.eigvalsh(a.T @ a)[::-1]
    >>> bool(abs(values[:3] / true[:3] - 1).max() < 0.001), bool(sketch.delta > 0.01 * true[0])
    (True, True)
    """
    sketch = None
    for x in blocks:
        sketch = tracked_merge([tracked_empty(x.shape[1]) if sketch is None else sketch], m, x=x, beta=beta)
    if sketch is None:
        raise ValueError("blocks must hold at least one")
    return sketch
