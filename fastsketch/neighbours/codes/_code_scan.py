"""Exhaustive search of codes for the k smallest scores of every query."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.codes import scan as kernel
from fastsketch.neighbours.codes._blocks import CodeRows
from fastsketch.neighbours.codes._search_arguments import Mask, Places, pack_mask, positions_if_few

Scores = NDArray[np.float32]


# What the tables of a query estimate. Cosines are computed from the tables of "inner_product".
Estimate = Literal["euclidean", "inner_product"]


class Tables(NamedTuple):
    """Lookup tables of queries: a table entry for each 4-bit index of a code, whose sum gives an estimated distance.

    Tables are float32 (m, n_tables, 16) and constants, which are added to the sums, float64 (m,) for m queries.
    Both are in units of ``Encoder.length``.
    """

    tables: NDArray[np.float32]
    constant: NDArray[np.float64]


class ScoreRule(NamedTuple):
    """Coefficients of the score by which a search ranks codes, computed from the sum of a code's table entries.
    The codes with the smallest scores are the nearest.

    The score is ((beta scale) t + alpha offset + constant) / divisor, where t is the sum of the table entries that the
    code selects, and scale and offset are those of the code.

    Every operation is rounded to float32 in this order, and t is summed in the order of the tables. A NaN counts as
    infinity.
    """

    alpha: float
    beta: float
    constant: NDArray[np.float32] | None = None  # (m,), one per query; None: 0
    divisor: NDArray[np.float32] | None = None  # (n,), one per code; None: 1


def scan(
    tables: NDArray[np.float32],
    codes: CodeRows,
    rule: ScoreRule,
    *,
    k: int,
    allow: Mask | None = None,
    ids: Places | None = None,
) -> tuple[Scores, Places]:
    """Find the k codes with the smallest scores for every query. Return scores and positions, both (m, k).

    The scores of a query ascend.

    Equal scores are ordered by id, or by position without ids. `allow` (n,) is a mask of at least k codes that may be
    found. If it selects few codes, these are copied and scanned instead of the collection.

    Parameters
    ----------
    tables : ndarray float32 (m, n_tables, 16)
    codes : CodeRows
    rule : Rule
    k : int
    allow : ndarray bool (n,), optional
    ids : ndarray int64 (n,), optional
    """
    selected = positions_if_few(allow)
    if selected is not None:
        codes = CodeRows(codes.layout, np.ascontiguousarray(codes.take(selected)), len(selected))
        allow, ids = None, None if ids is None else ids[selected]
        rule = rule if rule.divisor is None else rule._replace(divisor=rule.divisor[selected])
    scores, positions = kernel.topk(
        np.ascontiguousarray(tables, np.float32),
        codes.data,
        codes.layout,
        k,
        alpha=rule.alpha,
        beta=rule.beta,
        constant=rule.constant,
        divisor=rule.divisor,
        allow=pack_mask(allow),
        ids=ids,
        in_blocks_of=codes.in_blocks_of,
    )
    return scores, positions if selected is None else selected[positions]
