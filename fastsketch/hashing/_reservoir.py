"""A uniform sample of the rows of a stream that merges: row j of block i has a priority of its own, the least stay."""

import numpy as np

from fastsketch.sketching import raw_numbers

# Key of the generator's stream, apart from those of the compressors.
CODE = 64


class Reservoir:
    """At most `size` rows, those of the smallest priorities. Arrays in it are replaced, never changed."""

    def __init__(self, size, n_features, dtype, seed):
        self.size, self.seed = size, seed
        self._pieces = [(np.empty((0, n_features), dtype), np.empty(0, np.uint64))]
        self._waiting = 0
        self._limit = None  # no row of a higher priority can be among the best

    def copy(self):
        other = object.__new__(Reservoir)
        other.__dict__.update(self.__dict__, _pieces=list(self._pieces))
        return other

    def priorities(self, index, n):
        """Priorities of the n rows of block `index`."""
        return raw_numbers(self.seed, CODE, index, 0, n)

    def offer(self, rows, priority):
        """Keep what may be among the best."""
        if self._limit is not None:
            chosen = np.flatnonzero(priority < self._limit)
            if not chosen.size:
                return
            rows, priority = rows[chosen], priority[chosen]
        # a copy: what came in belongs to the caller
        self._pieces.append((np.array(rows, self._pieces[0][0].dtype), np.array(priority)))
        self._waiting += len(rows)
        if self._waiting > self.size:
            self.settled()

    def merge(self, other):
        self.offer(*other.settled())

    def settled(self):
        """(rows, priorities), the least first."""
        rows = np.concatenate([piece for piece, _ in self._pieces])
        priority = np.concatenate([piece for _, piece in self._pieces])
        order = np.argsort(priority, kind="stable")[: self.size]
        rows, priority = rows[order], priority[order]
        self._pieces, self._waiting = [(rows, priority)], 0
        self._limit = priority[-1] if len(priority) >= self.size else None
        return rows, priority
