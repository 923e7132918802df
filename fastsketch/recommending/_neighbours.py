"""Random walks over a sample of users whose rows are retained in addition to the sketch.

A sketch of l rows represents the common tastes of a catalogue, but not what only a few users share. Random walks do:
from an item to the users who had it, with probabilities proportional to their events, and on to the items of these
users (P3, Cooper et al. 2014), with scores divided by a power of the popularity of the item (RP3beta, Paudel et al.
2017). Walks need the rows themselves. As many users are retained as fit: those of the smallest random keys, a bottom-k
sample, which does not depend on batches.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.recommending import items as kernel
from fastsketch.recommending._item_events import entries, row_squares
from fastsketch.recommending.ranking._splits import owners
from fastsketch.ridge._held_out import HeldOut, joined

MOST_KEY = 2**64 - 1
# The largest number of parts of the sample. Joining parts costs more than adding a row.
MOST_PARTS = 128


@dataclass(frozen=True, eq=False)
class KeptUsers:
    """A random sample of users with their rows, stored in several parts.

    All keys are below a limit. Arrays are never written to.
    """

    parts: tuple[HeldOut, ...] = ()
    limit: int = MOST_KEY
    n_events: int = 0  # of all parts

    def with_users(self, users: HeldOut, most: int) -> "KeptUsers":
        """Return the sample with more users added. It is cut to `most` events if it holds over twice as many."""
        indptr = users.rows.indptr
        near = (users.key < np.uint64(self.limit)) & (indptr[1:] > indptr[:-1])
        if not (most and near.any()):
            return self
        copied = users.own() if near.all() else users.chosen(np.flatnonzero(near))
        parts = [*self.parts, copied]
        if len(parts) >= MOST_PARTS:
            # join the last half, and before it each part that is at most twice as large
            start = len(parts) - MOST_PARTS // 2
            n_events = sum(part.n_events for part in parts[start:])
            while start and parts[start - 1].n_events <= 2 * n_events:
                start -= 1
                n_events += parts[start].n_events
            parts[start:] = [joined(parts[start:])]
        kept = KeptUsers(tuple(parts), self.limit, self.n_events + copied.n_events)
        return kept if kept.n_events <= 2 * most else kept.cut(most)

    def each(self, change: Callable[[HeldOut], HeldOut]) -> "KeptUsers":
        """Apply a function to every part of the sample. Return a new sample."""
        return replace(self, parts=tuple(change(part) for part in self.parts))

    def cut(self, most: int) -> "KeptUsers":
        """Return the sample reduced to the users with the smallest random keys, at most `most` events in total."""
        if not self.parts:
            return self
        users = joined(self.parts)
        n = int(np.searchsorted(users.rows.indptr, most, side="right")) - 1
        limit = self.limit if n == len(users) else int(users.key[n])
        n = int(np.searchsorted(users.key, np.uint64(limit)))
        return KeptUsers((users.chosen(slice(0, n)),) if n else (), limit, int(users.rows.indptr[n]))


Array = NDArray[Any]
Steps = tuple[Array, Array, Array, Array, Array, Array]


class Walks(NamedTuple):
    """Transition matrices of random walks from items to users, and from users to items."""

    to_users: Any  # T (items, users)
    to_items: Any  # F (users, items)
    own: NDArray[Any]  # (items,) diagonal of T F
    steps: Steps  # pointers, indices and data of T and F for the kernel

    def add(self, rows: Any, out: NDArray[Any]) -> None:
        """Add the random-walk scores of CSR rows to `out`, in place.

        For rows X the scores (k, items) are X T F.
        """
        indptr, indices, _ = entries(rows)
        kernel.add_walks(indptr, indices, rows.data, *self.steps, out)

    def of_target(self, items: NDArray[np.int64], target: int) -> NDArray[np.float64]:
        """Return the random-walk weight of each given item in the score of the item `target`, float64."""
        return (self.to_users[items].astype(np.float64) @ self.to_items[:, [target]]).toarray()[:, 0]

    def times(self, factor: float) -> "Walks":
        """Return a copy with all weights multiplied by a factor."""
        to_items = self.to_items.copy()
        to_items.data *= self.own.dtype.type(factor)
        return prepare_walks(self.to_users, to_items, self.own * self.own.dtype.type(factor))


def prepare_walks(to_users: Any, to_items: Any, own: NDArray[Any]) -> Walks:
    """Create Walks from the two transition matrices. Their arrays are converted once for the kernel.

    `own` is the diagonal of the product of the matrices.
    """
    t, f = entries(to_users), entries(to_items)
    return Walks(to_users, to_items, own, (t[0], t[1], to_users.data, f[0], f[1], to_items.data))


def walks_over(users: HeldOut, *, activity_power: float, popularity_power: float) -> Walks:
    """Compute the transition matrices of random walks over the given users.

    Scores are divided by the popularity of the item to the power `popularity_power`. The weights of the users contain
    (x'x)^-activity_power, which is divided out here.
    """
    rows, dtype = users.rows, users.rows.dtype
    squares, owner = row_squares(rows), owners(rows)
    # q = x / |x|, v = weight |x|^(2 p), d_i and g_i the sums over the users of item i of v and of v q_ui^2
    share, weight = rows.data / np.sqrt(squares)[owner], users.weight * squares**activity_power
    d, g = (np.bincount(rows.indices, weight[owner] * of, rows.shape[1]) for of in (np.ones(len(owner)), share**2))
    known = d > 0
    damped, counted = np.zeros(len(d)), np.where(known, d, 1.0)
    damped[known] = (d[known] / d[known].mean()) ** -popularity_power if known.any() else 0.0
    # T_iu = q_ui v_u / d_i (mean d / mean g), F_uj = q_uj (d_j / mean d)^-popularity_power
    unit = d.sum() / g.sum() if known.any() else 1.0
    to_users, to_items = share * weight[owner] / counted[rows.indices] * unit, share * damped[rows.indices]
    turned, onward = (
        type(rows)((data.astype(dtype), rows.indices, rows.indptr), shape=rows.shape) for data in (to_users, to_items)
    )
    return prepare_walks(turned.T.tocsr(), onward, (g / counted * unit * damped).astype(dtype))
