"""Scan: the k best scores of every query among codes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.codes._layout import Codes, Layout

Scores = NDArray[np.float32]
Places = NDArray[np.int64]

# Scores of one piece of queries, in NumPy.
MOST_SCORES = 1 << 24


class Rule(NamedTuple):
    """A code's score of a query, smaller is nearer: (constant + alpha offset + beta scale t) / divisor.

    All in float32, in this order, t summed in the order of the tables.
    """

    alpha: float
    beta: float
    constant: NDArray[np.float32] | None = None  # (m,), of each query; 0
    divisor: NDArray[np.float32] | None = None  # (n,), of each code; 1


def scan(
    tables: NDArray[np.float32],
    codes: Codes,
    layout: Layout,
    rule: Rule,
    *,
    k: int,
    allow: NDArray[np.bool_] | None = None,
    ids: Places | None = None,
) -> tuple[Scores, Places]:
    """The k smallest scores (m, k) of every query, ascending, and the places (m, k) of their codes.

    Among equal scores the smaller id comes first (the lower place without ids); allow (n,) says which codes may come,
    at least k. tables (m, n_tables, 16), codes (n, width).
    """
    m, n = len(tables), len(codes)
    places = np.arange(n) if allow is None else np.flatnonzero(allow)
    if ids is not None:
        places = places[np.argsort(ids[places], kind="stable")]
    codes = codes[places]
    rule = rule if rule.divisor is None else rule._replace(divisor=rule.divisor[places])
    nibbles, offset, scale = layout.nibbles(codes).T, layout.offsets(codes), layout.scales(codes)
    found, where = np.empty((m, k), np.float32), np.empty((m, k), np.int64)
    step = max(1, MOST_SCORES // max(1, len(places)))
    for start in range(0, m, step):
        part = slice(start, start + step)
        constant = None if rule.constant is None else rule.constant[part]
        scores = _scores(sums(tables[part], nibbles), offset, scale, rule._replace(constant=constant))
        order = np.argsort(scores, axis=1, kind="stable")[:, :k]
        found[part] = np.take_along_axis(scores, order, axis=1)
        where[part] = places[order]
    return found, where


def sums(tables: NDArray[np.float32], nibbles: Codes) -> Scores:
    """t (m, n) of tables (m, n_tables, 16) and nibbles (n_tables, n)."""
    t = np.zeros((len(tables), nibbles.shape[1]), np.float32)
    for j, nibble in enumerate(nibbles):
        t += tables[:, j][:, nibble]
    return t


def _scores(t: Scores, offset: Scores | None, scale: Scores | None, rule: Rule) -> Scores:
    # scores = (constant + alpha * offset + beta * scale * t) / divisor
    t *= np.float32(rule.beta) if scale is None else np.float32(rule.beta) * scale
    if offset is not None and rule.alpha:
        t += np.float32(rule.alpha) * offset
    if rule.constant is not None:
        t += rule.constant[:, np.newaxis]
    if rule.divisor is not None:
        t /= rule.divisor
    return t
