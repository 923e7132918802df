"""The log of what shrinks removed in each direction (the ledger), and the description of a whole sketch.

``Known`` describes a whole sketch: orthonormal directions V, the squared lengths of B's rows along them, and two l x l
matrices whose sum estimates V A'A V' (``_kernels/sketching/ledger.pyx``).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching.ledger import Ledger
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._decompose import decompose

Matrix = NDArray[np.float64]

LEDGER_ARRAYS = ("seen", "leaked", "lost")

# Allowed asymmetry of a ledger's matrices: relative to the largest entry, and absolute for the smallest numbers.
SYMMETRIC_WITHIN, TINY = 1e-6, 1e-300
# Largest entry in a state file. Sums of squares of scaled rows stay far below; from there kernels do not overflow.
MOST = 1e300


class Known(NamedTuple):
    """The singular directions of a sketch, with estimates of the stream's sum of squares along and outside them."""

    squares: Matrix  # (r,) of B, descending
    vt: Matrix  # (r, d) orthonormal
    seen: Matrix  # (r, r)
    leaked: Matrix  # (r, r)
    lost: float
    n_features: int  # d: vt may be without columns that are zero

    def turned(self, vt: Matrix) -> tuple[Matrix, Matrix]:
        """Convert the mass estimates `seen` and `leaked` to another orthonormal basis vt (r, d). Return both."""
        turn = vt @ self.vt.T
        outside = np.eye(len(vt)) - turn @ turn.T
        return turn @ self.seen @ turn.T, turn @ self.leaked @ turn.T + outside * self.density

    @property
    def density(self) -> float:
        """Return the mass outside the sketch's directions, divided by the number of dimensions outside."""
        outside = self.n_features - len(self.vt)
        return self.lost / outside if outside > 0 else 0.0


def ledger_arrays(ledger: Ledger | None) -> Arrays:
    """Return a sketch's log of removed mass as a dict of named arrays, which is empty for a sketch without a log."""
    if ledger is None:
        return {}
    return {"seen": np.asarray(ledger.seen), "leaked": np.asarray(ledger.leaked), "lost": np.array([ledger.lost])}


def validate_ledger(arrays: Arrays, side: int) -> None:
    """Raise ValueError unless saved arrays are a valid log of removed mass for a sketch of size `side`."""
    for name in ("seen", "leaked"):
        matrix = checks.finite(arrays, name, (side, side))
        largest = float(np.abs(matrix).max(initial=0.0))
        checks.number_within(largest, f"the largest entry of {name!r}", 0.0, MOST)
        if not (np.abs(matrix / 2 - matrix.T / 2) <= SYMMETRIC_WITHIN * largest + TINY).all():
            raise ValueError(f"array {name!r} must be symmetric")
    checks.number_within(float(checks.not_negative(arrays, "lost", (1,))[0]), "'lost'", 0.0, MOST)


def put_ledger(ledger: Ledger | None, arrays: Arrays) -> None:
    """Restore a sketch's log of removed mass from named arrays, in place; without a log (None) do nothing."""
    if ledger is None:
        return
    np.asarray(ledger.seen)[:] = arrays["seen"]
    np.asarray(ledger.leaked)[:] = arrays["leaked"]
    ledger.lost = float(arrays["lost"][0])


def ledger_of_size(ledger: Ledger | None, side: int) -> Arrays:
    """Return the arrays of a sketch's log of removed mass, cut or padded with zeros to the sketch size `side`."""
    arrays = ledger_arrays(ledger)
    for name in arrays.keys() - {"lost"}:
        whole, arrays[name] = arrays[name], np.zeros((side, side))
        both = min(side, len(whole))
        arrays[name][:both, :both] = whole[:both, :both]
    return arrays


def weaken(ledger: Ledger | None, factor: float) -> None:
    """Multiply all sums in a sketch's log of removed mass by a factor, in place; without a log (None) do nothing."""
    if ledger is not None:
        np.asarray(ledger.seen)[:] *= factor
        np.asarray(ledger.leaked)[:] *= factor
        ledger.lost *= factor


@one_blas_thread
def known_of(new: Matrix, kept: Matrix, ledger: Ledger | None, *, n_features: int) -> Known:
    """Compute the singular directions of a buffer's rows, and estimate the stream's mass (sum of squares) along each.

    Retained rows are orthogonal, and in the order of the ledger.
    """
    s, vt = decompose(np.vstack([new, kept]))
    if ledger is None:
        return Known(s**2, vt, np.diag(s**2), np.zeros((len(s), len(s))), 0.0, n_features)
    lengths = np.sqrt(np.einsum("ij,ij->i", kept, kept))
    base = np.divide(kept, lengths[:, np.newaxis], out=np.zeros_like(kept), where=lengths[:, np.newaxis] > 0)
    k = len(kept)
    held = np.asarray(ledger.seen)[:k, :k], np.asarray(ledger.leaked)[:k, :k]
    before = Known(lengths**2, base, *held, ledger.lost, n_features)
    seen, leaked = before.turned(vt)
    along = vt @ new.T
    seen = seen + along @ along.T
    lost = ledger.lost + float(np.trace(before.seen)) + float(np.einsum("ij,ij->", new, new)) - float(np.trace(seen))
    return Known(s**2, vt, seen, leaked, max(0.0, lost), n_features)


@one_blas_thread
def joined(mine: Known, theirs: Known, extra: Matrix, *, most: int, n_keep: int, n_spare: int) -> tuple[Known, float]:
    """Merge two sketches and extra rows. Return the merged sketch, and the value that a shrink subtracted (0 without a
    shrink).
    """
    stack = [np.sqrt(known.squares)[:, np.newaxis] * known.vt for known in (mine, theirs)]
    s, vt = decompose(np.vstack([*stack, extra]))
    delta = 0.0
    if len(s) > most:
        delta, s, vt = float(s[n_keep] ** 2), s[:n_keep], vt[:n_keep]
    parts = [mine.turned(vt), theirs.turned(vt)]
    along = vt @ extra.T
    seen = parts[0][0] + parts[1][0] + along @ along.T
    leaked = parts[0][1] + parts[1][1]
    total = mine.lost + theirs.lost + float(np.trace(mine.seen) + np.trace(theirs.seen)) + float((extra**2).sum())
    squares = s**2
    if delta:
        lowered = np.argsort(-np.diag(seen + leaked), kind="stable")[n_spare:]
        squares[lowered] -= delta
    return Known(squares, vt, seen, leaked, max(0.0, total - float(np.trace(seen))), mine.n_features), delta
