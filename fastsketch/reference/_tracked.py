"""Tracked Frequent Directions: PFD whose spared rows are those that a ledger says hold most. No paper has it; the text
is docs/read-outs.md.

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
    """A sketch B = diag(squares)^(1/2) V, its certificate, and its ledger."""

    squares: Array  # (r,) squared lengths of the rows of B
    v: Array  # (r, d) orthonormal
    delta: float  # Delta
    seen: Array  # (r, r) estimate of V A'A V' from the rows that were seen while these directions were kept
    leaked: Array  # (r, r) estimate of what V holds of rows that were lost before
    lost: float  # trace of A'A less that of seen

    @property
    def b(self) -> Array:
        """B (r, d)."""
        return np.sqrt(self.squares)[:, None] * self.v

    def read_out(self) -> tuple[Array, Array]:
        """(estimates of the leading eigenvalues of A'A, descending, and their directions)."""
        values, u = np.linalg.eigh(self.seen + self.leaked)
        return values[::-1], u[:, ::-1].T @ self.v

    def faded(self, factor: float) -> "Tracked":
        """All rows so far with their weight times a factor."""
        return Tracked(
            squares=factor * self.squares,
            v=self.v,
            delta=factor * self.delta,
            seen=factor * self.seen,
            leaked=factor * self.leaked,
            lost=factor * self.lost,
        )


def _carried(sketch: Tracked, v: Array) -> tuple[Array, Array]:
    """(seen, leaked) of a sketch in new directions V."""
    turn = v @ sketch.v.T  # T = V_new V_old'
    d, kept = sketch.v.shape[1], len(sketch.v)
    density = sketch.lost / (d - kept) if d > kept else 0.0  # what is lost, spread evenly outside the old directions
    return turn @ sketch.seen @ turn.T, turn @ sketch.leaked @ turn.T + density * (np.eye(len(v)) - turn @ turn.T)


def tracked_empty(d: int) -> Tracked:
    """The sketch of no rows."""
    none = np.zeros((0, 0))
    return Tracked(squares=np.zeros(0), v=np.zeros((0, d)), delta=0.0, seen=none, leaked=none, lost=0.0)


def tracked_merge(parts: Iterable[Tracked], m: int, *, x: Array, beta: float, flush: bool = True) -> Tracked:
    """Sketches and loose rows x as one sketch of m - 1 rows; without `flush` of all directions, for m or fewer."""
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
    """Tracked FD on blocks of rows, with a shrink after every block."""
    sketch = None
    for x in blocks:
        sketch = tracked_merge([tracked_empty(x.shape[1]) if sketch is None else sketch], m, x=x, beta=beta)
    if sketch is None:
        raise ValueError("blocks must hold at least one")
    return sketch
