"""Drift: whether a model errs more than it did, found by ADWIN, and the states that begin anew when it does.

ADWIN (Bifet, Gavalda 2007) keeps the errors of a window of rows in buckets, five of each size, and drops the oldest
until no cut of the window leaves two parts whose means differ by more than chance would make them. Here a bucket of
the smallest size is CHECK rows, so that the window is looked at when their number is a multiple of that: batches do not
matter. A rise that would be half as certain is a warning, at which states of their own begin to learn from what comes;
they take over when a rise is certain and they have erred less since than the old ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.io import _checks as checks
from fastsketch.online._state import GROWS, Arrays, Counts, Floats

# Rows between two looks, and the rows of the smallest bucket.
CHECK = 32
# Buckets of a size: more tell more precisely where a change was, and cost as much more.
SAME_SIZE = 5
SIZES = 48  # the largest holds 2^47 CHECK rows
# Chance that one look at a window without change finds one; of warnings.
CERTAIN, WARNING = 0.002, 0.05
# Looks without a warning after which states that have begun at one are given up; looks after a certain rise at which
# they may take over.
PATIENCE, TRIAL = 32, 128
# Rows that are told: the last ones at which states have begun anew.
MOST_TOLD = 1000

# Entries of `drift_counts`.
IN_BLOCK, QUIET, CERTAIN_FOR, SINCE, RESTARTS = range(5)
# Entries of `drift_sums`: errors of the block; of the states and of the new ones since these began; |residuals| until
# the last look and their number, and since.
BLOCK, OLD, NEW, RESIDUALS, N_RESIDUALS, LATELY = range(6)


@dataclass(slots=True)
class Watch(Arrays):
    """What is known of errors, each within [0, 1], and of states that have begun at a warning."""

    drift_buckets: Floats  # sums of errors, the oldest bucket of a size first, (SIZES, SAME_SIZE + 1)
    drift_used: Counts  # buckets of each size, (SIZES,)
    drift_counts: Counts
    drift_sums: Floats
    drift_rows: Annotated[Counts, GROWS]  # numbers of the rows at which states have begun anew

    # -- errors --------------------------------------------------------------------------------------------------------
    def errors(self, scores: Floats, targets: Floats, right: NDArray[np.bool_] | None) -> Floats:
        """What rows (n,) err by: 0 or 1 by `right`; of real targets r / (r + mean |residual| until the last look)."""
        if right is not None:
            return np.where(right, 0.0, 1.0)
        sizes, n = np.abs(scores - targets), self.drift_sums[N_RESIDUALS]
        usual = self.drift_sums[RESIDUALS] / n if n else 0.0
        with np.errstate(all="ignore"):
            shares = sizes / (sizes + usual)
        return np.where(np.isfinite(shares), shares, 0.5 if n else 0.0)

    def until_look(self) -> int:
        """Rows until the next look, 0 where it is due."""
        return CHECK - int(self.drift_counts[IN_BLOCK])

    def take_in(self, errors: Floats, theirs: Floats | None, sizes: Floats | None) -> None:
        """Rows of one block: what they err by, also with the new states; `sizes` of residuals, of real targets."""
        sums, counts = self.drift_sums, self.drift_counts
        # one after the other, so that a split into batches changes no bit
        since = None if theirs is None else errors
        for entry, values in ((BLOCK, errors), (OLD, since), (NEW, theirs), (LATELY, sizes)):
            if values is not None:
                sums[entry] = sum(values.tolist(), float(sums[entry]))
        counts[IN_BLOCK] += len(errors)
        if sizes is not None and counts[IN_BLOCK] == CHECK:
            sums[RESIDUALS] += sums[LATELY]
            sums[N_RESIDUALS] += CHECK
            sums[LATELY] = 0.0

    # -- the window ----------------------------------------------------------------------------------------------------
    def look(self) -> tuple[bool, bool]:
        """At the end of a block: whether errors have risen by what is a warning, and by what is certain."""
        self._add(float(self.drift_sums[BLOCK]))
        self.drift_sums[BLOCK], self.drift_counts[IN_BLOCK] = 0.0, 0
        warned = certain = False
        while True:
            cut, rise, warning = self._cut()
            warned, certain = warned or warning, certain or rise
            if not cut:
                return warned, certain
            self._drop()

    def _add(self, total: float) -> None:
        for buckets, i in zip(self.drift_buckets, range(SIZES), strict=True):
            used = int(self.drift_used[i])
            buckets[used] = total
            if used < SAME_SIZE:
                self.drift_used[i] = used + 1
                return
            total = float(buckets[0] + buckets[1])
            buckets[: SAME_SIZE - 1] = buckets[2:].copy()
            self.drift_used[i] = SAME_SIZE - 1

    def _drop(self) -> None:
        """The oldest bucket is forgotten."""
        i = int(np.flatnonzero(self.drift_used)[-1])
        used = int(self.drift_used[i])
        self.drift_buckets[i, : used - 1] = self.drift_buckets[i, 1:used].copy()
        self.drift_used[i] = used - 1

    def _cut(self) -> tuple[bool, bool, bool]:
        """Whether a cut has parts that differ, whether by a rise, and whether a rise would be a warning."""
        used = self.drift_used.tolist()
        blocks = [
            (2**i, total)
            for i in range(SIZES - 1, -1, -1)
            if used[i]
            for total in self.drift_buckets[i, : used[i]].tolist()
        ]
        n, all_errors = sum(size for size, _ in blocks), sum(total for _, total in blocks)
        if n < 2:
            return False, False, False
        mean = all_errors / (n * CHECK)
        variance = max(mean * (1.0 - mean), 0.0)
        sure, half_sure = (log(2.0 * log(n * CHECK) / chance) for chance in (CERTAIN, WARNING))
        before, errors, warning = 0, 0.0, False
        for size, total in blocks[:-1]:
            before += size
            errors += total
            share = 1.0 / (before * CHECK) + 1.0 / ((n - before) * CHECK)
            rise = (all_errors - errors) / ((n - before) * CHECK) - errors / (before * CHECK)
            if abs(rise) > sqrt(2.0 * variance * sure * share) + 2.0 / 3.0 * sure * share:
                return True, rise > 0, warning or rise > 0
            warning = warning or rise > sqrt(2.0 * variance * half_sure * share) + 2.0 / 3.0 * half_sure * share
        return False, False, warning

    # -- what follows --------------------------------------------------------------------------------------------------
    def decide(self, beginning: bool, n_rows: int) -> str:
        """After a look: "begin" new states, "take" them in place of the old ones, "drop" them, or "".

        beginning: whether there are new states.
        """
        warned, certain = self.look()
        counts, sums = self.drift_counts, self.drift_sums
        if not beginning:
            if not warned:
                return ""
            counts[QUIET], counts[SINCE], counts[CERTAIN_FOR] = 0, n_rows, TRIAL if certain else 0
            sums[OLD] = sums[NEW] = 0.0
            return "begin"
        counts[QUIET] = 0 if warned else counts[QUIET] + 1
        counts[CERTAIN_FOR] = TRIAL if certain else max(counts[CERTAIN_FOR] - 1, 0)
        if counts[CERTAIN_FOR] and sums[NEW] < sums[OLD]:
            self.drift_used[:], self.drift_buckets[:] = 0, 0.0
            sums[RESIDUALS] = sums[N_RESIDUALS] = 0.0
            counts[RESTARTS] += 1
            self.drift_rows = np.append(self.drift_rows, n_rows)[-MOST_TOLD:]
            return "take"
        return "drop" if counts[QUIET] >= PATIENCE and not counts[CERTAIN_FOR] else ""

    # -- keeping it ----------------------------------------------------------------------------------------------------
    def validate_all(self, arrays: Mapping[str, NDArray[Any]], n_rows: int) -> None:
        """Raise ValueError unless errors could have made this."""
        self.validate(arrays)
        used, counts, rows = arrays["drift_used"], arrays["drift_counts"], arrays["drift_rows"]
        checks.number_within(used.min(), "buckets of a size", 0, SAME_SIZE)
        checks.number_within(used.max(), "buckets of a size", 0, SAME_SIZE)
        checks.not_negative(arrays, "drift_buckets", (SIZES, SAME_SIZE + 1))
        checks.not_negative(arrays, "drift_sums", self.drift_sums.shape)
        checks.number_within(counts[IN_BLOCK], "rows since the last look", 0, CHECK - 1)
        checks.number_within(counts.min(), "counts of drift", 0, checks.MOST_COUNT)
        checks.number_within(counts[SINCE], "row of a warning", 0, n_rows)
        checks.number_within(len(rows), "rows of restarts", 0, MOST_TOLD)
        if (np.diff(rows) <= 0).any() or (len(rows) and not 0 < rows[0] <= rows[-1] <= n_rows):
            raise ValueError(f"the rows at which states began anew are out of order: {rows}")


def start() -> Watch:
    """No rows yet."""
    return Watch(
        drift_buckets=np.zeros((SIZES, SAME_SIZE + 1)),
        drift_used=np.zeros(SIZES, np.int64),
        drift_counts=np.zeros(5, np.int64),
        drift_sums=np.zeros(6),
        drift_rows=np.zeros(0, np.int64),
    )
