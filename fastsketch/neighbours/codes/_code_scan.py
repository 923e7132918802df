"""Scan: the k best scores of every query among codes."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.codes import scan as kernel
from fastsketch.neighbours.codes._blocks import CodeRows
from fastsketch.neighbours.codes._search_arguments import Mask, Places, bits_of, few

Scores = NDArray[np.float32]


# What tables are made for: the query's side of a distance. Cosines come from those of "inner_product".
Estimate = Literal["euclidean", "inner_product"]


class Tables(NamedTuple):
    """Tables float32 (m, n_tables, 16) and constants float64 (m,) of m queries, in units of ``Encoder.length``."""

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
    codes: CodeRows,
    rule: Rule,
    *,
    k: int,
    allow: Mask | None = None,
    ids: Places | None = None,
) -> tuple[Scores, Places]:
    """Return the k smallest scores (m, k) of every query, ascending, and the places (m, k) of their codes.

    Among equal scores the smaller id comes first (the lower place without ids); allow (n,) says which codes may come,
    at least k. tables (m, n_tables, 16). Few codes that may come are all looked at.
    """
    some = few(allow)
    if some is not None:
        codes = CodeRows(codes.layout, np.ascontiguousarray(codes.take(some)), len(some))
        allow, ids = None, None if ids is None else ids[some]
        rule = rule if rule.divisor is None else rule._replace(divisor=rule.divisor[some])
    scores, places = kernel.topk(
        np.ascontiguousarray(tables, np.float32),
        codes.data,
        codes.layout,
        k,
        alpha=rule.alpha,
        beta=rule.beta,
        constant=rule.constant,
        divisor=rule.divisor,
        allow=bits_of(allow),
        ids=ids,
        in_blocks_of=codes.in_blocks_of,
    )
    return scores, places if some is None else some[places]
