"""Scores of codes by a query's tables, in float32 and in one order, and the least of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def code_number(codes: NDArray[np.uint8], number: Any) -> Floats:
    """A factor (n,) of its bytes (n, 1 or 2), the low one first; `number` has mantissa_bits and unit."""
    u = np.zeros(len(codes), np.uint32)
    for b in range(codes.shape[1]):
        u += codes[:, b].astype(np.uint32) << np.uint32(8 * b)
    bits = (u << np.uint32(23 - number.mantissa_bits)) + np.uint32(127 << 23)
    return np.float32(number.unit) * bits.view(np.float32)


def code_scores(
    tables: Floats,
    codes: NDArray[np.uint8],
    *,
    layout: Any,
    alpha: float,
    beta: float,
    constant: Floats | None = None,
    divisor: Floats | None = None,
) -> Floats:
    """Scores (m, n): ((beta scale) t + alpha offset + constant) / divisor, t the sum of a table's entry a nibble.

    tables (m, n_tables, 16), codes (n, width); `layout` says where nibbles and factors are.
    """
    bytes_, end = (layout.n_tables + 1) // 2, layout.width
    t = np.zeros((len(tables), len(codes)), np.float32)
    for j in range(layout.n_tables):
        nibble = codes[:, j // 2] >> 4 if j % 2 else codes[:, j // 2] & 15
        t += tables[:, j][:, nibble]
    factor: Any = np.float32(beta)
    if layout.scale.n_bytes:
        factor = factor * code_number(codes[:, end - layout.scale.n_bytes : end], layout.scale)
    scores = factor * t
    if layout.offset.n_bytes:
        offset = code_number(codes[:, bytes_ : bytes_ + layout.offset.n_bytes], layout.offset)
        scores = scores + np.float32(alpha) * offset
    if constant is not None:
        scores = scores + constant[:, np.newaxis]
    return scores if divisor is None else scores / divisor


def least_scores(
    scores: Floats,
    k: int,
    *,
    allow: NDArray[np.bool_] | None = None,
    ids: NDArray[np.int64] | None = None,
) -> tuple[Floats, NDArray[np.int64]]:
    """The k least of scores (m, n) by score and then by id, and their places; infinity and -1 where there are fewer."""
    allowed = np.ones(scores.shape[1], np.bool_) if allow is None else allow
    places: NDArray[np.int64] = np.flatnonzero(allowed).astype(np.int64)
    names = places if ids is None else ids[places]
    found = np.full((len(scores), k), np.inf, np.float32)
    where = np.full((len(scores), k), -1, np.int64)
    for row, score in enumerate(scores):
        order = np.lexsort((names, score[places]))[:k]
        found[row, : len(order)] = score[places[order]]
        where[row, : len(order)] = places[order]
    return found, where
