"""Scan: the k best scores of every query among codes."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.codes import scan as kernel
from fastsketch.codes._blocks import Blocks
from fastsketch.codes._chosen import in_order
from fastsketch.codes._layout import Codes, Layout

Scores = NDArray[np.float32]
Places = NDArray[np.int64]

# Scores of one piece of queries, in NumPy.
MOST_SCORES = 1 << 24


# What tables are made for: the query's side of a distance. Cosines come from those of "inner_product".
Estimate = Literal["euclidean", "inner_product"]


class Tables(NamedTuple):
    """Of m queries, in units of ``Encoder.length``: tables float32 (m, n_tables, 16), constant float64 (m,)."""

    tables: NDArray[np.float32]
    constant: NDArray[np.float64]


class Rule(NamedTuple):
    """A code's score of a query, smaller is nearer: (constant + alpha offset + beta scale t) / divisor.

    All in float32, in this order, t summed in the order of the tables; a NaN counts as infinity.
    """

    alpha: float
    beta: float
    constant: NDArray[np.float32] | None = None  # (m,), of each query; 0
    divisor: NDArray[np.float32] | None = None  # (n,), of each code; 1


def scan(
    tables: NDArray[np.float32],
    codes: Codes | Blocks,
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
    if isinstance(codes, Blocks):
        return kernel.topk(
            np.ascontiguousarray(tables, np.float32),
            codes.data,
            layout,
            k,
            alpha=rule.alpha,
            beta=rule.beta,
            constant=rule.constant,
            divisor=rule.divisor,
            allow=None if allow is None else np.packbits(allow, bitorder="little"),
            ids=ids,
            in_blocks_of=codes.n,
        )
    m, n = len(tables), len(codes)
    chosen = in_order(n, ids, allow)
    places = np.arange(n) if chosen is None else chosen
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
    with np.errstate(over="ignore", invalid="ignore"):
        return _in_place(t, offset, scale, rule)


def _in_place(t: Scores, offset: Scores | None, scale: Scores | None, rule: Rule) -> Scores:
    t *= np.float32(rule.beta) if scale is None else np.float32(rule.beta) * scale
    if offset is not None and rule.alpha:
        t += np.float32(rule.alpha) * offset
    if rule.constant is not None:
        t += rule.constant[:, np.newaxis]
    if rule.divisor is not None:
        t /= rule.divisor
    t[np.isnan(t)] = np.inf
    return t
