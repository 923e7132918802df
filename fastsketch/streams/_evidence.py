"""Evidence against exchangeability, block by block: conformal p-values, bets on small ones, Shiryaev-Roberts sums.

If blocks are exchangeable, the rank of a score among all so far is uniform and independent of the ranks before it (ties
broken at random), whatever the distribution. A bet f(p) with integral 1 has then mean 1, R = (1 + R) f(p) has mean n
after n blocks and R - n is a martingale: R reaches c within n blocks with probability n / c at most, and after c blocks
on average at the earliest.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, raw_numbers

Floats: TypeAlias = NDArray[np.float64]

# Exponents k of the bets f(p) = k p^(k - 1): small ones win most where p are very small, large ones where a change is
# slight. Their R have equal shares.
EXPONENTS = np.array([0.05, 0.1, 0.2, 0.4, 0.7])


def conformal(scores: Floats, new: Floats, seed: int, series: int) -> Floats:
    """Return the conformal p-value (s,) of each new score (s,) after those before (k, s): small if it is large."""
    raw = raw_numbers(seed, Key.CONFORMAL, series, len(scores), len(new))
    # uniform in (0, 1): a p of 0 would be worth any bet
    ties = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return ((scores > new).sum(axis=0) + ties * (1 + (scores == new).sum(axis=0))) / (len(scores) + 1)


def bets(p: Floats) -> Floats:
    """Return f(p) of all exponents, on a last axis."""
    return EXPONENTS * p[..., np.newaxis] ** (EXPONENTS - 1.0)


def accumulated(evidence: Floats, p: Floats) -> Floats:
    """Return R (s, e) after one more block with the p-values (s,)."""
    return (1.0 + evidence) * bets(p)


def likeliest_begin(scores: Floats) -> int:
    """Return the block from which on bets on the ranks of all scores (k,) would win the most: where a change began."""
    descending = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
    won = np.log(bets((descending + 0.5) / len(scores)))
    total = np.cumsum(won[::-1], axis=0)[::-1]
    return int(np.argmax(total.max(axis=1)))
