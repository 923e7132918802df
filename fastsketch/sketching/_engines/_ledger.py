"""The ledger of a sketch: how large the sums of squares are that shrinks have removed along its directions; and
SketchSummary.

A ``SketchSummary`` has orthonormal directions V, the squared lengths of B's rows along them, and the two l x l matrices
of the ledger, whose sum estimates V A'A V' (``_kernels/sketching/ledger.pyx``).
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


class SketchSummary(NamedTuple):
    """Singular directions V of a sketch of rows A, with estimates of V A'A V' and of the squares outside of them."""

    squares: Matrix  # (r,) of B, descending
    vt: Matrix  # (r, d) orthonormal
    seen: Matrix  # (r, r)
    leaked: Matrix  # (r, r)
    lost: float
    n_features: int  # d: vt may be without columns that are zero

    def in_basis(self, vt: Matrix) -> tuple[Matrix, Matrix]:
        """Return estimates in another basis of the part of A'A that the sketch has and of the part that it has removed.

        Both are (r, r), `seen` and `leaked` in the basis of the orthonormal rows of vt (r, d). Outside of this sketch's
        directions, squares are assumed to be spread evenly.
        """
        turn = vt @ self.vt.T
        outside = np.eye(len(vt)) - turn @ turn.T
        return turn @ self.seen @ turn.T, turn @ self.leaked @ turn.T + outside * self.density

    @property
    def density(self) -> float:
        """Return the mean sum of squares per dimension outside of the sketch's directions, or 0 if they span all."""
        outside = self.n_features - len(self.vt)
        return self.lost / outside if outside > 0 else 0.0


def ledger_arrays(ledger: Ledger | None) -> Arrays:
    """Return a sketch's ledger of removed sums of squares as a dict of named arrays, for state files. The dict is empty
    if there is no ledger (None).
    """
    if ledger is None:
        return {}
    return {"seen": np.asarray(ledger.seen), "leaked": np.asarray(ledger.leaked), "lost": np.array([ledger.lost])}


def validate_ledger(arrays: Arrays, side: int) -> None:
    """Validate the arrays of a ledger that were read from a state file, for a sketch of `side` rows: finite, symmetric
    and in range. ValueError names the array.
    """
    for name in ("seen", "leaked"):
        matrix = checks.finite(arrays, name, (side, side))
        largest = float(np.abs(matrix).max(initial=0.0))
        checks.number_within(largest, f"the largest entry of {name!r}", 0.0, MOST)
        if not (np.abs(matrix / 2 - matrix.T / 2) <= SYMMETRIC_WITHIN * largest + TINY).all():
            raise ValueError(f"array {name!r} must be symmetric")
    checks.number_within(float(checks.not_negative(arrays, "lost", (1,))[0]), "'lost'", 0.0, MOST)


def put_ledger(ledger: Ledger | None, arrays: Arrays) -> None:
    """Overwrite a sketch's ledger of removed sums of squares with arrays that ``ledger_arrays`` returned. Nothing
    happens if there is no ledger (None).
    """
    if ledger is None:
        return
    np.asarray(ledger.seen)[:] = arrays["seen"]
    np.asarray(ledger.leaked)[:] = arrays["leaked"]
    ledger.lost = float(arrays["lost"][0])


def ledger_of_size(ledger: Ledger | None, side: int) -> Arrays:
    """Return the arrays of a sketch's ledger cut, or padded with zeros, to another sketch size `side`.
    The ledger itself does not change.
    """
    arrays = ledger_arrays(ledger)
    for name in arrays.keys() - {"lost"}:
        whole, arrays[name] = arrays[name], np.zeros((side, side))
        both = min(side, len(whole))
        arrays[name][:both, :both] = whole[:both, :both]
    return arrays


def weaken(ledger: Ledger | None, factor: float) -> None:
    """Multiply all sums in a sketch's ledger by a factor, in place, when earlier rows lose weight.
    If there is no ledger (None), nothing happens.
    """
    if ledger is not None:
        np.asarray(ledger.seen)[:] *= factor
        np.asarray(ledger.leaked)[:] *= factor
        ledger.lost *= factor


@one_blas_thread
def summarise_buffer(new: Matrix, kept: Matrix, ledger: Ledger | None, *, n_features: int) -> SketchSummary:
    """Return the singular directions of a buffer's rows and the stream's squares along each, as a SketchSummary.

    `new` are the rows since the last shrink, and `kept` the retained ones, which are orthogonal, and in the order of
    the ledger.
    """
    s, vt = decompose(np.vstack([new, kept]))
    if ledger is None:
        return SketchSummary(s**2, vt, np.diag(s**2), np.zeros((len(s), len(s))), 0.0, n_features)
    lengths = np.sqrt(np.einsum("ij,ij->i", kept, kept))
    base = np.divide(kept, lengths[:, np.newaxis], out=np.zeros_like(kept), where=lengths[:, np.newaxis] > 0)
    k = len(kept)
    held = np.asarray(ledger.seen)[:k, :k], np.asarray(ledger.leaked)[:k, :k]
    before = SketchSummary(lengths**2, base, *held, ledger.lost, n_features)
    seen, leaked = before.in_basis(vt)
    along = vt @ new.T
    seen = seen + along @ along.T
    lost = ledger.lost + float(np.trace(before.seen)) + float(np.einsum("ij,ij->", new, new)) - float(np.trace(seen))
    return SketchSummary(s**2, vt, seen, leaked, max(0.0, lost), n_features)


@one_blas_thread
def merge_summaries(
    mine: SketchSummary, theirs: SketchSummary, extra: Matrix, *, most: int, n_keep: int, n_spare: int
) -> tuple[SketchSummary, float]:
    """Return (summary of two sketches and further rows, value that a shrink subtracted from squared singular values).

    There is a shrink if more than `most` rows remain; otherwise the value is 0.
    """
    stack = [np.sqrt(summary.squares)[:, np.newaxis] * summary.vt for summary in (mine, theirs)]
    s, vt = decompose(np.vstack([*stack, extra]))
    delta = 0.0
    if len(s) > most:
        delta, s, vt = float(s[n_keep] ** 2), s[:n_keep], vt[:n_keep]
    parts = [mine.in_basis(vt), theirs.in_basis(vt)]
    along = vt @ extra.T
    seen = parts[0][0] + parts[1][0] + along @ along.T
    leaked = parts[0][1] + parts[1][1]
    total = mine.lost + theirs.lost + float(np.trace(mine.seen) + np.trace(theirs.seen)) + float((extra**2).sum())
    squares = s**2
    if delta:
        lowered = np.argsort(-np.diag(seen + leaked), kind="stable")[n_spare:]
        squares[lowered] -= delta
    return SketchSummary(squares, vt, seen, leaked, max(0.0, total - float(np.trace(seen))), mine.n_features), delta
