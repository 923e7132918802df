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
from fastsketch.recommending._item_events import csr_structure, row_square_sums
from fastsketch.recommending.ranking._splits import row_indices
from fastsketch.ridge._held_out import HeldOut, merge_reservoirs

LARGEST_KEY = 2**64 - 1
# The largest number of groups of the sample. Joining groups costs more than adding a row.
MAX_GROUPS = 128


@dataclass(frozen=True, eq=False)
class RetainedUsers:
    """Random sample of users whose rows are stored completely, for random walks: those with the smallest random keys.

    The rows are stored in several groups. The random keys of all users are below `limit`. Immutable: methods return new
    objects, and arrays are never written to.
    """

    groups: tuple[HeldOut, ...] = ()
    limit: int = LARGEST_KEY
    n_events: int = 0  # of all groups

    def add_users(self, users: HeldOut, max_events: int) -> "RetainedUsers":
        """Return a sample that also has the given users with keys below the limit, truncated if it is too large.

        The sample is truncated to `max_events` events once it has more than twice as many. The given rows are copied.
        """
        indptr = users.rows.indptr
        below_limit = (users.key < np.uint64(self.limit)) & (indptr[1:] > indptr[:-1])
        if not (max_events and below_limit.any()):
            return self
        added = users.copy_rows() if below_limit.all() else users.take(np.flatnonzero(below_limit))
        groups = [*self.groups, added]
        if len(groups) >= MAX_GROUPS:
            # join the last half, and before it each group that is at most twice as large
            start = len(groups) - MAX_GROUPS // 2
            n_events = sum(group.n_events for group in groups[start:])
            while start and groups[start - 1].n_events <= 2 * n_events:
                start -= 1
                n_events += groups[start].n_events
            groups[start:] = [merge_reservoirs(groups[start:])]
        enlarged = RetainedUsers(tuple(groups), self.limit, self.n_events + added.n_events)
        return enlarged if enlarged.n_events <= 2 * max_events else enlarged.truncate(max_events)

    def map_groups(self, function: Callable[[HeldOut], HeldOut]) -> "RetainedUsers":
        """Return a sample in which every group of users is replaced by the result of `function` for it."""
        return replace(self, groups=tuple(function(group) for group in self.groups))

    def truncate(self, max_events: int) -> "RetainedUsers":
        """Return the sample reduced to the users with the smallest random keys, with `max_events` events at most."""
        if not self.groups:
            return self
        users = merge_reservoirs(self.groups)
        n = int(np.searchsorted(users.rows.indptr, max_events, side="right")) - 1
        limit = self.limit if n == len(users) else int(users.key[n])
        n = int(np.searchsorted(users.key, np.uint64(limit)))
        return RetainedUsers((users.take(slice(0, n)),) if n else (), limit, int(users.rows.indptr[n]))


Array = NDArray[Any]
Steps = tuple[Array, Array, Array, Array, Array, Array]


class Walks(NamedTuple):
    """Random walks from a user's items to other users and on to their items, which score items (RP3beta).
    They are stored as two sparse transition matrices.
    """

    to_users: Any  # T (items, users)
    to_items: Any  # F (users, items)
    diagonal: NDArray[Any]  # (items,) diagonal of T F
    steps: Steps  # row pointers, indices and data of T and F for the kernel

    def add(self, rows: Any, out: NDArray[Any]) -> None:
        """Add the random-walk scores of CSR rows to `out`, in place.

        For rows X the scores (k, items) are X T F.
        """
        indptr, indices, _ = csr_structure(rows)
        kernel.add_walks(indptr, indices, rows.data, *self.steps, out)

    def weights_of_target(self, items: NDArray[np.int64], target: int) -> NDArray[np.float64]:
        """Return the random-walk weight of each given item in the score of the item `target`, float64."""
        return (self.to_users[items].astype(np.float64) @ self.to_items[:, [target]]).toarray()[:, 0]

    def scale(self, factor: float) -> "Walks":
        """Return a copy with all weights multiplied by a factor."""
        to_items = self.to_items.copy()
        to_items.data *= self.diagonal.dtype.type(factor)
        return create_walks(self.to_users, to_items, self.diagonal * self.diagonal.dtype.type(factor))


def create_walks(to_users: Any, to_items: Any, diagonal: NDArray[Any]) -> Walks:
    """Return ``Walks`` with the given transition matrices, whose arrays are converted for the compiled kernel.

    `diagonal` is the diagonal of the product of the matrices.
    """
    t, f = csr_structure(to_users), csr_structure(to_items)
    return Walks(to_users, to_items, diagonal, (t[0], t[1], to_users.data, f[0], f[1], to_items.data))


def compute_walks(users: HeldOut, *, activity_power: float, popularity_power: float) -> Walks:
    """Return the random walks over the given users: transition matrices from items to users and back.

    Scores are divided by the popularity of the item to the power `popularity_power`. The weights of the users contain
    (x'x)^-activity_power, which is divided out.
    """
    rows, dtype = users.rows, users.rows.dtype
    squares, user_index = row_square_sums(rows), row_indices(rows)
    # q = x / |x|, v = weight |x|^(2 p), d_i and g_i the sums over the users of item i of v and of v q_ui^2
    unit_entries, weight = rows.data / np.sqrt(squares)[user_index], users.weight * squares**activity_power
    d, g = (
        np.bincount(rows.indices, weight[user_index] * factor, rows.shape[1])
        for factor in (np.ones(len(user_index)), unit_entries**2)
    )
    has_events = d > 0
    popularity_factor, divisor = np.zeros(len(d)), np.where(has_events, d, 1.0)
    popularity_factor[has_events] = (
        (d[has_events] / d[has_events].mean()) ** -popularity_power if has_events.any() else 0.0
    )
    # T_iu = q_ui v_u / d_i (mean d / mean g), F_uj = q_uj (d_j / mean d)^-popularity_power
    unit = d.sum() / g.sum() if has_events.any() else 1.0
    to_users, to_items = (
        unit_entries * weight[user_index] / divisor[rows.indices] * unit,
        unit_entries * popularity_factor[rows.indices],
    )
    item_given_user, user_to_items = (
        type(rows)((data.astype(dtype), rows.indices, rows.indptr), shape=rows.shape) for data in (to_users, to_items)
    )
    return create_walks(
        item_given_user.T.tocsr(), user_to_items, (g / divisor * unit * popularity_factor).astype(dtype)
    )
